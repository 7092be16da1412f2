#!/usr/bin/env bash
# The arrows of ARCHITECTURE.md, "Layout": who may include what. Prints each line that breaks one, and
# fails. With --self-test it plants a violation of each rule in a scratch tree and must find them all.
set -euo pipefail

# rule NAME: reads "FILE:LINE:TEXT" of every #include on standard input, prints what breaks the rule.
rules() {
  awk -F: '
    function quoted(path) { return text ~ ("#include *\"" path) }
    function angled(path) { return text ~ ("#include *<" path) }
    {
      file = $1
      text = substr($0, length($1) + length($2) + 3)
      bad = ""
      if (angled("(infiniband|rdma)/") && file !~ /^transport\/verbs\// && file !~ /^tests\//)
        bad = "verbs headers belong to transport/verbs"
      else if (angled("fuse") && file !~ /^fs\/fuse\// && file !~ /^tests\//)
        bad = "FUSE headers belong to fs/fuse"
      else if (file ~ /^transport\// && quoted("(fs|server|tools|tests)/"))
        bad = "transport knows nothing of what uses it"
      else if (file ~ /^fs\// && quoted("(server|tools|tests)/"))
        bad = "fs stands below server and tools"
      else if (file ~ /^fs\/client\// && quoted("fs/fuse/"))
        bad = "the client knows no FUSE"
      else if (file ~ /^fs\/(client|fuse|watch)\// && quoted("fs/library/"))
        bad = "the library stands above client and FUSE"
      else if (file ~ /^fs\/protocol/ && quoted("fs/(client|fuse)/"))
        bad = "the protocol stands below client and FUSE"
      else if (file ~ /^server\// && quoted("(fs/|tools/|tests/)") && !quoted("fs/protocol.h\""))
        bad = "the server takes from fs only fs/protocol.h"
      else if (file ~ /^tools\// && quoted("(server|tests|fs/fuse)/"))
        bad = "tools use transport/ and fs/client/"
      if (bad != "") { print file ":" $2 ": " bad ": " text; found = 1 }
    }
    END { exit found }'
}

includes() { grep -rnE '^ *#include' --include='*.h' --include='*.cc' transport fs server tools; }

# Symbol interposition stays in the shim.
interposition() {
  ! grep -rnE 'RTLD_NEXT|__attribute__\(\(constructor' --include='*.h' --include='*.cc' \
    transport fs server tools | grep -v '^tools/sock/'
}

if [ "${1:-}" = --self-test ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  mkdir -p transport/tcp fs/client fs/fuse server tools/rdping
  expected=0
  plant() { mkdir -p "$(dirname "$1")"; echo "#include $2" >>"$1"; expected=$((expected + 1)); }
  plant transport/tcp/a.cc '<infiniband/verbs.h>'
  plant server/a.cc '<rdma/rdma_cma.h>'
  plant fs/client/a.cc '<fuse3/fuse_lowlevel.h>'
  plant transport/tcp/b.cc '"fs/protocol.h"'
  plant fs/client/b.h '"server/pool/pool.h"'
  plant fs/client/c.h '"fs/fuse/worker/worker.h"'
  plant fs/fuse/a.cc '"fs/library/queue.h"'
  plant fs/protocol.h '"fs/client/client.h"'
  plant server/b.cc '"fs/client/client.h"'
  plant tools/rdping/a.cc '"server/pool/pool.h"'
  echo '#include "fs/protocol.h"' >server/allowed.cc
  found=$(includes | rules | wc -l) || true
  if [ "$found" -ne "$expected" ]; then
    echo "planted $expected violations, found $found" >&2
    exit 1
  fi
  mkdir tools/sock
  echo 'dlsym(RTLD_NEXT, "send");' >tools/sock/allowed.cc
  interposition || { echo "the shim may not interpose symbols" >&2; exit 1; }
  for line in 'dlsym(RTLD_NEXT, "send");' '__attribute__((constructor)) void Begin();'; do
    echo "$line" >fs/client/d.cc
    if interposition >/dev/null; then
      echo "not found outside the shim: $line" >&2
      exit 1
    fi
  done
  exit 0
fi
cd "$1"
status=0
includes | rules || status=1
interposition || status=1
exit $status
