#include "server/session/fs_session.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "server/ops/responder.h"
#include "transport/base/random.h"

namespace rdfs::server {
namespace {

constexpr unsigned kOpenTagShift = 48;

}  // namespace

FsSession::FsSession(FsSessionParams params, std::unique_ptr<IntentRing> record)
    : params_(std::move(params)),
      record_(std::move(record)),
      open_tag_((RandomU64() >> kOpenTagShift) | 1U) {}

FsSession::~FsSession() { ReturnBudget(opens_.size()); }

void FsSession::ReturnBudget(std::size_t count) {
  if (params_.budget != nullptr) params_.budget->Return(count);
}

void GivesPlaceBack::operator()(FsSession* session) const { session->ReturnPlace(); }

OpenPlace FsSession::TakePlace() {
  const std::lock_guard lock(mutex_);
  const std::size_t mine = opens_.size() + places_;
  if (mine >= params_.limits.open_files) return nullptr;
  if (params_.budget != nullptr && !params_.budget->Take(mine)) return nullptr;
  ++places_;
  return OpenPlace(this);
}

void FsSession::ReturnPlace() {
  const std::lock_guard lock(mutex_);
  --places_;
  ReturnBudget(1);
}

OpenPtr FsSession::AddOpen(OpenPlace place, InodePtr inode, Fd fd, std::uint32_t flags,
                           uid_t opener) {
  auto open = std::make_shared<OpenFile>();
  open->opener = opener;
  open->appends_only =
      (flags & fs::kOpenAppend) != 0 && (::fcntl(fd.get(), F_GETFL) & O_APPEND) != 0;
  return Add(std::move(place), std::move(open), std::move(inode), std::move(fd), flags);
}

OpenPtr FsSession::AddDirectory(OpenPlace place, InodePtr inode, Fd fd, std::uint32_t flags,
                                std::uint64_t asked_by) {
  auto open = std::make_shared<OpenFile>();
  open->directory = std::make_unique<DirectoryCursor>();
  open->asked_by = asked_by;
  return Add(std::move(place), std::move(open), std::move(inode), std::move(fd), flags);
}

OpenPtr FsSession::Add(OpenPlace place, OpenPtr open, InodePtr inode, Fd fd, std::uint32_t flags) {
  if (!place) return nullptr;
  open->session = id();
  open->file = FileIdOf(*inode);
  open->inode = std::move(inode);
  open->fd = std::make_shared<const Fd>(std::move(fd));
  open->flags = flags;
  {
    const std::lock_guard lock(mutex_);
    // RemoveAllOpens comes behind that, and takes back what is here.
    if (ended()) return nullptr;
    // What it had of the budget is the open file's from now on.
    (void)place.release();
    --places_;
    open->number = (open_tag_ << kOpenTagShift) | ++next_open_;
    opens_[open->number] = open;
    NoteOpensLocked();
    // Under the lock: whoever takes it from the table says Closed behind this.
    inodes().Opened(open->inode, open);
  }
  return open;
}

OpenPtr FsSession::FindDirectory(const Inode& inode, std::uint64_t asked_by) const {
  const std::lock_guard lock(mutex_);
  const auto it = std::ranges::find_if(opens_, [&](const auto& entry) {
    const OpenFile& open = *entry.second;
    return open.directory && open.asked_by == asked_by && open.inode.get() == &inode;
  });
  return it == opens_.end() ? nullptr : it->second;
}

OpenPtr FsSession::FindOpen(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto it = opens_.find(number);
  return it == opens_.end() ? nullptr : it->second;
}

void FsSession::NoteReclaimed(OpenFile& open, std::uint64_t old_number) {
  const std::lock_guard lock(mutex_);
  open.reclaimed_from = old_number;
  reclaimed_[old_number] = open.number;
}

OpenPtr FsSession::FindReclaimed(std::uint64_t old_number) const {
  const std::lock_guard lock(mutex_);
  const auto found = reclaimed_.find(old_number);
  if (found == reclaimed_.end()) return nullptr;
  const auto open = opens_.find(found->second);
  return open == opens_.end() ? nullptr : open->second;
}

std::size_t FsSession::open_files() const {
  const std::lock_guard lock(mutex_);
  return opens_.size();
}

fs::WireError FsSession::WhyNotOpen(std::uint64_t number) const {
  if (ended()) return fs::WireError::kUnknownSession;
  return number >> kOpenTagShift == open_tag_ ? fs::WireError::kBadHandle
                                              : fs::WireError::kWrongEpoch;
}

OpenPtr FsSession::RemoveOpen(std::uint64_t number) {
  OpenPtr open;
  {
    const std::lock_guard lock(mutex_);
    const auto it = opens_.find(number);
    if (it == opens_.end()) return nullptr;
    open = it->second;
    opens_.erase(it);
    reclaimed_.erase(open->reclaimed_from);
    ReturnBudget(1);
    NoteOpensLocked();
  }
  inodes().Closed(open->inode, open.get());
  return open;
}

std::vector<OpenPtr> FsSession::RemoveAllOpens() {
  std::vector<OpenPtr> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, open] : opens_) all.push_back(open);
    ReturnBudget(opens_.size());
    opens_.clear();
    reclaimed_.clear();
    NoteOpensLocked();
  }
  for (const OpenPtr& open : all) inodes().Closed(open->inode, open.get());
  return all;
}

std::vector<OpenPtr> FsSession::OpensToKeep(std::size_t most) {
  std::vector<OpenPtr> found;
  const std::lock_guard lock(mutex_);
  const std::uint64_t until = std::exchange(swept_, next_open_);
  if (until == all_kept_) return found;
  constexpr std::uint64_t kCount = (1ULL << kOpenTagShift) - 1;
  for (const auto& [number, open] : opens_) {
    if ((number & kCount) > until || open->directory || open->kept.load()) continue;
    if (found.size() == most) return found;
    found.push_back(open);
  }
  all_kept_ = until;
  return found;
}

void FsSession::NotAllKept() {
  const std::lock_guard lock(mutex_);
  all_kept_ = 0;
}

bool FsSession::MayHaveOpensToKeep() const {
  const std::lock_guard lock(mutex_);
  return all_kept_ != next_open_ && !opens_.empty();
}

void FsSession::NoteOpensLocked() {
  if (record_) record_->NoteOpens(opens_.size());
}

void FsSession::AddDuplicate(std::uint64_t sequence, Responder responder) {
  const std::lock_guard lock(mutex_);
  duplicates_.emplace(sequence, std::make_unique<Responder>(std::move(responder)));
  has_duplicates_.store(true);
}

std::vector<Responder> FsSession::TakeDuplicates(std::uint64_t sequence) {
  std::vector<Responder> taken;
  if (!has_duplicates_.load()) return taken;
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = duplicates_.equal_range(sequence);
  for (auto it = begin; it != end; ++it) taken.push_back(std::move(*it->second));
  duplicates_.erase(begin, end);
  has_duplicates_.store(!duplicates_.empty());
  return taken;
}

}  // namespace rdfs::server
