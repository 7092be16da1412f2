#!/usr/bin/env bash
# Usage: few_locks.sh --bin BUILD_DIR --over verbs     (in the guest, booted with --hosts)
#
# Mounts of a user on another host who may lock less and less memory: each works, over verbs or, where not even one lane's
# memory can be registered, over TCP, and says why, also behind a restart of the server; more workers than there is memory
# for are fewer workers.
source "$(dirname "$0")/../e2e/setup.sh"
if [ "$(id -u)" -eq 0 ]; then
  begin "$@"
  mkdir --mode=777 "$work/export"
  nsenter --net=/run/netns/a "$rdfsd" --export "data=$work/export" --listen "$RDFS_HOST_A" --port 7400 --no-auth -f >"$work/rdfsd.log" 2>&1 </dev/null &
  server=$!
  ends_with_us "$server"
  wait_until 100 grep -qs 'ready on port' "$work/rdfsd.log" || { cat "$work/rdfsd.log" >&2; exit 1; }
  # The user asks for a kill of what serves; its supervisor starts another.
  {
    wait_until 3000 test -e "$work/export/kill" && kill -9 "$(pgrep -P "$server")" && rm "$work/export/kill"
  } &
  ends_with_us $!
  RDFS_EXPORT=$work/export nsenter --net=/run/netns/b "$(dirname "$0")/as-user" "$0" "$@" || problem 'mounts do not work'
  conclude 'a server for mounts that may lock little memory'
fi
begin "$@"
export=$RDFS_EXPORT
mkdir "$work/mnt"
head -c 5000001 /dev/urandom >"$export/read"

# mounted KIB OPTION...: mounts with so much that may be locked, and copies there and back by several programs at once.
mounted() {
  local limit=$1 client copies=()
  shift
  prlimit --memlock=$((limit << 10)) "$rdfs" "rdfs://$RDFS_HOST_A:7400/data" "$work/mnt" -f -o plaintext,deadline=10 "$@" \
    >"$work/log" 2>&1 </dev/null &
  client=$!
  ends_with_us "$client"
  wait_until 150 is_mounted "$work/mnt" || { problem "$limit KiB, $*: no mount: $(cat "$work/log")"; return; }
  for i in 1 2 3 4 5 6; do
    { timeout 60 cp "$work/mnt/read" "$work/mnt/written-$i" && cmp "$export/read" "$export/written-$i" &&
      timeout 60 dd "if=$work/mnt/read" bs=100k iflag=direct status=none | cmp - "$export/read"; } &
    copies+=($!)
  done
  for i in "${copies[@]}"; do wait "$i" || problem "$limit KiB, $*: what was copied is another, or was not: $(cat "$work/log")"; done
  if [ "$limit" -eq 1024 ]; then restarted; fi
  fusermount3 -u "$work/mnt" || problem "$limit KiB, $*: no unmount"
  wait_until 100 gone "$client" || problem "$limit KiB, $*: rdfs lives on"
  echo "$limit KiB, $*: $(tail -n 1 "$work/log")"
}
# What is told is still so when the server was killed and is another one.
restarted() {
  : >"$export/kill"
  wait_until 200 test ! -e "$export/kill" || problem 'the server was not killed'
  timeout 20 cp "$work/mnt/read" "$work/mnt/again" && cmp "$export/read" "$export/again" || problem 'no copy behind a restart'
  "$rdfs" status "$work/mnt" >"$work/status" || problem 'rdfs status fails'
  echo "behind a restart: $(grep '^transport' "$work/status")"
  grep -qE '^transport +tcp.*; not verbs: .*lock' "$work/status" || problem "says behind a restart: $(cat "$work/status")"
}
says() { grep -qE "$1" "$work/log" || problem "says: $(cat "$work/log")"; }

for limit in 600 1024 1280; do
  mounted "$limit"
  says 'over tcp.*; not verbs: .*lock'
done
for limit in 1600 2048 3072; do
  mounted "$limit"
  says 'over verbs'
done
mounted 8192 -o require=verbs,workers=4
says 'warning: [1-3] of 4 workers have to do: cannot lock .*limits.d'
conclude 'mounts of a user who may lock little memory'
