# shellcheck shell=bash
# What the tests of the real programs share, to be sourced.
#
# begin "$@" takes --bin BUILD_DIR and --as-when-root USER, goes on as that user when it is root, and makes
# the private directory $work. With --over TRANSPORT, which some tests know, $over is that; else it is empty; --user NAME is $user in the
# same way. At the end every mount below it, every process that was named with
# `ends_with_us PID` and the directory itself are gone. `problem` counts what is wrong, `conclude` exits.

this=$(basename "$0")
failures=0 ours=()
# One that finds counters.py, and writes nothing beside it.
python=(env PYTHONDONTWRITEBYTECODE=1 "PYTHONPATH=$(realpath "$(dirname "$0")")" python3)

begin() {
  bin='' over='' user=''
  local as=''
  local arguments=("$@")
  while [ $# -gt 0 ]; do
    case "$1" in
      --bin) bin=$(realpath "$2"); shift 2 ;;
      --as-when-root) as=$2; shift 2 ;;
      --over) over=$2; shift 2 ;;
      --user) user=$2; shift 2 ;;
      *) echo "$this: what is '$1'?" >&2; exit 2 ;;
    esac
  done
  [ -n "$bin" ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
  if [ -n "$as" ] && [ "$(id -u)" -eq 0 ] && [ "$as" != root ]; then
    exec setpriv --reuid "$as" --regid "$(id -g "$as")" --init-groups \
      env HOME="$(getent passwd "$as" | cut -d: -f6)" USER="$as" "$0" "${arguments[@]}"
  fi
  # Where our servers listen: verbs on the RDMA device's address, which tests/rdma tells.
  address=127.0.0.1
  [ "$over" != verbs ] || address=${RDFS_RDMA_ADDRESS:-${RDFS_HOST_A:?}}
  rdfs=$bin/fs/fuse/rdfs
  rdfsd=$bin/server/rdfsd
  work=$(mktemp -d "${TMPDIR:-/tmp}/rdfs-${this%%[._]*}-XXXXXX") || exit 1
  chmod 755 "$work"
  trap finish EXIT
  trap 'exit 1' INT TERM HUP
}
ends_with_us() { ours+=("$@"); }
finish() {
  trap - EXIT
  local path pid
  # A process that still runs with a path of ours was left behind by something that failed.
  for pid in $(pgrep -f "$work/"); do [ "$pid" = "$$" ] || ours+=("$pid"); done
  sed -n "s|^[^ ]* [^ ]* [^ ]* [^ ]* \($work/[^ ]*\) .* - fuse.*|\1|p" /proc/self/mountinfo | while read -r path; do
    fusermount3 -uz "$path"
  done
  # Those that a test has stopped must hear it.
  [ ${#ours[@]} -eq 0 ] || kill -TERM "${ours[@]}" 2>/dev/null
  [ ${#ours[@]} -eq 0 ] || kill -CONT "${ours[@]}" 2>/dev/null
  wait 2>/dev/null
  chmod -R u+rwx "$work" 2>/dev/null
  rm -rf "$work"
}

problem() {
  echo "$this: $1" >&2
  failures=$((failures + 1))
}
# conclude WHAT: the end of the test.
conclude() {
  [ "$failures" -eq 0 ] || { echo "$this: $failures problems" >&2; exit 1; }
  echo "$this: $1, all as they should be"
  exit 0
}
# wait_until TENTHS COMMAND...: until it succeeds, at most so many tenths of a second.
wait_until() {
  local tenths=$1
  shift
  while ! "$@"; do
    tenths=$((tenths - 1))
    [ "$tenths" -gt 0 ] || return 1
    sleep 0.1
  done
}
# second_network: a network namespace beside ours, until we end, of the process $far; `there COMMAND...` runs in it.
second_network() {
  unshare --net sleep 300 &
  far=$!
  ends_with_us "$far"
  wait_until 50 far_is_apart || problem "no second network namespace"
}
far_is_apart() { [ "$(readlink "/proc/$far/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
there() { nsenter --net="/proc/$far/ns/net" "$@"; }
is_mounted() { grep -q " $1 .* - fuse" /proc/self/mountinfo; }
not_mounted() { ! is_mounted "$1"; }
gone() { ! kill -0 "$1" 2>/dev/null; }
new_key() { (umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$1"); }
# serve NAME OPTION...: an rdfsd on a free port, or on $port if that is set. Its pid in $server, its port in $port.
serve() {
  local log=$work/$1.log
  shift
  for _ in $(seq 30); do
    rm -f "$log"
    "$rdfsd" --listen "$address" --port "${port:-0}" -f "$@" >"$log" 2>&1 </dev/null &
    server=$!
    ends_with_us "$server"
    wait_until 100 grep -qsE 'ready on port|another program holds the port' "$log"
    # Somebody else's connection may have the port of a server that was killed, for a moment.
    grep -qs 'another program holds the port' "$log" || break
    sleep 1
  done
  if ! grep -qs 'ready on port' "$log"; then
    cat "$log" >&2
    echo "$this: rdfsd did not start" >&2
    exit 1
  fi
  port=$(sed -n 's/.*ready on port \([0-9]*\).*/\1/p' "$log" | head -n 1)
}
