#!/usr/bin/env bash
# Usage: model_far.sh SWITCH_FAR.PML
# Checks the model of the switch-over between hosts with spin: two bytes and one phase; with RDFS_CHECK_FULL=1 two
# phases, too, that the stream ends, and that each planted bug is rejected.
set -euo pipefail
# shellcheck source=tests/tools/sock/spin.bash
. "$(dirname "$0")/spin.bash"
fairness=5 depth=1000000 optimise=-O2

phases() { holds "PHASES=$2" "$1" -DN=2 "-DPHASES=$2"; }
phases safety 1
[ "${RDFS_CHECK_FULL:-0}" = 1 ] || exit 0
phases safety 2
phases ends 1
for bug in EVEN ODD_LATE QUIET_EARLY NO_FLUSH NO_ASK WISH_SHUTS; do rejected $bug -DN=2; done
