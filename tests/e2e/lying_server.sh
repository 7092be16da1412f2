#!/usr/bin/env bash
# Usage: lying_server.sh --bin BUILD_DIR --over TRANSPORT [--as-when-root USER]
#
# A mount from a server that lies (liar/main.cc): programs work on it, whatever they are told, and none of their calls takes
# longer than the mount's deadline allows; rdfs neither ends nor grows, and can be unmounted at the end as ever.
# RDFS_LIES: the first of the seeds of the lies, which are printed. RDFS_CHECK_FULL=1: more of them.
source "$(dirname "$0")/setup.sh"
begin "$@"
export=$work/export mnt=$work/mnt
rounds=2
[ "${RDFS_CHECK_FULL:-0}" != 1 ] || rounds=6
readonly rounds deadline=2 most_kib=300000

mkdir -p "$export/tree/deep/er" "$mnt"
for i in $(seq 300); do echo "$i" >"$export/tree/file $i"; done
head -c 3000000 /dev/urandom >"$export/large"
head -c 5000 /dev/urandom >"$export/tree/deep/er/small"
ln -s ../large "$export/tree/link"
setfattr -n user.note -v value "$export/large"

# What they say, and with which status they end, is the liar's.
programs() {
  ls -laR "$mnt"
  find "$mnt" -type f -size +1k -newer "$mnt/large"
  cat "$mnt/large" "$mnt"/tree/file*
  dd "if=$mnt/large" iflag=direct bs=70k
  cp -r "$mnt/tree" "$mnt/copy.$1"
  for i in 1 2 3 4 5; do echo "$i" >"$mnt/new.$1.$i"; done
  dd if=/dev/zero "of=$mnt/zeros.$1" bs=300k count=10 conv=fsync
  mv "$mnt/new.$1.1" "$mnt/tree/moved.$1"
  ln "$mnt/new.$1.2" "$mnt/linked.$1"
  ln -s somewhere "$mnt/symlink.$1"
  readlink "$mnt/tree/link"
  getfattr -d "$mnt/large"
  setfattr -n user.other -v "$1" "$mnt/large"
  getfacl "$mnt/large"
  chmod 600 "$mnt/new.$1.3"
  truncate -s 12345 "$mnt/zeros.$1"
  fallocate -l 1000000 "$mnt/zeros.$1"
  flock -n "$mnt/large" true
  stat -f "$mnt"
  python3 - "$mnt" <<'PYTHON'
import fcntl, mmap, os, sys
with open(f"{sys.argv[1]}/large", "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 0)
    memory = mmap.mmap(file.fileno(), 1000000)
    memory[5000:9000] = memory[105000:109000]
    memory.flush()
    os.copy_file_range(file.fileno(), os.open(f"{sys.argv[1]}/part", os.O_CREAT | os.O_WRONLY), 500000)
PYTHON
  rm -rf "$mnt/copy.$1" "$mnt/new.$1.4"
  mkdir "$mnt/dir.$1"
  rmdir "$mnt/dir.$1"
  sync -f "$mnt"
}

none_of() { ! pgrep -s "$1" >/dev/null; }

lost=0
seed=${RDFS_LIES:-$((RANDOM * 1000))}
echo "the lies of seeds $seed to $((seed + rounds - 1)), over $over"
for round in $(seq "$rounds"); do
  rm -f "$work/liar"
  "$bin/tests/e2e/liar/liar" "$address" $((seed + round - 1)) "$export" >"$work/liar" 2>"$work/liar.log" &
  liar=$!
  ends_with_us "$liar"
  wait_until 100 grep -qs 'ready on port' "$work/liar" || { cat "$work/liar.log"; exit 1; }
  port=$(sed -n 's/^ready on port //p' "$work/liar")
  "$rdfs" "rdfs://$address:$port/e" "$mnt" -f -o "require=$over,plaintext,deadline=$deadline" >"$work/log" 2>&1 </dev/null &
  client=$!
  ends_with_us "$client"
  wait_until 100 is_mounted "$mnt" || { problem "round $round: no mount: $(cat "$work/log")"; break; }
  workers=()
  for i in 1 2; do
    setsid bash -c "$(declare -p mnt) ; $(declare -f programs) ; programs $round.$i" >"$work/programs.$round.$i" 2>&1 </dev/null &
    workers+=($!)
  done
  # They may make many calls that fail by their deadline.
  ended=0
  for i in "${workers[@]}"; do wait_until 100 gone "$i" && ended=$((ended + 1)); done
  gone "$client" && problem "round $round: rdfs has ended: $(tail -n 3 "$work/log")"
  kib=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$client/status")
  [ "${kib:-0}" -le "$most_kib" ] || problem "round $round: rdfs has $kib KiB"
  told=$("$rdfs" stats --json "$mnt" | python3 -c 'import json, sys; f = json.load(sys.stdin)["figures"]; print(f.get("connections_lost"), "connections lost,", f.get("timeouts"), "calls without an answer in time")')
  [ -n "$told" ] || problem "round $round: rdfs does not say what it has lost"
  lost=$((lost + ${told:+${told%% *}} + 0))
  # A call that is under way ends by its deadline, and with it whoever is told to end.
  for i in "${workers[@]}"; do pkill -KILL -s "$i"; done
  for i in "${workers[@]}"; do wait_until 150 none_of "$i" || problem "round $round: a program cannot be ended: $(ps -o pid,stat,wchan:30,args -s "$i")"; done
  if wait_until 150 fusermount3 -u "$mnt" 2>"$work/unmount"; then
    wait_until 150 gone "$client" || { problem "round $round: rdfs outlives its mount"; kill -KILL "$client"; }
    wait "$client"
    status=$?
    [ $status -eq 0 ] || problem "round $round: rdfs ended with status $status: $(tail -n 5 "$work/log")"
  else
    problem "round $round: no unmount: $(cat "$work/unmount")"
    kill -KILL "$client"
    fusermount3 -uz "$mnt"
  fi
  echo "round $round: $ended of 2 ended by themselves, $kib KiB, ${told:-nothing said}"
  if gone "$liar"; then
    wait "$liar"
    problem "round $round: the liar itself has ended with status $?: $(cat "$work/liar.log")"
  fi
  kill -KILL "$liar"
  wait "$liar" 2>/dev/null
done
[ "$lost" -gt 0 ] || problem "no lie was ever noticed"
grep -qaE '^29[0-9]$' "$work"/programs.* || problem "no program has had an honest answer"
conclude "what a lying server says over $over"
