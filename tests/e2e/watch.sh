#!/usr/bin/env bash
# Usage: watch.sh --bin BUILD_DIR [--as-when-root USER]
#
# rdfs watch on a mount: what another client and the server's host change is printed as inotifywait prints it of a local
# directory, each once; it goes on over a restart of the server, and ends when there is nothing left to watch; of a source
# it does the same without a mount.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"

export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
mkdir -p "$work/export/top/below" "$work/mnt"
echo old >"$work/export/top/old"
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/key")
ids=''; [ "$(id -u)" -ne 0 ] || ids=,trusted
serve server --export "data=$work/export$ids" --key-file "$work/key"
source=rdfs://127.0.0.1:$port/data
# The name of the key file is good where the mount was made, and has to be good for the watcher.
(cd "$work" && "$rdfs" "$source" mnt -o key_file=key) >"$work/out" 2>&1 || problem "no mount: $(cat "$work/out")"

# wait_for FILE LINE: at most 10 s.
wait_for() {
  for _ in $(seq 200); do
    grep -qxF -e "$2" "$1" && return 0
    sleep 0.05
  done
  problem "nothing says '$2': $(cat "$work/events" "$work/said")"
}
# watch WORD...: in the background, until it has begun.
watch() {
  : >"$work/events"
  : >"$work/said"
  "$rdfs" watch "$@" >"$work/events" 2>"$work/said" </dev/null &
  watcher=$!
  ends_with_us "$watcher"
}
# not_ours PID: it has ended, and another process may have its number.
not_ours() {
  local pid others=()
  for pid in "${ours[@]}"; do [ "$pid" = "$1" ] || others+=("$pid"); done
  ours=("${others[@]}")
}
# ends: told to end, it does.
ends() {
  kill -TERM "$watcher"
  wait "$watcher" || problem "told to end, it ends with status $?"
  not_ours "$watcher"
}

watch -r "$work/mnt/top"
wait_for "$work/said" 'rdfs: watching 2 directories'
top=$work/mnt/top
# Through the mount, which is another client than the watcher.
echo new >"$top/new"
wait_for "$work/events" "$top/ CREATE new"
echo more >>"$top/old"
wait_for "$work/events" "$top/ MODIFY old"
chmod 600 "$top/old"
wait_for "$work/events" "$top/ ATTRIB old"
mv "$top/old" "$top/moved"
wait_for "$work/events" "$top/ MOVED_FROM old"
wait_for "$work/events" "$top/ MOVED_TO moved"
mkdir "$top/made"
wait_for "$work/events" "$top/ CREATE,ISDIR made"
# Behind the server's back, and below.
touch "$work/export/top/below/behind"
wait_for "$work/events" "$top/below/ CREATE behind"
rm "$work/export/top/below/behind"
wait_for "$work/events" "$top/below/ DELETE behind"
# What was made meanwhile is watched as well.
touch "$top/made/inside"
wait_for "$work/events" "$top/made/ CREATE inside"
rm -r "$top/made"
wait_for "$work/events" "$top/ DELETE,ISDIR made"
wait_for "$work/events" "$top/made/ DELETE_SELF "
twice=$(grep -v MODIFY "$work/events" | sort | uniq -d)
[ -z "$twice" ] || problem "told twice: $twice"
cp "$work/events" "$work/ours"

# A directory that is renamed has its new name from then on, and so has what is below.
mkdir "$top/below/deep"
for _ in $(seq 20); do
  touch "$top/below/deep/first"
  wait_until 5 grep -qxF "$top/below/deep/ CREATE first" "$work/events" && break
  # If it was watched by then, it has to be seen gone before it can be seen to come.
  rm "$top/below/deep/first"
  wait_until 5 grep -qxF "$top/below/deep/ DELETE first" "$work/events"
done
mv "$top/below" "$top/renamed"
wait_for "$work/events" "$top/ MOVED_TO,ISDIR renamed"
touch "$top/renamed/there" "$top/renamed/deep/second"
wait_for "$work/events" "$top/renamed/ CREATE there"
wait_for "$work/events" "$top/renamed/deep/ CREATE second"

# What comes with something in it: that is told, too, at every depth, and once.
mkdir -p "$work/tree/one/two"
echo deep >"$work/tree/one/two/leaf"
cp -r "$work/tree" "$top/tree"
wait_for "$work/events" "$top/tree/ CREATE,ISDIR one"
wait_for "$work/events" "$top/tree/one/ CREATE,ISDIR two"
wait_for "$work/events" "$top/tree/one/two/ CREATE leaf"
mkdir -p "$work/mnt/aside/in"
touch "$work/mnt/aside/in/leaf"
mv "$work/mnt/aside" "$top/aside"
wait_for "$work/events" "$top/aside/ CREATE,ISDIR in"
wait_for "$work/events" "$top/aside/in/ CREATE leaf"
twice=$(grep 'CREATE.* leaf$' "$work/events" | sort | uniq -d)
[ -z "$twice" ] || problem "told twice: $twice"

# The same, as inotifywait tells of it.
here=$work/local/top
mkdir -p "$here/below"
echo old >"$here/old"
inotifywait -m -r -e create,delete,modify,attrib,move,delete_self "$here" >"$work/theirs" 2>"$work/begun" </dev/null &
inotifywait=$!
ends_with_us "$inotifywait"
wait_until 100 grep -q 'Watches established' "$work/begun" || problem "inotifywait does not begin"
echo new >"$here/new"
echo more >>"$here/old"
chmod 600 "$here/old"
mv "$here/old" "$here/moved"
mkdir "$here/made"
touch "$here/below/behind"
rm "$here/below/behind"
# When it watches that as well: it had to be asked for anew.
for _ in $(seq 50); do
  touch "$here/made/inside"
  wait_until 5 grep -qF "$here/made/ CREATE inside" "$work/theirs" && break
  rm "$here/made/inside"
done
rm -r "$here/made"
wait_for "$work/theirs" "$here/ DELETE,ISDIR made"
kill "$inotifywait"
wait "$inotifywait" 2>/dev/null
not_ours "$inotifywait"
# What comes and goes between two looks is not told of, and touch of a new name is a change of its times there.
plain() { sed "s|^$2/||" "$1" | grep -vE '^made/ DELETE inside|ATTRIB (behind|inside)' | sort -u; }
diff <(plain "$work/ours" "$top") <(plain "$work/theirs" "$here") >"$work/out" || problem "inotifywait differs: $(cat "$work/out")"

# Over a restart of the server.
kill -TERM "$server"
wait "$server"
serve again --export "data=$work/export$ids" --key-file "$work/key"
echo again >>"$top/moved"
wait_for "$work/events" "$top/ MODIFY moved"
ends

# Under nohup, which ignores HUP: told to end by it, it goes on.
: >"$work/events"
: >"$work/said"
env --ignore-signal=HUP "$rdfs" watch "$top" >"$work/events" 2>"$work/said" </dev/null &
watcher=$!
ends_with_us "$watcher"
wait_for "$work/said" 'rdfs: watching 1 directory'
kill -HUP "$watcher"
touch "$top/behind-hup"
wait_for "$work/events" "$top/ CREATE behind-hup"
ends

# The last directory goes, and the watcher with it.
mkdir "$top/only"
watch "$top/only"
wait_for "$work/said" 'rdfs: watching 1 directory'
rmdir "$top/only"
wait_for "$work/events" "$top/only/ DELETE_SELF "
wait_until 100 gone "$watcher" || problem "it goes on without a directory"

watch -q -o "key_file=$work/key" "$source/top"
# It does not say when it has begun; what comes and goes between two looks is not told of.
for _ in $(seq 20); do
  touch "$top/at-last"
  wait_until 5 grep -q 'top/ CREATE at-last' "$work/events" && break
  rm "$top/at-last"
  # If it had begun by then, it knows the name: it has to see it gone before it can see it come.
  wait_until 5 grep -q 'top/ DELETE at-last' "$work/events"
done
grep -qxF "$source/top/ CREATE at-last" "$work/events" || problem "of a source: $(cat "$work/events" "$work/said")"
[ -s "$work/said" ] && problem "quiet, it says: $(cat "$work/said")"
ends

# A reader that does not read: nobody else waits for it, and it has missed nothing when it reads again. A create that
# waits for a watcher who does not answer takes 5 s, a lease: 3 s is far from both.
mkdir "$top/unread"
mkfifo "$work/fifo"
exec 7<>"$work/fifo"
: >"$work/said"
"$rdfs" watch "$top/unread" >"$work/fifo" 2>"$work/said" </dev/null 7>&- &
watcher=$!
ends_with_us "$watcher"
wait_for "$work/said" 'rdfs: watching 1 directory'
# Their lines are some 400 KB; a pipe holds 64.
longest=$("${python[@]}" - "$top/unread" <<'PYTHON'
import os, sys, time
longest = 0
for number in range(3000):
    path = os.path.join(sys.argv[1], 'a-name-that-is-long-so-that-few-lines-fill-the-pipe-%04d' % number)
    begun = time.monotonic()
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    longest = max(longest, time.monotonic() - begun)
print(int(longest * 1000))
PYTHON
)
[ "${longest:-9999}" -lt 3000 ] || problem "while nobody reads, a create takes ${longest:-?} ms"
: >"$work/events"
cat "$work/fifo" >"$work/events" 7>&- &
reader=$!
ends_with_us "$reader"
told() { [ "$(sed -n 's/.* CREATE //p' "$work/events" | sort -u | wc -l)" -eq 3000 ]; }
wait_until 300 told || problem "read again, it tells of $(grep -c CREATE "$work/events") files of 3000"
twice=$(grep CREATE "$work/events" | sort | uniq -d | head -n 3)
[ -z "$twice" ] || problem "told twice: $twice"
# Nobody reads once more, and it is told to end.
kill "$reader"
wait "$reader" 2>/dev/null
not_ours "$reader"
(cd "$top/unread" && rm a-name-*)
kill -TERM "$watcher"
wait_until 100 gone "$watcher" || problem 'told to end while nobody reads, it goes on'
wait "$watcher" || problem "told to end while nobody reads, it ends with status $?"
not_ours "$watcher"
exec 7>&-

# Told to end while it connects to a server that is silent, it does.
python3 - >"$work/silent" <<'PYTHON' &
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
peer, _ = server.accept()
print("asked", flush=True)
time.sleep(60)
PYTHON
ends_with_us $!
wait_until 100 test -s "$work/silent" || problem 'no silent server'
watch -o "key_file=$work/key,deadline=60" "rdfs://127.0.0.1:$(head -n 1 "$work/silent")/data"
wait_until 100 grep -q asked "$work/silent" || problem 'it does not connect'
kill -TERM "$watcher"
wait_until 50 gone "$watcher" || problem 'told to end while it connects, it goes on'
wait "$watcher" || problem "told to end while it connects, it ends with status $?"
not_ours "$watcher"

# A name in brackets is that name.
mkdir "$top/[x]"
cd "$top" || exit 1
watch '[x]'
cd "$work" || exit 1
wait_for "$work/said" 'rdfs: watching 1 directory'
touch "$top/[x]/in"
wait_for "$work/events" '[x]/ CREATE in'
ends

# refused STATUS TEXT WORD...: that status, and that sentence on standard error.
refused() {
  local want=$1 text=$2
  shift 2
  "$rdfs" watch "$@" >"$work/out" 2>"$work/said" </dev/null
  local status=$?
  [ "$status" -eq "$want" ] || problem "rdfs watch $*: status $status"
  grep -q -- "$text" "$work/said" || problem "rdfs watch $*: $(cat "$work/said")"
}
refused 1 'is on no mount of this user' /
refused 1 "^rdfs: $top/none: No such file or directory" "$top/none"
# What is mounted on a directory of the mount is not taken for the mount's.
mkdir "$top/other"
# covered COMMAND...: where something is, in a mount namespace of its own.
covered() {
  # shellcheck disable=SC2016,SC2046 # for the inner shell; no word for root
  unshare --mount $([ "$(id -u)" -eq 0 ] || echo --map-root-user) sh -c 'mount -t tmpfs none "$0" || exit 9
    exec "$@"' "$top/other" "$@"
}
if covered true 2>/dev/null; then
  covered timeout 20 "$rdfs" watch "$top/other" >"$work/out" 2>"$work/said" </dev/null
  status=$?
  [ "$status" -eq 1 ] && grep -q 'is on no mount of this user' "$work/said" ||
    problem "what is mounted on the mount: status $status: $(cat "$work/said")"
else
  problem "what is mounted on the mount cannot be tried: no mount namespaces here (unshare --mount)"
fi
refused 1 'is not a directory' "$top/new"
refused 1 "of different sources" "$top" rdfs://other/x
refused 1 'No such file' -o "key_file=$work/key" "$source/none"
refused 2 'rdfs watch --help'
# A full disk, when there is something to tell: it ends.
mkdir "$top/told"
: >"$work/said"
"$rdfs" watch "$top/told" >/dev/full 2>"$work/said" </dev/null &
watcher=$!
ends_with_us "$watcher"
wait_for "$work/said" 'rdfs: watching 1 directory'
touch "$top/told/new"
wait_until 100 gone "$watcher" || problem 'it goes on with a full disk'
wait "$watcher"
not_ours "$watcher"
refused 2 '\[ro\]: there is no such option' -o '[ro]' "$top"
fusermount3 -u "$work/mnt" || problem 'it does not unmount'
conclude 'changes that rdfs watch tells of'
