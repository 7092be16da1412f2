#!/usr/bin/env bash
# Usage: locks.sh --bin BUILD_DIR --over TRANSPORT [--as-when-root USER]
#
# Locks of two mounts. Who is refused another kind of flock has none any more, as on a local disk; what a program has locked
# that is frozen, and its rdfs with it, stays its own for a lease, is then another mount's, and the program hears of that;
# and what an rdfs that was killed had locked is another mount's, once the server has heard nothing of it for a lease. On a third
# mount, of two workers: what goes with close(2) is free when that has returned.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"

lease=6
mkdir "$work/export" "$work/first" "$work/second" "$work/third"
touch "$work/export/file"
new_key "$work/key"
serve server --export "data=$work/export" --key-file "$work/key" --lease $lease
for name in second third first; do
  options=key_file=$work/key,require=$over
  [ "$name" = third ] && options+=,workers=2
  "$rdfs" "rdfs://$address:$port/data" "$work/$name" -f -o "$options" >"$work/$name.log" 2>&1 </dev/null &
  ends_with_us $!
  wait_until 100 is_mounted "$work/$name" || problem "$name does not mount: $(cat "$work/$name.log")"
  [ "$name" = first ] && client=$!
  disown $!  # nobody is told that it was killed
done

timeout 60 "${python[@]}" - "$work/third/closed" <<'PYTHON' || problem 'a lock outlives the close that it goes with'
import fcntl, os, struct, sys
path = sys.argv[1]
# struct flock: the whole file.
WHOLE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
locks = {"flock": lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB),
         "OFD": lambda fd: fcntl.fcntl(fd, fcntl.F_OFD_SETLK, WHOLE)}
def free(fd): return struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, WHOLE))[0] == fcntl.F_UNLCK
for kind, lock in locks.items():
    wrong = 0
    for i in range(500):
        one, other = os.open(path, os.O_CREAT | os.O_RDWR), os.open(path, os.O_RDWR)
        lock(one)
        if i % 3 == 0: os.pwrite(one, b"x", i)
        os.close(one)
        try:
            if kind == "OFD" and i % 2: wrong += not free(other)
            else: lock(other)
        except BlockingIOError:
            wrong += 1
        os.close(other)
        # What the last close leaves is another round's: it is waited for.
        last = os.open(path, os.O_RDWR)
        fcntl.flock(last, fcntl.LOCK_EX)
        os.close(last)
    assert wrong == 0, f"{kind}: {wrong} of 500 were refused"
# Who is refused for good hears of it.
one, other = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
fcntl.flock(one, fcntl.LOCK_EX)
for _ in range(20):
    try:
        locks["flock"](other)
        sys.exit("two have one lock")
    except BlockingIOError:
        pass
PYTHON

timeout 90 "${python[@]}" - "$work/first/file" "$work/second/file" "$client" "$lease" <<'PYTHON' || problem 'locks do not hold, or too long'
import errno, fcntl, os, signal, subprocess, sys, time
from processes import freeze, thaw
first, second, client, lease = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def refused(fd, kind):
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False

one, other = os.open(first, os.O_RDWR), os.open(second, os.O_RDWR)
fcntl.flock(one, fcntl.LOCK_SH)
fcntl.flock(other, fcntl.LOCK_SH)
assert refused(other, fcntl.LOCK_EX)
os.close(other)
assert not refused(one, fcntl.LOCK_EX), "a lock that nobody has is in the way"

# A program that says what it is told, on the first mount.
USER = """
import fcntl, os, sys
fd = None
for line in sys.stdin:
    try:
        if line == "lock\\n":
            fd = os.open(sys.argv[1], os.O_RDWR)
            fcntl.flock(fd, fcntl.LOCK_EX)
            fcntl.lockf(fd, fcntl.LOCK_EX, 10)
        if line == "write\\n": os.pwrite(fd, b"mine", 0)
        if line == "close\\n": os.close(fd)
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""
user = subprocess.Popen([sys.executable, "-c", USER, first], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def tell(word):
    user.stdin.write(word + "\n")
    user.stdin.flush()
    return int(user.stdout.readline())
fcntl.flock(one, fcntl.LOCK_UN)
other = os.open(second, os.O_RDWR)
assert tell("lock") == 0
for still in 0.4, 1.0:  # its rdfs may have been heard of last a third of a lease before
    freeze(user.pid, client)
    end = time.monotonic() + still
    while time.monotonic() < end:
        assert refused(other, fcntl.LOCK_EX), "a frozen program's lock was given away before its lease was over"
    thaw(user.pid, client)
    assert tell("write") == 0, "a program that was frozen for less than a lease has lost its lock"
    assert refused(other, fcntl.LOCK_EX)
freeze(user.pid, client)
stopped = time.monotonic()
fcntl.flock(other, fcntl.LOCK_EX)
fcntl.lockf(other, fcntl.LOCK_EX, 10)
took = time.monotonic() - stopped
print(f"the locks of a frozen program were free after {took:.1f} s, with a lease of {lease} s")
assert 0.5 * lease < took < 3 * lease + 10, took
os.pwrite(other, b"yours", 0)
fcntl.flock(other, fcntl.LOCK_UN)
fcntl.lockf(other, fcntl.LOCK_UN, 10)
thaw(user.pid, client)
assert tell("write") == errno.EIO, "who has lost its lock writes on"
assert os.pread(other, 5, 0) == b"yours"
tell("close")
assert tell("lock") == 0 and tell("write") == 0 and tell("close") == 0
user.stdin.close()
assert user.wait() == 0

fcntl.flock(one, fcntl.LOCK_EX)
fcntl.lockf(one, fcntl.LOCK_EX, 10)
assert refused(other, fcntl.LOCK_EX)
os.kill(client, signal.SIGKILL)
killed = time.monotonic()
fcntl.flock(other, fcntl.LOCK_EX)
fcntl.lockf(other, fcntl.LOCK_EX, 10)
took = time.monotonic() - killed
print(f"the locks of a mount that was killed were free after {took:.1f} s, with a lease of {lease} s")
assert took < 3 * lease + 10
PYTHON

conclude 'locks of two mounts'
