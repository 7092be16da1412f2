#!/usr/bin/env bash
# Usage: model_far.sh SWITCH_FAR.PML
# Checks the model of the switch-over between hosts with spin: two bytes and one phase; with RDFS_CHECK_FULL=1 two
# phases, too, that the stream ends, and that each planted bug is rejected.
set -euo pipefail
model=$(realpath "$1")
command -v spin >/dev/null || { echo "model_far.sh: spin is not installed: cmake/install-packages test" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# errors VERIFIER MACRO...: builds one of the two verifiers and prints how many errors it found.
errors() {
  local verifier=$1 build=(-DNOCLAIM -DSAFETY) run=()
  shift
  [ "$verifier" = ends ] && build=(-DNFAIR=5) run=(-a -f)
  rm -f pan* ./*.trail
  spin -a -DN=2 "$@" "$model" >spin.log || { cat spin.log >&2; exit 1; }
  gcc -O2 -w -DCOLLAPSE "${build[@]}" -o verify pan.c
  ./verify -m1000000 "${run[@]}" >"$verifier.log"
  if grep -q 'search depth too small\|out of memory' "$verifier.log"; then
    echo "model_far.sh: not all states were searched" >&2
    exit 1
  fi
  grep -o 'errors: [0-9]*' "$verifier.log"
}
# holds VERIFIER PHASES
holds() {
  local found
  found=$(errors "$1" "-DPHASES=$2")
  if [ "$found" != 'errors: 0' ]; then
    echo "the model is wrong with PHASES=$2 ($1): $found" >&2
    cat "$1.log" >&2
    exit 1
  fi
  echo "PHASES=$2, $1: no errors in $(awk '/states, stored/ {print $1}' "$1.log") states"
}

holds safety 1
[ "${RDFS_CHECK_FULL:-0}" = 1 ] || exit 0
holds safety 2
holds ends 1
for bug in EVEN ODD_LATE QUIET_EARLY NO_FLUSH NO_ASK WISH_SHUTS; do
  if [ "$(errors safety -DBUG_$bug)" = 'errors: 0' ]; then
    echo "spin did not find the planted bug BUG_$bug" >&2
    exit 1
  fi
  echo "BUG_$bug: rejected"
done
