#!/usr/bin/env bash
# Usage: sock_servers.sh --bin BUILD_DIR [--as-when-root USER]
#
# Servers of other shapes than redis and PostgreSQL: nginx with four workers under curl and wrk,
# memcached, iperf3, Python's asyncio and git daemon, with rdsock around both ends, either, and none. What
# arrives is what was sent, and with both it went through memory.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
# shellcheck source=tests/e2e/sock_setup.sh
. "$(dirname "$0")/sock_setup.sh"
PATH=$PATH:/usr/sbin
seconds=1
[ "${RDFS_CHECK_FULL:-0}" = 0 ] || seconds=20

mkdir "$work/www"
head -c 5000000 /dev/urandom >"$work/www/big"
head -c 1024 /dev/urandom >"$work/www/small"
head -c 200000 /dev/urandom >"$work/www/middle"

# serve WHAT COMMAND...: starts a server and waits until it listens; its process is $pid.
serve() {
  local what=$1
  shift
  "${server[@]}" "$@" >"$work/server.out" 2>"$work/server.err" </dev/null &
  pid=$!
  ends_with_us "$pid"
  listening "$pid" "$what"
}
# ask WHAT COMMAND...: runs a client; what it says is in $work/out.
ask() {
  local what=$1
  shift
  timeout 60 "${client[@]}" "$@" >"$work/out" 2>"$work/client.err" ||
    problem "$what ($mode) failed: $(tail -n 5 "$work/client.err")"
}

web() {
  local pid file
  cat >"$work/nginx.conf" <<CONFIG
daemon off;
worker_processes 4;
pid $work/nginx.pid;
error_log stderr;
events { worker_connections 256; }
http {
  access_log off;
  sendfile on;
  keepalive_requests 1000000;
  client_body_temp_path $work; proxy_temp_path $work; fastcgi_temp_path $work;
  uwsgi_temp_path $work; scgi_temp_path $work;
  server {
    listen 127.0.0.1:$port;
    add_header X-Worker \$pid;
    root $work/www;
    location /copied/ { alias $work/www/; sendfile off; }
  }
}
CONFIG
  # Looks at each answer, and at who gave it.
  cat >"$work/wrk.lua" <<'SCRIPT'
local paths, at = {"/small", "/middle", "/copied/small", "/small", "/copied/middle"}, 0
local bodies, threads, seen = {}, {}, {}
wrong, workers = 0, ""
function setup(thread) table.insert(threads, thread) end
function init(arguments)
  for _, name in ipairs({"small", "middle"}) do
    local file = assert(io.open(arguments[1] .. "/" .. name, "rb"))
    bodies[file:seek("end")] = file:seek("set") and file:read("*a")
    file:close()
  end
end
function request()
  at = at + 1
  return wrk.format("GET", paths[at % #paths + 1])
end
function response(status, headers, body)
  if status ~= 200 or bodies[#body] ~= body then wrong = wrong + 1 end
  local worker = headers["X-Worker"] or "nobody"
  if not seen[worker] then workers = workers .. " " .. worker end
  seen[worker] = true
end
function done()
  for _, thread in ipairs(threads) do
    io.write("wrong: ", thread:get("wrong"), "\nworkers:", thread:get("workers"), "\n")
  end
end
SCRIPT
  serve nginx nginx -p "$work" -c "$work/nginx.conf" || return
  for file in big small copied/big copied/small; do
    ask "curl of nginx" curl -sS "http://127.0.0.1:$port/$file" "http://127.0.0.1:$port/$file"
    cat "$work/www/${file#*/}" "$work/www/${file#*/}" | cmp -s - "$work/out" ||
      problem "nginx ($mode): something else than $file has arrived"
  done
  ask "wrk of nginx" wrk -t 2 -c 20 -d $((seconds + 2)) -s "$work/wrk.lua" "http://127.0.0.1:$port/" -- \
    "$work/www"
  expect_upgraded wrk 20 "$work/client.err"
  grep -qE 'Socket errors|Non-2xx' "$work/out" && problem "wrk ($mode): $(cat "$work/out")"
  [ "$(grep -c '^wrong: 0$' "$work/out")" -eq 2 ] || problem "wrk ($mode) got wrong answers: $(cat "$work/out")"
  # Who is woken for the first connection may take all of them before the others run, but not when it is stopped.
  answered=$(sed -n 's/^workers: //p' "$work/out" | tr ' ' '\n' | sort -u)
  if [ "$(wc -w <<<"$answered")" -eq 1 ]; then
    kill -STOP "$answered"
    ask "wrk of nginx" wrk -t 2 -c 20 -d 3 -s "$work/wrk.lua" "http://127.0.0.1:$port/" -- "$work/www"
    kill -CONT "$answered"
    answered+=" $(sed -n 's/^workers: //p' "$work/out" | tr ' ' '\n' | sort -u)"
  fi
  [ "$(wc -w <<<"$answered")" -gt 1 ] || problem "wrk ($mode): one worker alone has answered: $(cat "$work/out")"
  stop "$pid"
  expect_upgraded nginx 20 "$work/server.err"
}

cache() {
  local pid
  serve memcached memcached -l 127.0.0.1 -p "$port" -U 0 -t 2 || return
  ask memcached python3 - "$port" <<'CLIENT'
import random, socket, sys, threading

def talk(seed):
    random.seed(seed)
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) as connection:
        answers = connection.makefile("rb")
        for i in range(300):
            key, value = b"k%d_%d" % (seed, i % 7), random.randbytes(random.choice((1, 100, 5000, 300000)))
            connection.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
            assert answers.readline() == b"STORED\r\n"
            connection.sendall(b"get %s\r\n" % key)
            assert answers.readline() == b"VALUE %s 0 %d\r\n" % (key, len(value))
            assert answers.read(len(value) + 7) == value + b"\r\nEND\r\n"
    done.append(seed)

done = []
threads = [threading.Thread(target=talk, args=(seed,)) for seed in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(done) == 6
CLIENT
  expect_upgraded "memcached's client" 6 "$work/client.err"
  stop "$pid"
  expect_upgraded memcached 6 "$work/server.err"
}

stream() {
  local pid options
  serve iperf3 iperf3 -s -p "$port" -B 127.0.0.1 || return
  for options in '' -R '-P 3' --bidir; do
    # shellcheck disable=SC2086 # words
    ask "iperf3 $options" iperf3 -c 127.0.0.1 -p "$port" -n "${seconds}00M" $options
    grep -q receiver "$work/out" || problem "iperf3 $options ($mode): $(cat "$work/out")"
    expect_upgraded "iperf3 $options" 1 "$work/client.err"
  done
  stop "$pid"
  expect_upgraded iperf3 4 "$work/server.err"
}

coroutines() {
  local pid
  cat >"$work/echo.py" <<'PROGRAM'
import asyncio, hashlib, os, sys

async def serve(reader, writer):
    while data := await reader.read(100000):
        writer.write(data)
        await writer.drain()
    writer.close()

async def talk(port, seed):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data, sent = os.urandom(1 << 20), hashlib.sha256()
    async def send():
        for i in range(20):
            piece = data[: (seed * 7919 + i * 104729) % len(data)]
            sent.update(piece)
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    sending = asyncio.create_task(send())
    got = hashlib.sha256()
    while piece := await reader.read(1 << 16):
        got.update(piece)
    await sending
    assert sent.digest() == got.digest()
    writer.close()

async def main():
    port = int(sys.argv[2])
    if sys.argv[1] == "serve":
        await (await asyncio.start_server(serve, "127.0.0.1", port)).serve_forever()
    await asyncio.gather(*(talk(port, seed) for seed in range(1, 9)))

asyncio.run(main())
PROGRAM
  serve asyncio python3 "$work/echo.py" serve "$port" || return
  ask asyncio python3 "$work/echo.py" talk "$port"
  expect_upgraded "asyncio's client" 8 "$work/client.err"
  stop "$pid"
  expect_upgraded asyncio 8 "$work/server.err"
}

# The programs that git daemon executes have the connection as their standard streams: it stays on TCP.
repository() {
  local pid
  serve "git daemon" git daemon --listen=127.0.0.1 --port="$port" --base-path="$work" --export-all \
    --reuseaddr || return
  rm -rf "$work/clone"
  ask "git clone" git clone -q "git://127.0.0.1:$port/origin.git" "$work/clone"
  git -C "$work/clone" fsck --full >"$work/out" 2>&1 || problem "git ($mode): $(cat "$work/out")"
  cmp -s "$work/www/big" "$work/clone/big" || problem "git ($mode): another file than was committed"
  stop "$pid"
}
git_setup() {
  export HOME=$work GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t \
    GIT_COMMITTER_EMAIL=t@t
  git init -q "$work/tree" && cp "$work/www/big" "$work/tree" && git -C "$work/tree" add big &&
    git -C "$work/tree" commit -qm big && git clone -q --bare "$work/tree" "$work/origin.git"
}

each_mode web
each_mode cache
each_mode stream
each_mode coroutines
git_setup || problem "git cannot make a repository"
each_mode repository
conclude "nginx, memcached, iperf3, asyncio and git daemon"
