#!/usr/bin/env bash
# A real tree, copied onto the mount with cp -a and with rsync -aHAX, must be found without a difference by
# rsync -aHAXnc --delete; then a directory of many entries is listed while it changes.
# RDFS_CHECK_FULL=1: /usr/share and a kernel source tree whole; else some thousand files of /usr/share.
# RDFS_E2E_FILES: how many of them (default 4000); RDFS_E2E_ENTRIES, RDFS_E2E_SPARSE_MIB: the sizes of a large
# directory and of a sparse file, for machines that are slow.
set -euo pipefail
mount=$RDFS_E2E_MOUNT
fail() { echo "FAILED: $1" >&2; exit 1; }

work=$RDFS_E2E_LOCAL/tree
mkdir "$work"
if [ "${RDFS_CHECK_FULL:-0}" = 1 ]; then
  # What this user may not read is left out of the source, not of the comparison.
  rsync -aHAX --no-devices --no-specials /usr/share "$work/" 2>/dev/null || true
  kernel=$(ls -d /usr/src/linux-source-*.tar.xz "${XDG_CACHE_HOME:-$HOME/.cache}"/rdfs/linux-source*.tar.xz \
    2>/dev/null | head -n 1 || true)
  if [ -n "$kernel" ]; then mkdir "$work/kernel" && tar -C "$work/kernel" -xf "$kernel"; fi
else
  # sed reads on to the end, so that find is not cut off.
  (cd /usr/share && { find . -readable \( -type f -o -type l \) -size -256k 2>/dev/null || true; } |
    sed -n "1,${RDFS_E2E_FILES:-4000}p" | tar -cf - --no-recursion -T -) | tar -C "$work" -xf -
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

compare() {
  local difference
  difference=$(rsync -aHAXnc --delete --itemize-changes "$work/" "$1/") || fail "rsync could not compare $1"
  [ -z "$difference" ] || { echo "$difference" | head -n 20; fail "$1 differs"; }
}
started=$SECONDS
cp -a "$work" "$mount/cp"
compare "$mount/cp"
echo "cp -a of $files names and a check by content: $((SECONDS - started)) s"
started=$SECONDS
rsync -aHAX "$work/" "$mount/rsync/"
compare "$mount/rsync"
echo "rsync -aHAX of the same: $((SECONDS - started)) s"
# And as the server sees it.
compare "$RDFS_E2E_BACKING/cp"

# Entries that are there all the time must be listed exactly once, whatever comes and goes meanwhile.
entries=${RDFS_E2E_ENTRIES:-10000}
[ "${RDFS_CHECK_FULL:-0}" = 1 ] && entries=100000
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
rm -rf "$mount/cp" "$mount/rsync" "$mount/many"
[ -z "$(ls -A "$RDFS_E2E_BACKING")" ] || fail "something is left after rm -rf"
