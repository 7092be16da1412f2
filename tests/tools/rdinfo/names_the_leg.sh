#!/usr/bin/env bash
# Usage: names_the_leg.sh RDINFO RDPING RDFSD RDFS OTHER_MAJOR [SHIFTED_CLOCK]
# rdinfo must say what works towards a real server, and name the first leg that does not, with the remedy; set-ups
# are broken on purpose, one way at a time (tests/rdma/doctor.sh breaks those that need a machine of their own).
set -euo pipefail
rdinfo=$1 rdping=$2 rdfsd=$3 rdfs=$4 other_major=$5 shifted_clock=${6:-}
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
expect 0 'user_allow_other +(set|not set)' 'this machine'
expect 0 'clock +(kept by NTP|not kept by NTP|cannot be asked)' 'this machine'
expect 0 'firewall +(ufw|firewalld|nftables|iptables|neither|none)' 'this machine'
# Known by its process alone, as Debian starts it.
cp "$(command -v sleep)" "$work/firewalld"
"$work/firewalld" 60 &
firewalld=$!
for _ in $(seq 100); do [ "$(cat /proc/$firewalld/comm)" = firewalld ] && break; sleep 0.05; done
expect 0 'firewall +(ufw|firewalld) is on' 'a firewalld without files'
grep -qE 'ufw allow 7337|firewall-cmd .*7337' "$work/out" || fail 'a firewall that is on, and no advice'
kill "$firewalld"
wait "$firewalld" || true
# Little memory that may be locked, and no right to lock more.
unlimited=$rdinfo
cat >"$work/limited" <<END
#!/bin/sh
ulimit -l 64
[ "\$(id -u)" -ne 0 ] || exec setpriv --bounding-set=-ipc_lock "$unlimited" "\$@"
exec "$unlimited" "\$@"
END
chmod +x "$work/limited"
rdinfo=$work/limited
expect 0 "'[*] - memlock unlimited' into /etc/security/limits.d/rdfs.conf and log in again" 'memlock'
# fusermount3 is nowhere in the PATH.
cat >"$work/limited" <<END
#!/bin/sh
PATH=/none exec "$unlimited" "\$@"
END
expect 0 'fusermount3 +not in the PATH' 'no fusermount3'
grep -qE '^ +[0-9]+\. fusermount3: not in the PATH' "$work/out" || fail 'no fusermount3: no advice'
grep -qE '^     install the package fuse3, and' "$work/out" || fail 'no fusermount3: nothing to do'
rdinfo=$unlimited
for wrong in --no-such-option '127.0.0.1 99999'; do
  # shellcheck disable=SC2086
  expect 2 '^rdinfo: .*; see rdinfo --help$' "the wrong command line 'rdinfo $wrong'" $wrong
  [ "$(wc -l <"$work/out")" -eq 1 ] || fail "a wrong command line is not told in one line"
done
expect 2 "^rdinfo: '127.0.0.1:7337' names its port: leave out 7338$" 'two ports' 127.0.0.1:7337 7338
"$rdinfo" --json >"$work/json"
python3 -c 'import json,sys; json.load(open(sys.argv[1]))' "$work/json" || fail "--json is no JSON"

printf '0123456789abcdef' >"$work/key"
printf 'another key' >"$work/wrong"
chmod 600 "$work/key" "$work/wrong"
start_server "$rdping" --listen 127.0.0.1 --key-file "$work/key"

expect 0 'tcp +works: .* us a message, .* us a READ, .* GB/s' 'a server and its key' 127.0.0.1 "$port" --key-file "$work/key"
expect 0 'tcp +works' 'HOST:PORT in one word' "127.0.0.1:$port" --key-file "$work/key"
expect 2 'with a port from 1 to 65535' 'a port that is none' 127.0.0.1:http
expect 0 'shm +works' 'a server and its key' 127.0.0.1 "$port" --key-file "$work/key"
expect 0 'clock +agrees' 'a server and its key' "127.0.0.1:$port" --key-file "$work/key"
expect 1 '1. authentication: refused' 'a wrong key, in the advice' 127.0.0.1 "$port" --key-file "$work/wrong"
expect 1 '-> .*key' 'a wrong key' 127.0.0.1 "$port" --key-file "$work/wrong"
expect 1 '-> .*key' 'no key' 127.0.0.1 "$port"
expect 1 '! name' 'an unknown host' no-such-host.invalid
chmod 644 "$work/key"
expect 1 '! authentication +not tried' 'a key that others may read' 127.0.0.1 "$port" --key-file "$work/key"
grep -qE "^ +TCP port $port +open" "$work/out" || fail 'a key that others may read ends the report'
grep -qE '^      -> .*chmod 600' "$work/out" || fail 'what to do about a key that others may read'
expect 1 '1. authentication: not tried' 'a key that is not there' 127.0.0.1 "$port" --key-file "$work/none"
expect 0 '! key file +cannot be used' 'a key that is not there, and no HOST' --key-file "$work/none"
grep -qE '^  1\. key file: ' "$work/out" || fail 'a key that is not there is not the first advice'
expect 2 '^rdinfo: .*give its HOST: rdinfo node$' 'the source of a mount by ssh' user@node:/data
stop_server
expect 1 "! TCP port $port" 'a port where nobody listens' 127.0.0.1 "$port"
expect 1 "1. TCP port $port: not reached" 'a port where nobody listens, in the advice' 127.0.0.1 "$port"
expect 1 'nothing listens on' 'a port where nobody listens, in the advice' 127.0.0.1 "$port"
expect 2 '' 'a wrong option' --no-such-option

# A port that drops who asks, as a firewall does: its queue is full, and nobody takes from it.
: >"$work/full"
python3 - "$work/full" <<'END' &
import socket, sys, time
listener = socket.create_server(('127.0.0.1', 0), backlog=0)
waiting = []
for _ in range(8):
    waiting.append(socket.socket())
    waiting[-1].setblocking(False)
    waiting[-1].connect_ex(listener.getsockname())
with open(sys.argv[1], 'w') as file:
    file.write('port %d\n' % listener.getsockname()[1])
time.sleep(60)
END
server=$!
for _ in $(seq 100); do grep -q port "$work/full" && break; sleep 0.1; done
read -r _ port <"$work/full"
expect 1 "! TCP port $port +not reached" 'a port behind a firewall' 127.0.0.1 "$port"
expect 1 'a firewall there or between drops this one: open it, and the next one for RDMA' 'the remedy for it' 127.0.0.1 "$port"
kill "$server"
wait "$server" || true
server=''

# A peer of another major version: it refuses our hello, in the words that every version has.
: >"$work/version"
python3 - "$work/version" <<'END' &
import socket, struct, sys
listener = socket.create_server(('127.0.0.1', 0))
with open(sys.argv[1], 'w') as file:
    file.write('port %d\n' % listener.getsockname()[1])
for _ in range(2):  # the first only looks whether the port is open
    peer, _ = listener.accept()
    peer.settimeout(10)
    if peer.recv(65536):
        body = struct.pack('<4sHHHH', b'RDFS', 9, 0, 1, 0)
        peer.sendall(struct.pack('<IHH', len(body), 5, 0) + body)
        peer.recv(1)
END
server=$!
for _ in $(seq 100); do grep -q port "$work/version" && break; sleep 0.1; done
read -r _ port <"$work/version"
expect 1 '-> .*the server 9.0: install the same release on both machines' 'another version' 127.0.0.1 "$port"
grep -qE '^  1\. authentication: refused' "$work/out" || fail 'another version is not the first advice'
wait "$server" || fail 'the peer of another version'
server=''

# await_ready: of the server that was just started, $server; on $port.
await_ready() {
  for _ in $(seq 100); do grep -q 'ready on port' "$work/rdfsd" && break; sleep 0.1; done
  port=$(sed -n 's/.*ready on port \([0-9]*\).*/\1/p' "$work/rdfsd")
  [ -n "$port" ] || fail 'rdfsd is not ready'
}
# start_rdfsd PRELOAD OPTION...: on a free port, $port.
start_rdfsd() {
  : >"$work/rdfsd"
  env XDG_STATE_HOME="$work/state" ${1:+LD_PRELOAD="$1"} "$rdfsd" -f --no-auth --port 0 "${@:2}" >"$work/rdfsd" 2>&1 &
  server=$!
  await_ready
}
mkdir "$work/export"
start_rdfsd '' --export "e=$work/export"
expect 0 'space +[0-9.]+ of [0-9.]+ GiB free' 'an export' "rdfs://127.0.0.1:$port/e"
expect 1 '-> .*the server has no export "other"' 'an export that is not there' "rdfs://127.0.0.1:$port/other"
expect 1 '1. attach: refused' 'an export that is not there, in the advice' "rdfs://127.0.0.1:$port/other"
stop_server
if [ -n "$shifted_clock" ]; then
  start_rdfsd "$shifted_clock" --export "e=$work/export"
  expect 0 '! clock +3[56][0-9][0-9] s ahead of ours' 'a clock that is off' "127.0.0.1:$port"
  expect 0 'run NTP' 'a clock that is off' "127.0.0.1:$port"
  grep -qE '^  1\. clock: 3[56][0-9][0-9] s ahead of ours' "$work/out" || fail 'a clock that is off is not the first advice'
  stop_server
fi

# The file protocol's own major version, which both ends look at: the server of clients that differ from it, and
# the client of servers that do not. Everything before it works.
mkdir "$work/mnt"
# other_major_is_told WHOSE SENTENCE
other_major_is_told() {
  local status=0
  : >"$work/rdfsd"
  "$other_major" "$1" "$work/export" >"$work/rdfsd" 2>&1 &
  server=$!
  await_ready
  expect 1 "-> .*$2" "another major version of the $1" "rdfs://127.0.0.1:$port/e"
  grep -qE '^  1\. attach: refused' "$work/out" || fail "another major version of the $1 is not the first advice"
  grep -qE '^    tcp +works' "$work/out" || fail "another major version of the $1: tcp does not work"
  "$rdfs" -f "rdfs://127.0.0.1:$port/e" "$work/mnt" >"$work/mount" 2>&1 || status=$?
  [ "$status" -eq 1 ] && [ "$(wc -l <"$work/mount")" -eq 1 ] && grep -q "$2" "$work/mount" ||
    fail "rdfs, another major version of the $1: exit code $status, or not in one line"
  kill "$server"
  wait "$server" || true
  server=''
}
other_major_is_told client 'the server speaks version 1\.[0-9]* of the file protocol, the client 2\.[0-9]*; install the same rdfs on both hosts'
other_major_is_told server 'the server speaks version 2 of the file-system protocol, this client 1; install the same version of rdfs on both hosts'

# memlock: root has no limit, so as somebody else.
limited=(bash -c 'ulimit -l 64 && exec "$@"' -)
# Whoever that is must find the program.
cp "$rdinfo" "$work/program" && chmod 755 "$work" "$work/program"
[ "$(id -u)" -ne 0 ] || limited=(setpriv --reuid 65534 --regid 65534 --clear-groups "${limited[@]}")
"${limited[@]}" "$work/program" >"$work/out" || fail 'rdinfo within 64 KiB'
grep -qE '! memlock +64 KiB: too little for RDMA' "$work/out" || fail 'memlock is not named'
grep -qE 'memlock: 64 KiB' "$work/out" || fail 'memlock is not in the advice'
