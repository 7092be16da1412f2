// AsServer: the calling thread has the server's own rights for a moment, whoever it acts as.
//
// For work that is not the doing of the request that is served right now: a completion, a lock that
// is tried again. What its requester may do was asked before. Leaves ThreadIdentity as it finds it;
// a server that is not root notices nothing.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace rdfs::server {

class AsServer {
 public:
  AsServer() { (void)::syscall(SYS_setfsuid, ::geteuid()); }
  ~AsServer() { (void)::syscall(SYS_setfsuid, uid_); }
  AsServer(const AsServer&) = delete;
  AsServer& operator=(const AsServer&) = delete;

 private:
  const long uid_ = ::syscall(SYS_setfsuid, -1);  // changes nothing
};

}  // namespace rdfs::server
