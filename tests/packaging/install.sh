#!/usr/bin/env bash
# Usage: install.sh BUILD_DIR
# `cmake --install` into an empty root: every file where a distribution has it, and no more. Then beneath
# /usr/local, where zsh and python3 have other places.
set -uo pipefail
. "$(dirname "$0")/checks" "$1"

DESTDIR=$work/root cmake --install "$build" --prefix /usr --strip >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; exit 1; }

expect_files "$work/root"
expect_clean "$work/root" "$build"
expect_links "$work/root"
expect_modes "$work/root"
expect_running "$work/root"

# expect_found ROOT PREFIX: zsh and the system's python3 look where their files are.
expect_found() {
  local place
  place=$(cd "$1" && dirname "/$(find . -name _rdfs -printf '%P')")
  case $place in "$2"/*) ;; *) fail "_rdfs is in $place, not beneath $2" ;; esac
  # shellcheck disable=SC2016
  env -u FPATH zsh -fc 'print -l $fpath' | grep -xF "$place" >/dev/null || fail "zsh does not look into $place"
  place=$(cd "$1" && dirname "$(dirname "/$(find . -path '*/rdfs/spec.py' -printf '%P')")")
  case $place in "$2"/*) ;; *) fail "the Python modules are in $place, not beneath $2" ;; esac
  /usr/bin/python3 -c 'import site; print(*site.getsitepackages(), sep="\n")' | grep -xF "$place" >/dev/null ||
    fail "python3 does not look into $place"
}
expect_found "$work/root" /usr
DESTDIR=$work/local cmake --install "$build" --prefix /usr/local >"$work/log" 2>&1 || fail "$(cat "$work/log")"
expect_found "$work/local" /usr/local
# README.md links it from there to where mount(8) looks.
[ -x "$work/local/usr/local/sbin/mount.rdfs" ] || fail "there is no /usr/local/sbin/mount.rdfs, which README.md names"
[ "$failures" -eq 0 ]
