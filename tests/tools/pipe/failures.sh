#!/usr/bin/env bash
# Usage: failures.sh BIN_DIR shm|tcp|verbs
# Whatever goes wrong: one sentence and exit status 1 at both ends, and nothing half-made under a final name.
# shellcheck source=tests/tools/pipe/both_ends.bash
. "$(dirname "$0")/both_ends.bash" "$1" "$2"
mkdir "$work/dir"
head -c 3000000 /dev/urandom >"$work/noise"
# For ever, as fast as it goes.
endless() { cat /dev/zero; }

# ---- what cannot be read or written ----------------------------------------------------------------
receive
send <"$work/dir"; sent=$?
received; neither "a folder as standard input" $sent $? 'standard input is a directory; send what' \
  'the sender gave up: .*is a directory'
receive "$work/dir/x"
send "$work/none"; sent=$?
received; neither "no such file" $sent $? 'cannot open .*none' 'the sender gave up: cannot open .*none'
clean "no such file" "$work/dir"
receive /dev/full
send "$work/noise"; sent=$?
received; neither "a full device" $sent $? 'the receiver gave up: .*No space left' 'cannot write /dev/full: No space left'
: >"$work/recv.err"
"$rdrecv" --require "$over" --listen "$address" 0 "$key" 2>"$work/recv.err" </dev/null > >(head -c 10 >/dev/null) &
await_port $!
endless | send; sent=$?
received; neither "a closed pipe" $sent $? 'the receiver gave up: .*Broken pipe' 'standard output: Broken pipe'
: >"$work/recv.err"
(ulimit -f 100000; exec "$rdrecv" --require "$over" --listen "$address" 0 "$key" "$work/dir/file" 2>"$work/recv.err" </dev/null) &
await_port $!
endless | send; sent=$?
received; neither "a limit of file sizes" $sent $? 'the receiver gave up: .*File too large' 'cannot write .*/dir/file: File too large'
clean "a limit of file sizes" "$work/dir"
# A read error in the middle: what a terminal says whose other end is gone.
receive "$work/dir/file"
export rdsend over address port key
python3 - "$work/dir/file" 2>"$work/send.err" <<'END'
import os, pty, subprocess, sys, time, tty
e = os.environ
ours, theirs = pty.openpty()
tty.setraw(theirs)
os.write(theirs, b"x" * 1000)
command = [e["rdsend"], "--require", e["over"], e["address"], e["port"], e["key"]]
child = subprocess.Popen(command, stdin=ours)
for _ in range(1000):
    if any(name.startswith(".rdrecv-") for name in os.listdir(os.path.dirname(sys.argv[1]))):
        break
    time.sleep(0.01)
os.close(theirs)
sys.exit(child.wait(60))
END
sent=$?
received; neither "a read error in the middle" $sent $? 'cannot read standard input: Input/output error' \
  'the sender gave up: cannot read standard input: Input/output error'
clean "a read error in the middle" "$work/dir"
if [ "$(id -u)" -eq 0 ] && mkdir "$work/small" && mount -t tmpfs -o size=1m tmpfs "$work/small" 2>/dev/null; then
  receive "$work/small/file"
  send "$work/noise"; sent=$?
  received; neither "a full disk" $sent $? 'the receiver gave up: .*No space left' 'No space left'
  [ -z "$(ls -A "$work/small")" ] || problem "a full disk: something is left"
  # One inode, and that is the directory itself.
  mount -o remount,nr_inodes=1 "$work/small" || problem "no tmpfs without inodes"
  receive "$work/small/file"
  send "$work/noise"; sent=$?
  received; neither "no inode left" $sent $? 'the receiver gave up: .*No space left' 'No space left'
  [ -z "$(ls -A "$work/small")" ] || problem "no inode left: something is there"
  umount "$work/small"
elif [ "$(id -u)" -eq 0 ]; then
  problem "a full disk: root cannot mount a tmpfs"
fi

# ---- a side that dies ------------------------------------------------------------------------------
# A receiver of a FIFO that nobody reads yet has taken what fits; the sender waits in the middle.
for after in 0 0.05 0.3; do
  receive "$work/dir/file"
  (endless | send; echo $? >"$work/sent") &
  waiting=$!
  sleep "$after"
  kill -KILL "$receiver"
  wait "$receiver" 2>/dev/null
  wait "$waiting"
  cases=$((cases + 1))
  [ "$(cat "$work/sent")" -eq 1 ] || problem "rdrecv killed after $after s: rdsend ended with $(cat "$work/sent")"
  [ ! -e "$work/dir/file" ] || problem "rdrecv killed after $after s: the file is there"
  rm -f "$work"/dir/.rdrecv-*
done
for after in 0.05 0.3; do
  receive "$work/dir/file"
  "$rdsend" --require "$over" "$address" "$port" "$key" /dev/zero 2>"$work/send.err" &
  sender=$!
  children+=("$sender")
  sleep "$after"
  # It has been let in when its part is there.
  for _ in $(seq 500); do compgen -G "$work/dir/.rdrecv-*" >/dev/null && break; sleep 0.02; done
  kill -KILL "$sender"
  wait "$sender" 2>/dev/null
  received; ended=$?
  cases=$((cases + 1))
  [ "$ended" -eq 1 ] || problem "rdsend killed: rdrecv ended with $ended"
  says "rdsend killed" recv 'the sender is gone before the end of the stream'
  [ ! -e "$work/dir/file" ] || problem "rdsend killed: the file is there"
  clean "rdsend killed" "$work/dir"
done
receive --keep-partial "$work/dir/file"
"$rdsend" --require "$over" "$address" "$port" "$key" /dev/zero 2>"$work/send.err" &
sender=$!
children+=("$sender")
# More than a ring: some of it has been counted as stored.
for _ in $(seq 500); do [ "$(stat -c %s "$work/dir/file.rdpart" 2>/dev/null || echo 0)" -gt 20000000 ] && break; sleep 0.02; done
kill -TERM "$sender"
wait "$sender"; sent=$?
received; neither "rdsend interrupted, --keep-partial" $sent $? 'interrupted by SIGTERM' \
  'the sender gave up: interrupted by SIGTERM; what had come is kept in .*/dir/file.rdpart'
[ -s "$work/dir/file.rdpart" ] || problem "--keep-partial: nothing is kept"
rm -f "$work/dir/file.rdpart"
receive "$work/dir/file"
(endless | send; echo $? >"$work/sent") &
waiting=$!
for _ in $(seq 500); do compgen -G "$work/dir/.rdrecv-*" >/dev/null && break; sleep 0.02; done
kill -INT "$receiver"
received; ended=$?
wait "$waiting"
neither "rdrecv interrupted" "$(cat "$work/sent")" $ended 'the receiver gave up: interrupted by SIGINT' \
  'interrupted by SIGINT'
clean "rdrecv interrupted" "$work/dir"

# nohup: at both ends, in the middle.
: >"$work/recv.err"
(trap '' HUP; exec "$rdrecv" --require "$over" --listen "$address" 0 "$key" "$work/dir/file" 2>"$work/recv.err" </dev/null) &
await_port $!
mkfifo "$work/fifo"
(trap '' HUP; exec "$rdsend" --require "$over" "$address" "$port" "$key" <"$work/fifo" 2>"$work/send.err") &
sender=$!
children+=("$sender")
{
  head -c 1000000 "$work/noise"
  for _ in $(seq 500); do compgen -G "$work/dir/.rdrecv-*" >/dev/null && break; sleep 0.02; done
  kill -HUP "$sender" "$receiver" || problem "an ignored SIGHUP: not in time"
  sleep 0.3
  tail -c +1000001 "$work/noise"
} >"$work/fifo"
wait "$sender"; sent=$?
received; both "an ignored SIGHUP" $sent $?
same "an ignored SIGHUP" "$work/noise" "$work/dir/file"
rm -f "$work/dir/file" "$work/fifo"

# ---- nobody to say it to -----------------------------------------------------------------------------
for where in '>/dev/full' '>&-'; do
  receive
  eval "send_to_nobody() { \"\$rdsend\" --require \"\$over\" \"\$address\" \"\$port\" \"\$key\" -v \"\$work/noise\" 2$where; }"
  send_to_nobody; sent=$?
  received; both "rdsend -v 2$where" $sent $?
  same "rdsend -v 2$where" "$work/noise" "$work/out"
done
# A terminal that is closed while progress is drawn on it.
slowly() { for _ in 1 2 3 4; do cat "$work/noise"; sleep 0.4; done; }
slowly >"$work/much"
: >"$work/recv.err"
"$(dirname "$0")/../on_terminal.py" --closes "$rdrecv" --require "$over" --listen "$address" 0 "$key" "$work/dir/file" >"$work/recv.err" </dev/null &
await_port $!
slowly | send; sent=$?
received; both "rdrecv on a terminal that is closed" $sent $?
same "rdrecv on a terminal that is closed" "$work/much" "$work/dir/file"
clean "rdrecv on a terminal that is closed" "$work/dir"
receive
slowly | "$(dirname "$0")/../on_terminal.py" --closes "$rdsend" --require "$over" "$address" "$port" "$key" >"$work/send.err"; sent=$?
received; both "rdsend on a terminal that is closed" $sent $?
same "rdsend on a terminal that is closed" "$work/much" "$work/out"
rm -f "$work/dir/file" "$work/much"

# ---- a side that stands still ------------------------------------------------------------------------
# Less than a silent peer is given up for: it goes on.
for who in rdsend rdrecv; do
  receive "$work/out.file"
  (head -c 1000000 "$work/noise"; sleep 1; tail -c +1000001 "$work/noise") |
    "$rdsend" --require "$over" "$address" "$port" "$key" 2>"$work/send.err" &
  sender=$!
  children+=("$sender")
  for _ in $(seq 500); do compgen -G "$work/.rdrecv-*" >/dev/null && break; sleep 0.02; done
  if [ $who = rdsend ]; then stopped=$sender; else stopped=$receiver; fi
  kill -STOP "$stopped"
  sleep 1.5
  kill -CONT "$stopped"
  wait "$sender"; sent=$?
  received; both "$who stopped for a while" $sent $?
  same "$who stopped for a while" "$work/noise" "$work/out.file"
done

# ---- what is in the way ----------------------------------------------------------------------------
(umask 077; echo old >"$work/dir/private")
receive "$work/dir/private"
send <"$work/noise"; sent=$?
received; both "a file of mode 0600" $sent $?
same "a file of mode 0600" "$work/noise" "$work/dir/private"
[ "$(stat -c %a "$work/dir/private")" = 600 ] || problem "the file lets others read it now"
mkdir -m 1777 "$work/for all" && : >"$work/for all/other.rdpart"
if chown 65534 "$work/for all/other.rdpart" 2>/dev/null; then
  receive --keep-partial "$work/for all/other"
  send <"$work/noise"; sent=$?
  received; neither "another user's part" $sent $? 'the receiver gave up: .*another user' "is another user's: remove it"
elif [ "$(id -u)" -eq 0 ]; then
  problem "another user's part: root cannot chown"
fi

# ---- keys, ports, versions, hosts ------------------------------------------------------------------
receive
for wrong in 1 2 3; do
  key="wrong $wrong" send <"$work/noise"; sent=$?
  cases=$((cases + 1))
  [ "$sent" -eq 1 ] || problem "a wrong key: rdsend ended with $sent"
  says "a wrong key" send 'wrong key: .*give both ends the same key'
done
send <"$work/noise"; sent=$?
received; both "the right key behind wrong ones" $sent $?
same "the right key behind wrong ones" "$work/noise" "$work/out"
receive
: >"$work/second.err"
"$rdrecv" --listen "$address" "$port" "$key" 2>"$work/second.err" </dev/null; sent=$?
[ "$sent" -eq 1 ] && grep -q 'another program holds the port' "$work/second.err" || problem "a port in use"
kill "$receiver"
received; ended=$?
cases=$((cases + 1))
[ "$ended" -eq 1 ] || problem "an rdrecv that is ended while it waits: $ended"
says "ended while it waits" recv 'interrupted by SIGTERM'
: >"$work/recv.err"
send --wait 0.2 <"$work/noise"; sent=$?
cases=$((cases + 1))
[ "$sent" -eq 1 ] || problem "nobody there: rdsend ended with $sent"
says "nobody there" send 'rdrecv does not answer: nothing listens on'
timeout 0.5 "$rdsend" --wait 30 --require "$over" "$address" "$port" "$key" 2>"$work/send.err" <"$work/noise"; sent=$?
cases=$((cases + 1))
[ "$sent" -eq 124 ] && [ ! -s "$work/send.err" ] || problem "stopped while it waits for a receiver: $sent"
receive
send <&-; sent=$?
received; neither "a closed standard input" $sent $? 'cannot read standard input: Bad file' \
  'the sender gave up: .*Bad file'
receive --wait 0.2
received; ended=$?
cases=$((cases + 1))
[ "$ended" -eq 1 ] || problem "no sender: rdrecv ended with $ended"
says "no sender" recv 'no sender came'
# Nobody is waited for over what this machine does not have.
if [ -z "$(ls -A /sys/class/infiniband 2>/dev/null)" ]; then
  timeout 20 "$rdrecv" --require verbs --listen "$address" 0 "$key" 2>"$work/recv.err" </dev/null; ended=$?
  cases=$((cases + 1))
  [ "$ended" -eq 1 ] || problem "--require of what is not there: rdrecv ended with $ended"
  says "--require of what is not there" recv 'verbs is required, and cannot be offered here'
fi
# Who cannot have what is required here goes without a stream, and the next one comes.
if [ "$over" != verbs ]; then
  other=tcp
  [ "$over" = shm ] || other=shm
  receive
  over=$other send <"$work/noise"; sent=$?
  cases=$((cases + 1))
  [ "$sent" -eq 1 ] || problem "another transport: rdsend ended with $sent"
  says "another transport" send "$other is required and does not work"
  for _ in $(seq 500); do grep -q 'came and went' "$work/recv.err" && break; sleep 0.02; done
  send <"$work/noise"; sent=$?
  received; both "behind one of another transport" $sent $?
  same "behind one of another transport" "$work/noise" "$work/out"
  grep -q "came and went without a stream: $over is required here" "$work/recv.err" ||
    problem "another transport: rdrecv does not name its own"
fi
receive --encrypt
send <"$work/noise"; sent=$?
cases=$((cases + 1))
[ "$sent" -eq 1 ] || problem "an unencrypted sender: rdsend ended with $sent"
says "an unencrypted sender" send 'give it to rdsend as well'
kill "$receiver"
received
for arguments in "" "host" "host port key" "host 1" "host 1 key file more" "--compress=77 host 1 key"; do
  # shellcheck disable=SC2086 # words
  timeout 20 "$rdsend" $arguments 2>"$work/send.err" </dev/null; sent=$?
  cases=$((cases + 1))
  [ "$sent" -eq 2 ] && [ "$(wc -l <"$work/send.err")" -eq 1 ] || problem "wrong usage '$arguments': $sent"
done
conclude
