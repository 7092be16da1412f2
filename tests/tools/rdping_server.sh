# shellcheck shell=bash
# For the tests of rdping and rdinfo, to be sourced: a private $work, `fail`, and an `rdping server` that
# ends with the test.

work=$(mktemp -d)
server=''
finish() {
  [ -n "$server" ] && kill "$server" 2>/dev/null && wait "$server" 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT
fail() { echo "FAILED: $1" >&2; cat "$work"/* >&2; exit 1; }
# start_server RDPING OPTION...: on a free port; it can be reached at $host $port.
start_server() {
  rm -f "$work/server"
  "$1" server 0 "${@:2}" >"$work/server" 2>&1 &
  server=$!
  for _ in $(seq 100); do grep -q 'rdping client' "$work/server" && break; sleep 0.1; done
  read -r _ _ host port _ < <(grep 'rdping client' "$work/server") || fail "the server printed no command"
}
stop_server() {
  kill "$server" && wait "$server" || fail "the server did not end cleanly"
  server=''
}
