#!/usr/bin/env bash
# Usage: names_the_leg.sh RDINFO RDPING
# rdinfo must say what works towards a real server, and name the first leg that does not, with the remedy.
set -euo pipefail
rdinfo=$1 rdping=$2
# shellcheck source=tests/tools/rdping_server.sh
. "$(dirname "$0")/../rdping_server.sh"
# expect STATUS REGEX WHAT ARGUMENT...: rdinfo's exit code and a line of its output.
expect() {
  local wanted=$1 pattern=$2 what=$3 status=0
  shift 3
  "$rdinfo" "$@" >"$work/out" 2>&1 || status=$?
  [ "$status" -eq "$wanted" ] || fail "$what: exit code $status, not $wanted"
  grep -qE -e "$pattern" "$work/out" || fail "$what: no line matches $pattern"
}

expect 0 '/dev/fuse +there' 'this machine'
expect 0 'memlock' 'this machine'
"$rdinfo" --json >"$work/json"
python3 -c 'import json,sys; json.load(open(sys.argv[1]))' "$work/json" || fail "--json is no JSON"

printf '0123456789abcdef' >"$work/key"
printf 'another key' >"$work/wrong"
chmod 600 "$work/key" "$work/wrong"
start_server "$rdping" --listen 127.0.0.1 --key-file "$work/key"

expect 0 'tcp +works' 'a server and its key' 127.0.0.1 "$port" --key-file "$work/key"
expect 0 'tcp +works' 'HOST:PORT in one word' "127.0.0.1:$port" --key-file "$work/key"
expect 2 'with a port from 1 to 65535' 'a port that is none' 127.0.0.1:http
expect 0 'shm +works' 'a server and its key' 127.0.0.1 "$port" --key-file "$work/key"
expect 1 '-> .*key' 'a wrong key' 127.0.0.1 "$port" --key-file "$work/wrong"
expect 1 '-> .*key' 'no key' 127.0.0.1 "$port"
expect 1 '! name' 'an unknown host' no-such-host.invalid
chmod 644 "$work/key"
expect 1 'chmod 600' 'a key that others may read' 127.0.0.1 "$port" --key-file "$work/key"
stop_server
expect 1 "! TCP port $port" 'a port where nobody listens' 127.0.0.1 "$port"
expect 2 '' 'a wrong option' --no-such-option
