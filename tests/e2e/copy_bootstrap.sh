#!/usr/bin/env bash
# Usage: copy_bootstrap.sh --bin BUILD_DIR [--as-when-root USER]
#
# rdcp --bootstrap, through a real sshd: this rdcp is sent where there is none, runs from a private file and
# removes it; and where it cannot run, or there is no room for it, that is said and nothing is left.
set -uo pipefail
. "$(dirname "$0")/setup.sh"
begin "$@"
. "$(dirname "$0")/private-sshd"
private_sshd_start "$work" || { echo "$this: no private sshd" >&2; exit 1; }
ends_with_us "$(cat "$work/sshd.pid")"
mkdir "$work/src" "$work/dst" "$work/tmp" "$work/fake"
head -c 3000000 /dev/urandom >"$work/src/large"
echo small >"$work/src/small"
cp "$work/authorized_keys" "$work/key"
# far SETTINGS: how the machine is that ssh reaches: what its login shell does first.
far() { echo "command=\"$1; eval \\\"\$SSH_ORIGINAL_COMMAND\\\"\" $(cat "$work/key")" >"$work/authorized_keys"; }
to=$(id -un)@localhost:$work/dst
rdcp() {
  timeout 60 "$bin/tools/copy/rdcp" -e "ssh -F $work/ssh_config" --rdcp-path "$work/none/rdcp" "$@" >"$work/out" 2>"$work/err" </dev/null
}
# refused NAME STATUS REGEX ARGUMENT...: with one sentence of ours, and nothing is left.
refused() {
  local name=$1 status=$2 regex=$3 got
  shift 3
  rm -rf "$work/dst" && mkdir "$work/dst"
  rdcp "$@"
  got=$?
  [ "$got" -eq "$status" ] || problem "$name: exit status $got, not $status"
  grep -qE "^rdcp: .*$regex" "$work/err" || problem "$name: says $(cat "$work/err")"
  [ "$(grep -c '^rdcp: ' "$work/err")" -eq 1 ] || problem "$name: not one sentence"
  [ -z "$(find "$work/dst" "$work/tmp" -mindepth 1)" ] || problem "$name: left behind: $(ls -A "$work/dst" "$work/tmp")"
}

far "export TMPDIR='$work/tmp'; echo Welcome; printf prompt"
refused "without --bootstrap" 127 'localhost.*--rdcp-path' -r "$work/src/." "$to"
# copied NAME ARGUMENT...: whole, and the file is gone.
copied() {
  local name=$1
  shift
  rm -rf "$work/dst" && mkdir "$work/dst"
  rdcp --bootstrap "$@" || problem "$name: exit status $?: $(cat "$work/err")"
  diff -r "$work/src" "$work/dst" || problem "$name: the copy is another"
  wait_until 50 empty "$work/tmp" || problem "$name: left behind: $(ls -A "$work/tmp")"
}
empty() { [ -z "$(ls -A "$1")" ]; }
copied "there" -r "$work/src/." "$to"
copied "back" -r "$(id -un)@localhost:$work/src/." "$work/dst"
copied "across" -r "localhost:$work/src/." "$to"
# Its mode, and that it is nobody's else, while it runs.
rm -rf "$work/dst" && mkdir "$work/dst"
mkdir "$work/seen"
printf '#!/bin/sh\n/bin/chmod "$@"; stat -c %%a "$2" >>%s/seen/modes\n' "$work" >"$work/fake/chmod"
chmod +x "$work/fake/chmod"
far "export TMPDIR='$work/tmp' PATH='$work/fake':\$PATH"
copied "its mode" -r "$work/src/." "$to"
[ "$(cat "$work/seen/modes")" = 700 ] || problem "its mode is $(cat "$work/seen/modes")"

printf '#!/bin/sh\nexit 0\n' >"$work/fake/chmod"
refused "it does not run there" 1 'does not run on .*Permission denied.*install rdfs there' --bootstrap -r "$work/src/." "$to"
printf '#!/bin/sh\necho Linux pdp11\n' >"$work/fake/uname"
chmod +x "$work/fake/uname"
refused "another processor" 1 'is Linux pdp11, and this rdcp is for Linux ' --bootstrap -r "$work/src/." "$to"
far "export TMPDIR='$work/nowhere'"
refused "no room" 1 'could not be put into .*/nowhere on ' --bootstrap -r "$work/src/." "$to"
# By hand it removes nothing but what was sent.
cp "$bin/tools/copy/rdcp" "$work/tmp/rdcp"
"$work/tmp/rdcp" --far --remove </dev/null >/dev/null 2>&1
[ -e "$work/tmp/rdcp" ] || problem "--far --remove removes what is installed"
conclude "rdcp that was sent"
