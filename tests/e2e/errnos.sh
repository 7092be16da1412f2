#!/usr/bin/env bash
# Usage: errnos.sh --bin BUILD_DIR [--over TRANSPORT] (as root): which call gets which errno when the export is full or read-only, its
# file is gone, or its server does not answer (docs/troubleshooting.md has the table); and that what is killed meanwhile is gone.
source "$(dirname "$0")/setup.sh"
begin "$@"
[ "$(id -u)" -eq 0 ] || { problem "only root can mount a small tmpfs"; conclude ""; }
mkdir "$work/export" "$work/mnt"
new_key "$work/key"
mount -t tmpfs -o size=4m,nr_inodes=100 rdfs-errnos "$work/export" || exit 1
trap 'umount -l "$work/export"; finish' EXIT
serve server --export "e2e=$work/export,trusted" --key-file "$work/key"
"$rdfs" "rdfs://$address:$port/e2e" "$work/mnt" -o "key_file=$work/key,require=${over:-shm},deadline=3" -f >"$work/rdfs.log" 2>&1 </dev/null &
client=$!
ends_with_us $client
wait_until 100 is_mounted "$work/mnt" || { cat "$work/rdfs.log" >&2; problem "rdfs did not mount"; conclude ""; }
timeout 120 "${python[@]}" "$(dirname "$0")/errnos.py" "$work/export" "$work/mnt" "$server" || { tail -n 20 "$work/rdfs.log" >&2; problem "errnos"; }
fusermount3 -u "$work/mnt" || problem "cannot unmount"
wait_until 50 gone $client || problem "rdfs lives on after its unmount"
conclude "errnos"
