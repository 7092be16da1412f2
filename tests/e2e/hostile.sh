#!/usr/bin/env bash
# Usage: with-mount ... -- hostile.sh shm|tcp|verbs
# A hostile client (tests/e2e/hostile) at the server beside a mount on which threads work and compare every byte: it gets
# nothing but refusals, and the mount does not notice. Neither does the process that serves.
set -uo pipefail
over=$1
shared=100 threads=2
work=$(mktemp -d "${TMPDIR:-/tmp}/rdfs-hostile-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
acknowledged=$RDFS_E2E_BIN/tests/e2e/acknowledged/acknowledged
worker() { pgrep -P "$RDFS_E2E_SERVER_PID"; }

head -c 1048576 /dev/zero | tr '\0' p >"$RDFS_E2E_BACKING/prey"
cp "$RDFS_E2E_BACKING/prey" "$RDFS_E2E_BACKING/prey2"
"$acknowledged" prepare "$RDFS_E2E_BACKING" $shared $threads || exit 1
before=$(worker)
mkfifo "$work/stop"
# What one waits for while the other does not acknowledge a recall is a lease: no call takes longer than 15 s.
"$acknowledged" run "$work" $shared $threads 1 300 15 - "$RDFS_E2E_MOUNT" <"$work/stop" >"$work/said" &
good=$!
exec 3>"$work/stop"
failed=0
timeout 200 "$RDFS_E2E_BIN/tests/e2e/hostile/hostile" "${RDFS_RDMA_ADDRESS:-127.0.0.1}" "$RDFS_E2E_PORT" "$RDFS_E2E_KEY" \
  "$over" prey || failed=1
echo >&3
wait $good || { echo "hostile.sh: the mount beside it suffered" >&2; failed=1; }
cat "$work/said"
"$acknowledged" check "$work" $shared - "$RDFS_E2E_BACKING" || failed=1
[ "$(worker)" = "$before" ] || { echo "hostile.sh: the process that serves was started again" >&2; failed=1; }
exit $failed
