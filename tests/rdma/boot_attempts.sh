#!/usr/bin/env bash
# Usage: boot_attempts.sh
# What `run` does where the test bed's kernel does not boot, with scripts in the kernel's place: three attempts, each
# named, then a failure. One that comes up at the third attempt is as good as one that does at once. A kernel that was
# never built is a skip, unless tests are required.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $1" >&2
  cat "$work/out" "$work/err" >&2
  failures=$((failures + 1))
}

# The bed's own scripts, beside a build-kernel that knows one kernel.
mkdir "$work/bed"
cp "$here/run" "$here/boot" "$here/init" "$work/bed"
cat >"$work/bed/build-kernel" <<END
#!/bin/sh
echo "asked: \$*" >>"$work/asked"
[ -x "$work/kernel" ] || [ "\$1" != --cached ] || exit 1
echo "$work/kernel"
END
chmod +x "$work/bed/build-kernel"
# kernel SCRIPT: what boots. Its descriptor 7 takes what the guest's init has to say, 8 COMMAND's output.
kernel() {
  printf '#!/bin/sh\necho >>%s/attempts\n%s\n' "$work" "$1" >"$work/kernel"
  chmod +x "$work/kernel"
}
# runs STATUS ATTEMPTS WHAT [REQUIRED]
runs() {
  local status=0 attempts
  : >"$work/attempts"
  : >"$work/asked"
  RDFS_RDMA=guest RDFS_RDMA_REQUIRED=${4:-0} "$work/bed/run" --driver siw -- true \
    >"$work/out" 2>"$work/err" </dev/null || status=$?
  attempts=$(wc -l <"$work/attempts")
  [[ $status -eq $1 && $attempts -eq $2 ]] || fail "$3: exit status $status after $attempts attempts, not $1 after $2"
}
says() { grep -qE "$1" "$work/err" || fail "nothing says: $1"; }

kernel 'echo it panics; exit 1'
runs 125 3 'a kernel that does not boot'
for attempt in 1 2 3; do says "^boot: attempt $attempt of 3: the guest did not come up \(gone\)"; done
says '^boot: giving up'
[[ $(grep -c '^it panics' "$work/err") -eq 3 ]] || fail 'the console is not shown for each attempt'

kernel "[ \$(wc -l <$work/attempts) -eq 3 ] || exit 1
echo up >&7; echo of the command >&8; echo 'exit 7' >&7; exec sleep 60"
runs 7 3 'a kernel that boots at the third attempt'
grep -qx 'of the command' "$work/out" || fail 'the output of COMMAND is lost'

kernel 'echo up >&7; echo it panics late; exit 1'
runs 125 1 'a kernel that dies while COMMAND runs'
says '^boot: the guest died while COMMAND ran'

rm "$work/kernel"
runs 77 0 'a kernel that was never built'
says '^run: skipped: .*build-kernel'
runs 125 0 'a kernel that cannot be built, where tests are required' 1
[[ $(<"$work/asked") == 'asked: ' ]] || fail 'the kernel was not to be built'
((failures == 0)) || exit 1
echo 'three attempts, then a failure'
