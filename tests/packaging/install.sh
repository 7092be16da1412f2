#!/usr/bin/env bash
# Usage: install.sh BUILD_DIR
# `cmake --install` into an empty root: every file where a distribution has it, and no more.
set -uo pipefail
build=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
arch=$(sed -n 's|^CMAKE_INSTALL_LIBDIR:PATH=lib/*||p' "$build/CMakeCache.txt")
. "$here/checks"

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
umask 022
DESTDIR=$work/root cmake --install "$build" --prefix /usr --strip >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; exit 1; }

expect_files "$work/root"
expect_clean "$work/root" "$build"
expect_modes "$work/root"
expect_running "$work/root"
[ "$failures" -eq 0 ]
