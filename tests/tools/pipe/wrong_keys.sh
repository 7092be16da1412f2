#!/usr/bin/env bash
# Usage: wrong_keys.sh BIN_DIR shm|tcp|verbs
# A thousand senders with wrong keys, a hundred at a time, then the right one among others: it is let in. The wrong ones
# are told so, or let go where too many from one address wait for that.
# shellcheck source=tests/tools/pipe/both_ends.bash
. "$(dirname "$0")/both_ends.bash" "$1" "$2"
count=1000
[ "$over" != verbs ] || count=100  # in a guest with one processor
head -c 3000000 /dev/urandom >"$work/noise"
receive
# one NUMBER: a sender that does not know the key; says so if it was let in, or refused for anything else.
one() {
  timeout 60 "$rdsend" --wait 0 --require "$over" "$address" "$port" "wrong $1" </dev/null 2>"$work/wrong.$1"
  [ $? -eq 1 ] && grep -qE 'wrong key|was closed at its other end' "$work/wrong.$1" || echo "$1: $(cat "$work/wrong.$1")"
}
export -f one
export rdsend over address port work
seq "$count" | xargs -P 100 -I NUMBER bash -c 'one NUMBER' >"$work/odd"
# And among more of them, which find nobody when it has come.
seq $((count + 1)) $((count + 100)) | xargs -P 50 -I NUMBER bash -c 'one NUMBER' >/dev/null &
crowd=$!
sleep 0.3
started=$SECONDS
send <"$work/noise"; sent=$?
took=$((SECONDS - started))
wait $crowd
[ ! -s "$work/odd" ] || problem "$(wc -l <"$work/odd") were not refused as they should be: $(head -n 3 "$work/odd")"
grep -q 'wrong key' "$work"/wrong.* || problem "nobody was told of a wrong key"
received; both "the right key among wrong ones" $sent $?
same "the right key among wrong ones" "$work/noise" "$work/out"
echo "the right one took $took s"
conclude
