#!/usr/bin/env bash
# Usage: mount_helper.sh --bin BUILD_DIR --user NAME
#
# mount -t rdfs, lines of fstab, and what mount(8) hears when something is wrong. As root, for mount(8) runs
# helpers from /sbin only: in a mount namespace of its own, where /sbin is a directory of this test. NAME is an
# ordinary user, who mounts by a line that lets everybody.
set -uo pipefail

if [ -z "${RDFS_MOUNT_HELPER_INSIDE:-}" ]; then
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  exec "${as_root[@]}" env RDFS_MOUNT_HELPER_INSIDE=1 unshare --mount --propagation private "$0" "$@"
fi

# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"

mnt=$work/mnt
mkdir "$mnt" "$work/export" "$work/sbin"
echo content >"$work/export/file"
printf '#!/bin/sh\necho ran\n' >"$work/export/program"
chmod 755 "$work/export/program"
# sshd executes itself for each connection.
cp /usr/sbin/sshd "$work/sbin/" || { echo "$this: no sshd" >&2; exit 1; }
ln -s "$rdfs" "$work/sbin/mount.rdfs"
mount --bind "$work/sbin" "$(realpath /sbin)" || { echo "$this: cannot replace /sbin" >&2; exit 1; }
new_key "$work/key"
serve server --export "data=$work/export,trusted" --key-file "$work/key"
source=rdfs://127.0.0.1:$port/data

# ends NAME: unmounts as a system does.
ends() {
  umount "$mnt" || problem "$1: umount failed"
  wait_until 50 not_mounted "$mnt" || problem "$1: it is still mounted"
}

# ---- by hand ------------------------------------------------------------------------------------
mount -t rdfs "$source" "$mnt" -o "key_file=$work/key" >"$work/out" 2>&1 || problem "mount: $(cat "$work/out")"
grep -qE "^rdfs: $mnt is $source over" "$work/out" || problem "mount says: $(cat "$work/out")"
[ "$(cat "$mnt/file")" = content ] || problem "the file has another content"
echo more >"$mnt/made" && [ "$(cat "$work/export/made")" = more ] || problem "the mount cannot be written"
findmnt -rn -o SOURCE,FSTYPE "$mnt" | grep -qx "$source fuse.rdfs" || problem "findmnt: $(findmnt -rn "$mnt")"
# What the refusal of nosymfollow says to do instead.
ln -s file "$mnt/link"
[ "$(cat "$mnt/link")" = content ] || problem "a symbolic link is not followed"
mount -o remount,bind,nosymfollow "$mnt" >"$work/out" 2>&1 || problem "nosymfollow: $(cat "$work/out")"
cat "$mnt/link" >/dev/null 2>&1 && problem "a symbolic link is followed in a mount with nosymfollow"
ends "by hand"

# ---- by fstab -----------------------------------------------------------------------------------
line="$source $mnt rdfs noauto,_netdev,nofail,x-systemd.automount,x-systemd.mount-timeout=30,comment=ours"
echo "$line,ro,nosuid,nodev,noexec,deadline=9,key_file=$work/key 0 0" >"$work/fstab"
mount -T "$work/fstab" "$mnt" >"$work/out" 2>&1 || problem "fstab: $(cat "$work/out")"
options=,$(findmnt -rn -o OPTIONS "$mnt"),
for word in ro nosuid nodev noexec; do
  [[ $options == *,$word,* ]] || problem "fstab: $word is missing in $options"
done
touch "$mnt/new" 2>/dev/null && problem "fstab: a file was made in a read-only mount"
"$mnt/program" >/dev/null 2>&1 && problem "fstab: a program ran in a noexec mount"
# mount -a finds that it is there.
sed 's/noauto,//' "$work/fstab" >"$work/fstab.auto"
mount -a -T "$work/fstab.auto" >"$work/out" 2>&1 || problem "mount -a: $(cat "$work/out")"
[ "$(findmnt -rn "$mnt" | wc -l)" -eq 1 ] || problem "mount -a mounted it twice"
mount -o remount,rw -T "$work/fstab" "$mnt" >"$work/out" 2>&1 && problem "a remount went well"
grep -q 'remount: .*unmount it, and mount it again' "$work/out" || problem "remount: $(cat "$work/out")"
ends "by fstab"

# ---- through ssh --------------------------------------------------------------------------------
# shellcheck source=tests/e2e/private-sshd
. "$(dirname "$0")/private-sshd"
private_sshd_start "$work" || { echo "$this: no private sshd" >&2; exit 1; }
ends_with_us "$(cat "$work/sshd.pid")"
mount -t rdfs "localhost:$work/export" "$mnt" -o "ssh_command=ssh -F $work/ssh_config,rdfsd_path=$bin/server/rdfsd" \
  >"$work/out" 2>&1 || problem "HOST:DIR: $(cat "$work/out")"
[ "$(cat "$mnt/file")" = content ] || problem "HOST:DIR: the file has another content"
findmnt -rn -o SOURCE,FSTYPE "$mnt" | grep -qx "localhost:$work/export fuse.rdfs" || problem "findmnt: $(findmnt -rn "$mnt")"
ends "HOST:DIR"
echo "localhost:$work/export $mnt rdfs noauto,uid=54321,gid=12345,ssh_command=ssh\\040-F\\040$work/ssh_config,rdfsd_path=$bin/server/rdfsd 0 0" \
  >"$work/fstab"
mount -T "$work/fstab" "$mnt" >"$work/out" 2>&1 || problem "HOST:DIR by fstab: $(cat "$work/out")"
owner=$(stat -c %u:%g "$mnt/file")
[ "$owner" = 54321:12345 ] || problem "with uid= and gid= in fstab the owner is $owner"
ends "HOST:DIR by fstab"

# ---- by fstab, as an ordinary user --------------------------------------------------------------
# Who has no right to name another file: /etc/fstab is this test's.
as_user=(setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups
  env HOME="$work/home" USER="$user" XDG_RUNTIME_DIR="$work/home")
mkdir -m 700 "$work/home"
cp "$work/key" "$work/home/key"
mkdir "$work/theirs"
chown -R "$user" "$work/home" "$work/theirs"
# by_user OPTION,...: mounts as the user by such a line; its exit status, and what it says in $work/out.
by_user() {
  echo "$source $work/theirs rdfs noauto,$1 0 0" >"$work/fstab"
  "${as_user[@]}" mount "$work/theirs" >"$work/out" 2>&1
}
: >"$work/fstab"
mount --bind "$work/fstab" /etc/fstab || { echo "$this: cannot replace /etc/fstab" >&2; exit 1; }
for word in user users; do
  by_user "$word,key_file=$work/home/key" || problem "$word: $(cat "$work/out")"
  options=,$(findmnt -rn -o OPTIONS "$work/theirs"),
  [[ $options == *,user_id=$(id -u "$user"),* ]] || problem "$word: the mount is not the user's: $options"
  [ "$("${as_user[@]}" cat "$work/theirs/file")" = content ] || problem "$word: the user cannot read the mount"
  cat "$work/theirs/file" >/dev/null 2>&1 && problem "$word: root reads a mount of another user without allow_other"
  "${as_user[@]}" umount "$work/theirs" >"$work/out" 2>&1 || problem "$word: umount: $(cat "$work/out")"
  wait_until 50 not_mounted "$work/theirs" || problem "$word: it is still mounted"
done
by_user "users,key_file=$work/key" && problem "the user mounted with a key that only root may read"
grep -qF "rdfs: cannot open the key file $work/key: Permission denied" "$work/out" ||
  problem "a key that only root may read: $(cat "$work/out")"
umount /etc/fstab

# ---- what is wrong ------------------------------------------------------------------------------
# refused NAME STATUS REGEX OPTIONS
refused() {
  local got
  mount -t rdfs "$source" "$mnt" -o "$4" >"$work/out" 2>&1
  got=$?
  [ "$got" -eq "$2" ] || problem "$1: exit status $got instead of $2"
  grep -qE "$3" "$work/out" || problem "$1: says: $(cat "$work/out")"
  [ "$(wc -l <"$work/out")" -eq 1 ] || problem "$1: more than one sentence: $(cat "$work/out")"
  is_mounted "$mnt" && { problem "$1: it is mounted"; umount "$mnt"; }
}
refused "an unknown option" 1 '^mount.rdfs: -o nonsense: there is no such option' "nonsense,key_file=$work/key"
refused "nosymfollow" 1 '^mount.rdfs: -o nosymfollow: .*remount,bind,nosymfollow MNT' "nosymfollow,key_file=$work/key"
refused "no key" 32 'asks for a key: copy' "ro"
mount -f -t rdfs "$source" "$mnt" -o ro || problem "mount -f failed"
is_mounted "$mnt" && problem "mount -f mounted"

kill "$server"
wait_until 50 gone "$server" || problem "rdfsd does not end"
conclude "mount.rdfs"
