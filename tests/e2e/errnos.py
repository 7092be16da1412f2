"""errnos.py EXPORT MOUNT SERVER_PID: see errnos.sh."""
import ctypes
import errno
import fcntl
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from processes import children, freeze, thaw

export, mount, server = sys.argv[1], sys.argv[2], int(sys.argv[3])
DEADLINE = 3
KIB = 1024
libc = ctypes.CDLL(None, use_errno=True)


def outcome(call, *arguments):
    """The errno's name, or what it returned."""
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def expect(what, got, *due):
    print(f"{what}: {got}")
    assert got in due, f"{what}: {got}, not {due}"


def works(call):
    """Whether it succeeds, within a while."""
    end = time.monotonic() + 10 * DEADLINE
    while time.monotonic() < end:
        if not isinstance(outcome(call), str):
            return True
        time.sleep(0.01)
    return False


def create(name, flags=os.O_RDWR):
    return os.open(f"{mount}/{name}", os.O_CREAT | flags, 0o644)


def fill(fd, at=0):
    """Writes until there is no room; how far it came."""
    while True:
        try:
            at += os.pwrite(fd, b"f" * 64 * KIB, at)
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            return at


def msync(view):
    return outcome(view.flush)


# ---- no room ------------------------------------------------------------------------------------
hole = create("hole")
os.ftruncate(hole, 64 * KIB)
mapped = mmap.mmap(hole, 64 * KIB)
inside = create("inside")
os.pwrite(inside, b"i" * 100, 0)
full = create("full")
size = fill(full)
expect("bytes in a full export", size > 3 << 20, True)
expect("fsync of what was written", outcome(os.fsync, full), None)
expect("write to a full export", outcome(os.pwrite, full, b"x" * 8192, size + 65536), "ENOSPC")
expect("a large write", outcome(os.pwrite, full, b"x" * (1 << 20), size + 65536), "ENOSPC")
append = create("append", os.O_WRONLY | os.O_APPEND)
expect("an append", outcome(os.write, append, b"x" * 8192), "ENOSPC")
expect("fallocate", outcome(os.posix_fallocate, full, 0, 16 << 20), "ENOSPC")
copy = create("copy")
expect("copy_file_range", outcome(os.copy_file_range, full, copy, 1 << 20), "ENOSPC")
expect("a write over what is there", outcome(os.pwrite, inside, b"j" * 100, 0), 100)
expect("a larger file without bytes", outcome(os.ftruncate, inside, 1 << 20), None)
# What a mapping stores is written later: who asks next is told, once.
mapped[0:4096] = b"m" * 4096
expect("msync of a page without room", msync(mapped), "ENOSPC", "EIO")
expect("fsync after it was told", outcome(os.fsync, hole), None)
mapped[4096:8192] = b"m" * 4096
expect("fsync of a mapped page without room", outcome(os.fsync, hole), "ENOSPC", "EIO")
expect("fsync after it was told", outcome(os.fsync, hole), None)
# Pages that go out together, of which some have room.
os.ftruncate(full, size - 16 * KIB)
mapped[0:64 * KIB] = b"p" * (64 * KIB)
expect("msync of pages that have room in part", msync(mapped), "ENOSPC", "EIO")
expect("fsync after it was told", outcome(os.fsync, hole), None)
os.unlink(f"{mount}/full")
os.close(full)
# What is closed is given up behind the close.
expect("a write when there is room", works(lambda: os.write(append, b"x" * 8192)), True)
mapped[8192:12288] = b"n" * 4096
expect("msync when there is room", msync(mapped), None)
with open(f"{export}/hole", "rb") as file:
    expect("what the mapping stored", file.read()[8192:12288] == b"n" * 4096, True)

# ---- no inodes ----------------------------------------------------------------------------------
made = []
while True:
    try:
        os.close(create(f"inode-{len(made)}"))
    except OSError as error:
        expect("create without inodes", errno.errorcode[error.errno], "ENOSPC")
        break
    made.append(f"{mount}/inode-{len(made)}")
expect("mkdir", outcome(os.mkdir, f"{mount}/d"), "ENOSPC")
expect("symlink", outcome(os.symlink, "x", f"{mount}/s"), "ENOSPC")
expect("mknod", outcome(os.mkfifo, f"{mount}/p"), "ENOSPC")
expect("O_EXCL of what is there", outcome(os.open, made[0], os.O_CREAT | os.O_EXCL | os.O_WRONLY), "EEXIST")
expect("rename", outcome(os.rename, made[0], f"{mount}/renamed"), None)
os.unlink(f"{mount}/renamed")
for name in made[1:]: os.unlink(name)
expect("mkdir when there is room", works(lambda: os.mkdir(f"{mount}/d")), True)

# ---- read-only, behind the server's back ----------------------------------------------------------
mapped.close()
for fd in (hole, inside, append, copy): os.close(fd)
time.sleep(1.2)  # what was closed is given up within a second, at the server too
def remount(how):
    for _ in range(50):
        if subprocess.run(["mount", "-o", f"remount,{how}", export], stderr=subprocess.DEVNULL).returncode == 0: return
        time.sleep(0.1)
    raise AssertionError("the export stays busy")
remount("ro")
expect("open for writing", outcome(os.open, f"{mount}/hole", os.O_WRONLY), "EROFS")
expect("create", outcome(create, "new"), "EROFS")
expect("truncate", outcome(os.truncate, f"{mount}/hole", 1), "EROFS")
for what, call in {"unlink": lambda: os.unlink(f"{mount}/hole"), "rename": lambda: os.rename(f"{mount}/hole", f"{mount}/h"),
                   "link": lambda: os.link(f"{mount}/hole", f"{mount}/h"), "mkdir": lambda: os.mkdir(f"{mount}/e"),
                   "rmdir": lambda: os.rmdir(f"{mount}/d"), "chmod": lambda: os.chmod(f"{mount}/hole", 0o600),
                   "utimens": lambda: os.utime(f"{mount}/hole"), "symlink": lambda: os.symlink("x", f"{mount}/s"),
                   "setxattr": lambda: os.setxattr(f"{mount}/hole", "trusted.x", b"1")}.items():
    expect(what, outcome(call), "EROFS")
with open(f"{mount}/hole", "rb") as file: expect("a read", len(file.read()), 64 * KIB)
remount("rw")
expect("chmod when it may be written", outcome(os.chmod, f"{mount}/hole", 0o600), None)

# ---- no answer ------------------------------------------------------------------------------------
def freeze_server():
    """The pids of what it has stopped."""
    pids = [server, *children(server)]
    freeze(*pids)
    return pids

files = {name: create(name) for name in ("one", "two", "three", "four", "five", "six")}
for fd in files.values(): os.pwrite(fd, b"before", 0)
os.ftruncate(files["five"], 8192)
mapped = mmap.mmap(files["five"], 8192)
page = bytes(mapped[0:1])  # is here by now, and stays
address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
assert libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(8192)) == 0, os.strerror(ctypes.get_errno())
# Each of them in a directory of its own: one that waits holds up whoever wants to change names in it.
# Not made by this mount, which would know what is not in them.
for name in ("asked", "opened", "created", "made", "unlinked", "renamed"):
    os.mkdir(f"{export}/{name}")
    expect(f"{name}, made at the server", works(lambda: os.stat(f"{mount}/{name}")), True)
for name in ("unlinked/victim", "renamed/other"): os.close(create(name))

# Each in a process of its own, all at once: they wait side by side.
calls = {
    "stat": (lambda: os.stat(f"{mount}/asked/never"), "ETIMEDOUT"),
    "open": (lambda: os.open(f"{mount}/opened/never", os.O_RDONLY), "ETIMEDOUT"),
    "create": (lambda: create("created/new"), "ETIMEDOUT"),
    "mkdir": (lambda: os.mkdir(f"{mount}/made/new"), "ETIMEDOUT"),
    "unlink": (lambda: os.unlink(f"{mount}/unlinked/victim"), "ETIMEDOUT"),
    "rename": (lambda: os.rename(f"{mount}/renamed/other", f"{mount}/renamed/another"), "ETIMEDOUT"),
    "write": (lambda: os.pwrite(files["one"], b"during", 0), "ETIMEDOUT"),
    "fsync": (lambda: os.fsync(files["two"]), "ETIMEDOUT"),
    "ftruncate": (lambda: os.ftruncate(files["three"], 3), "ETIMEDOUT"),
    "flock that does not wait": (lambda: fcntl.flock(files["four"], fcntl.LOCK_EX | fcntl.LOCK_NB), "ETIMEDOUT"),
    "statfs": (lambda: os.statvfs(mount), "ETIMEDOUT"),
}
def start(call):
    """A child that makes the call when told to, and tells its outcome."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.alarm(60)
        os.write(tell, str(outcome(call)).encode())
        os._exit(0)
    os.close(tell)
    return pid, told
frozen = freeze_server()
begun = time.monotonic()
children_of = {name: start(call) for name, (call, _) in calls.items()}
for name, (pid, told) in children_of.items():
    os.waitpid(pid, 0)
    expect(f"{name} without an answer", os.read(told, 100).decode(), calls[name][1])
took = time.monotonic() - begun
print(f"all of them after {took:.1f} s")
# A call may ask several times, and a busy machine takes its time; a minute is a hang.
assert DEADLINE - 1 < took < 50, took

# ---- Ctrl-C meanwhile ------------------------------------------------------------------------------
# A child that has closed its files first: closing one asks the server too.
calls["flock that waits"] = (lambda: fcntl.flock(files["four"], fcntl.LOCK_EX), None)  # for as long as it takes
hanging = {name: start(call) for name, (call, _) in calls.items()}
time.sleep(0.5)
begun = time.monotonic()
for name, (pid, told) in hanging.items(): os.kill(pid, signal.SIGINT)
for name, (pid, told) in hanging.items():
    _, status = os.waitpid(pid, 0)
    took = time.monotonic() - begun
    print(f"Ctrl-C during {name}: over after {took:.2f} s, {os.waitstatus_to_exitcode(status)}")
    assert took < 30, (name, took)
    os.close(told)
thaw(*frozen)

# When it is back, whatever was open works, and what was not answered may have been done or not.
expect("a write when it is back", works(lambda: os.pwrite(files["one"], b"after!", 0)), True)
expect("its fsync", outcome(os.fsync, files["one"]), None)
with open(f"{export}/one", "rb") as file: expect("its bytes", file.read(), b"after!")
expect("a name that was asked for", outcome(os.stat, f"{mount}/asked/never"), "ENOENT")

# ---- a store through a mapping that cannot be written -------------------------------------------------
frozen = freeze_server()
mapped[0:6] = b"mapped"
expect("msync without an answer", msync(mapped), "ETIMEDOUT", "EIO")
thaw(*frozen)
expect("calls when it is back", works(lambda: os.stat(f"{mount}/four")), True)
expect("fsync after it was told", outcome(os.fsync, files["five"]), None)
mapped[0:6] = b"MAPPED"
expect("msync when it is back", msync(mapped), None)
with open(f"{export}/five", "rb") as file: expect("what it stored", file.read(6), b"MAPPED")
mapped.close()

# ---- more calls than there are buffers ----------------------------------------------------------------
# Those that wait for one have the same deadline as those that have it.
os.ftruncate(files["two"], 1 << 20)
direct = os.open(f"{mount}/two", os.O_RDONLY | os.O_DIRECT)
ended = []


def read_past_the_pages():
    try:
        os.preadv(direct, [mmap.mmap(-1, 1 << 20)], 0)
    except OSError as error:
        assert error.errno == errno.ETIMEDOUT, error
    ended.append(True)


frozen = freeze_server()
begun = time.monotonic()
threads = [threading.Thread(target=read_past_the_pages) for _ in range(90)]
for thread in threads: thread.start()
for thread in threads: thread.join()
took = time.monotonic() - begun
thaw(*frozen)
expect("calls that end", len(ended), 90)
assert took < 9, f"with a deadline of 3 s they took {took:.1f}"
os.close(direct)

# ---- a file that is gone ------------------------------------------------------------------------------
# A worker that dies leaves what is unlinked and open with its supervisor.
os.unlink(f"{mount}/six")
for pid in children(server): os.kill(pid, signal.SIGKILL)
expect("an unlinked file after a crash", outcome(os.pread, files["six"], 6, 0), b"before")
# Another file under the name: the old one stays the old one, the name means the new one.
os.unlink(f"{export}/one")
with open(f"{export}/one", "w") as file: file.write("other")
expect("a file whose name is another's", outcome(os.pread, files["one"], 6, 0), b"after!")
end = time.monotonic() + 20
while outcome(lambda: open(f"{mount}/one").read()) != "other":
    assert time.monotonic() < end, "the name still means the old file"
for fd in files.values(): expect("close", outcome(os.close, fd), None)
