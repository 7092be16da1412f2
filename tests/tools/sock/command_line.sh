#!/usr/bin/env bash
# Usage: command_line.sh RDSOCK
# Which signals --stats passes on to its command.
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
