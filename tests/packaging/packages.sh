#!/usr/bin/env bash
# Usage: packages.sh BUILD_DIR
# CPack's .deb and tarball: the files of an installation, and for the .deb what it needs.
set -uo pipefail
. "$(dirname "$0")/checks" "$1"

(cd "$work" && cpack --config "$build/CPackConfig.cmake" -B "$work/packages") >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; exit 1; }

deb=$(echo "$work"/packages/rdfs_*.deb)
tarball=$(echo "$work"/packages/rdfs-*.tar.gz)
[ -f "$deb" ] || { echo "there is no .deb" >&2; exit 1; }
[ -f "$tarball" ] || { echo "there is no tarball" >&2; exit 1; }

mkdir "$work/deb" "$work/tar"
dpkg-deb --extract "$deb" "$work/deb" || fail "dpkg-deb cannot unpack it"
expect_files "$work/deb"
expect_clean "$work/deb" "$build"
expect_modes "$work/deb"
expect_running "$work/deb"
dpkg-deb --contents "$deb" | grep -v ' root/root ' && fail "the .deb holds files that are not root's"

# What the programs load or run, by the packages that have it.
depends=$(dpkg-deb --field "$deb" Depends)
for package in fuse3 'libfuse3-[34]' libibverbs1 librdmacm1 libssl3 liburing2 libsodium23 libc6; do
  echo ", $depends" | grep -qE ", $package(t64)?( |,|$)" || fail "Depends has no $package: $depends"
done
[ "$(dpkg-deb --field "$deb" Version)" = "$("$work/deb/usr/bin/rdfs" --version | cut -d' ' -f2)" ] ||
  fail "the package's version is not the program's"

tar -C "$work/tar" -xzf "$tarball" --strip-components=1 || fail "tar cannot unpack the tarball"
[ -x "$work/tar/usr/bin/rdfs" ] || [ -x "$work/tar/bin/rdfs" ] || fail "the tarball has no bin/rdfs"
[ "$failures" -eq 0 ]
