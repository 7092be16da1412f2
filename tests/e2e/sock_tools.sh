#!/usr/bin/env bash
# Usage: sock_tools.sh --bin BUILD_DIR [--as-when-root USER]
#
# netcat, socat, Python's http.server and curl with rdsock around both ends, either, and none: what
# arrives is what was sent, and with both it went through memory.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
# shellcheck source=tests/e2e/sock_setup.sh
. "$(dirname "$0")/sock_setup.sh"

mkdir "$work/www"
head -c 20000000 /dev/urandom >"$work/www/big"

# transfer WHAT SERVER... -- CLIENT...: the client sends a file, the server keeps it in $work/got.
transfer() {
  local what=$1 pid server_command=()
  shift
  while [ "$1" != -- ]; do server_command+=("$1"); shift; done
  shift
  rm -f "$work/got"
  "${server[@]}" "${server_command[@]}" >"$work/got" 2>"$work/server.err" </dev/null &
  pid=$!
  ends_with_us "$pid"
  listening "$pid" "$what" || return
  timeout 30 "${client[@]}" "$@" <"$work/www/big" >"$work/client.out" 2>"$work/client.err" ||
    problem "$what ($mode): the client failed: $(cat "$work/client.err")"
  timeout 30 tail --pid="$pid" -f /dev/null || problem "$what ($mode): the server goes on"
  stop "$pid"
  cmp -s "$work/www/big" "$work/got" || problem "$what ($mode): something else has arrived"
  expect_upgraded "$what" 1 "$work/server.err" "$work/client.err"
}
netcat() { transfer netcat nc -l 127.0.0.1 "$port" -- nc -N 127.0.0.1 "$port"; }
socats() {
  transfer socat socat -u "TCP-LISTEN:$port,bind=127.0.0.1" STDOUT -- \
    socat -u STDIN "TCP:127.0.0.1:$port"
}
# As inetd does it: the program that serves is another than the one that has accepted.
# handed_on WHAT COMMAND: what has come is in $work/got when it has ended.
handed_on() {
  local pid
  rm -f "$work/got"
  "${server[@]}" socat "TCP-LISTEN:$port,bind=127.0.0.1" "EXEC:$2" >/dev/null 2>"$work/server.err" \
    </dev/null &
  pid=$!
  ends_with_us "$pid"
  listening "$pid" "$1" || return
  timeout 20 "${client[@]}" nc -N 127.0.0.1 "$port" <"$work/www/big" >"$work/client.out" \
    2>"$work/client.err" || problem "$1 ($mode): the client failed: $(cat "$work/client.err")"
  wait "$pid"
}
inetd() {
  handed_on inetd "socat -u FD\\:5 CREATE\\:$work/got,nofork,fdin=5,fdout=5"
  cmp -s "$work/www/big" "$work/got" || problem "inetd ($mode): something else has arrived"
  expect_upgraded inetd 1 "$work/server.err" "$work/client.err"
}
# Standard streams may use the connection, which nobody would see.
standard_streams() {
  handed_on "tee of inetd" "tee $work/got,nofork"
  cmp -s "$work/www/big" "$work/got" && cmp -s "$work/www/big" "$work/client.out" ||
    problem "tee of inetd ($mode): something else has arrived"
}
web() {
  local pid
  "${server[@]}" python3 -m http.server --bind 127.0.0.1 -d "$work/www" "$port" \
    >/dev/null 2>"$work/server.err" </dev/null &
  pid=$!
  ends_with_us "$pid"
  listening "$pid" http || return
  for _ in 1 2 3; do
    timeout 30 "${client[@]}" curl -sS -o "$work/got" "http://127.0.0.1:$port/big" 2>"$work/client.err" ||
      problem "curl ($mode) failed: $(cat "$work/client.err")"
    cmp -s "$work/www/big" "$work/got" || problem "curl ($mode): something else has arrived"
    expect_upgraded curl 1 "$work/client.err"
  done
  stop "$pid"
  expect_upgraded http.server 3 "$work/server.err"
}

each_mode netcat
each_mode socats
each_mode inetd
each_mode standard_streams
each_mode web
conclude "netcat, socat, http.server and curl"
