#!/usr/bin/env bash
# Usage: strict.sh --bin BUILD_DIR [--as-when-root USER]
#
# -o strict: who keeps a file open, and asks for nothing while its lease runs out, reads what another mount has written since.
source "$(dirname "$0")/setup.sh"
begin "$@"
mkdir "$work/export" "$work/first" "$work/second"
head -c 100000 /dev/zero >"$work/export/file"
lease=2
serve server --export "data=$work/export" --no-auth --lease $lease
for name in first second; do
  "$rdfs" "rdfs://127.0.0.1:$port/data" "$work/$name" -f -o strict >"$work/$name.log" 2>&1 </dev/null &
  ends_with_us $!
  wait_until 100 is_mounted "$work/$name" || problem "$name does not mount: $(cat "$work/$name.log")"
done
timeout 60 "${python[@]}" - "$work/first/file" "$work/second/file" "$lease" <<'PYTHON' || problem 'what was read is not what is there'
import mmap, os, sys, time
first, second, lease = sys.argv[1], sys.argv[2], int(sys.argv[3])
kept = os.open(first, os.O_RDONLY)
for written in b"new", b"then", b"last":
    os.pread(kept, 100000, 0)
    time.sleep(1.5 * lease)
    with open(second, "r+b") as other:
        other.write(written)
    assert os.pread(kept, len(written), 0) == written, written
with mmap.mmap(kept, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
    assert mapped[:4] == b"last"
PYTHON
grep -q . "$work/first.log" && conclude 'a strict mount'
