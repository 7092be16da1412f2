#!/usr/bin/env bash
# Usage: library.sh BUILD_DIR
# librdfs as it is installed, from a place of its own: the examples by pkg-config and by CMake's find_package, and
# the Python modules, each against a real rdfsd.
set -uo pipefail
. "$(dirname "$0")/checks" "$1"
here=$(cd "$(dirname "$0")" && pwd)
examples=$here/../../docs/examples

cmake --install "$build" --prefix "$work/usr" --strip >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
libraries=$work/usr/lib/${arch:+$arch}
export LD_LIBRARY_PATH=$libraries PKG_CONFIG_PATH=$libraries/pkgconfig

# It shows what rdfs.h declares and nothing else, each under the version that first had it: tests/packaging/symbols.
nm -D --defined-only "$libraries/librdfs.so" | sed -n 's/.* T //p' | LC_ALL=C sort >"$work/shown"
diff "$here/symbols" "$work/shown" >&2 || fail "librdfs shows other symbols than tests/packaging/symbols has"
sed -n 's/^RDFS_PUBLIC .*[ *]\(rdfs_[a-z_]*\)(.*/\1/p' "$work/usr/include/rdfs.h" | LC_ALL=C sort >"$work/declared"
diff "$work/declared" <(sed 's/@@.*//' "$here/symbols") >&2 || fail "rdfs.h declares other functions than librdfs shows"
nm -D --defined-only "$libraries/librdfs.so" | grep -v ' rdfs_' | grep -v ' A RDFS_' && fail "librdfs shows names of its inside"

# A server.
mkdir "$work/export" "$work/export/dir"
head -c 3000000 /dev/urandom >"$work/export/dir/file"
printf 'a,b\n1,2\n3,4\n' >"$work/export/table.csv"
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/key"
chmod 600 "$work/key"
ids=''; [ "$(id -u)" -ne 0 ] || ids=,trusted
: >"$work/rdfsd.log"
"$work/usr/bin/rdfsd" --export "data=$work/export$ids" --listen 127.0.0.1 --port 0 --key-file "$work/key" -f \
  >"$work/rdfsd.log" 2>&1 </dev/null &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 300); do
  grep -q 'ready on port' "$work/rdfsd.log" && break
  sleep 0.1
done
port=$(sed -n 's/.*ready on port \([0-9]*\).*/\1/p' "$work/rdfsd.log")
[ -n "$port" ] || { cat "$work/rdfsd.log" >&2; exit 1; }
source=rdfs://127.0.0.1:$port/data

# try_examples RDCAT RDTREE
try_examples() {
  "$1" "$source" "key_file=$work/key,require=tcp" dir/file 2>"$work/log" | cmp - "$work/export/dir/file" ||
    fail "$1: $(cat "$work/log")"
  "$1" "$source" "key_file=$work/key" none >/dev/null 2>"$work/log" && fail "$1 read what is not there"
  grep -qx "rdcat: opening 'none': No such file or directory" "$work/log" || fail "$1 says: $(cat "$work/log")"
  "$2" "$source" "key_file=$work/key" . >"$work/tree" 2>&1 || fail "$2: $(cat "$work/tree")"
  grep -qx '3000000 ./dir/file' "$work/tree" || fail "$2 says: $(cat "$work/tree")"
}

mkdir "$work/by-pkg-config"
# shellcheck disable=SC2046
{ cc -std=c11 -Wall -Wextra -Wpedantic -Werror "$examples/rdcat.c" -o "$work/by-pkg-config/rdcat" \
    $(pkg-config --cflags --libs rdfs) &&
  c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror "$examples/rdtree.cc" -o "$work/by-pkg-config/rdtree" \
    $(pkg-config --cflags --libs rdfs); } || fail "the examples do not compile by pkg-config"
try_examples "$work/by-pkg-config/rdcat" "$work/by-pkg-config/rdtree"

{ cmake -S "$examples" -B "$work/by-cmake" -DCMAKE_PREFIX_PATH="$work/usr" && cmake --build "$work/by-cmake"; } \
  >"$work/log" 2>&1 || fail "the examples do not compile by find_package: $(cat "$work/log")"
try_examples "$work/by-cmake/rdcat" "$work/by-cmake/rdtree"

# The distribution's, which has the packages of cmake/packages.txt, whatever else is in the PATH.
PYTHONPATH=$work/usr/lib/python3/dist-packages PYTHONDONTWRITEBYTECODE=1 \
  /usr/bin/python3 "$here/library.py" "$source" "$work/key" "$work/export" || fail "the Python modules"
grep -E ': error: ' "$work/rdfsd.log" >&2 && fail "rdfsd complained"
[ "$failures" -eq 0 ]
