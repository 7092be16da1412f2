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

start_server "$rdping" --listen "$address"
"$rdping" client "$host" "$port" --seconds 0.05 --json >"$work/json" 2>"$work/errors" ||
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
    assert row["bandwidth"] and all(b["bytes_per_second"] > 0 for b in row["bandwidth"]), row
PYTHON
"$rdping" client "$host" "$port" --seconds 0.02 --require "${transports[0]}" >"$work/table" ||
  fail "--require ${transports[0]} failed"
grep -q "^${transports[0]} .*READ" "$work/table" || fail "no table"
stop_server

# What goes wrong is told in one sentence, with exit code 1.
status=0
"$rdping" client "$host" "$port" 2>"$work/refused" >/dev/null || status=$?
[ "$status" -eq 1 ] && [ "$(wc -l <"$work/refused")" -eq 1 ] || fail "a refused port is not told in one line"
status=0
"$rdping" client no-such-host.invalid 1 2>"$work/unknown" >/dev/null || status=$?
[ "$status" -eq 1 ] && grep -q 'no-such-host.invalid' "$work/unknown" || fail "an unknown host is not named"
status=0
"$rdping" client 2>/dev/null >/dev/null || status=$?
[ "$status" -eq 2 ] || fail "a wrong command line does not exit with 2"
