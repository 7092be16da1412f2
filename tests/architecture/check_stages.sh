#!/usr/bin/env bash
# Usage: check_stages.sh
# ./check tells a stage that there is not before it installs or runs anything, and of one that fails without a step.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# Where installing fails, and leaves a trace.
mkdir "$work/cmake" "$work/tests"
cp "$root/check" "$work/"
cp "$root/tests/stages.sh" "$work/tests/"
printf '#!/bin/sh\ntouch installed\nexit 1\n' >"$work/cmake/install-packages"
chmod +x "$work/cmake/install-packages"

status=0
"$work/check" unit untis >"$work/out" 2>"$work/err" </dev/null || status=$?
[ "$status" -eq 2 ] && [ "$(cat "$work/err")" = "check: no stage 'untis'; see ./check --help" ] &&
  [ ! -s "$work/out" ] && [ ! -e "$work/installed" ] ||
  { echo "a misspelt stage: $status, $(cat "$work/out" "$work/err")" >&2; exit 1; }
# Those that there are get so far as to install.
"$work/check" unit e2e rdma asan tsan fuzz full clang arm64 >"$work/out" 2>"$work/err" </dev/null
[ -e "$work/installed" ] || { echo "a stage is not known: $(cat "$work/err")" >&2; exit 1; }

# One that fails without a step that fails is a failure all the same.
printf '#!/bin/sh\n' >"$work/cmake/install-packages"
cat >>"$work/tests/stages.sh" <<'STAGES'
stage_good() { passed=$((passed + 1)); }
stage_lost() { there_is_no_such_step; }
STAGES
status=0
"$work/check" good lost >"$work/out" 2>"$work/err" </dev/null || status=$?
[ "$status" -eq 1 ] && grep -qxF 'FAILED: lost' "$work/out" && grep -q '^1 passed, 1 failed' "$work/out" ||
  { echo "a stage without a step: $status, $(cat "$work/out" "$work/err")" >&2; exit 1; }
