#!/usr/bin/env bash
# Usage: copy.sh --bin BUILD_DIR [--as-when-root USER]
#
# rdcp to and from another machine, through a real sshd: a nasty tree both ways and over each transport,
# found without a difference by rsync; names, patterns and what DST means; and what goes wrong: no rdcp
# there, a shell that talks, a host that is not there, files that fail, either end killed.
set -uo pipefail
export LC_ALL=C

. "$(dirname "$0")/setup.sh"
begin "$@"
. "$(dirname "$0")/private-sshd"
cases=0
problem() {
  failures=$((failures + 1))
  echo "FAILED: $1" >&2
  head -n 20 "$work/err" 2>/dev/null | sed 's/^/  /' >&2
}
end_of_cases() {
  [ "$failures" -eq 0 ] || { echo "copy.sh: $failures failures in $cases cases" >&2; exit 1; }
  echo "$cases cases"
  exit 0
}
private_sshd_start "$work" || { echo "copy.sh: no private sshd" >&2; exit 1; }
ends_with_us "$(cat "$work/sshd.pid")"

# Machines that ssh reaches, and nobody else: to their address there is no way. And one that is down.
cat - "$work/ssh_config" >"$work/ssh_config.new" <<CONFIG
Host down
  ProxyCommand false
Host hidden1 hidden2
  HostName 0.0.0.1
  ProxyCommand ssh -F $work/ssh_config -W 127.0.0.1:$(sed -n 's/^ *Port //p' "$work/ssh_config") localhost
CONFIG
mv "$work/ssh_config.new" "$work/ssh_config"

# The far end is started by way of a script, which leaves its pid.
cat >"$work/far-rdcp" <<SCRIPT
#!/bin/sh
echo \$\$ >$work/far.pid
exec $bin/tools/copy/rdcp "\$@"
SCRIPT
chmod +x "$work/far-rdcp"
far=$(id -un)@localhost
rdcp() {
  timeout 120 "$bin/tools/copy/rdcp" -e "ssh -F $work/ssh_config" --rdcp-path "$work/far-rdcp" "$@" \
    >"$work/out" 2>"$work/err" </dev/null
}
# copies NAME ARGUMENT...: exit status 0 and not a word.
copies() {
  local name=$1
  shift
  cases=$((cases + 1))
  rdcp "$@" || problem "$name: exit status $?"
  [ ! -s "$work/err" ] || problem "$name: it says something"
}
# fails NAME STATUS REGEX ARGUMENT...: REGEX for a line of rdcp's own.
fails() {
  local name=$1 status=$2 regex=$3 got
  shift 3
  cases=$((cases + 1))
  rdcp "$@"
  got=$?
  [ "$got" -eq "$status" ] || problem "$name: exit status $got instead of $status"
  grep -qE "^rdcp: .*($regex)" "$work/err" || problem "$name: says something else"
  [ "$(grep -c '^rdcp: ' "$work/err")" -eq 1 ] || problem "$name: not one sentence"
}
same() {
  local difference
  difference=$(rsync -aHAXnc --delete --itemize-changes "$2" "$3" 2>&1)
  [ -z "$difference" ] || { echo "$difference" | head -n 20 >&2; problem "$1: rsync finds a difference"; }
}

# ---- a tree ------------------------------------------------------------------------------------------
tree=$work/tree
mkdir -p "$tree/a/b/c" "$tree/empty" "$tree/many"
for size in 0 1 4095 4096 4097 262143 262144 262145 1048575 1048576 1048577 5000000; do
  head -c "$size" /dev/urandom >"$tree/a/size-$size"
done
for i in $(seq 600); do echo "file $i" >"$tree/many/$i"; done
ln "$tree/a/size-4097" "$tree/a/b/linked"
ln "$tree/a/size-5000000" "$tree/many/linked too"
ln -s ../nowhere "$tree/a/dangling"
ln -s /etc "$tree/a/absolute"
ln -s . "$tree/a/loop"
mkfifo "$tree/fifo"
truncate -s 300M "$tree/sparse" && printf end | dd of="$tree/sparse" bs=1 seek=30000000 conv=notrunc status=none
odd=$(printf 'a new\nline, \033[31m \377 "$(touch oops)" '"'"'\\ ')
echo odd >"$tree/$odd"
echo -n >"$tree/$(printf 'n%.0s' $(seq 255))"
echo dash >"$tree/-rf"
echo star >"$tree/*"
touch -d '1965-01-02 03:04:05.678901234' "$tree/a/size-1" "$tree/empty"
touch -d '2150-01-02 03:04:05' "$tree/a/size-4096"
chmod 04711 "$tree/many/1"
chmod 0400 "$tree/many/2"
chmod 02750 "$tree/a/b"
chmod 0555 "$tree/a/b/c"
setfattr -n user.note -v "$(printf 'an\001attribute')" "$tree/many/3" 2>/dev/null
setfacl -m u:65534:r "$tree/many/4" 2>/dev/null
setfacl -d -m u:65534:rx "$tree/empty" 2>/dev/null
if [ "$(id -u)" -eq 0 ]; then
  mknod "$tree/null" c 1 3
  chown 12:34 "$tree/many/5"
  setcap cap_net_raw+ep "$tree/many/6" 2>/dev/null
fi
deep=$tree
for _ in $(seq 25); do
  deep="$deep/$(printf 'd%.0s' $(seq 200))"
  # Beyond PATH_MAX there is only a way step by step.
  [ "${#deep}" -lt 3900 ] && mkdir "$deep"
done

# To a port that is taken, so that the far end cannot listen and ssh's own stream remains.
sshd_port=$(sed -n 's/^ *Port //p' "$work/ssh_config")
for over in '' '--require shm' '--require tcp' '--require tcp --lanes 3' "--require tcp --port $sshd_port"; do
  # shellcheck disable=SC2086 # words
  copies "there${over:+ ($over)}" -a $over "$tree" "$far:$work/there"
  same "there${over:+ ($over)}" "$tree/" "$work/there/"
  # shellcheck disable=SC2086 # words
  copies "back${over:+ ($over)}" -a $over "$far:$work/there" "$work/back"
  same "back${over:+ ($over)}" "$tree/" "$work/back/"
  chmod -R u+rwX "$work/there" "$work/back" && rm -rf "$work/there" "$work/back"
done
# All that is hard to copy, as from here to here: rsync could not even make it.
copy_tests=$(dirname "$0")/../tools/copy
"$copy_tests/nasty_tree.py" "$work/nasty" || problem "no tree of all that is hard to copy"
# identical NAME DIR
identical() { "$copy_tests/same_trees.py" "$work/nasty" "$2" >"$work/err" 2>&1 || problem "$1: the trees differ"; }
for over in shm tcp "tcp --port $sshd_port"; do
  # shellcheck disable=SC2086 # words
  copies "all that is hard, there ($over)" -a --require $over "$work/nasty" "$far:$work/there"
  identical "all that is hard, there ($over)" "$work/there"
  # shellcheck disable=SC2086 # words
  copies "all that is hard, back ($over)" -a --require $over "$far:$work/there" "$work/back"
  identical "all that is hard, back ($over)" "$work/back"
  chmod -R u+rwX "$work/there" "$work/back" && rm -rf "$work/there" "$work/back"
done
copies "all that is hard, across" -a "$far:$work/nasty" "localhost:$work/there"
identical "all that is hard, across" "$work/there"
chmod -R u+rwX "$work/nasty" "$work/there" && rm -rf "$work/nasty" "$work/there"
cases=$((cases + 2))
rdcp -v -a "$tree" "$far:$work/there" || problem "-v: exit status $?"
grep -qE "^rdcp: $far: over shm" "$work/err" || problem "-v does not name the transport"
grep -qE '^rdcp: [0-9]+ files, .* in .*/s' "$work/err" || problem "-v does not say how fast"
rdcp -v --require tcp --port "$sshd_port" "$tree/a/size-1" "$far:$work/elsewhere" || problem "-v: $?"
grep -qE "own stream.*not tcp" "$work/err" || problem "-v does not say why it stays on ssh's stream"
# Several lanes, which are worth it from 8 MiB on; and only over tcp.
head -c 40000001 /dev/urandom >"$work/large"
for over in 'tcp 3' 'tcp 1' 'shm 3'; do
  for direction in there back; do
    cases=$((cases + 1))
    if [ $direction = there ]; then to=("$work/large" "$far:$work/large.2"); else to=("$far:$work/large" "$work/large.2"); fi
    rdcp -v --require "${over% *}" --lanes "${over#* }" --bwlimit 15M "${to[@]}" || problem "lanes ($over, $direction): exit status $?"
    cmp -s "$work/large" "$work/large.2" || problem "lanes ($over, $direction): another content"
    carried=$(sed -n "s/^rdcp: $far: \\([0-9]*\\) lanes carried the data$/\\1/p" "$work/err")
    [ "$carried" = "$([ "$over" != 'tcp 3' ] || echo 3)" ] || problem "lanes ($over, $direction): $carried"
    rm -f "$work/large.2"
  done
done
# Beyond 32 bits, and no holes.
if [ "${RDFS_CHECK_FULL:-}" = 1 ]; then
  head -c 4294967297 /dev/urandom >"$work/dense"
  for over in 'tcp --lanes 3' shm; do
    # shellcheck disable=SC2086 # words
    copies "4 GiB + 1, there ($over)" --require $over "$work/dense" "$far:$work/dense.2"
    cmp "$work/dense" "$work/dense.2" 2>"$work/err" || problem "4 GiB + 1, there ($over): another content"
    rm -f "$work/dense.2"
    # shellcheck disable=SC2086 # words
    copies "4 GiB + 1, back ($over)" --require $over "$far:$work/dense" "$work/dense.2"
    cmp "$work/dense" "$work/dense.2" 2>"$work/err" || problem "4 GiB + 1, back ($over): another content"
    rm -f "$work/dense.2"
  done
  rm -f "$work/dense"
fi
# What a terminal shows: how much of how much, and how long it takes, in either direction.
on_terminal() {
  "$(dirname "$0")/../tools/on_terminal.py" "$bin/tools/copy/rdcp" -e "ssh -F $work/ssh_config" --rdcp-path "$work/far-rdcp" "$@" \
    >"$work/err" </dev/null
}
mkdir "$work/shown" "$work/there.shown" && head -c 30000000 /dev/zero >"$work/shown/large" && touch "$work/shown/small" "$work/shown/left.o"
# shows_bar NAME FILES ARGUMENT...: of so many files.
shows_bar() {
  local name=$1 files=$2
  shift 2
  cases=$((cases + 1))
  rm -rf "$work/there.shown/shown/large"
  on_terminal --bwlimit 25M "$@" || problem "a bar ($name): exit status $?"
  grep -qaE "rdcp: \[#*\.*\] +[0-9]+ %  [0-9]+ of $files files, [0-9.]+ .?i?B of 28.61 MiB  [0-9.]+ [kM]?B/s  [0-9]+ files/s  [0-9]+ s left" "$work/err" ||
    problem "a bar ($name): it does not show how much is left"
}
for over in shm tcp; do
  shows_bar "$over, there" 3 -r --require "$over" "$work/shown" "$far:$work/there.shown"
  shows_bar "$over, back" 3 -r --require "$over" "$far:$work/shown" "$work/there.shown"
done
for more in "--sync" "--checksum" "-u" "-P"; do
  shows_bar "$more, there" 2 -a "$more" --exclude '*.o' "$work/shown" "$far:$work/there.shown"
  shows_bar "$more, back" 2 -a "$more" --exclude '*.o' "$far:$work/shown" "$work/there.shown"
done
for to in "localhost" hidden1; do shows_bar "to $to" 2 -a --sync --exclude '*.o' "$far:$work/shown" "$to:$work/there.shown"; done
shows_bar "through here" 2 -a --sync --exclude '*.o' "hidden2:$work/shown" "hidden1:$work/there.shown"
rm -rf "$work/there.shown"

# Again, onto what is there.
copies "there again" -a "$tree/." "$far:$work/there"
same "there again" "$tree/" "$work/there/"
# Who copies makes a difference to what is copied. To the rest it makes none: root's turn is with --full.
if [ "$(id -u)" -eq 0 ] && [ "${RDFS_CHECK_FULL:-}" != 1 ]; then
  end_of_cases
fi

# ---- what SRC and DST mean -----------------------------------------------------------------------------
# inside DIR: its names in a row.
inside() { (cd "$1" && find . -mindepth 1 | sort | tr '\n' ' '); }
# holds NAME DIR NAMES
holds() { [ "$(inside "$2")" = "$3" ] || problem "$1: $2 holds $(inside "$2")"; }
src=$work/src
mkdir "$src" && echo one >"$src/one.c" && echo two >"$src/two.c" && echo "a b" >"$src/a b.h" && echo hidden >"$src/.hidden"
fresh() { rm -rf "$work/dst" && mkdir "$work/dst"; }
fresh; copies "a file into a directory" "$src/one.c" "$far:$work/dst"; holds into "$work/dst" "./one.c "
copies "a file under a new name" "$src/two.c" "$far:$work/dst/new"; holds new "$work/dst" "./new ./one.c "
cmp -s "$src/two.c" "$work/dst/new" || problem "a new name: another content"
fresh; copies "a pattern" "$far:$src/*.c" "$work/dst"; holds pattern "$work/dst" "./one.c ./two.c "
fresh; copies "a name with a blank" "$far:$src/a b.h" "$work/dst"; holds blank "$work/dst" "./a b.h "
fresh; copies "a name that is a pattern, too" "$far:$tree/*" "$work/dst"; holds star "$work/dst" "./* "
fresh; copies "two there" "$src/one.c" "$src/a b.h" "$far:$work/dst"; holds two "$work/dst" "./a b.h ./one.c "
fresh; copies "a directory's content" -r "$far:$src/." "$work/dst"; holds dot "$work/dst" "./.hidden ./a b.h ./one.c ./two.c "
fresh; copies "a directory" -r "$far:$src" "$work/dst"; holds dir "$work/dst" "./src ./src/.hidden ./src/a b.h ./src/one.c ./src/two.c "
fresh; copies "without some" -r --include one.c --exclude '*.c' "$far:$src" "$work/dst"; holds exclude "$work/dst" "./src ./src/.hidden ./src/a b.h ./src/one.c "
fresh; copies "without some, there" -r --exclude '/a*' "$src" "$far:$work/dst"; holds exclude "$work/dst" "./src ./src/.hidden ./src/one.c ./src/two.c "
fresh; copies "IPv6 in brackets" "$(id -un)@[::1]:$src/one.c" "$work/dst"; holds IPv6 "$work/dst" "./one.c "
fresh; copies "two machines" "$far:$src/one.c" "localhost:$src/two.c" "$work/dst"; holds machines "$work/dst" "./one.c ./two.c "
fresh; fails "one machine of two is not there" 1 "could not reach .down" "down:$src/one.c" "$far:$src/two.c" "$work/dst"; holds "one of two" "$work/dst" "./two.c "
mkdir "$work/other" && echo other >"$work/other/one.c"
fresh; fails "a name of two machines" 1 "'one.c' of another machine is there already" "$far:$src/one.c" "localhost:$work/other/one.c" "localhost:$src/two.c" "$work/dst"
holds "a name of two machines" "$work/dst" "./one.c "; cmp -s "$src/one.c" "$work/dst/one.c" || problem "a name of two machines: the second one came"
# To a third one: sent, fetched, and through here.
for to in "$(id -un)@[::1]" hidden1; do
  fresh; fails "a name of two machines, to $to" 1 "'one.c' of another machine is there already" "$far:$src/one.c" "localhost:$work/other/one.c" "$to:$work/dst"
  holds "to $to" "$work/dst" "./one.c "; cmp -s "$src/one.c" "$work/dst/one.c" || problem "a name of two machines, to $to: the second one came"
  fresh; copies "two machines, to $to" "$far:$src/one.c" "localhost:$src/two.c" "$to:$work/dst"; holds "to $to" "$work/dst" "./one.c ./two.c "
done
fresh; fails "a name of two machines, through here" 1 "'one.c' of another machine is there already" "hidden2:$src/one.c" "localhost:$work/other/one.c" "hidden1:$work/dst"
holds "through here" "$work/dst" "./one.c "; cmp -s "$src/one.c" "$work/dst/one.c" || problem "a name of two machines, through here: the second one came"
# Two directories of one name become one; of what both have the later stays, as from here to here.
mkdir -p "$work/other/src/new" && echo other >"$work/other/src/one.c"
cp -a "$src" "$work/merged" && cp -a "$work/other/src/." "$work/merged"
for more in '' --sync --checksum --resume; do
  for way in there back across; do
    fresh
    # shellcheck disable=SC2086 # words
    case $way in
      there) copies "one name $more" -a $more "$src" "$work/other/src" "$far:$work/dst" ;;
      back) copies "one name, back $more" -a $more "$far:$src" "$far:$work/other/src" "$work/dst" ;;
      across) copies "one name, across $more" -a $more "$far:$src" "$far:$work/other/src" "localhost:$work/dst" ;;
    esac
    same "one name, $way $more" "$work/merged/" "$work/dst/src/"
  done
done
rm -rf "$work/other/src"
# across NAME REGEX FROM TO: REGEX for what -v says of the way.
across() {
  cases=$((cases + 1))
  fresh
  rdcp -v -a "$3:$tree" "$4:$work/dst" || problem "$1: exit status $?"
  grep -qE "^rdcp: $3 to $4: $2" "$work/err" || problem "$1: says something else"
  same "$1" "$tree/" "$work/dst/tree/"
  chmod -R u+rwX "$work/dst"
}
across "across" 'directly, sent over (shm|tcp)' "$far" localhost
across "across, to one that cannot be reached" "directly, fetched over .*; $far cannot reach hidden1: " "$far" hidden1
across "across, where neither can be reached" 'through here, over .*; hidden1 cannot reach hidden2: .*; hidden2 cannot reach hidden1: ' hidden1 hidden2
touch "$work/dst/tree/extra"
copies "through here, --sync --delete" -a --sync --delete "hidden1:$tree" "hidden2:$work/dst"; same "through here, --sync --delete" "$tree/" "$work/dst/tree/"
chmod -R u+rwX "$work/dst"
fails "through here, to no directory" 1 'there is no directory' "hidden1:$src/one.c" "hidden2:$work/none/"
fresh; fails "through here, and one is not there" 1 'none' -a "hidden1:$src/none" "hidden1:$src/one.c" "hidden2:$work/dst"; holds "through here" "$work/dst" "./one.c "
fresh; fails "across, and one is not there" 1 'none' -a "$far:$src/none" "$far:$src/one.c" "localhost:$work/dst"; holds across "$work/dst" "./one.c "
fails "across, to no directory" 1 'there is no directory' "$far:$src/one.c" "localhost:$work/none/"
fresh; fails "a directory without -r" 1 'give -r' "$far:$src" "$work/dst"; holds no-r "$work/dst" ""
fresh; fails "more than one into nothing" 1 'there is no directory' "$src/one.c" "$src/two.c" "$far:$work/dst/none"
fails "a far source that is not there" 1 'none' "$far:$src/none" "$far:$src/one.c" "$work/dst" 2>/dev/null
fails "--delete from several machines" 1 'on several machines' -a --delete "$far:$src" "localhost:$src" "$work/dst"
fails "a pattern without a match" 1 'none' "$far:$src/none*" "$work/dst"
fails "a directory there that is not there" 1 "there is no directory" "$src/one.c" "$far:$work/none/"

# ---- what is there already --------------------------------------------------------------------------------
for to in "$far:$work/dst" "$work/dst"; do
  if [ "$to" = "$work/dst" ]; then from=$far:$work/changing; else from=$work/changing; fi
  rm -rf "$work/changing" && cp -a "$src" "$work/changing" && head -c 3000000 /dev/urandom >"$work/changing/large"
  ln "$work/changing/large" "$work/changing/large too"
  fresh; copies "--sync" -a --sync "$from/." "$to"; same "--sync" "$work/changing/" "$work/dst/"
  cases=$((cases + 1))
  rdcp -v -a --sync "$from/." "$to" || problem "--sync again: exit status $?"
  grep -q '^rdcp: 0 files, 0 B' "$work/err" || problem "--sync again copies something"
  echo changed >"$work/changing/one.c"; rm "$work/changing/two.c"; mkdir "$work/dst/extra"; touch "$work/dst/extra/file"
  copies "--sync --delete" -a --sync --delete "$from/." "$to"; same "--sync --delete" "$work/changing/" "$work/dst/"
  # What the patterns leave out stays in what SRC lacks, too.
  mkdir -p "$work/dst/old/deep"; touch "$work/dst/old/deep/secret.key" "$work/dst/old/deep/file" "$work/dst/old/file"
  copies "--delete --exclude" -a --sync --delete --exclude '*.key' "$from/." "$to"
  holds "--delete --exclude" "$work/dst/old" "./deep ./deep/secret.key "; rm -rf "$work/dst/old"
  touch -d '2001-01-01' "$work/changing/one.c"; echo old >"$work/changing/one.c.new"; mv "$work/changing/one.c.new" "$work/changing/one.c"
  touch -d '2001-01-01' "$work/changing/one.c"
  copies "-u" -r -u "$from/." "$to"
  [ "$(cat "$work/dst/one.c")" = changed ] || problem "-u: replaced by what is older"
  rm -rf "$work/changing" && mkdir "$work/changing" && echo old >"$work/changing/a" && touch -d '2001-01-01' "$work/changing/a"
  ln "$work/changing/a" "$work/changing/b" && ln "$work/changing/a" "$work/changing/c"
  fresh; echo newer | tee "$work/dst/b" >"$work/dst/c"
  copies "-u and hard links" -a -u "$from/." "$to"
  [ "$(cat "$work/dst/b" "$work/dst/c" | sort -u)" = newer ] || problem "-u: a link took the place of what is newer"
done
for to in "$far:$work/dst" "$work/dst"; do
  if [ "$to" = "$work/dst" ]; then from=$far:$work/changing; else from=$work/changing; fi
  rm -rf "$work/changing" && cp -a "$src" "$work/changing" && head -c 3000000 /dev/urandom >"$work/changing/large"
  fresh; copies "--verify" -a --verify "$from/." "$to"; same "--verify" "$work/changing/" "$work/dst/"
  touch "$work/changing/one.c" && sed -i 's/two/owt/' "$work/dst/two.c" && touch -r "$work/changing/two.c" "$work/dst/two.c"
  rm "$work/dst/large" && mkdir "$work/changing/new" && touch "$work/dst/extra"
  cases=$((cases + 1))
  rdcp -n -a --checksum --delete "$from/." "$to" || problem "-n: exit status $?"
  # Only names of the same size have to be compared.
  [ "$(sed "s|$work/dst/||" "$work/out" | sort | tr '\n' ' ')" = "compare .hidden compare a b.h compare one.c compare two.c deleted extra large new/ " ] ||
    problem "-n lists $(tr '\n' ' ' <"$work/out")"
  holds "-n" "$work/dst" "./.hidden ./a b.h ./extra ./one.c ./two.c "
  cases=$((cases + 1))
  rdcp -v -a --checksum --delete "$from/." "$to" || problem "--checksum: exit status $?"
  same "--checksum" "$work/changing/" "$work/dst/"
  grep -q '^rdcp: 2 files, ' "$work/err" || problem "--checksum copies more or less than two files: $(cat "$work/err")"
  printf 'two.c\nnew/\nnone\n' >"$work/list"
  fresh; fails "--files-from" 1 'none.*listed' -r --files-from "$work/list" "$from" "$to"
  holds "--files-from" "$work/dst" "./changing ./changing/new ./changing/two.c "
done
# A source in DST stays, and what is in it.
for to in "$far:$work/dst" "$work/dst"; do
  if [ "$to" = "$work/dst" ]; then from=$far:$work/dst/sub; else from=$work/dst/sub; fi
  fresh; mkdir "$work/dst/sub" "$work/dst/extra"
  for i in $(seq 300); do echo "$i" >"$work/dst/sub/$i"; done
  fails "-n --delete, SRC in DST" 1 "'sub' is part of what is copied" -n -a --sync --delete "$from/." "$to"
  fails "--delete, SRC in DST" 1 "'sub' is part of what is copied" -a --sync --delete "$from/." "$to"
  [ "$(cat "$work"/dst/[0-9]* "$work"/dst/sub/* | sort -n | uniq -d | wc -l)" -eq 300 ] && [ ! -e "$work/dst/extra" ] ||
    problem "--delete, SRC in DST: it holds $(ls "$work/dst/sub" | wc -l) files"
done
cases=$((cases + 1))
rdcp -n -a "hidden1:$src" "hidden2:$work/dst" || problem "-n through here: exit status $?"
grep -q 'src/one.c' "$work/out" || problem "-n through here lists nothing"
[ ! -e "$work/dst/src" ] || problem "-n through here copies"
fresh; chmod 000 "$src/two.c"
if [ "$(id -u)" -ne 0 ]; then
  fails "a file that cannot be read" 1 'two.c.*ermission' -r "$far:$src/." "$work/dst"
  holds unreadable "$work/dst" "./.hidden ./a b.h ./one.c "
fi
chmod 644 "$src/two.c"
cp -r "$src" "$work/onto"
fails "a file onto itself" 1 'same file' "$far:$work/onto/one.c" "$work/onto"
[ "$(cat "$work/onto/one.c")" = one ] || problem "a file onto itself: it is gone"

# ---- what goes wrong ------------------------------------------------------------------------------------
: >"$work/err"
cases=$((cases + 1))
timeout 60 "$bin/tools/copy/rdcp" -e "ssh -F $work/ssh_config" --rdcp-path "$work/no/rdcp" "$src/one.c" "$far:$work/dst" \
  2>"$work/err" </dev/null
[ $? -eq 127 ] || problem "no rdcp there: not exit status 127"
grep -qE "^rdcp: .*no/rdcp.*$far.*--rdcp-path" "$work/err" || problem "no rdcp there: says something else"
cases=$((cases + 1))
timeout 60 "$bin/tools/copy/rdcp" -e "ssh -o BatchMode=yes" "$src/one.c" nosuchhost.invalid:/ 2>"$work/err" </dev/null
[ $? -eq 1 ] || problem "a host that is not there: not exit status 1"
[ "$(grep -c '^rdcp: ' "$work/err")" -eq 1 ] || problem "a host that is not there: not one sentence"
# Where there is none is said.
fails "no directory here" 1 "there is no directory '$work/none/'" "$far:$src/one.c" "$work/none/"
grep -q '^rdcp: there is' "$work/err" || problem "no directory here: it names the other machine"
fails "no directory there" 1 "$far: there is no directory '$work/none/'" "$src/one.c" "$far:$work/none/"
fails "no such ssh" 1 'openssh-client' -e "$work/no/ssh" "$src/one.c" "$far:$work/dst"
# The far end may not write so much: that file is named, the other one comes.
printf '#!/bin/sh\nulimit -f 60000\nexec %s "$@"\n' "$work/far-rdcp" >"$work/limited-rdcp"
chmod +x "$work/limited-rdcp"
head -c 80000000 /dev/zero >"$work/too_large"
for over in shm tcp "tcp --port $sshd_port"; do
  fresh
  cases=$((cases + 1))
  # shellcheck disable=SC2086 # words
  timeout 60 "$bin/tools/copy/rdcp" -e "ssh -F $work/ssh_config" --rdcp-path "$work/limited-rdcp" --require $over \
    "$work/too_large" "$src/one.c" "$far:$work/dst" 2>"$work/err" </dev/null
  [ $? -eq 1 ] || problem "the far end may not write it ($over): another exit status"
  grep -qE "^rdcp: .*too_large: .*File too large" "$work/err" || problem "the far end may not write it ($over): says something else"
  [ "$(ls -A "$work/dst")" = one.c ] || problem "the far end may not write it ($over): $(ls -A "$work/dst") is there"
done
fails "a rate that is none" 2 'is no rate' --bwlimit fast "$src/one.c" "$far:$work/dst"
fresh; copies "--bwlimit" -a --bwlimit 200M "$tree/a/size-5000000" "$far:$work/dst"; cmp -s "$tree/a/size-5000000" "$work/dst/size-5000000" || problem "--bwlimit: another content"
fails "lanes that are too many" 2 'lanes' --lanes 9 "$src/one.c" "$far:$work/dst"
fails "ports that are none" 2 'no range of ports' --port x "$src/one.c" "$far:$work/dst"
fails "a transport that is not there" 1 'verbs is required' --require verbs "$src/one.c" "$far:$work/dst"

# A login shell that talks.
sed -i 's/^ssh-/command="echo Welcome; echo RDCP; printf prompt; eval \\"$SSH_ORIGINAL_COMMAND\\"" ssh-/' "$work/authorized_keys"
fresh; copies "a shell that talks" -a "$far:$src/." "$work/dst"; same "a shell that talks" "$src/" "$work/dst/"
sed -i 's/^command="[^"]*\\"[^"]*\\"" //' "$work/authorized_keys"

# Either end killed: the other says so, and nothing is there under its final name.
head -c 400000000 /dev/zero >"$work/large"
# begun: a copy in the background whose large file is half made; its far end is stopped.
kills=0
begun() {
  local pid
  fresh
  rm -f "$work/far.pid"
  timeout 120 "$bin/tools/copy/rdcp" -e "ssh -F $work/ssh_config" --rdcp-path "$work/far-rdcp" --bwlimit 500M "$@" 2>"$work/err" </dev/null &
  copy=$!
  ends_with_us "$copy"
  for _ in $(seq 3000); do
    if [ -s "$work/far.pid" ] && compgen -G "$work/dst/.rdcp-*" >/dev/null; then
      pid=$(<"$work/far.pid")
      ends_with_us "$pid"
      kill -STOP "$pid" && return 0
    fi
    sleep 0.002
  done
  problem "it did not begin"
  return 1
}
killed() {
  local name=$1 ended
  shift
  cases=$((cases + 1))
  begun "$@" || return
  [ ! -e "$work/dst/large" ] || { echo "copy.sh: $name: too fast, left out" >&2; kill -CONT "$(cat "$work/far.pid")"; wait "$copy"; return; }
  kills=$((kills + 1))
  kill -KILL "$(cat "$work/far.pid")"
  wait "$copy"
  ended=$?
  [ "$ended" -eq 1 ] || problem "$name: exit status $ended"
  grep -qE "^rdcp: $far: the connection to the other rdcp broke" "$work/err" || problem "$name: says something else"
  [ ! -e "$work/dst/large" ] || problem "$name: a part has the final name"
}
for over in shm tcp; do
  killed "the receiving end killed ($over)" --require "$over" "$work/large" "$far:$work/dst"
  killed "the sending end killed ($over)" --require "$over" "$far:$work/large" "$work/dst"
  [ -z "$(ls -A "$work/dst")" ] || problem "the sending end killed ($over): something is left: $(ls -A "$work/dst")"
done
[ "$kills" -gt 0 ] || problem "no end was killed: all copies were too fast"
# The caller interrupted: it and the far end leave nothing.
for direction in there back; do
  cases=$((cases + 1))
  if [ "$direction" = there ]; then begun "$work/large" "$far:$work/dst"; else begun "$far:$work/large" "$work/dst"; fi || continue
  pkill -INT -P "$copy" -x rdcp
  kill -CONT "$(cat "$work/far.pid")"
  wait "$copy"
  ended=$?
  [ "$ended" -eq 1 ] || [ -e "$work/dst/large" ] || problem "interrupted ($direction): exit status $ended"
  for _ in $(seq 500); do kill -0 "$(cat "$work/far.pid")" 2>/dev/null || break; sleep 0.02; done
  kill -0 "$(cat "$work/far.pid")" 2>/dev/null && problem "interrupted ($direction): the far end is still there"
  compgen -G "$work/dst/.rdcp-*" >/dev/null && problem "interrupted ($direction): something is left"
done

end_of_cases
