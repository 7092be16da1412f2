#!/usr/bin/env bash
# Usage: sock.sh BUILD_DIR     (in the guest, booted with --hosts)
# rdsock between two hosts that are paired: programs of both have their connections carried over verbs, every
# byte compared; and a carrier that is killed under them.
set -uo pipefail
bin=$1
rdsock=$bin/tools/sock/rdsock
across=$(realpath "$(dirname "$0")/../e2e/across.py")
work=$(mktemp -d)
failures=0
pids=()

on() { # HOST COMMAND...
  local host=$1
  shift
  HOME=$work/$host nsenter --net="/run/netns/$host" "$@"
}
fail() {
  echo "FAILED: $1" >&2
  tail -n 20 "$work"/*.log >&2
  failures=$((failures + 1))
}
carriers() { on "$1" ss -xlpH | sed -n 's/.*@rdsock1-carrier-.*pid=\([0-9]*\).*/\1/p'; }
finish() {
  local pid
  for pid in "${pids[@]}" $(carriers a) $(carriers b); do kill "$pid" 2>/dev/null; done
}
trap finish EXIT

key=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
pair() { # HOST ITS-ADDRESS ADDRESS-OF-THE-OTHER
  local folder=$work/$1/.config/rdsock
  (umask 077 && mkdir -p "$folder" && printf 'rdsock-pairs 1\nlisten 7340 %s\nover verbs\npair guest %s 7340 %s\n' "$2" "$key" "$3" >"$folder/pairs")
}
# Each host sees both devices, so that it cannot listen everywhere.
pair a "$RDFS_HOST_A" "$RDFS_HOST_B"
pair b "$RDFS_HOST_B" "$RDFS_HOST_A"

# serve ADDRESS PORT
serve() {
  rm -f "$work/server.log"
  on a "$rdsock" --stats "$across" server "$1" "$2" >"$work/server.log" 2>&1 </dev/null &
  pids+=($!)
  local tries
  for ((tries = 0; tries < 200; tries++)); do
    on a ss -Hltn "sport = :$2" | grep -q . && return
    sleep 0.1
  done
  return 1
}
stop() {
  kill "${pids[-1]}" 2>/dev/null
  wait "${pids[-1]}" 2>/dev/null
  unset 'pids[-1]'
  ! grep -q '^wrong' "$work/server.log"
}
carry() { # ADDRESS WAY ROUNDS BYTES
  local tries
  for tries in 1 2 3; do # a slow guest may keep the ends from meeting in time
    on b timeout 60 "$rdsock" --require=verbs --stats "$across" client "$1" $port "$3" "$4" "$2" >"$work/client.log" 2>&1 &&
      grep -q '^rdsock:   1 of the upgraded ones lead to other hosts' "$work/client.log" && return
    ! grep -q '^wrong' "$work/client.log" || return 1
  done
  return 1
}

port=7100
for address in "$RDFS_HOST_A"; do
  serve "$address" $port || fail "$address: nobody listens"
  for way in block epoll fork; do
    if carry "$address" $way 200 200000; then echo "$address, $way: carried"; else fail "$address, $way"; fi
  done
  stop || fail "$address: the server saw other bytes"
  port=$((port + 1))
done

# Whoever dies, no byte is wrong: it goes on over TCP or is reset.
for host in a b; do
  serve "$RDFS_HOST_A" $port || fail "nobody listens"
  on b timeout 60 "$rdsock" "$across" client "$RDFS_HOST_A" $port 300 300000 >"$work/client.log" 2>&1 &
  client=$!
  sleep 0.5
  for pid in $(carriers $host); do kill -KILL "$pid"; done
  wait $client
  status=$?
  if [ $status -eq 0 ] || [ $status -eq 3 ]; then echo "the carrier of $host dies: $(tail -n 1 "$work/client.log")"; else fail "the carrier of $host dies: status $status"; fi
  stop || fail "the carrier of $host dies: the server saw other bytes"
  port=$((port + 1))
done
exit $((failures > 0))
