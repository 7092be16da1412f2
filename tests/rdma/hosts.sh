#!/usr/bin/env bash
# Usage: hosts.sh BUILD_DIR     (in the guest, booted with --hosts)
# Two hosts: host a serves, host b measures (rdping), looks (rdinfo) and mounts (rdfs), over verbs and over tcp,
# by IPv4, by a global IPv6 address and by a link-scoped one. A tree that is copied in must read back the same
# on both hosts.
set -uo pipefail
bin=$1
work=$(mktemp -d)
failures=0
servers=()

# shellcheck source=tests/rdma/hosts_setup.bash
. "$(dirname "$0")/hosts_setup.bash"
fail() {
  echo "FAILED: $1" >&2
  tail -n 20 "$work"/*.log >&2
  failures=$((failures + 1))
}
finish() {
  local server
  for server in "${servers[@]}"; do kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; done
}
trap finish EXIT

# wait_for FILE REGEX
wait_for() {
  local tries
  for ((tries = 0; tries < 200; tries++)); do
    grep -qE "$2" "$1" 2>/dev/null && return
    sleep 0.1
  done
  return 1
}
# listener PORT: of TCP on host a
free_port() { echo $((20000 + RANDOM % 20000)); }

# reports HOST PORT REGEX OPTION...: a row of its report, READs among it.
reports() {
  local host=$1 port=$2 row=$3
  shift 3
  on b "$bin/tools/rdping/rdping" client "$host" "$port" --seconds 0.05 --sizes 65536 "$@" >"$work/report.log" 2>&1 &&
    grep -qE "^$row +READ " "$work/report.log"
}

measure() { # NAME LISTEN HOST
  local log=$work/rdping.log port
  rm -f "$log"  # what the last server wrote must not be taken for this one's
  port=$(free_port)
  start_on a "$bin/tools/rdping/rdping" server "$port" --listen "$2" >"$log" 2>&1 &
  servers+=($!)
  wait_for "$log" 'rdping client' || return 1
  reports "$3" "$port" verbs --require verbs || return 1
  reports "$3" "$port" 'tcp \(TLS\)' --require tcp || return 1
  reports "$3" "$port" tcp --require tcp --plaintext || return 1
  on b "$bin/tools/rdinfo/rdinfo" "$3" "$port" >"$work/rdinfo.log" 2>&1 || return 1
  grep -qE 'verbs +works' "$work/rdinfo.log" && grep -qE 'tcp +works' "$work/rdinfo.log" || return 1
  kill "${servers[-1]}" && wait "${servers[-1]}"
  unset 'servers[-1]'
}

mount_and_compare() { # LISTEN URL-HOST TRANSPORT
  local log=$work/rdfsd.log port export=$work/export mnt=$work/mnt client status=0
  port=$(free_port)
  rm -f "$log" "$work/rdfs.log"
  mkdir -p "$export" "$mnt"
  start_on a "$bin/server/rdfsd" --export "e=$export,trusted" --listen "$1" --port "$port" --no-auth -f >"$log" 2>&1 &
  servers+=($!)
  wait_for "$log" 'ready on port' || return 1
  start_on b "$bin/fs/fuse/rdfs" "rdfs://$2:$port/e" "$mnt" -o "require=$3" -f >"$work/rdfs.log" 2>&1 &
  client=$!
  wait_for /proc/self/mountinfo " $mnt .* - fuse" || return 1
  { cp -r "$work/tree" "$mnt/tree" && diff -r "$work/tree" "$mnt/tree" && diff -r "$work/tree" "$export/tree"; } || status=1
  grep -q "over $3" "$work/rdfs.log" || status=1
  fusermount3 -u "$mnt" || status=1
  wait "$client" || status=1
  kill "${servers[-1]}" && wait "${servers[-1]}"
  unset 'servers[-1]'
  rm -rf "$export"
  return $status
}

scoped() { ip -n "$1" -6 -o address show dev "link-$1" scope link | awk '{ sub(/\/.*/, "", $4); print $4; exit }'; }

mkdir -p "$work/tree/sub"
for number in $(seq 40); do head -c $((number * 7919)) /dev/urandom >"$work/tree/sub/$number"; done
head -c 5000000 /dev/urandom >"$work/tree/large"

# A link-scoped address may be used once it is known to be nobody else's.
for ((tries = 0; tries < 100; tries++)); do
  ip -n a -6 address show dev link-a tentative | grep -q fe80 || ip -n b -6 address show dev link-b tentative | grep -q fe80 || break
  sleep 0.1
done
link=$(scoped a)
check() { # NAME LISTEN HOST URL-HOST
  if measure "$1" "$2" "$3"; then echo "$1: rdping and rdinfo"; else fail "$1: rdping or rdinfo"; fi
  local transport
  for transport in verbs tcp; do
    if mount_and_compare "$2" "$4" $transport; then echo "$1: mount over $transport"; else fail "$1: mount over $transport"; fi
  done
}
check IPv4 "$RDFS_HOST_A" "$RDFS_HOST_A" "$RDFS_HOST_A"
check IPv6 "$RDFS_HOST_A6" "$RDFS_HOST_A6" "[$RDFS_HOST_A6]"
check 'IPv6, link scope' "$link%link-a" "$link%link-b" "[$link%link-b]"
exit $((failures > 0))
