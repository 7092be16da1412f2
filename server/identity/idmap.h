// IdMap: which uid and gid a request acts as, and how the server's ids look to the client.
//
// Pure values; any thread. Applied in one place each way: Caller() when a request is taken,
// ToServer*() for ids inside a request (chown, ACLs), ToClient*() for ids in a reply.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace rdfs::server {

struct Ids {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  friend auto operator<=>(const Ids&, const Ids&) = default;
};

// How an export treats the ids of its clients.
enum class IdMode : std::uint8_t {
  // The server runs as one user and acts as that user whoever asks; that user and the mounting user
  // are mapped onto each other, other ids are shown raw. What ssh starts, and any server that is
  // not root.
  kAsMe,
  // Ids are trusted as they come, root becomes `anonymous`. A daemon's default.
  kRootSquash,
  // Everybody acts as `anonymous`.
  kAllSquash,
  // Ids are trusted as they come, root's too.
  kTrusted,
};
std::optional<IdMode> IdModeFromName(std::string_view name);  // as an export's options name it

inline constexpr Ids kNobody{65534, 65534};  // nobody and nogroup everywhere

class IdMap {
 public:
  IdMap() = default;
  // `server`: who the server runs as. `client`: who mounts. kAsMe with raw ids maps nothing.
  static IdMap AsMe(Ids server, Ids client, bool raw_ids);
  static IdMap Daemon(IdMode mode, Ids anonymous = kNobody);

  // The ids to act with, or nothing: as the server itself.
  [[nodiscard]] std::optional<Ids> Caller(Ids client) const;
  // The groups to act with, of those that the user database says the caller is in; not null.
  using Groups = std::shared_ptr<const std::vector<gid_t>>;
  [[nodiscard]] Groups CallerGroups(Groups known) const;

  // Ids as values, each way; the inverse of each other. (Squashing changes who acts, not what is
  // shown: a squashed client sees the true owners.)
  [[nodiscard]] std::uint32_t ToServerUid(std::uint32_t uid) const { return Swap(uid, uid_); }
  [[nodiscard]] std::uint32_t ToServerGid(std::uint32_t gid) const { return Swap(gid, gid_); }
  [[nodiscard]] std::uint32_t ToClientUid(std::uint32_t uid) const { return Swap(uid, uid_); }
  [[nodiscard]] std::uint32_t ToClientGid(std::uint32_t gid) const { return Swap(gid, gid_); }
  [[nodiscard]] bool maps_values() const { return uid_.a != uid_.b || gid_.a != gid_.b; }

 private:
  struct Pair {
    std::uint32_t a = 0, b = 0;
  };
  // Two ids change places, so that the map is one to one and never shows two users as one.
  static std::uint32_t Swap(std::uint32_t id, Pair pair) {
    if (id == pair.a) return pair.b;
    return id == pair.b ? pair.a : id;
  }

  IdMode mode_ = IdMode::kAsMe;
  Ids anonymous_ = kNobody;
  Pair uid_, gid_;
};

}  // namespace rdfs::server
