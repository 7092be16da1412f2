#!/usr/bin/env bash
# Usage: power_loss.sh --bin BUILD_DIR
#
# A server's host loses its power while programs on a mount write and sync: the guest ends without a word, and what was in
# its page cache is gone. What the programs had been told to be on disk (power_loss.py) is there when the disk is mounted
# again, in another guest; what nobody had synced is not, or the test would prove nothing.
set -uo pipefail
this=$(basename "$0")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# In the guest: the disk, a server of it, and a mount over verbs.
if [ "${RDFS_POWER_LOSS:-}" != "" ]; then
  disk=$RDFS_POWER_LOSS
  mkdir /tmp/disk && mount -o loop "$disk/disk" /tmp/disk || exit 1
  [ "$1" = --check ] && exec python3 "$here/power_loss.py" check /tmp/disk/export "$disk/told"
  # shellcheck source=tests/e2e/setup.sh
  . "$here/../e2e/setup.sh"
  begin "$@" --over verbs
  mkdir -p /tmp/disk/export "$work/mnt"
  serve server --export "data=/tmp/disk/export,trusted" --no-auth
  "$rdfs" "rdfs://$address:$port/data" "$work/mnt" -o require=verbs,plaintext || exit 1
  exec python3 "$here/power_loss.py" write "$work/mnt"
fi

[ "${1:-}" = --bin ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
bin=$(realpath "$2")
work=$(mktemp -d /tmp/rdfs-power-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
PATH=$PATH:/usr/sbin:/sbin
truncate -s 300M "$work/disk" && mkfs.ext4 -q -F -b 4096 "$work/disk" || exit 1
export RDFS_POWER_LOSS=$work
# A device of this machine's is of no use: its power stays on.
guest() { RDFS_RDMA=guest "$here/run" --driver siw --rw "$work" --ro "$bin" --timeout 60 -- "$here/power_loss.sh" "$@"; }
guest --bin "$bin" >"$work/said" 2>"$work/err"
status=$?
[ $status -ne 77 ] || { cat "$work/err" >&2; exit 77; }
# 125: it died; the console follows.
if [ $status -ne 125 ] || ! grep -q 'the guest died while COMMAND ran' "$work/err" || ! grep -qx 'the power fails' "$work/said"; then
  tail -n 20 "$work/said" "$work/err" >&2
  echo "$this: the power did not fail as it should: exit status $status" >&2
  exit 1
fi
mv "$work/said" "$work/told"
guest --check
