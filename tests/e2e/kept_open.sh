#!/usr/bin/env bash
# Usage: kept_open.sh --bin BUILD_DIR --over TRANSPORT [--as-when-root USER]
#
# Who keeps a file open, and asks for nothing while its lease runs out, has pages that another mount has written to since. He reads
# what is there when he has locked the file, by each kind of lock, or has asked for its attributes; and pages that are right are
# kept: what nobody else writes to is read from the server once.
source "$(dirname "$0")/setup.sh"
begin "$@"
mkdir "$work/export" "$work/first" "$work/second" "$work/strict"
for file in flock posix ofd waits stat look own lockfile recalled grown touched mine cut mapped longer only_sent only_copied only_strict; do head -c 100000 /dev/zero >"$work/export/$file"; done
new_key "$work/key"
serve server --export "data=$work/export" --key-file "$work/key"
for name in first second strict; do
  options=key_file=$work/key,require=$over
  [ "$name" != strict ] || options+=,strict
  "$rdfs" "rdfs://$address:$port/data" "$work/$name" -f -o "$options" >"$work/$name.log" 2>&1 </dev/null &
  ends_with_us $!
  [ "$name" != first ] || client=$!
  wait_until 100 is_mounted "$work/$name" || problem "$name does not mount: $(cat "$work/$name.log")"
done
timeout 100 "${python[@]}" - "$work/first" "$work/second" "$work/strict" "$client" "$work/first.log" <<'PYTHON' || problem 'what was read is not what is there'
import ctypes, fcntl, mmap, os, resource, struct, sys, time
from counters import round_trips
first, second, strict, client, log = sys.argv[1:]
WHOLE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
# What each does that makes the pages right, and undoes behind the read.
ways = {
    "flock": (lambda fd: fcntl.flock(fd, fcntl.LOCK_SH), lambda fd: fcntl.flock(fd, fcntl.LOCK_UN)),
    "posix": (lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda fd: fcntl.lockf(fd, fcntl.LOCK_UN)),
    "waits": (lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX), lambda fd: fcntl.lockf(fd, fcntl.LOCK_UN)),
    "ofd": (lambda fd: fcntl.fcntl(fd, fcntl.F_OFD_SETLK, WHOLE), lambda fd: fcntl.fcntl(fd, fcntl.F_OFD_SETLK,
            struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))),
    "stat": (os.fstat, lambda fd: None),
    "look": (lambda fd: os.stat(f"{first}/look"), lambda fd: None),
    # This mount's own change to the attributes in between, or its own write before.
    "touched": (lambda fd: os.fchmod(fd, 0o640) or os.fstat(fd), lambda fd: os.fchmod(fd, 0o644)),
    "mine": (os.fstat, lambda fd: os.pwrite(fd, b"mine", 1000)),
}
kept = {way: os.open(f"{first}/{way}", os.O_RDWR) for way in ways}
# What this mount has made itself, it has not been told the size of. Who opens it anew, while it is open, reads what is there.
made = os.open(f"{first}/made", os.O_RDWR | os.O_CREAT)
os.pwrite(made, bytes(4096), 0)
def read_made(count):
    again = os.open(f"{first}/made", os.O_RDONLY)
    read = os.pread(again, count, 0)
    os.close(again)
    return read
wrong = []
for written in b"new", b"then", b"last":
    for fd in kept.values(): os.pread(fd, 100000, 0)
    read_made(4096)
    time.sleep(6)  # longer than any lease of attributes
    for way in *kept, "made":
        with open(f"{second}/{way}", "r+b") as other: other.write(written)
    for way, (begin, end) in ways.items():
        begin(kept[way])
        read = os.pread(kept[way], len(written), 0)
        end(kept[way])
        if read != written: wrong.append((way, read, written))
    os.stat(f"{first}/made")
    if read_made(len(written)) != written: wrong.append(("made", written))
assert not wrong, wrong

# A file that was cut, read short, and has its old size again: its end, and what is there.
cut = os.open(f"{first}/cut", os.O_RDWR)
os.fstat(cut)
with open(f"{second}/cut", "wb"): pass
assert os.pread(cut, 100000, 0) == b""
with open(f"{second}/cut", "wb") as other: other.write(b"n" * 100000)
assert os.pread(cut, 100000, 0) == b"n" * 100000, "read as if it were still empty"
assert os.lseek(cut, 0, os.SEEK_END) == 100000

# One that has grown, and been opened to others: who has looked at it can map and send all of it, and open it.
mapped = os.open(f"{first}/mapped", os.O_RDWR)
os.pread(mapped, 100000, 0)
with open(f"{second}/mapped", "ab") as other: other.write(b"g" * 100000)
assert os.fstat(mapped).st_size == 200000
with mmap.mmap(mapped, 200000, prot=mmap.PROT_READ) as whole: assert whole[150000:150003] == b"ggg"
into = os.open(f"{second}/sent", os.O_RDWR | os.O_CREAT)
sent = 0
while (more := os.sendfile(into, mapped, sent, 200000 - sent)) > 0: sent += more
assert sent == 200000, sent
os.pread(mapped, 100000, 0)
for mode in 0o400, 0o600:
    with open(f"{second}/mapped", "r+b") as other: other.write(b"m")
    os.chmod(f"{second}/mapped", mode)
    assert os.access(f"{first}/mapped", os.W_OK) == (mode == 0o600 or os.getuid() == 0), oct(mode)
    os.chmod(f"{second}/mapped", 0o600)

# The same where the pages are from behind a recall, and where the file has become longer: its end is where it is now.
recalled, grown = (os.open(f"{first}/{name}", os.O_RDWR) for name in ("recalled", "grown"))
for written in b"one", b"two", b"six":
    os.fstat(recalled)
    with open(f"{second}/recalled", "r+b") as other: other.write(b"old")
    os.fstat(recalled)
    assert os.pread(recalled, 3, 0) == b"old"
    os.pread(grown, 1 << 20, 0)
    time.sleep(6)
    with open(f"{second}/recalled", "r+b") as other: other.write(written)
    with open(f"{second}/grown", "ab") as other: other.write(written)
    os.fstat(recalled)
    assert os.pread(recalled, 3, 0) == written, written
    assert os.lseek(grown, 0, os.SEEK_END) == os.path.getsize(f"{second}/grown"), "the old end"
    assert os.pread(grown, 10, os.lseek(grown, 0, os.SEEK_END) - 3) == written

# One that another program makes longer under a lock: who has locked it then need not ask where it ends to send and copy the
# rest, or to read it by a mapping that was longer than the file was.
longer, end = os.open(f"{first}/longer", os.O_RDWR), 1000
os.truncate(f"{second}/longer", end)
os.fstat(longer)
os.pread(longer, 1 << 20, 0)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
view = libc.mmap(None, 1 << 20, mmap.PROT_READ, mmap.MAP_SHARED, longer, 0)
ctypes.string_at(view, 1)
copy = os.open(f"{first}/copy", os.O_RDWR | os.O_CREAT)
rest = {"sendfile": lambda at: os.sendfile(copy, longer, at, 5000),
        "copy_file_range": lambda at: os.copy_file_range(longer, copy, 5000, at, 0), "mapping": lambda at: len(ctypes.string_at(view + at, 5000))}
for how, call in rest.items():
    with open(f"{second}/longer", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b"l" * 5000)
        other.flush()
    fcntl.flock(longer, fcntl.LOCK_EX)
    got = call(end)
    fcntl.flock(longer, fcntl.LOCK_UN)
    end += 5000
    assert got > 0, f"{how} takes the old end for the end"
    assert ctypes.string_at(view + end - 10, 10) == b"l" * 10, how

# The same of a file that was only opened before, and where no pages are kept.
def send(source, into, at): return os.sendfile(into, source, at, 5000)
def copy_range(source, into, at): return os.copy_file_range(source, into, 5000, at, 0)
for mount, name, call in (first, "only_sent", send), (first, "only_copied", copy_range), (strict, "only_strict", copy_range):
    opened, into = os.open(f"{mount}/{name}", os.O_RDWR), os.open(f"{mount}/{name}.copy", os.O_RDWR | os.O_CREAT)
    end = os.fstat(opened).st_size
    with open(f"{second}/{name}", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b"o" * 5000)
        other.flush()
    fcntl.flock(opened, fcntl.LOCK_EX)
    assert call(opened, into, end) > 0, f"{name}: the old end is taken for the end"
    fcntl.flock(opened, fcntl.LOCK_UN)
    assert os.pread(into, 10, 0) == b"o" * 10, name

# A lock with the other program's bytes behind each: none of the increments is lost.
counter = [os.open(f"{mount}/own", os.O_RDWR) for mount in (first, second)]
for i in range(20):
    for fd in counter:
        fcntl.lockf(fd, fcntl.LOCK_EX)
        os.pwrite(fd, struct.pack("q", struct.unpack("q", os.pread(fd, 8, 0))[0] + 1), 0)
        fcntl.lockf(fd, fcntl.LOCK_UN)
    if i % 10 == 9: time.sleep(6)
assert struct.unpack("q", os.pread(counter[0], 8, 0))[0] == 40

# What nobody else writes to: a lock within the lease costs itself, the first one behind it one question, and no page is lost.
def costs(call):
    before = round_trips(int(client), log)
    call()
    after = round_trips(int(client), log)
    return {name: after[name] - before.get(name, 0) for name in after if name != "renew" and after[name] != before.get(name, 0)}
mine = os.open(f"{first}/lockfile", os.O_RDWR)
# A kernel that is short of memory, or looks for pages that nobody uses (DAMON), leaves locked ones alone. rdfs does not.
held = mmap.mmap(mine, 100000)
address = ctypes.addressof(ctypes.c_char.from_buffer(held))
locked = libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(100000))
# Where so much may be locked.
assert locked == 0 or 0 <= resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] < 1 << 17, os.strerror(ctypes.get_errno())
def locked_read():
    fcntl.lockf(mine, fcntl.LOCK_EX)
    os.pread(mine, 100000, 0)
    fcntl.lockf(mine, fcntl.LOCK_UN)
locked_read()
seen = costs(locked_read)
assert seen == {"setlk": 2}, seen
time.sleep(6)
seen = costs(locked_read)
assert seen == {"setlk": 2, "getattr": 1}, seen
seen = costs(locked_read)
assert seen == {"setlk": 2}, seen
PYTHON
conclude 'files that are kept open'
