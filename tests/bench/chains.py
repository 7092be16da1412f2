"""A stream to three receivers, of which each passes it on to the next, beside one to the first of them alone."""

import contextlib
import os
import pathlib
import subprocess
import time
from typing import NamedTuple

import setups
from pipes import KEY, MIB, noise
from setups import log

HOPS = 3
LISTENING = "rdrecv: listening on port "
# The burst is more than the largest packet that TCP hands to a device, and nothing beside what travels.
SHAPE = "tbf rate 1gbit burst 256kb latency 50ms"


class Host(NamedTuple):
    """What starts programs there, and at which address it listens for the host before it, if there is one."""
    inside: tuple[str, ...]
    address: str


@contextlib.contextmanager
def linked_hosts(count: int):
    """Networks in a row, each with a link of its own to the next: a host of a chain talks to its neighbours only."""
    with contextlib.ExitStack() as stack:
        names = [f"rdfs-bench-{os.getpid()}-{i}" for i in range(count)]
        hosts = [Host(stack.enter_context(setups.network(name)), f"10.78.{i}.2") for i, name in enumerate(names)]
        for i in range(1, count):
            link(names[i - 1], names[i], i)
        yield hosts


def link(before: str, behind: str, number: int) -> None:
    """Of 1 Gbit/s in either direction."""
    subprocess.run(["ip", "link", "add", "next", "netns", before, "type", "veth", "peer", "name", "before", "netns",
                    behind], check=True)
    for network, device, last in ((before, "next", 1), (behind, "before", 2)):
        for command in (f"ip address add 10.78.{number}.{last}/24 dev {device}", f"ip link set {device} up",
                        f"tc qdisc add dev {device} root {SHAPE}"):
            subprocess.run([*setups.in_network(network), *command.split()], check=True)


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
        with linked_hosts(HOPS + 1) as hosts:
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
