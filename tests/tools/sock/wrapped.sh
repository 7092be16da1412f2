#!/usr/bin/env bash
# Usage: wrapped.sh LIBRDSOCK_SO WRAPPED_TXT
# The library gives programs what the list says, all of it and nothing else; and whatever the programs of the
# end-to-end tests, and their libraries, import from the C library to use a descriptor is on the list.
set -euo pipefail
library=$1 list=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$PATH:/usr/sbin:$(dirname "$(find /usr/lib/postgresql -name initdb | sort | tail -n 1)")
failures=0
fail() {
  echo "FAILED: $1" >&2
  failures=$((failures + 1))
}
# none FILE WHAT: the file must be empty.
none() { [ ! -s "$1" ] || fail "$2: $(tr '\n' ' ' <"$1")"; }
names() { awk '{ sub(/@.*/, "", $NF); print $NF }' | LC_ALL=C sort -u; }
compare() { LC_ALL=C comm "$@"; }

awk '/^[^#]/ { print $1 }' "$list" | LC_ALL=C sort >"$work/listed"
awk '/^[^#]/ && $2 == "wrapped" && NF == 2 { print $1 }' "$list" | LC_ALL=C sort >"$work/wrapped"
awk '/^[^#]/ && NF < 2' "$list" >"$work/unexplained"
uniq -d "$work/listed" >"$work/twice"
none "$work/unexplained" "neither wrapped nor explained"
none "$work/twice" "listed twice"

nm -D --defined-only "$library" | names >"$work/exported"
compare -23 "$work/wrapped" "$work/exported" >"$work/missing"
compare -13 "$work/wrapped" "$work/exported" >"$work/unlisted"
none "$work/missing" "the library does not wrap"
none "$work/unlisted" "the library has, and the list does not say wrapped"

# Of the C library's functions those that take, make, wait for or hand on descriptors, by their names.
pattern='(read|write|p(read|write)|(p?(read|write)v)(64)?(v2)?|p(read|write)64|recv.*|send.*|p?poll|epoll_.*|p?select'
pattern+='|accept.*|listen|connect|shutdown|[gs]etsockopt|sockatmark|socket.*|ioctl|fcntl(64)?|close|close_range|closefrom'
pattern+='|dup[23]?|splice|vmsplice|tee|copy_file_range|aio_(read|write)(64)?|lio_listio(64)?|v?dprintf|fdopen|fclose|freopen'
pattern+='|v?fork|forkpty|Fork|login_tty|exec.*|fexecve|posix_spawnp?|pidfd_spawnp?|popen|system|daemon|syscall|prctl'
pattern+='|sigaction|(bsd_|s|sysv_)?signal|sigset|siginterrupt|set(|e|re|res|fs)[ug]id)'
programs=(redis-server redis-benchmark nginx curl wrk memcached iperf3 nc socat ssh sshd scp rsync python3 git
  postgres psql pgbench pg_dump)
for program in "${programs[@]}"; do
  path=$(realpath "$(command -v "$program")") || { fail "$program is not installed"; continue; }
  [ "$(head -c 4 "$path" | tail -c 3)" = ELF ] || continue  # a script around it
  echo "$path"
  ldd "$path" | awk '$3 ~ /^\// { print $3 }'
done >"$work/paths"
xargs realpath <"$work/paths" | LC_ALL=C sort -u >"$work/objects"
libc=$(grep -m 1 '/libc\.so' "$work/objects")
nm -D --defined-only "$libc" | names >"$work/libc"
grep -vFx "$libc" "$work/objects" | xargs nm -D --undefined-only 2>/dev/null | names >"$work/imported"
compare -12 "$work/imported" "$work/libc" | grep -Ex "_*${pattern}(_chk)?" >"$work/concerned"
compare -23 "$work/concerned" "$work/listed" >"$work/forgotten"
none "$work/forgotten" "programs import, and the list does not have"
[ "$(wc -l <"$work/concerned")" -ge 50 ] || fail "only $(wc -l <"$work/concerned") functions of the programs were found"
echo "$(wc -l <"$work/exported") functions wrapped; $(wc -l <"$work/concerned") of those listed are imported by" \
  "$(wc -l <"$work/objects") programs and libraries"
exit $((failures > 0))
