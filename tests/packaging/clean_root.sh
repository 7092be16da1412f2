#!/usr/bin/env bash
# Usage: clean_root.sh BUILD_DIR
#
# The .deb in a root that has nothing but what debootstrap puts there: apt installs it with all that it needs,
# its programs run, and a line of fstab mounts an export of its rdfsd. As root, in a mount namespace of its
# own; needs Debian's archive, from where this system has it.
set -uo pipefail

if [ -z "${RDFS_CLEAN_ROOT_INSIDE:-}" ]; then
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  exec "${as_root[@]}" env RDFS_CLEAN_ROOT_INSIDE=1 unshare --mount --pid --fork --kill-child \
    --mount-proc --propagation private "$0" "$@"
fi
build=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/var/tmp}/rdfs-root-XXXXXX") || exit 1
root=$work/root
leave() {
  umount -R "$root/proc" "$root/dev" 2>/dev/null
  # Never through a mount that would not go.
  rm -rf --one-file-system "$work"
}
trap leave EXIT
give_up() {
  echo "clean_root.sh: $1" >&2
  [ -s "$work/log" ] && tail -n 30 "$work/log" >&2
  exit 1
}

(cd "$work" && cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/packages") >"$work/log" 2>&1 ||
  give_up "cpack failed"
# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Suite: $suite" 'Component: main' 2>/dev/null |
  grep -m 1 '^http')
debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >"$work/log" 2>&1 ||
  give_up "debootstrap failed"

# What is this system's own in reaching the archive.
cp /etc/resolv.conf "$root/etc/resolv.conf"
[ ! -d /etc/apt/apt.conf.d ] || grep -rhi 'proxy' /etc/apt/apt.conf.d >"$root/etc/apt/apt.conf.d/99proxy" || true
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || give_up "no /proc and /dev inside"
cp "$work"/packages/rdfs_*.deb "$root/rdfs.deb"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
  DEBIAN_FRONTEND=noninteractive "$@"; }
{ inside apt-get -qq update && inside apt-get -qq -y install --no-install-recommends /rdfs.deb; } \
  >"$work/log" 2>&1 || give_up "apt cannot install it"

for program in rdfs rdfsd rdcp rdsend rdrecv rdsock rdping rdinfo; do
  inside "$program" --version >"$work/log" 2>&1 || give_up "$program does not run"
done

# A server, a line of fstab, a file through the mount.
# shellcheck disable=SC2016
inside bash -euc '
  mkdir -p /srv/data /mnt/data /etc/rdfs
  echo content >/srv/data/file
  (umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d " \n" >/etc/rdfs/key)
  rdfsd --export data=/srv/data,trusted --listen 127.0.0.1 --port 0 --key-file /etc/rdfs/key -f >/rdfsd.log 2>&1 &
  for i in $(seq 100); do grep -q "ready on port" /rdfsd.log && break; sleep 0.1; done
  port=$(sed -n "s/.*ready on port \([0-9]*\).*/\1/p" /rdfsd.log)
  echo "rdfs://127.0.0.1:$port/data /mnt/data rdfs key_file=/etc/rdfs/key,_netdev,nofail 0 0" >>/etc/fstab
  mount /mnt/data
  [ "$(cat /mnt/data/file)" = content ]
  echo more >/mnt/data/made
  [ "$(cat /srv/data/made)" = more ]
  umount /mnt/data
  kill %1
  wait %1 || true
' >"$work/log" 2>&1 || give_up "a mount by fstab does not work"
echo "clean_root.sh: installed in a clean $suite, and mounted by fstab"
