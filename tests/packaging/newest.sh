#!/usr/bin/env bash
# Usage: newest.sh SOURCE_DIR
#
# In the newest stable Debian, with the compilers and the libfuse that it has: every file compiles without a warning,
# with g++ and with clang, and what the client, the server and the mount decide passes its tests.
set -uo pipefail
# shellcheck source=tests/packaging/clean-root
. "$(dirname "$0")/clean-root"
alone "$(realpath "$0")" "$@"
source_directory=$(realpath "$1")
suite=trixie
jobs=$(nproc)
of_kind() { sed -n "s/^$1 *//p" "$source_directory/cmake/packages.txt"; }
root_of "$suite"
# shellcheck disable=SC2046
{ inside apt-get -qq update &&
  inside apt-get -qq -y install --no-install-recommends $(of_kind build) $(of_kind run) \
    libgtest-dev clang acl attr util-linux procps python3; } >"$work/log" 2>&1 || give_up "apt cannot install what builds it"
mkdir "$root/source" "$root/ccache"
tar -C "$source_directory" --exclude=./build --exclude=./.git -c . | tar -C "$root/source" -x || give_up "no source inside"
# What one run has compiled the next one finds, as outside.
cache=$(ccache --get-config cache_dir) && mkdir -p "$cache" && mount --bind "$cache" "$root/ccache" ||
  give_up "no ccache"

in_source() {
  inside env CCACHE_DIR=/ccache CCACHE_BASEDIR=/source CCACHE_NOHASHDIR=true bash -euc "cd /source; $1" >"$work/log" 2>&1
}
for compiler in g++ clang++; do
  in_source "cmake -S . -B /build/$compiler -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRDFS_WERROR=ON \
      -DCMAKE_CXX_COMPILER=$compiler -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
    cmake --build /build/$compiler -j $jobs" || give_up "$compiler of $suite does not build it"
  echo "newest.sh: built with $(inside "$compiler" --version | head -n 1)"
done
in_source "ctest --test-dir /build/clang++ -j $jobs --no-tests=error --output-on-failure --timeout 300 \
    -R '^(fs_client|fs_protocol|server_|fuse_)' -E full" || give_up "what was built with clang++ of $suite fails"
grep 'tests passed' "$work/log"
