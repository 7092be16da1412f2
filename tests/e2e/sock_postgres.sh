#!/usr/bin/env bash
# Usage: sock_postgres.sh --bin BUILD_DIR [--as-when-root USER]
#
# PostgreSQL with pgbench, also of 100 connections, COPY, pg_dump and a cancelled query, over TCP with
# rdsock around both ends, either, and none. The accounts must add up, and two dumps must be the same.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
# shellcheck source=tests/e2e/sock_setup.sh
. "$(dirname "$0")/sock_setup.sh"

pg=$(dirname "$(find /usr/lib/postgresql -name initdb | sort | tail -n 1)")
"$pg/initdb" -D "$work/data" -A trust -U test --no-sync --no-instructions >"$work/initdb.log" 2>&1 || {
  cat "$work/initdb.log" >&2
  exit 1
}
transactions=10 # of each of 100 connections
[ "${RDFS_CHECK_FULL:-0}" = 0 ] || transactions=200
export PGHOST=127.0.0.1 PGUSER=test PGDATABASE=postgres
run() {
  timeout 50 "${client[@]}" "$@" >"$work/out" 2>"$work/client.err" ||
    problem "$* ($mode): $(tail -n 5 "$work/client.err")"
}
ask() { PGPORT=$port timeout 20 psql -XAtc "$1"; }
ready() { ask 'select 1' >/dev/null 2>&1; }
sleeping() { [ "$(ask "select count(*) from pg_stat_activity where state = 'active' and query = 'select pg_sleep(40)'")" = 1 ]; }
sums() {
  ask 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)
         and (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)'
}

postgres() {
  local pid asking
  "${server[@]}" "$pg/postgres" -D "$work/data" -p "$port" -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories='' -c fsync=off -c max_connections=120 >"$work/server.out" 2>"$work/server.err" </dev/null &
  pid=$!
  ends_with_us "$pid"
  wait_until 150 ready || { problem "postgres ($mode) did not start: $(tail "$work/server.err")"; return; }
  export PGPORT=$port
  run "$pg/pgbench" -i -q -s 1
  expect_upgraded "pgbench -i" 1 "$work/client.err"
  run "$pg/pgbench" -n -S -c 8 -T 2 -M prepared
  expect_upgraded "pgbench -S" 8 "$work/client.err"
  run "$pg/pgbench" -n -c 100 -j 2 -t "$transactions"
  expect_upgraded "pgbench of 100 connections" 100 "$work/client.err"
  run "$pg/pgbench" -n -c 8 -t 50
  expect_upgraded "pgbench" 8 "$work/client.err"
  [ "$(sums)" = t ] || problem "pgbench ($mode): the accounts do not add up"
  [ "$(ask 'select count(*) from pgbench_history')" = $((100 * transactions + 8 * 50)) ] ||
    problem "pgbench ($mode): not as many transactions as were made"
  run psql -XAtc 'copy pgbench_accounts to stdout'
  [ "$(wc -l <"$work/out")" -eq 100000 ] || problem "COPY ($mode): $(wc -l <"$work/out") lines"
  run pg_dump -t pgbench_accounts
  # Newer ones begin and end with a random word.
  sed -i "/^.\\(un\\)\\?restrict /d" "$work/out"
  PGPORT=$port pg_dump -t pgbench_accounts 2>/dev/null | sed "/^.\\(un\\)\\?restrict /d" >"$work/dump"
  cmp -s "$work/dump" "$work/out" || problem "pg_dump ($mode) says something else over TCP"
  # A statement that the client cancels, over a connection of its own.
  # shellcheck disable=SC2016
  timeout 50 "${client[@]}" sh -c 'echo $$ >"$0"; exec psql -XAtc "select pg_sleep(40)"' "$work/psql.pid" >/dev/null \
    2>"$work/client.err" &
  asking=$!
  wait_until 200 sleeping || problem "cancel ($mode): there is no statement to cancel"
  kill -INT "$(cat "$work/psql.pid")"
  wait "$asking"
  grep -q 'canceling statement' "$work/client.err" || problem "cancel ($mode): $(cat "$work/client.err")"
  kill -INT "$(head -n 1 "$work/data/postmaster.pid")"
  wait "$pid" 2>/dev/null
  expect_upgraded postgres 117 "$work/server.err"
}

each_mode postgres
conclude "PostgreSQL"
