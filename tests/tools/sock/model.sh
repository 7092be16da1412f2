#!/usr/bin/env bash
# Usage: model.sh SWITCH.PML
# Checks the model of the switch-over with spin: assertions and deadlocks, then that the stream ends. Each
# planted bug must be rejected. Nothing random in it: a failure comes again.
set -euo pipefail
# shellcheck source=tests/tools/sock/spin.bash
. "$(dirname "$0")/spin.bash"

# Four bytes without leaving; with it three, which is as many states again. That the stream ends where both leave is as
# much work as all the rest: with RDFS_CHECK_FULL=1.
for leave in 0 1 2; do
  bytes=$((leave == 0 ? 4 : 3))
  verifiers=(ends safety)
  [ "$leave" -lt 2 ] || [ "${RDFS_CHECK_FULL:-0}" = 1 ] || verifiers=(safety)
  for verifier in "${verifiers[@]}"; do holds "LEAVE=$leave" "$verifier" -DLEAVE=$leave -DN=$bytes; done
done
# Whoever leaves must have been everywhere; only what cannot fail there is not reached.
if grep -A2 'unreached in proctype' safety.log | grep 'state '; then
  echo "the model has parts that no schedule reaches" >&2
  exit 1
fi

for bug in NO_QUIET ANNOUNCE_FIRST EARLY_END NO_RELOOK REOPEN FOLLOW EARLY_RETURNED NO_KEEP; do rejected $bug -DLEAVE=1 -DN=3; done
# Where both ends leave.
for bug in LEAVES_RING TAKES_BLINDLY TRUSTS_TAKEN_BACK; do rejected $bug -DLEAVE=2 -DN=3; done
