// The three ways in which verbs say that something failed, each turned into a Status.
//
//   positive errno returned     ibv_post_*, ibv_modify_*, ibv_req_notify_cq   FromReturned
//   -1 or NULL, errno is set    rdma_*, ibv_create_*, ibv_reg_mr, POSIX       FromErrno
//   a completion's status       ibv_poll_cq                                   FromCompletion
//
// What a user can repair says how. Pure; any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "transport/base/status.h"
#include "transport/transport.h"
#include "transport/verbs/work_id.h"

namespace rdfs::transport::verbs {

// `what` names what was tried, for a person: "cannot post a receive".
Status FromReturned(int errno_value, std::string_view what);
// Reads errno: nothing may come between the failing call and this one.
Status FromErrno(std::string_view what);
// What ended the connection, as seen by the work of `kind`. Every failed completion ends it.
Status FromCompletion(ibv_wc_status status, WorkKind kind);
// ENOMEM and its kin while pinning `bytes` of memory for `device`: names the limit and its remedy.
Status FromRegistration(int errno_value, std::size_t bytes, std::string_view device);
// What a listener at `endpoint` could not have.
Status FromListen(int errno_value, const Endpoint& endpoint);

}  // namespace rdfs::transport::verbs
