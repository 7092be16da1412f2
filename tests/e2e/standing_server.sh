#!/usr/bin/env bash
# Usage: standing_server.sh --bin BUILD_DIR [--as-when-root USER]
#
# The standing server as the README tells it: rdfsd goes to the background and holds on to nobody's
# output, makes its key, and prints a mount command that works as it is; a second one on its port says so;
# a configuration file does the same; SIGTERM ends it all.
set -uo pipefail

# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
PATH=$bin/server:$bin/fs/fuse:$PATH
mnt=$work/mnt
mkdir "$mnt" "$work/export" "$work/home"
export HOME=$work/home
unset XDG_CONFIG_HOME
echo 'on the server' >"$work/export/file"

servers() { pgrep -f "^rdfsd .*$work/"; }
none() { ! "$@" >/dev/null; }
fail() { problem "$1"; exit 1; }

# mounts TEXT: the mount command that rdfsd printed in TEXT, typed as it stands.
mounts() {
  local command
  command=$(sed -n 's/^rdfsd: mount with: //p' <<<"$1" | sed "s#MOUNTPOINT#$mnt#")
  [ -n "$command" ] || fail "no mount command in: $1"
  eval "timeout 60 $command" >"$work/said" || fail "this does not mount: $command"
  [ "$(cat "$mnt/file")" = 'on the server' ] || fail "$command: another directory"
  fusermount3 -u "$mnt" || fail "cannot unmount"
  wait_until 100 none pgrep -f "^rdfs .*$mnt" || fail "rdfs is left after the unmount"
}
# stops: the supervisor and its worker end.
stops() {
  kill "$(servers | head -n 1)"
  wait_until 100 none servers || fail "rdfsd is left after SIGTERM"
}

# ---- from the command line; the substitution ends only when nobody holds the output ---------------
said=$(timeout 30 rdfsd --export "data=$work/export" --listen 127.0.0.1 --port 0 2>&1) ||
  fail "rdfsd did not go to the background: $said"
grep -q "^rdfsd: made a key: $HOME/.config/rdfs/key$" <<<"$said" || fail "no word of the key: $said"
[ "$(stat -c %a "$HOME/.config/rdfs/key")" = 600 ] || fail "others may read the key"
mounts "$said"

port=$(sed -n 's/^rdfsd: ready on port //p' <<<"$said")
if again=$(timeout 30 rdfsd --export "data=$work/export" --listen 127.0.0.1 --port "$port" 2>&1); then
  fail "two servers on one port: $again"
fi
grep -q ":$port: another program holds the port" <<<"$again" || fail "a held port: $again"
mounts "$said"
stops

# ---- for programs: each line of the log is an object ------------------------------------------------
RDFS_LOG=json rdfsd --export "data=$work/export" --listen 127.0.0.1 --port 0 -f -v >"$work/out" 2>"$work/log" &
wait_until 300 grep -q "ready on port" "$work/out" || fail "RDFS_LOG=json: $(cat "$work/log")"
kill -KILL "$(pgrep -P $!)"
wait_until 300 grep -q 'died of signal 9' "$work/log" || fail "RDFS_LOG=json: the worker died, and nobody says so"
kill %1
wait %1
python3 - "$work/log" <<'END' || fail "RDFS_LOG=json: $(cat "$work/log")"
import datetime, json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert lines and all(set(line) == {"time", "level", "program", "message"} for line in lines)
assert all(line["program"] == "rdfsd" for line in lines)
[died] = [line for line in lines if "died of signal 9" in line["message"]]
assert died["level"] == "error"
datetime.datetime.strptime(died["time"], "%Y-%m-%dT%H:%M:%S.%fZ")
END

# ---- from a file ----------------------------------------------------------------------------------
cat >"$work/rdfsd.toml" <<END
listen = ["127.0.0.1"]
port = 7000
key_file = "$HOME/.config/rdfs/key"
pool = "64M"
[[export]]
name = "data"
dir = "$work/export"
options = "ro"
END
said=$(timeout 30 rdfsd --config "$work/rdfsd.toml" --port 0 2>&1) || fail "from a file: $said"
mounts "$said"
stops
conclude "a standing server from the command line and from a file"
