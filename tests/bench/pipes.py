"""Streams of one size between two processes: rdsend and rdrecv, and what they are compared with. Each method of
Streams runs one transfer and returns bytes a second, from the start of the first process to the end of the last."""

import json
import pathlib
import resource
import socket
import subprocess
import time

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

    def plain_pipe(self) -> float:
        """Two processes and 1 MiB at a time, as much as a pipe takes."""
        return self.through_pipe(f"dd if={self.file} bs=1M status=none", "dd bs=1M status=none")

    def cat_pipe(self) -> float:
        return self.through_pipe(f"cat {self.file}", "cat")

    def nc(self) -> float:
        port = free_port()
        return self.through_port(f"nc -l 127.0.0.1 {port} >/dev/null", f"nc -N 127.0.0.1 {port} <{self.file}", port)

    def socat(self) -> float:
        port = free_port()
        return self.through_port(f"socat -u -b 1048576 TCP-LISTEN:{port},bind=127.0.0.1 - >/dev/null",
                                 f"socat -u -b 1048576 - TCP:127.0.0.1:{port} <{self.file}", port)

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


def costs(bench, transports, size: int, address: str = "127.0.0.1") -> None:
    """User, system and wall time of a file, against rsync of the same. To be told, without a goal."""
    kinds = ("user", "system", "wall")
    names = {(transport, kind): f"pipe, {transport}: {kind} time of {size // MIB} MiB, file to file"
             for transport in transports for kind in kinds}
    if not any(bench.wanted(name) for name in names.values()):
        return
    with scratch() as work:
        files = FileToFile(bench.bin / "tools/pipe", work, size, address)
        for transport in transports:
            pairs = bench.alternate(lambda: files.ours(transport), files.rsync)
            for i, kind in enumerate(kinds):
                # Rates, so that more is better here as well; a hundredth of a second is what the kernel counts.
                rates = [(1 / max(mine[i], 0.01), 1 / max(theirs[i], 0.01)) for mine, theirs in pairs]
                if bench.wanted(names[transport, kind]):
                    bench.row(names[transport, kind], "1/s", "rsync", None, "page cache warm", rates)


def sizes(bench) -> None:
    """Bandwidth against the size of what travels at once: one piece at a time, and several under way."""
    quick = bench.arguments.quick
    ways = {"one at a time": 1, "four under way": 4}
    curves = {}
    with scratch() as work:
        for transport in ("shm", "tcp"):
            for way, pieces in ways.items():
                name = f"pipe, {transport}: pieces of 4 KiB to 16 MiB, {way}"
                if not bench.wanted(name):
                    continue
                points = []
                for shift in range(12, 25, 2 if quick else 1):
                    # Small pieces take longer: as much of the file as makes a fraction of a second.
                    size = min((64 if quick else 512) * MIB, (1 << shift) * (4096 if quick else 32768))
                    both = Streams(bench.bin / "tools/pipe", zeros(work / "zeros", size), 0, 1)
                    options = f"--piece {1 << shift} --pieces {pieces}"
                    rates = sorted(both.ours(transport, options=options) for _ in range(1 if quick else 5))
                    points.append((1 << shift, rates[len(rates) // 2]))
                curves[f"{transport}, {way}"] = points
                bench.figure(f"{name}, the best", "B/s", max(rate for _, rate in points), None)
                log(f"{name}: " + ", ".join(f"{at >> 10} KiB {rate / 1e6:.0f} MB/s" for at, rate in points))
    if curves:
        bench.chart("pipe: pieces", "rdsend to rdrecv: size of a piece and bandwidth", "bytes", "B/s", curves)


def run(bench) -> None:
    streams(bench)
    costs(bench, ("shm", "tcp"), (128 if bench.arguments.quick else 2048) * MIB)
    sizes(bench)
