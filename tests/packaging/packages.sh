#!/usr/bin/env bash
# Usage: packages.sh BUILD_DIR
# CPack's .deb and tarball: each has the files of an installation, and they run; and for the .deb what it needs.
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
# A tarball's files are in one folder, which says what it is.
tar -tzf "$tarball" | grep -v "^rdfs-$version-[^/]*/usr/" && fail "the tarball has files beside its folder's usr"
tar -C "$work/tar" -xzf "$tarball" --strip-components=1 || fail "tar cannot unpack the tarball"
for root in "$work/deb" "$work/tar"; do
  expect_files "$root"
  expect_clean "$root" "$build"
  expect_modes "$root"
  expect_running "$root"
done
dpkg-deb --contents "$deb" | grep -v ' root/root ' && fail "the .deb holds files that are not root's"

# What the programs load or run, by the packages that have it.
depends=$(dpkg-deb --field "$deb" Depends)
for package in fuse3 'libfuse3-[34]' libibverbs1 librdmacm1 libssl3 liburing2 libsodium23 libc6; do
  echo ", $depends" | grep -qE ", $package(t64)?( |,|$)" || fail "Depends has no $package: $depends"
done
[ "$(dpkg-deb --field "$deb" Version)" = "$("$work/deb/usr/bin/rdfs" --version | cut -d' ' -f2)" ] ||
  fail "the package's version is not the program's"

[ "$failures" -eq 0 ]
