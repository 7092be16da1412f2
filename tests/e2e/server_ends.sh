#!/usr/bin/env bash
# Usage: server_ends.sh --bin BUILD_DIR [--as-when-root USER]
#
# An rdfsd that ssh has started ends with its mount: at once at the unmount, also when its ssh was killed
# before, and within its lease when the client and its ssh are killed. The mount outlives it.
set -uo pipefail
. "$(dirname "$0")/setup.sh"
begin "$@"
mkdir "$work/export" "$work/mnt"
echo content >"$work/export/file"
. "$(dirname "$0")/private-sshd"
fail() {
  tail -n 20 "$work/rdfs.log" >&2
  problem "$1"
  conclude
}
private_sshd_start "$work" || fail "no private sshd"
ends_with_us "$(cat "$work/sshd.pid")"

# At once is long before that, also on a busy machine.
lease=8
cat >"$work/rdfsd" <<SCRIPT
#!/bin/sh
echo \$\$ >$work/rdfsd.pid
exec $bin/server/rdfsd "\$@" --lease $lease
SCRIPT
chmod +x "$work/rdfsd"

mounted() { grep -q " $work/mnt .* - fuse" /proc/self/mountinfo; }
# Waits up to $1 seconds until process $2 has ended.
ends_within() { timeout "$1" tail -s 0.05 --pid="$2" -f /dev/null; }
start() {
  rm -f "$work/rdfsd.pid"
  "$bin/fs/fuse/rdfs" "$(id -un)@localhost:$work/export" "$work/mnt" -f "$@" \
    -o "ssh_command=ssh -F $work/ssh_config" -o "rdfsd_path=$work/rdfsd" \
    >"$work/rdfs.log" 2>&1 </dev/null &
  client=$!
  ends_with_us "$client"
  for _ in $(seq 300); do
    mounted && break
    kill -0 "$client" 2>/dev/null || break
    sleep 0.1
  done
  mounted || fail "rdfs did not mount"
  server=$(cat "$work/rdfsd.pid")
  ends_with_us "$server"
  ssh=$(pgrep -P "$client" -x ssh) || fail "rdfs has no ssh"
  [ "$(cat "$work/mnt/file")" = content ] || fail "the mount is not the export"
}

for over in shm tcp ''; do
  options=()
  [ -n "$over" ] && options=(-o "require=$over")
  start "${options[@]}"
  fusermount3 -u "$work/mnt" || fail "cannot unmount"
  ends_within $((lease - 2)) "$server" || fail "rdfsd lives on after its unmount (over '$over')"
  ends_within $((lease - 2)) "$client" || fail "rdfs lives on after its unmount"

  # Where only the server is killed, the mount has ssh start another one.
  start "${options[@]}"
  printf before >"$work/mnt/open-$over"
  exec 9<>"$work/mnt/open-$over"
  kill -KILL "$server"
  printf after. >&9 || fail "a write to an open file failed once the server was killed (over '$over')"
  echo new >"$work/mnt/new-$over" || fail "no new file once the server was killed (over '$over')"
  exec 9>&-
  [ "$(cat "$work/export/open-$over" "$work/export/new-$over")" = after.new ] || fail "a write was lost (over '$over')"
  server=$(cat "$work/rdfsd.pid")
  ends_with_us "$server"
  fusermount3 -u "$work/mnt" || fail "cannot unmount"
  ends_within $((lease - 2)) "$server" || fail "the second rdfsd lives on after its unmount (over '$over')"

  start "${options[@]}"
  kill -KILL "$ssh"
  [ "$(cat "$work/mnt/file")" = content ] || fail "the mount ended with its ssh"
  fusermount3 -u "$work/mnt" || fail "cannot unmount"
  ends_within $((lease - 2)) "$server" || fail "rdfsd lives on after its unmount without ssh (over '$over')"
  ends_within $((lease - 2)) "$client" || fail "rdfs lives on after its unmount"

  start "${options[@]}"
  kill -KILL "$client" "$ssh"
  wait "$client" 2>/dev/null
  ends_within $((2 * lease)) "$server" || fail "rdfsd outlives its lease (over '$over')"
  fusermount3 -uz "$work/mnt"
done
# In the background it keeps nothing of its caller's: who waits for the end of what is said gets on.
{
  said=$("$bin/fs/fuse/rdfs" "$(id -un)@localhost:$work/export" "$work/mnt" -o "log=$work/rdfs.log" \
    -o "ssh_command=ssh -F $work/ssh_config" -o "rdfsd_path=$work/rdfsd" 2>&1 </dev/null)
  echo "$said" >"$work/said"
} &
capture=$!
ends_with_us "$capture"
wait_until 300 mounted || fail "rdfs does not mount in the background"
wait_until 100 test -s "$work/said" || problem "the mount holds the standard error of its command"
fusermount3 -u "$work/mnt" || fail "cannot unmount"
wait_until 100 gone "$capture" || fail "the mount holds the output of its command after its end"
grep -q "^rdfs: $work/mnt is " "$work/said" || fail "in the background rdfs says: $(cat "$work/said")"
wait_until 100 gone "$(cat "$work/rdfsd.pid")" || fail "rdfsd lives on after its unmount in the background"
conclude "servers that ssh has started"
