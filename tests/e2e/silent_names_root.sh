#!/usr/bin/env bash
# Usage: silent_names_root.sh --bin BUILD_DIR
#
# A name server that does not answer: a mount ends at its deadline, and says so. In a network and a mount namespace
# of its own, where such a server is the only one.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
[ "${RDFS_APART:-}" = 1 ] || exec env RDFS_APART=1 unshare --net --mount --propagation private "$0" "$@"
begin "$@"

ip link set lo up
echo 'nameserver 127.0.0.1' >"$work/resolv.conf"
mount --bind "$work/resolv.conf" /etc/resolv.conf || problem "no resolv.conf of our own"
python3 -c '
import socket, time
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.1", 53))
print("bound", flush=True)
time.sleep(60)' >"$work/bound" &
ends_with_us $!
wait_until 100 grep -q bound "$work/bound" || problem "no silent name server"
mkdir "$work/mnt"
begun=$SECONDS
# By itself resolv.conf(5) has it wait for ten seconds.
timeout 60 "$rdfs" rdfs://some.host.example:7340/x "$work/mnt" -o deadline=2 2>"$work/err" && problem "it mounts"
[ $((SECONDS - begun)) -le 7 ] || problem "a deadline of 2 s took $((SECONDS - begun))"
grep -q "^rdfs: no name server has said in time what the host 'some.host.example' is; check" "$work/err" ||
  problem "it says something else: $(cat "$work/err")"
[ "$(wc -l <"$work/err")" -eq 1 ] || problem "not one sentence"
conclude "a name server that is silent"
