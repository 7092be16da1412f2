# shellcheck shell=bash
# What the tests of rdsock with real programs share, to be sourced after setup.sh and begin.
#
# each_mode FUNCTION runs it with rdsock around both ends, around the client, around the server, and, with
# RDFS_CHECK_FULL=1, around none, which tests the test; "${client[@]}" and "${server[@]}" are what to put
# before the ends' commands, $mode is the mode's name, $port a port that was free.

rdsock=$bin/tools/sock/rdsock

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
each_mode() {
  local modes=(both client server)
  [ "${RDFS_CHECK_FULL:-0}" = 0 ] || modes+=(neither)
  for mode in "${modes[@]}"; do
    client=() server=()
    case $mode in both | client) client=("$rdsock" --stats) ;; esac
    case $mode in both | server) server=("$rdsock" --stats) ;; esac
    port=$(free_port)
    "$1"
  done
}
# upgraded FILE: the number that `rdsock --stats` has written there.
upgraded() { sed -n 's/^rdsock: [0-9]* connections, \([0-9]*\) upgraded.*/\1/p' "$1" | tail -n 1; }
# expect_upgraded WHAT AT_LEAST FILE...: in mode `both`, in each of these files of --stats.
expect_upgraded() {
  local what=$1 least=$2 file count
  shift 2
  [ "$mode" = both ] || return 0
  for file in "$@"; do
    count=$(upgraded "$file")
    [ "${count:-0}" -ge "$least" ] ||
      problem "$what: ${count:-no} connections upgraded, not $least: $(cat "$file")"
  done
}
listens() { ss -Hltn "sport = :$port" | grep -q .; }
# listening PID WHAT: waits until somebody listens on $port.
listening() {
  wait_until 150 listens && return 0
  problem "$2 ($mode): nobody listens"
  return 1
}
# stop PID: ends a server and waits for it.
stop() {
  kill -TERM "$1" 2>/dev/null
  wait "$1" 2>/dev/null
}
