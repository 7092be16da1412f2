#!/usr/bin/env bash
# Usage: sock_across_postgres.sh --bin BUILD_DIR     (as root; PostgreSQL runs as $RDFS_E2E_USER, or rdfs-test)
#
# PostgreSQL on one host and its programs on another, here two network namespaces without RDMA, so that
# carriers carry over TCP: pgbench, COPY, pg_dump and a cancelled query. The accounts must add up.
set -uo pipefail
[ "$(id -u)" -eq 0 ] || { echo "only root can run PostgreSQL as somebody else between network namespaces" >&2; exit 1; }
[ -n "${RDFS_ACROSS_INSIDE:-}" ] || exec env RDFS_ACROSS_INSIDE=1 unshare --net "$0" "$@"
. "$(dirname "$0")/setup.sh"
begin "$@"
. "$(dirname "$0")/sock_setup.sh"
user=${RDFS_E2E_USER:-rdfs-test}

second_network
ip link add near type veth peer name far netns "$far" || { echo "$this: no veth" >&2; exit 1; }
ip address add 10.79.0.1/24 dev near && ip link set near up && ip link set lo up
nsenter --net="/proc/$far/ns/net" ip address add 10.79.0.2/24 dev far
nsenter --net="/proc/$far/ns/net" ip link set far up
key=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
pairing() { # HOME ADDRESS-OF-THE-OTHER
  mkdir -p "$work/$1/.config/rdsock"
  (umask 077 && printf 'rdsock-pairs 1\nlisten 7340\nover tcp\npair test %s 7340 %s\n' "$key" "$2" >"$work/$1/.config/rdsock/pairs")
  chown -R "$user" "$work/$1"
}
pairing here 10.79.0.2
pairing there 10.79.0.1
as=(setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups env)
here=("${as[@]}" HOME="$work/here")
there=(nsenter --net="/proc/$far/ns/net" "${as[@]}" HOME="$work/there")

pg=$(dirname "$(find /usr/lib/postgresql -name initdb | sort | tail -n 1)")
"${there[@]}" "$pg/initdb" -D "$work/there/data" -A trust -U test --no-sync --no-instructions >"$work/initdb.log" 2>&1 ||
  { cat "$work/initdb.log" >&2; exit 1; }
echo 'host all all 10.79.0.0/24 trust' >>"$work/there/data/pg_hba.conf"
export PGHOST=10.79.0.2 PGUSER=test PGDATABASE=postgres PGPORT=5432
"${there[@]}" "$rdsock" --stats "$pg/postgres" -D "$work/there/data" -c listen_addresses=10.79.0.2 \
  -c unix_socket_directories='' -c fsync=off >"$work/server.out" 2>"$work/server.err" </dev/null &
server=$!
ends_with_us "$server"
ask() { timeout 20 psql -XAtc "$1"; }
ready() { ask 'select 1' >/dev/null 2>&1; }
wait_until 150 ready || problem "postgres did not start: $(tail "$work/server.err")"
carried() { sed -n 's/^rdsock:   \([0-9]*\) of the upgraded ones lead to other hosts$/\1/p' "$1" | tail -n 1; }
# Busy processors may keep some ends from meeting in time.
run() { # AT_LEAST COMMAND...
  local least=$1 count
  shift
  timeout 60 "${here[@]}" "$rdsock" --stats "$@" >"$work/out" 2>"$work/err" </dev/null || problem "$*: $(tail -n 5 "$work/err")"
  count=$(carried "$work/err")
  [ "${count:-0}" -ge "$least" ] || problem "$*: ${count:-no} connections carried, not $least: $(tail -n 4 "$work/err")"
}
# One short connection: the first may be over before the carriers are there and have met.
run 0 "$pg/pgbench" -i -q -s 1
run 1 "$pg/pgbench" -i -q -s 1
run 4 "$pg/pgbench" -n -S -c 8 -T 1 -M prepared
run 15 "$pg/pgbench" -n -S -c 30 -t 300
run 4 "$pg/pgbench" -n -c 8 -t 50
[ "$(ask 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)')" = t ] ||
  problem "pgbench: the accounts do not add up"
run 0 psql -XAtc 'copy pgbench_accounts to stdout'
[ "$(wc -l <"$work/out")" -eq 100000 ] || problem "COPY: $(wc -l <"$work/out") lines"
run 0 pg_dump -t pgbench_accounts
# Newer ones begin and end with a random word.
sed -i "/^.\\(un\\)\\?restrict /d" "$work/out"
pg_dump -t pgbench_accounts 2>/dev/null | sed "/^.\\(un\\)\\?restrict /d" >"$work/dump"
cmp -s "$work/dump" "$work/out" || problem "pg_dump says something else over TCP"
sleeping() { [ "$(ask "select count(*) from pg_stat_activity where state = 'active' and query = 'select pg_sleep(40)'")" = 1 ]; }
# shellcheck disable=SC2016
timeout 50 "${here[@]}" "$rdsock" sh -c 'echo $$ >"$0"; exec psql -XAtc "select pg_sleep(40)"' "$work/here/psql.pid" \
  >/dev/null 2>"$work/err" &
asking=$!
wait_until 200 sleeping || problem "cancel: there is no statement to cancel"
kill -INT "$(cat "$work/here/psql.pid")"
wait $asking
grep -q 'canceling statement' "$work/err" || problem "cancel: $(cat "$work/err")"
kill -INT "$(head -n 1 "$work/there/data/postmaster.pid")"
wait "$server" 2>/dev/null
count=$(carried "$work/server.err")
[ "${count:-0}" -ge 24 ] || problem "the server: ${count:-no} connections carried: $(cat "$work/server.err")"
for pid in $(ss -xlpH | sed -n 's/.*@rdsock1-carrier-.*pid=\([0-9]*\).*/\1/p') \
  $(nsenter --net="/proc/$far/ns/net" ss -xlpH | sed -n 's/.*@rdsock1-carrier-.*pid=\([0-9]*\).*/\1/p'); do kill "$pid"; done
conclude "PostgreSQL on another host, $count connections carried"
