#!/usr/bin/env bash
# Usage: copy_moves.sh --bin BUILD_DIR
#
# rdcp between two network namespaces, whose machines reach each other by something like ssh, and by their
# addresses at once, never, or after a while: a copy begins without waiting, and moves to what answers.
set -uo pipefail
[ -n "${RDFS_COPY_MOVES_INSIDE:-}" ] ||
  exec env RDFS_COPY_MOVES_INSIDE=1 unshare --map-root-user --net "$0" "$@"
. "$(dirname "$0")/setup.sh"
begin "$@"

# The other machine, and a way to it that no address is needed for.
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
reachable() { there ip address replace 10.77.0.2/24 dev far; }
unreachable() { there ip address flush dev far && ip neighbour flush dev near; }

mkdir "$work/src"
head -c 8000001 /dev/urandom >"$work/src/large"
for i in $(seq 50); do echo "$i" >"$work/src/$i"; done
# copied NAME FROM TO REGEX ARGUMENT...: whole, and -v says so.
copied() {
  local name=$1 from=$2 to=$3 regex=$4
  shift 4
  rm -rf "$work/dst" && mkdir "$work/dst"
  : >"$work/err"
  timeout 60 "$bin/tools/copy/rdcp" -v -r -e "$work/ssh" --rdcp-path "$bin/tools/copy/rdcp" "$@" "$from" "$to" \
    >"$work/out" 2>"$work/err" </dev/null || problem "$name: exit status $?"
  tr '\n' ' ' <"$work/err" | grep -qE "$regex" || problem "$name: says $(cat "$work/err")"
  diff -r "$work/src" "$work/dst" || problem "$name: the copy is another"
}
first="far: over ssh's own stream at first"

# Between hosts several lanes, without being asked for.
head -c 30000001 /dev/urandom >"$work/larger"
mkdir "$work/src.larger" && mv "$work/larger" "$work/src.larger"
reachable
for way in there back; do
  rm -rf "$work/dst" && mkdir "$work/dst"
  if [ $way = there ]; then to=("$work/src.larger/." far:"$work/dst"); else to=(far:"$work/src.larger/." "$work/dst"); fi
  timeout 60 "$bin/tools/copy/rdcp" -v -r -e "$work/ssh" --rdcp-path "$bin/tools/copy/rdcp" --bwlimit 15M "${to[@]}" \
    >"$work/out" 2>"$work/err" </dev/null || problem "lanes, $way: exit status $?"
  grep -q 'far: 4 lanes carried the data' "$work/err" || problem "lanes, $way: says $(cat "$work/err")"
  diff -r "$work/src.larger" "$work/dst" || problem "lanes, $way: the copy is another"
done
copied "at once" "$work/src/." far:"$work/dst" '^rdcp: far: over tcp with TLS'
unreachable
copied "short, and no way" "$work/src/." far:"$work/dst" "$first.*far: ended before anything better had answered"
copied "no way" far:"$work/src/." "$work/dst" "$first.*far: stays on tcp over the session's own stream \(ssh\); not tcp: " \
  --bwlimit 1M
# warns NAME REGEX ARGUMENT...: without -v that sentence is all that is said; without a REGEX nothing is.
warns() {
  local name=$1 regex=$2
  shift 2
  rm -rf "$work/dst" && mkdir "$work/dst"
  timeout 60 "$bin/tools/copy/rdcp" -r -e "$work/ssh" --rdcp-path "$bin/tools/copy/rdcp" "$@" far:"$work/src/." "$work/dst" \
    >"$work/out" 2>"$work/err" </dev/null || problem "$name: exit status $?"
  if [ -z "$regex" ]; then [ ! -s "$work/err" ]; else
    [ "$(wc -l <"$work/err")" -eq 1 ] && grep -qE "$regex" "$work/err"
  fi || problem "$name: says $(cat "$work/err")"
}
stream="tcp over the session's own stream \(ssh\); not tcp: "
warns "no way, without -v" "^rdcp: far: stays on $stream" --bwlimit 1M
ip route add unreachable 10.77.0.2/32
warns "no way, and that is known at once" "^rdcp: far: (over|stays on) $stream" --bwlimit 4M
warns "no way, with -q" '' -q
ip route del unreachable 10.77.0.2/32
for way in there back; do
  unreachable
  : >"$work/err"  # the last copy's words are not to be taken for this one's
  begun() { grep -q "$first" "$work/err"; }
  { wait_until 100 begun && sleep 0.5 && reachable; } &
  if [ $way = there ]; then
    copied "there, and a way appears" "$work/src/." far:"$work/dst" "$first.*far: moved to tcp with TLS" --bwlimit 1M
  else
    copied "back, and a way appears" far:"$work/src/." "$work/dst" "$first.*far: moved to tcp with TLS" --bwlimit 1M
  fi
  wait $!
done
conclude "what answers at once, never, and later"
