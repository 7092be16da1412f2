"""What each setting is worth: the same mount with it and without, the same work in turn. docs/tuning.md says which
ones there are, and quotes these rows."""

import concurrent.futures
import contextlib
import os
import pathlib
import time

import setups
import workloads
from setups import log
from workloads import MIB

HUGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")


@contextlib.contextmanager
def mount(bench, options="", server="", read_ahead_kib=None):
    """With these of rdfs's -o and these lines of rdfsd's configuration."""
    with setups.scratch() as work, open(work / "log", "w") as output:
        backing, place = setups.make_places(work, None, "export", "mnt")
        with setups.rdfsd(bench.bin, backing, limits=server) as (_, source):
            client = [str(bench.bin / "fs/fuse/rdfs"), source, str(place), "-o", options, "-f"]
            with setups.mounted(client, place, output, read_ahead_kib or bench.READ_AHEAD_KIB):
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


def run(bench):
    quick = bench.arguments.quick
    size = (128 if quick else 1024) * MIB
    sequential = lambda place: workloads.sequential_read(place, size)
    tcp = "require=tcp,plaintext"
    rows = [
        ("read_ahead 128 KiB, shm: sequential read", "B/s", sequential, "1024 KiB",
         dict(options="require=shm", read_ahead_kib=128), dict(options="require=shm")),
        ("read_ahead 4096 KiB, shm: sequential read", "B/s", sequential, "1024 KiB",
         dict(options="require=shm", read_ahead_kib=4096), dict(options="require=shm")),
        ("read_ahead 128 KiB, tcp: sequential read", "B/s", sequential, "1024 KiB",
         dict(options=tcp, read_ahead_kib=128), dict(options=tcp)),
        ("read_ahead 4096 KiB, tcp: sequential read", "B/s", sequential, "1024 KiB",
         dict(options=tcp, read_ahead_kib=4096), dict(options=tcp)),
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
    for what, unit, job, peer, with_it, without in rows:
        name = f"knobs: {what}"
        if bench.wanted(name):
            with setups.pinned({0, 1}), mount(bench, **with_it) as ours, mount(bench, **without) as theirs:
                pairs = bench.alternate(lambda: job(ours), lambda: job(theirs))
            bench.row(name, unit, peer, None, "client cold, server warm (tmpfs)", pairs)
    name = "knobs: huge pages, shm: sequential read"
    if bench.wanted(name) and HUGE_PAGES.exists() and os.geteuid() == 0:
        with setups.pinned({0, 1}), contextlib.ExitStack() as stack:
            with huge_pages("advise"):
                ours = stack.enter_context(mount(bench, options="require=shm"))
                sequential(ours)
            with huge_pages("never"):
                theirs = stack.enter_context(mount(bench, options="require=shm"))
                sequential(theirs)
            pairs = bench.alternate(lambda: sequential(ours), lambda: sequential(theirs))
        bench.row(name, "B/s", "4 KiB pages", None, "client cold, server warm (tmpfs)", pairs)
    elif bench.wanted(name):
        log(f"{name}: not here, it takes root and {HUGE_PAGES}")
