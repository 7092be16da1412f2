#!/usr/bin/env bash
# Programs that people run on a file system, on the mount, each with its own check: a C project built with
# make -j, git clone and gc, sqlite in WAL mode, PostgreSQL's initdb and pgbench.
set -euo pipefail
mount=$RDFS_E2E_MOUNT
cd "$mount"
fail() { echo "FAILED: $1" >&2; exit 1; }
timed() { local started=$SECONDS what=$1; shift; "$@" || fail "$what"; echo "$what: $((SECONDS - started)) s"; }

c_project() {
  mkdir -p project && cd project
  local i
  { echo 'int main(void) { return'; for i in $(seq 60); do echo "f$i() +"; done; echo '-1830; }'; } >main.c
  for i in $(seq 60); do
    echo "int f$i(void);" >>all.h
    printf '#include "all.h"\nint f%d(void) { return %d; }\n' "$i" "$i" >"f$i.c"
  done
  sed -i '1i #include "all.h"' main.c
  printf 'objects := $(patsubst %%.c,%%.o,$(wildcard *.c))\nprogram: $(objects)\n\tgcc -o $@ $^\n%%.o: %%.c all.h\n\tgcc -O1 -c $<\n' >Makefile
  make -j4 >make.log 2>&1 && ./program && [ "$(make | wc -l)" -eq 1 ]
}

git_clone() {
  export GIT_CONFIG_GLOBAL=$RDFS_E2E_LOCAL/gitconfig
  git config --global user.email test@example.invalid
  git config --global user.name test
  git config --global init.defaultBranch main
  git config --global advice.detachedHead false
  git init -q "$RDFS_E2E_LOCAL/origin"
  (cd "$RDFS_E2E_LOCAL/origin" && for i in $(seq 200); do echo "$i" >"file$i"; done && git add . && git commit -qm one &&
    for i in $(seq 50); do echo "again $i" >>"file$i"; git commit -qam "change $i"; done)
  git clone -q "$RDFS_E2E_LOCAL/origin" "$mount/clone" && cd "$mount/clone" && git gc -q &&
    git fsck --no-progress --strict && [ -z "$(git status --porcelain)" ] &&
    [ "$(git log --oneline | wc -l)" -eq 51 ] && git checkout -q HEAD~25 && [ -z "$(git status --porcelain)" ]
}

sqlite_wal() {
  sqlite3 "$mount/wal.db" 'pragma journal_mode=wal; create table t(a integer primary key, b text);' >"$RDFS_E2E_LOCAL/mode"
  grep -qx wal "$RDFS_E2E_LOCAL/mode" || return 1
  # Two writers and a reader at once, through locks and a shared mapping.
  local writer pids=()
  for writer in 1 2; do
    (for i in $(seq 100); do
      echo "pragma busy_timeout=20000; begin immediate; insert into t(b) values('$writer $i'); commit;"
    done | sqlite3 "$mount/wal.db" >/dev/null) &
    pids+=($!)
  done
  for _ in $(seq 10); do sqlite3 "$mount/wal.db" 'pragma busy_timeout=20000; select count(*) from t' >/dev/null || return 1; done
  wait "${pids[@]}" || return 1
  [ "$(sqlite3 "$mount/wal.db" 'select count(*) from t')" -eq 200 ] &&
    [ "$(sqlite3 "$mount/wal.db" 'pragma integrity_check')" = ok ]
}

postgres() {
  local bin
  bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
  if [ "$(id -u)" -eq 0 ]; then echo "PostgreSQL does not run as root" >&2; return 1; fi
  "$bin/initdb" -D "$mount/pg" -A trust -U test --no-instructions >"$RDFS_E2E_LOCAL/initdb.log" 2>&1 ||
    { tail "$RDFS_E2E_LOCAL/initdb.log"; return 1; }
  local options="-c listen_addresses='' -c unix_socket_directories='$RDFS_E2E_LOCAL'"
  "$bin/pg_ctl" -D "$mount/pg" -w -t 60 -l "$RDFS_E2E_LOCAL/pg.log" -o "$options" start >/dev/null ||
    { tail "$RDFS_E2E_LOCAL/pg.log"; return 1; }
  local status=0
  { "$bin/pgbench" -h "$RDFS_E2E_LOCAL" -U test -i -s 2 postgres &&
    "$bin/pgbench" -h "$RDFS_E2E_LOCAL" -U test -c 4 -T 5 postgres &&
    [ "$("$bin/psql" -h "$RDFS_E2E_LOCAL" -U test -Atc 'select sum(abalance)=(select sum(delta) from pgbench_history) from pgbench_accounts' postgres)" = t ]
  } >"$RDFS_E2E_LOCAL/pgbench.log" 2>&1 || { tail -n 30 "$RDFS_E2E_LOCAL/pgbench.log" "$RDFS_E2E_LOCAL/pg.log"; status=1; }
  "$bin/pg_ctl" -D "$mount/pg" -w -m fast stop >/dev/null || status=1
  return $status
}

timed "a C project with make -j4" c_project
cd "$mount"
timed "git clone, gc, fsck, checkout" git_clone
cd "$mount"
timed "sqlite in WAL mode, two writers" sqlite_wal
timed "PostgreSQL: initdb, pgbench, its sums" postgres
