#!/usr/bin/env bash
# Usage: host_crash.sh --bin BUILD_DIR --over TRANSPORT
#
# The server's host has crashed, as far as a new worker can tell: the id of its boot is another. Whom fsync and close
# tell then that something may be lost. By root: the id is replaced for the programs here only.
set -euo pipefail
[ "${1:-}" = --private ] || exec unshare --mount "$0" --private "$@"
shift
boot_id=$(mktemp)
trap 'rm -f "$boot_id"' EXIT
echo before >"$boot_id"
mount --bind "$boot_id" /proc/sys/kernel/random/boot_id
program=$(cat <<'PYTHON'
import errno, os, signal, sys, time
from processes import children
mount, supervisor, boot_id = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def opened(name, flags=os.O_RDWR):
    return os.open(f"{mount}/{name}", flags | os.O_CREAT)

def expect(call, fd, *errors):
    """What the call says, one time after the other."""
    for number, error in enumerate(errors):
        try:
            call(fd)
            said = None
        except OSError as failed:
            said = failed.errno
        assert said == error, f"{call.__name__}, {number}: {said}, not {error}"

def close_copy(fd):
    os.close(os.dup(fd))

written, other = opened("written"), opened("written")
closed, synced, durable = opened("closed"), opened("synced"), opened("durable", os.O_WRONLY | os.O_DSYNC)
for fd in written, closed, synced, durable:
    os.write(fd, b"before")
os.close(closed)
os.fsync(synced)

with open(boot_id, "w") as file:
    file.write("after\n")
old = children(supervisor)
os.kill(old[0], signal.SIGKILL)
while children(supervisor) in ([], old):
    time.sleep(0.05)
os.write(durable, b"after")

expect(close_copy, written, errno.EIO, errno.EIO)
expect(close_copy, other, None)
expect(os.fsync, other, errno.EIO, None)
expect(os.fsync, written, errno.EIO, None)
expect(close_copy, written, None)
expect(os.fsync, opened("closed"), errno.EIO, None)
expect(os.fsync, opened("closed", os.O_RDONLY), None)
for fd in synced, durable:
    expect(os.fsync, fd, None)
    expect(os.close, fd, None)
print("fsync and close tell what a crash of the server's host may have lost")
PYTHON
)
export program boot_id
# shellcheck disable=SC2016
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$(dirname "$0") "$(dirname "$0")/with-mount" "$@" --warnings-expected -- \
  bash -c 'python3 -c "$program" "$RDFS_E2E_MOUNT" "$RDFS_E2E_SERVER_PID" "$boot_id"'
