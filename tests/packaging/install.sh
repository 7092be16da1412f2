#!/usr/bin/env bash
# Usage: install.sh BUILD_DIR
# `cmake --install` into an empty root: every file where a distribution has it, and no more.
set -uo pipefail
. "$(dirname "$0")/checks" "$1"

DESTDIR=$work/root cmake --install "$build" --prefix /usr --strip >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; exit 1; }

expect_files "$work/root"
expect_clean "$work/root" "$build"
expect_modes "$work/root"
expect_running "$work/root"
[ "$failures" -eq 0 ]
