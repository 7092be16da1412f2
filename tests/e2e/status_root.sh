#!/usr/bin/env bash
# Usage: status_root.sh --bin BUILD_DIR     (as root; others' mounts are $RDFS_E2E_USER's, or rdfs-test's)
#
# root's status finds what root has started, with a login's XDG_RUNTIME_DIR or without, and the mounts and servers of
# other users, and says whose they are; what these put in its way does not stop it and steers no terminal. In a mount
# namespace with a /run of its own.
set -uo pipefail
[ "$(id -u)" -eq 0 ] || { echo "only root may ask for other users' mounts" >&2; exit 1; }
[ -n "${RDFS_STATUS_INSIDE:-}" ] ||
  exec env -u XDG_RUNTIME_DIR RDFS_STATUS_INSIDE=1 unshare --mount --propagation private "$0" "$@"
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
user=${RDFS_E2E_USER:-rdfs-test}
uid=$(id -u "$user") || exit 1
mount -t tmpfs -o mode=755 none /run || { echo "$this: no /run of its own" >&2; exit 1; }
mkdir -p /run/user && mkdir -m 700 /run/user/0 "/run/user/$uid"
chown "$user" "/run/user/$uid"
mkdir "$work/export" "$work/mnt" "$work/login" "$work/cron" "$work/theirs"
chown "$user" "$work/login" "$work/cron" "$work/theirs"
# theirs WORD...: as that user, without the variable.
theirs() { setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups env HOME="$work" USER="$user" "$@"; }
login=XDG_RUNTIME_DIR=/run/user/$uid
# says FILE REGEX WHAT
says() { grep -qE -- "$2" "$1" || problem "$3: no line matches $2: $(cat -v "$1")"; }

export XDG_RUNTIME_DIR=/run/user/0
serve server --export "data=$work/export,root_squash" --no-auth
source=rdfs://127.0.0.1:$port/data
"$rdfs" "$source" "$work/mnt" >"$work/out" 2>&1 || problem "no mount: $(cat "$work/out")"
for how in "$XDG_RUNTIME_DIR" ''; do
  env XDG_RUNTIME_DIR="$how" "$rdfs" status "$work/mnt" >"$work/out" 2>&1 || problem "root's mount, with '$how': $(cat "$work/out")"
  env XDG_RUNTIME_DIR="$how" "$rdfsd" status >"$work/out" 2>&1 || problem "root's server, with '$how': $(cat "$work/out")"
  says "$work/out" "^port +$port\$" "rdfsd status with '$how'"
done
unset XDG_RUNTIME_DIR

# One was mounted in a login, the other by cron; each is found from either.
theirs env "$login" "$rdfs" "$source" "$work/login" >"$work/out" 2>&1 || problem "no mount: $(cat "$work/out")"
theirs "$rdfs" "$source" "$work/cron" >"$work/out" 2>&1 || problem "no mount: $(cat "$work/out")"
for mount in login cron; do
  theirs "$rdfs" status "$work/$mount" >"$work/out" 2>&1 || problem "$mount, from cron: $(cat "$work/out")"
  theirs env "$login" "$rdfs" status "$work/$mount" >"$work/out" 2>&1 || problem "$mount, from a login: $(cat "$work/out")"
  "$rdfs" status "$work/$mount" >"$work/out" 2>&1 || problem "root is not told of $mount: $(cat "$work/out")"
  says "$work/out" "^user +$user\$" "root's status of $mount"
  says "$work/out" "^mount +$work/$mount\$" "root's status of $mount"
done
theirs "$rdfs" status "$work/mnt" >"$work/out" 2>&1 && problem "root's mount answers $user: $(cat "$work/out")"
says "$work/out" "looked for in /tmp/rdfs-$uid, /run/user/$uid/rdfs\$" 'who looks in vain'
theirs "$rdfsd" --export "theirs=$work/theirs" --no-auth --port 0 --listen 127.0.0.1 -f >"$work/theirs.log" 2>&1 </dev/null &
ends_with_us $!
wait_until 100 grep -qs 'ready on port' "$work/theirs.log" || problem "no server: $(cat "$work/theirs.log")"
their_port=$(sed -n 's/.*ready on port \([0-9]*\).*/\1/p' "$work/theirs.log" | head -n 1)
"$rdfsd" status >"$work/out" || problem "root's rdfsd status fails"
says "$work/out" "^port +$their_port\$" "root's rdfsd status"

# Nothing that another user says steers a terminal, one that is silent costs two seconds, and what only leads elsewhere is
# not asked.
cat >"$work/hostile.py" <<'PYTHON'
import os, socket, sys
directory, what = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"{directory}/rdfs-{what}.sock")
listener.listen(8)
print("ready", flush=True)
peers = []
while True:
    peers.append(listener.accept()[0])
    if what == "talks":
        peers[-1].recv(100)
        peers.pop().sendall(b"mount \x1b[2Jsteered\n")
PYTHON
# hostile WHAT: in that user's directory of logins.
hostile() {
  theirs python3 "$work/hostile.py" "/run/user/$uid/rdfs" "$1" >"$work/$1" 2>&1 &
  ends_with_us $!
  wait_until 100 grep -qs ready "$work/$1" || problem "no program that $1: $(cat "$work/$1")"
}
python3 - <<'PYTHON' &
import socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("/run/elsewhere.sock")
listener.listen(8)
peer = listener.accept()[0]
print("asked", file=open("/run/elsewhere.asked", "w"))
PYTHON
ends_with_us $!
wait_until 100 test -S /run/elsewhere.sock || problem 'no socket of root'
theirs ln -s /run/elsewhere.sock "/run/user/$uid/rdfs/rdfs-link.sock"
hostile talks
"$rdfs" status >"$work/out" || problem "root's status fails beside one that talks"
says "$work/out" 'mount [?]\[2Jsteered$' 'beside one that talks'
! grep -q $'\e' "$work/out" || problem "an escape reaches root's terminal: $(cat -v "$work/out")"
hostile hides
timeout 60 "$rdfs" status >"$work/out" || problem "root's status fails beside one that is silent"
for mount in mnt cron; do says "$work/out" "^mount +$work/$mount\$" 'beside one that is silent'; done
[ ! -e /run/elsewhere.asked ] || problem 'a link led root to the socket of somebody else'
for mount in mnt login cron; do fusermount3 -u "$work/$mount" || problem "no unmount of $mount"; done
conclude "root's status, and others'"
