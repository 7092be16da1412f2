# shellcheck shell=bash
# For tests on the two hosts of a guest that is booted with --hosts, sourced as: . hosts_setup.bash

# on HOST COMMAND... Not `ip netns exec`: a mount has to be seen outside, too.
on() { local host=$1; shift; nsenter --net="/run/netns/$host" "$@"; }
# In the background, as $!: of `on &` that would be a shell.
start_on() { local host=$1; shift; exec nsenter --net="/run/netns/$host" "$@"; }
