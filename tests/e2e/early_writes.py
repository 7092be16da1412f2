"""Writes that are answered while they are on their way: early_writes.py MOUNT EXPORT RDFS WORKER"""
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time

mount, export, rdfs, worker = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
PIECE = bytes(range(256)) * 256
LIMIT = 16 * len(PIECE)  # of a file's size, for the server


def until(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.001)


def early_writes():
    figures = json.loads(subprocess.run([rdfs, "stats", "--json", mount], check=True, stdout=subprocess.PIPE).stdout)
    return next(f["early_writes"] for f in [figures, *(v for v in figures.values() if isinstance(v, dict))]
                if "early_writes" in f)


def states(pid):
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat") as stat:
            found.append(stat.read().rsplit(")", 1)[1].split()[0])
    return found


class Frozen:
    """The server does not answer, and its client has the lease of `fd`: whose next write is answered all the same."""
    def __init__(self, fd):
        self.fd = fd

    def __enter__(self):
        while True:
            os.fsync(self.fd)  # what is on its way would be answered later, and end the lease
            asked = time.monotonic()
            os.write(self.fd, b"x")
            os.fsync(self.fd)
            os.kill(worker, signal.SIGSTOP)
            until(lambda: set(states(worker)) == {"T"}, "the server does not stop")
            if time.monotonic() - asked < 0.3:  # of one second
                return self
            os.kill(worker, signal.SIGCONT)

    def __exit__(self, *_):
        os.kill(worker, signal.SIGCONT)


def expect(number, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == number, error
        return
    raise AssertionError(f"{call.__name__} tells no error")


def same(name):
    """What is read is what the server has."""
    with open(f"{export}/{name}", "rb") as there:
        kept = there.read()
    until(lambda: os.stat(f"{mount}/{name}").st_size == len(kept), f"{name} has another size")
    with open(f"{mount}/{name}", "rb") as here:
        assert here.read() == kept, f"{name} has other bytes"


# ---- who is told of a failure --------------------------------------------------------------------
before = early_writes()
for name in ("fsync", "close"):
    with open(f"{mount}/{name}", "wb") as file:
        file.write(bytes(2 * LIMIT))
resource.prlimit(worker, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))


def write_all(fd):
    for _ in range(64):  # more than can be on their way
        os.write(fd, PIECE)


fd = os.open(f"{mount}/next", os.O_CREAT | os.O_WRONLY)
expect(errno.EFBIG, write_all, fd)
try:
    os.close(fd)
except OSError as error:  # of another that was on its way
    assert error.errno == errno.EFBIG, error
same("next")

for tells in (os.fsync, os.close):
    name = tells.__name__
    fd = os.open(f"{mount}/{name}", os.O_RDWR)
    other = os.open(f"{mount}/{name}", os.O_RDWR)
    third = os.open(f"{mount}/{name}", os.O_RDWR)
    reader = os.open(f"{mount}/{name}", os.O_RDONLY)
    with Frozen(fd):
        assert os.pwrite(fd, PIECE, LIMIT) == len(PIECE)  # told of by nobody yet
    expect(errno.EFBIG, os.fsync, other)  # who syncs the file, whoever wrote
    os.close(other)
    # Nobody else is: their calls are carried out.
    assert os.pwrite(third, b"third", 0) == 5
    os.close(third)
    os.close(reader)
    with open(f"{export}/{name}", "rb") as there:
        assert there.read(5) == b"third"
    child = os.fork()
    if child == 0:
        os._exit(0)  # closes it, and looks at no error
    os.waitpid(child, 0)
    expect(errno.EFBIG, tells, fd)
    if tells is os.fsync:
        os.fsync(fd)  # once
        until(lambda: os.pread(fd, len(PIECE), LIMIT) == bytes(len(PIECE)), "what failed is read")
        os.close(fd)
    same(name)

# A call that the kernel cuts into several writes: where one in the middle tells the error, the program hears only how
# much went before it. Fsync and close tell it all the same.
for tells in (os.fsync, os.close):
    name = f"cut-{tells.__name__}"
    fd = os.open(f"{mount}/{name}", os.O_CREAT | os.O_RDWR)
    much = bytes(8 << 20)
    with Frozen(fd):
        thaws = threading.Timer(0.3, os.kill, (worker, signal.SIGCONT))
        thaws.start()
        went = os.pwrite(fd, much, LIMIT)
        thaws.join()
    assert 0 < went < len(much), f"{went} bytes were answered"
    resource.prlimit(worker, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    while went < len(much):
        try:
            went += os.pwrite(fd, much[went:], LIMIT + went)
        except OSError as error:  # of another that was on its way
            assert error.errno == errno.EFBIG, error
    resource.prlimit(worker, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))
    expect(errno.EFBIG, tells, fd)
    if tells is os.fsync:
        os.close(fd)


def closes_when_it_thaws(name, offset, number=None):
    """close(2) while the server is frozen for a second ends when that thaws, and tells how the writes went."""
    fd = os.open(f"{mount}/{name}", os.O_CREAT | os.O_RDWR)
    Frozen(fd).__enter__()
    assert os.pwrite(fd, PIECE, offset) == len(PIECE)
    thaw = threading.Timer(1, os.kill, (worker, signal.SIGCONT))
    began = time.monotonic()
    thaw.start()
    if number is None:
        os.close(fd)
    else:
        expect(number, os.close, fd)
    took = time.monotonic() - began
    thaw.join()
    assert 0.9 < took < 10, f"close of {name} takes {took} s"
    same(name)


closes_when_it_thaws("thawed", 0)
closes_when_it_thaws("thawed and too large", LIMIT, errno.EFBIG)
resource.prlimit(worker, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert early_writes() - before > 15, early_writes()


# ---- who waits while the server hangs ------------------------------------------------------------
def killed(fd, then):
    """A program that has written early and does `then`, and is killed: it goes though the server hangs."""
    ready, says = os.pipe()
    goes, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(goes, 1)
        Frozen(fd).__enter__()
        os.write(fd, PIECE)
        os.write(says, b"x")
        then(fd)
        os._exit(1)
    os.close(fd)  # before there is anything that it would wait for
    os.write(go, b"x")
    try:
        assert os.read(ready, 1) == b"x"
        time.sleep(0.2)
        os.kill(child, signal.SIGKILL)
        ended = []

        def gone():
            pid, status = os.waitpid(child, os.WNOHANG)
            ended.append(status)
            return pid != 0
        until(gone, f"a program that was killed in {then.__name__} stays", 10)
        assert os.WIFSIGNALED(ended[-1]), f"{then.__name__} does not wait for what was written"
    finally:
        os.kill(worker, signal.SIGCONT)


def sleeps(_):
    time.sleep(100)


def closes(fd):
    os.close(fd)


def syncs(fd):
    os.fsync(fd)


def looks_at_it(fd):
    os.stat(fd)


def lists(_):
    os.listdir(mount)


for then in (sleeps, closes, syncs, looks_at_it, lists):
    fd = os.open(f"{mount}/{then.__name__}", os.O_CREAT | os.O_RDWR)
    killed(fd, then)
    until(lambda: os.stat(f"{export}/{then.__name__}").st_size > len(PIECE), "what was written is lost")
    same(then.__name__)
