#!/usr/bin/env bash
# Usage: far_mount.sh --bin BUILD_DIR
#
# A mount of another network namespace, to which something like ssh leads and, now and then, an address. While the address
# does not answer, all of it goes through ssh's own stream, and the mount says so and does whatever a local directory does
# (compare.cc); when it does, a new mount goes by TCP.
set -uo pipefail
[ -n "${RDFS_FAR_MOUNT_INSIDE:-}" ] ||
  exec env RDFS_FAR_MOUNT_INSIDE=1 unshare --map-root-user --net --mount "$0" "$@"
. "$(dirname "$0")/setup.sh"
begin "$@"

second_network
ip link add near type veth peer name far netns "$far" || { echo "$this: no veth" >&2; exit 1; }
ip address add 10.77.0.1/24 dev near && ip link set near up && ip link set lo up
there ip link set far up && there ip link set lo up
cat >"$work/ssh" <<SSH
#!/bin/sh
for each; do [ "\$each" != -G ] || { echo hostname 10.77.0.2; exit; }; done
while [ "\$1" != far ]; do shift; done
shift
[ "\$1" != -- ] || shift
exec nsenter --net=/proc/$far/ns/net sh -c "\$*"
SSH
chmod +x "$work/ssh"
mkdir -p "$work/export/tree" "$work/mnt" "$work/local"
head -c 20000001 /dev/urandom >"$work/export/large"
for i in $(seq 200); do head -c $((i * 997)) /dev/urandom >"$work/export/tree/$i"; done

compares_like_a_local_directory() {
  RDFS_E2E_LOCAL=$work/local RDFS_E2E_MOUNT=$work/mnt RDFS_E2E_BACKING=$work/export timeout 100 \
    "$bin/tests/e2e/e2e_compare" >"$work/compared" 2>&1
}
# mounted NAME REGEX OPTION...: the mount says REGEX, has what is exported, and what is written there is in the export.
mounted() {
  local name=$1 regex=$2 client
  shift 2
  "$bin/fs/fuse/rdfs" "far:$work/export" "$work/mnt" -f -o "ssh_command=$work/ssh,rdfsd_path=$bin/server/rdfsd" "$@" \
    >"$work/rdfs.log" 2>&1 </dev/null &
  client=$!
  ends_with_us "$client"
  wait_until 300 is_mounted "$work/mnt" || { problem "$name: no mount: $(cat "$work/rdfs.log")"; return; }
  diff -r "$work/export" "$work/mnt" || problem "$name: the mount is not the export"
  cp -r "$work/mnt/tree" "$work/mnt/copy" && diff -r "$work/export/tree" "$work/export/copy" ||
    problem "$name: what was written is another"
  { cat "$work/mnt/large" >"$work/mnt/larger" && cmp "$work/export/large" "$work/export/larger"; } ||
    problem "$name: a larger file that was written is another"
  rm -r "$work/mnt/copy" "$work/mnt/larger" || problem "$name: cannot remove"
  [ -z "$compares" ] || compares_like_a_local_directory || problem "$name: not as a local directory: $(tail -n 40 "$work/compared")"
  grep -qE "$regex" "$work/rdfs.log" || problem "$name: says $(cat "$work/rdfs.log")"
  umount "$work/mnt" || problem "$name: cannot unmount"
  wait_until 50 gone "$client" || problem "$name: rdfs lives on"
}

stream="over tcp over the session's own stream \(ssh\)"
compares=1
mounted "an address that does not answer" "$stream; .*not tcp: "
compares=''
ip route add unreachable 10.77.0.2/32
mounted "an address that is known not to answer" "$stream; .*not tcp: "
mounted "more workers than the stream has lanes for" "1 of 2 workers have to do: the session carries one lane only" -o workers=2
ip route del unreachable 10.77.0.2/32
there ip address add 10.77.0.2/24 dev far
mounted "an address that answers" "over tcp with TLS"
conclude "mounts that only ssh reaches work through it"
