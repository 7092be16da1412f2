#!/usr/bin/env bash
# Usage: command_line.sh RDSOCK
# Which command lines are wrong, and which signals --stats passes on to its command.
set -uo pipefail
rdsock=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# No pairings but what is made here.
export HOME=$work
unset XDG_CONFIG_HOME
failures=0
problem() {
  failures=$((failures + 1))
  echo "FAILED: $1" >&2
}

# ---- wrong usage -------------------------------------------------------------------------------------
# wrong SENTENCE ARGUMENT...: 2, and one line with it.
wrong() {
  local status=0 sentence=$1
  shift
  timeout 20 "$rdsock" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
  [ "$status" -eq 2 ] && [ "$(wc -l <"$work/err")" -eq 1 ] && [ ! -s "$work/out" ] && grep -qF -e "$sentence" "$work/err" ||
    problem "rdsock $*: $status, $(cat "$work/out" "$work/err")"
}
for option in --pair=no-such-host.invalid --unpair=no-such-host.invalid --pairs; do
  wrong 'give COMMAND without --pair, --unpair and --pairs' "$option" echo was run
done
wrong 'give only one of --pair, --unpair and --pairs' --pairs --unpair no-such-host.invalid
wrong 'give only one of --pair, --unpair and --pairs' --pair no-such-host.invalid --pairs
for option in --ssh=false --far-rdsock=/no/rdsock; do
  wrong 'give --ssh and --far-rdsock only with --pair' "$option" echo was run
  wrong 'give --ssh and --far-rdsock only with --pair' "$option" --pairs
done
wrong 'COMMAND is required'

# ---- the file of pairings ----------------------------------------------------------------------------
# fails SENTENCE ARGUMENT...: 1, and one line with it.
fails() {
  local status=0 sentence=$1
  shift
  timeout 20 "$rdsock" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
  [ "$status" -eq 1 ] && [ "$(wc -l <"$work/err")" -eq 1 ] && grep -qF -e "$sentence" "$work/err" ||
    problem "rdsock $*: $status, $(cat "$work/out" "$work/err")"
}
umask 022
fails "'10.1.2.3' is not paired" --unpair 10.1.2.3
[ "$(stat -c %a "$work/.config/rdsock")" = 700 ] || problem "its folder is open to others"
(umask 077 && printf 'rdsock-pairs 1\nlisten 0\n' >"$work/.config/rdsock/pairs")
fails "say 'listen 0', any free port" --ssh=false --pair no-such-host.invalid

# ---- other libraries ---------------------------------------------------------------------------------
# preloads EXPECTED BEFORE: what a command finds in LD_PRELOAD.
preloads() {
  local found
  found=$(LD_PRELOAD=$2 timeout 20 "$rdsock" printenv LD_PRELOAD 2>"$work/err")
  [ "$found" = "$1" ] || problem "with LD_PRELOAD='$2' a command finds '$found', not '$1': $(cat "$work/err")"
}
library=$(env -u LD_PRELOAD timeout 20 "$rdsock" printenv LD_PRELOAD)
[ -e "$library" ] || problem "LD_PRELOAD is '$library'"
preloads "$library:libm.so.6" libm.so.6
for before in "$library" "$library:libm.so.6" "libm.so.6:$library" "libm.so.6 $library"; do
  preloads "$before" "$before"
done
preloads "$library:$library.old" "$library.old"

# ---- signals -----------------------------------------------------------------------------------------
python3 - "$rdsock" <<'END' || problem "--stats does not pass on every signal"
import signal, subprocess, sys
AWAIT = """
import signal, sys
one = {int(sys.argv[1])}
signal.pthread_sigmask(signal.SIG_BLOCK, one)
print("ready", flush=True)
sys.exit(7 if signal.sigtimedwait(one, 5) else 1)
"""
wrong = 0
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    command = [sys.argv[1], "--stats", sys.executable, "-c", AWAIT, str(int(number))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as rdsock:
        rdsock.stdout.readline()
        rdsock.send_signal(number)
        status = rdsock.wait(20)
    if status != 7:
        print(f"{number.name}: {status}", file=sys.stderr)
        wrong += 1
sys.exit(wrong > 0)
END
[ "$failures" -eq 0 ]
