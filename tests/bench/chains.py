"""A stream to three receivers, of which each passes it on to the next, beside one to the first of them alone."""

import contextlib
import os
import pathlib
import subprocess
import time

import setups
from pipes import KEY, MIB, noise
from setups import Host, linked_hosts, log

HOPS = 3
LISTENING = "rdrecv: listening on port "
# Of 1 Gbit/s in either direction. The burst is more than the largest packet that TCP hands to a device, and nothing
# beside what travels.
SHAPE = "tbf rate 1gbit burst 256kb latency 50ms"


class Chain:
    """From the first of these hosts to the others, whose copies go to /dev/null."""

    def __init__(self, tools: pathlib.Path, file: pathlib.Path, transport: str, hosts: list[Host]):
        self.tools = tools
        self.file = file
        self.transport = transport
        self.sender, *self.receivers = hosts

    @contextlib.contextmanager
    def receiver(self, host: Host):
        """The process and where it listens."""
        command = [*host.inside, str(self.tools / "rdrecv"), "--listen", host.address, "--require", self.transport, "0",
                   KEY]
        with setups.process(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process, \
                process.stderr:
            said = process.stderr.readline()
            if not said.startswith(LISTENING):
                raise RuntimeError(f"rdrecv at {host.address}: {said}")
            yield process, f"{host.address}:{said.removeprefix(LISTENING).strip()}"

    def through(self, count: int) -> float:
        """Bytes a second through so many receivers, from the start of rdsend until the last of them has ended."""
        with contextlib.ExitStack() as stack, open(self.file, "rb") as source:
            receivers = [stack.enter_context(self.receiver(host)) for host in self.receivers[:count]]
            # The port is that of hosts without one.
            command = [*self.sender.inside, str(self.tools / "rdsend"), "--require", self.transport,
                       ",".join(name for _, name in receivers), "1", KEY]
            start = time.monotonic()
            subprocess.run(command, check=True, stdin=source)
            for process, name in receivers:
                if process.wait(60) != 0:
                    raise RuntimeError(f"rdrecv at {name}: {process.stderr.read()}")
            return self.file.stat().st_size / (time.monotonic() - start)


def measure(bench, name: str, transport: str, size: int, hosts: list[Host], goal: float | None, remark: str) -> None:
    with setups.pinned({0, 1}), setups.scratch() as work:
        chain = Chain(bench.bin / "tools/pipe", noise(work / "noise", size), transport, hosts)
        pairs = bench.alternate(lambda: chain.through(HOPS), lambda: chain.through(1))
        bench.row(name, "B/s", "one hop", goal, "page cache warm", pairs, remark)


def run(bench) -> None:
    quick = bench.arguments.quick
    name = "pipe, tcp: chain of three hops, links of 1 Gbit/s"
    if bench.wanted(name) and os.geteuid() == 0:
        with linked_hosts(HOPS + 1, SHAPE) as hosts:
            # A receiver that passes a stream on knows no --plaintext, so the sender is not told it either.
            measure(bench, name, "tcp", (64 if quick else 256) * MIB, hosts, 0.8,
                    "TLS on every hop: each namespace is a host of its own")
    elif bench.wanted(name):
        log(f"{name}: not here, network namespaces take root")
    for transport in ("shm", "tcp"):
        name = f"pipe, {transport}: chain of three hops, one machine"
        if bench.wanted(name):
            measure(bench, name, transport, (256 if quick else 1024) * MIB, [Host((), "127.0.0.1")] * (HOPS + 1), None,
                    "no TLS, and all of it on two processors")
