#!/usr/bin/env bash
# Usage: model.sh SWITCH.PML
# Checks the model of the switch-over with spin: assertions and deadlocks, then that the stream ends. Each
# planted bug must be rejected. Nothing random in it: a failure comes again.
set -euo pipefail
model=$(realpath "$1")
command -v spin >/dev/null || { echo "model.sh: spin is not installed: cmake/install-packages test" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# errors VERIFIER MACRO...: builds one of the two verifiers and prints how many errors it found.
errors() {
  local verifier=$1 build=(-DNOCLAIM -DSAFETY) run=()
  shift
  [ "$verifier" = ends ] && build=(-DNFAIR=3) run=(-a -f)
  rm -f pan* ./*.trail
  spin -a "$@" "$model" >spin.log || { cat spin.log >&2; exit 1; }
  gcc -O1 -w -DCOLLAPSE "${build[@]}" -o verify pan.c
  ./verify -m100000 "${run[@]}" >"$verifier.log"
  if grep -q 'search depth too small\|out of memory' "$verifier.log"; then
    echo "model.sh: not all states were searched" >&2
    exit 1
  fi
  grep -o 'errors: [0-9]*' "$verifier.log"
}

# Four bytes without leaving; with it three, which is as many states again.
for leave in 0 1; do
  for verifier in ends safety; do
    found=$(errors $verifier -DLEAVE=$leave -DN=$((4 - leave)))
    if [ "$found" != 'errors: 0' ]; then
      echo "the model is wrong with LEAVE=$leave ($verifier): $found" >&2
      cat $verifier.log >&2
      exit 1
    fi
  done
  echo "LEAVE=$leave: no errors in $(awk '/states, stored/ {print $1}' safety.log) states"
done
# Whoever leaves must have been everywhere; only what cannot fail there is not reached.
if grep -A2 'unreached in proctype' safety.log | grep 'state '; then
  echo "the model has parts that no schedule reaches" >&2
  exit 1
fi

for bug in NO_QUIET ANNOUNCE_FIRST EARLY_END NO_RELOOK REOPEN FOLLOW EARLY_RETURNED; do
  found=$(errors safety -DBUG_$bug -DLEAVE=1 -DN=3)
  if [ "$found" = 'errors: 0' ]; then
    echo "spin did not find the planted bug BUG_$bug" >&2
    exit 1
  fi
  echo "BUG_$bug: rejected"
done
