#!/usr/bin/env bash
# Usage: inside_itself.sh --bin BUILD_DIR [--as-when-root USER]
#
# A mount that lies inside its own export: the server does not ask itself, and serves everybody else. What is mounted there says EREMOTE to who comes by the mount.
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
mkdir -p "$work/export/inner/below" "$work/other" "$work/second"
echo here >"$work/export/inner/file"
echo other >"$work/other/file"
new_key "$work/key"
serve server --export "data=$work/export" --export "other=$work/other" --key-file "$work/key"
mounts() {
  "$rdfs" "rdfs://$address:$port/$1" "$2" -f -o "key_file=$work/key,deadline=8" >"$work/$1.log" 2>&1 </dev/null &
  ends_with_us $!
  wait_until 100 is_mounted "$2" || problem "$1 does not mount: $(cat "$work/$1.log")"
}
mounts other "$work/second"
mounts data "$work/export/inner/below"
inner=$work/export/inner/below
exec {held}<"$inner/inner/file"
for call in "ls -l $inner/inner" "stat $inner/inner/below" "ls $inner/inner/below" "cat $inner/inner/below/file" \
  "mkdir $inner/inner/below/new" "rmdir $inner/inner/below" "mv $inner/inner/below $inner/inner/moved" "rm -rf $inner/inner/below"; do
  began=$SECONDS
  # shellcheck disable=SC2086
  said=$(timeout 20 $call 2>&1) && [[ "$call" != ls\ -l* ]] && problem "'$call' succeeds"
  [ $((SECONDS - began)) -lt 5 ] || problem "'$call' takes $((SECONDS - began)) s"
  grep -q 'Object is remote' <<<"$said" || problem "'$call' says: $said"
done
[ "$(timeout 10 cat "$work/second/file")" = other ] || problem 'another export of the server is not there'
timeout 10 touch "$inner/made" || problem 'nothing can be made beside it'
[ -e "$work/export/made" ] || problem 'what was made is not there'
exec {held}<&-
fusermount3 -u "$inner" || problem 'it cannot be unmounted'
[ "$(cat "$work/export/inner/file")" = here ] || problem 'what is beside the mount has changed'
fusermount3 -u "$work/second" || problem 'the other mount cannot be unmounted'
conclude 'a mount inside its own export'
