#!/usr/bin/env bash
# Usage: linearizable.sh --bin BUILD_DIR [--over TRANSPORT] [--as-when-root USER]
#
# Real processes on three mounts of one export, over shm and tcp unless told otherwise, read and change the same few files,
# modes, names and locks: what all of them saw must have been possible in one order (tests/e2e/linearizable). With
# RDFS_LINEARIZABLE_FREEZE=1 mounts are frozen meanwhile, alone and with the processes that use them.
# RDFS_LINEARIZABLE_SECONDS: how long (8; with RDFS_CHECK_FULL=1 60); RDFS_LINEARIZABLE_SEED.
source "$(dirname "$0")/setup.sh"
begin "$@"
seconds=8; [ "${RDFS_CHECK_FULL:-0}" = 0 ] || seconds=60
mkdir "$work/export"
new_key "$work/key"
ids=''; [ "$(id -u)" -ne 0 ] || ids=,trusted
serve server --export "e2e=$work/export$ids" --key-file "$work/key"
for name in a b c; do
  mkdir "$work/$name"
  require=${over:-tcp}
  [ $name = c ] || require=${over:-shm}
  "$rdfs" "rdfs://$address:$port/e2e" "$work/$name" -o key_file="$work/key" -o "require=$require" -f \
    >"$work/$name.log" 2>&1 </dev/null &
  ends_with_us $!
  mounts+=("$work/$name" $!)
  wait_until 100 is_mounted "$work/$name" || { cat "$work/$name.log" >&2; problem "$name did not mount"; conclude; }
done
"${python[@]}" - "$bin/tests/e2e/linearizable/linearizable" "${RDFS_LINEARIZABLE_SECONDS:-$seconds}" \
  "${RDFS_LINEARIZABLE_SEED:-$RANDOM}" "${mounts[@]}" <<'PYTHON' || problem "what the processes saw was not possible in one order"
import os, random, signal, subprocess, sys, time
from processes import freeze, thaw
program, seconds, seed = sys.argv[1:4]
daemons = dict(zip(sys.argv[4::2], map(int, sys.argv[5::2])))
dice = random.Random(int(seed))
work = subprocess.Popen([program, seconds, seed, "2", *daemons], stdout=subprocess.PIPE, text=True)
users = {mount: [] for mount in daemons}
for line in work.stdout:
    if line == "begins\n": break
    _, pid, mount = line.split()
    users[mount].append(int(pid))
end = time.monotonic() + float(seconds) - 2
frozen = {"alone": 0, "with its users": 0}
while os.environ.get("RDFS_LINEARIZABLE_FREEZE") and time.monotonic() < end and work.poll() is None:
    time.sleep(dice.random() * 0.7)
    mount = dice.choice(list(daemons))
    # Within what a lease is waited for: who is cut off for longer may be overtaken (ARCHITECTURE.md, "Write leases").
    how = dice.choice(list(frozen))
    stopped = users[mount] if how != "alone" else []
    # One that waits for its mount does not stop before that has answered.
    for pid in stopped: os.kill(pid, signal.SIGSTOP)
    if dice.random() < 0.5: time.sleep(0.01)
    freeze(daemons[mount])
    try:
        time.sleep(dice.choice([0.05, 0.4, 1.3]) * dice.random())
    finally:
        stopped = [daemons[mount], *stopped]
        dice.shuffle(stopped)
        thaw(*stopped)
    frozen[how] += 1
said = work.communicate(timeout=120)[0]
print(f"frozen: {frozen}; {said}", end="")
sys.exit(work.returncode)
PYTHON
for log in server a b c; do
  if grep -iE ': (error|warning): ' "$work/$log.log"; then problem "an unexpected warning in $log.log"; fi
done
conclude "what processes on three mounts saw"
