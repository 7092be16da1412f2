#!/usr/bin/env bash
# Usage: coherence.sh --bin BUILD_DIR [--over TRANSPORT]: two mounts of one export, over shm and over tcp unless told otherwise,
# and one of the same directory under another name, see each other's names, attributes and bytes at once, ask nothing about
# what has not changed, and do not wait for a frozen one.
source "$(dirname "$0")/setup.sh"
begin "$@"

export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
mkdir "$work/export" "$work/a" "$work/b" "$work/c"
new_key "$work/key"
ids=''; [ "$(id -u)" -ne 0 ] || ids=,trusted
serve server --export "e2e=$work/export$ids" --export "other=$work/export$ids" --key-file "$work/key"
for name in a b c; do
  require=${over:-tcp} export=e2e
  [ $name != a ] || require=${over:-shm}
  [ $name != c ] || export=other
  "$rdfs" "rdfs://$address:$port/$export" "$work/$name" -o key_file="$work/key" -o "require=$require" -f \
    >"$work/$name.log" 2>&1 </dev/null &
  ends_with_us $!
  clients[${#clients[@]}]=$!
  wait_until 100 is_mounted "$work/$name" || { cat "$work/$name.log" >&2; problem "$name did not mount"; conclude; }
done
# The test bed is slow.
limit=180; [ "$over" != verbs ] || limit=240
timeout $limit "${python[@]}" - "$work/a" "$work/b" "${clients[@]:0:2}" "$work" "$server" <<'PYTHON' || problem "the mounts do not agree"
import os, shutil, signal, subprocess, sys, threading, time
from counters import round_trips
from processes import children
a, b = sys.argv[1], sys.argv[2]
pids, work, server = (int(sys.argv[3]), int(sys.argv[4])), sys.argv[5], int(sys.argv[6])

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

# Nothing is asked for what is known and unchanged, as long as a lease lasts: some attempts are cut by its end.
os.mkdir(f"{a}/tree")
for i in range(4):
    os.mkdir(f"{a}/tree/{i}")
    for j in range(10):
        with open(f"{a}/tree/{i}/{j}", "w") as file: file.write(f"{i} {j}")
    os.symlink("0", f"{a}/tree/{i}/link")
git = shutil.which("git")
if git:
    quiet = dict(stdout=subprocess.DEVNULL, check=True)
    subprocess.run([git, "init", "-q", "--template=", f"{a}/tree"], **quiet)
    subprocess.run([git, "-C", f"{a}/tree", "add", "."], **quiet)
def run(*command):
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
def every(action):
    for folder, _, names in os.walk(f"{b}/tree"):
        for name in names: action(f"{folder}/{name}")
def read(path):
    with open(path, "rb", buffering=0) as file: file.read()
def silent(what, action):
    spent = None
    for _ in range(30):
        action()
        before = round_trips(pids[1], f"{work}/b.log")
        action()
        after = round_trips(pids[1], f"{work}/b.log")
        spent = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
        spent.pop("statfs", 0)  # how full the export is, find asks of any mount
        if not spent: return
    raise AssertionError(f"{what} of an unchanged tree asks the server: {spent}")
silent("stat", lambda: every(os.stat))
silent("read", lambda: every(read))
silent("ls -lR", lambda: run("ls", "-lR", f"{b}/tree"))
silent("find", lambda: run("find", f"{b}/tree", "-newer", f"{b}/d"))
silent("a look for what is not there", lambda: every(lambda path: there(path + ".not")))
silent("readlink", lambda: [os.readlink(f"{b}/tree/{i}/link") for i in range(4)])
if git: silent("git status", lambda: run(git, "--no-optional-locks", "-C", f"{b}/tree", "status"))
assert not there(f"{b}/tree/new")
open(f"{a}/tree/new", "w").close()
assert there(f"{b}/tree/new")

def content(path):
    with open(path, "rb", buffering=0) as file: return file.read()
# What a program was told is written is seen at once by whoever looks, in whatever way, though it may be on its
# way (fs/fuse/content/writes_behind.h).
def size_in_listing(mount, i):
    return [entry.stat().st_size for entry in os.scandir(f"{mount}/d") if entry.name == f"w{i}"][0]
def size_of_link(mount, i):
    os.link(f"{mount}/d/w{i}", f"{mount}/d/link")
    size = os.stat(f"{mount}/d/link").st_size
    os.unlink(f"{mount}/d/link")
    return size
for mount, writer in ((b, a), (a, b), (a, a)):
    for i in range(90):
        written, held = b"", None
        with open(f"{writer}/d/w{i}", "xb", buffering=0) as file:
            for piece in (1, 100, 4096, 5000, 20000, 70000, 3):
                file.write(bytes([i]) * piece)
                written += bytes([i]) * piece
                look = i % 6
                if look == 0: assert os.stat(f"{mount}/d/w{i}").st_size == len(written), (i, piece)
                if look == 1: assert content(f"{mount}/d/w{i}") == written, (i, piece)
                if look == 2: assert size_in_listing(mount, i) == len(written), (i, piece)
                if look == 3: assert size_of_link(mount, i) == len(written), (i, piece)
                if look >= 4 and held is None: held = os.open(f"{mount}/d/w{i}", os.O_RDONLY)
                if look == 4: assert os.pread(held, 200000, 0) == written, (i, piece)
                if look == 5: assert os.lseek(held, 0, os.SEEK_END) == len(written), (i, piece)
        if held is not None: os.close(held)
        with open(f"{work}/export/d/w{i}", "rb") as file: assert file.read() == written, i
        os.unlink(f"{mount}/d/w{i}")

# The same directory under another export's name.
c = f"{work}/c"
for mine, other in ((a, c), (c, a)):
    with open(f"{mine}/d/shared", "xb", buffering=0) as file:
        for i in range(100):
            file.write(b"x" * 100)
            assert os.stat(f"{other}/d/shared").st_size == (i + 1) * 100, (mine, i)
            os.rename(f"{mine}/d/shared", f"{mine}/d/moved")
            assert there(f"{other}/d/moved") and not there(f"{other}/d/shared"), (mine, i)
            os.rename(f"{other}/d/moved", f"{other}/d/shared")
            assert there(f"{mine}/d/shared") and not there(f"{mine}/d/moved"), (mine, i)
    os.unlink(f"{other}/d/shared")

# Bytes that change while they are known here: under a lease nothing is asked, so they must have been recalled.
for i in range(200):
    content(f"{b}/tree/0/0"); content(f"{b}/tree/0/0")
    fresh = b"%08d" % i
    with open(f"{a}/tree/0/0", "r+b", buffering=0) as file: file.write(fresh)
    assert content(f"{b}/tree/0/0") == fresh, i
    if i % 10 == 0:
        os.truncate(f"{a}/tree/0/0", 3)
        assert content(f"{b}/tree/0/0") == fresh[:3], i
    os.chmod(f"{a}/tree/0/1", 0o000)
    if os.getuid():
        try: content(f"{b}/tree/0/1")
        except PermissionError: pass
        else: raise AssertionError("opened what may not be read any more")
    os.chmod(f"{a}/tree/0/1", 0o600)
    content(f"{b}/tree/0/1")

# And those of a file that stays open, within a lease that has just begun: the last one is out when nobody asks.
with open(f"{b}/tree/0/2", "rb", buffering=0) as held:
    for i in range(3):
        time.sleep(1.1)
        begun = time.monotonic()
        os.stat(f"{b}/tree/0/2"); os.pread(held.fileno(), 100, 0)
        with open(f"{a}/tree/0/2", "r+b", buffering=0) as file: file.write(b"held %d" % i)
        seen = os.pread(held.fileno(), 100, 0)
        assert seen == b"held %d" % i or time.monotonic() - begun > 0.8, seen

# One that stays open and grows while nobody has a lease on it: behind the old end are the other's bytes, and no zeros.
def put(path, what, flags=os.O_APPEND):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    assert os.write(file, what) == len(what)
    os.close(file)
put(f"{a}/tree/grows", b"one\n")
with open(f"{b}/tree/grows", "rb", buffering=0) as held:
    assert os.pread(held.fileno(), 100, 0) == b"one\n"
    time.sleep(5.5)
    put(f"{a}/tree/grows", b"two\n")
    assert os.fstat(held.fileno()).st_size == 8
    assert os.pread(held.fileno(), 100, 0) == b"one\ntwo\n"

# Nor is its end where it was when what lies before was granted.
for reader, writer in ((a, b), (b, a)):
    for size in (64 << 10, 128 << 10, 512 << 10, 1 << 20):
        half = os.urandom(size)
        put(f"{writer}/tree/half", half, os.O_TRUNC)
        with open(f"{reader}/tree/half", "rb", buffering=0) as held:
            assert os.pread(held.fileno(), size, 0) == half
            os.chmod(f"{writer}/tree/half", 0o640)
            put(f"{writer}/tree/half", half)
            assert os.fstat(held.fileno()).st_size == 2 * size
            os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            whole = b"".join(iter(lambda: os.read(held.fileno(), 2 * size), b""))
            assert whole == 2 * half, (size, len(whole))

def side_by_side(*actions):
    failed = []
    def guarded(action):
        try: action()
        except BaseException as error: failed.append(repr(error))
    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not failed, failed

# Different bytes of one page, by two clients at once, stay.
with open(f"{a}/page", "wb") as file: file.write(bytes(4096))
def every_other(mount, first):
    with open(f"{mount}/page", "r+b", buffering=0) as file:
        for at in range(first, 512, 2): os.pwrite(file.fileno(), bytes([1 + at % 251]), at)
side_by_side(lambda: every_other(a, 0), lambda: every_other(b, 1))
wanted = bytes(1 + at % 251 for at in range(512)) + bytes(4096 - 512)
assert content(f"{a}/page") == wanted and content(f"{b}/page") == wanted

# Nor is anything lost that both append.
def append(mount, who):
    with open(f"{mount}/log", "ab", buffering=0) as file:
        for i in range(200): assert file.write(f"{who}{i:035d}\n".encode()) == 37
side_by_side(lambda: append(a, "a"), lambda: append(b, "b"))
for mount in a, b:
    lines = content(f"{mount}/log").decode().splitlines()
    for who in "ab":
        assert [line for line in lines if line[0] == who] == [f"{who}{i:035d}" for i in range(200)], mount
    assert len(lines) == 400, mount

# A directory that one has made and puts names into: what the other puts there is there, at once.
for i in range(60):
    os.mkdir(f"{a}/made{i}")
    for name in "xy":
        assert not there(f"{a}/made{i}/{name}0"), i
        open(f"{a}/made{i}/{name}1", "w").close()
        if i % 2: assert there(f"{b}/made{i}/{name}1"), i
        with open(f"{b}/made{i}/{name}0", "w") as file: file.write(name)
        assert there(f"{a}/made{i}/{name}0"), i
        os.rename(f"{b}/made{i}/{name}0", f"{b}/made{i}/{name}2")
        assert there(f"{a}/made{i}/{name}2") and not there(f"{a}/made{i}/{name}0"), i

# Both change names in one directory and look at the other's: nobody waits for a lease to run out.
os.mkdir(f"{a}/storm")
def storm(mine, other, me, you):
    for i in range(150):
        open(f"{mine}/storm/{me}{i}", "w").close()
        there(f"{mine}/storm/{you}{i}")
        os.rename(f"{mine}/storm/{me}{i}", f"{mine}/storm/{me}r{i}")
        assert not there(f"{other}/storm/{me}{i}") and there(f"{other}/storm/{me}r{i}"), (me, i)
        if i % 2: os.unlink(f"{mine}/storm/{me}r{i}")
        if i % 2: assert not there(f"{other}/storm/{me}r{i}"), (me, i)
start = time.monotonic()
side_by_side(lambda: storm(a, b, "a", "b"), lambda: storm(b, a, "b", "a"))
print(f"storm: {time.monotonic() - start:.2f} s")
assert sorted(os.listdir(f"{a}/storm")) == sorted(os.listdir(f"{b}/storm"))

# A server that is started again does not know who believes what, nor what programs were told is written: each client
# says that it has dropped the one, and that the other has arrived.
def size(path): return os.stat(path).st_size
for i in range(4):  # six within a minute are too many
    os.stat(f"{b}/d/f"); os.listdir(f"{b}/d")
    held = [open(f"{a}/d/of-a{i}", "xb", buffering=0), open(f"{b}/d/of-b{i}", "xb", buffering=0)]
    for file in held: file.write(b"x" * 5000)
    for file in held: file.write(b"y" * 5000)
    worker, = children(server)
    os.kill(worker, signal.SIGKILL)
    start = time.monotonic()
    if i % 3 == 0: assert (size(f"{b}/d/of-a{i}"), size(f"{a}/d/of-b{i}")) == (10000, 10000)
    if i % 3 == 1: assert [e.stat().st_size for e in os.scandir(f"{b}/d") if e.name == f"of-a{i}"] == [10000]
    if i % 3 == 2: assert content(f"{b}/d/of-a{i}") == b"x" * 5000 + b"y" * 5000
    os.mkdir(f"{a}/d/again{i}")
    assert time.monotonic() - start < 4, "it waited for a lease to run out"
    assert there(f"{b}/d/again{i}")
    for file in held: file.write(b"z" * 5000)
    assert (size(f"{b}/d/of-a{i}"), size(f"{a}/d/of-b{i}")) == (15000, 15000)
    for file in held: file.close()
PYTHON
kill -USR1 "$server"
wait_until 50 grep -q 'expired waits' "$work/server.log" || problem "the server tells no leases"
grep 'expired waits' "$work/server.log" | tail -n 1
grep -q 'expired waits 0' "$work/server.log" || problem "something waited for a lease to run out"
for name in a b; do
  early=$("$rdfs" stats --json "$work/$name" | sed -n 's/.*"early_writes": \([0-9]*\).*/\1/p')
  [ "${early:-0}" -gt 100 ] || problem "mount $name has answered ${early:-no} writes early"
done

# A frozen client is waited for as long as its lease lasts, and no longer; thawed, it is right: alone, and with a program
# that has its files open, mapped and in the kernel's cache, whichever of the two goes on first.
timeout 180 "${python[@]}" - "$work/a" "$work/b" "${clients[1]}" <<'PYTHON' || problem "a frozen client"
import json, os, select, subprocess, sys, time
from processes import freeze, thaw
a, b, daemon = sys.argv[1], sys.argv[2], int(sys.argv[3])
USER = """
import json, mmap, os, sys
os.chdir(sys.argv[1])
held = os.open("page", os.O_RDONLY)
mapped = mmap.mmap(held, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
for line in sys.stdin:
    mode = os.stat("d/f").st_mode & 0o777
    with open("page", "rb", buffering=0) as file: content = file.read(7)
    seen = [text.decode() for text in (content, os.pread(held, 7, 0), mapped[:7])]
    print(json.dumps([mode, *seen, os.path.exists("tree/one"), os.path.exists("tree/1")]), flush=True)
"""
user = subprocess.Popen([sys.executable, "-c", USER, b], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask():
    user.stdin.write("look\n")
    user.stdin.flush()
def answer():
    return json.loads(user.stdout.readline())
for i, how in enumerate(["alone", "the user first", "the mount first", "the user first"]):
    ask()
    before = answer()
    assert before[4:] == ([True, False] if i else [False, True]), before
    # Who waits for a frozen mount does not stop: the user is stopped first.
    frozen = [daemon] if how == "alone" else [user.pid, daemon]
    freeze(*frozen)
    try:
        start = time.monotonic()
        os.chmod(f"{a}/d/f", 0o640 + i)
        with open(f"{a}/page", "r+b", buffering=0) as file: file.write(b"thawed%d" % i)
        if i == 0: os.rename(f"{a}/tree/1", f"{a}/tree/one")
        waited = time.monotonic() - start
        ask()
        if how == "the user first":
            thaw(user.pid)
            # It has nothing to say before its mount goes on, unless that is what is true.
            early = select.select([user.stdout], [], [], 0.3)[0]
            print("a user answers", "without" if early else "only with", "its mount")
    finally:
        thaw(*frozen)
    print(f"two changes beside a frozen client, {how}: {waited:.2f} s")
    assert waited < 10, waited  # three leases are some 3 s, a session's would be 60
    new = f"thawed{i}"
    assert answer() == [0o640 + i, new, new, new, True, False], how
user.stdin.close()
assert user.wait() == 0
PYTHON

# A rename waits for a frozen client, another mount's rename to the same name overtakes it, and what that mount believes of
# the name it has moved is not believed of where it has come to: there the first one is still to come. (A kernel from before
# 6.16 cannot be told so.)
timeout 60 "${python[@]}" - "$work/a" "$work/b" "$work/c" "${clients[2]}" <<'PYTHON' || problem "renames that overtake each other"
import os, sys, threading, time
from processes import freeze, thaw
a, b, c, daemon = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
if tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 16):
    overtook = 0
    for i in range(5):
        os.makedirs(f"{b}/overtaken{i}/names"); os.mkdir(f"{b}/overtaken{i}/links")
        names = [f"{mount}/overtaken{i}/names" for mount in (a, b)]
        for name in "012": open(f"{names[1]}/{name}", "x").close()
        os.link(f"{names[1]}/1", f"{b}/overtaken{i}/links/one")
        os.stat(f"{names[0]}/0")
        moved = os.stat(f"{names[0]}/2").st_ino
        os.stat(f"{c}/overtaken{i}/links/one")  # a lease on the file at names/1, and on nothing else there
        freeze(daemon)
        try:
            first = threading.Thread(target=lambda: os.rename(f"{names[1]}/0", f"{names[1]}/1"))
            first.start()
            time.sleep(0.05)
            os.rename(f"{names[0]}/2", f"{names[0]}/0")
            overtook += first.is_alive()
        finally:
            thaw(daemon)
        first.join()
        last = {name: os.stat(f"{names[1]}/{name}").st_ino for name in os.listdir(names[1])}
        seen = {name: os.stat(f"{names[0]}/{name}").st_ino for name in "012" if os.path.exists(f"{names[0]}/{name}")}
        assert last == seen and moved in last.values(), (i, moved, last, seen)
    assert overtook, "none overtook the other"
PYTHON
for log in server a b; do
  if grep -iE ': (error|warning): ' "$work/$log.log" | grep -vE 'worker (died of signal 9|was started again)'; then problem "an unexpected warning in $log.log"; fi
done
conclude "mounts of one directory"
