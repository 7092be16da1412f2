#!/usr/bin/env bash
# The server's worker is killed: calls go on once its supervisor has started another, open files and locks
# keep working. Then the whole server is stopped: calls end with an errno within the deadline (the mount
# has one of 8 s), and umount still works.
set -euo pipefail
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$(dirname "$0") python3 - "$RDFS_E2E_MOUNT" "$RDFS_E2E_SERVER_PID" <<'PYTHON'
import fcntl, os, signal, sys, time
from processes import children, freeze, thaw
mount, supervisor = sys.argv[1], int(sys.argv[2])

def worker():
    pids = children(supervisor)
    assert pids, "the supervisor has no worker"
    return pids[0]

def worker_after(old):
    for _ in range(200):
        pids = [pid for pid in children(supervisor) if pid != old]
        if pids:
            return pids[0]
        time.sleep(0.05)
    raise AssertionError("no new worker")

os.makedirs(f"{mount}/dir/sub")
plain = os.open(f"{mount}/dir/sub/plain", os.O_CREAT | os.O_RDWR)
os.write(plain, b"before")
unlinked = os.open(f"{mount}/unlinked", os.O_CREAT | os.O_RDWR)
os.write(unlinked, b"unlinked")
os.unlink(f"{mount}/unlinked")
secret = os.open(f"{mount}/secret", os.O_CREAT | os.O_RDWR, 0)
os.write(secret, b"mode 000")
closed = os.open(f"{mount}/closed", os.O_CREAT | os.O_RDWR)
os.write(closed, b"chmod 000")
os.fchmod(closed, 0)
locked = os.open(f"{mount}/locked", os.O_CREAT | os.O_RDWR)
fcntl.flock(locked, fcntl.LOCK_EX)
directory = os.open(f"{mount}/dir", os.O_RDONLY | os.O_DIRECTORY)
# What is not open a server that may not open by handle has forgotten: the client has to lead it there again, because
# the caller's kernel, which came there by descriptors, does not.
os.mknod(f"{mount}/dir/sub/source")
os.makedirs(f"{mount}/links/deep")
source, links = (os.open(f"{mount}/{path}", os.O_PATH) for path in ("dir/sub/source", "links/deep"))

for round in range(3):
    old = worker()
    os.kill(old, signal.SIGKILL)
    started = time.monotonic()
    os.link(f"/proc/self/fd/{source}", f"link-{round}", dst_dir_fd=links, follow_symlinks=True)
    assert os.stat(f"{mount}/links/deep/link-{round}").st_nlink == 2 + round, "a link of what is not open"
    assert os.pread(plain, 100, 0).startswith(b"before"), "an open file"
    assert os.pread(unlinked, 100, 0) == b"unlinked", "an unlinked open file"
    assert os.pread(secret, 100, 0) == b"mode 000", "an open file of mode 000"
    assert os.pread(closed, 100, 0) == b"chmod 000", "an open file that was closed to its owner"
    os.pwrite(plain, b"after", 6 + 5 * round)
    assert "sub" in os.listdir(f"{mount}/dir"), "a directory by name"
    assert os.listdir(directory) == ["sub"], "an open directory"
    with open(f"{mount}/dir/sub/new-{round}", "w") as new:
        new.write("new")
    child = os.fork()
    if child == 0:
        other = os.open(f"{mount}/locked", os.O_RDWR)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "a lock was lost"
    worker_after(old)
    print(f"killed the worker: everything went on after {time.monotonic() - started:.2f} s")

# A walk asks for directories ahead: who comes to one that is asked for already waits for that answer, and can
# be killed as well.
for number in range(8):
    os.makedirs(f"{mount}/walk/{number}")
(come, ready), (wait, start) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(120)
    listed = list(os.scandir(f"{mount}/walk"))
    for entry in listed[:2]:
        os.listdir(entry.path)
    time.sleep(0.2)  # the third one comes unasked
    os.write(ready, b"x")
    os.read(wait, 1)
    for entry in listed[2:4]:
        os.listdir(entry.path)
    os._exit(3)
os.read(come, 1)
old = worker()
freeze(supervisor, old)
os.write(start, b"x")
time.sleep(0.5)
started = time.monotonic()
os.kill(child, signal.SIGKILL)
killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
took = time.monotonic() - started
thaw(supervisor, old)
print(f"SIGKILL in a walk: over after {took:.1f} s")
assert killed == -signal.SIGKILL and took < 4, (killed, took)

# They have no file of the mount open: closing it, as dying does, would ask the server too.
def victim(signals):
    (wait, start), (closes, closed_all) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        for number in plain, unlinked, secret, closed, locked, directory:
            os.close(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.alarm(120)  # should nobody kill it
        os.write(closed_all, b"x")
        os.read(wait, 1)
        try:
            os.listdir(f"{mount}/dir")
        finally:
            os._exit(3)
    os.close(closed_all)
    assert os.read(closes, 1) == b"x", "a victim has ended"
    return signals, child, start
victims = [victim(signals) for signals in (
    [signal.SIGKILL], [signal.SIGINT], [signal.SIGUSR1, signal.SIGTERM], [signal.SIGQUIT])]

# Now all of it, for good: frozen first, so that nothing can be answered.
old = worker()
freeze(supervisor, old)
started = time.monotonic()
try:
    os.stat(f"{mount}/not looked at yet")
    raise AssertionError("a stopped server answered")
except OSError as error:
    took = time.monotonic() - started
    print(f"a frozen server: {error.strerror} after {took:.1f} s")
    assert 4 < took < 16, took

# Who hangs on it can be killed at once, also after a signal that he handles; nobody else is disturbed.
for signals, child, start in victims:
    os.write(start, b"x")
    time.sleep(0.5)
    started = time.monotonic()
    for number in signals:
        os.kill(child, number)
        time.sleep(0.2)
    killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    took = time.monotonic() - started
    print(f"{signals[-1].name} while a call hangs: over after {took:.1f} s")
    assert killed == -signals[-1] and took < 4, (killed, took)
thaw(supervisor, old)
for _ in range(100):
    try:
        os.stat(f"{mount}/dir/sub/plain")
        break
    except OSError:
        time.sleep(0.1)
assert os.pread(plain, 6, 0) == b"before", "thawed"
print("thawed: calls succeed again")
PYTHON
