#!/usr/bin/env bash
# Usage: user_database_root.sh --bin BUILD_DIR     (as root)
#
# A user database that hangs: what the server asks it about one user keeps nobody else waiting, and that user no longer than
# the database itself takes or 10 s. The C library asks a name service cache first, where there is one: ours takes questions
# and does not answer (in a mount namespace; the C library gives it up after some seconds).
set -uo pipefail
[ "$(id -u)" -eq 0 ] || { echo "only root can act as other users" >&2; exit 1; }
[ -n "${RDFS_DATABASE_INSIDE:-}" ] || exec env RDFS_DATABASE_INSIDE=1 unshare --mount "$0" "$@"
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"

mkdir -p "$work/export/roots" "$work/export/users" "$work/mnt" && chmod -R 777 "$work/export"
mount -t tmpfs none /run && mkdir /run/nscd
new_key "$work/key"
serve server --export "data=$work/export,trusted" --key-file "$work/key"
"$rdfs" "rdfs://$address:$port/data" "$work/mnt" -f -o "key_file=$work/key,allow_other" >"$work/rdfs.log" 2>&1 </dev/null &
ends_with_us $!
wait_until 100 is_mounted "$work/mnt" || problem "no mount: $(cat "$work/rdfs.log")"

timeout 60 "${python[@]}" - "$work/mnt" <<'PYTHON' || problem 'one user keeps another one waiting'
import os, socket, sys, threading, time
mount = sys.argv[1]

def make(name):
    """Makes a file and removes it: two requests that nobody can answer but the server. Each in a directory of its own, which
    the kernel locks meanwhile."""
    began = time.monotonic()
    os.close(os.open(f"{mount}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    os.unlink(f"{mount}/{name}")
    return time.monotonic() - began

make("roots/file")
service = socket.socket(socket.AF_UNIX)
service.bind("/run/nscd/socket")
os.chmod("/run/nscd/socket", 0o666)
service.listen(100)
asked = threading.Event()
held = []
def hang():
    while True:
        held.append(service.accept()[0])
        asked.set()
threading.Thread(target=hang, daemon=True).start()

def begin(uid):
    """Makes a file as this user; its process."""
    user = os.fork()
    if user == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        make("users/file")
        os._exit(0)
    return user
# While there was no service the C library has noticed that: it looks again after a hundred questions.
for uid in range(12345, 12645):
    began = time.monotonic()
    user = begin(uid)
    while not asked.is_set() and os.waitid(os.P_PID, user, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.001)
    if asked.is_set(): break
    assert os.waitpid(user, 0)[1] == 0
assert asked.is_set(), "the server has not asked"
slowest, rounds = 0, 0
while (ended := os.waitpid(user, os.WNOHANG)) == (0, 0):
    slowest = max(slowest, make("roots/file"))
    rounds += 1
    time.sleep(0.05)
took = time.monotonic() - began
assert ended[1] == 0
print(f"the user waited for {took:.1f} s; meanwhile root made {rounds} files, one in {slowest * 1000:.0f} ms at most")
assert took > 2, "the database does not hang: this test shows nothing"
assert took < 15
assert rounds > 20 and slowest < 3  # the database hangs for longer
PYTHON

umount "$work/mnt" || problem 'cannot unmount'
conclude 'a user database that hangs'
