#!/usr/bin/env bash
# Usage: sock_across.sh --bin BUILD_DIR
#
# rdsock between two hosts, here two network namespaces without RDMA, so that carriers carry over TCP: what
# --pair does and says, programs at both ends whose every byte is compared, redis, and carriers that are killed.
set -uo pipefail
[ -n "${RDFS_SOCK_ACROSS_INSIDE:-}" ] ||
  exec env RDFS_SOCK_ACROSS_INSIDE=1 unshare --map-root-user --net "$0" "$@"
. "$(dirname "$0")/setup.sh"
begin "$@"
. "$(dirname "$0")/sock_setup.sh"

# The other host, and a way to it that no address is needed for.
second_network
mkdir "$work/here" "$work/there"
export HOME=$work/here
unset XDG_CONFIG_HOME
there() { HOME=$work/there nsenter --net="/proc/$far/ns/net" "$@"; }
ip link add near type veth peer name far netns "$far" || { echo "$this: no veth" >&2; exit 1; }
ip address add 10.78.0.1/24 dev near && ip link set near up && ip link set lo up
there ip address add 10.78.0.2/24 dev far && there ip link set far up && there ip link set lo up
cat >"$work/ssh" <<SSH
#!/bin/sh
for each; do [ "\$each" != -G ] || { echo hostname 10.78.0.2; exit; }; done
while [ "\$1" != far ]; do shift; done
shift
HOME=$work/there exec nsenter --net=/proc/$far/ns/net sh -c "\$*" 2>/dev/null
SSH
chmod +x "$work/ssh"
pairs_here=$HOME/.config/rdsock/pairs pairs_there=$work/there/.config/rdsock/pairs

# refused REGEX ARGUMENT...
refused() {
  local regex=$1
  shift
  timeout 20 "$rdsock" "$@" >"$work/out" 2>"$work/err" </dev/null && problem "rdsock $*: has not failed"
  [ "$(wc -l <"$work/err")" -eq 1 ] || problem "rdsock $*: $(cat "$work/err")"
  grep -qE "^rdsock: .*$regex" "$work/err" || problem "rdsock $*: says $(cat "$work/err")"
}
key() { awk '$1 == "pair" { print $3 }' "$1"; }
pair() {
  timeout 60 "$rdsock" --ssh "$work/ssh" --far-rdsock "$rdsock" --pair far >"$work/out" 2>"$work/err" </dev/null ||
    problem "--pair: $(cat "$work/err")"
}

refused "no host is paired: rdsock --pair HOST" --require=verbs true
# Nobody carries: of forty connections the first eight find that out, and one in sixteen behind them (sock_tools.sh has the odds).
nsenter --net="/proc/$far/ns/net" python3 - <<'SERVER' &
import socket
listener = socket.create_server(("10.78.0.2", 7001))
while True:
    with listener.accept()[0] as connection:
        while connection.recv(100): pass
SERVER
lonely=$!
ends_with_us "$lonely"
listens_alone() { there ss -Hltn 'sport = :7001' | grep -q .; }
wait_until 150 listens_alone || problem "a lonely server does not listen"
timeout 30 "$rdsock" --stats python3 - >"$work/out" 2>"$work/err" <<'CLIENT' || problem "a lonely client: $(cat "$work/out" "$work/err")"
import socket
for _ in range(40):
    with socket.create_connection(("10.78.0.2", 7001), timeout=20) as connection:
        for _ in range(10): connection.sendall(b"x")
CLIENT
count=$(sed -n 's/^rdsock:   \([0-9]*\) stayed on TCP: they lead to another host.*/\1/p' "$work/err")
[ "${count:-0}" -ge 8 ] && [ "$count" -le 24 ] || problem "of 40 connections to where nobody carries not 8 to 24 have looked: $(cat "$work/err")"
stop "$lonely"
refused "'/no/rdsock' could not be run on 'far'; install rdfs there.*--far-rdsock PATH" \
  --ssh "$work/ssh" --far-rdsock /no/rdsock --pair far
refused "--far-pair is for rdsock" --far-pair
[ ! -e "$pairs_here" ] || problem "a pairing that failed was stored"
pair
grep -q 'paired with far as .*: 10.78.0.2$' "$work/out" || problem "--pair says $(cat "$work/out")"
for file in "$pairs_here" "$pairs_there"; do
  [ "$(stat -c %a "$file")" = 600 ] || problem "$file has mode $(stat -c %a "$file")"
done
[ "$(key "$pairs_here" | grep -cE '^[0-9a-f]{64}$')" = 1 ] || problem "no key: $(cat "$pairs_here")"
[ "$(key "$pairs_here")" = "$(key "$pairs_there")" ] || problem "the two hosts have different keys"
grep -qE ' 10.78.0.1$' "$pairs_there" || problem "the other host knows $(cat "$pairs_there")"
"$rdsock" --pairs | grep -q ' port 7340: 10.78.0.2$' || problem "--pairs says $("$rdsock" --pairs)"
before=$(key "$pairs_here")
pair # again: with another key, and in its place
[ "$(key "$pairs_here" | wc -l)" = 1 ] && [ "$(key "$pairs_here")" != "$before" ] || problem "a second --pair did not replace the first"
refused "'10.1.2.3' is not paired" --unpair 10.1.2.3
"$rdsock" --unpair 10.78.0.2 || problem "--unpair has failed"
[ -z "$("$rdsock" --pairs)" ] || problem "--unpair has left $("$rdsock" --pairs)"
pair
sed -i 's/^over verbs$/over tcp/' "$pairs_here" "$pairs_there"
refused "over tcp" --require=verbs true

# --- carried

across=$(realpath "$(dirname "$0")/across.py")
carrier() { "$@" ss -xlpH | sed -n 's/.*@rdsock1-carrier-.*pid=\([0-9]*\).*/\1/p'; }
stop_carriers() {
  local pid
  for pid in $(carrier env) $(carrier there); do kill "${1:--TERM}" "$pid"; done
}
listens_there() { there ss -Hltn "sport = :$port" | grep -q .; }
start_there() { # NAME COMMAND...: in $server
  local name=$1
  shift
  : >"$work/$name.out"
  # Without a shell between: the signal that ends it is for rdsock.
  env HOME="$work/there" nsenter --net="/proc/$far/ns/net" "$rdsock" --stats "$@" \
    >"$work/$name.out" 2>"$work/$name.err" </dev/null &
  server=$!
  ends_with_us "$server"
  wait_until 150 listens_there || problem "$name: nobody listens: $(cat "$work/$name.err")"
}
stop_there() { # NAME
  # What --stats says comes when the program has ended, which rdsock waits for.
  kill -TERM "$server" 2>/dev/null
  wait "$server" 2>/dev/null
  if grep -q '^wrong' "$work/$1.out"; then problem "$1: $(cat "$work/$1.out")"; fi
}
carried() { sed -n 's/^rdsock:   \([0-9]*\) of the upgraded ones lead to other hosts$/\1/p' "$1" | tail -n 1; }
expect_carried() { # WHAT AT_LEAST FILE
  local count
  count=$(carried "$3")
  [ "${count:-0}" -ge "$2" ] || problem "$1: ${count:-no} connections carried, not $2: $(cat "$3")"
}

port=7000
start_there across "$across" server 10.78.0.2 $port
for way in block epoll fork; do
  for _ in 1 2 3; do # busy processors may keep the ends from meeting in time
    timeout 60 "$rdsock" --stats "$across" client 10.78.0.2 $port 300 400000 $way >"$work/out" 2>"$work/err" ||
      problem "across, $way: $(cat "$work/out" "$work/err")"
    [ "$(carried "$work/err")" != 1 ] || break
  done
  expect_carried "across, $way" 1 "$work/err"
done
timeout 60 "$across" client 10.78.0.2 $port 100 100000 >"$work/out" 2>"$work/err" || problem "one end alone: $(cat "$work/out")"
timeout 60 "$rdsock" --stats --require=shm "$across" client 10.78.0.2 $port 100 1000 >"$work/out" 2>"$work/err"
[ $? -eq 3 ] && grep -q 'the other end is on another host; give --require=verbs' "$work/err" ||
  problem "--require=shm to another host: $(cat "$work/out" "$work/err")"
stop_there across
expect_carried "across, server" 3 "$work/across.err"

if command -v redis-server >/dev/null; then
  start_there redis redis-server --port $port --bind 10.78.0.2 --protected-mode no --save '' --dir "$work/there"
  timeout 30 "$rdsock" --stats redis-benchmark -h 10.78.0.2 -p $port -q -c 20 -n 5000 -t set,get,incr \
    >"$work/out" 2>"$work/err" || problem "redis-benchmark: $(cat "$work/err")"
  expect_carried redis-benchmark 10 "$work/err"
  head -c 3000000 /dev/urandom | base64 -w 0 >"$work/value"
  timeout 20 "$rdsock" redis-cli -h 10.78.0.2 -p $port -x set large <"$work/value" >/dev/null 2>&1
  timeout 20 "$rdsock" redis-cli -h 10.78.0.2 -p $port --raw get large 2>/dev/null | head -c -1 >"$work/got"
  cmp -s "$work/value" "$work/got" || problem "redis: another value than was set"
  [ "$(timeout 20 redis-cli -h 10.78.0.2 -p $port get counter:__rand_int__)" = 5000 ] || problem "redis: lost increments"
  stop_there redis
else
  problem 'redis cannot be tried: no redis-server here'
fi

# A carrier dies, here or there: what was carried goes on over TCP or is reset.
halfway() { [ -e "$work/halfway" ] || gone "$client_pid"; }
whole=0 reset=0 carrying=0
for tenths in 0 1 2 3 5 8; do
  rm -f "$work/halfway"
  start_there dies "$across" server 10.78.0.2 $port
  timeout 90 "$rdsock" --stats "$across" client 10.78.0.2 $port 600 700000 block "$work/halfway" >"$work/out" 2>"$work/err" &
  client_pid=$!
  # The first two may be killed before they carry.
  [ $tenths -lt 2 ] || wait_until 300 halfway || problem "nothing is halfway"
  sleep "0.$tenths"
  if [ $((tenths % 2)) -eq 0 ]; then victim=$(carrier env); else victim=$(carrier there); fi
  [ -z "$victim" ] || kill -KILL $victim
  wait_until 300 halfway || problem "a carrier dies after 0.$tenths s: it neither goes on nor ends"
  rm -f "$work/halfway"
  wait $client_pid
  status=$?
  [ $status -ne 0 ] || whole=$((whole + 1))
  [ $status -ne 3 ] || reset=$((reset + 1))
  [ -z "$victim" ] || [ "$(carried "$work/err")" != 1 ] || carrying=$((carrying + 1))
  [ $status -eq 0 ] || [ $status -eq 3 ] || problem "a carrier dies after 0.$tenths s: status $status: $(cat "$work/out" "$work/err")"
  stop_there dies
done
# One that dies before it carries says nothing of this.
[ $carrying -ge 2 ] || problem "carriers that die: only $carrying of six carried something"
stop_carriers
conclude "pairing, what is carried, and carriers that die ($carrying carried, $whole went on over TCP, $reset were reset)"
