#!/usr/bin/env bash
# Usage: early_writes.sh --bin BUILD_DIR [--over TRANSPORT] [--as-when-root USER], over shm and over tcp unless told otherwise
#
# Writes that programs were told are done while they were on their way (fs/fuse/content/writes_behind.h): who is told that
# one has failed and what is in the caches then, rdcp among them, who waits for them while the server hangs, and that a close ends when it no longer does (early_writes.py).
source "$(dirname "$0")/setup.sh"
source "$(dirname "$0")/mount.sh"
begin "$@"
trap '' XFSZ  # a limit of file sizes is an error for the server, not its end
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
prepare_mount
start_server
source=rdfs://$address:$port/data
for over in ${over:-shm tcp}; do
  with=(-o "key_file=$work/key,log=$work/log,deadline=60,require=$over")
  begin_case "over $over"
  mount_it
  worker=$(pgrep -P "$server")
  timeout 100 "${python[@]}" "$(dirname "$0")/early_writes.py" "$mnt" "$work/export" "$rdfs" "$worker" || problem "early writes"
  # The last piece cannot be written: rdcp hears it when it closes the file, and not later.
  head -c $((5 << 18)) /dev/urandom >"$work/source"
  echo old >"$mnt/replaced"
  head -c $((5 << 18)) /dev/zero >"$mnt/in_place"  # or its length could not be set either
  prlimit --pid "$worker" --fsize=$((1 << 20)):
  for copy in replaced "in_place --inplace"; do
    # shellcheck disable=SC2086
    timeout 20 "$bin/tools/copy/rdcp" "$work/source" "$mnt/"$copy 2>"$work/said"
    [ $? -eq 1 ] && grep -q 'File too large' "$work/said" || problem "rdcp to $copy says: $(cat "$work/said")"
  done
  cmp -s "$mnt/replaced" <(echo old) || problem "half a copy has replaced a file"
  [ -z "$(find "$work/export" -name '.rdcp-*')" ] || problem "rdcp leaves something"
  prlimit --pid "$worker" --fsize=unlimited:
  fusermount3 -u "$mnt" || problem "cannot be unmounted"
  ended 50
done

begin_case "-o sync"
mount_it -o sync
for _ in $(seq 100); do echo more; done >"$mnt/many"
early=$("$rdfs" stats --json "$mnt" | sed -n 's/.*"early_writes": \([0-9]*\).*/\1/p')
[ "$early" = 0 ] || problem "${early:-no} writes were answered early"
fusermount3 -u "$mnt" || problem "cannot be unmounted"
ended 50
conclude "early writes"
