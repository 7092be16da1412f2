#!/usr/bin/env bash
# Usage: two_ways.sh --bin BUILD_DIR [--over verbs]     (as root)
#
# A server with two addresses, each over a link of its own (network namespaces): a mount that was told of both carries
# over both, goes on over one while the other is cut, whichever that is, and begins over the one that answers. Over verbs
# each end of each link has a soft-RDMA device (in the guest of tests/rdma, with --hosts).
set -uo pipefail
[ "$(id -u)" -eq 0 ] || { echo "only root can run rdfsd as root between network namespaces" >&2; exit 1; }
[ -n "${RDFS_TWO_WAYS_INSIDE:-}" ] || exec env RDFS_TWO_WAYS_INSIDE=1 unshare --net --mount "$0" "$@"
. "$(dirname "$0")/setup.sh"
begin "$@"

second_network
ip link set lo up && there ip link set lo up
for i in 1 2; do
  # No two with one index: soft-iWARP looks for a device by that, in whichever namespace.
  ip link add "near$i" index "10$i" type veth peer name "far$i" index "20$i" netns "$far" || { echo "$this: no veth" >&2; exit 1; }
  ip address add "10.77.$i.1/24" dev "near$i" && ip link set "near$i" up
  there ip address add "10.77.$i.2/24" dev "far$i" && there ip link set "far$i" up
  # Slow enough for both to be used.
  there tc qdisc add dev "far$i" root tbf rate 400mbit burst 256kb latency 50ms 2>/dev/null ||
    there tc qdisc add dev "far$i" root netem rate 400mbit limit 1000 || problem "neither tbf nor netem"
  [ "$over" = verbs ] || continue
  rdma link add "way_near$i" type "$RDFS_RDMA_DRIVER" netdev "near$i" || problem "no device"
  there rdma link add "way_far$i" type "$RDFS_RDMA_DRIVER" netdev "far$i" || problem "no device"
done
active() { [ "$(cat /sys/class/infiniband/way_*/ports/1/state | grep -c ACTIVE)" -eq 4 ]; }
[ "$over" != verbs ] || wait_until 100 active || problem "devices: $(rdma link)"
received() { sed -n "s/^ *near$1: *\([0-9]*\).*/\1/p" /proc/net/dev; }

mkdir -p "$work/export" "$work/mnt" && chmod 777 "$work/export"
for i in 1 2 3 4; do head -c 10000001 /dev/urandom >"$work/export/$i"; done
(umask 077 && head -c 32 /dev/urandom | base64 >"$work/key")
there "$rdfsd" --export "data=$work/export" --key-file "$work/key" -f >"$work/rdfsd.log" 2>&1 &
ends_with_us $!
listening() { there ss -Hltn 'sport = :7337' | grep -q .; }
wait_until 100 listening || problem "no server: $(cat "$work/rdfsd.log")"

# mounted ADDRESS OTHER: a mount in $client.
mounted() {
  "$rdfs" "rdfs://$1/data" "$work/mnt" -f -o "address=$2,key_file=$work/key,workers=2,require=${over:-tcp},deadline=12" >"$work/rdfs.log" 2>&1 </dev/null &
  client=$!
  ends_with_us "$client"
  wait_until 300 is_mounted "$work/mnt" || { problem "no mount: $(cat "$work/rdfs.log" "$work/rdfsd.log")"; return 1; }
}
unmounted() {
  umount "$work/mnt" || problem "$1: cannot unmount"
  wait_until 150 gone "$client" || problem "$1: rdfs lives on"
}
# reads_right: all files side by side, past the kernel's pages.
reads_right() {
  local i pids=() wrong=0
  for i in 1 2 3 4; do
    dd if="$work/mnt/$i" iflag=nocache count=0 status=none
    cmp "$work/mnt/$i" "$work/export/$i" &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || wrong=1; done
  return "$wrong"
}

mounted 10.77.1.2 10.77.2.2 || conclude "nothing"
before=("$(received 1)" "$(received 2)")
reads_right || problem "both links: another content, or an error"
for i in 1 2; do
  carried=$(($(received $i) - before[i - 1]))
  [ "$carried" -gt 4000000 ] || problem "both links: number $i carried $carried bytes"
done
for i in 1 2; do
  reads_right &
  reading=$!
  sleep 0.2
  there ip link set "far$i" down
  wait "$reading" || problem "link $i is cut: another content, or an error"
  echo "written while link $i was cut" >"$work/mnt/new$i" || problem "link $i is cut: cannot write"
  grep -q "link $i" "$work/export/new$i" || problem "link $i is cut: what was written is not there"
  there ip link set "far$i" up
  ip neigh flush dev "near$i"
  sleep 1
done
reads_right || problem "both links again: another content, or an error"
unmounted "both links"

# The first does not answer when the mount begins.
there ip link set far1 down
if mounted 10.77.1.2 10.77.2.2; then
  reads_right || problem "the second address alone: another content, or an error"
  unmounted "the second address alone"
fi
grep -q 'warning' "$work/rdfsd.log" && problem "the server warns: $(cat "$work/rdfsd.log")"
conclude "a mount goes over two links, and over one where the other is cut"
