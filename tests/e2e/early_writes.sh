#!/usr/bin/env bash
# Usage: early_writes.sh --bin BUILD_DIR [--as-when-root USER]
#
# Writes that programs were told are done while they were on their way (fs/fuse/writes_behind.h): who is told that
# one has failed and what is in the caches then, and who waits for them while the server hangs (early_writes.py).
source "$(dirname "$0")/setup.sh"
source "$(dirname "$0")/mount.sh"
begin "$@"
trap '' XFSZ  # a limit of file sizes is an error for the server, not its end
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
prepare_mount
start_server
source=rdfs://127.0.0.1:$port/data
for over in shm tcp; do
  with=(-o "key_file=$work/key,log=$work/log,deadline=60,require=$over")
  begin_case "over $over"
  mount_it
  worker=$(cat "/proc/$server/task/$server/children")
  timeout 100 "${python[@]}" "$(dirname "$0")/early_writes.py" "$mnt" "$work/export" "$rdfs" "${worker% }" || problem "early writes"
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
