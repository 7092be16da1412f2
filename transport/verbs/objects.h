// Owners of the objects of libibverbs and librdmacm: one unique_ptr alias each. The only place that
// names their destroy calls.
//
// Each is owned by one object of ours and dies with it. Whoever holds several declares them so that
// they are destroyed in the order that the libraries demand: QP, CQ, completion channel, MR (then
// its memory), PD, cm_id, event channel. A destroy call that is refused means a bug of ours, an
// object that still has users: it is logged, since a destructor cannot fail.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <memory>

#include "transport/base/log.h"

namespace rdfs::transport::verbs {

struct Destroy {
  // libibverbs returns the errno, librdmacm -1 and sets it.
  void operator()(ibv_context* context) const {
    Log("ibv_close_device", ibv_close_device(context));
  }
  void operator()(ibv_pd* pd) const { Log("ibv_dealloc_pd", ibv_dealloc_pd(pd)); }
  void operator()(ibv_mr* mr) const { Log("ibv_dereg_mr", ibv_dereg_mr(mr)); }
  void operator()(ibv_comp_channel* channel) const {
    Log("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel));
  }
  // Waits until every event of the queue has been acknowledged.
  void operator()(ibv_cq* cq) const { Log("ibv_destroy_cq", ibv_destroy_cq(cq)); }
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
  void operator()(rdma_event_channel* channel) const { rdma_destroy_event_channel(channel); }
  // Waits until every event of the id has been acknowledged.
  void operator()(rdma_cm_id* id) const {
    if (rdma_destroy_id(id) != 0) Log("rdma_destroy_id", errno);
  }
  void operator()(rdma_cm_event* event) const {
    if (rdma_ack_cm_event(event) != 0) Log("rdma_ack_cm_event", errno);
  }

 private:
  static void Log(const char* call, int errno_value) {
    if (errno_value != 0) LogError("{} refused to end an object: errno {}", call, errno_value);
  }
};

// rdma_create_qp(3) ties a queue pair to its id and undoes more than ibv_destroy_qp would: the
// owner of a queue pair is an owner of id->qp.
struct DestroyQueuePair {
  void operator()(rdma_cm_id* id) const { rdma_destroy_qp(id); }
};

using DeviceListPtr = std::unique_ptr<ibv_device*, Destroy>;
using ContextPtr = std::unique_ptr<ibv_context, Destroy>;
using ProtectionDomainPtr = std::unique_ptr<ibv_pd, Destroy>;
using MemoryRegionPtr = std::unique_ptr<ibv_mr, Destroy>;
using CompletionChannelPtr = std::unique_ptr<ibv_comp_channel, Destroy>;
using CompletionQueuePtr = std::unique_ptr<ibv_cq, Destroy>;
using QueuePairPtr = std::unique_ptr<rdma_cm_id, DestroyQueuePair>;
using EventChannelPtr = std::unique_ptr<rdma_event_channel, Destroy>;
using CmIdPtr = std::unique_ptr<rdma_cm_id, Destroy>;
// The event is acknowledged when this dies.
using CmEventPtr = std::unique_ptr<rdma_cm_event, Destroy>;

}  // namespace rdfs::transport::verbs
