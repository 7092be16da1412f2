#!/usr/bin/env bash
# Usage: copy_resume.sh --bin BUILD_DIR [--as-when-root USER] [--over verbs]
#
# rdcp --resume and -P: killed with kill -9 at many points, here and between machines, either end of it;
# what was brought stays, is not brought again, and nothing has its final name before it is whole.
# Over verbs: between the two hosts that the test bed has (boot --hosts), by something like ssh.
set -uo pipefail
. "$(dirname "$0")/setup.sh"
begin "$@"
cat >"$work/far-rdcp" <<SCRIPT
#!/bin/sh
echo \$\$ | tee -a $work/far.pids >$work/far.pid
exec $bin/tools/copy/rdcp "\$@"
SCRIPT
chmod +x "$work/far-rdcp"
rdcp=("$bin/tools/copy/rdcp" --rdcp-path "$work/far-rdcp")
if [ "$over" = verbs ]; then
  cat >"$work/ssh" <<SSH
#!/bin/sh
for each; do [ "\$each" != -G ] || { echo hostname $RDFS_HOST_A; exit; }; done
while [ "\$1" != a ]; do shift; done
shift
[ "\$1" != -- ] || shift
exec nsenter --net=/run/netns/a sh -c "\$*"
SSH
  chmod +x "$work/ssh"
  far=a
  rdcp=(nsenter --net=/run/netns/b "${rdcp[@]}" -e "$work/ssh" --require verbs)
else
  . "$(dirname "$0")/private-sshd"
  private_sshd_start "$work" || { echo "$this: no private sshd" >&2; exit 1; }
  ends_with_us "$(cat "$work/sshd.pid")"
  far=$(id -un)@localhost
  rdcp+=(-e "ssh -F $work/ssh_config")
fi

mkdir "$work/src" "$work/dst"
head -c 12000000 /dev/urandom >"$work/src/large"
echo small >"$work/src/small"
# Nothing but a hole behind the data, and data behind it.
truncate -s 30000000 "$work/src/large"
head -c 500000 /dev/urandom >>"$work/src/large"

journal() { compgen -G "$work/dst/.rdcp-journal-*" | head -n 1; }
noted() { [ "$(stat -c %s "$(journal)" 2>/dev/null || echo 0)" -ge "$1" ]; }
ended() { ! kill -0 "$copy" 2>/dev/null; }
# run ARGUMENT...: in the background; what it says in $work/err, which is empty before.
run() {
  rm -f "$work/far.pid"
  : >"$work/err"
  "${rdcp[@]}" "$@" 2>"$work/err" >/dev/null </dev/null &
  copy=$!
  ends_with_us "$copy"
}
clean() { [ -z "$(compgen -G "$work/dst/.rdcp-*")" ] || problem "$1: something is left: $(ls -A "$work/dst")"; }
# Of a small file that was under way when it was killed; it is what README says may be left.
sweep() { rm -f "$work"/dst/.rdcp-[0-9a-f]*; }
same() { diff -r "$work/src" "$work/dst" >/dev/null || problem "$1: the copy is another"; }

# killed NAME VICTIM ARGUMENT...: until it is whole, killed whenever three more stretches were noted.
killed() {
  local name=$1 victim=$2 kills=0 size=0 status
  shift 2
  rm -rf "$work/dst" && mkdir "$work/dst"
  for _ in $(seq 12); do
    run -v --bwlimit 4M "$@"
    size=$(stat -c %s "$(journal)" 2>/dev/null || echo 64)
    for _ in $(seq 2000); do
      noted $((size + 96)) && break
      ended && break
      sleep 0.003
    done
    if [ "$victim" = far ]; then kill -KILL "$(cat "$work/far.pid")" 2>/dev/null; else kill -KILL "$copy" 2>/dev/null; fi
    wait "$copy" 2>/dev/null
    status=$?
    [ "$status" -ne 0 ] || break
    # The far end of a caller that was killed is still about to hear of it.
    [ ! -s "$work/far.pid" ] || wait_until 100 gone "$(cat "$work/far.pid")" || problem "$name: the far end lives on"
    kills=$((kills + 1))
    sweep
    [ ! -e "$work/dst/large" ] || cmp -s "$work/src/large" "$work/dst/large" || problem "$name: a part has the final name"
    [ "$kills" -lt 4 ] || break
  done
  [ "$kills" -ge 2 ] || problem "$name: killed only $kills times"
  # It may have been whole just before it was killed.
  [ -e "$work/dst/large" ] || [ -n "$(journal)" ] || problem "$name: nothing was kept"
  [ ! -e "$work/dst/large" ] || { same "$name"; return; }
  run -v "$@"
  wait "$copy" || problem "$name: then it ends with $?: $(cat "$work/err")"
  grep -qE '; [0-9.]+ [KM]iB were there$' "$work/err" || problem "$name: nothing was there: $(cat "$work/err")"
  same "$name"
  clean "$name"
}
[ "$over" = verbs ] || killed "here" caller -r --resume "$work/src/." "$work/dst"
killed "there, the caller" caller -r --resume "$work/src/." "$far:$work/dst"
killed "there, the far end" far -r -P "$work/src/." "$far:$work/dst"
killed "back, the caller" caller -r -P "$far:$work/src/." "$work/dst"
if [ "$over" = verbs ]; then tcp=(); else tcp=(--require tcp); fi
killed "back, the far end" far -r --resume "${tcp[@]}" "$far:$work/src/." "$work/dst"
if [ "$over" = verbs ]; then
  grep -q '^rdcp: a: over verbs' "$work/err" || problem "it does not go over verbs: $(cat "$work/err")"
  conclude "copies over verbs that were interrupted"
fi

# From one other machine to another: both far ends end with their caller, and the next ones go on.
rm -rf "$work/dst" "$work/far.pids" && mkdir "$work/dst"
run --bwlimit 1M -r --resume "localhost:$work/src/." "$far:$work/dst"
wait_until 200 noted 96 || problem "across: nothing was noted"
kill -KILL "$copy"
wait "$copy" 2>/dev/null
while read -r pid; do wait_until 60 gone "$pid" || problem "across: a far end lives on"; done <"$work/far.pids"
[ -n "$(journal)" ] || problem "across: nothing was kept"
part=$(stat -c %i "$(compgen -G "$work/dst/.rdcp-part-*")")
run -r --resume "localhost:$work/src/." "$far:$work/dst"
wait "$copy" || problem "across: then it ends with $?: $(cat "$work/err")"
[ "$(stat -c %i "$work/dst/large")" = "$part" ] || problem "across: started over"
same "across"
clean "across"

# half ARGUMENT...: is killed when something was noted.
half() {
  rm -rf "$work/dst" && mkdir "$work/dst"
  run --bwlimit 4M -r --resume "$@"
  wait_until 100 noted 128 || problem "half: nothing was noted"
  kill -KILL "$copy"
  wait "$copy" 2>/dev/null
  [ ! -s "$work/far.pid" ] || wait_until 100 gone "$(cat "$work/far.pid")"
  sweep
  [ ! -e "$work/dst/large" ] || problem "half: too fast"
}
for to in "$work/dst" "$far:$work/dst"; do
  # Another source of the same size and time: only its change time tells.
  half "$work/src/." "$to"
  touch -r "$work/src/large" "$work/stamp"
  printf other | dd of="$work/src/large" conv=notrunc bs=1 status=none
  touch -r "$work/stamp" "$work/src/large"
  run -v -r --resume "$work/src/." "$to"
  wait "$copy" || problem "changed, to $to: ends with $?"
  grep -q 'were there' "$work/err" && problem "changed, to $to: does not start over"
  same "changed, to $to"
  clean "changed, to $to"
  # What is whole is not copied again.
  run -v -r --resume "$work/src/." "$to"
  wait "$copy" || problem "again, to $to: ends with $?"
  grep -q '^rdcp: 0 files, ' "$work/err" || problem "again, to $to: $(cat "$work/err")"
  # Damaged on the disk meanwhile.
  half "$work/src/." "$to"
  printf damage | dd of="$(compgen -G "$work/dst/.rdcp-part-*")" conv=notrunc bs=1 seek=1000 status=none
  run -v -r --resume "$work/src/." "$to"
  wait "$copy" || problem "damaged, to $to: ends with $?"
  same "damaged, to $to"
  clean "damaged, to $to"
done
# Interrupted, it says what to do; without --resume nothing is left.
half "$work/src/." "$work/dst"
size=$(stat -c %s "$(journal)")
run --bwlimit 2M -r --resume "$work/src/." "$work/dst"
wait_until 100 noted $((size + 32)) || problem "interrupted: it does not go on"
kill -INT "$copy"
wait "$copy"
[ $? -eq 1 ] || problem "interrupted: another exit status"
grep -q '^rdcp: interrupted; the same command goes on from here$' "$work/err" || problem "interrupted: $(cat "$work/err")"
[ -n "$(journal)" ] || problem "interrupted: nothing is kept"
run --delete --sync -r "$work/src/." "$work/dst"
wait "$copy" || problem "--delete: ends with $?"
same "--delete"
clean "--delete"
run --inplace --resume "$work/src/large" "$work/dst"
wait "$copy"
[ $? -eq 2 ] || problem "--inplace --resume: another exit status"
conclude "copies that were interrupted"
