#!/usr/bin/env bash
# Usage: both_ends.sh RDPING [TRANSPORT...]
# Runs rdping's two ends as processes, and checks that the report holds figures for kernel TCP and each
# named transport (default: shm and tcp), in JSON and in the table, and that errors are clear.
# RDFS_RDMA_ADDRESS, where set, is the server's address.
set -euo pipefail
rdping=$1
shift
transports=("$@")
[ $# -gt 0 ] || transports=(shm tcp)
address=${RDFS_RDMA_ADDRESS:-127.0.0.1}
# shellcheck source=tests/tools/rdping_server.sh
. "$(dirname "$0")/../rdping_server.sh"

start_server "$rdping" --listen "$address" -v
"$rdping" client "$host" "$port" -v --seconds 0.05 --json >"$work/json" 2>"$work/errors" ||
  fail "the client failed"
python3 - "$work/json" "${transports[@]}" <<'PYTHON' || fail "figures are missing"
import json, sys
report = json.load(open(sys.argv[1]))
rows = {(row["transport"].split(" (")[0], row["operation"]): row for row in report["rows"]}
wanted = [("kernel tcp", "message")]
wanted += [(t, op) for t in sys.argv[2:] for op in ("message", "READ", "WRITE")]
for key in wanted:
    row = rows[key]
    assert row["round_trips"] > 0 and row["p50_us"] <= row["p99_us"] <= row["p99_9_us"], row
    # One at a time, for as long as was asked; and half of them took the median or longer.
    assert 0.04 < row["average_us"] * row["round_trips"] / 1e6 < 5, row
    assert row["average_us"] >= row["p50_us"] / 2 > 0, row
    assert row["bandwidth"] and all(b["bytes_per_second"] > 0 for b in row["bandwidth"]), row
PYTHON
"$rdping" client "$host" "$port" --seconds 0.02 --require "${transports[0]}" >"$work/table" ||
  fail "--require ${transports[0]} failed"
grep -q "^${transports[0]} .*READ" "$work/table" || fail "no table"
grep -q 'a client over' "$work/server" || fail "with -v behind it the server says no more"
stop_server

# A server with a key serves who has it.
printf '0123456789abcdef' >"$work/key"
printf 'another key' >"$work/wrong"
chmod 600 "$work/key" "$work/wrong"
start_server "$rdping" --listen "$address" --key-file "$work/key"
"$rdping" client --sizes 8192,65536 "$host" "$port" --key-file "$work/key" --seconds 0.02 --size 4096 --json >"$work/json" ||
  fail "a key failed"
python3 - "$work/json" <<'PYTHON' || fail "--size or --sizes is not heeded"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["latency_bytes"] == 4096, report
assert all([b["bytes"] for b in row["bandwidth"]] == [8192, 65536] for row in report["rows"] if row["bandwidth"]), report
PYTHON
"$rdping" client "$host" "$port" --key-file "$work/key" --seconds 0.02 --require tcp --plaintext >"$work/plain" &&
  grep -q '^tcp  .*READ' "$work/plain" || fail "--plaintext failed"
for wrong in "--key-file $work/wrong" ''; do
  status=0
  # shellcheck disable=SC2086
  "$rdping" client "$host" "$port" $wrong --seconds 0.02 2>"$work/refused" >/dev/null || status=$?
  [ "$status" -eq 1 ] && [ "$(wc -l <"$work/refused")" -eq 1 ] && grep -q key "$work/refused" ||
    fail "a wrong key ('$wrong') is not told in one line"
done
stop_server

# What goes wrong is told in one sentence, with exit code 1.
status=0
"$rdping" client "$host" "$port" 2>"$work/refused" >/dev/null || status=$?
[ "$status" -eq 1 ] && [ "$(wc -l <"$work/refused")" -eq 1 ] || fail "a refused port is not told in one line"
status=0
"$rdping" client no-such-host.invalid 1 2>"$work/unknown" >/dev/null || status=$?
[ "$status" -eq 1 ] && grep -q 'no-such-host.invalid' "$work/unknown" || fail "an unknown host is not named"
# As a wrong command line is, with 2.
wrong() {
  status=0
  "$rdping" "$@" 2>"$work/wrong" >/dev/null || status=$?
  [ "$status" -eq 2 ] && [ "$(wc -l <"$work/wrong")" -eq 1 ] &&
    grep -qE '^rdping: .*; see rdping --help$' "$work/wrong" || fail "the wrong command line 'rdping $*'"
}
wrong
wrong client
wrong client "$host" 99999
wrong client "$host" --require carrier-pigeon
wrong client "$host" --no-such-option
status=0
"$rdping" client 127.0.0.1:7337 7338 2>"$work/wrong" >/dev/null || status=$?
[ "$status" -eq 2 ] && [ "$(cat "$work/wrong")" = "rdping: '127.0.0.1:7337' names its port: leave out 7338" ] ||
  fail "two ports are not told of: $(cat "$work/wrong")"
