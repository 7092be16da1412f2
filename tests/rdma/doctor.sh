#!/usr/bin/env bash
# Usage: doctor.sh BUILD_DIR     (in the guest, booted with --hosts, as root)
# rdinfo names what is wrong with set-ups that need a machine of their own to be broken: a device that is down, an
# MTU that differs, no /dev/fuse, a disk that is full, RDMA at one end only. Each is mended before the next.
# Where RDMA does not work, a mount does nevertheless, over TCP, and says why.
set -uo pipefail
bin=$1
work=$(mktemp -d)
failures=0
on() { local host=$1; shift; nsenter --net="/run/netns/$host" "$@"; }
# In the background, as $!: of `on &` that would be a shell.
start_on() { local host=$1; shift; exec nsenter --net="/run/netns/$host" "$@"; }
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

# mounts_over_tcp REGEX WHAT: on host b, for the reason REGEX; with require=verbs not at all, for the same.
mounts_over_tcp() {
  local reason=$1 what=$2 mnt=$work/mnt status=0 client
  mkdir -p "$mnt"
  on b "$bin/fs/fuse/rdfs" "$url" "$mnt" -o require=verbs -f >"$work/rdfs.log" 2>&1 || status=$?
  if [ "$status" -ne 1 ] || ! grep -qE "$reason" "$work/rdfs.log"; then
    echo "FAILED: $what, require=verbs: exit code $status, and no line matches $reason" >&2
    cat "$work/rdfs.log" >&2
    failures=$((failures + 1))
  fi
  start_on b "$bin/fs/fuse/rdfs" "$url" "$mnt" -f >"$work/rdfs.log" 2>&1 &
  client=$!
  for ((tries = 0; tries < 200; tries++)); do grep -q ' over ' "$work/rdfs.log" && break; sleep 0.1; done
  if cmp "$work/export/data" "$mnt/data" && grep -q 'over tcp' "$work/rdfs.log" && grep -qE "$reason" "$work/rdfs.log"; then
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
on a rdma link del "${RDFS_RDMA_DRIVER}_a"
serve
expect 0 '! verbs +does not work' 'no RDMA there' "$url"
expect 0 'tcp +works' 'no RDMA there, and TCP' "$url"
mounts_over_tcp 'RDMA' 'no RDMA there'
finish
on a rdma link add "${RDFS_RDMA_DRIVER}_a" type "$RDFS_RDMA_DRIVER" netdev link-a

serve --rdma-port 17777
if on a rdma resource show cm_id | grep -q 'LISTEN.*:17777'; then echo "listening for RDMA on port 17777"; else
  echo "FAILED: --rdma-port 17777: $(on a rdma resource show cm_id)" >&2
  failures=$((failures + 1))
fi
expect 0 'verbs +works: .* us a message, .* us a READ, .* GB/s' 'nothing wrong: verbs measured' "$url"
expect 0 'path +MTU 9000' 'nothing wrong: the MTU' "$url"

head -c 2M /dev/zero >"$work/export/full" 2>/dev/null
expect 0 '! space .*the disk is full' 'disk full' "$url"
rm "$work/export/full"

ip -n a link set link-a mtu 1500
expect 0 '! path +MTU 9000 here, and the other end takes 1500' 'wrong MTU' "$url"
ip -n a link set link-a mtu 9000

ip -n b link set link-b down
expect 1 '! (siw|rxe)_b port 1 +down' 'device down' "$url"
expect 1 'port 1: down' 'device down, in the advice' "$url"
ip -n b link set link-b up

on b rdma link del "${RDFS_RDMA_DRIVER}_b"
expect 0 '! verbs +does not work' 'no RDMA here' "$url"
expect 0 'tcp +works' 'no RDMA here, and TCP' "$url"
mounts_over_tcp 'RDMA' 'no RDMA here'
on b rdma link add "${RDFS_RDMA_DRIVER}_b" type "$RDFS_RDMA_DRIVER" netdev link-b

mv /dev/fuse /dev/fuse.away
expect 0 '! /dev/fuse +not there' 'no /dev/fuse' "$url"
expect 0 '1. /dev/fuse: not there' 'no /dev/fuse, in the advice' "$url"
mv /dev/fuse.away /dev/fuse
exit $((failures > 0))
