# shellcheck shell=bash
# For the tests of models, sourced as: . spin.bash MODEL.PML
# Works in a private directory, and leaves each verifier's last report there as VERIFIER.log.
model=$(realpath "$1")
command -v spin >/dev/null || { echo "${0##*/}: spin is not installed: cmake/install-packages test" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# What a model may set otherwise: spin's NFAIR, its longest path, and how the verifier is compiled.
fairness=3 depth=100000 optimise=-O1

# errors VERIFIER MACRO...: builds one of the two verifiers and prints how many errors it found.
errors() {
  local verifier=$1 build=(-DNOCLAIM -DSAFETY) run=()
  shift
  [ "$verifier" = ends ] && build=(-DNFAIR=$fairness) run=(-a -f)
  rm -f pan* verify ./*.trail
  spin -a "$@" "$model" >spin.log || { cat spin.log >&2; exit 1; }
  gcc $optimise -w -DCOLLAPSE "${build[@]}" -o verify pan.c || exit 1
  ./verify -m$depth "${run[@]}" >"$verifier.log"
  if grep -q 'search depth too small\|out of memory' "$verifier.log"; then
    echo "${0##*/}: not all states were searched" >&2
    exit 1
  fi
  grep -o 'errors: [0-9]*' "$verifier.log"
}
# holds WHAT VERIFIER MACRO...: the model is right.
holds() {
  local what=$1 found
  shift
  found=$(errors "$@")
  if [ "$found" != 'errors: 0' ]; then
    echo "the model is wrong with $what ($1): $found" >&2
    cat "$1.log" >&2
    exit 1
  fi
  echo "$what, $1: no errors in $(awk '/states, stored/ {print $1}' "$1.log") states"
}
# rejected BUG MACRO...: the planted bug is found.
rejected() {
  local bug=$1 found
  shift
  found=$(errors safety "-DBUG_$bug" "$@")
  if ! [[ $found =~ ^errors:\ [1-9] ]]; then
    echo "spin did not find the planted bug BUG_$bug: ${found:-it says nothing}" >&2
    exit 1
  fi
  echo "BUG_$bug: rejected"
}
