#!/usr/bin/env bash
# Usage: outside.sh --bin BUILD_DIR [--over TRANSPORT]: what other processes of the server's host change in the exported directory is seen
# through a mount some milliseconds later, long before a lease has run out.
source "$(dirname "$0")/setup.sh"
begin "$@"

mkdir "$work/export" "$work/mnt"
new_key "$work/key"
ids=''; [ "$(id -u)" -ne 0 ] || ids=,trusted
serve server --export "e2e=$work/export$ids" --key-file "$work/key"
"$rdfs" "rdfs://$address:$port/e2e" "$work/mnt" -o key_file="$work/key" -o "require=${over:-shm}" -f >"$work/rdfs.log" 2>&1 </dev/null &
client=$!
ends_with_us "$client"
wait_until 100 is_mounted "$work/mnt" || { cat "$work/rdfs.log" >&2; problem "rdfs did not mount"; conclude "nothing"; }
timeout 100 "${python[@]}" - "$work/export" "$work/mnt" "$client" "$work/rdfs.log" <<'PYTHON' || problem "the mount does not follow"
import os, sys, time
from counters import round_trips
there, here, pid, log = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]

def messages():
    return sum(round_trips(pid, log).values())

waits = []
def seen(what, true):
    start = time.monotonic()
    while not true():
        # A lease on what is watched lasts five seconds.
        assert time.monotonic() - start < 3, f"{what} is not seen"
        time.sleep(0.0005)
    waits.append((time.monotonic() - start, what))

def stat(path):
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None

os.mkdir(f"{there}/d")
for i in range(20):
    with open(f"{there}/d/{i}", "w") as file: file.write("old")
def look():
    for name in os.listdir(f"{here}/d"): os.stat(f"{here}/d/{name}")
    return os.stat(f"{here}/d")
look(); look()
for i in range(20):
    look()
    os.chmod(f"{there}/d/{i}", 0o640)
    seen("chmod", lambda: os.stat(f"{here}/d/{i}").st_mode & 0o777 == 0o640)
    look()
    with open(f"{there}/d/{i}", "a") as file: file.write("er")
    seen("a longer file", lambda: os.stat(f"{here}/d/{i}").st_size == 5)
    assert open(f"{here}/d/{i}").read() == "older"
    look()
    os.utime(f"{there}/d/{i}", ns=(1, 10**18 + i))
    seen("utimens", lambda: os.stat(f"{here}/d/{i}").st_mtime_ns == 10**18 + i)
    look()
    os.setxattr(f"{there}/d/{i}", "user.i", b"1")
    look()
    os.rename(f"{there}/d/{i}", f"{there}/d/r{i}")
    seen("rename", lambda: stat(f"{here}/d/{i}") is None)
    seen("rename", lambda: stat(f"{here}/d/r{i}") is not None)
    links = look()
    os.mkdir(f"{there}/d/dir{i}")
    seen("mkdir", lambda: os.stat(f"{here}/d").st_nlink == links.st_nlink + 1)
    look()
    os.chmod(f"{there}/d/dir{i}", 0o711)
    seen("chmod of a directory", lambda: os.stat(f"{here}/d/dir{i}").st_mode & 0o777 == 0o711)
    look()
    os.unlink(f"{there}/d/r{i}")
    seen("unlink", lambda: stat(f"{here}/d/r{i}") is None)
    # The second file of that name, put there in one go, as editors and package managers do.
    with open(f"{there}/d/fixed.new", "w") as file: file.write(str(i))
    os.rename(f"{there}/d/fixed.new", f"{there}/d/fixed")
    seen("replaced", lambda: stat(f"{here}/d/fixed") is not None and open(f"{here}/d/fixed").read() == str(i))

# Of a write by a name in a directory that nobody looks at nobody tells: attributes do, a second later. What was granted
# before is not what is read from then on.
os.mkdir(f"{there}/e")
os.mkdir(f"{there}/elsewhere")
with open(f"{there}/e/big", "wb") as file: file.write(b"a" * 1000000)
os.link(f"{there}/e/big", f"{there}/elsewhere/big")
for i in range(3):
    fd = os.open(f"{here}/e/big", os.O_RDONLY)
    time.sleep(0.5)
    os.pread(fd, 1000000, 0)  # granted for longer than the attributes count
    with open(f"{there}/elsewhere/big", "r+b") as file:
        file.seek(500000)
        file.write(f"NEW{i}".encode())
    mtime = os.stat(f"{there}/e/big").st_mtime_ns
    seen("a write by another name", lambda: os.fstat(fd).st_mtime_ns == mtime)
    os.pread(fd, 1000000, 0)
    os.close(fd)
    def content():
        with open(f"{here}/e/big", "rb") as file: return file.read()[500000:500004]
    seen("its content", lambda: content() == f"NEW{i}".encode())

waits.sort()
print(f"seen after {waits[len(waits) // 2][0] * 1000:.1f} ms (median), {waits[-1][0] * 1000:.1f} ms at most ({waits[-1][1]}), "
      f"of {len(waits)} changes")

# What nobody changes is asked for once in five seconds at most: under an unwatched lease it would be twice or more. What
# was closed is given up within a second.
for i in range(3): look(); time.sleep(0.1)
time.sleep(1.2)
names = os.listdir(f"{there}/d")
before = messages()
end = time.monotonic() + 2.5
while time.monotonic() < end:
    for name in names: os.stat(f"{here}/d/{name}")
    time.sleep(0.05)
asked = messages() - before
print(f"{asked} messages for {len(names)} names that nobody changed")
assert asked <= len(names) + 2, asked
PYTHON
if grep -iE ': (error|warning): ' "$work/server.log" "$work/rdfs.log"; then problem "an unexpected warning"; fi
conclude "changes behind the server's back"
