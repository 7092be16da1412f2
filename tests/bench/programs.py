"""Programs that people run on a file system, and trees of small files: a mount over shm beside passthrough_hp, one
over tcp beside sshfs."""

import contextlib
import os
import pathlib
import random
import sqlite3
import subprocess
import time

import setups
import workloads
from setups import process, wait_for
from sockets import POSTGRES_USER

NO_CACHE = ("--nocache",)  # with its cache, initdb fails: close(2) says EIO
CACHED = "client cold, server warm (tmpfs)"
GIT = ["git", "-c", "user.email=bench@example.invalid", "-c", "user.name=bench", "-c", "init.defaultBranch=main",
       "-c", "gc.auto=0", "-c", "maintenance.auto=false"]


def quietly(command: list, **options) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)


def timed(job) -> float:
    """Once a second."""
    start = time.perf_counter()
    job()
    return 1 / (time.perf_counter() - start)


def make_origin(work: pathlib.Path, files: int, changes: int) -> pathlib.Path:
    """A git repository with a history."""
    origin = work / "origin"
    quietly([*GIT, "init", "-q", origin])
    for i in range(files):
        (origin / f"file{i}").write_text(f"{i}\n" * 100)
    for change in range(changes):
        (origin / f"file{change % files}").write_text(f"changed {change}\n" * 100)
        quietly([*GIT, "-C", origin, "add", "."])
        quietly([*GIT, "-C", origin, "commit", "-qm", f"change {change}"])
    return origin


def clone(mount: pathlib.Path, origin: pathlib.Path) -> None:
    # By its protocol: a clone of a path would only copy files.
    quietly([*GIT, "clone", "-q", f"file://{origin}", mount / "clone"])


def make_project(mount: pathlib.Path, sources: int = 60) -> None:
    """A program in C of so many files."""
    project = mount / "project"
    project.mkdir()
    names = [f"f{i}" for i in range(sources)]
    (project / "all.h").write_text("".join(f"int {name}(void);\n" for name in names))
    for i, name in enumerate(names):
        (project / f"{name}.c").write_text(f'#include "all.h"\nint {name}(void) {{ return {i}; }}\n')
    calls = " + ".join(f"{name}()" for name in names)
    (project / "main.c").write_text(f'#include "all.h"\nint main(void) {{ return ({calls}) == 0; }}\n')
    (project / "Makefile").write_text("objects := $(patsubst %.c,%.o,$(wildcard *.c))\n"
                                      "program: $(objects)\n\tcc -o $@ $^\n%.o: %.c all.h\n\tcc -O1 -c $<\n")


def build(mount: pathlib.Path) -> None:
    quietly(["make", "-s", "-j4", "-C", mount / "project"])


def npm_tree(mount: pathlib.Path, count: int) -> None:
    """Small files as npm makes them: packages of some directories with some files each, of 100 to 4000 bytes."""
    sizes = random.Random(3)
    body = sizes.randbytes(4000)
    top = mount / "node_modules"
    top.mkdir()
    for i in range(0, count, 10):
        folder = top / f"package{i // 50}" / f"lib{i % 50}"
        folder.mkdir(parents=True)
        for name in range(min(10, count - i)):
            fd = os.open(folder / f"{name}.js", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
            os.write(fd, body[:sizes.randint(100, 4000)])
            os.close(fd)


def sqlite(mount: pathlib.Path, mode: str, count: int) -> float:
    """Transactions a second, each with its fsync."""
    path = mount / f"{mode}.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"pragma journal_mode={mode}")
        database.execute("create table t(a integer primary key, b text)")
        start = time.perf_counter()
        for i in range(count):
            database.execute("begin immediate")
            database.execute("insert into t(b) values(?)", (f"row {i}" * 10,))
            database.execute("commit")
        elapsed = time.perf_counter() - start
    for leftover in mount.glob(f"{mode}.db*"):
        leftover.unlink()
    return count / elapsed


TREES = ("a tree of small files", "rm -rf of it", "untar of /usr/include", "rm -rf of that", "git clone",
         "C build, make -j4")


def trees(mount: pathlib.Path, origin: pathlib.Path, tar: pathlib.Path, files: int, sources: int = 60) -> list[float]:
    """One turn of all that leaves a tree (TREES), and of removing it again."""
    directory = mount / "tree"
    made = [timed(lambda: npm_tree(mount, files)), timed(lambda: remove(mount / "node_modules")),
            workloads.untar(mount, tar), timed(lambda: remove(directory)), timed(lambda: clone(mount, origin))]
    make_project(mount, sources)
    made.append(timed(lambda: build(mount)))
    remove(mount / "clone")
    remove(mount / "project")
    return made


def remove(path: pathlib.Path) -> None:
    quietly(["rm", "-rf", path])


def tree_rows(bench, transport: str, peer_name: str, peer_mount, goal: float, files: int, cpus: set[int]) -> None:
    suffix = ", one CPU" if len(cpus) == 1 else ""
    rows = [(f"programs, {transport}: {title}{suffix}", "1/s", goal) for title in TREES]
    if not any(bench.wanted(name) for name, _, _ in rows):
        return
    with setups.pinned(cpus), setups.scratch() as work, \
            setups.rdfs_mount(bench.bin, transport, bench.READ_AHEAD_KIB) as ours, peer_mount() as peer:
        tar = work / "tree.tar"
        workloads.make_tar(tar, pathlib.Path("/usr/include"))
        origin = make_origin(work, 200, 20)
        bench.turns(rows, peer_name, CACHED, lambda: trees(ours["mount"], origin, tar, files),
                    lambda: trees(peer["mount"], origin, tar, files))


class Postgres:
    """A server whose data are on a mount."""

    def __init__(self, mount: pathlib.Path, socket: pathlib.Path):
        self.programs = max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
        self.data, self.socket = mount / "pg", socket

    @contextlib.contextmanager
    def serving(self):
        user = {"user": POSTGRES_USER, "cwd": "/"}
        quietly([self.programs / "initdb", "-D", self.data, "-A", "trust", "-U", "bench", "--no-instructions"], **user)
        command = [str(self.programs / "postgres"), "-D", str(self.data), "-c", "listen_addresses=", "-c",
                   f"unix_socket_directories={self.socket}"]
        with process(command, stderr=subprocess.DEVNULL, **user):
            fill = [self.programs / "pgbench", "-i", "-q", "-s", "1", *self.reach()]
            wait_for(lambda: subprocess.run(fill, capture_output=True).returncode == 0, 60, "pgbench -i")
            yield self

    def reach(self) -> list[str]:
        return ["-h", str(self.socket), "-U", "bench", "postgres"]

    def transactions(self, seconds: int) -> float:
        """A second, of pgbench's own mix, with four clients."""
        command = [self.programs / "pgbench", "-n", "-c", "4", "-T", str(seconds), *self.reach()]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return float(out.split("tps = ")[1].split()[0])


def databases(bench, cpus: set[int]) -> None:
    suffix = ", one CPU" if len(cpus) == 1 else ""
    names = {mode: f"programs, shm: sqlite, {mode}{suffix}" for mode in ("delete", "wal")}
    pgbench = f"programs, shm: pgbench{suffix}"
    if not any(bench.wanted(name) for name in [*names.values(), pgbench]):
        return
    count = 100 if bench.arguments.quick else 500
    ahead = bench.READ_AHEAD_KIB
    with setups.pinned(cpus), setups.rdfs_mount(bench.bin, "shm", ahead) as ours, \
            setups.passthrough_mount(ahead) as peer:
        for mode, name in names.items():
            if bench.wanted(name):
                pairs = bench.alternate(lambda: sqlite(ours["mount"], mode, count),
                                        lambda: sqlite(peer["mount"], mode, count))
                bench.row(name, "1/s", "passthrough_hp", 1.0, CACHED, pairs)
    if not bench.wanted(pgbench):
        return
    user = POSTGRES_USER if os.geteuid() == 0 else None
    with setups.pinned(cpus), setups.scratch() as work, \
            setups.rdfs_mount(bench.bin, "shm", ahead, user=user) as ours, \
            setups.passthrough_mount(ahead, user, NO_CACHE) as peer:
        sockets = setups.make_places(work, user, "ours", "peer")
        with Postgres(ours["mount"], sockets[0]).serving() as mine, \
                Postgres(peer["mount"], sockets[1]).serving() as theirs:
            seconds = 1 if bench.arguments.quick else 3
            pairs = bench.alternate(lambda: mine.transactions(seconds), lambda: theirs.transactions(seconds))
            bench.row(pgbench, "1/s", "passthrough_hp --nocache", 1.0, "client and server warm (tmpfs)", pairs)


def run(bench) -> None:
    quick = bench.arguments.quick
    for cpus in ({0, 1}, {0}):
        tree_rows(bench, "shm", "passthrough_hp", lambda: setups.passthrough_mount(bench.READ_AHEAD_KIB), 1.0,
                  2000 if quick else 50_000, cpus)
        databases(bench, cpus)
    # A tenth of it: sshfs takes a minute for all.
    tree_rows(bench, "tcp", "sshfs", lambda: setups.sshfs_mount(bench.READ_AHEAD_KIB), 5.0, 500 if quick else 5000,
              {0, 1})
