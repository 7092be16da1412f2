#!/usr/bin/env bash
# Usage: life.sh BUILD_DIR, through tests/rdma/run, as root: what goes wrong over verbs. A connection that breaks at every
# step; packets that are lost, late or doubled while the server dies; a client that misuses what it was given. On a real
# machine no packets: they are those of its own loopback.
set -uo pipefail
bin=$1
e2e=$(realpath "$(dirname "$0")/../e2e")
failed=0
"$bin/tests/fs/client/fs_client_steps_test" --gtest_brief=1 || failed=1
"$e2e/with-mount" --bin "$bin" --over verbs --warnings-expected -- "$e2e/hostile.sh" verbs || failed=1
kinds='worker server freeze stall'
[ "${RDFS_RDMA_DRIVER:-}" = device ] || kinds+=' packets'
RDFS_FAULT_OVER='verbs verbs' RDFS_FAULT_KINDS=$kinds RDFS_FAULT_SECONDS=${RDFS_FAULT_SECONDS:-6} \
  "$e2e/faults.sh" --bin "$bin" || failed=1
exit $failed
