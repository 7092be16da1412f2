"""How long single reads take, and how far they scatter: 4 KiB at random places past the client's page cache, one at a
time, on mounts side by side."""

import contextlib

import ratios
import setups
import workloads

NAME = "latency of 4 KiB O_DIRECT reads"
TITLE = "4 KiB O_DIRECT reads, one at a time: share that is done by then"
ROUNDS = 5


def side_by_side(bench, name: str, title: str, setups_of: dict, user: str | None = None, where: str = "") -> None:
    """`setups_of`: what mounts, by what it is called. A row for each, and a chart of that name."""
    seen: dict[str, list[dict[float, float]]] = {what: [] for what in setups_of}
    with contextlib.ExitStack() as stack:
        mounts = {what: stack.enter_context(mount())["mount"] for what, mount in setups_of.items()}
        for _ in range(2 if bench.arguments.quick else ROUNDS):
            for what, mount in mounts.items():
                found = setups.as_user(user, lambda: workloads.read_latencies(mount, 1))
                seen[what].append({float(share): microseconds for share, microseconds in found.items()})
    curves = {}
    for what, rounds in seen.items():
        curves[what] = [(ratios.median([found[share] for found in rounds]), share) for share in sorted(rounds[0])]
        at_half = next(time for time, share in curves[what] if share >= 50)
        bench.figure(f"{name}: half of them on {what} within", "us", at_half, None)
    bench.chart(name, title, "µs", "%", curves, where)


def run(bench) -> None:
    if not bench.wanted(NAME):
        return
    ahead = bench.READ_AHEAD_KIB
    with setups.pinned({0, 1}):
        side_by_side(bench, NAME, TITLE, {"rdfs, shm": lambda: setups.rdfs_mount(bench.bin, "shm", ahead),
                                          "null_fs": lambda: setups.null_mount(ahead),
                                          "passthrough_hp": lambda: setups.passthrough_mount(ahead),
                                          "rdfs, tcp": lambda: setups.rdfs_mount(bench.bin, "tcp", ahead),
                                          "sshfs": lambda: setups.sshfs_mount(ahead)})
