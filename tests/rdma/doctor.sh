#!/usr/bin/env bash
# Usage: doctor.sh BUILD_DIR     (in the guest, booted with --hosts, as root)
# rdinfo names what is wrong with set-ups that need a machine of their own to be broken: a device that is down, an
# MTU that differs or is small for RoCE, no /dev/fuse, a disk that is full, memory that may not be locked, RDMA at one
# end only (and later at both), and RDMA that a server goes on offering after its device is gone. What is wrong is the first advice. Each is
# mended before the next. Where RDMA does not work, a mount does nevertheless, over TCP, and says why.
set -uo pipefail
bin=$1
driver=$RDFS_RDMA_DRIVER
work=$(mktemp -d)
failures=0
# shellcheck source=tests/rdma/hosts_setup.bash
. "$(dirname "$0")/hosts_setup.bash"
finish() { kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; }
trap finish EXIT

# expect STATUS REGEX WHAT ARGUMENT...: the exit code of rdinfo on host b, and a line of what it says.
expect() {
  local wanted=$1 pattern=$2 what=$3 status=0
  shift 3
  on b "$bin/tools/rdinfo/rdinfo" "$@" >"$work/out" 2>&1 || status=$?
  if [ "$status" -eq "$wanted" ] && grep -qE -e "$pattern" "$work/out"; then
    echo "named: $what"
    return
  fi
  echo "FAILED: $what: exit code $status, and no line matches $pattern" >&2
  cat "$work/out" >&2
  failures=$((failures + 1))
}
# first REGEX: what the last `expect` looked at begins its advice with.
first() {
  local place
  place=$(grep -m 1 '^  1[.] ' "$work/out")
  if grep -qE "^  1[.] ($1)" <<<"$place"; then
    echo "at place 1: $1"
    return
  fi
  echo "FAILED: at place 1 is '$place' and not $1" >&2
  cat "$work/out" >&2
  failures=$((failures + 1))
}

mkdir "$work/export"
mount -t tmpfs -o size=1M none "$work/export"
serve() { # OPTION...
  : >"$work/log"
  start_on a "$bin/server/rdfsd" --export "e=$work/export" --listen "$RDFS_HOST_A" --no-auth -f "$@" >"$work/log" 2>&1 &
  server=$!
  local tries
  for ((tries = 0; tries < 200; tries++)); do grep -q 'ready on port' "$work/log" && return; sleep 0.1; done
}
url=rdfs://$RDFS_HOST_A/e

# refuses_without_verbs REGEX WHAT [URL]: on host b a mount with require=verbs, in one sentence that says why.
refuses_without_verbs() {
  local reason=$1 what=$2 status=0
  mkdir -p "$work/mnt"
  on b "$bin/fs/fuse/rdfs" "${3:-$url}" "$work/mnt" -o require=verbs -f >"$work/rdfs.log" 2>&1 || status=$?
  if [ "$status" -eq 1 ] && [ "$(wc -l <"$work/rdfs.log")" -eq 1 ] &&
    grep -qE "verbs is required and does not work: .*$reason" "$work/rdfs.log"; then
    echo "refused with require=verbs: $what"
    return
  fi
  echo "FAILED: $what, require=verbs: exit code $status, or not in one line that matches $reason" >&2
  cat "$work/rdfs.log" >&2
  failures=$((failures + 1))
}
# mounts_over_tcp REGEX WHAT: on host b, for the reason REGEX; with require=verbs not at all, for the same.
mounts_over_tcp() {
  local reason=$1 what=$2 mnt=$work/mnt client
  refuses_without_verbs "$@"
  start_on b "$bin/fs/fuse/rdfs" "$url" "$mnt" -f >"$work/rdfs.log" 2>&1 &
  client=$!
  for ((tries = 0; tries < 200; tries++)); do grep -q ' over ' "$work/rdfs.log" && break; sleep 0.1; done
  if cmp "$work/export/data" "$mnt/data" && grep -qE "over tcp.*; not verbs: .*$reason" "$work/rdfs.log"; then
    echo "mounted over tcp: $what"
  else
    echo "FAILED: $what: no mount over tcp for $reason" >&2
    cat "$work/rdfs.log" >&2
    failures=$((failures + 1))
  fi
  kill "$client"
  wait "$client"
}

head -c 300001 /dev/urandom >"$work/export/data"
on a rdma link del "${driver}_a"
serve
expect 0 '! verbs +does not work' 'no RDMA there' "$url"
expect 0 'tcp +works' 'no RDMA there, and TCP' "$url"
mounts_over_tcp 'the server says: .*RDMA' 'no RDMA there'
on a rdma link add "${driver}_a" type "$driver" netdev link-a
sleep 5.1  # it looks again no sooner
expect 0 'verbs +works' 'RDMA that came while the server ran' "$url"
finish

serve --rdma-port 17777
if on a rdma resource show cm_id | grep -q 'LISTEN.*:17777'; then echo "listening for RDMA on port 17777"; else
  echo "FAILED: --rdma-port 17777: $(on a rdma resource show cm_id)" >&2
  failures=$((failures + 1))
fi
expect 0 'verbs +works: .* us a message, .* us a READ, .* GB/s' 'nothing wrong: verbs measured' "$url"
expect 0 'path +MTU 9000' 'nothing wrong: the MTU' "$url"
# soft-RoCE is a device of InfiniBand's verbs over Ethernet, soft-iWARP one of iWARP's.
gid_type='RoCE v2, '
[ "$driver" = rxe ] || gid_type=''
expect 0 "^    ${driver}_b port 1 +active, Ethernet, MTU [0-9]+ of 4096" 'the port and its link layer' "$url"
expect 0 "^    ${driver}_b port 1 GID [0-9]+ +[0-9a-f:.]+, ${gid_type}link-b" 'its GIDs' "$url"

head -c 2M /dev/zero >"$work/export/full" 2>/dev/null
expect 0 '! space .*the disk is full' 'disk full' "$url"
first 'space: .*the disk is full'
rm "$work/export/full"

ip -n a link set link-a mtu 1500
expect 0 '! path +MTU 9000 here, and the other end takes 1500' 'wrong MTU' "$url"
first 'path: MTU 9000 here, and the other end takes 1500'
ip -n b link set link-b mtu 1500
expect 0 'path +MTU 1500' 'the MTU of plain Ethernet' "$url"
if [ "$driver" = rxe ]; then
  first "rxe_[ab] port 1: active, Ethernet, MTU 1024 of 4096"
  expect 0 'an MTU of 4200 or more .*, so that RoCE can use 4096 bytes a packet' 'RoCE at MTU 1500' "$url"
elif grep -q 'RoCE' "$work/out"; then
  echo 'FAILED: advice for RoCE, without a device of RoCE' >&2
  failures=$((failures + 1))
fi
ip -n b link set link-b mtu 9000
ip -n a link set link-a mtu 9000

ip -n b link set link-b down
expect 1 "! ${driver}_b port 1 +down" 'device down' "$url"
first "${driver}_[ab] port 1: down"
# A server of the same host, which is reached without the link.
start_on b "$bin/server/rdfsd" --export "e=$work/export" --listen 127.0.0.1 --no-auth -f >"$work/here.log" 2>&1 &
here=$!
for ((tries = 0; tries < 200; tries++)); do grep -q 'ready on port' "$work/here.log" && break; sleep 0.1; done
refuses_without_verbs 'no RDMA port is active \(.*_b port 1 is down.*\); bring its network interface up' 'device down' rdfs://127.0.0.1/e
kill "$here"
wait "$here"
ip -n b link set link-b up

on b rdma link del "${driver}_b"
expect 0 '! verbs +does not work' 'no RDMA here' "$url"
expect 0 'tcp +works' 'no RDMA here, and TCP' "$url"
mounts_over_tcp 'RDMA' 'no RDMA here'
on b rdma link add "${driver}_b" type "$driver" netdev link-b

# As without the package that has the drivers' libraries.
providers=$(dirname "$(ls -d /usr/lib/*/libibverbs | head -n 1)")/libibverbs
mount -t tmpfs none "$providers" && mount -t tmpfs none /etc/libibverbs.d
expect 0 "! devices +not usable" 'no ibverbs-providers' "$url"
first 'verbs: does not work'
mounts_over_tcp 'install the package ibverbs-providers' 'no ibverbs-providers'
umount "$providers" /etc/libibverbs.d

mv /dev/fuse /dev/fuse.away
expect 0 '! /dev/fuse +not there' 'no /dev/fuse' "$url"
first '/dev/fuse: not there'
mv /dev/fuse.away /dev/fuse

# An ordinary user, and less memory to lock than a lane needs.
on b "$(dirname "$0")/as-user" bash -c 'ulimit -l 64 && exec "$@"' - "$bin/tools/rdinfo/rdinfo" >"$work/out" 2>&1
first 'memlock: 64 KiB: too little for RDMA'
finish

# offered_in_vain WHAT: both ends have verbs, and where the client connects to, nobody answers.
offered_in_vain() {
  local why='[^ ]+:7338( refuses RDMA connections| does not answer over RDMA)'
  expect 0 '! verbs +does not work' "$1" "$url"
  first 'verbs: does not work'
  expect 0 "-> $why" "$1, and why" "$url"
  expect 0 'tcp +works' "$1, and TCP" "$url"
  mounts_over_tcp "$why" "$1"
}
# The RDMA device has one of the server's addresses, and the client uses another.
ip -n a address add 10.9.7.1/32 dev lo
ip -n b route add 10.9.7.1/32 via "$RDFS_HOST_A"
serve --listen 10.9.7.1
expect 0 'verbs +works' 'RDMA at both ends' "$url"
url=rdfs://10.9.7.1/e
offered_in_vain 'an address without an RDMA device'
url=rdfs://$RDFS_HOST_A/e
if [ "$driver" = rxe ]; then
  # Its removal ends only when the server has let go of it. (soft-iWARP's waits before it stops listening.)
  on a rdma link del rxe_a &
  for ((tries = 0; tries < 200; tries++)); do on a rdma link show | grep -q rxe_a || break; sleep 0.1; done
  offered_in_vain 'a device that is gone from a server'
fi
exit $((failures > 0))
