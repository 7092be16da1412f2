#!/usr/bin/env bash
# Usage: errors.sh --bin BUILD_DIR [--as-when-root USER]
#
# Everything that a person can get wrong: each gets exit status 1 (2 for wrong usage), exactly one line
# on standard error that names the cause and the remedy, and leaves no mount and no process behind.
# As root the cases of ordinary users are left out, and the other way round: run it as both.
set -uo pipefail

# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
# shellcheck source=tests/e2e/private-sshd
. "$(dirname "$0")/private-sshd"
begin "$@"

mnt=$work/mnt
mkdir "$mnt" "$work/export" "$work/full"
touch "$work/full/x" "$work/file" "$work/export/file"
cases=0

# No rdfs or ssh with a path of ours: an ssh takes a moment to notice.
nothing_runs() { ! pgrep -f "(rdfs|ssh|--stdio) .*$work/(mnt|ssh_config|no)" >/dev/null; }
# nothing_left NAME
nothing_left() {
  if is_mounted "$mnt"; then
    problem "$1: the mount is there"
    fusermount3 -uz "$mnt"
  fi
  wait_until 50 nothing_runs || problem "$1: a process is left: $(pgrep -af "$work/mnt")"
}
# refused NAME STATUS REGEX COMMAND...: REGEX for the one line.
refused() {
  local name=$1 status=$2 regex=$3 got lines
  shift 3
  cases=$((cases + 1))
  timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null
  got=$?
  lines=$(wc -l <"$work/err")
  [ "$got" -eq "$status" ] || problem "$name: exit status $got instead of $status: $(cat "$work/err")"
  [ "$lines" -eq 1 ] || problem "$name: $lines lines instead of one: $(cat "$work/err")"
  grep -qE "^rdfs: .*($regex)" "$work/err" || problem "$name: says: $(cat "$work/err")"
  [ ! -s "$work/out" ] || problem "$name: on standard output: $(cat "$work/out")"
  nothing_left "$name"
}
new_key "$work/key"
new_key "$work/wrong_key"
cp "$work/key" "$work/open_key"
chmod 644 "$work/open_key"
serve server --export "data=$work/export" --key-file "$work/key"
source=rdfs://127.0.0.1:$port
key=key_file=$work/key

# ---- the command line ---------------------------------------------------------------------------
refused "no arguments" 2 'SOURCE is required; see rdfs --help' "$rdfs"
refused "no mount point" 2 'MNT is required' "$rdfs" "$source/data"
refused "an unknown option" 2 'nonsense: there is no such option; there are .*require=verbs' \
  "$rdfs" "$source/data" "$mnt" -o nonsense
refused "a bad value" 2 'require=ib: give verbs, shm or tcp' "$rdfs" "$source/data" "$mnt" -o require=ib
refused "a malformed source" 1 "'node' is not a source: .*host:DIR" "$rdfs" node "$mnt"
refused "a source of another scheme" 1 'there is no http://.* or rdfs://HOST' "$rdfs" http://node/data "$mnt"
refused "a source without an export" 1 'names no export; write' "$rdfs" rdfs://node "$mnt"
refused "a host that would be an option" 1 "does not begin with '-'" "$rdfs" me@-oProxyCommand=x:/d "$mnt"

# ---- the mount point ----------------------------------------------------------------------------
refused "no such mount point" 1 "is not there; make it: mkdir $work/none" \
  "$rdfs" "$source/data" "$work/none" -o "$key"
ln -s nowhere "$work/dangling"
refused "a symlink to nowhere as mount point" 1 "$work/dangling is a symlink that leads nowhere; remove it" \
  "$rdfs" "$source/data" "$work/dangling" -o "$key"
refused "a file as mount point" 1 'not a directory; name one' "$rdfs" "$source/data" "$work/file" -o "$key"
refused "a full mount point" 1 'not empty.*name an empty directory' \
  "$rdfs" "$source/data" "$work/full" -o "$key"
refused "a mount point in use" 1 'mounted on /proc already; end it' "$rdfs" "$source/data" /proc -o "$key"

# ---- the server ---------------------------------------------------------------------------------
refused "an unknown host" 1 'host .nosuchhost.invalid. is not known.*check its spelling' \
  "$rdfs" rdfs://nosuchhost.invalid/data "$mnt" -o "$key"
refused "a refused port" 1 'nothing listens on 127.0.0.1:1; check that the server runs' \
  "$rdfs" rdfs://127.0.0.1:1/data "$mnt" -o "$key"
refused "a missing key file" 1 'cannot open the key file.*copy the other end.s key file' \
  "$rdfs" "$source/data" "$mnt" -o "key_file=$work/none"
refused "a key file for all to read" 1 'chmod 600' "$rdfs" "$source/data" "$mnt" -o "key_file=$work/open_key"
refused "the wrong key" 1 'wrong key: .*copy its key file here.*--key-file' "$rdfs" "$source/data" "$mnt" -o "key_file=$work/wrong_key"
refused "no key" 1 'asks for a key: copy its key file here.*key_file=FILE' "$rdfs" "$source/data" "$mnt"
refused "no such export" 1 'no export "nosuch"; see --export' "$rdfs" "$source/nosuch" "$mnt" -o "$key"
refused "the same in the foreground" 1 'nosuch' "$rdfs" "$source/nosuch" "$mnt" -o "$key" -f
if [ -z "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
  refused "no RDMA device" 1 'verbs is required and does not work: .*RDMA' \
    "$rdfs" "$source/data" "$mnt" -o "$key,require=verbs"
fi

# A peer of another major version: its refusal, whose first bytes are the same in every version.
python3 - >"$work/version.port" <<'PYTHON' &
import socket, struct
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    peer, _ = server.accept()
    peer.recv(65536)
    sentence = b"I speak version 2"
    body = b"RDFS" + struct.pack("<HHHH", 2, 0, 18, len(sentence)) + sentence
    peer.sendall(struct.pack("<IHH", len(body), 5, 0) + body)
    peer.close()
PYTHON
ends_with_us $!
wait_until 100 test -s "$work/version.port"
refused "another version" 1 'speaks protocol 1.0, the server 2.0: install the same release' \
  "$rdfs" "rdfs://127.0.0.1:$(cat "$work/version.port")/data" "$mnt" -o "$key"

# ---- through ssh --------------------------------------------------------------------------------
private_sshd_start "$work" || { echo "errors.sh: no private sshd" >&2; exit 1; }
ends_with_us "$(cat "$work/sshd.pid")"
me=$(id -un)@localhost
ssh=("ssh_command=ssh -F $work/ssh_config" -o "rdfsd_path=$rdfsd")
refused "a far path that is not there" 1 "$work/none" "$rdfs" "$me:$work/none" "$mnt" -o "${ssh[@]}"
refused "a far path that is a file" 1 'not a directory' "$rdfs" "$me:$work/export/file" "$mnt" -o "${ssh[@]}"
if [ "$(id -u)" -ne 0 ]; then
  mkdir -m 0 "$work/far_closed"
  refused "a far path that may not be read" 1 "$work/far_closed: this user may not read it there; log in as one who may" \
    "$rdfs" "$me:$work/far_closed" "$mnt" -o "${ssh[@]}"
fi
refused "no ssh" 1 'openssh-client' "$rdfs" "$me:/" "$mnt" -o "ssh_command=$work/none"
# Here the far shell and ssh say something of their own first.
said_by_ssh() {
  cases=$((cases + 1))
  timeout 60 "${@:3}" >"$work/out" 2>"$work/err" </dev/null
  local got=$?
  [ "$got" -eq 1 ] || problem "$1: exit status $got"
  tail -n 1 "$work/err" | grep -qE "^rdfs: .*($2)" || problem "$1: says: $(cat "$work/err")"
  nothing_left "$1"
}
said_by_ssh "no rdfsd at the far end" 'rdfsd_path=PATH' "$rdfs" "$me:$work/export" "$mnt" \
  -o "ssh_command=ssh -F $work/ssh_config,rdfsd_path=$work/no/rdfsd"
said_by_ssh "an unknown host through ssh" 'could not reach .*ssh .*true' \
  "$rdfs" nosuchhost.invalid:/ "$mnt" -o "ssh_command=ssh -o BatchMode=yes"

# ---- this machine -------------------------------------------------------------------------------
# A /dev of our own, without fuse.
without_fuse() {
  # shellcheck disable=SC2016 # for the inner shell
  unshare --mount $([ "$(id -u)" -eq 0 ] || echo --map-root-user) sh -c '
    mkdir "$0/dev" && for node in null urandom; do
      : >"$0/dev/$node" && mount --bind "/dev/$node" "$0/dev/$node" || exit 9
    done
    mount --rbind "$0/dev" /dev || exit 9
    exec "$@"' "$work" "$@"
}
if without_fuse true 2>/dev/null; then
  rm -rf "$work/dev"
  export -f without_fuse
  export work
  refused "no /dev/fuse" 1 'no working /dev/fuse; as root: modprobe fuse' \
    bash -c 'without_fuse "$@"' without_fuse "$rdfs" "$source/data" "$mnt" -o "$key"
else
  problem "cannot be tried without /dev/fuse: no mount namespaces here (unshare --mount)"
fi
if [ "$(id -u)" -ne 0 ]; then
  refused "no fusermount3" 1 'no fusermount3.*install the package fuse3' \
    env PATH="$work/none" "$rdfs" "$source/data" "$mnt" -o "$key"
  mkdir -m 555 "$work/locked"
  refused "a mount point that may not be written" 1 'use a directory of your own' \
    "$rdfs" "$source/data" "$work/locked" -o "$key"
  mkdir "$work/outer" "$work/export/inner"
  "$rdfs" "$source/data" "$work/outer" -o "$key" >"$work/out" 2>&1 || problem "no outer mount: $(cat "$work/out")"
  refused "a mount point in another mount" 1 'it lies inside another FUSE mount without allow_other' \
    "$rdfs" "$source/data" "$work/outer/inner" -o "$key"
  fusermount3 -u "$work/outer" || problem "the outer mount is busy"
  rmdir "$work/export/inner"
  grep -qE '^[[:space:]]*user_allow_other[[:space:]]*$' /etc/fuse.conf 2>/dev/null ||
    refused "allow_other" 1 'user_allow_other; have it added' \
      "$rdfs" "$source/data" "$mnt" -o "$key,allow_other"
  refused "little memlock" 1 'limits.d/rdfs.conf and log in again' \
    bash -c 'ulimit -l 64; exec "$@"' bash "$rdfs" "$source/data" "$mnt" -o "$key,require=verbs"
fi

# ---- read-only exports, and full disks ----------------------------------------------------------
# on_mount NAME SOURCE REGEX COMMAND...: COMMAND in the mount fails and says REGEX.
on_mount() {
  local name=$1 source=$2 regex=$3
  shift 3
  cases=$((cases + 1))
  if ! "$rdfs" "$source" "$mnt" -o "$key" >"$work/out" 2>"$work/err"; then
    problem "$name: does not mount: $(cat "$work/err")"
    return
  fi
  (cd "$mnt" && timeout 60 "$@") >"$work/out" 2>&1 && problem "$name: nothing failed"
  grep -qE "$regex" "$work/out" || problem "$name: says: $(cat "$work/out")"
  fusermount3 -u "$mnt" || problem "$name: it is busy"
  nothing_left "$name"
}
port=0
serve read_only --export "data=$work/export,ro" --key-file "$work/key"
on_mount "a read-only export" "rdfs://127.0.0.1:$port/data" 'Read-only file system' touch new
if [ "$(id -u)" -eq 0 ]; then
  mkdir "$work/small"
  if mount -t tmpfs -o size=1m tmpfs "$work/small"; then
    port=0
    serve small --export "data=$work/small,trusted" --key-file "$work/key"
    on_mount "a full disk" "rdfs://127.0.0.1:$port/data" 'No space left on device' \
      dd if=/dev/zero of=big bs=1M count=4 conv=fsync
    kill "$server"
    wait "$server" 2>/dev/null
    umount "$work/small" || umount -l "$work/small"
  else
    problem "cannot mount a tmpfs as root"
  fi
fi

# ---- rdfsd --------------------------------------------------------------------------------------
# not_served NAME STATUS REGEX OPTION...: rdfsd ends, REGEX for what it says; in one line, where its options are right.
not_served() {
  local name=$1 status=$2 regex=$3 got
  shift 3
  cases=$((cases + 1))
  timeout 60 "$rdfsd" --port 0 -f "$@" >"$work/out" 2>&1 </dev/null
  got=$?
  [ "$got" -eq "$status" ] || problem "$name: exit status $got instead of $status: $(cat "$work/out")"
  [ "$status" -eq 2 ] || [ "$(wc -l <"$work/out")" -eq 1 ] || problem "$name: not one line: $(cat "$work/out")"
  grep -qE "^rdfsd: .*($regex)" "$work/out" || problem "$name: says: $(cat "$work/out")"
}
exported=(--export "x=$work/export")
not_served "an export that is not there" 1 "cannot export $work/none .*no such directory; make it, or correct the path" \
  --export "x=$work/none" --no-auth
not_served "a file as an export" 1 "cannot export $work/file .*not a directory; export the one that holds it" \
  --export "x=$work/file" --no-auth
not_served "a key file that is not there" 1 "there is no key file $work/none; write a key into it, with mode 0600" \
  "${exported[@]}" --key-file "$work/none"
not_served "a directory as key file" 1 "the key file $work/full is a directory; name the file in it" \
  "${exported[@]}" --key-file "$work/full"
not_served "a key file for all to read" 1 "open to other users: run .chmod 600 $work/open_key" \
  "${exported[@]}" --key-file "$work/open_key"
not_served "an address of nobody here" 1 'cannot listen on 192.0.2.1.*no such address \(see `ip address`\)' \
  "${exported[@]}" --key-file "$work/key" --listen 192.0.2.1
not_served "a port that is none" 2 'port' "${exported[@]}" --no-auth --port 70000
not_served "an RDMA port that is none" 2 'rdma-port' "${exported[@]}" --no-auth --rdma-port 70000
if [ "$(id -u)" -ne 0 ]; then
  mkdir -m 0 "$work/closed"
  cp "$work/key" "$work/closed_key"
  chmod 0 "$work/closed_key"
  not_served "an export that this user may not read" 1 "$work/closed .*may not read it; let it, or start rdfsd as another" \
    --export "x=$work/closed" --no-auth
  not_served "a key file that this user may not read" 1 \
    "cannot open the key file $work/closed_key: Permission denied; name a copy that is this user's own, with mode 0600" \
    "${exported[@]}" --key-file "$work/closed_key"
fi

# Who is asked for no key is on this host, unless --listen says otherwise.
cases=$((cases + 1))
"$rdfsd" --export "data=$work/export" --no-auth --port 0 -f >"$work/no_auth.log" 2>&1 </dev/null &
ends_with_us $!
wait_until 100 grep -qs 'ready on port' "$work/no_auth.log"
port=$(sed -n 's/.*ready on port \([0-9]*\).*/\1/p' "$work/no_auth.log" | head -n 1)
listening=$(ss -Hltn "sport = :${port:-0}" | awk '{ print $4 }')
[ -n "$listening" ] || problem "--no-auth: nothing listens: $(cat "$work/no_auth.log")"
! grep -qvE '^(127\.0\.0\.1|\[::1\]):' <<<"$listening" || problem "--no-auth listens at $listening"

conclude "$cases cases"
