#!/usr/bin/env bash
# Usage: doctor.sh BUILD_DIR     (in the guest, booted with --hosts, as root)
# rdinfo names what is wrong with set-ups that need a machine of their own to be broken: a device that is down, an
# MTU that differs, no /dev/fuse, a disk that is full. Each is mended before the next.
set -uo pipefail
bin=$1
work=$(mktemp -d)
failures=0
on() { local host=$1; shift; nsenter --net="/run/netns/$host" "$@"; }
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
: >"$work/log"
on a "$bin/server/rdfsd" --export "e=$work/export" --listen "$RDFS_HOST_A" --no-auth -f >"$work/log" 2>&1 &
server=$!
for ((tries = 0; tries < 200; tries++)); do grep -q 'ready on port' "$work/log" && break; sleep 0.1; done
url=rdfs://$RDFS_HOST_A/e

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

mv /dev/fuse /dev/fuse.away
expect 0 '! /dev/fuse +not there' 'no /dev/fuse' "$url"
expect 0 '1. /dev/fuse: not there' 'no /dev/fuse, in the advice' "$url"
mv /dev/fuse.away /dev/fuse
exit $((failures > 0))
