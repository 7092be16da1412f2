#!/usr/bin/env bash
# Usage: reload.sh --bin BUILD_DIR [--as-when-root USER]
#
# SIGHUP: rdfsd reads its exports again under a mount that goes on, with a file open. New ones can be mounted, what is
# offered no more cannot, what is wrong changes nothing, and a worker that is killed afterwards comes back with the same.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
mkdir "$work/a" "$work/b" "$work/mnt-a" "$work/mnt-b" "$work/mnt-c"
echo 'of b' >"$work/b/file"

# configure NAME=DIR...
configure() {
  local entry
  echo 'no_auth = true' >"$work/rdfsd.toml.new"
  for entry in "$@"; do
    printf '[[export]]\nname = "%s"\ndir = "%s"\n' "${entry%%=*}" "${entry#*=}" >>"$work/rdfsd.toml.new"
  done
  mv "$work/rdfsd.toml.new" "$work/rdfsd.toml"
}
# reload REGEX: and waits until the log has said so.
reload() {
  local before
  before=$(grep -cE "$1" "$work/server.log")
  kill -HUP "$server"
  wait_until 100 bash -c "[ \$(grep -cE '$1' '$work/server.log') -gt $before ]" || problem "the log does not say $1"
}
# Not with the open file: the mount would hold it open.
mount_one() { "$rdfs" "rdfs://127.0.0.1:$port/$1" "$2" >"$work/out" 2>&1 7>&-; }

configure "a=$work/a"
serve server --config "$work/rdfsd.toml" --no-auth
mount_one a "$work/mnt-a" || problem "no mount of a: $(cat "$work/out")"
exec 7>"$work/mnt-a/open"
echo before >&7
mount_one b "$work/mnt-b" && problem 'b can be mounted before it is there'

configure "a=$work/a" "b=$work/b"
reload 'read again: 2 exports'
mount_one b "$work/mnt-b" || problem "no mount of b: $(cat "$work/out")"
[ "$(cat "$work/mnt-b/file")" = 'of b' ] || problem 'b has another content'
echo after >&7 || problem 'the open file of a is lost'

configure "a=$work/a" "b=$work/b" "c=$work/none"
reload 'the exports stay as they were'
configure "a=$work/b"
reload 'the exports stay as they were: .*another directory'
configure "b=$work/b"
reload 'read again: 1 exports'
mount_one a "$work/mnt-c" && problem 'a can be mounted when it is offered no more'
grep -q 'has no export "a"' "$work/out" || problem "a is refused with: $(cat "$work/out")"
echo 'and on' >&7 || problem 'the mount of a does not go on'
exec 7>&-
[ "$(cat "$work/a/open")" = $'before\nafter\nand on' ] || problem "a has: $(cat "$work/a/open")"
[ "$("$rdfs" stats --json "$work/mnt-a" | grep -o '"reconnects": [0-9]*')" = '"reconnects": 0' ] || problem 'the client was dropped'
fusermount3 -u "$work/mnt-a" || problem 'no unmount of a'

# The supervisor starts another worker, which must know b, also where another directory has gone.
mkdir "$work/gone"
configure "b=$work/b" "gone=$work/gone"
reload 'read again: 2 exports'
rmdir "$work/gone"
kill -9 "$(pgrep -P "$server")"
wait_until 100 grep -q 'the worker was started again' "$work/server.log" || problem 'no other worker'
grep -q 'export "gone" is left out' "$work/server.log" || problem 'the log does not say that an export has gone'
[ "$(cat "$work/mnt-b/file")" = 'of b' ] || problem 'b is lost with its worker'
fusermount3 -u "$work/mnt-b" || problem 'no unmount of b'
conclude 'exports that are read again'
