# shellcheck shell=bash
# For the tests of how a mount begins and ends, to be sourced behind setup.sh: one server, one mount point,
# cases with names. A case uses $source and ${with[@]} (mount options) and ends with `ended`.

cases=0 case_name=''
begin_case() {
  case_name=$1
  cases=$((cases + 1))
}
# As in setup.sh, with the case's name and what rdfs said.
problem() {
  echo "$this: $case_name: $1" >&2
  [ ! -s "$work/err" ] || sed 's/^/  stderr: /' "$work/err" >&2
  [ ! -s "$work/log" ] || sed 's/^/  log: /' "$work/log" >&2
  failures=$((failures + 1))
}
prepare_mount() {
  mnt=$work/mnt
  mkdir "$mnt" "$work/export"
  echo hello >"$work/export/file"
  new_key "$work/key"
}
start_server() {
  local ids=''
  # Root would be nobody otherwise.
  [ "$(id -u)" -ne 0 ] || ids=,trusted
  serve server --export "data=$work/export$ids" --key-file "$work/key"
}
# The server and the worker that it supervises.
server_pids() { echo "$server" && pgrep -P "$server"; }
# Whether each thread of the process has stopped: one that was running goes on for a moment after kill(1).
stopped() { ! grep -L '^State:[[:space:]]*T' /proc/"$1"/task/*/status | grep -q .; }
freeze_server() {
  local pids pid
  pids=$(server_pids)
  # shellcheck disable=SC2086 # several pids
  kill -STOP $pids
  for pid in $pids; do wait_until 50 stopped "$pid" || problem "process $pid does not stop"; done
}
# shellcheck disable=SC2046
thaw_server() { kill -CONT $(server_pids); }
# All of it at once: no worker is started again.
kill_server() {
  local pids pid
  pids=$(server_pids)
  # shellcheck disable=SC2086
  kill -KILL $pids
  wait "$server" 2>/dev/null
  # The worker holds the port until it is gone too.
  for pid in $pids; do wait_until 50 gone "$pid" || problem "process $pid survives SIGKILL"; done
}
clients() { pgrep -f "fs/fuse/rdfs .*$mnt"; }
no_client() { ! clients >/dev/null; }
# Whether the process waits for an answer of ours.
pending_call() { grep -q request_wait_answer "/proc/$1/wchan" 2>/dev/null; }
# What starts rdfs: INT and HUP do what they do, also where whoever runs the test ignores them.
starter=(env --default-signal=INT,HUP)
# mount_it OPTION...: in the background; says one line, on standard output, once the mount can be used.
mount_it() {
  rm -f "$work/log"
  timeout 60 "${starter[@]}" "$rdfs" "$source" "$mnt" "${with[@]}" "$@" >"$work/out" 2>"$work/err" </dev/null ||
    problem "does not mount"
  [ "$(cat "$mnt/file" 2>/dev/null)" = hello ] && is_mounted "$mnt" ||
    problem "is not mounted when its command returns, or not with our file"
  grep -qE "^rdfs: $mnt is .* over [a-z].*" "$work/out" && [ "$(wc -l <"$work/out")" -eq 1 ] ||
    problem "says: $(cat "$work/out")"
  [ ! -s "$work/err" ] || problem "says more than its status line"
}
# ended TENTHS: the mount and its process are gone by then, each.
ended() {
  wait_until "$1" not_mounted "$mnt" || {
    problem "the mount is there"
    fusermount3 -uz "$mnt"
  }
  wait_until "$1" no_client || {
    problem "the process is there: $(clients | xargs -r ps -o pid,stat,wchan:30,args -p)"
    # shellcheck disable=SC2046
    kill -KILL $(clients)
  }
}
