#!/usr/bin/env bash
# Usage: server_killed.sh --bin BUILD_DIR --over TRANSPORT [--as-when-root USER]
#
# All of a mount's server is killed with SIGKILL for longer than the deadline: calls end with an errno soon after it, and
# once a server is there again new calls work without another mount, and what was open goes on.
source "$(dirname "$0")/setup.sh"
source "$(dirname "$0")/mount.sh"
begin "$@"
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
prepare_mount
start_server
source=rdfs://$address:$port/data
with=(-o "key_file=$work/key,log=$work/log,require=$over,deadline=3")

begin_case "over $over"
mount_it
echo kept >"$mnt/open"
exec 5<>"$mnt/open"
kill_server
# Nobody has asked for it before: the kernel does not know it.
started=$SECONDS
timeout -s KILL 30 cat "$mnt/never" >"$work/said" 2>&1
status=$?
[ "$status" -eq 1 ] || problem "a call without the server ends with status $status: $(cat "$work/said")"
grep -qE ': (Connection timed out|Input/output error|Transport endpoint is not connected)$' "$work/said" ||
  problem "a call without the server fails otherwise: $(cat "$work/said")"
[ $((SECONDS - started)) -le 15 ] || problem "a call without the server took $((SECONDS - started)) s"
start_server 5>&-
echo never >"$work/export/never"
wait_until 200 grep -qs never "$mnt/never" || problem "new calls do not work again: $(cat "$mnt/never" 2>&1)"
[ "$(cat <&5)" = kept ] || problem "a file that was open cannot be read any more"
echo more >&5 || problem "a file that was open cannot be written any more"
exec 5>&-
[ "$(cat "$work/export/open")" = "$(printf 'kept\nmore')" ] || problem "what was written is not there: $(cat "$work/export/open")"
[ "$(cat "$mnt/file")" = hello ] && ls "$mnt" >/dev/null && mkdir "$mnt/new" && rmdir "$mnt/new" || problem "not all calls work again"
fusermount3 -u "$mnt" || problem "cannot be unmounted"
ended 50
conclude "a mount outlives its server over $over"
