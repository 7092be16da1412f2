#!/usr/bin/env bash
# Usage: trees.sh BIN_DIR
# A tree of all that is hard to copy, copied in every way and compared in full. As root: once more as an
# ordinary user.
# shellcheck source=tests/tools/copy/program.bash
. "$(dirname "$0")/program.bash" "$1"
cd "$work" || exit 1
umask 022
"$here/nasty_tree.py" tree || exit 1

run 0 "-a" -a tree copy
silent "-a"
same "-a" tree copy
clean "-a" copy
touch copy/many/7
differ "a touched file" tree copy
run 0 "-a over it" -a tree/. copy
same "-a over it" tree copy
chmod 700 copy/modes copy/one/first
setfattr -n user.extra -v 1 copy/empty
rm copy/one/again
echo x >copy/one/again
run 0 "--sync" -a --sync -v tree/. copy
same "--sync" tree copy
grep -q many "$work/out" && problem "--sync copies what is there"
run 0 "--sync again" -a --sync -v tree/. copy
[ ! -s "$work/out" ] || problem "--sync again: does something"
run 0 "--checksum" -a --sync --checksum -v tree/. copy
[ ! -s "$work/out" ] || problem "--checksum: does something"
mkdir -p copy/many/extra/deep copy/extra
touch copy/many/extra/deep/file copy/.extra
run 0 "--delete" -a --sync --delete tree/. copy
same "--delete" tree copy
run 0 "-a --inplace" -a --inplace --sync --checksum tree/. copy
same "-a --inplace" tree copy

# Without -a: content, and what is special is named.
run 1 "-r" -r tree plain
says "-r" 'specials/fifo: .*-a copies'
run 1 "-L" -rL tree/symlinks followed
says "-L" 'dangling: it is a symlink that leads nowhere'
says "-L" 'itself: it leads back'
[ -f followed/absolute ] || problem "-L: did not follow"
mkdir kept
run 0 "-p" -rp tree/times kept
same "-p" tree/times kept/times
run 0 "--verify" -a --verify tree/sizes verified
same "--verify" tree/sizes verified

if [ "$(id -u)" -eq 0 ]; then
  chmod 755 "$work"
  mkdir user
  chown rdfs-test user
  cp "$rdcp" "$here"/*.py "$here"/*.sh "$here"/*.bash user/
  chmod -R a+rX user
  cases=$((cases + 1))
  su rdfs-test -c "TMPDIR=$work/user timeout 120 user/trees.sh user" >"$work/err" 2>&1 ||
    problem "as an ordinary user"
  mkdir theirs
  chown rdfs-test theirs
  su rdfs-test -c "timeout 60 user/rdcp -a tree theirs/tree" >"$work/out" 2>"$work/err"
  [ $? -eq 1 ] || problem "what others may not read: the exit status"
  says "what others may not read" 'modes/f400: cannot open it: Permission denied'
  says "devices of root" 'specials/char: cannot make it: Operation not permitted'
  [ "$(stat -c %U:%a theirs/tree/modes/owned1 2>/dev/null)" = rdfs-test:755 ] ||
    problem "setuid of another owner: $(stat -c %U:%a theirs/tree/modes/owned1)"
  [ "$(find theirs/tree/many -type f | wc -l)" -eq 3000 ] || problem "the rest was not copied"
fi
conclude
