#!/usr/bin/env bash
# How many messages an operation costs, as ARCHITECTURE.md says, counted by rdfs itself (SIGUSR1).
set -euo pipefail
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$(dirname "$0") python3 - "$RDFS_E2E_MOUNT" "$RDFS_E2E_CLIENT_PID" "$(dirname "$RDFS_E2E_MOUNT")/rdfs.log" <<'PYTHON'
import fcntl, os, sys, time
from counters import round_trips
mount, client, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
count = 50

def costs(what, action, **most):
    """Runs `action` and compares: each named operation at most that often for one, all others hardly ever."""
    before = round_trips(client, log)
    action()
    time.sleep(0.05)  # a release is not waited for
    after = round_trips(client, log)
    spent = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    print(f"{what}: " + ", ".join(f"{name} {times / count:g}" for name, times in spent.items()))
    for name, times in spent.items():
        # A lease may run out meanwhile: a few more are no change of what an operation costs.
        assert times <= most.get(name, 0) * count + 6, (what, name, times)

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
def listed():
    for i in range(count):
        assert len(os.listdir(f"{mount}/d/e")) == 20

os.mkdir(f"{mount}/d")
costs("create", each(make), create=1, release=1)
costs("stat, known", each(os.stat))
costs("chown", each(lambda path: os.chown(path, os.getuid(), os.getgid())), setattr=1)
costs("create and write", each(write_new), create=1, write=1, release=1)
costs("open and read", each(read), open=1, read=1, getattr=1, release=1)
costs("lock and close", each(lock), open=1, setlk=1, flush=1, release=2, getattr=1)  # what was read is closed late
costs("unlink", each(os.unlink), lookup=1, unlink=1, release=1)
os.mkdir(f"{mount}/d/e")
for i in range(20):
    make(f"{mount}/d/e/{i}")
costs("list", listed, opendir=1, releasedir=1, release=1)
os.mkdir(f"{mount}/d/many")
for i in range(300):
    make(f"{mount}/d/many/{i}")
assert len(os.listdir(f"{mount}/d/many")) == 300
# It comes in several pages, which are not asked for again while nothing changes.
costs("list a larger one again", lambda: [len(os.listdir(f"{mount}/d/many")) == 300 or 1 / 0 for i in range(count)])
make(f"{mount}/d/many/one more")
assert len(os.listdir(f"{mount}/d/many")) == 301
PYTHON
