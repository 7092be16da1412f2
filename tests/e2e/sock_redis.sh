#!/usr/bin/env bash
# Usage: sock_redis.sh --bin BUILD_DIR [--as-when-root USER]
#
# redis under redis-benchmark, with a BGSAVE meanwhile, and rdsock around both ends, either, and none.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
# shellcheck source=tests/e2e/sock_setup.sh
. "$(dirname "$0")/sock_setup.sh"

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

each_mode redis
conclude "redis"
