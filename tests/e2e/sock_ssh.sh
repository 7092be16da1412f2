#!/usr/bin/env bash
# Usage: sock_ssh.sh --bin BUILD_DIR [--as-when-root USER]
#
# ssh, scp and rsync over it with rdsock around both ends, either, and none: sshd executes itself for each
# connection and filters system calls before it knows who is there. Sessions of root are moved; those of
# others are held by two processes of sshd, and stay on TCP.
set -uo pipefail
# shellcheck source=tests/e2e/setup.sh
. "$(dirname "$0")/setup.sh"
begin "$@"
# shellcheck source=tests/e2e/sock_setup.sh
. "$(dirname "$0")/sock_setup.sh"
# shellcheck source=tests/e2e/private-sshd
. "$(dirname "$0")/private-sshd"

mkdir "$work/from"
head -c 10000000 /dev/urandom >"$work/from/big"
for i in $(seq 50); do echo "$i" >"$work/from/small$i"; done

# secure WHAT COMMAND...: what it says is in $work/out.
secure() {
  local what=$1
  shift
  timeout 30 "${client[@]}" "$@" >"$work/out" 2>"$work/client.err" <"${input:-/dev/null}" ||
    problem "$what ($mode) failed: $(tail -n 5 "$work/client.err")"
  [ "$(id -u)" -ne 0 ] || expect_upgraded "$what" 1 "$work/client.err"
}
same() { cmp -s "$2" "$3" || problem "$1 ($mode): something else has arrived"; }

sessions() {
  local there="$work/$mode" far
  mkdir "$there"
  private_sshd_under=("${server[@]:0:1}") # not its --stats: it goes into the background
  private_sshd_start "$there" || { problem "sshd ($mode) did not start"; return; }
  ends_with_us "$(cat "$there/sshd.pid")"
  far=$(id -un)@localhost
  input=$work/from/big secure "ssh to sshd" ssh -F "$there/ssh_config" "$far" "cat >$there/got"
  same "ssh to sshd" "$work/from/big" "$there/got"
  secure "ssh from sshd" ssh -F "$there/ssh_config" "$far" "cat $work/from/big"
  same "ssh from sshd" "$work/from/big" "$work/out"
  secure scp scp -q -F "$there/ssh_config" "$work/from/big" "$far:$there/copy"
  same scp "$work/from/big" "$there/copy"
  secure rsync rsync -a -e "ssh -F $there/ssh_config" "$work/from/" "$far:$there/tree/"
  diff -r "$work/from" "$there/tree" >/dev/null || problem "rsync ($mode): another tree has arrived"
  private_sshd_stop "$there"
}

each_mode sessions
conclude "ssh, scp and rsync"
