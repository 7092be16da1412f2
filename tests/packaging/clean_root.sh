#!/usr/bin/env bash
# Usage: clean_root.sh BUILD_DIR
#
# The .deb in a clean root: apt installs it with all that it needs, its programs run, a line of fstab mounts an export
# of its rdfsd, the mount outlives a restart of that, fsspec reads from it, and programs are built with librdfs. Then
# the tarball in its place.
set -uo pipefail
# shellcheck source=tests/packaging/clean-root
. "$(dirname "$0")/clean-root"
alone "$(realpath "$0")" "$@"
build=$(realpath "$1")
clean_root "$build"
install_package

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

# Programs of others, as the examples say.
inside apt-get -qq -y install --no-install-recommends cmake g++ make pkg-config >"$work/log" 2>&1 ||
  give_up "apt cannot install what programs are built with"
# shellcheck disable=SC2016
inside bash -euc '
  source=rdfs://127.0.0.1:$(cat /port)/data
  examples=/usr/share/doc/rdfs/docs/examples
  cc "$examples/rdcat.c" -o /rdcat $(pkg-config --cflags --libs rdfs)
  cmake -S "$examples" -B /by-cmake
  cmake --build /by-cmake
  for rdcat in /rdcat /by-cmake/rdcat; do
    [ "$("$rdcat" "$source" key_file=/etc/rdfs/key file)" = "$(printf "first\nsecond")" ]
  done
' >"$work/log" 2>&1 || give_up "no program can be built with the package's librdfs"

# The tarball, whose libraries are those that the package needed.
(cd "$work" && cpack -G TGZ --config "$build/CPackConfig.cmake" -B "$work/packages") >"$work/log" 2>&1 || give_up "cpack failed"
inside apt-get -qq -y remove rdfs >"$work/log" 2>&1 || give_up "apt cannot remove it"
! inside bash -c 'command -v rdfs rdfsd mount.rdfs' || give_up "the package was removed, and its programs were not"
tar -C "$root" -xzf "$work"/packages/rdfs-*.tar.gz --strip-components=1 >"$work/log" 2>&1 || give_up "tar cannot unpack it"
# shellcheck disable=SC2016
inside bash -euc '
  ldconfig
  rdfsd --export data=/srv/data,trusted --listen 127.0.0.1 --port 0 --key-file /etc/rdfs/key -f >/tarball.log 2>&1 &
  trap "echo \"line \$LINENO of what runs inside: \$BASH_COMMAND\"; cat /tarball.log" ERR
  for i in $(seq 300); do grep -q "ready on port" /tarball.log && break; sleep 0.1; done
  port=$(sed -n "s/.*ready on port \([0-9]*\).*/\1/p" /tarball.log)
  mount -t rdfs -o key_file=/etc/rdfs/key "rdfs://127.0.0.1:$port/data" /mnt/data
  [ "$(cat /mnt/data/file)" = "$(printf "first\nsecond")" ]
  [ "$(/rdcat "rdfs://127.0.0.1:$port/data" key_file=/etc/rdfs/key made)" = more ]
  umount /mnt/data
' >"$work/log" 2>&1 || give_up "the tarball does not serve, or does not mount"
echo "clean_root.sh: installed in a clean $suite from the .deb and from the tarball, mounted by fstab, read by fsspec, and built with"
