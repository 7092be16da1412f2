#!/usr/bin/env bash
# Usage: far.sh COMMAND..., through tests/rdma/run, as root: COMMAND where each packet takes 10 ms, so that what was sent is on its way
# long after it was done with. On a real machine, whose packets are others' as well, without that.
set -uo pipefail
[ "${RDFS_RDMA_DRIVER:-}" = device ] || tc qdisc add dev lo root netem delay 10ms limit 100000 || exit 1
exec "$@"
