#!/usr/bin/env bash
# Usage: chains.sh BIN_DIR shm|tcp|verbs
# One stream to several receivers, each of which passes it on: all get it, and who does not is named.
# shellcheck source=tests/tools/pipe/both_ends.bash
. "$(dirname "$0")/both_ends.bash" "$1" "$2"
head -c 5000001 /dev/urandom >"$work/noise"
declare -a hops pids
# hops COUNT OPTION...: so many receivers, which write $work/got.1 and so on; where they are in `hosts`.
hops() {
  local count=$1 i
  shift
  hops=() pids=()
  for i in $(seq "$count"); do
    receive "$@" "$work/got.$i"
    hops+=("$address:$port")
    pids+=("$receiver")
    mv "$work/recv.err" "$work/recv.err.$i"
  done
  hosts=$(IFS=,; echo "${hops[*]}")
  : >"$work/recv.err"
}
# send_all OPTION...: to all hosts; its status.
send_all() { timeout 60 "$rdsend" --require "$over" "$hosts" 1 "$key" "$@" 2>"$work/send.err"; }
# ended NAME I STATUS: how receiver I should end.
ended() {
  local status
  receiver=${pids[$2 - 1]}
  received; status=$?
  cat "$work/recv.err.$2" >>"$work/recv.err"
  cases=$((cases + 1))
  [ "$status" -eq "$3" ] || problem "$1: receiver $2 ended with $status"
}
sent() {
  cases=$((cases + 1))
  [ "$2" -eq "$3" ] || problem "$1: rdsend ended with $2"
}

# ---- all of them, from a file, a pipe, encrypted ---------------------------------------------------
for how in "" "--encrypt --compress=1" piped; do
  hops 3
  if [ "$how" = piped ]; then
    cat "$work/noise" | send_all; status=$?
  else
    # shellcheck disable=SC2086 # several options
    send_all $how "$work/noise"; status=$?
  fi
  sent "three receivers $how" $status 0
  for i in 1 2 3; do
    ended "three receivers $how" $i 0
    same "three receivers $how" "$work/noise" "$work/got.$i"
  done
  rm -f "$work"/got.*
done
truncate -s 20M "$work/sparse"
echo end >>"$work/sparse"
hops 2
send_all "$work/sparse"; sent "a sparse file" $? 0
for i in 1 2; do ended "a sparse file" $i 0; same "a sparse file" "$work/sparse" "$work/got.$i"; done
hops 2
send_all </dev/null; sent "nothing" $? 0
for i in 1 2; do ended "nothing" $i 0; same "nothing" /dev/null "$work/got.$i"; done

# ---- rdrecv --forward ------------------------------------------------------------------------------
rm -f "$work"/got.*
hops 1
receive --forward "$hosts" "$work/got.first"
send <"$work/noise"; status=$?
received; both "--forward" $status $?
ended "--forward" 1 0
same "--forward, the first" "$work/noise" "$work/got.first"
same "--forward, the second" "$work/noise" "$work/got.1"

# ---- one that fails is named, the others finish ----------------------------------------------------
# A full disk at the first, in the middle, at the end.
for bad in 1 2 3; do
  rm -f "$work"/got.*
  ln -s /dev/full "$work/got.$bad"
  hops 3
  send_all "$work/noise"; sent "a full disk at $bad" $? 1
  says "a full disk at $bad" send "${hops[bad - 1]}: .*No space left"
  for i in 1 2 3; do
    [ $i -eq $bad ] && { ended "a full disk at $bad" $i 1; continue; }
    ended "a full disk at $bad" $i 0
    same "a full disk at $bad" "$work/noise" "$work/got.$i"
  done
done
# One that is not there.
rm -f "$work"/got.*
hops 3
for bad in 1 2; do
  kill "${pids[bad - 1]}"
  receiver=${pids[bad - 1]}
  received
done
send_all --wait 0.1 "$work/noise"; sent "the first two are not there" $? 1
[ "$(grep -c 'rdrecv does not answer' "$work/send.err")" -eq 2 ] || problem "the first two are not there: not named"
ended "the first two are not there" 3 0
same "the first two are not there" "$work/noise" "$work/got.3"
# One that is killed in the middle: the one before finishes, and it and the one behind are named.
rm -f "$work"/got.*
mkfifo "$work/got.2"
hops 3
(cat "$work/noise"; for _ in $(seq 400); do [ -e "$work/killed" ] && break; sleep 0.02; done; cat "$work/noise") |
  (send_all; echo $? >"$work/sent") &
waiting=$!
children+=("$waiting")
exec 5<"$work/got.2"
head -c 1000 <&5 >/dev/null
kill -KILL "${pids[1]}"
touch "$work/killed"
wait "$waiting"
exec 5<&-
sent "one is killed" "$(cat "$work/sent")" 1
grep -q "${hops[1]}: the receiver is gone" "$work/send.err" || problem "one is killed: not named"
grep -q "${hops[2]}: not known to have it whole" "$work/send.err" || problem "one is killed: the one behind is not named"
cat "$work/noise" "$work/noise" >"$work/twice"
ended "one is killed" 1 0
# Who was killed may not have begun the stream to the one behind, which says so and waits for another sender.
for _ in $(seq 100); do
  kill -0 "${pids[2]}" 2>/dev/null || break
  grep -q 'came and went without a stream' "$work/recv.err.3" && kill "${pids[2]}" && break
  sleep 0.02
done
ended "one is killed" 3 1
same "one is killed, the first" "$work/twice" "$work/got.1"
[ ! -e "$work/got.3" ] || problem "one is killed: the last has a part under its final name"
conclude
