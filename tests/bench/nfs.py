"""The kernel's NFS 4.2 beside rdfs in the test bed's guest: one host (a network namespace) serves one directory by
both, over the same device or the same link, and mounts of both are measured in turn.

Nothing of nfs-utils is needed: what its daemons would tell the kernel about one client and one directory is written
into the kernel's caches here, and mount(8) is told all that mount.nfs would find out."""

import contextlib
import os
import pathlib
import subprocess
import time

import ceiling
import programs
import setups
import workloads
from setups import wait_for
from workloads import MIB

SERVER, CLIENT = "10.9.7.1", "10.9.7.2"
PORTS = {"tcp": 2049, "rdma": 20049}
OURS = {"verbs": "rdma", "tcp": "tcp"}  # whose peer is which
NAME = "nfs"
COLD = "client cold, server warm (tmpfs)"
SOURCES = 8  # of the C build: the guest is slow at starting programs


def command(*words) -> None:
    subprocess.run([str(word) for word in words], check=True)


def on_server(*words) -> list[str]:
    return [*setups.in_network("server"), *[str(word) for word in words]]


def make_link() -> None:
    """Two network devices, joined, with an RDMA device on each. The client is in the network that the kernel's own
    threads are in, because soft-iWARP opens its sockets there."""
    command("ip", "netns", "add", "server")
    command("ip", "link", "add", "bench-c", "mtu", 9000, "type", "veth", "peer", "name", "bench-s", "mtu", 9000,
            "netns", "server")
    command("ip", "address", "add", f"{CLIENT}/24", "dev", "bench-c")
    command("ip", "link", "set", "bench-c", "up")
    for words in (["address", "add", f"{SERVER}/24", "dev", "bench-s"], ["link", "set", "bench-s", "up"],
                  ["link", "set", "lo", "up"]):
        command("ip", "-n", "server", *words)
    command("rdma", "link", "add", "siw_bench_c", "type", "siw", "netdev", "bench-c")
    command(*on_server("rdma", "link", "add", "siw_bench_s", "type", "siw", "netdev", "bench-s"))


# Puts what exportfs and mountd would say into the kernel of the server's network, where /proc and nfsd's own files
# are those of whoever opens them there.
SERVE = """
set -e
mount -t nfsd nfsd /proc/fs/nfsd
echo -3 >/proc/fs/nfsd/versions  # which would want rpcbind
forever=4102444800
tell() { printf "$2\\n" >"/proc/net/rpc/$1/channel"; }
tell auth.unix.ip "nfsd $CLIENT $forever bench"
# insecure ports, no subtree check, and number 0: the root of NFS 4
tell nfsd.export "bench $BACKING $forever $((0x2 | 0x400 | 0x2000)) 65534 65534 0"
tell nfsd.fh "bench 1 \\\\\\\\x00000000 $forever $BACKING"
echo 10 >/proc/fs/nfsd/nfsv4leasetime
echo 10 >/proc/fs/nfsd/nfsv4gracetime
echo "tcp $TCP" >/proc/fs/nfsd/portlist
echo "rdma $RDMA" >/proc/fs/nfsd/portlist
echo 8 >/proc/fs/nfsd/threads
"""


@contextlib.contextmanager
def serving(backing: pathlib.Path):
    environment = {**os.environ, "CLIENT": CLIENT, "BACKING": str(backing), "TCP": str(PORTS["tcp"]),
                   "RDMA": str(PORTS["rdma"])}
    subprocess.run(on_server("bash", "-c", SERVE), check=True, env=environment)
    try:
        yield
    finally:
        subprocess.run(on_server("bash", "-c", "echo 0 >/proc/fs/nfsd/threads; umount /proc/fs/nfsd"), check=False)


@contextlib.contextmanager
def nfs_mount(protocol: str, read_ahead_kib: int):
    with setups.scratch() as work:
        mount = work / "mnt"
        mount.mkdir()
        options = (f"vers=4.2,proto={protocol},port={PORTS[protocol]},addr={SERVER},clientaddr={CLIENT},rsize=1048576,"
                   "wsize=1048576,hard,sec=sys")
        command("mount", "-i", "-t", "nfs", "-o", options, f"{SERVER}:/", mount)
        setups.set_read_ahead(mount, read_ahead_kib)
        try:
            yield mount
        finally:
            subprocess.run(["umount", "-l", str(mount)], check=False)


@contextlib.contextmanager
def rdfs_mount(bench, source: str, transport: str):
    with setups.scratch() as work, open(work / "log", "w") as output:
        mount = work / "mnt"
        mount.mkdir()
        client = [str(bench.bin / "fs/fuse/rdfs"), source, str(mount), "-o", f"require={transport},plaintext,read_ahead=0", "-f"]
        with setups.mounted(client, mount, output, bench.READ_AHEAD_KIB):
            yield mount


def wait_for_grace(mount: pathlib.Path) -> None:
    """Until a server that has just begun lets files be opened."""
    def opens() -> bool:
        (mount / "first").write_text("x")
        return True
    wait_for(opens, 60, "NFS's server")


def rows(bench, ours: str, size: int, files: int) -> dict:
    """Title to (unit, goal, what is measured on a mount)."""
    best = 1.5 if ours == "verbs" else 1.0
    jobs = {}
    for streams in (1, 4):
        ending = f"{streams} stream{'s' if streams > 1 else ''}"
        jobs[f"sequential read, {ending}"] = ("B/s", best, lambda m, n=streams: ceiling.read_streams(m, n, size))
        jobs[f"sequential write, fsync, {ending}"] = ("B/s", best,
                                                      lambda m, n=streams: ceiling.write_streams(m, n, size))
    for depth in (1, 16, 64):
        jobs[f"random 4 KiB O_DIRECT reads, depth {depth}"] = (
            "1/s", 1.0, lambda m, depth=depth: workloads.random_read(workloads.make_file(m, size).parent, depth, 1,
                                                                     "large"))
    jobs["create, stat, unlink"] = ("1/s", 1.0, lambda m: workloads.small_files(m, files))
    return jobs


def measure(bench) -> None:
    """In the guest."""
    quick = bench.arguments.quick
    size, files = (32 * MIB, 100) if quick else (128 * MIB, 300)
    make_link()
    with setups.scratch() as work, contextlib.ExitStack() as stack:
        work.chmod(0o755)
        (backing,) = setups.make_places(work, None, "export")
        origin = programs.make_origin(work, 50, 5)
        tar = work / "tree.tar"
        workloads.make_tar(tar, pathlib.Path("/usr/include"), 300 if quick else 1000)
        stack.enter_context(serving(backing))
        server = setups.rdfsd(bench.bin, backing, SERVER, before=tuple(on_server()))
        _, source = stack.enter_context(server)
        for ours, theirs in OURS.items():
            peer_name = "NFS/RDMA" if theirs == "rdma" else "NFS/TCP"
            name = f"{NAME}, {ours}: "
            with rdfs_mount(bench, source, ours) as mine, nfs_mount(theirs, bench.READ_AHEAD_KIB) as peer:
                wait_for_grace(peer)
                # Each has files of its own in the one directory.
                mounts = [mine / "ours", peer / "theirs"]
                for mount in mounts:
                    mount.mkdir()
                for title, (unit, goal, job) in rows(bench, ours, size, files).items():
                    if bench.wanted(name + title):
                        pairs = bench.alternate(lambda: job(mounts[0]), lambda: job(mounts[1]))
                        bench.row(name + title, unit, peer_name, goal, COLD, pairs)
                bench.turns([(name + title, "1/s", 1.0) for title in programs.TREES], peer_name, COLD,
                            lambda: programs.trees(mounts[0], origin, tar, files, SOURCES),
                            lambda: programs.trees(mounts[1], origin, tar, files, SOURCES))
                for mount in mounts:
                    programs.remove(mount)
