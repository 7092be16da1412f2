#!/usr/bin/env bash
# A real tree, copied onto the mount with cp -a and with rsync -aHAX, must be found without a difference by
# rsync -aHAXnc --delete; then a directory of many entries is listed while it changes, and a file is larger
# than 32 bits count. At the end neither program may hold descriptors for all that, and names that come and go once more
# must not take more memory (what was freed the C library may keep, for what comes next).
# RDFS_CHECK_FULL=1: /usr/share and a kernel source tree whole; else, and where RDFS_E2E_FILES says how many, some
# thousand files of /usr/share (4000), and of the kernel source tree the folder RDFS_E2E_KERNEL if that is set. RDFS_E2E_ENTRIES, RDFS_E2E_SPARSE_MIB: the sizes of a large
# directory and of a sparse file, for machines that are slow.
set -euo pipefail
mount=$RDFS_E2E_MOUNT
fail() { echo "FAILED: $1" >&2; exit 1; }
full=${RDFS_CHECK_FULL:-0}
[ -z "${RDFS_E2E_FILES:-}" ] || full=0
# The worker is the one that serves; its supervisor only waits. Over ssh it is not ours to look at.
server=''
[ -z "${RDFS_E2E_SERVER_PID:-}" ] || server=$(pgrep -P "$RDFS_E2E_SERVER_PID")
memory() { echo $(($(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status") / 1024)); }  # PID: MiB
# Without the block pool's memory, which stays: as much as it may have, and two for each part of it.
descriptors() { find "/proc/$1/fd" -type l ! -lname '/memfd:rdfs-arena-*' | wc -l; }
holdings() { echo "$(memory "$1") MiB, $(descriptors "$1") descriptors"; }
report() { echo "$1: rdfs holds $(holdings "$RDFS_E2E_CLIENT_PID")${server:+; rdfsd $(holdings $server)}"; }

work=$RDFS_E2E_LOCAL/tree
mkdir "$work"
kernel_source() {  # PATTERN...: the kernel source tree, or what of it matches
  local archive
  archive=$(find /usr/src -maxdepth 2 -name 'linux-source-*.tar.*' -print -quit)
  [ -n "$archive" ] || fail "no kernel source in /usr/src; install the package linux-source"
  mkdir "$work/kernel"
  tar -C "$work/kernel" --wildcards -xf "$archive" "$@"
}
if [ "$full" = 1 ]; then
  # What this user may not read is left out, by name; all else must be there.
  { find /usr/share ! -readable -prune -print 2>/dev/null || true; } | sed 's|^/usr||; s|[][*?\\]|\\&|g' >"$work.unreadable"
  rsync -aHAX --no-devices --no-specials --exclude-from="$work.unreadable" /usr/share "$work/" || fail "/usr/share cannot be copied"
  kernel_source
else
  # sed reads on to the end, so that find is not cut off.
  (cd /usr/share && { find . -readable \( -type f -o -type l \) -size -256k 2>/dev/null || true; } |
    sed -n "1,${RDFS_E2E_FILES:-4000}p" | tar -cf - --no-recursion -T -) | tar -C "$work" -xf -
  [ -z "${RDFS_E2E_KERNEL:-}" ] || kernel_source "*/$RDFS_E2E_KERNEL/*"
fi
# What a plain tree may not have: links across directories, xattrs, ACLs, holes, odd modes and times.
mkdir -p "$work/odd/a" "$work/odd/b"
echo linked >"$work/odd/a/one"
ln "$work/odd/a/one" "$work/odd/b/two"
ln -s ../nowhere "$work/odd/dangling"
mkfifo "$work/odd/fifo"
truncate -s "${RDFS_E2E_SPARSE_MIB:-300}M" "$work/odd/sparse" && printf end | dd of="$work/odd/sparse" bs=1 seek=30000000 conv=notrunc status=none
touch -d '1999-12-31 23:59:59.123456789' "$work/odd/a/one"
setfattr -n user.note -v 'an attribute' "$work/odd/a/one"
setfacl -m u:65534:r "$work/odd/b/two"
chmod 2750 "$work/odd/b"
files=$(find "$work" | wc -l)
[ "$files" -gt 100 ] || fail "the source tree has only $files names"
regular=$(find "$work" -type f | wc -l)
[ "$full" != 1 ] || [ "$regular" -ge 96000 ] || fail "at full size there are only $regular files, not 96,000"

compare() {
  local difference
  difference=$(rsync -aHAXnc --delete --itemize-changes "$work/" "$1/") || fail "rsync could not compare $1"
  [ -z "$difference" ] || { echo "$difference" | head -n 20; fail "$1 differs"; }
}
report "before"
declare -A memory_before descriptors_before
for pid in "$RDFS_E2E_CLIENT_PID" $server; do descriptors_before[$pid]=$(descriptors "$pid"); done
started=$SECONDS
cp -a "$work" "$mount/cp"
compare "$mount/cp"
echo "cp -a of $files names and a check by content: $((SECONDS - started)) s"
started=$SECONDS
rsync -aHAX "$work/" "$mount/rsync/"
compare "$mount/rsync"
echo "rsync -aHAX of the same: $((SECONDS - started)) s"
report "with $((2 * files)) names looked up"
# And as the server sees them.
compare "$RDFS_E2E_BACKING/cp"
compare "$RDFS_E2E_BACKING/rsync"

# Entries that are there all the time must be listed exactly once, whatever comes and goes meanwhile.
entries=${RDFS_E2E_ENTRIES:-10000}
[ "$full" = 1 ] && entries=100000
mkdir "$mount/many"
python3 - "$mount/many" "$entries" <<'PYTHON'
import os, sys, threading
directory, entries = sys.argv[1], int(sys.argv[2])
for i in range(entries):
    os.close(os.open(f"{directory}/keep-{i:06}", os.O_CREAT | os.O_WRONLY))
stop = threading.Event()
def churn():
    i = 0
    while not stop.is_set():
        os.close(os.open(f"{directory}/churn-{i}", os.O_CREAT | os.O_WRONLY))
        os.unlink(f"{directory}/churn-{i}")
        i += 1
thread = threading.Thread(target=churn)
thread.start()
try:
    for _ in range(3):
        seen = [name for name in os.listdir(directory) if name.startswith("keep-")]
        assert len(seen) == len(set(seen)) == entries, (len(seen), len(set(seen)))
finally:
    stop.set()
    thread.join()
PYTHON
echo "a directory of $entries entries, listed while it changes: right"

# Where 32 bits end: a hole below, and with --full every byte of the file.
python3 - "$mount/large" "$RDFS_E2E_BACKING/large" "$full" <<'PYTHON'
import hashlib, os, random, sys
mounted, backing, full = sys.argv[1], sys.argv[2], sys.argv[3] == "1"
edge, block = 1 << 32, random.Random(1).randbytes(1 << 20)
written = hashlib.sha256()
with open(mounted, "wb") as file:
    start = 0 if full else edge - (3 << 20) - 1
    file.seek(start)
    while file.tell() < edge + (5 << 20):
        piece = file.tell().to_bytes(8, "little") + block
        written.update(piece)
        file.write(piece)
    size = file.tell()
assert os.stat(mounted).st_size == os.stat(backing).st_size == size
for path in (mounted, backing):
    with open(path, "rb") as file:
        file.seek(start)
        read = hashlib.sha256()
        while piece := file.read(1 << 20):
            read.update(piece)
        assert read.digest() == written.digest(), path
    if not full:
        fd = os.open(path, os.O_RDONLY)
        assert os.lseek(fd, 0, os.SEEK_DATA) > edge - (4 << 20)
        os.close(fd)
os.truncate(mounted, edge + 1)
assert os.stat(backing).st_size == edge + 1
PYTHON
echo "a file beyond 4 GiB: right"

# Where the transport can do that, and memory may be pinned, the bytes of a file move one-sided.
rdfs=$RDFS_E2E_BIN/fs/fuse/rdfs
transport=$("$rdfs" status "$mount" | awk '$1 == "transport" { print $2 }')
# figure NAME: of the mount's counters.
figure() { "$rdfs" stats --json "$mount" | python3 -c "import json,sys; print(json.load(sys.stdin)['figures']['$1'])"; }
if [[ $transport == shm || $transport == verbs && $(ulimit -l) == unlimited ]]; then
  mib=32
  written=$(figure written_bytes) read=$(figure read_bytes)
  dd if=/dev/urandom of="$mount/moved" bs=1M count=$mib conv=fsync status=none
  dd if="$mount/moved" of=/dev/null bs=1M iflag=direct status=none
  written=$((($(figure written_bytes) - written) >> 20)) read=$((($(figure read_bytes) - read) >> 20))
  [ "$written" -ge $((mib * 9 / 10)) ] || fail "of $mib MiB only $written were written one-sided over $transport"
  [ "$read" -ge $((mib * 9 / 10)) ] || fail "of $mib MiB only $read were read one-sided over $transport"
  echo "of $mib MiB $written were written and $read read one-sided over $transport"
fi

rm -rf "$mount/cp" "$mount/rsync" "$mount/many" "$mount/large" "$mount/moved"
[ -z "$(ls -A "$RDFS_E2E_BACKING")" ] || fail "something is left after rm -rf"
report "after rm -rf"

for pid in "$RDFS_E2E_CLIENT_PID" $server; do
  name=$(cat "/proc/$pid/comm")
  descriptors_more() { echo $(($(descriptors "$pid") - descriptors_before[$pid])); }
  for _ in $(seq 100); do  # the last of them are given up a moment later
    [ "$(descriptors_more)" -gt 64 ] || break
    sleep 0.1
  done
  [ "$(descriptors_more)" -le 64 ] || fail "$name holds $(descriptors_more) descriptors more than before"
done

# The C library keeps what names took once, for names that come: what counts is whether it grows. Memory is the same over
# each transport, and where few files are asked for 20,000 names would take longer than all else.
[ -z "${RDFS_E2E_FILES:-}" ] || exit 0
for round in 1 2; do
  mkdir "$mount/again"
  (cd "$mount/again" && seq 20000 | xargs touch && ls -l >/dev/null)
  rm -rf "$mount/again"
  report "after 20000 names more, $round"
  for pid in "$RDFS_E2E_CLIENT_PID" $server; do
    # A name costs some 800 bytes in rdfs, twice that in rdfsd: all of them would be 16 MiB.
    more=$(($(memory "$pid") - ${memory_before[$pid]:-$(memory "$pid")}))
    [ "$more" -le 8 ] || fail "$(cat "/proc/$pid/comm") holds $more MiB more after names have come and gone"
    memory_before[$pid]=$(memory "$pid")
  done
done
