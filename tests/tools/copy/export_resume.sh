#!/usr/bin/env bash
# Usage: export_resume.sh BIN_DIR RDFSD
# rdcp --resume to an export of a real rdfsd, killed with kill -9 in the middle, as well as the server's worker and
# all of the server: what was brought stays and is not brought again, and nothing has its final name before it is
# whole; and who was frozen while another one finished does no harm when he wakes.
# shellcheck source=tests/tools/copy/program.bash
. "$(dirname "$0")/program.bash" "$1"
rdfsd=$(realpath "$2")
cd "$work" || exit 1
mkdir export src
head -c 12000000 /dev/urandom >src/large
truncate -s 20000000 src/large
head -c 500000 /dev/urandom >>src/large
ids=''; [ "$(id -u)" -ne 0 ] || ids=,trusted
port=0
# Who was killed is given up after two seconds.
serve() {
  for _ in $(seq 30); do
    : >rdfsd.log
    XDG_RUNTIME_DIR=$work "$rdfsd" --export "e=$work/export$ids" --port "$port" --no-auth --lease 2 -f >rdfsd.log 2>&1 </dev/null &
    server=$!
    children+=("$server")
    for _ in $(seq 600); do { grep -q 'ready on port' rdfsd.log || ! kill -0 "$server" 2>/dev/null; } && break; sleep 0.05; done
    # Somebody else's connection may have the port of a server that was killed, for a moment.
    grep -q 'another program holds the port' rdfsd.log || break
    sleep 1
  done
  port=$(sed -n 's/.*ready on port \([0-9]*\).*/\1/p' rdfsd.log | head -n 1)
  [ -n "$port" ] || { cat rdfsd.log >&2; exit 1; }
}
serve
url=rdfs://127.0.0.1:$port/e

# wait_for SECONDS COMMAND...
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.01; done
}
noted() { [ "$(stat -c %s export/.rdcp-journal-* 2>/dev/null || echo 0)" -ge "$1" ]; }
ended() { ! kill -0 "$copy" 2>/dev/null; }
start() {
  : >err
  timeout 60 "$rdcp" -v --resume "$@" >out 2>err </dev/null &
  timed=$!
  children+=("$timed")
  wait_for 10 pgrep -P "$timed" -x rdcp >pid
  copy=$(head -n 1 pid)
  children+=("$copy")
}
# begin NAME ARGUMENT...: until it has noted more than was there.
begin() {
  local name=$1 size
  shift
  cases=$((cases + 1))
  size=$(stat -c %s export/.rdcp-journal-* 2>/dev/null || echo 96)
  start --bwlimit "${limit:-3M}" "$@"
  wait_for 30 noted $((size + 96)) || problem "$name: nothing is noted"
  [ ! -e export/large ] || problem "$name: a part has the final name"
}
# over WANTED NAME: the copy has ended so.
over() {
  wait "$timed" 2>/dev/null
  local status=$?
  [ "$status" -eq "$1" ] || problem "$2: ended with $status, not $1"
}
killed() {
  kill -KILL "$copy"
  over 137 "$1"
  [ -e export/large ] && problem "$1: a part has the final name"
  noted 128 || problem "$1: nothing was kept"
}
whole() {
  cmp -s src/large export/large || problem "$1: another content"
  [ "$(stat -c %Y src/large)" = "$(stat -c %Y export/large)" ] || problem "$1: another time"
  clean "$1" export
}
goes_on() {
  start -r src/. "$url"
  over 0 "$1"
  grep -qE '; [0-9.]+ [KM]iB were there$' err || problem "$1: nothing was there"
  whole "$1"
}

begin "killed" -r src/. "$url"; killed "killed"
begin "killed again" -P -r src/. "$url"; killed "killed again"
[ "$(find export -name '.rdcp-part-*' | wc -l)" -eq 1 ] || problem "killed: left $(ls -A export)"
# Another one's --delete leaves it.
run 0 "--delete" -r --sync --delete --resume --exclude large src/. "$url"
goes_on "goes on"
run 0 "again" -v -r --resume src/. "$url"
grep -q '^rdcp: 0 files, ' err || problem "again: it is copied again"

# The server's worker, while it goes on.
rm export/large
limit=2M begin "the worker" -r src/. "$url"
another_worker() { [ "$(pgrep -P "$server" | head -n 1)" != "$worker" ] && pgrep -P "$server" >pid; }
for _ in 1 2; do
  worker=$(pgrep -P "$server" | head -n 1)
  noted_before=$(stat -c %s export/.rdcp-journal-*)
  kill -KILL "$worker"
  wait_for 10 another_worker || problem "the worker: it is not started again"
  wait_for 10 noted $((noted_before + 32)) || problem "the worker: nothing goes on"
  [ ! -e export/large ] || cmp -s src/large export/large || problem "the worker: a part has the final name"
done
over 0 "the worker"
whole "the worker"

# All of it.
rm export/large
begin "everything" -r src/. "$url"
kill -KILL "$server" $(pgrep -P "$server")
killed "everything"
wait "$server" 2>/dev/null
serve
goes_on "everything"

# Interrupted: that is said, and nobody has to be waited for. A source that has changed since starts over.
interrupted() {
  rm export/large
  begin "$1" -r src/. "$url"
  kill -INT "$copy"
  over 1 "$1"
  says "$1" '^rdcp: interrupted; the same command goes on from here$'
}
interrupted "changed"
touch -r src/large stamp
printf other | dd of=src/large conv=notrunc bs=1 status=none
touch -r stamp src/large
start -r src/. "$url"
over 0 "changed"
grep -q 'were there' err && problem "changed: does not start over"
whole "changed"
# Damaged at the export meanwhile.
interrupted "damaged"
part=$(echo export/.rdcp-part-*)
printf damage | dd of="$part" conv=notrunc bs=1 seek=1000 status=none
printf damage | dd of="$(echo export/.rdcp-journal-*)" conv=notrunc bs=1 seek=140 status=none
goes_on "damaged"

# Frozen until it was given up: another one finishes, the source changes, and it wakes.
rm export/large
begin "frozen" -r src/. "$url"
frozen=$timed
kill -STOP "$copy"
asleep=$copy
goes_on "frozen"
cp -p export/large finished
head -c 20500000 /dev/urandom >src/large
kill -CONT "$asleep"
timed=$frozen
over 1 "awake"
cmp -s finished export/large || problem "awake: it has written to the file that was finished"

# A part that somebody else has laid there is not believed.
if [ "$(id -u)" -eq 0 ]; then
  interrupted "planted"
  chown 65534 export/.rdcp-journal-* export/.rdcp-part-*
  start -r src/. "$url"
  over 0 "planted"
  grep -q 'were there' err && problem "planted: it was believed"
  cmp -s src/large export/large || problem "planted: another content"
fi
conclude
