#!/usr/bin/env bash
# Usage: with-mount --over verbs -- memlock.sh     (as an ordinary user, with `ulimit -l 8192`)
# What Linux lets a user lock by default is enough: a tree of files comes back the same, a large file too, and neither
# process pins more than its limit. Prints what the large file cost.
set -euo pipefail
fail() { echo "FAILED: $1" >&2; exit 1; }
limit=$(ulimit -l)
[ "$limit" != unlimited ] && [ "$limit" -le 8192 ] || fail "memlock is $limit, not 8192 or less"
[ "$(id -u)" -ne 0 ] || fail 'root is not limited by memlock'

"$(dirname "$0")/../e2e/trees.sh"

mib=64
seconds() {
  local start=$EPOCHREALTIME
  "$@" >/dev/null
  awk -v a="$start" -v b="$EPOCHREALTIME" -v mib=$mib 'BEGIN { printf "%.0f MB/s\n", mib * 1.048576 / (b - a) }'
}
head -c ${mib}M /dev/urandom >"$RDFS_E2E_LOCAL/large"
echo "written, $(seconds dd if="$RDFS_E2E_LOCAL/large" of="$RDFS_E2E_MOUNT/large" bs=1M conv=fsync status=none)"
echo "read, $(seconds dd if="$RDFS_E2E_MOUNT/large" of=/dev/null bs=1M iflag=direct status=none)"
dd if="$RDFS_E2E_MOUNT/large" bs=1M iflag=direct status=none | cmp - "$RDFS_E2E_LOCAL/large" || fail 'the large file differs'

# And it is said, once, that this is not how fast it could be.
said=$(grep -c ': warning: ' "$RDFS_E2E_SERVER_LOG") || true
grep -q 'warning: .*has to go inside messages: .*ulimit -l' "$RDFS_E2E_SERVER_LOG" && [ "$said" = 1 ] ||
  fail "rdfsd warns of this $said times: $(cat "$RDFS_E2E_SERVER_LOG")"

# The supervisor's worker holds the server's regions.
for process in "$RDFS_E2E_CLIENT_PID" $(pgrep -P "$RDFS_E2E_SERVER_PID" || true) "$RDFS_E2E_SERVER_PID"; do
  pinned=$(awk '/^VmPin/ { print $2 }' "/proc/$process/status")
  echo "$(cat "/proc/$process/comm") pins $pinned KiB"
  [ "$pinned" -le "$limit" ] || fail "process $process pins more than its limit"
  total=$((${total:-0} + pinned))
done
[ "$total" -gt 1000 ] || fail 'nothing is pinned: this was not RDMA'
