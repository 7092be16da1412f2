"""librdfs beside the mount: the same export, the same server, the same reads, without FUSE between them."""

import subprocess

import setups
import workloads
from setups import HERE, ROOT
from workloads import MIB

SECONDS = 1.0


def build(bench, work):
    program, folder = work / "reads", bench.bin / "fs/library"
    subprocess.run(["c++", "-O2", "-std=c++20", "-o", program, HERE / "reads.cc", f"-I{ROOT}/fs/library",
                    f"-L{folder}", "-lrdfs", f"-Wl,-rpath,{folder}"], check=True)
    return program


def run(bench):
    quick = bench.arguments.quick
    size = (128 if quick else 1024) * MIB
    for transport in ("shm", "tcp"):
        rows = {f"library, {transport}: random 4 KiB reads, depth {depth}": ("1/s", "random", depth)
                for depth in (1, 16)}
        rows[f"library, {transport}: sequential read"] = ("B/s", "sequential", 4)
        if not any(bench.wanted(name) for name in rows):
            continue
        with setups.pinned({0, 1}), setups.scratch() as work, \
                setups.rdfs_mount(bench.bin, transport, bench.READ_AHEAD_KIB) as mount:
            program = build(bench, work)
            random_file = workloads.make_file(mount["mount"], 256 * MIB)
            random_file.rename(mount["mount"] / "random")
            workloads.make_file(mount["mount"], size)
            for name, (unit, what, depth) in rows.items():
                if not bench.wanted(name):
                    continue

                def ours():
                    path = "random" if what == "random" else "large"
                    command = [program, mount["source"], f"require={transport}", path, what, str(depth), str(SECONDS)]
                    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

                def theirs():
                    if what == "random":
                        return workloads.random_read(mount["mount"], depth, SECONDS, "random")
                    return workloads.sequential_read(mount["mount"], size)
                bench.row(name, unit, "the mount", 1.0, "client cold, server warm (tmpfs)",
                          bench.alternate(ours, theirs))
