#!/usr/bin/env bash
# Usage: sock_redis.sh --bin BUILD_DIR [--as-when-root USER]
#
# redis under redis-benchmark, with a BGSAVE meanwhile, and a replica that comes and is cut off while its
# master is written to; with rdsock around both ends, either, and none.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
# shellcheck source=tests/e2e/sock_setup.sh
. "$(dirname "$0")/sock_setup.sh"

load=2000 # requests of each kind
[ "${RDFS_CHECK_FULL:-0}" = 0 ] || load=50000

ask() { timeout 20 redis-cli -h 127.0.0.1 -p "$port" "$@"; }
benchmark() {
  timeout 30 "${client[@]}" redis-benchmark -h 127.0.0.1 -p "$port" -q "$@" >"$work/benchmark.out" \
    2>"$work/client.err" || problem "redis-benchmark $* ($mode): $(cat "$work/client.err")"
  expect_upgraded "redis-benchmark $*" 1 "$work/client.err"
}
saved() { [ "$(ask lastsave)" -gt "$before" ]; }

redis() {
  local pid before
  mkdir -p "$work/$mode"
  "${server[@]}" redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$work/$mode" \
    >"$work/server.out" 2>"$work/server.err" </dev/null &
  pid=$!
  ends_with_us "$pid"
  listening "$pid" redis || return
  benchmark -c 50 -n 20000 -t set,get,incr
  benchmark -c 50 -n 50000 -P 16 -t set,get
  before=$(ask lastsave)
  sleep 1.1 # lastsave counts seconds
  ask bgsave >/dev/null
  benchmark -c 10 -n 20000 -d 3000 -t set,get
  wait_until 100 saved || problem "BGSAVE ($mode) was not finished"
  # A value that takes many rings.
  head -c 3000000 /dev/urandom | base64 -w 0 >"$work/value"
  timeout 20 "${client[@]}" redis-cli -h 127.0.0.1 -p "$port" -x set large <"$work/value" \
    >"$work/answer" 2>/dev/null
  timeout 20 "${client[@]}" redis-cli -h 127.0.0.1 -p "$port" --raw get large 2>/dev/null |
    head -c -1 >"$work/got"
  cmp -s "$work/value" "$work/got" || problem "redis ($mode): another value than was set"
  [ "$(ask get counter:__rand_int__)" = 20000 ] || problem "redis ($mode): lost increments"
  stop "$pid"
  expect_upgraded redis-server 100 "$work/server.err"
}

# of PORT COMMAND...
of() { timeout 20 redis-cli -h 127.0.0.1 -p "$1" "${@:2}"; }
follows() { of "$replica_port" info replication 2>/dev/null | grep -q 'master_link_status:up'; }
# Cuts the replica off once others write. Whether it has come back, and goes on.
cut_off() {
  local copies
  if [ "$cut" = 0 ] && [ "$(ask client list type normal | wc -l)" -gt 10 ]; then
    cut=$(ask client kill type replica)
  fi
  copies=$(ask info stats | tr -d '\r' | awk -F: '/^sync_(full|partial_ok):/ { all += $2 } END { print all }')
  [ "$cut" = 1 ] && [ "$copies" -ge 2 ] && follows
}
# write_until COMMAND...: others write until it succeeds.
write_until() {
  rm -f "$work/enough"
  (
    failures=0
    until [ -e "$work/enough" ]; do
      benchmark -c 10 -n "$load" -r 3000 -d 700 -t set,incr,lpush,sadd,hset,zadd
    done
    exit "$failures"
  ) &
  local writer=$!
  wait_until 200 "$@" || problem "replication ($mode): not so within 20 s: $*"
  touch "$work/enough"
  wait "$writer" || problem "replication ($mode): those who write have failed"
}
# same WHEN: the replica has heard of everything, and its data are the master's.
same() {
  local there
  [ "$(ask wait 1 15000)" = 1 ] || problem "replication ($mode), $1: the replica did not catch up"
  there=$(of "$replica_port" debug digest)
  [ "$(ask debug digest)" = "$there" ] && [ "${there//0/}" != '' ] ||
    problem "replication ($mode), $1: other data than the master's: $there"
  [ "$(of "$replica_port" dbsize)" -gt 2000 ] || problem "replication ($mode), $1: hardly any data"
}

replication() {
  local pid cut replica_pid replica_port=''
  mkdir -p "$work/$mode/replica"
  "${server[@]}" redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$work/$mode" \
    --enable-debug-command local --repl-diskless-sync-delay 0 --repl-backlog-size 16kb \
    >"$work/server.out" 2>"$work/server.err" </dev/null &
  pid=$!
  ends_with_us "$pid"
  listening "$pid" redis || return
  benchmark -c 10 -n "$load" -r 3000 -d 3000 -t set
  replica_port=$(free_port)
  "${client[@]}" redis-server --port "$replica_port" --bind 127.0.0.1 --save '' \
    --dir "$work/$mode/replica" --replicaof "127.0.0.1 $port" --enable-debug-command local \
    >"$work/replica.out" 2>"$work/replica.err" </dev/null &
  replica_pid=$!
  ends_with_us "$replica_pid"
  # All of it by a child of the master's while others write, then what is written.
  write_until follows
  same "after the first copy"
  # And again, from a file, for what it misses now is more than the master remembers, as a rule.
  ask config set repl-diskless-sync no >/dev/null
  cut=0
  write_until cut_off
  same "after it was cut off"
  stop "$replica_pid"
  stop "$pid"
  expect_upgraded "the replica" 2 "$work/replica.err"
  expect_upgraded "the master" 20 "$work/server.err"
}

each_mode redis
each_mode replication
conclude "redis"
