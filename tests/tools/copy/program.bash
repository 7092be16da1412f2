# shellcheck shell=bash
# For tests with the program as a process, sourced as: . program.bash BIN_DIR
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rdcp=$(realpath "$1")/rdcp
work=$(mktemp -d)
failures=0 cases=0
children=()
finish() {
  trap - EXIT
  for child in "${children[@]}"; do kill -KILL "$child" 2>/dev/null; done
  wait 2>/dev/null
  chmod -R u+rwx "$work" 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP
problem() {
  failures=$((failures + 1))
  echo "FAILED: $1" >&2
  head -n 20 "$work/err" | cut -c 1-400 | sed 's/^/  /' >&2
}
# run STATUS NAME ARGUMENT...: rdcp ends with that status.
run() {
  local wanted=$1 name=$2 status
  shift 2
  cases=$((cases + 1))
  timeout 60 "$rdcp" "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
  [ $status -eq "$wanted" ] || problem "$name: ended with $status, not $wanted"
}
# says NAME REGEX: standard error has a line like that.
says() { grep -qE "$2" "$work/err" || problem "$1: does not say $2"; }
# silent NAME: nothing was said.
silent() { [ ! -s "$work/err" ] || problem "$1: says something"; }
# same NAME [--content] ONE OTHER
same() {
  local name=$1
  shift
  cases=$((cases + 1))
  "$here/same_trees.py" "$@" >"$work/err" 2>&1 || problem "$name: the trees differ"
}
# differ NAME ONE OTHER: so the comparison itself is worth something.
differ() { "$here/same_trees.py" "$2" "$3" >/dev/null 2>&1 && problem "$1: the trees are the same"; }
# clean NAME DIRECTORY: no temporary file is left.
clean() {
  local left
  left=$(find "$2" -name '.rdcp-*' ! -name '.rdcp-0000000000000000' 2>/dev/null | head -n 1)
  [ -z "$left" ] || problem "$1: left behind: $left"
}
conclude() {
  [ "$failures" -eq 0 ] || { echo "$failures problems in $cases cases" >&2; exit 1; }
  echo "$cases cases, all as they should be"
}
