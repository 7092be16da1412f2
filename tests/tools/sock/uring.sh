#!/bin/bash
# uring.sh RDSOCK PROGRAM: a program that is linked with liburing stays on TCP, and --stats says so.
set -u
said=$("$1" --stats "$2" 2>&1)
status=$?
echo "$said"
[ $status = 77 ] && echo "SKIPPED: no io_uring here" && exit 77
[ $status = 0 ] || exit 1
grep -q '2 connections, 0 upgraded' <<<"$said" && grep -q '2 stayed on TCP: .*liburing' <<<"$said"
