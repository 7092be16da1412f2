#!/usr/bin/env bash
# Usage: lifecycle_test.sh --bin BUILD_DIR [--as-when-root USER]
#
# How a mount begins and ends: in the background and in the foreground, by signals and from outside, while
# it is in use, over what another one left, and without its server before, while and after it mounts. After
# each case no mount and no process is left. What a person can get wrong is in errors.sh.
set -uo pipefail

# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
# shellcheck source=tests/e2e/mount.sh
. "$(dirname "$0")/mount.sh"
begin "$@"
prepare_mount
start_server
source=rdfs://127.0.0.1:$port/data
with=(-o "key_file=$work/key,log=$work/log")

# ---- begin and end ------------------------------------------------------------------------------
begin_case "in the background"
mount_it
pid=$(clients)
[ "$(ps -o sid= "$pid" | tr -d ' ')" = "$pid" ] || problem "it has not left the terminal"
[ "$(readlink "/proc/$pid/fd/0" "/proc/$pid/fd/1" | sort -u)" = /dev/null ] ||
  problem "it holds the input or output of its command"
[ "$(readlink "/proc/$pid/cwd")" = / ] || problem "it keeps a directory busy"
fusermount3 -u "$mnt" || problem "cannot be unmounted"
ended 50

for signal in TERM INT HUP; do
  begin_case "SIG$signal in the background"
  mount_it
  kill -"$signal" "$(clients)"
  ended 50
done

# in_terminal INPUT: `rdfs -f` in a terminal of its own, which gets INPUT once it is mounted ('' closes the
# terminal); prints its exit status.
in_terminal() {
  python3 - "$1" "$mnt" "$rdfs" "$source" "$mnt" "${with[@]}" -f <<'PYTHON'
import os, pty, signal, sys, time
typed, mount, command = sys.argv[1], sys.argv[2], sys.argv[3:]
pid, terminal = pty.fork()
if pid == 0:
    for ends in signal.SIGINT, signal.SIGHUP: signal.signal(ends, signal.SIG_DFL)
    os.execv(command[0], command)
said = b""
end = time.monotonic() + 20
while b" over " not in said and time.monotonic() < end:
    said += os.read(terminal, 4096)
assert os.path.ismount(mount), said
assert os.waitpid(pid, os.WNOHANG) == (0, 0), "-f does not stay"
if typed:
    os.write(terminal, typed.encode())
else:
    os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PYTHON
}
begin_case "Ctrl-C in the foreground"
status=$(in_terminal $'\x03') && [ "$status" = 0 ] || problem "exit status $status"
ended 10
begin_case "the terminal of the foreground is closed"
status=$(in_terminal '') && [ "$status" = 0 ] || problem "exit status $status"
ended 10

begin_case "under nohup"
rm -f "$work/log"
env --ignore-signal=HUP "$rdfs" "$source" "$mnt" "${with[@]}" -f >"$work/out" 2>"$work/err" </dev/null &
wait_until 300 grep -qs ' over ' "$work/out" || problem "does not mount"
kill -HUP "$(clients)"
# They are told behind what HUP would do; it says that it has mounted before it listens to USR1.
counters_are_told() { kill -USR1 "$(clients)" && sleep 0.1 && grep -qs 'info: counters: ' "$work/log"; }
wait_until 50 counters_are_told || problem "no counters in the log"
[ "$(cat "$mnt/file")" = hello ] || problem "a HUP that was ignored at its start has ended it"
kill -TERM "$(clients)"
ended 50

begin_case "counters"
mount_it
kill -USR1 "$(clients)"
wait_until 50 grep -q 'info: counters: .*round trips:.* lookup ' "$work/log" || problem "none in the log"
for name in fallbacks recalls open_hits open_misses listing_hits attribute_misses early_writes reads_together open_files; do
  grep -q "info: counters: .* $name [0-9]" "$work/log" || problem "no $name in the log: $(grep counters: "$work/log")"
done
fusermount3 -u "$mnt" || problem "cannot be unmounted"
ended 50

# ---- in use -------------------------------------------------------------------------------------
begin_case "in use"
mount_it -o deadline=20
exec 5<"$mnt/file"
fusermount3 -u "$mnt" 2>/dev/null && problem "unmounts though a file is open"
[ "$(cat "$mnt/file")" = hello ] || problem "refusing to unmount has ended it"
kill -TERM "$(clients)"
wait_until 50 not_mounted "$mnt" || problem "it is not detached"
wait_until 50 grep -q "$mnt is in use: it is detached" "$work/log" || problem "it does not say so"
[ "$(cat <&5)" = hello ] || problem "a file that was open cannot be read any more"
exec 5<&-
ended 50

begin_case "in use, and told twice"
mount_it -o deadline=20
exec 5<"$mnt/file"
kill -TERM "$(clients)"
wait_until 50 not_mounted "$mnt" || problem "it is not detached"
kill -TERM "$(clients)"
ended 50
exec 5<&-

begin_case "in use, and started by one that ignores SIGCHLD"
with_default=("${starter[@]}") starter=(env --ignore-signal=CHLD)
mount_it -o deadline=20
starter=("${with_default[@]}")
exec 5<"$mnt/file"
kill -TERM "$(clients)"
wait_until 50 not_mounted "$mnt" || problem "it is not detached"
exec 5<&-
ended 50

begin_case "in use, and detached from outside"
mount_it
exec 5<"$mnt/file"
fusermount3 -uz "$mnt" || problem "cannot be detached"
[ "$(cat <&5)" = hello ] || problem "a file that was open cannot be read any more"
clients >/dev/null || problem "it ended under a file that is open"
exec 5<&-
ended 50

# Only root may bind it to another place.
if [ "$(id -u)" -eq 0 ]; then
  begin_case "told to end, and bound to another place"
  mkdir "$work/bound"
  mount_it -o deadline=3
  mount --bind "$mnt" "$work/bound" || problem "cannot be bound"
  kill -TERM "$(clients)"
  ended 80
  timeout 10 cat "$work/bound/file" >/dev/null 2>&1 && problem "what it was bound to still answers"
  umount "$work/bound" || problem "what it was bound to cannot be unmounted"
fi

# ---- over what is there -------------------------------------------------------------------------
begin_case "a second mount on the same directory"
mount_it
"$rdfs" "$source" "$mnt" "${with[@]}" >"$work/out" 2>"$work/err" && problem "is accepted"
grep -q "something is mounted on $mnt already; end it (fusermount3 -u $mnt" "$work/err" || problem "says: $(cat "$work/err")"
[ "$(cat "$mnt/file")" = hello ] || problem "the first one has suffered"
fusermount3 -u "$mnt" || problem "cannot be unmounted"
ended 50

begin_case "over a mount whose program was killed"
mount_it
exec 5<"$mnt/file"
kill -KILL "$(clients)"
wait_until 50 no_client || problem "it survives SIGKILL"
cat "$mnt/file" >/dev/null 2>&1 && problem "the killed mount still answers"
is_mounted "$mnt" || problem "the killed mount is not there any more"
mount_it
[ "$(grep -c " $mnt .* - fuse" /proc/self/mountinfo)" = 1 ] || problem "the old mount is beneath it"
exec 5<&-
fusermount3 -u "$mnt" || problem "cannot be unmounted"
ended 50

# ---- the server ---------------------------------------------------------------------------------
# does_not_mount REGEX SECONDS OPTION...
does_not_mount() {
  local regex=$1 seconds=$2 status started=$SECONDS
  shift 2
  timeout 60 "$rdfs" "$source" "$mnt" "${with[@]}" "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
  [ "$status" -eq 1 ] || problem "exit status $status"
  [ $((SECONDS - started)) -le "$seconds" ] || problem "it took $((SECONDS - started)) s"
  [ "$(wc -l <"$work/err")" -eq 1 ] && grep -qE "^rdfs: .*($regex)" "$work/err" || problem "says: $(cat "$work/err")"
  ended 10
}
begin_case "a server that hangs while we mount"
freeze_server
does_not_mount "127.0.0.1:$port does not answer" 8 -o deadline=3
begin_case "told to end while we mount"
"$rdfs" "$source" "$mnt" "${with[@]}" >"$work/out" 2>"$work/err" </dev/null &
command=$!
wait_until 50 clients >/dev/null || problem "it did not start"
kill -TERM "$command"
wait "$command"
[ $? -ne 0 ] || problem "the exit status says that it has mounted"
ended 50
thaw_server

begin_case "a server that leaves while we mount"
python3 - >"$work/leaves.port" <<'PYTHON' &
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    peer, _ = server.accept()
    peer.recv(1)
    peer.close()
PYTHON
ends_with_us $!
wait_until 50 test -s "$work/leaves.port"
true_source=$source source=rdfs://127.0.0.1:$(cat "$work/leaves.port")/data
does_not_mount 'closed|connection|reset' 12 -o deadline=5
source=$true_source

begin_case "unmounted without its server"
mount_it -o deadline=20
kill_server
timeout 15 fusermount3 -u "$mnt" || problem "cannot be unmounted"
ended 50
start_server

begin_case "detached with a pending call, without its server"
mount_it -o deadline=60,workers=3
kill_server
cat "$mnt/other" >"$work/said" 2>&1 &
reader=$!
wait_until 50 pending_call "$reader" || problem "no call is pending"
fusermount3 -uz "$mnt" || problem "cannot be detached"
# Seconds after it, not at the deadline of the call.
ended 80
wait "$reader" && problem "the call has not failed"
grep -q "was detached, and its server is not there" "$work/log" || problem "it does not say so"
start_server

begin_case "detached and abandoned, with another mount on its path"
mount_it -o deadline=60
first=$(clients)
exec 5<"$mnt/file"
fusermount3 -uz "$mnt" || problem "cannot be detached"
mount_it -o deadline=60 5<&-
kill_server
first_is_gone() { ! clients | grep -qx "$first"; }
wait_until 80 first_is_gone || problem "the first one stays"
is_mounted "$mnt" || problem "it has taken the other one's mount away"
exec 5<&-
start_server
[ "$(timeout 60 cat "$mnt/file")" = hello ] || problem "the other one has suffered"
fusermount3 -u "$mnt" || problem "cannot be unmounted"
ended 50

begin_case "told to end with a pending call, without its server"
mount_it -o deadline=60
kill_server
cat "$mnt/other" >/dev/null 2>&1 &
reader=$!
wait_until 50 pending_call "$reader" || problem "no call is pending"
kill -TERM "$(clients)"
ended 80
wait "$reader" && problem "the call has not failed"
start_server

for what in "detached" "told to end"; do
  begin_case "$what with a pending write, without its server"
  mount_it -o deadline=60
  exec 5>"$mnt/written"
  kill_server
  echo more >&5 2>"$work/said" &
  writer=$!
  wait_until 50 pending_call "$writer" || problem "no call is pending"
  if [ "$what" = detached ]; then fusermount3 -uz "$mnt"; else kill -TERM "$(clients)"; fi
  ended 80
  wait "$writer" && problem "the call has not failed"
  grep -q 'Input/output error' "$work/said" || problem "the call failed otherwise: $(cat "$work/said")"
  exec 5>&-
  start_server
done

begin_case "a reader killed while its call is pending"
mount_it -o deadline=60
freeze_server
cat "$mnt/other" >/dev/null 2>&1 &
reader=$!
wait_until 50 pending_call "$reader" || problem "no call is pending"
kill -KILL "$reader"
thaw_server
wait_until 50 gone "$reader" || problem "it stays"
{ wait "$reader"; } 2>/dev/null
[ "$(cat "$mnt/file")" = hello ] || problem "the mount has suffered"
fusermount3 -u "$mnt" || problem "cannot be unmounted"
ended 50

conclude "$cases cases"
