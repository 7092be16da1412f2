#include "server/identity/idmap.h"

#include <algorithm>
#include <utility>

namespace rdfs::server {

std::optional<IdMode> IdModeFromName(std::string_view name) {
  if (name == "as_me") return IdMode::kAsMe;
  if (name == "root_squash") return IdMode::kRootSquash;
  if (name == "all_squash") return IdMode::kAllSquash;
  if (name == "trusted" || name == "no_root_squash") return IdMode::kTrusted;
  return std::nullopt;
}

IdMap IdMap::AsMe(Ids server, Ids client, bool raw_ids) {
  IdMap map;
  map.mode_ = IdMode::kAsMe;
  if (!raw_ids) {
    map.uid_ = {server.uid, client.uid};
    map.gid_ = {server.gid, client.gid};
  }
  return map;
}

IdMap IdMap::Daemon(IdMode mode, Ids anonymous) {
  IdMap map;
  map.mode_ = mode;
  map.anonymous_ = anonymous;
  return map;
}

std::optional<Ids> IdMap::Caller(Ids client) const {
  switch (mode_) {
    case IdMode::kAsMe:
      return std::nullopt;
    case IdMode::kAllSquash:
      return anonymous_;
    case IdMode::kRootSquash:
      // Each id by itself: a user whose group is root keeps the user and loses the group.
      if (client.uid == 0) return anonymous_;
      return Ids{client.uid, client.gid == 0 ? anonymous_.gid : client.gid};
    case IdMode::kTrusted:
      return client;
  }
  return anonymous_;
}

IdMap::Groups IdMap::CallerGroups(Groups known) const {
  if (mode_ != IdMode::kRootSquash || std::ranges::find(*known, gid_t{0}) == known->end()) {
    return known;
  }
  std::vector<gid_t> squashed = *known;
  std::ranges::replace(squashed, gid_t{0}, gid_t{anonymous_.gid});
  return std::make_shared<const std::vector<gid_t>>(std::move(squashed));
}

}  // namespace rdfs::server
