#include "server/session/export_list.h"

#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "server/lease/outside_changes.h"
#include "transport/base/log.h"
#include "transport/base/memlock.h"

namespace rdfs::server {
namespace {

// Descriptors for everything but the inodes' own: open files, rings, sockets.
constexpr std::size_t kSpareDescriptors = 512;
constexpr std::size_t kMaxInodeDescriptors = 131072;

Result<IdMode> ModeOf(const ExportSpec& spec) {
  const bool root = ::geteuid() == 0;
  const IdMode mode = spec.id_mode_given ? spec.id_mode
                      : root             ? IdMode::kRootSquash
                                         : IdMode::kAsMe;
  if (mode != IdMode::kAsMe && !root) {
    return Status(Code::kInvalidArgument, "export \"" + spec.name +
                                              "\": only a rdfsd that runs as root can act as other "
                                              "users; leave the id mapping out");
  }
  return mode;
}

Status TwoOf(const std::string& name) {
  return {Code::kInvalidArgument, "two exports are called \"" + name + "\""};
}

}  // namespace

DescriptorShares SharesFor(std::size_t exports) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::size_t descriptors = std::min<std::size_t>(limit.rlim_cur, 4 * kMaxInodeDescriptors);
  const std::size_t spare = std::min(kSpareDescriptors, descriptors / 2);
  // Half of the others for inodes, of the rest one in four for locks.
  const std::size_t inodes = std::min((descriptors - spare) / 2, kMaxInodeDescriptors);
  const std::size_t rest = descriptors - spare - inodes;
  DescriptorShares shares{.inodes = {}, .open_files = rest - rest / 4, .lock_files = rest / 4};
  shares.inodes.descriptors = std::max<std::size_t>(16, inodes / std::max<std::size_t>(1, exports));
  shares.inodes.entries = shares.inodes.descriptors * 8;
  return shares;
}

std::uint64_t ExportIdOf(const InodeTable& inodes) {
  const FileId root = FileIdOf(*inodes.root().inode);
  const std::string& name = inodes.exported().name();
  return XXH3_64bits_withSeed(name.data(), name.size(), root.inode ^ root.generation);
}

ExportList::ExportList(Options options, Core& core) : options_(options), core_(core) {
  core_.opened_by_another = [this](const InodeKey& file, std::uint64_t session) {
    return OpenedByAnother(file, session);
  };
}

bool ExportList::OpenedByAnother(const InodeKey& file, std::uint64_t session) const {
  const auto by_another = [session](const OpenFile& open) { return open.session != session; };
  const std::lock_guard lock(tables_mutex_);
  return std::ranges::any_of(
      tables_, [&](const InodeTable* table) { return table->HasUser(file, by_another); });
}

InodePtr ExportList::Known(const InodeKey& inode) const {
  const std::lock_guard lock(tables_mutex_);
  for (const InodeTable* table : tables_) {
    if (InodePtr known = table->Known(inode)) return known;
  }
  return nullptr;
}

Result<ExportList::Entry> ExportList::Make(const ExportSpec& spec,
                                           const InodeLimits& limits) const {
  RDFS_ASSIGN_OR_RETURN(const IdMode mode, ModeOf(spec));
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<const Export> exported, options_.open(spec));
  RDFS_ASSIGN_OR_RETURN(std::unique_ptr<InodeTable> inodes,
                        InodeTable::Create(exported, options_.secret, core_.proc, limits));
  Entry entry;
  entry.offer = {.exported = std::move(exported), .inodes = inodes.get(), .id_mode = mode};
  entry.inodes = std::move(inodes);
  return entry;
}

Status ExportList::Add(const ExportSpec& spec, const InodeLimits& limits) {
  const std::lock_guard making(making_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (FindLocked(spec.name) != nullptr) return TwoOf(spec.name);
  }
  RDFS_ASSIGN_OR_RETURN(Entry entry, Make(spec, limits));
  entry.watch = WatchOutside(*entry.inodes);
  const std::lock_guard lock(mutex_);
  KeepLocked(std::move(entry));
  return {};
}

void ExportList::KeepLocked(Entry entry) {
  {
    const std::lock_guard lock(tables_mutex_);
    tables_.push_back(entry.inodes.get());
  }
  entries_.push_back(std::move(entry));
}

ExportList::Entry* ExportList::FindLocked(std::string_view name) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.offer.exported->name() == name;
  });
  return found == entries_.end() ? nullptr : &*found;
}

bool ExportList::IsMadeAnew(const Offer& now) {
  const std::lock_guard lock(mutex_);
  const Entry* known = FindLocked(now.exported->name());
  if (known == nullptr) return false;
  const Inode& held = *known->offer.inodes->root().inode;
  const Inode& found = *now.inodes->root().inode;
  // A number is not given to another one while we hold it open; what tells it from a later one of
  // that number, its birth, changes when overlayfs copies it up.
  if (found.native.kind == NativeHandle::Kind::kNumber) return !(held.key == found.key);
  return !IsSameInode(held.native, found.native);
}

Status ExportList::Reload(const std::vector<ExportSpec>& specs) {
  const std::lock_guard making(making_mutex_);
  std::size_t exports = specs.size();
  std::vector<bool> is_new;
  {
    const std::lock_guard lock(mutex_);
    exports += entries_.size();
    for (const ExportSpec& spec : specs) {
      const auto same = [&spec](const ExportSpec& other) { return other.name == spec.name; };
      if (std::count_if(specs.begin(), specs.end(), same) > 1) return TwoOf(spec.name);
      const Entry* known = FindLocked(spec.name);
      if (known != nullptr && known->offer.exported->spec().directory != spec.directory) {
        return {Code::kInvalidArgument,
                "export \"" + spec.name +
                    "\" has another directory now: give it another name, or start rdfsd again"};
      }
      is_new.push_back(known == nullptr);
    }
  }
  // All is made, and may fail, before anything changes. A directory may hang: not under the lock.
  const InodeLimits limits = SharesFor(exports).inodes;
  std::vector<Entry> made;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    RDFS_ASSIGN_OR_RETURN(Entry entry, Make(specs[i], limits));
    if (IsMadeAnew(entry.offer)) {
      return {Code::kInvalidArgument, "export \"" + specs[i].name + "\": " + specs[i].directory +
                                          " was made anew, or mounted over, and its mounts have "
                                          "the old one: start rdfsd again"};
    }
    made.push_back(std::move(entry));
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (is_new[i]) made[i].watch = WatchOutside(*made[i].inodes);
  }
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) entry.offered = false;
  for (Entry& entry : made) {
    Entry* known = FindLocked(entry.offer.exported->name());
    if (known == nullptr) {
      KeepLocked(std::move(entry));
      continue;
    }
    known->offer.exported = std::move(entry.offer.exported);
    known->offer.id_mode = entry.offer.id_mode;
    known->offered = true;
  }
  return {};
}

std::unique_ptr<OutsideWatch> ExportList::WatchOutside(InodeTable& inodes) {
  OutsideWatch::Options options;
  options.period = std::max(options.period, 2 * core_.options.watched_lease);
  auto watch = OutsideWatch::Start(
      core_.proc, options,
      {.changed = [&core = core_,
                   &inodes](auto changes) { OnChangedOutside(core, inodes, changes); },
       .lost = [&core = core_, &inodes] { OnLostOutside(core, inodes); }});
  if (!watch.ok()) {
    // About the age of a kernel, and as an ordinary user, nothing can be done.
    const bool denied = ::geteuid() == 0 && watch.status().code() != Code::kUnsupported;
    const LogLevel level = denied ? LogLevel::kWarn : LogLevel::kInfo;
    if (!std::exchange(told_of_no_watch_, true)) {
      Log(level, "what others change in an export on this host is seen up to a second later: {}",
          watch.status().message());
    }
    return nullptr;
  }
  inodes.SetWatch(watch->get());
  return *std::move(watch);
}

std::optional<Offer> ExportList::Find(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = FindLocked(name);
  if (entry == nullptr || !entry->offered) return std::nullopt;
  return entry->offer;
}

std::vector<std::string> ExportList::Names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    if (entry.offered) names.push_back(entry.offer.exported->name());
  }
  return names;
}

bool ExportList::Has(std::uint64_t export_id) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return export_id == ExportIdOf(*entry.inodes); });
}

const AccessClass& ExportList::ClassOf(const Offer& offer, const std::string& key_name) {
  std::size_t exports = 0;
  {
    const std::lock_guard lock(mutex_);
    exports = entries_.size();
  }
  const std::lock_guard lock(classes_mutex_);
  auto& slot =
      classes_[{offer.exported->name(), key_name, offer.id_mode, offer.exported->spec().anonymous}];
  if (slot) return *slot;
  slot = std::make_unique<AccessClass>();
  slot->key_name = key_name;
  slot->inodes = offer.inodes;
  slot->domain = transport::Domain::Create(offer.exported->name() + "/" + key_name);
  StoreOptions store;
  const std::size_t pool = options_.pool_bytes != 0 ? options_.pool_bytes : DefaultPoolBytes();
  store.pool = PoolOptionsFor(pool / std::max<std::size_t>(1, exports), MemlockLimit());
  store.attr_lease = options_.attr_lease;
  slot->store = std::make_shared<ExtentStore>(slot->domain, store, core_.clock);
  core_.stores.Add(slot->store);
  return *slot;
}

std::optional<std::size_t> ExportList::Age(std::size_t most) {
  // Closing what is the last of a large file takes long: behind the lock, and tables stay.
  std::vector<InodeTable*> tables;
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) tables.push_back(entry.inodes.get());
  }
  for (; aged_ < tables.size(); ++aged_) {
    const std::optional<std::size_t> left = tables[aged_]->Age(most);
    if (!left) return std::nullopt;
    left_by_aged_ += *left;
  }
  aged_ = 0;
  return std::exchange(left_by_aged_, 0);
}

StoreStats ExportList::PoolStats() const {
  const std::lock_guard lock(classes_mutex_);
  StoreStats sum;
  for (const auto& [key, access] : classes_) {
    const StoreStats one = access->store->stats();
    sum.hits += one.hits;
    sum.misses += one.misses;
    sum.fills_at_once += one.fills_at_once;
    sum.fills_waited += one.fills_waited;
    sum.grants += one.grants;
    sum.inline_bytes += one.inline_bytes;
    sum.refused_grants += one.refused_grants;
    sum.evicted += one.evicted;
    sum.cached_bytes += one.cached_bytes;
    sum.leased_bytes += one.leased_bytes;
    sum.capacity_bytes += one.capacity_bytes;
  }
  return sum;
}

void ExportList::StopWatching() {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) entry.watch.reset();
}

}  // namespace rdfs::server
