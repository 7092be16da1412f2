#!/usr/bin/env bash
# Usage: streams.sh BIN_DIR shm|tcp|verbs
# Streams that arrive: sizes at every boundary, from and to pipes, files, FIFOs and devices, compressed,
# encrypted, chained, resumed.
# shellcheck source=tests/tools/pipe/both_ends.bash
. "$(dirname "$0")/both_ends.bash" "$1" "$2"
mkdir "$work/dir"

# ---- sizes, from standard input to standard output ------------------------------------------------
head -c 5000001 /dev/urandom >"$work/noise"
chunk=1048576
for size in 0 1 $((chunk - 1)) $chunk $((chunk + 1)) 5000001; do
  head -c "$size" "$work/noise" >"$work/in"
  receive
  send <"$work/in"; sent=$?
  received; both "$size bytes from a file as standard input" $sent $?
  same "$size bytes" "$work/in" "$work/out"
  receive
  cat "$work/in" | send; sent=$?
  received; both "$size bytes through a pipe" $sent $?
  same "$size bytes through a pipe" "$work/in" "$work/out"
  receive "$work/dir/file"
  send "$work/in"; sent=$?
  received; both "$size bytes, files at both ends" $sent $?
  same "$size bytes, files" "$work/in" "$work/dir/file"
  clean "$size bytes, files" "$work/dir"
done
# Around the pieces and the ring between processes of one host, and what a pipe takes at once.
[ "$over" = verbs ] && edges="2097152 4194304" || edges="65536 524288 2097152"
for edge in $edges; do
  for size in $((edge - 1)) $edge $((edge + 1)); do
    head -c "$size" "$work/noise" >"$work/in"
    receive
    cat "$work/in" | send; sent=$?
    received; both "$size bytes through a pipe" $sent $?
    same "$size bytes through a pipe" "$work/in" "$work/out"
  done
done
receive
(echo one; sleep 0.1; echo two) | send; sent=$?
received; both "a slow writer" $sent $?
[ "$(cat "$work/out")" = $'one\ntwo' ] || problem "a slow writer: lost something"

for ring in "--piece 4096 --pieces 1" "--piece 4K --pieces 64" "--piece 16M --pieces 2"; do
  # shellcheck disable=SC2086 # several options
  receive $ring
  send "$work/noise"; sent=$?
  received; both "$ring" $sent $?
  same "$ring" "$work/noise" "$work/out"
done

# ---- compressed, encrypted -------------------------------------------------------------------------
for options in --compress --compress=1 --encrypt "--encrypt --compress=3"; do
  (seq 300000; head -c 1500000 "$work/noise") >"$work/in"
  receive
  # shellcheck disable=SC2086 # several options
  cat "$work/in" | send $options; sent=$?
  received; both "$options" $sent $?
  same "$options" "$work/in" "$work/out"
  receive "$work/dir/file"
  # shellcheck disable=SC2086
  send $options "$work/in"; sent=$?
  received; both "$options, files" $sent $?
  same "$options, files" "$work/in" "$work/dir/file"
done
receive --encrypt
send --encrypt <"$work/in"; sent=$?
received; both "--encrypt at both ends" $sent $?

# ---- sparse files, modes, symlinks -----------------------------------------------------------------
truncate -s 200M "$work/sparse"
printf middle | dd of="$work/sparse" bs=1 seek=100000000 conv=notrunc status=none
umask 027
receive "$work/dir/sparse"
umask 022
send "$work/sparse"; sent=$?
received; both "a sparse file" $sent $?
same "a sparse file" "$work/sparse" "$work/dir/sparse"
[ "$(stat -c %b "$work/dir/sparse")" -lt 8192 ] || problem "a sparse file: $(stat -c %b "$work/dir/sparse") blocks"
[ "$(stat -c %a "$work/dir/sparse")" = 640 ] || problem "the mode is not from umask"
receive
truncate -s 3M "$work/hole"
send "$work/hole"; sent=$?
received; both "a hole to standard output" $sent $?
same "a hole to standard output" "$work/hole" "$work/out"
echo old >"$work/dir/target"
ln -s target "$work/dir/link"
receive "$work/dir/link"
echo new | send; sent=$?
received; both "a symlink" $sent $?
[ -L "$work/dir/link" ] && [ "$(cat "$work/dir/target")" = new ] || problem "a symlink: replaced"

# Beyond 32 bits: data on both sides of 4 GiB, and one byte behind.
truncate -s 4294967297 "$work/vast"
for place in 4294967294 4294967295 4294967296; do
  printf %s "${place: -1}" | dd of="$work/vast" bs=1 seek="$place" conv=notrunc status=none
done
receive "$work/dir/vast"
send "$work/vast"; sent=$?
received; both "4 GiB + 1" $sent $?
[ "$(stat -c %s "$work/dir/vast")" -eq 4294967297 ] || problem "4 GiB + 1: its size is wrong"
[ "$(tail -c 3 "$work/dir/vast")" = 456 ] || problem "4 GiB + 1: its end is wrong"
[ "$(stat -c %b "$work/dir/vast")" -lt 8192 ] || problem "4 GiB + 1: $(stat -c %b "$work/dir/vast") blocks"
rm -f "$work/vast" "$work/dir/vast"

# ---- slow and stopped --------------------------------------------------------------------------------
# An output that nobody reads for a while, and each end stopped in the middle of it.
# stop PID: until it stands still.
stop() {
  kill -STOP "$1"
  for _ in $(seq 500); do grep -q '^State:.*T' "/proc/$1/status" && return 0; sleep 0.01; done
  problem "slow and stopped: process $1 does not stop"
}
mkfifo "$work/slow"
receive "$work/slow"
send "$work/noise" &
waiting=$!
children+=("$waiting")
exec 5<"$work/slow"
head -c 100000 <&5 >"$work/got"
stop "$receiver"
kill -CONT "$receiver"
sender=$(pgrep -P "$(pgrep -P "$waiting" timeout)" rdsend)
stop "$sender"
cat <&5 >>"$work/got" &
reader=$!
kill -CONT "$sender"
wait "$waiting"; sent=$?
received; both "slow and stopped" $sent $?
exec 5<&-
wait "$reader"
same "slow and stopped" "$work/noise" "$work/got"

# The same of pipes at both ends, where no thread waits for them. 6 keeps the FIFO open for the receiver's shell.
rm "$work/out"
mkfifo "$work/out"
exec 6<>"$work/out"
receive
cat "$work/noise" | send &
waiting=$!
children+=("$waiting")
head -c 100000 <&6 >"$work/got"
stop "$receiver"
# What is there: on a busy machine it has not come far.
dd if="$work/out" iflag=nonblock bs=50000 count=1 status=none >>"$work/got" 2>/dev/null
kill -CONT "$receiver"
head -c $((5000001 - $(stat -c %s "$work/got"))) <&6 >>"$work/got"
wait "$waiting"; sent=$?
received; both "slow and stopped, pipes" $sent $?
exec 6<&-
same "slow and stopped, pipes" "$work/noise" "$work/got"
rm "$work/out"

# ---- FIFOs and devices -----------------------------------------------------------------------------
mkfifo "$work/fifo_in" "$work/fifo_out"
receive "$work/fifo_out"
cat "$work/fifo_out" >"$work/got" &
children+=($!)
cat "$work/noise" >"$work/fifo_in" &
children+=($!)
send "$work/fifo_in"; sent=$?
received; both "FIFOs" $sent $?
wait "${children[@]: -2}"
same "FIFOs" "$work/noise" "$work/got"
[ -p "$work/fifo_out" ] || problem "FIFOs: replaced"
receive /dev/null
send "$work/noise"; sent=$?
received; both "a device" $sent $?
[ -c /dev/null ] || problem "a device: replaced"
receive
send /proc/self/status; sent=$?
received; both "a file without a size" $sent $?
[ -s "$work/out" ] || problem "a file without a size: is empty"

# ---- what a terminal shows ---------------------------------------------------------------------------
# on_terminal ARGUMENT...: rdsend with a terminal for its standard error; what that got is in $work/send.err.
on_terminal() {
  "$(dirname "$0")/../on_terminal.py" "$rdsend" --require "$over" "$address" "$port" "$key" "$@" >"$work/send.err"
}
# It ends with an empty line, the bar having been removed.
shows() {
  grep -qaE "$2" "$work/send.err" || problem "$1: the terminal does not show $2"
  tail -c 4 "$work/send.err" | cmp -s - <(printf '\r\033[K') || problem "$1: the terminal keeps something"
}
receive "$work/fifo_out"
(sleep 1; cat) <"$work/fifo_out" >"$work/got" &
children+=($!)
on_terminal "$work/noise" </dev/null; sent=$?
received; both "a bar" $sent $?
shows "a bar" 'rdsend: \[#*\.*\] +[0-9]+ %  [0-9.]+ [KM]iB of [0-9.]+ MiB '
receive
(cat "$work/noise"; sleep 1) | on_terminal; sent=$?
received; both "a rate" $sent $?
shows "a rate" 'rdsend: [0-9.]+ MiB  [0-9.]+ .B/s'
same "a rate" "$work/noise" "$work/out"
receive
(cat "$work/noise"; sleep 0.5) | on_terminal -q; sent=$?
received; both "-q" $sent $?
[ ! -s "$work/send.err" ] || problem "-q: the terminal shows something"

# ---- a chain ---------------------------------------------------------------------------------------
receive "$work/dir/chained"
last=$receiver last_port=$port
: >"$work/recv.err"
("$rdrecv" --require "$over" --listen "$address" 0 "$key" 2>"$work/recv.err" </dev/null |
  "$rdsend" --require "$over" "$address" "$last_port" "$key") &
await_port $!
send <"$work/noise"; sent=$?
received; both "a chain, the first hop" $sent $?
receiver=$last
received; both "a chain, the last hop" 0 $?
same "a chain" "$work/noise" "$work/dir/chained"

# ---- a limit at one end ------------------------------------------------------------------------------
# Who has the shorter limit asks as often as it needs to hear something.
receive --timeout 2
(sleep 4; head -c 1000 "$work/noise") | send; sent=$?
received; both "--timeout at the receiver, and a slow source" $sent $?
receive
(sleep 4; head -c 1000 "$work/noise") | send --timeout 2; sent=$?
received; both "--timeout at the sender, and a slow source" $sent $?

# ---- keys, hosts, the sender first -----------------------------------------------------------------
(umask 077; echo "$key" >"$work/key")
receive
timeout 20 "$rdsend" --require "$over" --key-file "$work/key" "$address" "$port" "$work/key" 2>"$work/send.err"; sent=$?
received; both "--key-file" $sent $?
receive
timeout 20 "$rdsend" --require "$over" --key-fd 3 "$address" "$port" "$work/key" 3<"$work/key" 2>"$work/send.err"; sent=$?
received; both "--key-fd" $sent $?
receive
RDFS_KEY=$key timeout 20 "$rdsend" --require "$over" "$address" "$port" "$work/key" 2>"$work/send.err"; sent=$?
received; both "RDFS_KEY" $sent $?
same "RDFS_KEY" "$work/key" "$work/out"
receive
tr '\0' ' ' <"/proc/$receiver/cmdline" | grep -q "$key" && problem "the key is in /proc/PID/cmdline"
send -v <"$work/noise"; sent=$?
received; both "-v" $sent $?
grep -qE "B/s\) over $over" "$work/send.err" || problem "-v says no rate or transport"
# A port that is free now, and the sender first.
receive
late=$port
kill "$receiver"
received
: >"$work/recv.err"
(send <"$work/noise"; echo $? >"$work/sent") &
waiting=$!
children+=($waiting)
sleep 0.3
"$rdrecv" --require "$over" --listen "$address" "$late" "$key" >"$work/out" 2>"$work/recv.err" </dev/null &
receiver=$!
children+=("$receiver")
received; ended=$?
wait "$waiting"
both "the sender first" "$(cat "$work/sent")" $ended
same "the sender first" "$work/noise" "$work/out"

# ---- IPv6 and host names ---------------------------------------------------------------------------
if [ "$over" != verbs ] && [ -e /proc/net/if_inet6 ]; then
  for host in ::1 '[::1]' localhost; do
    address=::
    receive
    address=$host
    send <"$work/noise"; sent=$?
    received; both "$host" $sent $?
  done
  address=127.0.0.1
fi

# ---- resumed ---------------------------------------------------------------------------------------
head -c 3500000 "$work/noise" >"$work/dir/whole.rdpart"
receive -v --resume "$work/dir/whole"
send -v "$work/noise"; sent=$?
received; both "resumed" $sent $?
same "resumed" "$work/noise" "$work/dir/whole"
grep -q 'had the first 3500000 bytes' "$work/send.err" || problem "resumed: began at the beginning"
(head -c 2500000 "$work/noise"; head -c 900000 /dev/zero) >"$work/dir/whole.rdpart"
receive --resume "$work/dir/whole"
send -v "$work/noise"; sent=$?
received; both "resumed with a damaged part" $sent $?
same "resumed with a damaged part" "$work/noise" "$work/dir/whole"
grep -q 'had the first 2097152 bytes' "$work/send.err" || problem "resumed with a damaged part: not behind its last good block"
# A receiver that is killed in the middle, where a source that says no more keeps both.
head -c 64000000 /dev/urandom >"$work/large"
# Feeds the first 9000000 bytes to a FIFO, and a sender from there to whoever listens; waits until what has
# come is in the file.
half_way() {
  { head -c 9000000 "$work/large"; exec tail -f /dev/null; } >"$work/fifo_in" &
  feeder=$!
  "$rdsend" --require "$over" "$address" "$port" "$key" "$work/fifo_in" 2>"$work/send.err" &
  sender=$!
  children+=("$feeder" "$sender")
  for _ in $(seq 500); do [ "$(stat -c %s "$work/dir/whole.rdpart" 2>/dev/null || echo 0)" -ge 9000000 ] && break; sleep 0.02; done
}
rm -f "$work"/dir/whole*
receive --resume "$work/dir/whole"
half_way
kill -KILL "$receiver"
wait "$receiver" "$sender" 2>/dev/null
kill -KILL "$feeder"
wait "$feeder" 2>/dev/null
says "rdrecv killed, --resume" send 'the receiver is gone'
receive --resume "$work/dir/whole"
send "$work/large"; sent=$?
received; both "resumed after kill -9" $sent $?
same "resumed after kill -9" "$work/large" "$work/dir/whole"
# The same of a sender: the receiver keeps what has come, says so, and goes on with it.
rm -f "$work"/dir/whole*
receive --resume "$work/dir/whole"
half_way
kill -KILL "$sender" "$feeder"
wait "$sender" "$feeder" 2>/dev/null
received; status=$?
[ "$status" -eq 1 ] || problem "rdsend killed, --resume: rdrecv ended with $status"
says "rdsend killed, --resume" recv 'the sender is gone .*; what had come is kept in .*/dir/whole.rdpart'
receive --resume "$work/dir/whole"
send -v "$work/large"; sent=$?
received; both "resumed after kill -9 of rdsend" $sent $?
same "resumed after kill -9 of rdsend" "$work/large" "$work/dir/whole"
grep -q 'had the first [1-9]' "$work/send.err" || problem "resumed after kill -9 of rdsend: began at the beginning"
# Killed again and again, one end by turns, wherever they are then; what is there is gone on with each time. Now
# and then it is whole before, which is as good.
rm -f "$work"/dir/whole*
[ "$over" = verbs ] && turns=3 || turns=8
part() { stat -c '%i %y %s' "$work/dir/whole.rdpart" 2>/dev/null; }
for turn in $(seq $turns); do
  before=$(part)
  receive --resume "$work/dir/whole"
  "$rdsend" --wait 0.2 --require "$over" "$address" "$port" "$key" "$work/large" 2>"$work/send.err" &
  sender=$!
  children+=("$sender")
  sleep "0.0$turn"
  if [ $((turn % 2)) -eq 0 ]; then victim=$sender other=$receiver; else victim=$receiver other=$sender; fi
  kill -KILL "$victim" 2>/dev/null
  wait "$victim" 2>/dev/null
  # A receiver that no sender has come to waits for one.
  [ "$other" = "$sender" ] || [ "$(part)" != "$before" ] || kill "$other" 2>/dev/null
  receiver=$other
  received; status=$?
  cases=$((cases + 1))
  [ "$status" -le 1 ] || problem "killed, turn $turn: the other end ended with $status"
  [ ! -e "$work/dir/whole" ] || same "killed, turn $turn" "$work/large" "$work/dir/whole"
done
receive --resume "$work/dir/whole"
send "$work/large"; sent=$?
received; both "resumed after many kills" $sent $?
same "resumed after many kills" "$work/large" "$work/dir/whole"
# A source that has changed meanwhile, at its beginning, and one that is shorter than the part.
for change in changed shorter; do
  head -c 9000000 "$work/large" >"$work/dir/whole.rdpart"
  if [ $change = changed ]; then
    (echo changed; tail -c +9 "$work/noise") >"$work/in"
  else
    head -c 3000000 "$work/large" >"$work/in"
  fi
  receive --resume "$work/dir/whole"
  send -v "$work/in"; sent=$?
  received; both "a $change source" $sent $?
  same "a $change source" "$work/in" "$work/dir/whole"
  had=$(sed -n 's/.*had the first \([0-9]*\) .*/\1/p' "$work/send.err")
  wanted=''
  [ $change = changed ] || wanted=$((2 << 20))  # the blocks that it has as well
  [ "$had" = "$wanted" ] || problem "a $change source: goes on behind '$had' bytes, not '$wanted'"
done
echo part >"$work/dir/whole.rdpart"
receive --resume "$work/dir/whole"
cat "$work/noise" | send --encrypt; sent=$?
received; both "--resume from a pipe starts over" $sent $?
same "--resume from a pipe" "$work/noise" "$work/dir/whole"
clean "resumed" "$work/dir"
conclude
