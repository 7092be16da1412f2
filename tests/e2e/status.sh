#!/usr/bin/env bash
# Usage: status.sh --bin BUILD_DIR [--as-when-root USER]
#
# A mount and its server say what they are doing to whoever asks as their user: in text, JSON and Prometheus's
# format, and once a second; and what is said follows what is done. And the ids of a mount are those of -o uid=, gid=.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"

export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
mkdir "$work/export" "$work/mnt" "$work/other"
head -c 300000 /dev/urandom >"$work/export/file"

"$rdfs" status "$work/mnt" >"$work/out" 2>&1 && problem 'rdfs status succeeds without a mount'
grep -q "no rdfs of this user answers for $work/mnt" "$work/out" || problem "without a mount: $(cat "$work/out")"

serve server --export "data=$work/export" --no-auth --metrics 0
"$rdfs" "rdfs://127.0.0.1:$port/data" "$work/mnt" >"$work/out" 2>&1 || problem "no mount: $(cat "$work/out")"
cmp "$work/mnt/file" "$work/export/file" || problem 'the file differs'

# says FILE REGEX WHAT
says() { grep -qE -- "$2" "$1" || problem "$3: no line matches $2: $(cat "$1")"; }
"$rdfs" status "$work/mnt" >"$work/status" || problem 'rdfs status fails'
says "$work/status" "^mount +$work/mnt\$" 'rdfs status'
says "$work/status" '^transport +shm' 'rdfs status'
says "$work/status" '^server +connected' 'rdfs status'
says "$work/status" '^ +round_trips lookup +[1-9]' 'rdfs status'
says "$work/status" '^ +latency read +[1-9][0-9]*, p50 .* p99 .*s$' 'rdfs status'
"$rdfs" status "$work/other" -v >"$work/out" 2>&1 && problem 'another directory is taken for the mount'
says "$work/out" "^rdfs: .*/rdfs/rdfs[^:]*: it is $work/mnt\$" 'rdfs status -v of another directory'
"$rdfs" status -v >"$work/out" 2>&1 || problem "rdfs status -v fails: $(cat "$work/out")"
says "$work/out" '^rdfs: .*/rdfs/rdfs[^:]*: answers$' 'rdfs status -v'
"$rdfsd" top -v -n 1 >"$work/out" 2>&1 || problem "rdfsd top -v fails: $(cat "$work/out")"

# Nobody gets what was asked for: that is told. And no file of the program's takes the place of a closed output.
"$rdfs" status >&- 2>"$work/out" && problem 'rdfs status to nobody succeeds'
says "$work/out" '^rdfs: cannot write to standard output: Bad file descriptor$' 'rdfs status to nobody'
for command in "$rdfs status" "$rdfs stats --json $work/mnt" "$rdfs top -n 1" "$rdfs status --help" "$rdfsd top -n 1" "$bin/tools/rdinfo/rdinfo" "$bin/tools/rdinfo/rdinfo --json"; do
  timeout 60 $command >/dev/full 2>"$work/out" # words
  status=$?
  [ $status -eq 1 ] && says "$work/out" '^(rdfs|rdfsd|rdinfo): cannot write to standard output: No space left on device$' "$command to a full disk" ||
    problem "$command to a full disk: ended with $status"
done

# So it is with what every program says of itself.
for program in "$rdfs" "$rdfsd" "$bin"/tools/{copy/rdcp,pipe/rdsend,pipe/rdrecv,sock/rdsock,rdping/rdping,rdinfo/rdinfo}; do
  [ -x "$program" ] || continue # not of this build
  for option in --help --version; do
    timeout 60 "$program" $option >/dev/full 2>"$work/out"
    status=$?
    [ $status -eq 1 ] || problem "${program##*/} $option to a full disk: ended with $status"
    says "$work/out" "^${program##*/}: cannot write to standard output: No space left on device\$" "${program##*/} $option to a full disk"
  done
done

# A reader that has had enough (head) ends them silently, as it ends others.
exec {gone}> >(:)
wait $!
for command in "$rdfs status" "$rdfsd top -n 1" "$bin/tools/rdinfo/rdinfo"; do
  timeout --foreground 60 $command >&"$gone" 2>"$work/out" # words
  status=$?
  [ $status -eq 141 ] && [ ! -s "$work/out" ] ||
    problem "$command to a reader that is gone: ended with $status, $(cat "$work/out")"
done
exec {gone}>&-

# Who has no runtime directory (cron, su) has a place all the same; who has one of their own looks there only.
without=(env -u XDG_RUNTIME_DIR)
"${without[@]}" "$rdfs" "rdfs://127.0.0.1:$port/data" "$work/other" >"$work/out" 2>&1 || problem "no mount: $(cat "$work/out")"
"${without[@]}" "$rdfs" status "$work/other" >"$work/out" 2>&1 || problem "a mount without XDG_RUNTIME_DIR is not found: $(cat "$work/out")"
"$rdfs" status "$work/other" >"$work/out" 2>&1 && problem "a mount of another place answers: $(cat "$work/out")"
fusermount3 -u "$work/other" || problem 'no unmount'

# Who is told that a mount is there may ask it at once: one that cannot tell yet, since its pipe is full, answers already.
mkfifo "$work/told"
exec {told}<>"$work/told"
LC_ALL=C dd if=/dev/zero of="$work/told" bs=4096 oflag=nonblock status=none 2>"$work/out"
grep -q 'Resource temporarily unavailable' "$work/out" || problem "the pipe is not full: $(cat "$work/out")"
"$rdfs" -f "rdfs://127.0.0.1:$port/data" "$work/other" >"$work/told" 2>"$work/out" &
telling=$!
ends_with_us $telling
wait_until 200 is_mounted "$work/other" || problem "no mount: $(cat "$work/out")"
wait_until 200 eval '"$rdfs" status "$work/other" >"$work/out" 2>&1' ||
  problem "a mount that has yet to say that it is there does not answer: $(cat "$work/out")"
dd if="$work/told" of=/dev/null bs=65536 count=1 status=none
wait_until 200 fusermount3 -u "$work/other" || problem 'no unmount'
wait $telling || problem "the mount that told late ended with $?"
exec {told}>&-

# figure NAME: of the JSON.
figure() { "$rdfs" stats --json "$work/mnt" | python3 -c "import json,sys; print(json.load(sys.stdin)['figures']['$1'])"; }
[ "$(figure read_bytes)" -ge 300000 ] || problem "read_bytes is $(figure read_bytes)"
before=$(figure written_bytes)
dd if=/dev/zero of="$work/mnt/new" bs=1000000 count=1 status=none || problem 'cannot write'
[ "$(figure written_bytes)" -ge $((before + 1000000)) ] || problem "written_bytes is $(figure written_bytes) after $before"
before=$(figure inline_written_bytes)
echo small >"$work/mnt/new" || problem 'cannot write'
[ "$(figure inline_written_bytes)" -ge $((before + 6)) ] || problem "inline_written_bytes is $(figure inline_written_bytes) after $before"
# helped MANY: whether, while eight programs read at once, so many workers come to serve the mount.
helped() {
  local reader readers=() found=false
  for reader in $(seq 8); do
    while :; do
      dd if="$work/mnt/file" of=/dev/null bs=4k iflag=direct status=none || break
    done &
    readers+=($!)
    ends_with_us $!
  done
  wait_until "$2" eval '[ "$(figure workers)" -eq '"$1"' ]' && found=true
  kill "${readers[@]}"
  wait "${readers[@]}" 2>/dev/null
  $found
}
[ "$(figure workers)" -eq 1 ] || problem "for one program there are $(figure workers) workers"
# Kept for a moment: who opens or lists again what was just closed asks nobody. As often as it takes on a slow machine.
hits() { cat "$work/mnt/file" >/dev/null; cat "$work/mnt/file" >/dev/null; [ "$(figure open_hits)" -ge 1 ]; }
wait_until 50 hits || problem "no open of a file was at hand: $("$rdfs" status "$work/mnt")"
lists() { ls "$work/mnt" >/dev/null; ls "$work/mnt" >/dev/null; [ "$(figure listing_hits)" -ge 1 ]; }
wait_until 50 lists || problem "no listing was at hand: $("$rdfs" status "$work/mnt")"
makes() { touch "$work/mnt/made-1" "$work/mnt/made-2"; rm "$work/mnt/made-1" "$work/mnt/made-2"; [ "$(figure attribute_hits)" -ge 1 ]; }
wait_until 50 makes || problem "no attributes were at hand: $("$rdfs" status "$work/mnt")"
for name in open_misses listing_misses attribute_misses buffer_bytes; do
  [ "$(figure $name)" -ge 1 ] || problem "$name is $(figure $name)"
done
"$rdfs" status "$work/mnt" >"$work/status"
says "$work/status" '^rates +read [0-9.]+ [kMG]?B/s, written [0-9.]+ [kMG]?B/s, [0-9.]+ requests/s, over the last [0-9.]+ s$' 'rdfs status'
"$rdfs" stats --json "$work/mnt" | python3 -c '
import json, sys
rates = json.load(sys.stdin)["rates"]
names = {"read_bytes_per_second", "written_bytes_per_second", "requests_per_second", "over_seconds"}
sys.exit(set(rates) != names or rates["over_seconds"] <= 0 or not all(isinstance(rate, float) for rate in rates.values()))
' || problem "the rates of rdfs stats --json are no numbers: $("$rdfs" stats --json "$work/mnt")"
if [ "$(nproc)" -gt 1 ]; then
  helped 2 200 || problem "eight programs at once are left to $(figure workers) worker"
  cmp "$work/mnt/file" "$work/export/file" || problem 'the file differs with two workers'
fi
"$rdfs" stats --prometheus >"$work/metrics" || problem 'rdfs stats --prometheus fails'
says "$work/metrics" "^rdfs_operation_seconds_bucket\{mount=\"$work/mnt\",op=\"read\",le=\"[+]Inf\"\} [1-9]" 'metrics'
says "$work/metrics" "^rdfs_read_bytes_total\{mount=\"$work/mnt\"\} [1-9]" 'metrics'
version=$("$rdfs" --version | awk '{ print $2 }')
says "$work/metrics" "^rdfs_connected\{mount=\"$work/mnt\"\} 1\$" 'metrics'
says "$work/metrics" "^rdfs_info\{mount=\"$work/mnt\",transport=\"shm\",version=\"${version//./[.]}\"\} 1\$" 'metrics'
# explained FILE WHAT: it is said of every metric what it is.
explained() {
  local unexplained
  unexplained=$(comm -23 <(sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' "$1" | sort) <(sed -n 's/^# HELP \([^ ]*\) [A-Z].*[.]$/\1/p' "$1" | sort))
  [ -z "$unexplained" ] || problem "$2: nothing says what these are: $unexplained"
}
explained "$work/metrics" 'metrics'
cp "$work/metrics" "$work/metrics-of-mount"
"$rdfs" top -n 1 "$work/mnt" >"$work/top" || problem 'rdfs top fails'
"$rdfs" top -n1 "$work/mnt" >"$work/out" || problem 'rdfs top -n1 fails'
[ "$(wc -l <"$work/out")" -gt 1 ] || problem "rdfs top -n1 says: $(cat "$work/out")"
for wrong in -n -n0 '-n 0' -nx '-n -1' '-n 3x'; do
  # shellcheck disable=SC2086
  timeout 10 "$rdfs" top $wrong >"$work/out" 2>&1
  [ $? -eq 2 ] || problem "rdfs top $wrong is no usage error: $(cat "$work/out")"
done
says "$work/top" '^  inodes +[1-9]' 'rdfs top'
# Without a number it goes on, once a second.
timeout 3 "$rdfs" top "$work/mnt" >"$work/out"
[ $? -eq 124 ] || problem 'rdfs top ends by itself'
[ "$(grep -cE '^  inodes +[1-9]' "$work/out")" -ge 2 ] || problem "rdfs top in 3 s: $(cat "$work/out")"

"$rdfsd" top -n 2 >"$work/out" || problem 'rdfsd top fails'
[ "$(grep -cE '^  sessions +1$' "$work/out")" -ge 1 ] || problem "rdfsd top says: $(cat "$work/out")"
"$rdfsd" stats --prometheus >"$work/metrics" || problem 'rdfsd stats --prometheus fails'
says "$work/metrics" "^rdfs_operation_seconds_count\{port=\"$port\",op=\"lookup\"\} [1-9]" 'rdfsd stats --prometheus'
# Who gathers both takes two texts of one metric for an error.
disputed=$(grep -h '^# HELP ' "$work/metrics" "$work/metrics-of-mount" | sort -u | awk '{ print $3 }' | uniq -d)
[ -z "$disputed" ] || problem "rdfs and rdfsd say different things of $disputed"
"$rdfsd" status >"$work/status" || problem 'rdfsd status fails'
says "$work/status" "^port +$port\$" 'rdfsd status'
says "$work/status" '^ +session .* of data, over shm' 'rdfsd status'
says "$work/status" '^ +session .* last heard of [0-9]+ s ago; its client says: shm$' 'rdfsd status'
says "$work/status" '^rates +read .*B/s, written .*B/s, [0-9.]+ requests/s, over the last [0-9.]+ s$' 'rdfsd status'
says "$work/status" '^ +requests lookup +[1-9]' 'rdfsd status'
says "$work/status" '^ +pool_cached_bytes +[1-9]' 'rdfsd status'
says "$work/status" '^ +latency lookup +[1-9][0-9]*, p50 .* p99 .*s$' 'rdfsd status'
# With something open and locked, a session and the figures say so (the other mount's may take a moment to end).
exec {held}<>"$work/mnt/new"
flock "$held" || problem 'no lock'
told() {
  "$rdfsd" stats --json | python3 -c '
import json, sys
said = json.load(sys.stdin)
session, = said["sessions"]
want = {"export": "data", "read_only": False, "transport": "shm", "why": "shm"}
sys.exit({name: session[name] for name in want} != want or not session["client"] or session["open_files"] < 1 or
         session["last_heard_of_seconds"] > 60 or said["rates"]["over_seconds"] <= 0 or
         said["figures"]["open_files"] != session["open_files"] or said["figures"]["locks"] != 1)
'
}
wait_until 100 told 2>/dev/null || problem "rdfsd stats --json: $("$rdfsd" stats --json)"
exec {held}>&-
# scrape PLACE FILE: as Prometheus does, from ADDRESS:PORT or a socket; prints the status.
scrape() {
  case "$1" in
    /*) curl --silent --max-time 20 --unix-socket "$1" --output "$2" --write-out '%{http_code}' http://rdfs/metrics ;;
    *) curl --silent --max-time 20 --output "$2" --write-out '%{http_code}' "http://$1/metrics" ;;
  esac
}
place=$(awk '$1 == "metrics" { print $2 }' "$work/status")
[ "$(scrape "$place" "$work/metrics")" = 200 ] || problem "no metrics at '$place'"
says "$work/metrics" "^rdfs_operation_seconds_count\{port=\"$port\",op=\"lookup\"\} [1-9]" 'metrics of rdfsd'
explained "$work/metrics" 'metrics of rdfsd'
says "$work/metrics" "^rdfs_info\{port=\"$port\",version=\"${version//./[.]}\"\} 1\$" 'metrics of rdfsd'
says "$work/metrics" "^rdfs_leases\{port=\"$port\"\} [1-9]" 'metrics of rdfsd'
timeout 60 "$rdfsd" --export "data=$work/export" --no-auth --port 0 -f --metrics "$place" >"$work/out" 2>&1
[ $? -eq 1 ] || problem 'a second rdfsd takes the same port for metrics'
says "$work/out" "cannot listen for metrics on $place: another program does; name another place" 'the second rdfsd'
"$rdfs" stats --jsn >"$work/out" 2>&1
[ $? -eq 2 ] || problem 'a wrong option is taken'
"$rdfs" stats --json --prometheus >"$work/out" 2>&1
[ $? -eq 2 ] || problem 'two formats are taken at once'

# Whoever the options say is the far user here.
fusermount3 -u "$work/mnt" || problem 'no unmount'
"$rdfs" "rdfs://127.0.0.1:$port/data" "$work/mnt" -o "uid=54321,gid=12345,metrics=$work/socket" >"$work/out" 2>&1 || problem "no mount: $(cat "$work/out")"
owner=$(stat -c %u:%g "$work/mnt/file")
[ "$owner" = 54321:12345 ] || problem "with uid= and gid= the owner is $owner"
[ "$(scrape "$work/socket" "$work/metrics")" = 200 ] || problem 'no metrics at the socket of the mount'
says "$work/metrics" "^rdfs_operation_seconds_count\{mount=\"$work/mnt\",op=\"lookup\"\} [1-9]" 'metrics of the mount'
"$rdfs" "rdfs://127.0.0.1:$port/data" "$work/other" -o "metrics=$place" >"$work/out" 2>&1 && problem 'a mount takes the port of rdfsd'
says "$work/out" "cannot listen for metrics on $place: another program does" 'the mount that is refused'
mountpoint -q "$work/other" && problem 'a refused mount is there'

# A server on this host whose network is another: what was tried in vain is counted, and why is said.
fusermount3 -u "$work/mnt" || problem 'no unmount'
cat >"$work/elsewhere" <<'SCRIPT'
#!/bin/sh
for command; do :; done
exec unshare --map-current-user --net sh -c "$command"
SCRIPT
chmod 700 "$work/elsewhere"
"$rdfs" "localhost:$work/export" "$work/mnt" -o "ssh_command=$work/elsewhere,rdfsd_path=$rdfsd" >"$work/out" 2>&1 || problem "no mount: $(cat "$work/out")"
cmp "$work/mnt/file" "$work/export/file" || problem 'the file differs through a stream'
[ "$(figure fallbacks)" -ge 1 ] || problem "fallbacks is $(figure fallbacks): $("$rdfs" status "$work/mnt")"

why='tcp over the session.s own stream \(ssh\); not tcp: .*; not shm: .+'
"$rdfs" status "$work/mnt" >"$work/fallback" || problem 'rdfs status fails'
says "$work/fallback" "^transport +$why\$" 'rdfs status of a mount that fell back'
# The server that ssh started says so as well, beside the other one.
"$rdfsd" status >"$work/fallback" || problem 'rdfsd status fails'
says "$work/fallback" "^ +session .* of ssh, over tcp .*; its client says: $why\$" 'rdfsd status of a mount that fell back'
"$rdfsd" stats --json | python3 -c '
import json, sys
sessions = [session for server in sys.stdin for session in json.loads(server)["sessions"]]
sys.exit(not any(session["transport"] == "tcp" and "; not shm: " in session["why"] for session in sessions))
' || problem 'rdfsd stats --json does not say why there is no shm'

# The end of a mount is the end of its sockets; the server says that its client is gone.
fusermount3 -u "$work/mnt" || problem 'no unmount'
wait_until 100 bash -c "! ls '$XDG_RUNTIME_DIR'/rdfs/rdfs-*.sock 2>/dev/null" || problem 'the socket stays'
wait_until 100 test ! -e "$work/socket" || problem 'the socket for metrics stays'

# What one mount changes the other believes no more; and a lock that the other waits for is asked for again when the
# worker dies in the midst of it.
for mount in mnt other; do
  "$rdfs" "rdfs://127.0.0.1:$port/data" "$work/$mount" >"$work/out" 2>&1 || problem "no mount: $(cat "$work/out")"
done
echo before >"$work/other/believed"
[ "$(cat "$work/mnt/believed")" = before ] || problem 'the file differs'
echo behind >"$work/other/believed"
[ "$(cat "$work/mnt/believed")" = behind ] || problem 'what another mount has changed is not seen'
[ "$(figure recalls)" -ge 1 ] || problem "recalls is $(figure recalls)"
for name in retries reconnects connections_lost; do
  [ "$(figure $name)" -eq 0 ] || problem "$name is $(figure $name) before anything was lost"
done
# asked: how often a lock was asked of the server.
asked() { "$rdfsd" status | awk '$1 == "requests" && $2 == "setlk" { print $3 }'; }
exec {held}<>"$work/other/believed"
flock "$held" || problem 'no lock'
before=$(asked)
flock "$work/mnt/believed" true {held}>&- &
waits=$!
ends_with_us "$waits"
wait_until 100 eval '[ "$(asked)" -gt "$before" ]' || problem 'the lock is not asked for'

# A worker that is started again answers Prometheus where the one that died did. Whoever asks next removes what that left.
kill -KILL "$(awk '$1 == "process" { print $2 }' "$work/status")"
wait_until 100 eval '[ "$(scrape "$place" "$work/metrics")" = 200 ]' || problem "no metrics at '$place' any more"
"$rdfsd" status >"$work/status" || problem 'rdfsd status fails after a crash'
wait_until 100 eval '[ "$(figure reconnects)" -ge 1 ]' || problem "reconnects is $(figure reconnects)"
[ "$(figure connections_lost)" -ge 1 ] || problem "connections_lost is $(figure connections_lost)"
[ "$(figure retries)" -ge 1 ] || problem "retries is $(figure retries), and a lock was waited for"
kill -0 "$waits" || problem 'the lock is held twice'
exec {held}>&-
wait "$waits" || problem 'the lock that was waited for does not come'

# Without its server a mount says so, to people and programs, and that it is back.
kill -KILL "$server" $(pgrep -P "$server")
{ wait "$server"; } 2>/dev/null
wait_until 200 eval '[ "$(figure connected)" -eq 0 ]' || problem 'a mount without a server is connected'
"$rdfs" status "$work/mnt" >"$work/status" || problem 'rdfs status fails without a server'
says "$work/status" '^server +away: .+' 'rdfs status without a server'
"$rdfs" stats --prometheus "$work/mnt" >"$work/metrics" || problem 'rdfs stats --prometheus fails without a server'
says "$work/metrics" "^rdfs_connected\{mount=\"$work/mnt\"\} 0\$" 'metrics without a server'
serve again --export "data=$work/export" --no-auth
# A mount that ends before it is back cannot tell the server, which keeps what it would need.
for mount in mnt other; do
  wait_until 200 eval '"$rdfs" status "$work/$mount" | grep -q "^server *connected"' || problem "no way back: $("$rdfs" status "$work/$mount")"
done
for mount in mnt other; do fusermount3 -u "$work/$mount" || problem 'no unmount'; done
# A server that ends before it has heard that keeps what they would need to come back.
wait_until 100 eval '! "$rdfsd" status | grep -qE "^ +session "' || problem "a session stays: $("$rdfsd" status)"
kill "$server" && wait "$server"
[ "$(ls "$XDG_RUNTIME_DIR/rdfs")" = first-epoch ] || problem "left behind: $(ls "$XDG_RUNTIME_DIR/rdfs")"
conclude 'status, stats and top'
