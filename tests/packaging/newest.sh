#!/usr/bin/env bash
# Usage: newest.sh SOURCE_DIR
#
# In the newest stable Debian, with the compilers and the libraries that it has: every file compiles without a warning,
# with g++ and with clang, and all tests that need no device pass. So does a mount beside a local directory: only here
# is libfuse new enough for files without a name.
set -uo pipefail
# shellcheck source=tests/packaging/clean-root
. "$(dirname "$0")/clean-root"
alone "$(realpath "$0")" "$@"
source_directory=$(realpath "$1")
jobs=$(nproc)
of_kind() { sed -n "s/^$1 *//p" "$source_directory/cmake/packages.txt"; }
root_of trixie
# unshare(1) inside wants a root that something is mounted on.
mount --rbind "$root" "$root" && mount -t sysfs sysfs "$root/sys" || give_up "no mounts inside"
# No services: they would take the ports of those outside.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" && chmod +x "$root/usr/sbin/policy-rc.d"
# shellcheck disable=SC2046
{ inside apt-get -qq update &&
  inside apt-get -qq -y install --no-install-recommends $(of_kind build) $(of_kind run) $(of_kind test); } \
  >"$work/log" 2>&1 || give_up "apt cannot install what builds it"
inside useradd --create-home --shell /bin/bash rdfs-test || give_up "no ordinary user inside"
ln -sf /proc/self/mounts "$root/etc/mtab"  # fusermount3 unmounts by it
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
# A process below a root that was changed may not make the user namespaces that one test needs.
in_source "ctest --test-dir /build/clang++ -j $jobs --no-tests=error --output-on-failure --timeout 300 \
    -LE 'e2e|rdma|full' -E IsNobodyWhenItMayBeAnybody" || give_up "what was built with clang++ of $suite fails"
grep 'tests passed' "$work/log"
in_source "ctest --test-dir /build/clang++ --no-tests=error --output-on-failure -R '^e2e[.]compare_(shm|tcp|root)'" ||
  give_up "a mount by what was built with clang++ of $suite is unlike a local directory"
grep 'tests passed' "$work/log"
