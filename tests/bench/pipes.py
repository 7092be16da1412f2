"""Streams of one size between two processes: rdsend and rdrecv, and what they are compared with. Each method of
Streams runs one transfer and returns bytes a second, from the start of the first process to the end of the last."""

import json
import pathlib
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable

import ratios
import setups
from setups import log, scratch, wait_for

KEY = "bench"
MIB = 1 << 20


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def listens(port: int) -> bool:
    """Without connecting, which would take the place of the one sender."""
    wanted = f":{port:04X} "
    return any(wanted in line.split("rem")[0] and " 0A " in line
               for table in ("/proc/net/tcp", "/proc/net/tcp6") for line in open(table))


class Streams:
    """Everything of the sending side runs on one processor, everything of the receiving side on another, or on
    the same."""

    def __init__(self, tools: pathlib.Path, file: pathlib.Path, sender_cpu: int, receiver_cpu: int,
                 address: str = "127.0.0.1"):
        self.tools = tools
        self.address = address
        self.file = file
        self.size = file.stat().st_size
        self.sender_cpu = sender_cpu
        self.receiver_cpu = receiver_cpu

    @staticmethod
    def shell(cpu: int, script: str) -> list[str]:
        return ["taskset", "-c", str(cpu), "bash", "-o", "pipefail", "-c", script]

    def through_pipe(self, sender: str, receiver: str) -> float:
        start = time.monotonic()
        script = f"taskset -c {self.sender_cpu} {sender} | taskset -c {self.receiver_cpu} {receiver} >/dev/null"
        subprocess.run(["bash", "-o", "pipefail", "-c", script], check=True)
        return self.size / (time.monotonic() - start)

    def through_port(self, receiver: str, sender: str, port: int) -> float:
        """`receiver` listens before the clock starts."""
        process = subprocess.Popen(self.shell(self.receiver_cpu, receiver))
        try:
            wait_for(lambda: listens(port), 10, receiver)
            start = time.monotonic()
            subprocess.run(self.shell(self.sender_cpu, sender), check=True)
            if process.wait(60) != 0:
                raise RuntimeError(f"{receiver}: failed")
            return self.size / (time.monotonic() - start)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def ours(self, transport: str, piped: bool = False, options: str = "") -> float:
        """`options` are rdrecv's."""
        port = free_port()
        receiver = f"{self.tools}/rdrecv --listen {self.address} --require {transport} {options} {port} {KEY}"
        sender = f"{self.tools}/rdsend --plaintext --require {transport} {self.address} {port} {KEY}"
        if piped:
            return self.through_port(f"{receiver} | cat >/dev/null", f"cat {self.file} | {sender}", port)
        return self.through_port(f"{receiver} >/dev/null", f"{sender} <{self.file}", port)

    def zeros(self, transport: str, seconds: float = 1.0) -> float:
        """/dev/zero to /dev/null until rdsend is interrupted, as rdrecv tells it: as iperf3, which makes up what it
        sends, tells itself."""
        port = free_port()
        receiver = ["taskset", "-c", str(self.receiver_cpu), f"{self.tools}/rdrecv", "-v", "--listen", self.address,
                    "--require", transport, str(port), KEY]
        sender = ["taskset", "-c", str(self.sender_cpu), f"{self.tools}/rdsend", "-q", "--plaintext", "--require",
                  transport, self.address, str(port), KEY]
        with setups.process(receiver, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as listening:
            wait_for(lambda: listens(port), 10, "rdrecv")
            with open("/dev/zero", "rb") as source, \
                    setups.process(sender, stdin=source, stderr=subprocess.DEVNULL) as sending:
                time.sleep(seconds)
                sending.send_signal(signal.SIGINT)
                sending.wait(10)
            said = listening.communicate(timeout=20)[1]
        told = re.search(r"\(([0-9.]+) ([kMG])B/s\)", said)
        if told is None or "interrupted by SIGINT" not in said:
            raise RuntimeError(f"rdrecv: {said}")
        return float(told.group(1)) * {"k": 1e3, "M": 1e6, "G": 1e9}[told.group(2)]

    def plain_pipe(self, block: int = MIB) -> float:
        """Two processes and so much at a time, of what a pipe takes."""
        return self.through_pipe(f"dd if={self.file} bs={block} status=none", f"dd bs={block} status=none")

    def cat_pipe(self) -> float:
        return self.through_pipe(f"cat {self.file}", "cat")

    def nc(self) -> float:
        port = free_port()
        return self.through_port(f"nc -l 127.0.0.1 {port} >/dev/null", f"nc -N 127.0.0.1 {port} <{self.file}", port)

    def socat(self, block: int = MIB) -> float:
        port = free_port()
        return self.through_port(f"socat -u -b {block} TCP-LISTEN:{port},bind=127.0.0.1 - >/dev/null",
                                 f"socat -u -b {block} - TCP:127.0.0.1:{port} <{self.file}", port)

    def iperf3(self, streams: int = 1) -> float:
        """As it tells itself: it has words to say before and after, and a file is not its business."""
        port = free_port()
        server = ["taskset", "-c", str(self.receiver_cpu), "iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", str(port)]
        client = ["taskset", "-c", str(self.sender_cpu), "iperf3", "-c", "127.0.0.1", "-p", str(port), "-l",
                  str(MIB), "-n", str(self.size), "-P", str(streams), "-J"]
        process = subprocess.Popen(server, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: listens(port), 10, "iperf3")
            run = subprocess.run(client, check=True, capture_output=True, text=True)
            process.wait(60)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return json.loads(run.stdout)["end"]["sum_received"]["bits_per_second"] / 8


def noise(path: pathlib.Path, size: int) -> pathlib.Path:
    with open("/dev/urandom", "rb") as source, open(path, "wb") as out:
        for _ in range(size // MIB):
            out.write(source.read(MIB))
    return path


def zeros(path: pathlib.Path, size: int) -> pathlib.Path:
    """Written, and no holes, of which nothing would travel."""
    with open(path, "wb") as out:
        for _ in range(size // MIB):
            out.write(bytes(MIB))
    return path


# Bytes a second in pieces of so many bytes.
Measure = Callable[[Streams, int], float]


class FileToFile:
    """A file to another one, whole: seconds of (user, system, wall), of all processes together."""

    def __init__(self, tools: pathlib.Path, work: pathlib.Path, size: int, address: str = "127.0.0.1"):
        self.tools = tools
        self.source = noise(work / "from", size)
        self.target = work / "to"
        self.address = address

    def measured(self, job) -> tuple[float, float, float]:
        self.target.unlink(missing_ok=True)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        job()
        wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime, wall

    def ours(self, transport: str) -> tuple[float, float, float]:
        port = free_port()

        def copy():
            receiver = subprocess.Popen([self.tools / "rdrecv", "-q", "--listen", self.address, "--require", transport,
                                         str(port), KEY, self.target])
            try:
                subprocess.run([self.tools / "rdsend", "-q", "--plaintext", "--require", transport, self.address,
                                str(port), KEY, self.source], check=True)
                if receiver.wait(60) != 0:
                    raise RuntimeError("rdrecv failed")
            finally:
                if receiver.poll() is None:
                    receiver.kill()
                    receiver.wait()
        return self.measured(copy)

    def rsync(self) -> tuple[float, float, float]:
        return self.measured(lambda: subprocess.run(["rsync", "--whole-file", "--fsync", self.source, self.target],
                                                    check=True))


def streams(bench) -> None:
    """rdsend and rdrecv: a file on tmpfs to /dev/null, and between two pipes."""
    size = (256 if bench.arguments.quick else 1024) * MIB
    tools = bench.bin / "tools/pipe"
    peers = [("shm", False, "a plain pipe", "plain_pipe", 2.0), ("shm", True, "cat | cat", "cat_pipe", 0.9),
             ("tcp", False, "nc", "nc", 1.0), ("tcp", False, "socat", "socat", 1.0),
             ("tcp", False, "iperf3", "iperf3", 0.9)]
    rows = []
    for placement, cpus in (("two CPUs", (0, 1)), ("one CPU", (0, 0))):
        for transport, piped, peer_name, peer, goal in peers:
            what = "stdin and stdout as pipes" if piped else "file to /dev/null"
            name = f"pipe, {transport}: {what}, {placement}, {peer_name}"
            if bench.wanted(name):
                rows.append((name, cpus, transport, piped, peer_name, peer, goal))
    if not rows:
        return
    with scratch() as work:
        file = noise(work / "noise", size)
        for name, cpus, transport, piped, peer_name, peer, goal in rows:
            both = Streams(tools, file, *cpus)
            pairs = bench.alternate(lambda: both.ours(transport, piped), getattr(both, peer))
            bench.row(name, "B/s", peer_name, goal, "page cache warm", pairs)


def zeros_alone(bench) -> None:
    """/dev/zero to /dev/null, where no file is read: what is left is the wire and two checksums."""
    for placement, cpus in (("two CPUs", (0, 1)), ("one CPU", (0, 0))):
        name = f"pipe, tcp: zeros to /dev/null, {placement}, iperf3"
        if not bench.wanted(name):
            continue
        with scratch() as work:
            both = Streams(bench.bin / "tools/pipe", zeros(work / "zeros", cost_size(bench)), *cpus)
            pairs = bench.alternate(lambda: both.zeros("tcp"), both.iperf3)
            bench.row(name, "B/s", "iperf3", 0.9, "nothing to cache", pairs)


def cost_size(bench) -> int:
    return (128 if bench.arguments.quick else 2048) * MIB


def cost_names(bench, transport: str) -> list[str]:
    """In the order of what FileToFile measures."""
    return [f"pipe, {transport}: {kind} time of {cost_size(bench) // MIB} MiB, file to file"
            for kind in ("user", "system", "wall")]


def costs(bench, transports, address: str = "127.0.0.1") -> None:
    """User, system and wall time of a file, against rsync of the same. To be told, without a goal."""
    names = {transport: cost_names(bench, transport) for transport in transports}
    if not any(bench.wanted(name) for of_one in names.values() for name in of_one):
        return
    with scratch() as work:
        files = FileToFile(bench.bin / "tools/pipe", work, cost_size(bench), address)
        for transport in transports:
            pairs = bench.alternate(lambda: files.ours(transport), files.rsync)
            # User-Mode Linux counts every tick as its kernel's.
            told = any(used[0] for pair in pairs for used in pair)
            remarks = ["", "" if told else "user time is in it, which this kernel does not tell", ""]
            for i, (name, remark) in enumerate(zip(names[transport], remarks)):
                # Rates, so that more is better here as well; a hundredth of a second is what the kernel counts.
                rates = [(1 / max(mine[i], 0.01), 1 / max(theirs[i], 0.01)) for mine, theirs in pairs]
                if not bench.wanted(name):
                    continue
                if i == 0 and not told:
                    log(f"{name}: not here, this kernel counts it as system time")
                    continue
                bench.row(name, "1/s", "rsync", None, "page cache warm", rates, remark)


def ours_by_size(bench, transports) -> dict[str, tuple[str, Measure]]:
    """Row and measurement of each curve that is wanted."""
    found = {}
    for transport in transports:
        for way, pieces in (("one at a time", 1), ("four under way", 4)):
            name = f"pipe, {transport}: pieces of 4 KiB to 16 MiB, {way}"
            if bench.wanted(name):
                def measure(streams, size, transport=transport, pieces=pieces):
                    return streams.ours(transport, options=f"--piece {size} --pieces {pieces}")
                found[f"{transport}, {way}"] = (name, measure)
    return found


def sizes(bench, transports, peers: dict[str, Measure], most: int, chart: str, title: str,
          address: str = "127.0.0.1", where: str = "") -> None:
    """Bandwidth against the size of what travels at once: of ours one piece at a time and several under way, and of the
    peers, all in turn, `most` bytes each time. A chart of that name."""
    quick = bench.arguments.quick
    ours = ours_by_size(bench, transports)
    if not ours:
        return
    ways = {what: measure for what, (_, measure) in ours.items()} | peers
    curves = {what: [] for what in ways}
    with scratch() as work:
        for shift in range(12, 25, 2 if quick else 1):
            # Pieces below 16 KiB take longer: as many of them as of those, and fewer bytes.
            whole = min(1, (1 << shift) / (16 << 10)) * (64 * MIB if quick else most)
            streams = Streams(bench.bin / "tools/pipe", zeros(work / "zeros", int(whole)), 0, 1, address)
            rounds = [{what: measure(streams, 1 << shift) for what, measure in ways.items()}
                      for _ in range(1 if quick else 5)]
            for what, points in curves.items():
                points.append((1 << shift, ratios.median([rates[what] for rates in rounds])))
    for what, points in curves.items():
        log(f"{what}: " + ", ".join(f"{at >> 10} KiB {rate / 1e6:.0f} MB/s" for at, rate in points))
    for what, (name, _) in ours.items():
        bench.figure(f"{name}, the best", "B/s", max(rate for _, rate in curves[what]), None)
    bench.chart(chart, title, "bytes", "B/s", curves, where)


def run(bench) -> None:
    streams(bench)
    zeros_alone(bench)
    costs(bench, ("shm", "tcp"))
    sizes(bench, ("shm", "tcp"), {"a plain pipe (dd)": Streams.plain_pipe, "TCP (socat)": Streams.socat}, 512 * MIB,
          "pipe: pieces", "rdsend to rdrecv beside a pipe and TCP, by size of a piece")
