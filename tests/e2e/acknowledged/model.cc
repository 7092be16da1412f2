#include "tests/e2e/acknowledged/model.h"

#include <algorithm>
#include <cerrno>

namespace rdfs::acknowledged {
namespace {

bool IsOfSlot(Kind kind) {
  return kind == Kind::kWrite || kind == Kind::kShrink || kind == Kind::kRead ||
         kind == Kind::kSync || kind == Kind::kClose;
}
bool IsShared(Kind kind) {
  return kind == Kind::kLog || kind == Kind::kClaim || kind == Kind::kTake || kind == Kind::kGrab;
}
bool HasTwoNames(Kind kind) { return kind == Kind::kRename || kind == Kind::kLink; }
bool ChangesContent(Kind kind) {
  return kind == Kind::kWrite || kind == Kind::kShrink || kind == Kind::kTruncate;
}

}  // namespace

Model::FilePtr Model::Find(int name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : found->second;
}

bool Model::NameIsSure(int name) const {
  return DirectoryIsSure(DirectoryOf(name)) && !unsure_.contains(name);
}

bool Model::DirectoryIsEmpty(int directory) const {
  for (int name = 0; name < kNames; ++name) {
    if (DirectoryOf(name) == directory && names_.contains(name)) return false;
  }
  return true;
}

std::optional<int> Model::OpenOn(const FilePtr& file) const {
  for (const Slot& slot : slots_) {
    if (slot.file == file) return slot.mount;
  }
  return std::nullopt;
}

std::optional<int> Model::UnsyncedSlotOf(const FilePtr& file) const {
  for (int number = 0; number < kSlots; ++number) {
    if (slot(number).file == file && slot(number).unsynced) return number;
  }
  return std::nullopt;
}

bool Model::Sensible(const Op& op) const {
  if (IsShared(op.kind)) return true;
  const Slot& at = slot(op.slot);
  if (IsOfSlot(op.kind)) {
    if (at.file == nullptr || at.mount != op.mount) return false;
    if (op.kind == Kind::kClose) return true;
    if (op.kind == Kind::kWrite && at.append)
      return at.file->sure() && at.file->bytes.size() < kMostBytes;
    return at.file->sure();
  }
  const int directory = DirectoryOf(op.file);
  if (op.kind == Kind::kMkdir || op.kind == Kind::kRmdir) {
    if (directory == 0 || !DirectoryIsSure(directory)) return false;
    for (const auto& [name, unsure] : unsure_) {
      if (DirectoryOf(name) == directory) return false;
    }
    return true;
  }
  if (!NameIsSure(op.file)) return false;
  if (HasTwoNames(op.kind) && (!NameIsSure(op.other) || op.file == op.other)) return false;
  if ((op.kind == Kind::kCreate || op.kind == Kind::kOpen) && at.file != nullptr) return false;
  for (const int name : {op.file, HasTwoNames(op.kind) ? op.other : op.file}) {
    const FilePtr file = Find(name);
    if (file == nullptr) continue;
    if (!file->sure()) return false;
    // What is open on one mount is changed there: pages of an open file are its own kernel's
    // business. Looking at it from elsewhere is the test.
    const auto open_on = OpenOn(file);
    const bool content = ChangesContent(op.kind) || op.kind == Kind::kOpen;
    if (content && open_on && (*open_on != op.mount || op.kind == Kind::kOpen)) return false;
  }
  return true;
}

std::optional<int> Model::ExpectedOfNames(const Op& op) const {
  const FilePtr file = Find(op.file), other = Find(op.other);
  const bool there = DirectoryIsThere(DirectoryOf(op.file));
  switch (op.kind) {
    case Kind::kMkdir:
      return there ? EEXIST : 0;
    case Kind::kRmdir:
      if (!there) return ENOENT;
      return DirectoryIsEmpty(DirectoryOf(op.file)) ? 0 : ENOTEMPTY;
    case Kind::kCreate:
      if (!there) return ENOENT;
      return file != nullptr ? EEXIST : 0;
    default:
      break;
  }
  if (file == nullptr) return ENOENT;
  if (!HasTwoNames(op.kind)) return 0;
  if (!DirectoryIsThere(DirectoryOf(op.other))) return ENOENT;
  if (op.kind == Kind::kLink) return other != nullptr ? EEXIST : 0;
  if ((op.flags & kNoReplace) != 0) return other != nullptr ? EEXIST : 0;
  if ((op.flags & kExchange) != 0) return other != nullptr ? 0 : ENOENT;
  return 0;
}

std::optional<int> Model::Expected(const Op& op) const {
  if (op.kind == Kind::kLog) return 0;
  if (IsShared(op.kind)) return std::nullopt;
  if (IsOfSlot(op.kind)) return 0;
  return ExpectedOfNames(op);
}

std::string Model::Changed(const Op& op, const File& file) const {
  std::string bytes = file.bytes;
  if (op.kind != Kind::kWrite) {
    bytes.resize(op.offset, '\0');
    return bytes;
  }
  const std::uint64_t at = slot(op.slot).append ? bytes.size() : op.offset;
  if (bytes.size() < at + op.length) bytes.resize(at + op.length, '\0');
  bytes.replace(at, op.length, Stamp(thread_, op.number, at, op.length));
  return bytes;
}

Model::FilePtr Model::TargetOf(const Op& op) const {
  return IsOfSlot(op.kind) ? slot(op.slot).file : Find(op.file);
}

void Model::Drop(int name) {
  const auto found = names_.find(name);
  if (found == names_.end()) return;
  --found->second->links;
  names_.erase(found);
}

void Model::Done(const Op& op) {
  if (IsShared(op.kind) || Expected(op) != 0) return;
  Slot& at = slots_[static_cast<std::size_t>(op.slot)];
  if (ChangesContent(op.kind)) {
    const FilePtr file = TargetOf(op);
    file->bytes = Changed(op, *file);
    if (IsOfSlot(op.kind)) at.unsynced = true;
  } else if (op.kind == Kind::kSync) {
    at.unsynced = false;
  } else if (op.kind == Kind::kClose) {
    at = {};
  } else if (op.kind == Kind::kOpen) {
    at = {.file = Find(op.file), .mount = op.mount, .append = (op.flags & kAppend) != 0};
  } else if (op.kind == Kind::kCreate) {
    names_[op.file] = std::make_shared<File>();
    at = {.file = names_[op.file], .mount = op.mount};
  } else {
    DoneWithNames(op);
  }
}

void Model::DoneWithNames(const Op& op) {
  const FilePtr file = Find(op.file);
  switch (op.kind) {
    case Kind::kUnlink:
      return Drop(op.file);
    case Kind::kMkdir:
      directories_[static_cast<std::size_t>(DirectoryOf(op.file))] = kYes;
      return;
    case Kind::kRmdir:
      directories_[static_cast<std::size_t>(DirectoryOf(op.file))] = kNo;
      return;
    case Kind::kChmod:
      file->mode = op.length;
      return;
    case Kind::kLink:
      names_[op.other] = file;
      ++file->links;
      return;
    case Kind::kRename: {
      const FilePtr other = Find(op.other);
      if ((op.flags & kExchange) != 0) {
        names_[op.file] = other;
        names_[op.other] = file;
        return;
      }
      if (other == file) return;  // two names of one file: rename(2) does nothing
      Drop(op.other);
      names_[op.other] = file;
      names_.erase(op.file);
      return;
    }
    default:
      return;
  }
}

void Model::UnsureName(int name) {
  if (const FilePtr file = Find(name)) file->links_unsure = true;
  unsure_[name] = true;
}

void Model::Unsure(const Op& op, int error) {
  if (IsShared(op.kind)) return;
  const Slot& open = slot(op.slot);
  if (IsOfSlot(op.kind) && error == ESTALE && open.unsynced) open.file->bytes_unsure = true;
  const auto expected = Expected(op);
  if (op.kind == Kind::kClose) slots_[static_cast<std::size_t>(op.slot)] = {};
  if (expected != 0) return;  // it could not have been done
  if (ChangesContent(op.kind)) {
    const FilePtr file = TargetOf(op);
    file->or_else = Changed(op, *file);
  } else if (op.kind == Kind::kMkdir || op.kind == Kind::kRmdir) {
    directories_[static_cast<std::size_t>(DirectoryOf(op.file))] = kUnsure;
  } else if (op.kind == Kind::kChmod) {
    Find(op.file)->mode_unsure = true;
  } else if (op.kind == Kind::kCreate || op.kind == Kind::kUnlink) {
    UnsureName(op.file);
  } else if (HasTwoNames(op.kind)) {
    UnsureName(op.file);
    UnsureName(op.other);
  }
}

Verdict Judge(const Model& model, const Op& op, int error, const std::vector<int>& unsure) {
  const auto expected = model.Expected(op);
  if (expected ? error == *expected : error == 0) return Verdict::kDone;
  if (!expected && error == (op.kind == Kind::kClaim ? EEXIST : ENOENT)) return Verdict::kDone;
  if (std::find(unsure.begin(), unsure.end(), error) == unsure.end()) return Verdict::kWrong;
  return error != ESTALE || IsOfSlot(op.kind) ? Verdict::kUnsure : Verdict::kWrong;
}

}  // namespace rdfs::acknowledged
