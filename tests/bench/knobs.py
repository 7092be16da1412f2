"""What each setting is worth: the same mount with it and without, the same work in turn. docs/tuning.md says which
ones there are, and quotes these rows."""

import concurrent.futures
import contextlib
import os
import pathlib
import subprocess
import time

import ceiling
import pipes
import setups
import workloads
from setups import log
from workloads import MIB

CACHED = "client cold, server warm (tmpfs)"
# What verbs.py has measured in the guest.
MEMLOCK = "knobs: memlock 8 MiB, verbs"
MTU = "knobs: MTU 1500, verbs (soft-RoCE)"
TCP_WINDOW = "knobs: tcp_rmem and tcp_wmem 64 MiB, tcp, 40 ms away"
FAR_READ_AHEAD = "knobs: read_ahead 4096 KiB, tcp, 40 ms away"
FAR_PREFETCH = "knobs: prefetch=0, tcp, 40 ms away"
FAR_LANES = "knobs: rdcp with 4 lanes, tcp, 40 ms away"
# The most that Linux let a socket receive ahead before 6.16.
USUAL_WINDOW = 6 * MIB
HUGE = "knobs: huge pages, shm: sequential read"
HUGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")


@contextlib.contextmanager
def mount(bench, options="", server="", read_ahead_kib=None, address="127.0.0.1", user=None, before=()):
    """With these of rdfs's -o and these lines of rdfsd's configuration. `before` starts both, of that user."""
    with setups.scratch() as work, open(work / "log", "w") as output:
        backing, place = setups.make_places(work, user, "export", "mnt")
        with setups.rdfsd(bench.bin, backing, address, user, before, server) as (_, source):
            client = [*before, str(bench.bin / "fs/fuse/rdfs"), source, str(place), "-o", f"{options},read_ahead=0", "-f"]
            with setups.mounted(client, place, output, read_ahead_kib or bench.READ_AHEAD_KIB, user):
                yield place


def small_writes(place: pathlib.Path, count: int) -> float:
    """Buffered writes of 512 bytes a second, and their fsync."""
    path, block = place / "small-writes", b"x" * 512
    with open(path, "wb", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(count):
            file.write(block)
        os.fsync(file.fileno())
        elapsed = time.perf_counter() - start
    path.unlink()
    return count / elapsed


def readers(place: pathlib.Path, count: int) -> float:
    """O_DIRECT reads of 4 KiB a second, of `count` programs together."""
    workloads.make_file(place, 256 * MIB)
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return sum(pool.map(lambda _: workloads.random_read(place, 1, 1), range(count)))


@contextlib.contextmanager
def huge_pages(mode: str):
    before = HUGE_PAGES.read_text().split("[")[1].split("]")[0]
    HUGE_PAGES.write_text(mode)
    try:
        yield
    finally:
        HUGE_PAGES.write_text(before)


def beside(bench, prefix: str, jobs: dict, peer: str, ours: pathlib.Path, theirs: pathlib.Path,
           user: str | None = None) -> None:
    """A row for each of the jobs, by what it is called: the unit, and what is done on a mount, by that user."""
    for what, (unit, job) in jobs.items():
        name = f"{prefix}: {what}"
        if bench.wanted(name):
            pairs = bench.alternate(lambda: setups.as_user(user, lambda: job(ours)),
                                    lambda: setups.as_user(user, lambda: job(theirs)))
            bench.row(name, unit, peer, None, CACHED, pairs)


def sequential_jobs(size: int) -> dict:
    return {"sequential read": ("B/s", lambda place: workloads.sequential_read(place, size)),
            "sequential write, fsync": ("B/s", lambda place: workloads.sequential_write(place, size))}


def memlock_jobs(size: int) -> dict:
    return {**sequential_jobs(size),
            "random 4 KiB O_DIRECT reads": ("1/s", lambda place: workloads.random_read(place, 1, 1))}


def memlock(bench, address: str, user: str | None) -> None:
    """What Linux lets a user lock, against no limit. Root has none."""
    jobs = memlock_jobs((64 if bench.arguments.quick else 256) * MIB)
    common = dict(options="require=verbs", address=address, user=user)
    with mount(bench, before=("prlimit", f"--memlock={8 * MIB}"), **common) as ours, mount(bench, **common) as theirs:
        beside(bench, MEMLOCK, jobs, "unlimited", ours, theirs, user)


def mtu(bench, address: str) -> None:
    """A connection keeps the RDMA MTU that the interface's allowed when it was made: 1024 bytes with 1500, 4096 with
    9000."""
    size = (16 if bench.arguments.quick else 64) * MIB
    interface = interface_of(address)
    with contextlib.ExitStack() as stack:
        places = []
        for bytes_each in (1500, 9000):
            subprocess.run(["ip", "link", "set", interface, "mtu", str(bytes_each)], check=True)
            places.append(stack.enter_context(mount(bench, options="require=verbs", address=address)))
            workloads.sequential_read(places[-1], size)
        beside(bench, MTU, sequential_jobs(size), "MTU 9000", *places)


def interface_of(address: str) -> str:
    out = subprocess.run(["ip", "-4", "-o", "address"], check=True, capture_output=True, text=True).stdout
    return next(words[1] for words in map(str.split, out.splitlines()) if words[3].startswith(f"{address}/"))


def far_network(name: str, window: int):
    """A network of its own whose every packet takes 20 ms, and whose sockets may buffer so many bytes. What starts
    programs in it."""
    return setups.network(name, "tc qdisc add dev lo root netem delay 20ms limit 100000; cd /proc/sys/net/ipv4; "
                          f"echo 4096 131072 {window} >tcp_rmem; echo 4096 16384 {window} >tcp_wmem")


def tcp_jobs(size: int) -> dict:
    return {"sequential read": ("B/s", lambda place: ceiling.read_streams(place, 1, size)),
            "four sequential reads": ("B/s", lambda place: ceiling.read_streams(place, 4, size))}


def tcp_window(bench) -> None:
    """Against the usual one."""
    jobs = tcp_jobs((64 if bench.arguments.quick else 256) * MIB)
    common = dict(options="require=tcp,plaintext", read_ahead_kib=4096)
    with far_network("wide", 64 * MIB) as wide, far_network("narrow", USUAL_WINDOW) as narrow, \
            mount(bench, before=wide, **common) as ours, mount(bench, before=narrow, **common) as theirs:
        beside(bench, TCP_WINDOW, jobs, "6 MiB", ours, theirs)


def far_read_ahead(bench) -> None:
    """Against 1024 KiB, with the usual window."""
    jobs = tcp_jobs((64 if bench.arguments.quick else 256) * MIB)
    with far_network("far", USUAL_WINDOW) as far:
        common = dict(options="require=tcp,plaintext", before=far)
        with mount(bench, read_ahead_kib=4096, **common) as ours, mount(bench, read_ahead_kib=1024, **common) as theirs:
            beside(bench, FAR_READ_AHEAD, jobs, "1024 KiB", ours, theirs)


def far_prefetch(bench) -> None:
    """Against what rdfs reads ahead by itself; as an ordinary user has it, with the kernel's own read-ahead and the
    usual window."""
    jobs = tcp_jobs((16 if bench.arguments.quick else 64) * MIB)
    with far_network("prefetch", USUAL_WINDOW) as far:
        common = dict(read_ahead_kib=128, before=far)
        with mount(bench, options="require=tcp,plaintext,prefetch=0", **common) as ours, \
                mount(bench, options="require=tcp,plaintext", **common) as theirs:
            beside(bench, FAR_PREFETCH, jobs, "the default", ours, theirs)


@contextlib.contextmanager
def far_machine():
    """A host that is 40 ms away from another, both with the usual window: what starts programs at that one, and what is
    ssh to the far one."""
    window = (f"cd /proc/sys/net/ipv4; echo 4096 131072 {USUAL_WINDOW} >tcp_rmem; "
              f"echo 4096 16384 {USUAL_WINDOW} >tcp_wmem")
    with setups.linked_hosts(2, "netem delay 20ms limit 100000") as (near, far), setups.scratch() as work:
        for host in (near, far):
            subprocess.run([*host.inside, "bash", "-ec", window], check=True)
        ssh = work / "ssh"
        ssh.write_text(f'#!/bin/sh\nfor each; do [ "$each" != -G ] || {{ echo hostname {far.address}; exit; }}; done\n'
                       'while [ "$1" != far ]; do shift; done\nshift\n[ "$1" != -- ] || shift\n'
                       f'exec {" ".join(far.inside)} sh -c "$*"\n')
        ssh.chmod(0o755)
        yield near.inside, ssh


def far_lanes(bench) -> None:
    """A file to a machine that is far away, by several connections against one."""
    size = (64 if bench.arguments.quick else 256) * MIB
    rdcp = bench.bin / "tools/copy/rdcp"
    with far_machine() as (inside, ssh), setups.scratch() as work:
        source = pipes.noise(work / "source", size)

        def copied(lanes: int) -> float:
            start = time.perf_counter()
            subprocess.run([*inside, rdcp, "-e", ssh, "--rdcp-path", rdcp, "--plaintext", "--require", "tcp",
                            "--lanes", str(lanes), source, f"far:{work}/target"], check=True)
            return size / (time.perf_counter() - start)

        pairs = bench.alternate(lambda: copied(4), lambda: copied(1))
    bench.row(FAR_LANES, "B/s", "1 lane", None, "page cache warm", pairs)


def on_this_machine(size: int) -> list[tuple]:
    """What, its unit, what is done, the peer, and what mounts with the setting and without."""
    sequential = lambda place: workloads.sequential_read(place, size)
    tcp = "require=tcp,plaintext"
    return [
        ("read_ahead 128 KiB, shm: sequential read", "B/s", sequential, "1024 KiB",
         dict(options="require=shm", read_ahead_kib=128), dict(options="require=shm")),
        ("read_ahead 4096 KiB, shm: sequential read", "B/s", sequential, "1024 KiB",
         dict(options="require=shm", read_ahead_kib=4096), dict(options="require=shm")),
        ("read_ahead 128 KiB, tcp: sequential read", "B/s", sequential, "1024 KiB",
         dict(options=tcp, read_ahead_kib=128), dict(options=tcp)),
        ("read_ahead 4096 KiB, tcp: sequential read", "B/s", sequential, "1024 KiB",
         dict(options=tcp, read_ahead_kib=4096), dict(options=tcp)),
        ("prefetch=0, shm: sequential read", "B/s", sequential, "the default",
         dict(options="require=shm,prefetch=0", read_ahead_kib=128), dict(options="require=shm", read_ahead_kib=128)),
        ("prefetch=0, tcp: sequential read", "B/s", sequential, "the default",
         dict(options=f"{tcp},prefetch=0", read_ahead_kib=128), dict(options=tcp, read_ahead_kib=128)),
        ("TLS, tcp: sequential read", "B/s", sequential, "plaintext",
         dict(options="require=tcp,require_encryption"), dict(options=tcp)),
        ("workers=2, shm: four programs read 4 KiB", "1/s", lambda place: readers(place, 4), "workers=1",
         dict(options="require=shm,workers=2"), dict(options="require=shm,workers=1")),
        ("writeback, shm: writes of 512 bytes", "1/s", lambda place: small_writes(place, 20_000), "without",
         dict(options="require=shm,writeback"), dict(options="require=shm")),
        ("pool 64 MiB, shm: random 4 KiB reads of 256 MiB", "1/s",
         lambda place: workloads.random_read(place, 16, 1), "the default",
         dict(options="require=shm", server='pool = "64M"\n'), dict(options="require=shm")),
    ]


def names() -> list[str]:
    """Of all rows, for documents that quote them."""
    in_guest = {MEMLOCK: memlock_jobs(0), MTU: sequential_jobs(0), TCP_WINDOW: tcp_jobs(0), FAR_READ_AHEAD: tcp_jobs(0),
                FAR_PREFETCH: tcp_jobs(0)}
    return [*[f"knobs: {what}" for what, *_ in on_this_machine(0)], HUGE, FAR_LANES,
            *[f"{prefix}: {what}" for prefix, jobs in in_guest.items() for what in jobs]]


def run(bench):
    size = (128 if bench.arguments.quick else 1024) * MIB
    for what, unit, job, peer, with_it, without in on_this_machine(size):
        name = f"knobs: {what}"
        if bench.wanted(name):
            with setups.pinned({0, 1}), mount(bench, **with_it) as ours, mount(bench, **without) as theirs:
                pairs = bench.alternate(lambda: job(ours), lambda: job(theirs))
            bench.row(name, unit, peer, None, CACHED, pairs)
    huge(bench, lambda place: workloads.sequential_read(place, size))


def huge(bench, sequential) -> None:
    name = HUGE
    if bench.wanted(name) and HUGE_PAGES.exists() and os.geteuid() == 0:
        with setups.pinned({0, 1}), contextlib.ExitStack() as stack:
            with huge_pages("advise"):
                ours = stack.enter_context(mount(bench, options="require=shm"))
                sequential(ours)
            with huge_pages("never"):
                theirs = stack.enter_context(mount(bench, options="require=shm"))
                sequential(theirs)
            pairs = bench.alternate(lambda: sequential(ours), lambda: sequential(theirs))
        bench.row(name, "B/s", "4 KiB pages", None, CACHED, pairs)
    elif bench.wanted(name):
        log(f"{name}: not here, it takes root and {HUGE_PAGES}")
