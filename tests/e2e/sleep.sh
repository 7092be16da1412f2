#!/usr/bin/env bash
# Usage: sleep.sh --bin BUILD_DIR [--as-when-root USER]
#
# A client whose machine has slept shows what others have changed meanwhile, and not what its kernel was told before: of
# that, the time has stood still. Nobody's machine sleeps here: a preloaded library says so (sleep/preload.cc).
source "$(dirname "$0")/setup.sh"
begin "$@"
mkdir "$work/export" "$work/sleeper" "$work/other"
touch "$work/slept"
mkfifo "$work/clock_set"
export RDFS_TEST_SLEPT=$work/slept
preload=$bin/tests/e2e/sleep/sleeps.so
LD_PRELOAD=$preload serve server --export "data=$work/export" --no-auth
for name in sleeper other; do
  unset RDFS_TEST_CLOCK_SET
  [ $name != sleeper ] || export RDFS_TEST_CLOCK_SET=$work/clock_set
  LD_PRELOAD=$preload "$rdfs" "rdfs://127.0.0.1:$port/data" "$work/$name" -f >"$work/$name.log" 2>&1 </dev/null &
  ends_with_us $!
  [ $name != sleeper ] || sleeper=$!
  wait_until 100 is_mounted "$work/$name" || problem "$name does not mount: $(cat "$work/$name.log")"
done
timeout 120 "${python[@]}" - "$work" "$sleeper" <<'PYTHON' || problem 'what is seen is from before the sleep'
import os, signal, sys, time
work, sleeper = sys.argv[1], int(sys.argv[2])
clock = os.open(f"{work}/clock_set", os.O_RDWR)
there, other = f"{work}/sleeper", f"{work}/other"
def seen(turn):
    return (os.stat(f"{there}/file").st_size, os.path.exists(f"{there}/old{turn}"), os.path.exists(f"{there}/new{turn}"))

# The kernel believes what it was told for five seconds: a turn in which the machine was too busy says nothing.
for turn in range(8):
    with open(f"{other}/file", "wb") as file:
        file.write(b"abc")
    open(f"{other}/old{turn}", "w").close()
    begin = time.monotonic()
    assert seen(turn) == (3, True, False), "before"
    os.kill(sleeper, signal.SIGSTOP)
    os.truncate(f"{work}/slept", os.path.getsize(f"{work}/slept") + 8)  # longer than a lease
    with open(f"{other}/file", "ab") as file:
        file.write(b"defghi")
    os.unlink(f"{other}/old{turn}")
    open(f"{other}/new{turn}", "w").close()
    os.write(clock, b"was set ")
    os.kill(sleeper, signal.SIGCONT)
    while time.monotonic() < begin + 3:
        if seen(turn) == (9, False, True):
            if time.monotonic() < begin + 3:
                sys.exit(0)
            break
        time.sleep(0.05)
    time.sleep(3)
sys.exit(1)
PYTHON
conclude 'a client whose machine has slept'
