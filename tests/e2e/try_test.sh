#!/usr/bin/env bash
# Usage: try_test.sh --bin BUILD_DIR [--as-when-root USER]
#
# ./try as a person uses it: on the sample, on a directory of theirs and a mount point whose name has a blank,
# two at once, ended by Ctrl-C, by a signal, while the mount is in use, and when its server dies. It leaves
# nothing running, and never touches what it served. RDFS_CHECK_FULL=1: from two fresh clones at once, built
# by ./try itself, and once more from the first.
set -uo pipefail

# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
project=$(cd "$(dirname "$0")/../.." && pwd)
export TMPDIR=$work/tmp
mkdir "$TMPDIR" "$work/theirs" "$work/a mount"
echo hello >"$work/theirs/file"
cases=0

# start NAME CLONE ARGUMENT...: its pid in $try, what it says in $said.
start() {
  local clone=$2
  cases=$((cases + 1))
  name=$1 said=$work/said.$cases
  shift 2
  "$clone/try" "$@" >"$said" 2>&1 </dev/null &
  try=$!
  ends_with_us "$try"
}
wrong() { problem "$name: $1: $(cat "$said")"; }
told_or_gone() { grep -qs 'Ctrl-C ends this' "$said" || gone "$try"; }
up() { wait_until "${1:-300}" told_or_gone && grep -qs 'Ctrl-C ends this' "$said" || wrong "does not come up"; }
mount_of() { sed -n 's/.* is mounted on \(.*\)\.$/\1/p' "$said"; }
nothing_left() {
  local left
  left=$(pgrep -af "$TMPDIR/rdfs-try|rdfs://127.0.0.1:[0-9]*/try $work")
  [ -z "$left" ]
}
# over STATUS: $try has ended, with nothing left of it.
over() {
  local status
  wait "$try"
  status=$?
  [ "$status" -eq "$1" ] || wrong "exit status $status"
  grep -q " $work" /proc/self/mountinfo && wrong "a mount is left"
  wait_until 50 nothing_left || wrong "left running: $(pgrep -af "$TMPDIR/rdfs-try|/try $work")"
  [ -z "$(ls -A "$TMPDIR")" ] || wrong "left in $TMPDIR: $(ls -A "$TMPDIR")"
}

start "the sample" "$project" --bin "$bin"
up
grep -qE "^rdfs: .* over shm" "$said" || wrong "does not say which transport"
grep -q 'first read of 256MiB.bin: .*/s' "$said" && grep -qE 'find: [0-9]{2,} names' "$said" || wrong "no figures"
cmp -s "$project/README.md" "$(mount_of)/README.md" || wrong "the sample is not there"
kill -TERM "$try"
over 0
grep -q 'Unmounted, cleaned up' "$said" || wrong "does not say that it is over"

start "a directory of theirs" "$project" --bin "$bin" "$work/theirs" "$work/a mount"
up
[ "$(cat "$work/a mount/file")" = hello ] || wrong "not their file"
echo written >"$work/a mount/new"
kill -TERM "$try"
over 0
[ "$(cat "$work/theirs/file" "$work/theirs/new")" = "$(printf 'hello\nwritten')" ] || wrong "their directory has suffered"

# A terminal sends SIGINT to all of us at once, which a shell's background jobs would not hear.
cases=$((cases + 1)) name="Ctrl-C in a terminal" said=$work/said.$cases try=''
python3 - "$project/try" --bin "$bin" >"$said" 2>&1 <<'PYTHON' || wrong "exit status $?"
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
said, typed = b"", False
while True:
    try:
        piece = os.read(terminal, 4096)
    except OSError:
        break
    if not piece:
        break
    said += piece
    if b"Ctrl-C ends this" in said and not typed:
        os.write(terminal, b"\x03")
        typed = True
print(said.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PYTHON
grep -q 'Unmounted, cleaned up' "$said" || wrong "does not say that it is over"
true & try=$!
over 0

start "in use" "$project" --bin "$bin" "$work/theirs" "$work/a mount"
up
exec 5<"$work/a mount/file"
kill -TERM "$try"
over 0
grep -q 'something still uses' "$said" || wrong "does not say so"
exec 5<&-
[ "$(cat "$work/theirs/file")" = hello ] || wrong "their directory has suffered"

start "its server dies" "$project" --bin "$bin" "$work/theirs"
up
kill -KILL $(pgrep -f "^$bin/server/rdfsd --export try=$work/theirs")
over 0
[ "$(cat "$work/theirs/file")" = hello ] || wrong "their directory has suffered"

start "two at once, the first" "$project" --bin "$bin" "$work/theirs"
first=$try first_said=$said
start "two at once, the second" "$project" --bin "$bin"
up
second=$try try=$first said=$first_said
up
[ "$(cat "$(mount_of)/file")" = hello ] || wrong "not their file"
kill -TERM "$first" "$second"
wait "$first"
try=$second
over 0

for arguments in "2 --nonsense" "2 a b c" "1 $work/none" "1 $work/theirs $work/none" "1 $work/theirs $work/theirs"; do
  # shellcheck disable=SC2086 # several arguments
  start "refused: $arguments" "$project" ${arguments#* }
  over "${arguments%% *}"
  [ "$(wc -l <"$said")" -eq 1 ] && grep -q '^try: ' "$said" || wrong "is not told in one line"
done

if [ "${RDFS_CHECK_FULL:-0}" = 1 ]; then
  for clone in 1 2; do
    mkdir "$work/clone$clone"
    tar -C "$project" --exclude=./build --exclude=./.git -cf - . | tar -C "$work/clone$clone" -xf - || problem "no clone"
  done
  start "a fresh clone" "$work/clone1"
  first=$try first_said=$said
  start "another fresh clone" "$work/clone2"
  up 18000
  second=$try try=$first said=$first_said
  up 18000
  kill -TERM "$first" "$second"
  wait "$first"
  try=$second
  over 0
  start "a clone once more" "$work/clone1"
  up
  grep -q building "$said" && wrong "builds again"
  kill -TERM "$try"
  over 0
fi
conclude "$cases cases"
