#!/usr/bin/env bash
# Usage: failures.sh BIN_DIR
# What goes wrong, what is said of it, and what is left: full disks, no inodes, kill -9, interrupts, files
# that vanish, the same file, a directory into itself.
# shellcheck source=tests/tools/copy/program.bash
. "$(dirname "$0")/program.bash" "$1"
if [ "${2:-}" != mounted ]; then
  # A mount namespace of its own, for small file systems.
  trap - EXIT
  rm -rf "$work"
  if [ "$(id -u)" -eq 0 ]; then
    exec unshare --mount "$here/failures.sh" "${rdcp%/*}" mounted
  fi
  exec unshare --map-root-user --mount "$here/failures.sh" "${rdcp%/*}" mounted
fi
cd "$work" || exit 1
umask 022
mkdir small from
mount -t tmpfs -o size=4m,nr_inodes=200 none small || exit 1
at_exit() {
  umount -l "$work/small" "$work/from/mounted" 2>/dev/null
  finish
}
trap at_exit EXIT

# ---- the command line ------------------------------------------------------------------------------
run 2 "nothing" ; says "nothing" 'give SRC and DST'
run 2 "no DST" from; says "no DST" 'DST'
run 2 "an unknown option" --nonsense from to
echo x >a:b
run 0 "a colon in a name" ./a:b plain
cmp -s a:b plain || problem "a colon in a name: not copied"
run 1 "no such file" nothing to; says "no such file" "nothing: .*No such file"
run 1 "no such directory" plain none/; says "no such directory" 'no directory'
run 1 "a directory without -r" from to; says "a directory without -r" 'give -r'
[ -e to ] && problem "a directory without -r: made something"
echo y >"$(printf 'odd\n\033[31m')"
run 1 "an odd name" odd* none/x/y
run 1 "an odd name, missing" $'odd\x1bmissing' to
says "an odd name, missing" 'odd\\x1bmissing'
mkdir -p listing/inner
touch listing/one listing/two listing/inner/three
run 1 "a list" -r --files-from <(printf 'one\ninner\ngone\n') listing listed
says "a list" 'gone: it is listed, and not there'
[ "$(cd listed && find . | sort | tr '\n' ' ')" = ". ./inner ./inner/three ./one " ] || problem "a list: $(find listed)"
touch listed/gone listed/other listed/inner/other
run 1 "a list, --delete" -r --delete --files-from <(printf 'one\ninner\ngone\nwhere/to\n') listing/. listed
says "a list, --delete" 'gone: it is listed, and not there'
says "a list, --delete" 'where/to: it is listed, and not there'
[ "$(cd listed && find . | sort | tr '\n' ' ')" = ". ./gone ./inner ./inner/three ./one ./other " ] ||
  problem "a list, --delete: $(find listed)"
mkdir -p wood/cache wood/a
touch wood/a.o wood/keep.o wood/a/b.o wood/a/c wood/cache/d
run 0 "patterns" -r --include keep.o --exclude '*.o' --exclude cache/ wood cut
[ "$(cd cut && find . | sort | tr '\n' ' ')" = ". ./a ./a/c ./keep.o " ] || problem "patterns: $(find cut)"
run 0 "-n" -rn --delete from small
# What the patterns leave out stays in what SRC lacks, too.
spared() {
  mkdir -p pruned/old/cache pruned/old/deep/er pruned/a
  touch pruned/old/secret.o pruned/old/other pruned/old/cache/file pruned/old/deep/er/file pruned/old/deep/keep.o pruned/extra
  local what=(-r --delete --include keep.o --exclude '*.o' --exclude cache/ "$@")
  run 0 "patterns, -n --delete" -n "${what[@]}"
  sort "$work/out" >listed.dry
  run 0 "patterns, --delete" -v "${what[@]}"
  [ "$(cd pruned && find . | sort | tr '\n' ' ')" = ". ./a ./a/c ./keep.o ./old ./old/cache ./old/cache/file ./old/secret.o " ] ||
    problem "patterns, --delete: $(find pruned)"
  [ "$(grep '^deleted' "$work/out" | sed 's|/deep/.*|/deep|' | sort | tr '\n' ' ')" = "deleted pruned/extra deleted pruned/old/deep deleted pruned/old/other " ] ||
    problem "patterns, --delete: says $(cat "$work/out")"
  cmp -s <(grep '^deleted' "$work/out" | sort) <(grep '^deleted' listed.dry) || problem "patterns, -n --delete: says $(cat listed.dry)"
  rm -r pruned
}
spared wood/. pruned

head -c 3000000 /dev/zero >too_large
(ulimit -f 1000; run 1 "a limit of file sizes" too_large cut; says "a limit of file sizes" 'too_large: .*File too large'; exit $failures)
failures=$((failures + $?)) cases=$((cases + 1))
[ ! -e cut/too_large ] || problem "a limit of file sizes: the file is there"
clean "a limit of file sizes" cut

# ---- what must not be replaced ---------------------------------------------------------------------
run 1 "the same file" plain plain; says "the same file" 'same file'
ln plain hard; run 1 "a hard link to it" plain hard; says "a hard link to it" 'same file'
ln -s plain link; run 1 "a symlink to it" plain link; says "a symlink to it" 'same file'
[ "$(cat plain)" = x ] || problem "the same file: it is gone"
echo new >new; run 0 "onto a symlink" new link
[ -L link ] && [ "$(cat plain)" = new ] || problem "onto a symlink: it was replaced"
ln -s nowhere dangling
run 1 "onto a dangling symlink" new dangling; says "onto a dangling symlink" 'leads nowhere'
mkdir -p from/inner
run 1 "into itself" -r from from; says "into itself" 'into itself'
run 1 "into itself, deeper" -r from from/inner; says "into itself, deeper" 'into itself'
run 1 "into itself, by a new name" -r from from/inner/new; says "into itself, by a new name" 'into itself'
ln -s ../.. from/inner/up
(cd from && timeout 60 "$rdcp" -rL . ../small/loop) >/dev/null 2>"$work/err"
[ $? -eq 1 ] || problem "-L around in a circle: no failure"
rm -rf small/* from/inner/up
mkfifo fifo
run 1 "onto a FIFO" new fifo; says "onto a FIFO" 'in the way'
run 1 "from a FIFO" fifo to; says "from a FIFO" 'no regular file'
mkdir -p clash/new
run 1 "a file onto a directory" new clash; says "a file onto a directory" 'in the way'
run 0 "a file without a size" /proc/self/status status
[ -s status ] || problem "a file without a size: is empty"

# ---- several SRC into one directory ----------------------------------------------------------------
mkdir -p meet/a/same meet/b/same meeting
touch meet/a/same/first meet/b/same/second
for what in "meet/a/. meet/b/." "meet/a/same meet/b/same" "meet/a/. meet/b/same" "-n meet/a/. meet/b/."; do
  # shellcheck disable=SC2086
  run 1 "--delete $what" -a --delete $what meeting
  says "--delete $what" 'copy them one by one, without --delete'
done
[ -z "$(ls meeting)" ] || problem "--delete of several into one: copied something"
run 0 "--delete of several" -a --delete meet/a meet/b meeting
# The later one stays, whoever of the crew is faster: the first one takes longer.
head -c 60000000 /dev/zero >meet/a/same/file
echo later >meet/b/same/file
for how in "meet/a/. meet/b/." "meet/a/same meet/b/same"; do
  rm -rf meeting/*
  # shellcheck disable=SC2086
  run 0 "two of one name" -a $how meeting
  cmp -s meeting/same/file <(echo later) || problem "two of one name: the first one stays"
  [ -e meeting/same/first ] && [ -e meeting/same/second ] || problem "two of one name: one is missing"
done

# ---- SRC in DST, and --delete ------------------------------------------------------------------------
# A source stays, whatever lacks it; beside it all is as --delete has it.
mkdir -p nest/sub/sub nest/old
for i in $(seq 300); do echo "$i" >"nest/sub/$i"; done
touch nest/sub/sub/inner nest/old/file
cp -a nest/sub nest.was
# Where links lead is looked at: one that leads there already is not named.
mkdir links there && ln -s nowhere links/same && ln -s nowhere links/other && cp -a links/. there && ln -sfn elsewhere links/other
run 0 "-n of links" -n -a --sync links/. there
[ "$(cat "$work/out")" = links/./other ] || problem "-n of links: says $(cat "$work/out")"
run 1 "-n --delete, SRC in DST" -n -a --sync --delete nest/sub/. nest
says "-n --delete, SRC in DST" "'sub' is part of what is copied, and --delete leaves it"
grep -q '^deleted nest/sub' "$work/out" && problem "-n --delete, SRC in DST: would delete SRC"
run 1 "--delete, SRC in DST" -a --sync --delete nest/sub/. nest
says "--delete, SRC in DST" "'sub' is part of what is copied, and --delete leaves it"
touch nest.was/inner
[ "$(cd nest/sub && find . | sort)" = "$(cd nest.was && find . | sort)" ] || problem "--delete, SRC in DST: SRC is $(ls nest/sub | wc -l) files"
[ "$(cat nest/[0-9]* | sort -n | tail -n 1)" = 300 ] && [ ! -e nest/old ] || problem "--delete, SRC in DST: was not done"
mkdir -p several/one several/into/one/old/two
touch several/into/one/old/two/file several/into/one/old/other
run 1 "--delete, a later SRC in DST" -a --delete several/one several/into/one/old/two several/into
says "--delete, a later SRC in DST" "'one/old/two' is part of what is copied"
[ "$(cd several/into && find . -type f | sort | tr '\n' ' ')" = "./one/old/two/file ./two/file " ] || problem "--delete, a later SRC in DST: $(find several)"

# ---- full and out of inodes ------------------------------------------------------------------------
mkdir full
for i in 1 2 3 4 5 6; do head -c 900000 /dev/urandom >"full/$i"; done
run 1 "a full disk" -r full small
says "a full disk" 'No space left'
clean "a full disk" small
for file in small/full/*; do cmp -s "$file" "full/${file##*/}" || problem "a full disk: $file is not whole"; done
[ "$(find small/full -type f | wc -l)" -ge 3 ] || problem "a full disk: what fits was not copied"
rm -rf small/*
mkdir crowd
for i in $(seq 300); do echo "$i" >"crowd/$i"; done
run 1 "no inodes" -r crowd small
says "no inodes" 'No space left'
clean "no inodes" small
[ "$(find small/crowd -type f | wc -l)" -ge 100 ] || problem "no inodes: what fits was not copied"
rm -rf small/*

# ---- other file systems ----------------------------------------------------------------------------
mkdir from/mounted
mount -t tmpfs none from/mounted
echo x >from/mounted/file
run 0 "-x" -rx from small/x
[ -d small/x/mounted ] && [ ! -e small/x/mounted/file ] || problem "-x: went into what is mounted"
touch small/x/mounted/mine
mkdir small/x/inner/gone
run 0 "-x --delete" -rx --delete from/. small/x
[ -e small/x/mounted/mine ] && [ ! -e small/x/inner/gone ] || problem "-x --delete: deletes in what is not read, or nowhere"
run 0 "-x -n --delete" -nrx --delete from/. small/x
grep -q mine "$work/out" && problem "-x -n --delete: would delete in what is not read"
mkdir -p small/x/old/mounted
touch small/x/old/file
mount -t tmpfs none small/x/old/mounted
touch small/x/old/mounted/mine
run 0 "-x --delete of what something is mounted in" -rx --delete from/. small/x
[ -e small/x/old/mounted/mine ] && [ ! -e small/x/old/file ] || problem "-x --delete: deletes in what is mounted, or nowhere"
umount small/x/old/mounted
run 0 "without -x" -r from small/y
[ -e small/y/mounted/file ] || problem "without -x: did not"
umount from/mounted

# ---- killed and interrupted ------------------------------------------------------------------------
mkdir large
for i in $(seq 8); do head -c 20000000 /dev/urandom >"large/$i"; done
for _ in $(seq 10); do
  rm -rf killed
  "$rdcp" -a large killed 2>/dev/null &
  victim=$!
  children+=("$victim")
  for _ in $(seq 5000); do
    [ -n "$(find killed -name '.rdcp-*' -size +0 2>/dev/null | head -n 1)" ] && break
    kill -0 "$victim" 2>/dev/null || break
  done
  kill -KILL "$victim" 2>/dev/null && hit=1
  wait "$victim" 2>/dev/null
  for file in killed/[0-9]*; do
    [ -e "$file" ] || continue
    cmp -s "$file" "large/${file##*/}" || problem "kill -9: $file is not whole"
  done
  cases=$((cases + 1))
done
[ "${hit:-0}" -eq 1 ] || problem "kill -9: never in time"
run 0 "after kill -9" -a --sync --delete large/. killed
same "after kill -9" large killed
clean "after kill -9" killed
for signal in INT TERM; do
  rm -rf killed
  # Slow enough to be interrupted before its end.
  "$rdcp" -a --bwlimit 25M large killed 2>"$work/err" &
  victim=$!
  children+=("$victim")
  until [ -n "$(find killed -name '.rdcp-*' 2>/dev/null | head -n 1)" ] || ! kill -0 "$victim" 2>/dev/null; do :; done
  # Background jobs of a script ignore SIGINT; rdcp takes it by descriptor all the same.
  kill -"$signal" "$victim" 2>/dev/null || problem "SIG$signal: not in time"
  wait "$victim"
  status=$?
  cases=$((cases + 1))
  [ "$status" -eq 1 ] || problem "SIG$signal: ended with $status"
  says "SIG$signal" 'interrupted'
  clean "SIG$signal" killed
done
# While the list is read, also for a copy to or from another machine.
mkfifo names
for what in "from to" "from far:to" "far:from to"; do
  exec 7<>names
  # shellcheck disable=SC2086 # words
  "$rdcp" -r -e false --files-from names $what 2>"$work/err" 7>&- &
  victim=$!
  children+=("$victim")
  until find "/proc/$victim/fd" ! -name 7 -lname '*/names' 2>/dev/null | grep -q . || ! kill -0 "$victim" 2>/dev/null; do :; done
  kill -TERM "$victim" 2>/dev/null || problem "SIGTERM while a list is read, $what: not in time"
  for _ in $(seq 500); do
    kill -0 "$victim" 2>/dev/null || break
    sleep 0.01
  done
  exec 7>&-
  wait "$victim"
  status=$?
  cases=$((cases + 1))
  [ "$status" -eq 143 ] || problem "SIGTERM while a list is read, $what: ended with $status"
done
# nohup.
rm -rf killed
(trap '' HUP; exec "$rdcp" --bwlimit 25M large/1 killed) 2>"$work/err" &
victim=$!
children+=("$victim")
until [ -n "$(find . -maxdepth 1 -name '.rdcp-*' -size +0)" ] || ! kill -0 "$victim" 2>/dev/null; do :; done
kill -HUP "$victim" || problem "an ignored SIGHUP: not in time"
wait "$victim"
status=$?
cases=$((cases + 1))
[ "$status" -eq 0 ] || problem "an ignored SIGHUP: ended with $status"
cmp -s large/1 killed || problem "an ignored SIGHUP: not copied"

# ---- nobody to say it to -----------------------------------------------------------------------------
# nobody STATUS NAME ARGUMENT...: standard error takes nothing.
nobody() {
  local wanted=$1 name=$2 status
  shift 2
  cases=$((cases + 2))
  "$rdcp" "$@" >"$work/out" 2>/dev/full
  status=$?
  [ $status -eq "$wanted" ] || problem "$name, to a full device: ended with $status, not $wanted"
  "$rdcp" "$@" >"$work/out" 2>&-
  status=$?
  [ $status -eq "$wanted" ] || problem "$name, to nobody: ended with $status, not $wanted"
}
nobody 0 "-v" -v plain told
nobody 1 "no such file" nothing told
nobody 2 "an unknown option" --nonsense plain told
# A list that nobody gets is a failure.
for options in -n -v '-v -P'; do
  for where in full nobody; do
    rm -f told
    cases=$((cases + 1))
    # shellcheck disable=SC2086 # words
    if [ $where = full ]; then "$rdcp" $options plain told >/dev/full 2>"$work/err"; else "$rdcp" $options plain told 2>"$work/err" >&-; fi
    status=$?
    [ $status -eq 1 ] || problem "a list to $where ($options): ended with $status"
    says "a list to $where ($options)" 'cannot write to standard output: '
  done
done
"$rdcp" plain told >&- || problem "no list, to nobody: ended with $?"
"$here/../on_terminal.py" --closes "$rdcp" --bwlimit 25M large/1 told >"$work/err"
status=$?
cases=$((cases + 1))
[ "$status" -eq 0 ] || problem "a terminal that is closed: ended with $status"
cmp -s large/1 told || problem "a terminal that is closed: not copied"
clean "a terminal that is closed" .

# ---- vanishing -------------------------------------------------------------------------------------
# Frozen when it has copied some of them, and not more than the rate allows.
mkdir busy
for i in $(seq 2000); do printf '%4000d' "$i" >"busy/$i"; done
"$rdcp" -r --bwlimit 400K busy vanished 2>"$work/err" &
victim=$!
children+=("$victim")
for _ in $(seq 5000); do
  [ -n "$(find vanished -name '[0-9]*' 2>/dev/null | head -n 1)" ] && break
  sleep 0.002
done
kill -STOP "$victim"
for _ in $(seq 1000); do
  grep -L '^State:[[:space:]]*T' /proc/"$victim"/task/*/status | grep -q . || break
  sleep 0.01
done
rm -rf busy
kill -CONT "$victim"
wait "$victim"
status=$?
cases=$((cases + 1))
[ "$status" -eq 24 ] || problem "vanishing: ended with $status, not 24"
says "vanishing" 'vanished'
conclude
