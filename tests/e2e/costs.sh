#!/usr/bin/env bash
# How many messages an operation costs, no more and no fewer, as ARCHITECTURE.md says, counted by rdfs itself (SIGUSR1).
set -euo pipefail
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$(dirname "$0") python3 - "$RDFS_E2E_MOUNT" "$RDFS_E2E_CLIENT_PID" "$(dirname "$RDFS_E2E_MOUNT")/rdfs.log" "$RDFS_E2E_SERVER_PID" "$RDFS_E2E_BACKING" <<'PYTHON'
import fcntl, mmap, os, random, struct, subprocess, sys, threading, time
from counters import figures, round_trips
from processes import children, sleeps
mount, client, log, server, backing = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
count = 50
# What some other operation may have spared, or comes a second late.
AT_MOST = ("release", "releasedir")

def costs(what, action, at_most=(), **times_each):
    """Runs `action` and compares: each named operation that often for one (those of AT_MOST and `at_most`: or less),
    all others hardly ever."""
    before = round_trips(client, log)
    action()
    time.sleep(0.05)  # a release is not waited for
    after = round_trips(client, log)
    spent = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    print(f"{what}: " + ", ".join(f"{name} {times / count:g}" for name, times in spent.items()))
    for name in spent.keys() | times_each.keys():
        # A lease may run out meanwhile: a few more are no change of what an operation costs. Nor is the
        # release of what was read or listed earlier.
        times, expected = spent.get(name, 0), times_each.get(name, name in AT_MOST) * count
        assert times <= expected + 6, (what, name, times)
        assert times >= expected - 6 or name in AT_MOST or name in at_most, (what, name, times)

def each(action):
    return lambda: [action(f"{mount}/d/{i}") for i in range(count)]
def make(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
def write_new(path):
    with open(path + ".new", "wb", buffering=0) as file:
        file.write(b"x" * 4096)
def read(path):
    with open(path + ".new", "rb", buffering=0) as file:
        assert len(file.read()) == 4096
def lock(path):
    with open(path, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
def all_shown(last):
    """When the mount shows this, changed last of all, it knows what was changed at the server before."""
    known = os.stat(f"{mount}/{last}").st_mode
    os.chmod(f"{backing}/{last}", known & 0o777 ^ 0o040)
    end = time.monotonic() + 20
    while os.stat(f"{mount}/{last}").st_mode == known:
        assert time.monotonic() < end, last
        time.sleep(0.01)
def listed():
    for i in range(count):
        assert len(os.listdir(f"{mount}/d/e")) == 20

# An open file that nobody uses costs the server nothing, when its first seconds are over.
idle = os.open(f"{mount}/idle", os.O_RDWR | os.O_CREAT)
os.pwrite(idle, b"x" * 100_000, 0)
time.sleep(4)
loops = [sleeps(child, "rdfsd-loop-0") for child in children(server)]
time.sleep(10)
loops = [sleeps(child, "rdfsd-loop-0") - before for child, before in zip(children(server), loops)]
print("the server's first loop slept in 10 s:", loops)
assert loops and max(loops) <= 6, loops
os.close(idle)

os.mkdir(f"{mount}/d")
costs("create", each(make), create=1, release=1)
costs("stat, known", each(os.stat))
costs("chown", each(lambda path: os.chown(path, os.getuid(), os.getgid())), setattr=1)
costs("create and write", each(write_new), create=1, write=1, release=1)
costs("open and read", each(read), open=1, read=1, getattr=1, release=1)
costs("lock and close", each(lock), open=1, setlk=1, flush=1, release=2)  # what was read is closed late
costs("unlink", each(os.unlink), unlink=1, release=1)
os.mkdir(f"{mount}/d/e")
for i in range(20):
    make(f"{mount}/d/e/{i}")
costs("list again", listed)
os.mkdir(f"{mount}/d/many")
for i in range(300):
    make(f"{mount}/d/many/{i}")
assert len(os.listdir(f"{mount}/d/many")) == 300
# It comes in several pages, which are not asked for again while nothing changes.
costs("list a larger one again", lambda: [len(os.listdir(f"{mount}/d/many")) == 300 or 1 / 0 for i in range(count)])
make(f"{mount}/d/many/one more")
assert len(os.listdir(f"{mount}/d/many")) == 301
if os.environ.get("RDFS_E2E_ONLY") == "files and listings":
    sys.exit()

# Names, each of them new.
def path_of(kind):
    return lambda i: f"{mount}/d/{kind}{i}"
def each_of(kind, action):
    return lambda: [action(path_of(kind)(i)) for i in range(count)]
def each_pair(action, old, new):
    return lambda: [action(path_of(old)(i), path_of(new)(i)) for i in range(count)]
def absent(path):
    assert not os.path.exists(path)
costs("mkdir", each_of("directory", os.mkdir), mkdir=1)
costs("a name that is not there, in a new directory", each_of("directory0/", absent))
costs("list", each_of("directory", os.listdir), opendir=1, releasedir=1)
costs("symlink", each_of("symlink", lambda path: os.symlink("there", path)), symlink=1)
costs("readlink", each_of("symlink", os.readlink), readlink=1)
costs("mknod", each_of("fifo", os.mkfifo), mknod=1)
costs("rename", each_pair(os.rename, "fifo", "renamed"), rename=1)
costs("link", each_pair(os.link, "renamed", "link"), link=1)
costs("rmdir", each_of("directory", os.rmdir), rmdir=1)

# A directory that this client has never seen: names and attributes come with the listing, and what ls asks of each file
# beside, a label of SELinux and whether it has an ACL, is asked of the server each by itself.
os.mkdir(f"{backing}/cold")
for i in range(count):
    with open(f"{backing}/cold/{i}", "w") as file:
        file.write("x")
all_shown("idle")
def list_long():
    said = subprocess.run(["ls", "-l", f"{mount}/cold"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert len(said.splitlines()) == count + 1, said
costs("ls -l, cold", list_long, at_most=("getxattr", "listxattr"), getxattr=2, listxattr=1)  # coreutils 9.1: no listxattr

# Files that are open.
files = [os.open(path_of("file")(i), os.O_RDWR | os.O_CREAT) for i in range(count)]
def each_file(action):
    return lambda: [action(file) for file in files]
MIB = b"x" * (1 << 20)  # pages that have been touched: Linux 6.18 sends others one by one
costs("write a MiB", each_file(lambda file: os.pwrite(file, MIB, 0)), commit=1)
costs("fsync", each_file(os.fsync), fsync=1)
# The kernel asks for no fsync where a descriptor goes past its pages.
appending = os.open(f"{mount}/appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
costs("write with RWF_DSYNC", lambda: [os.pwritev(appending, [b"x"], 0, os.RWF_DSYNC) for i in range(count)],
      write=1, fsync=1)
os.close(appending)
os.unlink(f"{mount}/appended")
def sync_directory():
    for i in range(count):
        directory = os.open(f"{mount}/d", os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(directory)
        os.close(directory)
costs("fsync of a directory", sync_directory, opendir=1, fsyncdir=1, releasedir=1)
costs("truncate", each_file(lambda file: os.ftruncate(file, 100_000)), setattr=1)
costs("lseek", each_file(lambda file: os.lseek(file, 0, os.SEEK_HOLE)), seek=1)
costs("fallocate", each_file(lambda file: os.posix_fallocate(file, 0, 200_000)), fallocate=1)
costs("copy_file_range", each_file(lambda file: os.copy_file_range(files[0], file, 4096, 0, 4096)), copy_file_range=1)
lock_of = struct.pack("hhllhh", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0, 0)
costs("getlk", each_file(lambda file: fcntl.fcntl(file, fcntl.F_GETLK, lock_of)), getlk=1)
costs("flock", each_file(lambda file: fcntl.flock(file, fcntl.LOCK_EX)), setlk=1)
costs("setxattr", each_file(lambda file: os.setxattr(file, "user.colour", b"red")), setxattr=1)
costs("getxattr", each_file(lambda file: os.getxattr(file, "user.colour")), getxattr=1)
costs("listxattr", each_file(os.listxattr), listxattr=1)
costs("removexattr", each_file(lambda file: os.removexattr(file, "user.colour")), removexattr=1)
costs("statfs", each_file(os.fstatvfs), statfs=1)
costs("access", each_of("file", lambda path: os.access(path, os.R_OK)))

# Too large for an extent to hold what is read next.
large = os.open(f"{mount}/large", os.O_RDWR | os.O_CREAT)
for i in range(256):
    os.pwrite(large, MIB, i << 20)
os.fsync(large)
os.close(large)
large, page = os.open(f"{mount}/large", os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
blocks = random.Random(1).sample(range(256 << 8), count)
costs("random direct reads", lambda: [os.preadv(large, [page], block * 4096) for block in blocks], read=1)

# Many at once are answered together.
def read_at_once(thread):
    page = mmap.mmap(-1, 4096)
    for block in random.Random(thread).sample(range(256 << 8), 200):
        os.preadv(large, [page], block * 4096)
threads = [threading.Thread(target=read_at_once, args=(i,)) for i in range(16)]
before = figures(client, log)["reads_together"]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
together = figures(client, log)["reads_together"] - before
print(f"of {16 * 200} direct reads by 16 threads {together} answered with others")
assert together > 0

# What others have changed at the server is known to be old, and asked for again once.
def changed_there(change):
    for i in range(count):
        change(f"{backing}/d/file{i}")
    all_shown("d/last")
    # What was recalled is acknowledged beside that.
    acknowledged = None
    while acknowledged != (acknowledged := round_trips(client, log).get("recall_ack", 0)):
        time.sleep(0.2)
each_of("file", os.stat)()
make(f"{mount}/d/last")
changed_there(lambda path: os.chmod(path, 0o640))
costs("stat after a change at the server", each_of("file", os.stat), getattr=1)
# These are open, and have pages, which go a little behind an answer that tells something new; with them the kernel drops what it knows.
asked, last, end = 0, count, time.monotonic() + 20
while last > 6 or asked < count - 6:
    assert time.monotonic() < end, ("stat, again, of what is open", asked, last)
    time.sleep(0.3)
    before = round_trips(client, log).get("getattr", 0)
    each_of("file", os.stat)()
    last = round_trips(client, log).get("getattr", 0) - before
    asked += last
print(f"stat, again, of what is open: getattr {asked / count:g}")
assert asked <= count + 12, asked
costs("stat, known again", each_of("file", os.stat))
changed_there(lambda path: os.rename(path, path + ".moved"))
costs("a name that was taken away at the server", each_of("file", absent), lookup=1)
PYTHON
