#!/usr/bin/env bash
# Usage: systemd.sh BUILD_DIR
#
# The units under a real systemd, which is the first process of a clean root in namespaces of its own: rdfsd serves from
# its configuration, reads that again, and is there again after a restart, a crash and an upgrade of the package, under a
# mount with open files, a deleted one and a lock among them; in its sandbox it does whatever a local directory does
# (tests/e2e/compare.cc); rdfs@ mounts, again when rdfs was killed, and unmounts; a line of fstab with x-systemd.automount
# mounts at the first use, each time; all of that is there after a boot, also a plain line of fstab, whose mount goes on
# over a restart of the server; removing the package ends the server.
set -uo pipefail
# shellcheck source=tests/packaging/clean-root
. "$(dirname "$0")/clean-root"
alone "$(realpath "$0")" "$@"
clean_root "$1" systemd
install_package
cp "$1/tests/e2e/e2e_compare" "$root/opt" || give_up "no e2e_compare in the build directory"
umount --lazy --recursive "$root/proc" "$root/dev"

# A control group of its own: systemd wants to be its root, also where the first systemd of this host has the others.
mkdir "$work/groups" && mount -t cgroup2 cgroup2 "$work/groups" || give_up "no control groups (cgroup2)"
group=$work/groups/rdfs-test-$$
mkdir "$group" || give_up "no control group of its own"
leave_groups() {
  [ -z "${init:-}" ] || kill -KILL "$init"
  wait
  find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
  umount "$work/groups"
  leave
}
trap leave_groups EXIT

# What systemd finds mounted, as systemd.io/CONTAINER_INTERFACE asks for.
# shellcheck disable=SC2016
boot='
  root=$1
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs sysfs "$root/sys"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
  for folder in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs "$root/$folder"; done
  chmod 1777 "$root/tmp"
  for device in null zero full random urandom tty fuse autofs; do
    touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device" || exit 1
  done
  mkdir -m 1777 "$root/dev/shm"
  exec env -i container=rdfs-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    chroot "$root" /lib/systemd/systemd --system --log-target=console'
booted() {
  (
    echo "$BASHPID" >"$group/cgroup.procs" || exit 1
    exec unshare --mount --pid --cgroup --uts --ipc --net --fork --kill-child bash -euc "$boot" boot "$root"
  ) >"$work/console" 2>&1 </dev/null &
  outer=$!
  for _ in $(seq 300); do
    init=$(pgrep -P "$outer")
    if [ -n "$init" ] && grep -qs '^systemd$' "/proc/$init/comm" &&
      [ "$(in_systemd systemctl is-system-running 2>/dev/null)" = running ]; then
      return 0
    fi
    sleep 0.1
  done
  return 1
}
in_systemd() {
  timeout --signal=KILL 120 nsenter --target "$init" --mount --pid --cgroup --uts --ipc --net --root --wd \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
powered_off() {
  in_systemd systemctl --no-block poweroff
  for _ in $(seq 600); do
    kill -0 "$outer" 2>/dev/null || { init=''; return 0; }
    sleep 0.1
  done
  return 1
}
not_up() { cp "$work/console" "$work/log"; give_up "$1"; }
booted || not_up "systemd does not come up"

# shellcheck disable=SC2016
words='
  trap "echo \"line \$LINENO of what runs inside: \$BASH_COMMAND\"; journalctl --no-pager -b -n 20" ERR
  until_true() { for i in $(seq 200); do "$@" && return; sleep 0.1; done; "$@"; }
  not() { ! "$@"; }  # which ends the script where it fails, as ! does not
  is_mounted() { [ "$(findmnt -n -o FSTYPE "$1" | tail -n 1)" = fuse.rdfs ]; }
'
# shellcheck disable=SC2016
in_systemd bash -euc "$words"'
  says() { journalctl --no-pager -b -u rdfsd | grep "$1" >/dev/null; }
  # Of that priority, and the message without its mark (sd-daemon(3)).
  is_error() { journalctl --no-pager -b -u rdfsd -p err -o cat | grep "^[^<]*$1" >/dev/null; }
  process_of() { systemctl show -P MainPID "$1"; }
  another_process() { [ "$(process_of "$1")" != 0 ] && [ "$(process_of "$1")" != "$2" ]; }

  # Without a configuration whoever starts it is told.
  not systemctl start rdfsd
  mkdir -p /srv/data /srv/more /srv/local /mnt/data /mnt/auto /etc/rdfs
  echo first >/srv/data/file
  export_of() { printf "[[export]]\nname = \"%s\"\ndir = \"/srv/%s\"\noptions = \"trusted\"\n" "$1" "$1"; }
  { echo "listen = [\"127.0.0.1\"]"; export_of data; } >/etc/rdfs/rdfsd.toml
  printf "SOURCE=rdfs://127.0.0.1/data\nMNT=/mnt/data\nOPTIONS=key_file=/etc/rdfs/key\n" >/etc/rdfs/data.mount
  systemctl enable --now rdfsd
  systemctl start rdfs@data
  is_mounted /mnt/data
  [ "$(cat /mnt/data/file)" = first ]

  exec 7>/mnt/data/open
  echo started >&7
  export_of more >>/etc/rdfs/rdfsd.toml
  systemctl reload rdfsd
  until_true says "read again: 2 exports"
  not is_error "read again: 2 exports"
  echo reloaded >&7
  kill -KILL $(cat "/proc/$(process_of rdfsd)/task/$(process_of rdfsd)/children")
  until_true is_error "worker died of signal 9"
  echo killed >&7
  systemctl restart rdfsd
  echo restarted >&7
  before=$(process_of rdfsd)
  kill -KILL "$before"
  until_true another_process rdfsd "$before"
  until_true systemctl -q is-active rdfsd
  echo crashed >&7
  # A file that has no name any more, and a lock: both have to outlive the upgrade.
  echo kept >/mnt/data/deleted
  exec 4>/mnt/data/locked 5</mnt/data/deleted 6>>/mnt/data/deleted
  rm /mnt/data/deleted
  flock 4
  before=$(process_of rdfsd)
  dpkg -i /rdfs.deb
  another_process rdfsd "$before"
  echo upgraded >&7
  echo more >&6
  [ "$(cat <&5)" = "$(printf "kept\nmore")" ]
  not flock --nonblock /srv/data/locked true
  flock --unlock 4
  flock --nonblock /srv/data/locked true
  exec 4>&- 5<&- 6>&- 7>&-
  [ "$(tr "\n" " " </srv/data/open)" = "started reloaded killed restarted crashed upgraded " ]

  RDFS_E2E_LOCAL=/srv/local RDFS_E2E_MOUNT=/mnt/data RDFS_E2E_BACKING=/srv/data timeout 100 /opt/e2e_compare
  # Nothing that it wanted was refused: also to be told of what others change.
  [ -z "$(journalctl --no-pager -b -u rdfsd --quiet --grep "seen up to a second later|Operation not permitted")" ]

  before=$(process_of rdfs@data)
  kill -KILL "$before"
  until_true another_process rdfs@data "$before"
  until_true systemctl -q is-active rdfs@data
  [ "$(cat /mnt/data/file)" = first ]
  systemctl stop rdfs@data
  not is_mounted /mnt/data

  echo "rdfs://127.0.0.1/more /mnt/auto rdfs key_file=/etc/rdfs/key,_netdev,nofail,x-systemd.automount 0 0" >>/etc/fstab
  echo more >/srv/more/file
  systemctl daemon-reload
  systemctl start mnt-auto.automount
  for i in 1 2; do
    not is_mounted /mnt/auto
    [ "$(timeout 30 cat /mnt/auto/file)" = more ]
    is_mounted /mnt/auto
    systemctl stop mnt-auto.mount
  done

  # Of a server on this host itself, therefore behind it.
  mkdir /mnt/boot
  echo "rdfs://127.0.0.1/more /mnt/boot rdfs key_file=/etc/rdfs/key,_netdev,x-systemd.requires=rdfsd.service 0 0" >>/etc/fstab
  systemctl enable rdfs@data
  [ -z "$(systemctl --failed --quiet --plain)" ]
' >"$work/log" 2>&1 || give_up "not as it should be under systemd"

powered_off || not_up "systemd does not go down with mounts"
booted || not_up "systemd does not come up again with mounts in fstab"
# shellcheck disable=SC2016
in_systemd bash -euc "$words"'
  for mount in data boot auto; do
    [ "$mount" != auto ] || not is_mounted "/mnt/$mount"
    [ -n "$(timeout 30 cat "/mnt/$mount/file")" ]
    is_mounted "/mnt/$mount"
  done
  exec 7>/mnt/boot/open
  echo booted >&7
  systemctl restart rdfsd
  echo restarted >&7
  exec 7>&-
  [ "$(tr "\n" " " </srv/more/open)" = "booted restarted " ]
  is_mounted /mnt/boot

  [ -z "$(systemctl --failed --quiet --plain)" ]
  systemctl stop rdfs@data mnt-auto.automount mnt-auto.mount mnt-boot.mount
  not is_mounted /mnt/boot
  dpkg -r rdfs
  not systemctl -q is-active rdfsd
  [ -n "$(find /etc/systemd/system -name "rdfs*.service")" ]
  dpkg -P rdfs
  [ -z "$(find /etc/systemd/system -name "rdfs*.service")" ]
' >"$work/log" 2>&1 || give_up "not as it should be after a boot"
echo "systemd.sh: served, mounted, reloaded, crashed, upgraded, booted and removed under systemd"
