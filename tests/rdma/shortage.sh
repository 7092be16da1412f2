#!/usr/bin/env bash
# Usage: shortage.sh BUILD_DIR     (in the guest, as an ordinary user)
# What a server cannot have for RDMA is said: memory for both of rdping's regions, when each row that is not measured is
# named at both ends.
set -uo pipefail
bin=$1
work=$(mktemp -d)
servers=()
failed=0
finish() {
  local server
  for server in "${servers[@]}"; do kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; done
  rm -rf "$work"
}
trap finish EXIT
fail() { echo "FAILED: $1" >&2; tail -n 20 "$work"/*.log >&2; failed=1; }
port=$((20000 + RANDOM % 20000))
# Each of the two regions is 16 MiB: there is room for one.
(ulimit -l 24576 && exec "$bin/tools/rdping/rdping" server "$port" --listen "$RDFS_RDMA_ADDRESS") >"$work/rdping.log" 2>&1 &
servers+=($!)
for _ in $(seq 100); do grep -q 'rdping client' "$work/rdping.log" && break; sleep 0.1; done
"$bin/tools/rdping/rdping" client "$RDFS_RDMA_ADDRESS" "$port" --seconds 0.05 --require verbs >"$work/client.log" 2>&1 ||
  fail 'rdping fails'
grep -q '^verbs .*READ' "$work/client.log" || fail 'READ is not measured'
grep -q '^verbs .*WRITE' "$work/client.log" && fail 'WRITE is measured: this test wants memory that cannot be pinned'
grep -q '^not measured: verbs WRITE: the server could not pin memory; see its log' "$work/client.log" ||
  fail 'rdping does not say why WRITE is not measured'
grep -q 'warning: WRITE cannot be measured: .*memlock' "$work/rdping.log" || fail 'nor does the server'
exit $failed
