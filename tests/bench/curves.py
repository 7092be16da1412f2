"""What an operation costs while something grows: a tree, the files that a client has open, the clients of a server.
Every curve is microseconds an operation against size, with the memory that each thing takes beside it; what it grew
by from the smallest to the largest size is a row. Over shm, on tmpfs. What all clients of a server get together is
measured of the peers, too."""

import contextlib
import mmap
import os
import pathlib
import random
import resource
import time
from collections.abc import Callable

import programs
import ratios
import setups
import workloads
from setups import log

FLAT = 2.0  # times the time at the smallest size: what noise and caches of the processor explain
LEASE_SECONDS = 5.5  # after that everything has to be asked again
A_FOLDER = 1000  # files
A_FEW = 10  # folders
BATCHES = 20
DESCRIPTORS = 1 << 19  # of which rdfsd gives a quarter to the files of one client
LIMITS = "[limits]\nopen_files = 131072\n"


def batches(things: list) -> list[list]:
    size = max(1, len(things) // BATCHES)
    return [things[at:at + size] for at in range(0, len(things) - size + 1, size)]


def spent(job, things: list) -> float:
    """Microseconds of job(thing)."""
    start = time.perf_counter()
    for thing in things:
        job(thing)
    return 1e6 * (time.perf_counter() - start) / len(things)


def cost(job, things: list) -> float:
    """The median of some batches."""
    return ratios.median([spent(job, batch) for batch in batches(things)])


class Curves:
    """Points by operation, and what they end as."""

    def __init__(self, bench, name: str, title: str):
        self.bench, self.name, self.title = bench, name, title
        self.costs: dict[str, list[tuple[float, float]]] = {}
        self.beside: dict[str, float] = {}

    def add(self, size: int, costs: dict[str, float], beside: dict[str, float] | None = None) -> None:
        """`beside`: times what it takes at the smallest size, measured in turn with it; else what the first one took
        counts."""
        self.beside = beside or {}
        for what, microseconds in costs.items():
            self.costs.setdefault(what, []).append((size, microseconds))
        log(f"{self.name}, {size}: " + ", ".join(f"{what} {cost:.0f} us" for what, cost in costs.items()))
        if beside:
            log("  beside the smallest: " + ", ".join(f"{what} {times:.2f}" for what, times in beside.items()))

    def end(self) -> None:
        self.bench.chart(self.name, self.title, "count", "µs", self.costs)
        for what, points in self.costs.items():
            (first, before), (last, after) = points[0], points[-1]
            grown = self.beside.get(what, after / before)
            self.bench.figure(f"{self.name}: {what}, {last:,.0f} beside {first:,.0f}", "x", grown, FLAT)


def create(path: pathlib.Path, body: bytes = b"") -> None:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
    if body:
        os.write(fd, body)
    os.close(fd)


def read_whole(path: pathlib.Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.read(fd, 4096)
    os.close(fd)


class Tree:
    """Files in folders of a thousand, made in the order of their numbers."""

    def __init__(self, mount: pathlib.Path, body: bytes = b""):
        self.top = mount / "tree"
        self.top.mkdir()
        self.body = body
        self.made = 0
        self.random = random.Random(4)

    def path(self, i: int) -> pathlib.Path:
        return self.top / f"{i // A_FOLDER}" / f"file{i}"

    def grow(self, count: int) -> float:
        """Microseconds that each of the last ones took."""
        def add(i: int) -> None:
            if i % A_FOLDER == 0:
                (self.top / f"{i // A_FOLDER}").mkdir()
            create(self.path(i), self.body)
        new = range(self.made, count)
        measured = new[-A_FOLDER:]
        for i in new[:-len(measured)]:
            add(i)
        self.made = count
        return cost(add, list(measured))

    def some(self, count: int) -> list[pathlib.Path]:
        """Of a few folders, or those would cost more than the files."""
        folders = self.random.sample(range(self.made // A_FOLDER), A_FEW)
        files = [self.path(folder * A_FOLDER + i) for folder in folders for i in range(A_FOLDER)]
        return self.random.sample(files, count)

    def folders(self) -> list[pathlib.Path]:
        return [self.top / f"{i}" for i in range(self.made // A_FOLDER)]


def move(path: pathlib.Path) -> None:
    path.rename(path.with_suffix(".new")).rename(path)


def replace(path: pathlib.Path) -> None:
    path.unlink()
    create(path)


def walk(folder: pathlib.Path) -> None:
    programs.quietly(["find", folder, "-type", "f", "-size", "+0"])


def compare(large: Tree, small: Tree) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds of each operation on the large tree, and how many times that of the small one it is, in turn."""
    jobs = {"stat": (os.stat, lambda tree: tree.some(1000), 1),
            "open, read, close": (read_whole, lambda tree: tree.some(1000), 1),
            "list, an entry": (os.listdir, lambda tree: tree.random.sample(tree.folders(), A_FEW), A_FOLDER),
            "rename, twice": (move, lambda tree: tree.some(500), 1),
            "unlink, create": (replace, lambda tree: tree.some(500), 1),
            "walk with stat, a file": (walk, lambda tree: tree.random.sample(tree.folders(), A_FEW), A_FOLDER)}
    costs, beside = {}, {}
    for what, (job, some, each) in jobs.items():
        time.sleep(LEASE_SECONDS)
        pairs = [(spent(job, mine), spent(job, theirs))
                 for mine, theirs in zip(batches(some(large)), batches(some(small)))]
        costs[what] = ratios.median([mine for mine, _ in pairs]) / each
        beside[what] = ratios.median([mine / theirs for mine, theirs in pairs])
    return costs, beside


def tree(bench) -> None:
    name = "curve, tree"
    if not bench.wanted(name):
        return
    curves = Curves(bench, name, "files in the tree, and time of an operation")
    with setups.rdfs_mount(bench.bin, "shm", bench.READ_AHEAD_KIB) as ours, \
            setups.rdfs_mount(bench.bin, "shm", bench.READ_AHEAD_KIB) as control:
        server, client = ours["pids"]
        before = workloads.resident([client]), workloads.resident([server])
        files, small = Tree(ours["mount"]), Tree(control["mount"])
        small.grow(A_FEW * A_FOLDER)
        for count in bench.sizes(A_FEW * A_FOLDER, 100_000, 1_000_000):
            made = files.grow(count)
            costs, beside = compare(files, small)
            curves.add(count, {"create": made, **costs}, beside)
        memory = workloads.resident([client]) - before[0], workloads.resident([server]) - before[1]
        bench.figure(f"{name}: memory of rdfs for each of {count:,} files", "B", memory[0] / count, None)
        bench.figure(f"{name}: memory of rdfsd for each of {count:,} files", "B", memory[1] / count, None)
    curves.end()


def may_open(count: int) -> bool:
    """Whether this process, and what it starts, may have so many descriptors from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(count, hard)), hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), max(hard, count)))
    except (ValueError, OSError):
        pass
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= count


class Handles:
    """Files that stay open, each a file of its own or all the same one."""

    def __init__(self, mount: pathlib.Path, same: bool):
        self.mount, self.same = mount, same
        self.tree = Tree(mount, bytes(4096))
        self.open: list[int] = []
        self.page = mmap.mmap(-1, 4096)
        self.random = random.Random(5)

    def path(self, i: int) -> pathlib.Path:
        return self.tree.path(0 if self.same else i)

    def add(self, i: int) -> None:
        self.open.append(os.open(self.path(i), os.O_RDWR | os.O_DIRECT))

    def grow(self, count: int) -> float:
        new = range(len(self.open), count)
        for i in new[:-500]:
            self.add(i)
        return cost(self.add, list(new[-500:]))

    def reopen(self, at: int) -> None:
        os.close(self.open[at])
        self.open[at] = os.open(self.path(at), os.O_RDWR | os.O_DIRECT)

    def costs(self) -> dict[str, float]:
        some = self.random.sample(range(len(self.open)), min(1000, len(self.open)))
        return {"read 4 KiB": cost(lambda at: os.preadv(self.open[at], [self.page], 0), some),
                "close, open": cost(self.reopen, some)}

    def close(self) -> None:
        for fd in self.open:
            os.close(fd)


def handles(bench, where: str = "") -> None:
    """Here, or where a process may have that many descriptors (verbs.py)."""
    for same in (False, True):
        name = ("curve, handles of one file" if same else "curve, handles") + where
        if not bench.wanted(name):
            continue
        curves = Curves(bench, name, "open files of one client" + (", all the same one" if same else ""))
        with setups.rdfs_mount(bench.bin, "shm", bench.READ_AHEAD_KIB, limits=LIMITS) as ours:
            server, client = ours["pids"]
            opened = Handles(ours["mount"], same)
            try:
                for count in bench.sizes(1000, 10_000, 50_000, 100_000):
                    if not same or opened.tree.made == 0:
                        opened.tree.grow(count)
                    before = workloads.resident([client]), workloads.resident([server]), len(opened.open)
                    curves.add(count, {"open": opened.grow(count), **opened.costs()})
                for who, pid, then in (("rdfs", client, before[0]), ("rdfsd", server, before[1])):
                    bench.figure(f"{name}: memory of {who} for each open file", "B",
                                 (workloads.resident([pid]) - then) / (count - before[2]), None)
            finally:
                opened.close()
        curves.end()


class Clients:
    """Mounts of one directory, each with a folder of its own and a file that all look at. `command` is what mounts it
    on a place."""

    def __init__(self, bench, stack: contextlib.ExitStack, command: Callable[[pathlib.Path], list[str]]):
        self.bench, self.stack, self.command = bench, stack, command
        self.work = stack.enter_context(setups.scratch())
        self.mounts: list[pathlib.Path] = []
        self.pids: list[int] = []
        self.page = mmap.mmap(-1, 4096)

    def add(self) -> None:
        mount = self.work / f"mnt{len(self.mounts)}"
        mount.mkdir()
        output = self.stack.enter_context(open(self.work / "clients", "a"))
        fuse = self.stack.enter_context(setups.mounted(self.command(mount), mount, output, self.bench.READ_AHEAD_KIB))
        own = mount / f"own{len(self.mounts)}"
        own.mkdir()
        (own / "file").write_bytes(bytes(1 << 20))
        self.mounts.append(mount)
        self.pids.append(fuse.pid)

    def file(self, i: int) -> pathlib.Path:
        return self.mounts[i] / f"own{i}" / "file"

    def together(self, seconds: float) -> float:
        """Reads a second, of all at once."""
        return workloads.fio_reads_together([self.file(i) for i in range(len(self.mounts))], seconds)

    def recall(self, i: int) -> None:
        """One changes what all the others believe."""
        os.chmod(self.mounts[0] / "shared", 0o600 + i % 2)

    def costs(self) -> dict[str, float]:
        own = self.file(0).parent
        fd = os.open(self.file(0), os.O_RDONLY | os.O_DIRECT)
        found = {"read 4 KiB": cost(lambda _: os.preadv(fd, [self.page], 0), list(range(1000))),
                 "create, unlink": cost(lambda i: (create(own / f"{i}"), (own / f"{i}").unlink()), list(range(500)))}
        os.close(fd)
        if len(self.mounts) > 1:
            # What each of the others adds: a change that recalls is no operation of constant cost.
            (self.mounts[0] / "shared").touch()
            found["chmod of what all believe, for each"] = self.recalls() / (len(self.mounts) - 1)
        return found

    def recalls(self) -> float:
        times = []
        for i in range(10):
            for mount in self.mounts:
                os.stat(mount / "shared")
            times.append(cost(self.recall, [i]))
        return ratios.median(times)


def of_rdfs(bench, stack: contextlib.ExitStack, transport: str) -> tuple[int, Clients]:
    """The server's process, and mounts of it."""
    backing = stack.enter_context(setups.scratch())
    daemon, source = stack.enter_context(setups.rdfsd(bench.bin, backing))
    command = [str(bench.bin / "fs/fuse/rdfs"), source]
    return daemon.pid, Clients(bench, stack, lambda mount: [*command, str(mount), "-o", f"require={transport}", "-f"])


def of_peers(bench, stack: contextlib.ExitStack) -> dict[str, Clients]:
    """Each on a directory of its own. Mounts of passthrough_hp have no server: all they share is the directory."""
    directories = [stack.enter_context(setups.scratch()) for _ in range(2)]
    passthrough = str(setups.build_passthrough_hp())
    return {"passthrough_hp": Clients(bench, stack, lambda mount: [passthrough, "--foreground", str(directories[0]),
                                                                   str(mount)]),
            "sshfs": Clients(bench, stack, stack.enter_context(setups.sshd(directories[1])))}


def rates_together(bench, several: dict[str, Clients], count: int) -> dict[str, float]:
    """Reads a second of so many clients, of each kind in turn."""
    # Ours last: each of them looks at all mounts whenever one comes or goes (fs/fuse/command/mount_watch.h).
    for clients in reversed(several.values()):
        while len(clients.mounts) < count:
            clients.add()
    rounds = [{what: clients.together(1) for what, clients in several.items()}
              for _ in range(1 if bench.arguments.quick else 3)]
    found = {what: ratios.median([rates[what] for rates in rounds]) for what in several}
    log(f"{count} clients together: " + ", ".join(f"{what} {rate:.0f}/s" for what, rate in found.items()))
    return found


def clients(bench) -> None:
    name = "curve, clients"
    if not bench.wanted(name):
        return
    curves = Curves(bench, name, "mounts of one server, and time of an operation of one")
    memory = []
    may_open(1 << 14)
    with contextlib.ExitStack() as stack:
        server, ours = of_rdfs(bench, stack, "shm")
        several = {"rdfs, shm": ours, "rdfs, tcp": of_rdfs(bench, stack, "tcp")[1], **of_peers(bench, stack)}
        rates = {what: [] for what in several}
        for count in bench.sizes(1, 10, 50, 100, 200):
            for what, rate in rates_together(bench, several, count).items():
                rates[what].append((count, rate))
            curves.add(count, ours.costs())
            memory.append((count, workloads.resident([server]), workloads.resident(ours.pids)))
        (few, server_then, client_then), (many, server_now, client_now) = memory[0], memory[-1]
        bench.figure(f"{name}: memory of rdfsd for each", "B", (server_now - server_then) / (many - few), None)
        bench.figure(f"{name}: memory of each rdfs", "B", (client_now - client_then) / (many - few), None)
    curves.end()
    bench.chart("curve, clients: all at once", "4 KiB O_DIRECT reads a second of all clients, each in a MiB of its own",
                "count", "1/s", rates)


def run(bench) -> None:
    tree(bench)
    if may_open(DESCRIPTORS):
        handles(bench)
    clients(bench)
