#!/usr/bin/env bash
# Usage: read_ahead.sh --bin BUILD_DIR [--over TRANSPORT] [--as-when-root USER], over shm and over tcp unless told otherwise
#
# What a mount asks for ahead of who reads a file from front to back (fs/fuse/content/read_ahead.h): that it is asked for once and
# used, and never when the file has changed since; what becomes of it when many read, write, or the server dies (read_ahead.py).
source "$(dirname "$0")/setup.sh"
begin "$@"

export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
mkdir "$work/export"
new_key "$work/key"
ids=''; [ "$(id -u)" -ne 0 ] || ids=,trusted
# The kernel's own read-ahead is 128 KiB, as an ordinary user has it.
with=key_file=$work/key,read_ahead=0,deadline=60
for over in ${over:-shm tcp}; do
  # Each its own, which may be killed a few times before it gives up.
  port=''
  serve "server-$over" --export "data=$work/export$ids" --key-file "$work/key"
  for name in reader writer plain; do
    mkdir "$work/$name"
    prefetch=8192; [ $name != plain ] || prefetch=0
    [ $name != writer ] || prefetch=1024
    "$rdfs" "rdfs://$address:$port/data" "$work/$name" -o "$with,require=$over,prefetch=$prefetch" -f \
      >"$work/$name.log" 2>&1 </dev/null &
    declare "$name=$!"
    ends_with_us $!
    wait_until 100 is_mounted "$work/$name" || { cat "$work/$name.log" >&2; problem "$name did not mount"; conclude; }
  done
  timeout 200 "${python[@]}" "$(dirname "$0")/read_ahead.py" "$work" "$reader" "$plain" "$server" ||
    problem "reading ahead over $over"
  for name in reader writer plain; do
    fusermount3 -u "$work/$name" || problem "$name cannot be unmounted"
    wait_until 100 gone "${!name}" || problem "$name does not end"
    rmdir "$work/$name"
  done
  kill "$server"
  wait_until 100 gone "$server" || problem "rdfsd does not end"
  rm -rf "$work"/export/*
done
conclude "what is read ahead"
