#!/usr/bin/env bash
# Usage: no_acls_root.sh --bin BUILD_DIR     (as root)
#
# An export on a file system that knows no ACLs (a ramfs): the mount, on which ACLs count, checks each file by its mode,
# as that file system does itself, and refuses to set an ACL.
set -uo pipefail
[ "$(id -u)" -eq 0 ] || { echo "only root can mount a ramfs" >&2; exit 1; }
[ -n "${RDFS_NO_ACLS_INSIDE:-}" ] ||
  exec env RDFS_NO_ACLS_INSIDE=1 unshare --mount --propagation private "$0" "$@"
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"

export LC_ALL=C
owner=54001 other=54002 stranger=54003
# as UID GID COMMAND...
as() { setpriv --reuid "$1" --regid "$2" --clear-groups "${@:3}"; }
# says WHAT TEXT COMMAND...: it succeeds, writes this and nothing to stderr.
says() {
  local what=$1 text=$2 status=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
  [ "$status:$(cat "$work/out" "$work/err")" = "0:$text" ] ||
    problem "$what: status $status, '$(cat "$work/out" "$work/err")'"
}
# refused WHAT MESSAGE COMMAND...
refused() {
  local what=$1 message=$2
  shift 2
  "$@" >"$work/out" 2>"$work/err" </dev/null && problem "$what succeeds"
  grep -qF "$message" "$work/err" || problem "$what: '$(cat "$work/out" "$work/err")'"
}

mkdir "$work/export" "$work/mnt"
mount -t ramfs rdfs-no-acls "$work/export" || exit 1
trap 'umount -l "$work/export"; finish' EXIT
chmod 755 "$work/export"
mkdir "$work/export/theirs"
for file in all:644 group:640 shared:664; do
  echo "of ${file%:*}" >"$work/export/theirs/${file%:*}"
  chmod "${file#*:}" "$work/export/theirs/${file%:*}"
done
chown -R "$owner:$owner" "$work/export/theirs"
chmod 775 "$work/export/theirs"
new_key "$work/key"
serve server --export "data=$work/export,trusted" --key-file "$work/key"
"$rdfs" "rdfs://$address:$port/data" "$work/mnt" -f -o "key_file=$work/key,allow_other" >"$work/rdfs.log" 2>&1 </dev/null &
ends_with_us $!
wait_until 100 is_mounted "$work/mnt" || { cat "$work/rdfs.log" >&2; problem "no mount"; conclude ""; }
theirs=$work/mnt/theirs

for round in first again; do
  says "root reads, $round" "of all" cat "$theirs/all"
  says "root reads a group's, $round" "of group" cat "$theirs/group"
  says "the owner reads, $round" "of all" as $owner $owner cat "$theirs/all"
  says "another one reads, $round" "of all" as $stranger $stranger cat "$theirs/all"
  says "the group reads, $round" "of group" as $other $owner cat "$theirs/group"
  refused "a stranger's read, $round" "Permission denied" as $stranger $stranger cat "$theirs/group"
  says "ls, $round" $'all\ngroup\nshared' as $stranger $stranger ls "$theirs"
  as $stranger $stranger ls -l "$theirs" >"$work/out" 2>"$work/err" || problem "ls -l fails, $round"
  [ "$(grep -c " $owner " "$work/out"):$(cat "$work/err")" = 3: ] ||
    problem "ls -l, $round: $(cat "$work/out" "$work/err")"
done

says "the group writes" "" as $other $owner bash -c "echo more >>'$theirs/shared'"
says "what it wrote" $'of shared\nmore' cat "$work/export/theirs/shared"
says "the group makes a file" "" as $other $owner bash -c "umask 027; echo new >'$theirs/new'; mkdir '$theirs/dir'"
says "its mode and owner" "640 $other $owner" stat -c '%a %u %g' "$work/export/theirs/new"
says "its directory's" "750 $other $owner" stat -c '%a %u %g' "$work/export/theirs/dir"
refused "a stranger's file" "Permission denied" as $stranger $stranger mkdir "$theirs/no"
says "root makes a directory" "" mkdir "$theirs/dir/deeper"
says "cp -a" "" cp -a "$theirs" "$work/mnt/copy"
says "what it copied" "" diff -r "$work/export/theirs" "$work/export/copy"
for name in . all group shared new dir dir/deeper; do
  says "mode and owner of $name" "$(stat -c '%a %u %g' "$work/export/theirs/$name")" \
    stat -c '%a %u %g' "$work/export/copy/$name"
done
refused "setfacl" "Operation not supported" setfacl -m "u:$stranger:r" "$theirs/group"
refused "setfacl -d" "Operation not supported" setfacl -d -m "u:$stranger:r" "$theirs"
refused "a read behind it" "Permission denied" as $stranger $stranger cat "$theirs/group"
says "getfacl" $'user::rw-\ngroup::r--\nother::---' getfacl -cpE "$theirs/group"

umount "$work/mnt" || problem 'cannot unmount'
conclude 'an export without ACLs'
