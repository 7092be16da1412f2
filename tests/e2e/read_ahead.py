"""read_ahead.py WORK READER_PID PLAIN_PID SERVER_PID: see read_ahead.sh."""
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time
from counters import figures
from processes import children, freeze, thaw

work, pids = sys.argv[1], {"reader": int(sys.argv[2]), "plain": int(sys.argv[3])}
server = int(sys.argv[4])
reader, writer, export = f"{work}/reader", f"{work}/writer", f"{work}/export"
KIB, MIB = 1 << 10, 1 << 20
# So far a reader is, when the kernel has asked for that and 256 KiB more at most, and rdfs for MiB.
BEGUN, NOT_READ = 2 * MIB, 2 * MIB + 512 * KIB
random.seed(7)


def counted(mount="reader"):
    return figures(pids[mount], f"{work}/{mount}.log")


def put(path, content):
    with open(path, "wb") as file:
        file.write(content)


def read_on(fd, size=1 << 40, step=64 * KIB):
    out = bytearray()
    while len(out) < size and (got := os.read(fd, min(step, size - len(out)))):
        out += got
    return bytes(out)


def same(what, got, due):
    if got == due:
        return
    at = next((i for i, (a, b) in enumerate(zip(got, due)) if a != b), min(len(got), len(due)))
    raise AssertionError(f"{what}: {len(got)} bytes of {len(due)}, the first other one at {at}")


class Begun:
    """A file of which the reader has read the first part, and rdfs more than that."""

    def __init__(self, name, size=12 * MIB):
        self.name, self.old = name, os.urandom(size)
        put(f"{writer}/{name}", self.old)
        for _ in range(10):
            due = counted()["ahead_bytes"] + min(size, BEGUN + 4 * MIB) - 512 * KIB
            self.fd = os.open(f"{reader}/{name}", os.O_RDONLY)
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            same(name, read_on(self.fd, BEGUN), self.old[:BEGUN])
            end = time.monotonic() + 2
            while (there := counted()["ahead_bytes"]) < due and time.monotonic() < end:
                time.sleep(0.01)
            if there >= due:
                return
            # While a helper is at work nothing is.
            os.close(self.fd)
        raise AssertionError(f"{name}: nothing is read ahead")

    def goes_on(self, what, due):
        """What the reader finds from here on, of which the kernel may have a little from before."""
        got = read_on(self.fd)
        os.close(self.fd)
        same(what, got[NOT_READ - BEGUN:], due[NOT_READ:])
        os.unlink(f"{writer}/{self.name}")


def with_new(old, at, new):
    return old[:at] + new + old[at + len(new):]


# Each byte is asked for once, and used; odd sizes too.
for size in (1, 128 * KIB, 128 * KIB + 1, MIB - 1, 20 * MIB + 3):
    content = os.urandom(size)
    put(f"{writer}/whole", content)
    before = counted()
    with open(f"{reader}/whole", "rb", buffering=0) as file:
        same(f"{size} bytes", read_on(file.fileno()), content)
    after = counted()
    asked = after["ahead_bytes"] - before["ahead_bytes"]
    assert asked < size + 4 * KIB, f"{asked} bytes ahead in a file of {size}"
    assert after["ahead_unused_bytes"] == before["ahead_unused_bytes"], (before, after)
    moved = sum(after[name] - before[name] for name in ("read_bytes", "inline_read_bytes"))
    assert moved <= size + 64 * KIB, f"{moved} bytes moved of {size}"
    if size > MIB:
        assert after["reads_ahead"] - before["reads_ahead"] >= size // (256 * KIB) - 4, (before, after)
os.unlink(f"{writer}/whole")
with open(f"{export}/plain", "wb") as file:
    file.write(os.urandom(3 * MIB))
with open(f"{work}/plain/plain", "rb", buffering=0) as file:
    read_on(file.fileno())
assert counted("plain")["ahead_bytes"] == 0, counted("plain")
# Who reads a little, or jumps about, is not followed.
with open(f"{reader}/plain", "rb", buffering=0) as file:
    before = counted()["ahead_bytes"]
    os.pread(file.fileno(), 4 * KIB, 0)
    for at in random.sample(range(1, 40), 30):
        os.pread(file.fileno(), 4 * KIB, at * 64 * KIB)
    assert counted()["ahead_bytes"] == before, "random reads are read ahead of"

# Who has paused, and goes on where what was read ahead ends: some 8 MiB behind what he has read.
for at in (10 * MIB - 64 * KIB, 10 * MIB + 64 * KIB, 10 * MIB + 192 * KIB):
    begun = Begun("paused")
    time.sleep(1.1)
    same(f"at {at} after a pause", os.pread(begun.fd, 128 * KIB, at), begun.old[at:at + 128 * KIB])
    begun.goes_on("after a pause", begun.old)
# Little is read in vain of a file in which somebody reads two pages here and there.
put(f"{writer}/index", os.urandom(32 * MIB))
with open(f"{reader}/index", "rb", buffering=0) as file:
    before = counted()
    for at in random.sample(range(1, 31), 20):
        for page in range(2):
            os.pread(file.fileno(), 4 * KIB, at * MIB + page * 4 * KIB)
    after = counted()
    assert after["ahead_bytes"] - before["ahead_bytes"] <= 20 * 256 * KIB, (before, after)

# What another client has changed meanwhile is not what was read before.
for at, size in ((NOT_READ, 4 * MIB), (NOT_READ + 1, 5), (6 * MIB - 7, MIB + 13), (9 * MIB - 1, 1)):
    begun = Begun("written")
    fresh = os.urandom(size)
    with open(f"{writer}/written", "r+b", buffering=0) as file:
        file.seek(at)
        file.write(fresh)
    begun.goes_on(f"written at {at}", with_new(begun.old, at, fresh))
# The kernel learns of the new end from what is answered, and must not take a later answer for it.
for i in range(8):
    begun, size = Begun("cut"), 5 * MIB + 7 + i * 100 * KIB
    os.truncate(f"{writer}/cut", size)
    begun.goes_on("cut by another", begun.old[:size])
begun = Begun("grown", BEGUN + MIB)
more = os.urandom(3 * MIB + 1)
with open(f"{writer}/grown", "ab", buffering=0) as file:
    file.write(more)
begun.goes_on("grown by another", begun.old + more)

# Also where our lease had run out before, and nobody told us; and where there is another one since.
for looks in (False, True):
    begun = Begun("late")
    time.sleep(6)
    fresh = os.urandom(MIB)
    with open(f"{writer}/late", "r+b", buffering=0) as file:
        file.seek(4 * MIB)
        file.write(fresh)
    if looks:
        os.stat(f"{reader}/late")
    begun.goes_on("written behind a lease", with_new(begun.old, 4 * MIB, fresh))

# Nor what this mount has changed itself, in whatever way.
def direct(path, at, fresh):
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    memory = mmap.mmap(-1, len(fresh))
    memory.write(fresh)
    assert os.pwrite(fd, memory, at) == len(fresh)
    os.close(fd)


def buffered(path, at, fresh):
    with open(path, "r+b", buffering=0) as file:
        file.seek(at)
        file.write(fresh)


def copied(path, at, fresh):
    put(f"{path}.from", fresh)
    with open(f"{path}.from", "rb") as source, open(path, "r+b") as target:
        assert os.copy_file_range(source.fileno(), target.fileno(), len(fresh), 0, at) == len(fresh)
    os.unlink(f"{path}.from")


for how in (direct, buffered, copied):
    begun = Begun("own")
    fresh = os.urandom(MIB)
    how(f"{reader}/own", 4 * MIB, fresh)
    begun.goes_on(f"{how.__name__} here", with_new(begun.old, 4 * MIB, fresh))
begun = Begun("own")
os.truncate(f"{reader}/own", 4 * MIB + 5)
begun.goes_on("cut here", begun.old[:4 * MIB + 5])
begun = Begun("own")
subprocess.run(["fallocate", "-p", "-o", str(4 * MIB), "-l", str(MIB), f"{reader}/own"], check=True)
begun.goes_on("a hole here", with_new(begun.old, 4 * MIB, bytes(MIB)))

# Who changes a file while he reads it has little of it read in vain.
put(f"{writer}/in_place", os.urandom(8 * MIB))
before = counted()
with open(f"{reader}/in_place", "r+b", buffering=0) as file:
    for at in range(0, 8 * MIB, 64 * KIB):
        file.seek(at)
        piece = file.read(64 * KIB)
        file.seek(at)
        file.write(piece[::-1])
after = counted()
assert after["ahead_bytes"] - before["ahead_bytes"] < 16 * MIB, (before, after)

# Nor has who reads what another client goes on to change.
put(f"{writer}/changing", os.urandom(8 * MIB))
before = counted()
with open(f"{reader}/changing", "rb", buffering=0) as file, open(f"{writer}/changing", "r+b", buffering=0) as other:
    for at in range(0, 8 * MIB, 64 * KIB):
        file.read(64 * KIB)
        other.seek(8 * MIB - 64 * KIB)
        other.write(os.urandom(64 * KIB))
        os.stat(f"{reader}/changing")
after = counted()
assert after["ahead_bytes"] - before["ahead_bytes"] < 40 * MIB, (before, after)

# And on the server's own host, a moment later.
begun = Begun("outside")
fresh = os.urandom(MIB)
with open(f"{export}/outside", "r+b", buffering=0) as file:
    file.seek(4 * MIB)
    file.write(fresh)
time.sleep(1.5)
begun.goes_on("written at the server", with_new(begun.old, 4 * MIB, fresh))

# A file without a name is read on, and one that was replaced stays what it was.
begun = Begun("nameless")
os.unlink(f"{writer}/nameless")
put(f"{writer}/nameless", b"another one")
begun.goes_on("without its name", begun.old)

# Many readers at once, beside who writes large pieces and needs the same buffers: all of it is right, and nobody waits for ever.
contents = {f"many{i}": os.urandom(6 * MIB + i) for i in range(12)}
for name, content in contents.items():
    put(f"{export}/{name}", content)
wrong = []


def reads(name):
    for _ in range(3):
        with open(f"{reader}/{name}", "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if read_on(file.fileno(), step=100_000) != contents[name]:
                wrong.append(name)


def writes(name):
    content = os.urandom(8 * MIB)
    for _ in range(4):
        put(f"{reader}/{name}", content)
    with open(f"{export}/{name}", "rb") as file:
        if file.read() != content:
            wrong.append(name)


threads = [threading.Thread(target=reads, args=(name,)) for name in contents]
threads += [threading.Thread(target=writes, args=(f"new{i}",)) for i in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong

# The server's worker dies while a file is read.
content = os.urandom(48 * MIB)
put(f"{export}/long", content)
for kill_at in (MIB, 9 * MIB + 5, 30 * MIB):
    with open(f"{reader}/long", "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        got = read_on(file.fileno(), kill_at)
        for child in children(server):
            os.kill(child, signal.SIGKILL)
        same(f"over a crash at {kill_at}", got + read_on(file.fileno()), content)

# Who waits for a server that does not answer can be killed.
with open(f"{reader}/long", "rb", buffering=0) as file:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
READS = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
left = 1 << 20
while left: left -= len(os.read(fd, left))
print("begun", flush=True)
sys.stdin.readline()
while os.read(fd, 65536): pass
print("read", flush=True)
"""
held = (server, *children(server))
for _ in range(2):
    victim = subprocess.Popen([sys.executable, "-c", READS, f"{reader}/long"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True)
    assert victim.stdout.readline() == "begun\n"
    freeze(*held)
    try:
        victim.stdin.write("go on\n")
        victim.stdin.flush()
        time.sleep(1)
        assert victim.poll() is None, "it did not need the server"
        victim.kill()
        begin = time.monotonic()
        victim.wait(timeout=20)
        print(f"killed at a silent server: gone in {time.monotonic() - begin:.1f} s")
    finally:
        thaw(*held)
with open(f"{reader}/long", "rb", buffering=0) as file:
    same("behind that", read_on(file.fileno()), content)
print(f"read ahead: {counted()['ahead_bytes'] >> 20} MiB, of which {counted()['ahead_unused_bytes'] >> 20} were not wanted")
