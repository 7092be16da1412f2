"""FUSE's own ceiling: a mount over shm beside null_fs, which serves from its own memory; beside iperf3 what a mount
over tcp carries; and how much of rdfsd a client takes that has what it needs."""

import concurrent.futures
import os
import pathlib
import time

import pipes
import programs
import setups
import workloads
from setups import log
from workloads import MIB

NULL = "null_fs"
COLD = "client cold, server warm (memory)"
WARM = "client warm, within the lease"


def side_by_side(job, mount: pathlib.Path, streams: int, size: int) -> float:
    """Bytes a second of all streams together, a file and a thread each: until the slowest is done."""
    folders = [mount / f"stream{i}" for i in range(streams)]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(streams) as threads:
        rates = list(threads.map(lambda folder: job(folder, size // streams), folders))
    return streams * min(rates)


def read_streams(mount: pathlib.Path, streams: int, size: int) -> float:
    return side_by_side(workloads.sequential_read, mount, streams, size)


def write_streams(mount: pathlib.Path, streams: int, size: int) -> float:
    return side_by_side(workloads.sequential_write, mount, streams, size)


def throughput(bench, suffix: str, ours, peer) -> None:
    quick = bench.arguments.quick
    size = (128 if quick else 1024) * MIB
    for streams in (1, 4):
        for what, job in (("read", read_streams), ("write, fsync", write_streams)):
            name = f"ceiling, shm: sequential {what}, {streams} stream{'s' if streams > 1 else ''}{suffix}"
            if bench.wanted(name):
                pairs = bench.alternate(lambda: job(ours["mount"], streams, size),
                                        lambda: job(peer["mount"], streams, size))
                bench.row(name, "B/s", NULL, 0.9, COLD, pairs)
    for depth in (1, 16, 64):
        name = f"ceiling, shm: random 4 KiB O_DIRECT reads, depth {depth}{suffix}"
        if bench.wanted(name):
            pairs = bench.alternate(lambda: workloads.random_read(ours["mount"], depth, 1),
                                    lambda: workloads.random_read(peer["mount"], depth, 1))
            bench.row(name, "1/s", NULL, 0.8, COLD, pairs)


class Repeated:
    """What is done again and again on what does not change: each method is one turn, and says how many things it
    did."""

    def __init__(self, mount: pathlib.Path, origin: pathlib.Path):
        self.mount = mount
        programs.clone(mount, origin)
        programs.make_project(mount)
        programs.build(mount)
        # Where the pages of one lie in memory makes a difference of a fifth, for as long as they are there.
        self.large = [workloads.make_file(mount, 16 * MIB, name=f"large{i}") for i in range(16)]
        self.known = sorted((mount / "clone").glob("file*"))

    def read(self) -> int:
        for path in self.large:
            workloads.read_through(path)
        return sum(path.stat().st_size for path in self.large)

    def stat(self) -> int:
        for _ in range(20):
            for path in self.known:
                path.stat()
        return 20 * len(self.known)

    def git_status(self) -> int:
        """Without the lock that git makes and removes each time, in case it has something to write."""
        programs.quietly(["git", "--no-optional-locks", "-C", self.mount / "clone", "status", "--porcelain"])
        return 1

    def git_status_lock(self) -> int:
        programs.quietly(["git", "-C", self.mount / "clone", "status", "--porcelain"])
        return 1

    def find(self) -> int:
        programs.quietly(["find", self.mount / "clone", "-type", "f", "-size", "+0"])
        return 1

    def make(self) -> int:
        programs.quietly(["make", "-C", self.mount / "project", "-q"])
        return 1

    def rate(self, what: str, seconds: float) -> float:
        """A second, after a turn that fills what can be filled."""
        job = getattr(self, what)
        job()
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            done += job()
        return done / (time.perf_counter() - start)


def cached(bench, suffix: str, ours, peer) -> None:
    rows = {"read": ("cached re-read", "B/s"), "stat": ("repeated stat", "1/s"), "git_status": ("git status", "1/s"),
            "git_status_lock": ("git status and its lock file", "1/s"), "find": ("repeated find", "1/s"),
            "make": ("second make", "1/s")}
    names = {what: f"ceiling, shm: {title}{suffix}" for what, (title, _) in rows.items()}
    if not any(bench.wanted(name) for name in names.values()):
        return
    with setups.scratch() as work:
        origin = programs.make_origin(work, 200, 20)
        mine, theirs = Repeated(ours["mount"], origin), Repeated(peer["mount"], origin)
        for what, name in names.items():
            if not bench.wanted(name):
                continue
            for _ in range(3):
                getattr(mine, what)()  # a listing is kept from the second time on
            spent = messages_of(bench, ours["mount"], lambda: mine.rate(what, 0.5))
            log(f"{name}: messages in half a second: {spent or 'none'}")
            most = None if what == "git_status_lock" else 0  # which changes something
            bench.figure(f"{name}, messages", "", sum(spent.values()), most)
            pairs = bench.alternate(lambda: mine.rate(what, 0.3), lambda: theirs.rate(what, 0.3))
            bench.row(name, rows[what][1], NULL, 0.95, WARM, pairs)


def messages_of(bench, mount: pathlib.Path, job) -> dict[str, int]:
    """Round trips of the mount while `job` runs for the second time: a lease that ran out before is none of its
    business."""
    job()
    before = setups.messages(bench.bin, mount)
    job()
    after = setups.messages(bench.bin, mount)
    return {operation: count - before.get(operation, 0) for operation, count in after.items()
            if count > before.get(operation, 0)}


def wire(bench) -> None:
    """Over tcp: the mount beside a TCP connection, or four, that carry nothing but bytes. And, without a goal, null_fs
    beside the same: what FUSE alone leaves of the wire on these processors, where nothing travels."""
    size = (128 if bench.arguments.quick else 1024) * MIB
    for cpus in ({0, 1}, {0}):
        suffix = ", one CPU" if len(cpus) == 1 else ""
        rows = [(f"sequential {what}, {streams} stream{'s' if streams > 1 else ''}{suffix}", job, streams)
                for streams in (1, 4) for what, job in (("read", read_streams), ("write, fsync", write_streams))]
        for prefix, goal, mount in (
                ("ceiling, tcp", 0.8, lambda: setups.rdfs_mount(bench.bin, "tcp", bench.READ_AHEAD_KIB)),
                ("ceiling, null_fs beside iperf3", None, lambda: setups.null_mount(bench.READ_AHEAD_KIB))):
            wanted = [(f"{prefix}: {name}", job, streams) for name, job, streams in rows
                      if bench.wanted(f"{prefix}: {name}")]
            if not wanted:
                continue
            with setups.pinned(cpus), setups.scratch() as work, mount() as ours:
                file = pipes.zeros(work / "zeros", size)
                both = pipes.Streams(bench.bin / "tools/pipe", file, min(cpus), max(cpus))
                for name, job, streams in wanted:
                    pairs = bench.alternate(lambda: job(ours["mount"], streams, size), lambda: both.iperf3(streams))
                    bench.row(name, "B/s", "iperf3", goal, COLD, pairs)


def server_cpu(bench, name: str, transport: str, address: str = "127.0.0.1") -> None:
    """Milliseconds of rdfsd for each GiB that a client reads which has the grants, and the file open: opening and
    closing it is two messages, of which rdfsd has some 0.1 ms each."""
    if not bench.wanted(name):
        return
    size = 32 * MIB
    with setups.rdfs_mount(bench.bin, transport, bench.READ_AHEAD_KIB, address) as ours:
        path = workloads.make_file(ours["mount"], size)

        buffer = bytearray(MIB)

        def read(times: int) -> None:
            with open(path, "rb", buffering=0) as file:
                for _ in range(times):
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    file.seek(0)
                    while file.readinto(buffer):
                        pass
        # What was written a moment ago rdfsd loads once more, in case it is being written.
        end = time.monotonic() + 3
        while time.monotonic() < end:
            read(2)
        times = 64 if bench.arguments.quick else 256
        server = ours["pids"][:1]
        before = workloads.run_seconds(server)
        read(times)
        used = workloads.run_seconds(server) - before
        bench.figure(name, "ms/GiB", 1000 * used * 1024 * MIB / (times * size), 1.0)


def run(bench) -> None:
    for cpus in ({0, 1}, {0}):
        suffix = ", one CPU" if len(cpus) == 1 else ""
        if not bench.wanted("ceiling, shm: "):
            continue
        with setups.pinned(cpus), setups.rdfs_mount(bench.bin, "shm", bench.READ_AHEAD_KIB) as ours, \
                setups.null_mount(bench.READ_AHEAD_KIB) as peer:
            throughput(bench, suffix, ours, peer)
            cached(bench, suffix, ours, peer)
    wire(bench)
    server_cpu(bench, "ceiling, shm: CPU of rdfsd per GiB read with grants held", "shm")
