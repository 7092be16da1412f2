#!/usr/bin/env bash
# Usage: run_device.sh     (in the guest, or on a machine with an RDMA device)
# `run` on a machine that has a device of its own, as the guest has: COMMAND runs here, with what it is told of the
# device, within its limits. Without one that is up and has an address there is a failure where one was asked for.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
driver=$RDFS_RDMA_DRIVER address=$RDFS_RDMA_ADDRESS address6=${RDFS_RDMA_ADDRESS6:-}
# Of the `run` that brought us here.
unset RDFS_RDMA RDFS_RDMA_REQUIRED RDFS_RDMA_DRIVER RDFS_RDMA_ADDRESS RDFS_RDMA_ADDRESS6
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# runs STATUS OUTPUT WHAT ARGUMENT...: of `run --driver siw`, and a regular expression for a line.
runs() {
  local wanted=$1 output=$2 what=$3 status=0
  shift 3
  "$here/run" --driver siw "$@" >"$work/out" 2>"$work/err" || status=$?
  if [[ $status -eq $wanted ]] && grep -qE "$output" "$work/out" "$work/err"; then
    echo "as it should: $what"
    return
  fi
  echo "FAILED: $what: exit status $status, not $wanted, or nothing matches $output" >&2
  cat "$work/out" "$work/err" >&2
  failures=$((failures + 1))
}
# shellcheck disable=SC2016  # COMMAND expands it
told='echo "told: $RDFS_RDMA_DRIVER $RDFS_RDMA_ADDRESS $RDFS_RDMA_ADDRESS6."'

runs 0 "told: device $address $address6\.$" 'the device is found' -- sh -c "$told"
runs 0 "run: on device [a-z0-9_]+, address $address$" 'and named' --ncpus 2 --mem 3072M --ro / -- true
RDFS_RDMA=device runs 0 "told: device $address $address6\.$" 'the device is asked for' -- sh -c "$told"
runs 7 '' 'the exit status of COMMAND' -- sh -c 'exit 7'
runs 124 '' 'the time limit' --timeout 1 -- sleep 60
runs 0 '^64$' 'memlock' --memlock 64 -- sh -c 'ulimit -l'
# shellcheck disable=SC2016  # the same
RDFS_TEST_USER=nobody runs 0 '^nobody 64$' 'a user, and memlock' --memlock 64 --user -- bash -c 'echo $(id -un) $(ulimit -l)'

if [[ $driver != device ]]; then
  # There is no kernel to boot in here.
  runs 77 'run: skipped' 'two hosts, which one machine is not' --hosts -- true
  RDFS_RDMA=guest runs 77 'run: skipped' 'the guest is asked for' -- true
  ip address del "$address/24" dev dummy0
  RDFS_RDMA=device runs 1 'run: RDFS_RDMA=device, but no RDMA device here is up and has an IPv4 address' 'no address' -- true
  runs 77 'run: skipped' 'no address, and the guest instead' -- true
  ip address add "$address/24" dev dummy0
  ip link set dummy0 down
  RDFS_RDMA=device runs 1 'but no RDMA device here is up' 'a device that is down' -- true
fi
exit $((failures > 0))
