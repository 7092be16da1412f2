#!/usr/bin/env bash
# Usage: coherence.sh --bin BUILD_DIR: two mounts of one export see each other's names and attributes at once.
source "$(dirname "$0")/setup.sh"
begin "$@"

mkdir "$work/export" "$work/a" "$work/b"
new_key "$work/key"
ids=''; [ "$(id -u)" -ne 0 ] || ids=,trusted
serve server --export "e2e=$work/export$ids" --key-file "$work/key"
for name in a b; do
  "$rdfs" "rdfs://127.0.0.1:$port/e2e" "$work/$name" -o key_file="$work/key" -o require=shm -f \
    >"$work/$name.log" 2>&1 </dev/null &
  ends_with_us $!
  clients[${#clients[@]}]=$!
  wait_until 100 is_mounted "$work/$name" || { cat "$work/$name.log" >&2; problem "$name did not mount"; conclude; }
done
timeout 60 python3 - "$work/a" "$work/b" "${clients[@]}" "$work" "$server" <<'PYTHON' || problem "the mounts do not agree"
import os, re, signal, sys, threading, time
a, b = sys.argv[1], sys.argv[2]
pids, work, server = (int(sys.argv[3]), int(sys.argv[4])), sys.argv[5], int(sys.argv[6])

def counters(pid, log):
    seen = len(re.findall(r"round trips:.*\n", open(log).read()))
    os.kill(pid, signal.SIGUSR1)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        lines = re.findall(r"round trips:(.*)\n", open(log).read())
        if len(lines) > seen:
            words = lines[-1].split()
            return dict(zip(words[::2], map(int, words[1::2])))
        time.sleep(0.01)
    raise AssertionError("no counters in the log")

def there(path):
    try:
        os.stat(path)
        return True
    except FileNotFoundError:
        return False

# Attributes, and names that come, go and change what they mean: each seen by the next call.
slowest = 0.0
def timed(action):
    global slowest
    start = time.monotonic()
    action()
    slowest = max(slowest, time.monotonic() - start)
os.mkdir(f"{a}/d")
open(f"{a}/d/f", "w").close()
for i in range(200):
    os.stat(f"{b}/d/f"); os.stat(f"{b}/d")
    timed(lambda: os.chmod(f"{a}/d/f", 0o600 + i % 0o77))
    assert os.stat(f"{b}/d/f").st_mode & 0o777 == 0o600 + i % 0o77, i
    with open(f"{a}/d/f", "ab", buffering=0) as file:
        timed(lambda: file.write(b"x"))
    assert os.stat(f"{b}/d/f").st_size == i + 1, i
    assert not there(f"{b}/d/n")
    links = os.stat(f"{b}/d/f").st_nlink
    timed(lambda: os.link(f"{a}/d/f", f"{a}/d/n"))
    assert there(f"{b}/d/n") and os.stat(f"{b}/d/f").st_nlink == links + 1, i
    os.listdir(f"{b}/d")
    timed(lambda: os.rename(f"{a}/d/n", f"{a}/d/m"))
    assert not there(f"{b}/d/n") and there(f"{b}/d/m"), i
    assert sorted(os.listdir(f"{b}/d")) == ["f", "m"], i
    timed(lambda: os.unlink(f"{a}/d/m"))
    assert not there(f"{b}/d/m"), i
    os.setxattr(f"{a}/d/f", "user.i", str(i).encode())
    assert os.getxattr(f"{b}/d/f", "user.i") == str(i).encode(), i
print(f"slowest change that had to ask: {slowest * 1000:.1f} ms")

# Nothing is asked for what is known and unchanged.
for _ in range(2):
    before = counters(pids[1], f"{work}/b.log")
    for _ in range(300):
        os.stat(f"{b}/d/f")
    after = counters(pids[1], f"{work}/b.log")
assert sum(after.values()) - sum(before.values()) < 10, (before, after)

# Both change names in one directory and look at the other's: nobody waits for a lease to run out.
os.mkdir(f"{a}/storm")
failed = []
def storm(mine, other, me, you):
    try:
        for i in range(150):
            open(f"{mine}/storm/{me}{i}", "w").close()
            there(f"{mine}/storm/{you}{i}")
            os.rename(f"{mine}/storm/{me}{i}", f"{mine}/storm/{me}r{i}")
            assert not there(f"{other}/storm/{me}{i}") and there(f"{other}/storm/{me}r{i}"), (me, i)
            if i % 2: os.unlink(f"{mine}/storm/{me}r{i}")
            if i % 2: assert not there(f"{other}/storm/{me}r{i}"), (me, i)
    except BaseException as error:
        failed.append(repr(error))
start = time.monotonic()
threads = [threading.Thread(target=storm, args=args) for args in ((a, b, "a", "b"), (b, a, "b", "a"))]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
print(f"storm: {time.monotonic() - start:.2f} s")
assert sorted(os.listdir(f"{a}/storm")) == sorted(os.listdir(f"{b}/storm"))

# A server that is started again does not know who believes what: each client says that it has dropped it.
for i in range(3):
    os.stat(f"{b}/d/f"); os.listdir(f"{b}/d")
    with open(f"/proc/{server}/task/{server}/children") as children: worker = int(children.read())
    os.kill(worker, signal.SIGKILL)
    start = time.monotonic()
    os.mkdir(f"{a}/d/again{i}")
    assert time.monotonic() - start < 4, "it waited for a lease to run out"
    assert there(f"{b}/d/again{i}")
PYTHON
kill -USR1 "$server"
wait_until 50 grep -q 'expired waits' "$work/server.log" || problem "the server tells no leases"
grep 'expired waits' "$work/server.log" | tail -n 1
grep -q 'expired waits 0' "$work/server.log" || problem "something waited for a lease to run out"
for log in server a b; do
  if grep -iE ': (error|warning): ' "$work/$log.log" | grep -vE 'worker (died of signal 9|was started again)'; then problem "an unexpected warning in $log.log"; fi
done
conclude "two mounts of one export"
