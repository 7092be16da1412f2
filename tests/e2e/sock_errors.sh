#!/usr/bin/env bash
# Usage: sock_errors.sh --bin BUILD_DIR [--as-when-root USER]
#
# What a person can get wrong with rdsock: one line that says what, and the exit status of the manual. And
# --only, --except and --require with a real connection.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
# shellcheck source=tests/e2e/sock_setup.sh
. "$(dirname "$0")/sock_setup.sh"

# refused STATUS REGEX ARGUMENT...
refused() {
  local status=$1 regex=$2 got
  shift 2
  timeout 20 "$rdsock" "$@" >"$work/out" 2>"$work/err" </dev/null
  got=$?
  [ "$got" -eq "$status" ] || problem "rdsock $*: status $got instead of $status"
  [ "$(wc -l <"$work/err")" -eq 1 ] || problem "rdsock $*: $(cat "$work/err")"
  grep -qE "^rdsock: .*$regex" "$work/err" || problem "rdsock $*: says $(cat "$work/err")"
}
refused 2 'COMMAND is required; see rdsock --help'
refused 2 '--nonsense: there is no such option' --nonsense true
refused 2 "--only: 'eighty' is neither a port nor an address" --only 80,eighty true
refused 2 "--except: '10.0.0.0/33' is neither" --except 10.0.0.0/33 true
refused 2 'require=tcp: give shm or verbs' --require=tcp true
# A folder in PATH that this user may not enter would be told instead.
PATH=/usr/bin:/bin refused 127 "cannot run 'no-such-program': No such file" no-such-program
refused 126 "cannot run '/': Permission denied" /
"$rdsock" true || problem "true has failed"
"$rdsock" sh -c 'exit 7'
[ $? -eq 7 ] || problem "another exit status than the command's"
"$rdsock" --stats sh -c 'kill -TERM $$' 2>/dev/null
[ $? -eq 143 ] || problem "--stats: another exit status than the signal's"

# Whose parent ignores the end of children, the kernel does not tell of it.
timeout 20 env --ignore-signal=CHLD "$rdsock" --stats sh -c 'exit 3' 2>/dev/null
[ $? -eq 3 ] || problem "--stats where SIGCHLD is ignored: another exit status"

# talk SERVER_OPTION... -- CLIENT_OPTION...: bytes through nc, with these options of rdsock. They come in steps:
# who sleeps between two of them looks for the other end at the next. A stream without a pause can be over while
# the end that is to answer waits for a processor.
talk() {
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  port=$(free_port)
  "$rdsock" "${options[@]/PORT/$port}" nc -l 127.0.0.1 "$port" >"$work/got" 2>"$work/server.err" </dev/null &
  local pid=$!
  ends_with_us "$pid"
  listening "$pid" nc || return
  for _ in {1..25}; do
    head -c 200000 /dev/zero
    sleep 0.02
  done | timeout 20 "$rdsock" --stats "${@/PORT/$port}" nc -N 127.0.0.1 "$port" 2>"$work/client.err"
  wait "$pid"
}
mode=both
# No room for the memory in files that may be so large: TCP, and no signal.
port=$(free_port)
(ulimit -f 1000; exec "$rdsock" nc -l 127.0.0.1 "$port") >/dev/null 2>"$work/server.err" </dev/null &
small=$!
ends_with_us "$small"
if listening "$small" nc; then
  head -c 500000 /dev/zero | (ulimit -f 1000; exec timeout 20 "$rdsock" nc -N 127.0.0.1 "$port") && wait "$small" ||
    problem "programs whose files may not be large end: $(cat "$work/server.err")"
fi
talk --except PORT -- --only PORT
[ "$(upgraded "$work/client.err")" = 0 ] || problem "--except: $(cat "$work/client.err")"
[ "$(stat -c %s "$work/got")" -eq 5000000 ] || problem "--except: not all bytes have arrived"
talk --stats -- --except 127.0.0.2,1
expect_upgraded "--except of others" 1 "$work/client.err"
talk --stats -- --except 127.0.0.0/8
[ "$(upgraded "$work/client.err")" = 0 ] || problem "--except of an address: $(cat "$work/client.err")"
grep -q 'not among those asked for' "$work/client.err" || problem "--stats does not say why: $(cat "$work/client.err")"
talk --stats -- --require=shm --only PORT
expect_upgraded "--require" 1 "$work/client.err"
[ "$(stat -c %s "$work/got")" -eq 5000000 ] || problem "--require: not all bytes have arrived"

# Where the other end is not under rdsock --stats asks whether it is, of connections that are over before the last
# attempt, too: 20 calls each, where the first attempt is made at the eighth, or left out behind many in vain.
python3 - >"$work/port" <<'SERVER' &
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    with listener.accept()[0] as connection:
        while data := connection.recv(100): connection.sendall(data)
SERVER
plain=$!
ends_with_us "$plain"
wait_until 150 test -s "$work/port" || problem "a plain server does not listen"
timeout 60 "$rdsock" --stats python3 - "$(cat "$work/port")" 2>"$work/client.err" <<'CLIENT' || problem "a client of a plain server has failed"
import socket, sys
for _ in range(40):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) as connection:
        for _ in range(10):
            connection.sendall(b"x")
            connection.recv(1)
CLIENT
# What is left to the kernel to close before any attempt, too.
timeout 60 "$rdsock" --stats python3 - "$(cat "$work/port")" 2>"$work/left.err" <<'CLIENT' || problem "a client that closes nothing has failed"
import os, socket, sys
kept = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
os._exit(0)
CLIENT
grep -q '1 stayed on TCP: they were open when COMMAND ended' "$work/left.err" ||
  problem "--stats says nothing of what was left open: $(cat "$work/left.err")"
stop "$plain"
count=$(sed -n 's/^rdsock:   \([0-9]*\) stayed on TCP: they had nobody at the other end .*/\1/p' "$work/client.err")
[ "${count:-0}" -ge 36 ] || problem "of 40 connections ${count:-none} had nobody at the other end: $(cat "$work/client.err")"
conclude "errors and options of rdsock"
