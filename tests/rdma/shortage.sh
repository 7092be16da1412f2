#!/usr/bin/env bash
# Usage: shortage.sh BUILD_DIR     (in the guest, as an ordinary user)
# What a server cannot have for RDMA is said: the port after TCP's, which then is another one that works all the same,
# and memory for both of rdping's regions, when each row that is not measured is named at both ends.
set -uo pipefail
bin=$1
work=$(mktemp -d)
servers=()
failed=0
finish() {
  local server
  for server in "${servers[@]}"; do kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; done
  rm -rf "$work"
}
trap finish EXIT
fail() { echo "FAILED: $1" >&2; tail -n 20 "$work"/*.log >&2; failed=1; }
# serve NAME PORT OPTION...: an rdfsd, until it listens.
serve() {
  local log=$work/$1.log
  "$bin/server/rdfsd" --export "e=$work" --listen "$RDFS_RDMA_ADDRESS" --port "$2" --no-auth -f "${@:3}" >"$log" 2>&1 &
  servers+=($!)
  for _ in $(seq 100); do grep -q 'ready on port' "$log" && return; sleep 0.1; done
  fail "rdfsd $* does not listen"
}

port=$((20000 + RANDOM % 20000))
serve first "$port"
grep -q 'warning: RDMA' "$work/first.log" && fail 'a server that has its port warns'
serve taker $((port + 3)) --rdma-port $((port + 11))
serve second $((port + 10))
grep -qE "warning: RDMA's port $((port + 11)) cannot be had \(.*\), so it listens on [0-9]+" "$work/second.log" ||
  fail 'a server whose RDMA port is taken does not say where it listens'
"$bin/tools/rdinfo/rdinfo" "$RDFS_RDMA_ADDRESS" $((port + 10)) >"$work/rdinfo.log" 2>&1
grep -qE 'verbs +works' "$work/rdinfo.log" || fail 'verbs does not work on the other port'
serve any 0
grep -q 'warning: RDMA' "$work/any.log" && fail 'a server on any port warns'

# Each of the two regions is 16 MiB: there is room for one.
(ulimit -l 24576 && exec "$bin/tools/rdping/rdping" server $((port + 20)) --listen "$RDFS_RDMA_ADDRESS") >"$work/rdping.log" 2>&1 &
servers+=($!)
for _ in $(seq 100); do grep -q 'rdping client' "$work/rdping.log" && break; sleep 0.1; done
"$bin/tools/rdping/rdping" client "$RDFS_RDMA_ADDRESS" $((port + 20)) --seconds 0.05 --require verbs >"$work/client.log" 2>&1 ||
  fail 'rdping fails'
grep -q '^verbs .*READ' "$work/client.log" || fail 'READ is not measured'
grep -q '^verbs .*WRITE' "$work/client.log" && fail 'WRITE is measured: this test wants memory that cannot be pinned'
grep -q '^not measured: verbs WRITE: the server could not pin memory; see its log' "$work/client.log" ||
  fail 'rdping does not say why WRITE is not measured'
grep -q 'warning: WRITE cannot be measured: .*memlock' "$work/rdping.log" || fail 'nor does the server'
exit $failed
