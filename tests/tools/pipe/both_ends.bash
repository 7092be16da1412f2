# shellcheck shell=bash
# For tests with both programs as processes, sourced as: . both_ends.bash BIN_DIR shm|tcp|verbs
# RDFS_RDMA_ADDRESS, where set, is the receiver's address.
set -uo pipefail
rdsend=$1/rdsend rdrecv=$1/rdrecv over=$2
address=${RDFS_RDMA_ADDRESS:-127.0.0.1}
work=$(mktemp -d)
failures=0 cases=0
receiver='' port='' key=sesame-$$-$RANDOM  # another test may get the port that was ours
# Processes that a case started and that may be left when it failed.
children=()
finish() {
  trap - EXIT
  for child in "${children[@]}"; do kill -KILL "$child" 2>/dev/null; done
  wait 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP
problem() {
  failures=$((failures + 1))
  echo "FAILED: $1" >&2
  sed 's/^/  rdrecv: /' "$work/recv.err" >&2
  sed 's/^/  rdsend: /' "$work/send.err" >&2
}
# receive OPTION...: an rdrecv in the background, output to $work/out; its port in `port`.
receive() {
  : >"$work/recv.err"
  "$rdrecv" --require "$over" --listen "$address" 0 "$key" "$@" >"$work/out" 2>"$work/recv.err" </dev/null &
  await_port $!
}
# await_port PID: until the receiver PID has printed its port.
await_port() {
  receiver=$1 port=''
  children+=("$receiver")
  for _ in $(seq 1500); do
    port=$(sed -n 's/^rdrecv: listening on port \([0-9]*\)$/\1/p' "$work/recv.err")
    [ -n "$port" ] && return 0
    sleep 0.02
  done
  problem "the receiver did not start"
}
# send OPTION...: rdsend, standard input as it is; its status.
send() { timeout 60 "$rdsend" --require "$over" "$address" "$port" "$key" "$@" 2>"$work/send.err"; }
# received: the receiver's status, 124 when it does not end.
received() {
  local status
  for _ in $(seq 1500); do
    kill -0 "$receiver" 2>/dev/null || break
    sleep 0.02
  done
  kill -0 "$receiver" 2>/dev/null && { kill -KILL "$receiver"; wait "$receiver" 2>/dev/null; return 124; }
  wait "$receiver"
  status=$?
  return $status
}
# both NAME SENT RECEIVED: the statuses that both ends should have had.
both() {
  cases=$((cases + 1))
  [ "$2" -eq 0 ] || problem "$1: rdsend ended with $2"
  [ "$3" -eq 0 ] || problem "$1: rdrecv ended with $3"
}
# neither NAME SENT RECEIVED SEND_REGEX RECV_REGEX: both failed with status 1 and one line each, as given.
neither() {
  cases=$((cases + 1))
  [ "$2" -eq 1 ] || problem "$1: rdsend ended with $2"
  [ "$3" -eq 1 ] || problem "$1: rdrecv ended with $3"
  says "$1" send "$4"
  says "$1" recv "$5"
}
# says NAME send|recv REGEX: exactly one line besides the port's.
says() {
  local lines
  lines=$(grep -vc '^rdrecv: listening' "$work/$2.err")
  [ "$lines" -eq 1 ] || problem "$1: rd$2 says $lines lines"
  grep -qE "^rd$2: .*($3)" "$work/$2.err" || problem "$1: rd$2 does not say $3"
}
same() { cmp -s "$2" "$3" || problem "$1: what came is not what was sent"; }
clean() {
  local left
  left=$(find "$2" -name '.rdrecv-*' -o -name '*.rdpart')
  [ -z "$left" ] || problem "$1: left behind: $left"
}
conclude() {
  [ "$failures" -eq 0 ] || { echo "$failures problems in $cases cases over $over" >&2; exit 1; }
  echo "$cases cases over $over, all as they should be"
}
