#!/usr/bin/env bash
# Usage: clean_root.sh BUILD_DIR
#
# The .deb in a root that has nothing but what debootstrap puts there: apt installs it with all that it needs,
# its programs run, a line of fstab mounts an export of its rdfsd, the mount outlives a restart of that, and fsspec
# reads from it. As root, in a mount namespace of its own; needs Debian's archive, from where this system has it.
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
  umount --lazy --recursive "$root/mnt/data" "$root/proc" "$root/dev" 2>/dev/null
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

# A server, a line of fstab, files through the mount; the server ends and starts again under open files, and
# they go on.
# shellcheck disable=SC2016
inside bash -euc '
  trap "echo \"line \$LINENO of what runs inside: \$BASH_COMMAND\"; cat /rdfsd.log" ERR
  mkdir -p /srv/data /mnt/data /etc/rdfs
  printf "first\nsecond\n" >/srv/data/file
  (umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d " \n" >/etc/rdfs/key)
  serve() {
    rdfsd --export data=/srv/data,trusted --listen 127.0.0.1 --port "$1" --key-file /etc/rdfs/key -f \
      >/rdfsd.log 2>&1 7<&- 8<&- &
    for i in $(seq 300); do grep -q "ready on port" /rdfsd.log && break; sleep 0.1; done
    port=$(sed -n "s/.*ready on port \([0-9]*\).*/\1/p" /rdfsd.log)
    [ -n "$port" ]
  }
  serve 0
  echo "rdfs://127.0.0.1:$port/data /mnt/data rdfs key_file=/etc/rdfs/key,_netdev,nofail 0 0" >>/etc/fstab
  mount /mnt/data
  exec 7</mnt/data/file 8>/mnt/data/written
  read -r line <&7; [ "$line" = first ]
  echo before >&8

  kill -TERM %1
  wait %1
  first=$port
  serve "$first"
  [ "$port" = "$first" ]

  echo after >&8
  exec 8>&-
  [ "$(cat /srv/data/written)" = "$(printf "before\nafter")" ]
  exec 9<>/mnt/data/file
  [ "$(cat <&9)" = "$(printf "first\nsecond")" ]
  exec 9>&-
  read -r line <&7; [ "$line" = second ]
  exec 7>&-
  echo more >/mnt/data/made
  [ "$(cat /srv/data/made)" = more ]
  echo "$port" >/port
' >"$work/log" 2>&1 || give_up "a mount by fstab does not work, or does not outlive its server"

# README: a table by fsspec.
inside apt-get -qq -y install --no-install-recommends python3-fsspec >"$work/log" 2>&1 || give_up "apt cannot install python3-fsspec"
# shellcheck disable=SC2016
inside bash -euc '
  printf "a,b\n1,2\n" >/mnt/data/table.csv
  python3 -c "
import fsspec
with fsspec.open(\"rdfs://127.0.0.1:$(cat /port)/data/table.csv\", key_file=\"/etc/rdfs/key\") as file:
    assert file.read() == b\"a,b\\n1,2\\n\"
"
  umount /mnt/data
' >"$work/log" 2>&1 || give_up "the package has no fsspec file system"
echo "clean_root.sh: installed in a clean $suite, mounted by fstab, and read by fsspec"
