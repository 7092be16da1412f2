#!/usr/bin/env bash
# Usage: locks.sh --bin BUILD_DIR --over TRANSPORT [--as-when-root USER]
#
# Locks of two mounts. Who is refused another kind of flock has none any more, as on a local disk; and what an rdfs that
# was killed had locked is another mount's, once the server has heard nothing of it for a lease.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"

lease=2
mkdir "$work/export" "$work/first" "$work/second"
touch "$work/export/file"
new_key "$work/key"
serve server --export "data=$work/export" --key-file "$work/key" --lease $lease
for name in first second; do
  "$rdfs" "rdfs://$address:$port/data" "$work/$name" -f -o "key_file=$work/key,require=$over" >"$work/$name.log" 2>&1 </dev/null &
  ends_with_us $!
  wait_until 100 is_mounted "$work/$name" || problem "$name does not mount: $(cat "$work/$name.log")"
  [ "$name" = second ] || client=$!
  disown $!  # nobody is told that it was killed
done

timeout 60 "${python[@]}" - "$work/first/file" "$work/second/file" "$client" "$lease" <<'PYTHON' || problem 'locks do not hold, or too long'
import fcntl, os, signal, sys, time
first, second, client, lease = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def refused(fd, kind):
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False

one, other = os.open(first, os.O_RDWR), os.open(second, os.O_RDWR)
fcntl.flock(one, fcntl.LOCK_SH)
fcntl.flock(other, fcntl.LOCK_SH)
assert refused(other, fcntl.LOCK_EX)
os.close(other)
assert not refused(one, fcntl.LOCK_EX), "a lock that nobody has is in the way"

other = os.open(second, os.O_RDWR)
fcntl.lockf(one, fcntl.LOCK_EX, 10)
assert refused(other, fcntl.LOCK_EX)
os.kill(client, signal.SIGKILL)
killed = time.monotonic()
fcntl.flock(other, fcntl.LOCK_EX)
fcntl.lockf(other, fcntl.LOCK_EX, 10)
took = time.monotonic() - killed
print(f"the locks of a mount that was killed were free after {took:.1f} s, with a lease of {lease} s")
assert took < 3 * lease + 10
PYTHON

conclude 'locks of two mounts'
