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
for i in 1 2; do
  ended "a sparse file" $i 0
  same "a sparse file" "$work/sparse" "$work/got.$i"
  [ "$(du -k "$work/got.$i" | cut -f1)" -le 1024 ] || problem "a sparse file: receiver $i has made zeros of its holes"
done
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

# Behind those that the sender names; who is among these gets it once.
rm -f "$work"/got.*
hops 2
receive --forward "$hosts" "$work/got.first"
timeout 60 "$rdsend" --require "$over" "$address:$port,${hops[1]}" 1 "$key" "$work/noise" 2>"$work/send.err"; status=$?
received; both "--forward behind the sender's" $status $?
same "--forward behind the sender's, the first" "$work/noise" "$work/got.first"
for i in 1 2; do
  ended "--forward behind the sender's" $i 0
  same "--forward behind the sender's, $i" "$work/noise" "$work/got.$i"
done

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
# named NAME REGEX...: rdsend says so of each, and nothing else.
named() {
  local name=$1 regex
  shift
  for regex; do grep -q "$regex" "$work/send.err" || problem "$name: rdsend does not say $regex"; done
  [ "$(wc -l <"$work/send.err")" -eq $# ] || problem "$name: rdsend says more than $*"
}
# One that is killed in the middle: the one before gives the stream to the one behind, out of its own file.
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
named "one is killed" "${hops[1]}: the receiver is gone"
cat "$work/noise" "$work/noise" >"$work/twice"
for i in 1 3; do ended "one is killed" $i 0; same "one is killed" "$work/twice" "$work/got.$i"; done
rm "$work/got.2"
# The first is killed, while the last is so slow that the others have a part: rdsend gives its file to the second, which
# goes on behind what it has. With a pipe there is nothing to go on with: all behind it are named, and give up.
mib=$((1 << 20))
head -c $((60 * mib)) /dev/urandom >"$work/big"  # more than what is on its way: else the first has all of it
# await_parts COUNT SIZE: until so many receivers have stored more than that.
await_parts() {
  for _ in $(seq 1000); do
    [ "$(find "$work" -name '.rdrecv-*' -size "+$2" | wc -l)" -ge "$1" ] && break
    sleep 0.01
  done
}
# first_dies PARTS OPTION...: of the receivers, once so many have a part; the last one stands still until then if it is
# not among them. rdsend's standard input is its source, its status in $work/sent.
first_dies() {
  local count=$1
  shift
  exec 6<&0
  rm -f "$work"/got.* "$work"/.rdrecv-*
  hops 3 -v --piece 256K --pieces 16 "$@"
  [ "$count" -eq 3 ] || kill -STOP "${pids[2]}"
  (send_all <&6; echo $? >"$work/sent") &
  waiting=$!
  children+=("$waiting")
  exec 6<&-
  await_parts "$count" 900k
  kill -KILL "${pids[0]}"
  touch "$work/first_killed"
  kill -CONT "${pids[2]}"
  wait "$waiting"
}
first_dies 2 <"$work/big"
sent "the first is killed" "$(cat "$work/sent")" 1
named "the first is killed" "${hops[0]}: the receiver is gone"
for i in 2 3; do ended "the first is killed" $i 0; same "the first is killed" "$work/big" "$work/got.$i"; done
grep -q "sender is gone.*; waiting 60 s for another" "$work/recv.err.2" || problem "the first is killed: the second does not say that it waits"
grep -q "went on behind [1-9][0-9]* bytes" "$work/recv.err.2" || problem "the first is killed: the second began anew"
rm "$work/first_killed"
first_dies 3 --timeout 5 < <(
  head -c $((20 * mib)) "$work/big"
  for _ in $(seq 500); do [ -e "$work/first_killed" ] && break; sleep 0.02; done
  cat "$work/big")
sent "the first is killed, of a pipe" "$(cat "$work/sent")" 1
named "the first is killed, of a pipe" "${hops[0]}: the receiver is gone" "${hops[1]}: not known" "${hops[2]}: not known"
for i in 2 3; do
  ended "the first is killed, of a pipe" $i 1
  grep -q 'waiting 5 s for another' "$work/recv.err.$i" || problem "the first is killed, of a pipe: receiver $i does not wait"
done
# One dies behind a hole: the one before gives its file, hole and all.
rm -f "$work"/got.* "$work"/.rdrecv-*
truncate -s 1G "$work/hollow"
cat "$work/big" >>"$work/hollow"
hops 3 -v --piece 256K --pieces 16
kill -STOP "${pids[2]}"
send_all "$work/hollow" &
waiting=$!
children+=("$waiting")
await_parts 2 1024M
kill -KILL "${pids[1]}"
kill -CONT "${pids[2]}"
wait "$waiting"
sent "one dies behind a hole" $? 1
named "one dies behind a hole" "${hops[1]}: the receiver is gone"
for i in 1 3; do
  ended "one dies behind a hole" $i 0
  same "one dies behind a hole" "$work/hollow" "$work/got.$i"
  [ "$(du -m "$work/got.$i" | cut -f1)" -le 70 ] || problem "one dies behind a hole: receiver $i has made zeros of it"
done
rm -f "$work/hollow" "$work"/got.* "$work"/.rdrecv-*
# rdsend itself is killed: nobody can go on, and nobody waits.
rm -f "$work"/got.* "$work"/.rdrecv-*
hops 3 --piece 256K --pieces 16
kill -STOP "${pids[2]}"
timeout 60 "$rdsend" --require "$over" "$hosts" 1 "$key" "$work/big" 2>"$work/send.err" &
sending=$!
children+=("$sending")
await_parts 2 900k
pkill -KILL -P "$sending"
kill -CONT "${pids[2]}"
wait "$sending" && problem "rdsend is killed: it ended with 0"
for i in 1 2 3; do
  ended "rdsend is killed" $i 1
  grep -q 'waiting' "$work/recv.err.$i" && problem "rdsend is killed: receiver $i waits"
done
clean "rdsend is killed" "$work"
# One whose disk is full keeps what it has, where it is told to.
if [ "$(id -u)" -eq 0 ] && mkdir "$work/small" && mount -t tmpfs -o size=2m tmpfs "$work/small" 2>/dev/null; then
  rm -f "$work"/got.*
  touch "$work/small/file"
  ln -s small/file "$work/got.2"
  hops 3 --keep-partial
  send_all "$work/noise"; sent "a full disk in the middle" $? 1
  for i in 1 3; do ended "a full disk in the middle" $i 0; same "a full disk in the middle" "$work/noise" "$work/got.$i"; done
  ended "a full disk in the middle" 2 1
  grep -q 'No space left on device; what had come is kept in .*/small/file.rdpart' "$work/recv.err.2" ||
    problem "a full disk in the middle: it does not say what is kept"
  cmp -s -n "$(stat -c %s "$work/small/file.rdpart")" "$work/noise" "$work/small/file.rdpart" ||
    problem "a full disk in the middle: its part is something else"
  rm -f "$work/got.2"
  umount "$work/small"
elif [ "$(id -u)" -eq 0 ]; then
  problem "a full disk in the middle: root cannot mount a tmpfs"
fi
# ---- one that broke off goes on where each of them was -----------------------------------------------
# went_on NAME I BYTES: receiver I, behind so many.
went_on() {
  grep -q "went on behind $3 bytes" "$work/recv.err.$2" || [ "$3" -eq 0 ] ||
    problem "$1: receiver $2 did not go on behind $3 bytes: $(cat "$work/recv.err.$2")"
  [ "$3" -ne 0 ] || ! grep -q "went on behind" "$work/recv.err.$2" ||
    problem "$1: receiver $2 went on: $(cat "$work/recv.err.$2")"
}
# resumes NAME BYTES BYTES BYTES OPTION...: with the parts there, all of three go on behind so many bytes.
resumes() {
  local name=$1 i begin=("$2" "$3" "$4")
  shift 4
  hops 3 -v --resume
  send_all "$@" "$work/long"; sent "$name" $? 0
  for i in 1 2 3; do
    ended "$name" $i 0
    same "$name" "$work/long" "$work/got.$i"
    [ ! -e "$work/got.$i.rdpart" ] || problem "$name: receiver $i left its part"
    went_on "$name" $i "${begin[i - 1]}"
  done
}
rm -f "$work"/got.*
{ head -c $((5 * mib)) /dev/urandom; cat "$work/sparse"; head -c 5000001 /dev/urandom; } >"$work/dense"
cp --sparse=always "$work/dense" "$work/long"
# The first has most, and gives the others what they lack; the last has more than the one before it.
part() { head -c "$2" "$work/long" | cp --sparse=always /dev/stdin "$work/got.$1.rdpart"; }
part 1 $((7 * mib + 123)); part 2 $((3 * mib)); part 3 $((9 * mib))
resumes "parts of other lengths" $((7 * mib + 123)) $((3 * mib)) $((3 * mib))
part 1 $((28 * mib)); part 2 $((26 * mib)); part 3 $((2 * mib + 1))
resumes "parts of other lengths, encrypted" $((28 * mib)) $((26 * mib)) $((2 * mib + 1)) --encrypt --compress=1
# A part of something else, in the middle of the chain; none at all; all of it and more.
part 1 $((4 * mib)); part 3 $((4 * mib))
{ head -c $((mib + 1)) "$work/long"; head -c $((3 * mib)) /dev/urandom; } >"$work/got.2.rdpart"
resumes "a part of another stream" $((4 * mib)) $mib $mib
part 2 $((4 * mib)); part 3 $((4 * mib))
resumes "none at the first" 0 0 0
part 1 $((4 * mib))
resumes "none at the others" $((4 * mib)) 0 0
size=$(stat -c %s "$work/long")
part 1 "$size"; part 2 "$size"; cp "$work/long" "$work/got.3.rdpart"; echo more >>"$work/got.3.rdpart"
resumes "all of it" "$size" "$size" $((size / mib * mib))
# Not all of them resume.
part 1 $((6 * mib)); part 2 $((6 * mib))
hops 1
last=${hops[0]} last_pid=${pids[0]}
mv "$work/recv.err.1" "$work/recv.err.last"
mv "$work/got.1.rdpart" "$work/first"
receive -v --resume --forward "$last" "$work/got.2"
mv "$work/first" "$work/got.1.rdpart"
send "$work/long"; status=$?
received; both "the last does not resume" $status $?
grep -q "went on behind $((6 * mib)) bytes" "$work/recv.err" || problem "the last does not resume: the first did not"
receiver=$last_pid
received || problem "the last does not resume: it ended with $?"
same "the last does not resume, the first" "$work/long" "$work/got.2"
same "the last does not resume, the last" "$work/long" "$work/got.1"
rm -f "$work"/got.*
# Everything is killed in the middle: the third takes nothing any more, then the sender and the first die.
mkfifo "$work/got.3"
hops 2 -v --resume --piece 256K --pieces 16 --timeout 5
receive -v --piece 256K --pieces 16 --timeout 5 "$work/got.3"
hosts+=",$address:$port" pids+=("$receiver")
mv "$work/recv.err" "$work/recv.err.3"
: >"$work/recv.err"
timeout 60 "$rdsend" --require "$over" "$hosts" 1 "$key" "$work/big" 2>"$work/send.err" &
sending=$!
children+=("$sending")
exec 5<"$work/got.3"
head -c 1000 <&5 >/dev/null
for _ in $(seq 500); do
  [ "$(stat -c %s "$work/got.2.rdpart" 2>/dev/null || echo 0)" -gt $((3 * mib)) ] && break
  sleep 0.02
done
pkill -KILL -P "$sending"
kill -KILL "${pids[0]}"
wait "$sending" && problem "killed in the middle: rdsend ended with 0"
exec 5<&-
for i in 1 2 3; do receiver=${pids[i - 1]}; received && problem "killed in the middle: receiver $i ended with 0"; done
rm "$work/got.3"
[ -s "$work/got.1.rdpart" ] && [ -s "$work/got.2.rdpart" ] || problem "killed in the middle: no part is kept"
hops 3 -v --resume
send_all "$work/big"; sent "after being killed" $? 0
for i in 1 2 3; do ended "after being killed" $i 0; same "after being killed" "$work/big" "$work/got.$i"; done
grep -q 'went on behind' "$work/recv.err.2" || problem "after being killed: the second did not go on"
conclude
