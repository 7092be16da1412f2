#!/usr/bin/env bash
# Usage: sock_tools.sh --bin BUILD_DIR [--as-when-root USER]
#
# netcat, socat, Python's http.server, also with CGI, and curl with rdsock around both ends, either, and none: what
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

# The program that answers has the connection as its standard streams, behind a request that was read
# byte by byte.
cgi() {
  local pid
  mkdir -p "$work/www/cgi-bin"
  cat >"$work/www/cgi-bin/answer" <<PROGRAM
#!/bin/sh
printf 'Content-Type: application/octet-stream\r\n\r\n'
if [ "\$REQUEST_METHOD" = POST ]; then exec head -c "\$CONTENT_LENGTH"; fi
exec cat "$work/www/big"
PROGRAM
  chmod 755 "$work/www/cgi-bin/answer"
  "${server[@]}" python3 -m http.server --cgi --bind 127.0.0.1 -d "$work/www" "$port" \
    >/dev/null 2>"$work/server.err" </dev/null &
  pid=$!
  ends_with_us "$pid"
  listening "$pid" CGI || return
  rm -f "$work/got"
  timeout 30 "${client[@]}" curl -sS -o "$work/got" "http://127.0.0.1:$port/cgi-bin/answer" \
    2>"$work/client.err" || problem "CGI ($mode) failed: $(cat "$work/client.err")"
  cmp -s "$work/www/big" "$work/got" || problem "CGI ($mode): something else has arrived"
  # Who asks byte by byte, so that both ends meet before the program is there. What it sends then fits into
  # a ring (ARCHITECTURE.md, "Known defects").
  timeout 30 "${client[@]}" python3 - "$port" >"$work/client.out" 2>"$work/client.err" <<'CLIENT' ||
import os, socket, sys, time
body = os.urandom(10000)
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) as connection:
    for byte in b"POST /cgi-bin/answer HTTP/1.0\r\nContent-Length: %d\r\nX: %s\r\n\r\n" % (len(body), b"x" * 700):
        connection.sendall(bytes([byte]))
        time.sleep(0.0003) # no faster than it is read; three attempts to meet fall into this
    connection.sendall(body)
    answer = connection.makefile("rb").read()
assert answer.partition(b"\r\n\r\n")[2].endswith(body), (len(answer), answer[:300])
CLIENT
    problem "CGI ($mode), byte by byte: $(tail -n 3 "$work/client.err")"
  expect_upgraded "CGI, byte by byte" 1 "$work/client.err"
  stop "$pid"
}

# Many short connections to a server that is not under rdsock: most of them do not even look for it; and when it is one that is, the
# next long connection finds it. Eight look, and then one in sixteen as their ports have it: two of the other 32, more or less, and
# more than sixteen not once in 10^11 runs.
lonely() {
  local pid client
  cat >"$work/server.py" <<'SERVER'
import socketserver, sys
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile: self.wfile.write(bytes(int(line)))
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
SERVER
  port=$(free_port)
  python3 "$work/server.py" "$port" 2>"$work/server.err" </dev/null &
  pid=$!
  ends_with_us "$pid"
  listening "$pid" "a lonely server" || return
  "$rdsock" --stats python3 - "$port" "$work" 2>"$work/client.err" <<'CLIENT' &
import os, socket, sys, time
port, work = int(sys.argv[1]), sys.argv[2]
SO_COOKIE = 57
def asks(connection, size):
    connection.sendall(b"%d\n" % size)
    while size > 0: size -= len(connection.recv(65536))
looked = 0
for i in range(40):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        asks(connection, 300000)
        cookie = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), sys.byteorder)
        with open("/proc/net/unix") as names: looked += any("@rdsock1-" in name and f"{cookie:016x}" in name for name in names)
assert 8 <= looked <= 24, f"{looked} of 40 have looked"
open(f"{work}/was_lonely", "w").close()
end = time.monotonic() + 20
while not os.path.exists(f"{work}/not_lonely"):
    assert time.monotonic() < end
    time.sleep(0.02)
with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
    for i in range(500): asks(connection, 100)
CLIENT
  client=$!
  ends_with_us "$client"
  wait_until 200 test -e "$work/was_lonely" || problem "lonely: $(cat "$work/client.err")"
  stop "$pid"
  "$rdsock" python3 "$work/server.py" "$port" 2>"$work/server.err" </dev/null &
  pid=$!
  ends_with_us "$pid"
  listening "$pid" "a server that is not lonely" || return
  touch "$work/not_lonely"
  wait "$client" || problem "lonely: the client failed: $(cat "$work/client.err")"
  stop "$pid"
  mode=both expect_upgraded "one that is not lonely" 1 "$work/client.err"
}

each_mode netcat
each_mode socats
each_mode inetd
each_mode standard_streams
each_mode web
each_mode cgi
lonely
conclude "netcat, socat, http.server, CGI and curl"
