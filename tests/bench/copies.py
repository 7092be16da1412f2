"""rdcp beside cp, rsync and scp: one large file, and many small ones; on this machine, and through an sshd of our own
to this machine. Every copy is made anew, onto nothing, from a source that the page cache has."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time

import setups
from workloads import MIB

FILES = 20000


@contextlib.contextmanager
def on_disk():
    """A directory where people have their files: no tmpfs, if TMPDIR is none."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="rdfs-bench-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def sshd():
    """Yields its ssh_config."""
    with setups.scratch() as keys:
        start = f". {setups.ROOT}/tests/e2e/private-sshd; private_sshd_start {keys}"
        subprocess.run(["bash", "-c", start], check=True)
        try:
            yield keys / "ssh_config"
        finally:
            os.kill(int((keys / "sshd.pid").read_text()), signal.SIGTERM)


def make_file(path: pathlib.Path, size: int) -> None:
    block = random.Random(1).randbytes(MIB)
    with open(path, "wb") as file:
        for _ in range(size // MIB):
            file.write(block)


def make_tree(path: pathlib.Path, count: int) -> None:
    """Files of 0 to 8 KiB, a hundred in a directory."""
    dice = random.Random(1)
    block = dice.randbytes(8192)
    for i in range(count):
        directory = path / f"{i // 100}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"file {i}").write_bytes(block[:dice.randrange(8193)])


class Copies:
    """What is copied lies at `work`/from, and is copied to `work`/to."""

    def __init__(self, rdcp: pathlib.Path, work: pathlib.Path, amount: int, config: pathlib.Path | None = None):
        self.source, self.target = work / "from", work / "to"
        self.amount = amount  # bytes or files: what a rate counts
        self.ssh = f"ssh -F {config}"
        self.config = config
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        self.far = f"{user}@localhost:{self.target}"
        self.rdcp = str(rdcp)

    def rate(self, command: list[str], login: float = 0) -> float:
        subprocess.run(["rm", "-rf", str(self.target)], check=True)
        os.sync()
        setups.wait_until_idle()
        start = time.perf_counter()
        subprocess.run(command, check=True)
        elapsed = time.perf_counter() - start - login
        return self.amount / max(elapsed, 1e-3)

    def local(self) -> float:
        return self.rate([self.rdcp, "-q", "-a", str(self.source), str(self.target)])

    def cp(self) -> float:
        return self.rate(["cp", "-a", str(self.source), str(self.target)])

    def login(self) -> float:
        """The time that a login takes and nothing else."""
        start = time.perf_counter()
        subprocess.run([*self.ssh.split(), self.far.split(":")[0], "true"], check=True, stdin=subprocess.DEVNULL)
        return time.perf_counter() - start

    def remote(self, less: bool) -> float:
        login = self.login() if less else 0
        return self.rate([self.rdcp, "-q", "-a", "-e", self.ssh, "--rdcp-path", self.rdcp, str(self.source), self.far],
                         login)

    def rsync(self, less: bool) -> float:
        # As they copy: what SRC is, and not into what is there.
        source = f"{self.source}/" if self.source.is_dir() else str(self.source)
        login = self.login() if less else 0
        return self.rate(["rsync", "-a", "--whole-file", "-e", self.ssh, source, self.far], login)

    def scp(self, less: bool) -> float:
        login = self.login() if less else 0
        return self.rate(["scp", "-q", "-r", "-p", "-F", str(self.config), str(self.source), self.far], login)


def run(bench) -> None:
    rdcp = bench.bin / "tools/copy/rdcp"
    quick = bench.arguments.quick
    size, count = (512 * MIB, 4000) if quick else (4096 * MIB, FILES)
    warm = "page cache warm, onto nothing, no fsync"
    for what, make, amount, unit, goal in (("one large file", make_file, size, "B/s", 1.0),
                                           ("small files", make_tree, count, "1/s", 0.9)):
        for place, where in (("disk", on_disk), ("tmpfs", setups.scratch)):
            name = f"copy: {what}, here, {place}"
            if not bench.wanted(name):
                continue
            with where() as work:
                make(work / "from", amount)
                copies = Copies(rdcp, work, amount)
                bench.row(name, unit, "cp -a", goal, warm, bench.alternate(copies.local, copies.cp))
    for what, make, amount, unit, goals in (("one large file", make_file, size, "B/s", (3.0, 3.0)),
                                            ("small files less login", make_tree, count, "1/s", (2.0, 10.0))):
        names = [f"copy: {what}, by ssh, {peer}" for peer in ("rsync", "scp")]
        if not any(bench.wanted(name) for name in names):
            continue
        less = "less" in what
        with setups.scratch() as work, sshd() as config:
            make(work / "from", amount)
            copies = Copies(rdcp, work, amount, config)
            for name, peer, goal in zip(names, (copies.rsync, copies.scp), goals):
                if bench.wanted(name):
                    pairs = bench.alternate(lambda: copies.remote(less), lambda: peer(less))
                    bench.row(name, unit, peer.__name__, goal, warm + " (tmpfs), to this host", pairs)
