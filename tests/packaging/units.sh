#!/usr/bin/env bash
# Usage: units.sh BUILD_DIR
# The systemd units as they are installed: systemd-analyze has nothing to say against them, the sandbox
# stays as tight as it is, and the example of a configuration is one that rdfsd takes.
set -uo pipefail
build=$(realpath "$1")
units=$(cd "$(dirname "$0")/../../packaging/systemd" && pwd)
failures=0
fail() {
  echo "$1" >&2
  failures=$((failures + 1))
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# The example, with a directory that is there. Whether it was taken is seen from what it then says.
sed "s|/srv/data|$work/none|" "$units/rdfsd.toml" >"$work/rdfsd.toml"
"$build/server/rdfsd" -f --config "$work/rdfsd.toml" >"$work/out" 2>&1 </dev/null && fail "it served a missing directory"
grep -q "$work/none" "$work/out" || fail "rdfsd.toml: $(cat "$work/out")"

command -v systemd-analyze >/dev/null || { echo "no systemd-analyze: install the package systemd" >&2; exit 1; }
# The programs stand where they were built.
mkdir "$work/units"
sed "s|^ExecStart=rdfsd |ExecStart=$build/server/rdfsd |" "$units/rdfsd.service" >"$work/units/rdfsd.service"
sed "s|^ExecStart=rdfs |ExecStart=$build/fs/fuse/rdfs |" "$units/rdfs@.service" >"$work/units/rdfs@.service"
for unit in rdfsd.service rdfs@data.service; do
  systemd-analyze verify --man=no "$work/units/$unit" >"$work/out" 2>&1 || fail "$unit: systemd-analyze fails"
  grep -F "$work/units" "$work/out" && fail "$unit: systemd-analyze has something to say"
  grep -E "^${unit%%[@.]*}" "$work/out" && fail "$unit: systemd-analyze has something to say"
done

# allowed FILTER...: the system calls that SystemCallFilter= lets through, groups taken apart.
systemd-analyze syscall-filter >"$work/groups" || fail "systemd-analyze tells no groups"
allowed() {
  local word
  for word in "$@"; do
    case "$word" in
      @*) # shellcheck disable=SC2046
        allowed $(awk -v group="$word" '/^@/ { inside = $1 == group } inside && /^ +[a-z@]/ { print $1 }' "$work/groups") ;;
      *) echo "$word" ;;
    esac
  done
}
# shellcheck disable=SC2046
allowed $(sed -n 's/^SystemCallFilter=//p' "$units/rdfsd.service") | sort -u >"$work/allowed"
# What rdfsd and its libraries call while a mount is used, by strace.
sort -u "$(dirname "$0")/syscalls" >"$work/needed"
refused=$(comm -13 "$work/allowed" "$work/needed" | tr '\n' ' ')
[ -z "$refused" ] || fail "rdfsd.service: SystemCallFilter= refuses what rdfsd calls: $refused"
# An export may be anywhere: nothing is read-only or hidden that is not the kernel's own.
grep -nE '^(ProtectSystem|ProtectHome|ReadOnlyPaths|InaccessiblePaths|TemporaryFileSystem|PrivateTmp)=' "$units/rdfsd.service" &&
  fail "rdfsd.service: an export there could not be served, or not be written to"
systemd-analyze security --offline=true --threshold=55 "$work/units/rdfsd.service" >"$work/out" 2>&1 ||
  fail "the sandbox of rdfsd.service is looser than it was: $(tail -n 1 "$work/out")"
tail -n 1 "$work/out"
[ "$failures" -eq 0 ]
