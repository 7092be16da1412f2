"""The rows over verbs. They run where the RDMA device is: on this machine, or in the test bed's guest on
soft-iWARP (tests/rdma). The host's part boots it; the inside's part measures. So do rows that want more of a machine
than this one may give: descriptors, NFS."""

import json
import os
import pathlib
import subprocess
import tempfile

import ceiling
import curves
import far_sockets
import knobs
import latencies
import nfs
import perftest
import pipes
import setups
import workloads
from ratios import median
from setups import ROOT

MIB = 1 << 20
GUEST_USER = "tester"  # tests/rdma/boot
# Two CPUs for programs that poll; one for mounts, because a wake-up across CPUs costs the guest milliseconds.
PARTS = {"rdping": 2, "mount": 1, "pipe": 2, "costs": 2, "nfs": 1, "grants": 1, "handles": 1, "idle": 1,
         "latency": 1, "memlock": 1, "mtu": 1, "tcp": 1, "far": 1, "prefetch": 1, "lanes": 1, "sockets": 2}
# Of the guest, whose files may fill half of it: two of 2 GiB in this part. It takes from this machine what it has
# touched, about 5 GiB.
MEMORY = {"costs": "10G"}
USUAL_MEMORY = "3072M"
# Whose device is not this machine's, if it has one: what they set of the network is nobody else's there.
GUEST_ONLY = {"mtu": "rxe", "tcp": "siw", "far": "siw", "prefetch": "siw", "lanes": "siw", "sockets": "siw"}
NAMES = {"rdping": "rdping, verbs, two CPUs", "mount": "mount, verbs, one CPU", "pipe": "pipe, verbs", "nfs": "nfs, ",
         "grants": "ceiling, verbs: CPU of rdfsd per GiB read with grants held", "handles": "curve, handles",
         "idle": "idle rdfsd and rdfs, verbs, CPU in a minute", "latency": f"{latencies.NAME}, verbs",
         "memlock": knobs.MEMLOCK, "mtu": knobs.MTU, "tcp": knobs.TCP_WINDOW, "far": knobs.FAR_READ_AHEAD,
         "prefetch": knobs.FAR_PREFETCH, "lanes": knobs.FAR_LANES, "sockets": far_sockets.NAME}


def run(bench) -> None:
    for part, cpus in PARTS.items():
        if part == "handles" and curves.may_open(curves.DESCRIPTORS):
            continue  # curves.py
        if wanted(bench, part):
            bench.rows += boot(bench.arguments, bench.bin, part, cpus)


def wanted(bench, part: str) -> bool:
    names = pipes.cost_names(bench, "verbs") if part == "costs" else [NAMES[part]]
    return any(bench.wanted(name) for name in names)


def boot(arguments, bin_dir: pathlib.Path, part: str, cpus: int) -> list[dict]:
    """The rows of one part, measured inside."""
    memory = USUAL_MEMORY if arguments.quick else MEMORY.get(part, USUAL_MEMORY)
    with tempfile.TemporaryDirectory(prefix="rdfs-bench-") as work:
        command = [str(ROOT / "tests/rdma/run"), "--driver", GUEST_ONLY.get(part, "siw"), "--ncpus", str(cpus),
                   "--mem", memory, "--timeout", "3000", "--ro", str(bin_dir), "--rw", work, "--",
                   str(ROOT / "tests/bench/run"), "--bin", str(bin_dir), "--pairs", str(arguments.pairs),
                   *[f"--only={word}" for word in arguments.only], "--inside", part, "--json", f"{work}/rows"]
        if part == "sockets":
            command.insert(1, "--hosts")
        if arguments.quick:
            command.append("--quick")
        environment = {**os.environ, "RDFS_RDMA_REQUIRED": "1"}
        if part in GUEST_ONLY:
            environment["RDFS_RDMA"] = "guest"
        if part in ("mount", "latency"):
            environment["RDFS_BENCH_PASSTHROUGH"] = str(setups.build_passthrough_hp())
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        return json.loads(pathlib.Path(work, "rows").read_text())


def inside(bench, part: str) -> None:
    {"rdping": rdping, "mount": mount, "pipe": pipe, "costs": costs, "nfs": nfs.measure, "grants": grants,
     "handles": handles, "idle": idle, "latency": latency, "memlock": memlock, "mtu": mtu,
     "tcp": knobs.tcp_window, "far": knobs.far_read_ahead, "prefetch": knobs.far_prefetch, "lanes": knobs.far_lanes,
     "sockets": far_sockets.run}[part](bench)


def where() -> str:
    driver = os.environ["RDFS_RDMA_DRIVER"]
    return "on an RDMA device" if driver == "device" else f"in a User-Mode Linux guest with {driver}"


def ordinary_user() -> str | None:
    return GUEST_USER if os.geteuid() == 0 else None


def latency(bench) -> None:
    user, ahead, address = ordinary_user(), bench.READ_AHEAD_KIB, os.environ["RDFS_RDMA_ADDRESS"]
    mounts = {"rdfs, verbs": lambda: setups.rdfs_mount(bench.bin, "verbs", ahead, address, user),
              "passthrough_hp": lambda: setups.passthrough_mount(ahead, user)}
    latencies.side_by_side(bench, NAMES["latency"], f"{latencies.TITLE} (verbs)", mounts, user, where())


def memlock(bench) -> None:
    knobs.memlock(bench, os.environ["RDFS_RDMA_ADDRESS"], ordinary_user())


def mtu(bench) -> None:
    knobs.mtu(bench, os.environ["RDFS_RDMA_ADDRESS"])


def idle(bench) -> None:
    bench.idle(("verbs",), os.environ["RDFS_RDMA_ADDRESS"])


def grants(bench) -> None:
    ceiling.server_cpu(bench, NAMES["grants"], "verbs", os.environ["RDFS_RDMA_ADDRESS"])


def handles(bench) -> None:
    if not curves.may_open(curves.DESCRIPTORS):
        raise RuntimeError(f"no process may have {curves.DESCRIPTORS} descriptors in the guest")
    curves.handles(bench, " in the guest")


def rdping(bench) -> None:
    name = NAMES["rdping"]
    count = 100 if bench.arguments.quick else 300
    peers = {
        "READ": lambda: perftest.bandwidth("ib_read_bw", count, 0, 1),
        "WRITE": lambda: perftest.bandwidth("ib_write_bw", 2 * count, 0, 1),
        "message": lambda: perftest.round_trips(64, 10 * count, 0, 1),
    }
    pairs = {operation: [] for operation in peers}
    address = os.environ["RDFS_RDMA_ADDRESS"]
    with setups.rdping_server(bench.bin, 0, address) as port:
        def ours():
            rows = setups.rdping_rows(bench.bin, port, 1, "verbs", address)
            rates = {what: rows[("verbs", what)]["bandwidth"][0]["bytes_per_second"] for what in ("READ", "WRITE")}
            return {**rates, "message": 1e6 / rows[("verbs", "message")]["p50_us"]}
        def theirs():
            return {what: measure() for what, measure in peers.items()}
        ours()
        for i in range(bench.arguments.pairs):
            first, second = (ours, theirs) if i % 2 else (theirs, ours)
            a, b = first(), second()
            mine, peer = (a, b) if i % 2 else (b, a)
            for what in peers:
                pairs[what].append((mine[what], peer[what]))
    cached = "nothing to cache"
    bench.row(f"{name}: READ, 1 MiB", "B/s", "ib_read_bw", 0.95, cached, pairs["READ"])
    bench.row(f"{name}: WRITE, 1 MiB", "B/s", "ib_write_bw", 0.95, cached, pairs["WRITE"])
    # At most 1.15 times the time.
    bench.row(f"{name}: round trips, 64 bytes", "1/s", "ib_send_lat", round(1 / 1.15, 3), cached, pairs["message"])


def mount(bench) -> None:
    """Against whichever is slower, pair by pair: the wire (perftest) or FUSE alone (passthrough_hp). By an ordinary user,
    as rdfs is used: a server that is root rings a software device's doorbells by another thread (clerk.h)."""
    name = NAMES["mount"]
    user = ordinary_user()
    size = (64 if bench.arguments.quick else 256) * MIB
    address = os.environ["RDFS_RDMA_ADDRESS"]
    jobs = {
        "sequential read": (workloads.sequential_read, "ib_read_bw"),
        # ib_write_bw has no events, and its server would not notice a WRITE without polling.
        "sequential write, fsync": (workloads.sequential_write, "ib_send_bw"),
    }
    with setups.rdfs_mount(bench.bin, "verbs", bench.READ_AHEAD_KIB, address, user) as ours, \
            setups.passthrough_mount(bench.READ_AHEAD_KIB, user) as peer:
        for what, (job, program) in jobs.items():
            # Events (-e): two that poll on one CPU would wait for each other's time slices.
            wire, fuse = [], []
            def limit():
                wire.append(perftest.bandwidth(program, size // MIB, 0, 0, ("-e",)))
                fuse.append(setups.as_user(user, lambda: job(peer["mount"], size)))
                return min(wire[-1], fuse[-1])
            pairs = bench.alternate(lambda: setups.as_user(user, lambda: job(ours["mount"], size)), limit)
            bench.row(f"{name}: {what}", "B/s", f"the slower of {program} and passthrough_hp", 0.6,
                      "client cold, server warm (tmpfs)", pairs,
                      f"medians: {program} {median(wire) / 1e6:.0f} MB/s, passthrough_hp {median(fuse) / 1e6:.0f} MB/s")


def costs(bench) -> None:
    pipes.costs(bench, ("verbs",), os.environ["RDFS_RDMA_ADDRESS"])


def pipe(bench) -> None:
    """Zeros to /dev/null, from the start of the first program to the end of the last; perftest tells its own figure."""
    quick = bench.arguments.quick
    # Programs take a tenth of a second there until bytes flow.
    size = (128 if quick else 1024) * MIB
    address = os.environ["RDFS_RDMA_ADDRESS"]
    name = f"{NAMES['pipe']}: zeros to /dev/null, two CPUs"
    if bench.wanted(name):
        with setups.scratch() as work:
            streams = pipes.Streams(bench.bin / "tools/pipe", pipes.zeros(work / "zeros", size), 0, 1, address)
            pairs = bench.alternate(lambda: streams.ours("verbs"),
                                    lambda: perftest.bandwidth("ib_write_bw", size // MIB, 1, 0))
            bench.row(name, "B/s", "ib_write_bw", 0.9, "page cache warm", pairs)

    def ib_write_bw(streams: pipes.Streams, piece: int) -> float:
        return perftest.bandwidth("ib_write_bw", max(streams.size // piece, 5), 1, 0, size=piece)
    pipes.sizes(bench, ("verbs",), {"ib_write_bw": ib_write_bw}, 128 * MIB, "pipe: pieces, verbs",
                "rdsend to rdrecv over verbs beside ib_write_bw, by size of a piece", address, where())
