#!/usr/bin/env bash
# Usage: exports.sh BIN_DIR RDFSD [--brief] [TRANSPORT...]
# rdcp to, from and between exports of a real rdfsd, without a mount: a tree of all that is hard to copy, over
# each transport (shm and tcp), and, but with --brief, what the options mean there. As root: once more, briefly,
# as an ordinary user.
# shellcheck source=tests/tools/copy/program.bash
. "$(dirname "$0")/program.bash" "$1"
rdfsd=$(realpath "$2")
shift 2
brief=''
if [ "${1:-}" = --brief ]; then brief=1; shift; fi
transports=$*
: "${transports:=shm tcp}"
cd "$work" || exit 1
umask 022
"$here/nasty_tree.py" tree || exit 1
rm tree/many/[5-9]?* tree/many/????
mkdir -p export/wide/over other
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >key
chmod 600 key
# Root would be nobody otherwise.
ids=''; [ "$(id -u)" -ne 0 ] || ids=,trusted
: >rdfsd.log
XDG_RUNTIME_DIR=$work "$rdfsd" --export "e=$work/export$ids" --export "other=$work/other$ids" \
  --export "over=$work/export/wide/over$ids" --port 0 \
  --listen "${RDFS_RDMA_ADDRESS:-127.0.0.1}" --key-file key -f >rdfsd.log 2>&1 </dev/null &
server=$!
children+=("$server")
for _ in $(seq 600); do grep -q 'ready on port' rdfsd.log && break; sleep 0.05; done
port=$(sed -n 's/.*ready on port \([0-9]*\).*/\1/p' rdfsd.log | head -n 1)
[ -n "$port" ] || { cat rdfsd.log >&2; exit 1; }
host=rdfs://${RDFS_RDMA_ADDRESS:-127.0.0.1}:$port
url=$host/e
# silently STATUS NAME ARGUMENT...: over `over`, and not a word.
over=''
silently() {
  local name="$2 ($over)"
  run "$1" "$name" --key-file key --require "$over" "${@:3}"
  silent "$name"
}
wipe() { chmod -R u+rwx "$@" 2>/dev/null; rm -rf "$@"; }

for over in $transports; do
  silently 0 "there" -a tree "$url"
  same "there ($over)" tree export/tree
  clean "there ($over)" export
  silently 0 "back" -a "$url/tree" back
  same "back ($over)" tree back
  [ "$over" = "${transports##* }" ] || wipe export/tree back
done

over=${transports%% *}
with() { run "$1" "$2" --key-file key --require "$over" "${@:3}"; }
# nothing NAME: no file was copied or named.
nothing() { [ ! -s "$work/out" ] || problem "$1: does something: $(head -n 3 "$work/out")"; }

# Again, onto what is there.
silently 0 "over it" -a tree/. "$url/tree"
same "over it" tree export/tree
chmod 700 export/tree/modes export/tree/one/first
rm export/tree/one/again
echo x >export/tree/one/again
with 0 "--sync" -a --sync -v tree/. "$url/tree"
same "--sync" tree export/tree
grep -q many "$work/out" && problem "--sync copies what is there"
with 0 "--sync again" -a --sync -v tree/. "$url/tree"; nothing "--sync again"
grep -qE "^rdcp: $url: over $over" "$work/err" || problem "-v does not name the transport"
with 0 "--sync back" -a --sync -v "$url/tree/." back; nothing "--sync back"
[ -z "$brief" ] || { conclude; exit; }
with 0 "--checksum" -a --checksum -v tree/sizes/. "$url/tree/sizes"; nothing "--checksum"
mkdir -p export/tree/many/extra/deep back/extra
touch export/tree/many/extra/deep/file back/.extra
with 0 "-n" -na --sync --delete tree/. "$url/tree"
[ "$(cat "$work/out")" = "deleted $url/tree/many/extra" ] || problem "-n says $(head -n 30 "$work/out")"
silently 0 "--delete" -a --sync --delete tree/. "$url/tree"
same "--delete" tree export/tree
mkdir -p export/pruned/old/deep
touch export/pruned/old/deep/secret.key export/pruned/old/file
silently 0 "--delete --exclude" -r --delete --exclude '*.key' tree/one/. "$url/pruned"
[ "$(cd export/pruned/old && find . | sort | tr '\n' ' ')" = ". ./deep ./deep/secret.key " ] || problem "--delete --exclude: $(find export/pruned)"
silently 0 "--delete back" -a --sync --delete "$url/tree/." back
same "--delete back" tree back
silently 0 "--verify" -a --verify tree/sizes "$url/verified"
same "--verify" tree/sizes export/verified
silently 0 "--verify back" -a --verify "$url/verified" verified
same "--verify back" tree/sizes verified
ln export/verified/4097 linked
head -c 5000 /dev/urandom >tree/sizes/4097
silently 0 "--inplace" -a --inplace --sync tree/sizes/. "$url/verified"
cmp -s tree/sizes/4097 linked || problem "--inplace made another file"
silently 0 "between exports" -a "$url/tree" "$host/other"
same "between exports" export/tree other/tree
silently 0 "within an export" -a "$url/tree/." "$url/tree2"
same "within an export" export/tree export/tree2

# Without -a: content, and what is special is named.
with 1 "-r" -r "$url/tree" plain
says "-r" 'specials/fifo: .*-a copies'
with 1 "-L" -rL "$url/tree/symlinks" followed
says "-L" 'dangling: it is a symlink that leads nowhere'
says "-L" 'itself: it leads back'
silently 0 "-p" -rp "$url/tree/times" .
same "-p" tree/times times
printf 'one/first\ntimes\ngone\n' >list
with 1 "--files-from" -r --files-from list --exclude 1969 "$url/tree" listed
says "--files-from" 'gone: it is listed, and not there'
[ "$(cd listed && find . -type f | wc -l)" -eq 6 ] || problem "--files-from: $(find listed -type f)"
silently 0 "--bwlimit" --bwlimit 200M tree/sizes/1048577 "$url/limited"
cmp -s tree/sizes/1048577 export/limited || problem "--bwlimit: another content"

# What SRC and DST mean.
silently 0 "a file, under a new name" tree/sizes/4096 "$url/new"
cmp -s tree/sizes/4096 export/new || problem "a new name: another content"
mkdir into inside
silently 0 "all of an export" -a "$host/other" into
[ -d into/other/tree ] || problem "an export is called $(ls into)"
silently 0 "what is in an export" -a "$host/other/." inside
[ -d inside/tree ] || problem "what is in an export is $(ls inside)"
ln -s new export/link
silently 0 "onto a symlink" tree/sizes/4095 "$url/link"
[ -L export/link ] && cmp -s tree/sizes/4095 export/new || problem "onto a symlink: it was replaced"
silently 0 "from a symlink" "$url/link" led
cmp -s tree/sizes/4095 led || problem "from a symlink: another content"
ln -s nowhere export/dangling
with 1 "onto a dangling symlink" list "$url/dangling"; says "onto a dangling symlink" 'leads nowhere'

# Patterns, which no shell has seen.
mkdir export/data export/data/more matched several
for name in data/a.tar data/b.tar data/c.tgz data/.d.tar data/more/e.tar 'data/[x]' 'data/$(touch ran)'; do
  echo "$name" >"export/$name"
done
silently 0 "a pattern" "$url/data/*.tar" matched
[ "$(cd matched && echo *)" = 'a.tar b.tar' ] || problem "a pattern: brings $(ls -A matched)"
silently 0 "more patterns" "$url/d?ta/*/*.tar" "$url"'/data/[x]' "$url/data/\$(*)" several
[ "$(LC_ALL=C ls -A several | tr '\n' ' ')" = '$(touch ran) [x] e.tar ' ] || problem "more patterns: bring $(ls -A several)"
silently 0 "a pattern that is one file" "$url/data/c*" renamed
cmp -s export/data/c.tgz renamed || problem "a pattern that is one file: another content"
with 1 "a pattern that is two files" "$url/data/*.tar" new_name
says "a pattern that is two files" "there is no directory 'new_name'"
with 1 "a pattern that matches nothing" "$url/data/*.zip" "$url/data/a.tar" inside
says "a pattern that matches nothing" "^rdcp: $url/data/\*.zip: cannot find it: No such file"
cmp -s export/data/a.tar inside/a.tar || problem "a pattern that matches nothing: the rest did not go on"
silently 0 "directories by a pattern" -a "$url/dat?/mor*" "$url/copied"
cmp -s export/data/more/e.tar export/copied/e.tar || problem "directories by a pattern: $(ls -A export/copied)"

with 1 "to no directory" list "$url/none/"; says "to no directory" 'there is no directory'
with 1 "no such source" "$url/none" .; says "no such source" "$url/none: .*No such file"
with 1 "no such export" "$host/none/x" .; says "no such export" "$host/none"
with 1 "onto itself" "$url/new" "$url/new"; says "onto itself" 'same file'
with 1 "into itself" -r "$url/tree" "$url/tree/sizes"; says "into itself" 'into itself'
with 1 "onto itself another way" "$url/new" export; says "onto itself another way" 'same file'
with 1 "onto itself the other way" export/new "$url"; says "onto itself the other way" 'same file'
with 1 "a directory onto itself" -r "$host/other" .; says "a directory onto itself" 'same directory'
with 1 "into itself another way" -r "$url/tree" export/tree/sizes; says "into itself another way" 'into itself'
with 1 "into itself the other way" -r export/tree "$url/tree/sizes"; says "into itself the other way" 'into itself'
cmp -s tree/sizes/4095 export/new || problem "onto itself: it is gone"
# Through two exports, of which one lies in the other.
mkdir export/wide/over/sub export/wide/over/backup
echo x >export/wide/over/sub/file
with 1 "onto itself through another export" "$url/wide/over/sub/file" "$host/over/sub"
says "onto itself through another export" 'same file'
with 1 "--delete through another export" -r --delete "$url/wide/over/sub/." "$host/over"
says "--delete through another export" "'sub' is part of what is copied"
[ -e export/wide/over/sub/file ] || problem "--delete through another export: SRC is gone"
mkdir -p export/wide/over/backup
with 1 "into itself through another export" -r "$url/wide/over" "$host/over/backup"
says "into itself through another export" 'into itself'
for from in "$url/wide" export/wide; do
  with 1 "into itself from further out" -r "$from" "$host/over/backup"
  says "into itself from further out" 'into itself'
  [ ! -e export/wide/over/backup/wide/over/backup/wide ] || problem "into itself from further out: goes around"
  rm -rf export/wide/over/backup/*
done

# What cannot be.
run 1 "no key" list "$url/x"; says "no key" 'asks for a key'
head -c 32 /dev/urandom | od -An -tx1 >wrong; chmod 600 wrong
run 1 "a wrong key" --key-file wrong list "$url/x"; says "a wrong key" 'wrong key'
run 1 "a key that is not there" --key-file nokey list "$url/x"; says "a key that is not there" '^rdcp: .*nokey.*--key-file'
run 2 "a port that is none" list rdfs://host:x/e; says "a port that is none" 'from 1 to 65535'
run 2 "no export" list rdfs://host; says "no export" 'its name is missing'
run 2 "with a host" list host:x "$url"; says "with a host" 'do not go into one command'
run 1 "nobody there" list rdfs://127.0.0.1:1/e/x; says "nobody there" 'rdfs://127.0.0.1:1/e: nothing listens'
# Interrupted: it ends soon, and leaves nothing.
cases=$((cases + 1))
: >"$work/err"
timeout 60 "$rdcp" --key-file key --bwlimit 100K tree/sizes/1048577 "$url/slow" 2>"$work/err" </dev/null &
copy=$!
children+=("$copy")
for _ in $(seq 1000); do compgen -G "export/.rdcp-*" >/dev/null && break; sleep 0.01; done
pkill -INT -P "$copy" -x rdcp
wait "$copy"
[ $? -eq 1 ] || problem "interrupted: the exit status"
says "interrupted" 'interrupted; what was not finished was removed'
clean "interrupted" export
[ ! -e export/slow ] || problem "interrupted: a part has the final name"

# The rest goes on.
mkdir export/blocked tree/blocked && mkdir export/blocked/file && echo x >tree/blocked/file && echo y >tree/blocked/other
with 1 "a directory in the way" -r tree/blocked/. "$url/blocked"
says "a directory in the way" 'blocked/(\./)?file: a directory of that name is in the way'
[ "$(cat export/blocked/other)" = y ] || problem "a directory in the way: the rest did not go on"

if [ "$(id -u)" -eq 0 ]; then
  # A server that squashes root: its files have another owner, which is said once.
  kill "$server"
  wait "$server" 2>/dev/null
  chmod 755 "$work"
  mkdir user squashed
  chown 65534:65534 squashed
  XDG_RUNTIME_DIR=$work "$rdfsd" --export "e=$work/squashed" --port 0 --key-file key -f \
    --listen "${RDFS_RDMA_ADDRESS:-127.0.0.1}" >squashed.log 2>&1 </dev/null &
  children+=("$!")
  for _ in $(seq 600); do grep -q 'ready on port' squashed.log && break; sleep 0.05; done
  url=rdfs://${RDFS_RDMA_ADDRESS:-127.0.0.1}:$(sed -n 's/.*ready on port \([0-9]*\).*/\1/p' squashed.log)/e
  with 0 "a squashed root" -a tree/sizes "$url"
  says "a squashed root" 'does not let us give files away'
  [ "$(wc -l <"$work/err")" -eq 1 ] || problem "a squashed root: more than one sentence"
  # All of it as an ordinary user.
  chown rdfs-test user
  cp "$rdcp" "$rdfsd" "$here"/*.py "$here"/*.sh "$here"/*.bash user/
  chmod -R a+rX user
  cases=$((cases + 1))
  su rdfs-test -c "TMPDIR=$work/user timeout 120 user/exports.sh user user/rdfsd --brief $over" >"$work/err" 2>&1 ||
    problem "as an ordinary user"
fi
conclude
