#!/bin/bash
# uring.sh RDSOCK PROGRAM HOST MODULE: what a program gives to liburing goes over TCP, and nothing else does; --stats says so.
set -u
rdsock=$1 program=$2
failures=0
# try SCENARIO PATTERN: it has to work, and --stats to say a line like that.
try() {
  local said status
  said=$("$rdsock" --stats "$program" "$1" 2>&1)
  status=$?
  [ $status = 77 ] && echo "SKIPPED: no io_uring here" && exit 77
  if [ $status != 0 ] || ! grep -q -- "$2" <<<"$said"; then
    printf 'FAILED: %s: status %s\n%s\n' "$1" "$status" "$said" >&2
    failures=$((failures + 1))
  fi
}
moved='2 connections, 2 upgraded, 0 of these went back to TCP'
went_back='2 connections, 2 upgraded, [12] of these went back to TCP'  # two where both ends have noticed
for scenario in writes-file closes-place waits-beside; do
  try "$scenario" "$moved"
done
for scenario in receives receives-by-{place{,-given-later},system-call,number,wide-ring} splices polls-set fills-set \
  hands-on closes; do
  try "$scenario" "$went_back"
done
# By a module that has a liburing of its own, where it is the only one.
out=$("$rdsock" "$3" "$4") || { echo "FAILED: a module: $out" >&2; failures=$((failures + 1)); }
try polls-from-the-begin '1 stayed on TCP: they were read or written by io_uring'
exit $((failures > 0))
