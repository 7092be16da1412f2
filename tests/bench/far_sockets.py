"""talk.cc between two hosts that are paired, under rdsock, whose carriers take the bytes over verbs: beside the
kernel's TCP, and beside rsocket on the same devices. The hosts are those of the test bed's guest, `a` which serves on
the first processor and `b` on the second; a carrier runs where its program does."""

import os
import pathlib
import re
import secrets
import subprocess

import setups
from setups import log, process
from sockets import talk_program

NAME = "sockets, verbs"
# What rdma-core has for programs of TCP, beside librdmacm.
RSOCKET = "rsocket/librspreload.so"
ATTEMPTS = 3  # a slow guest may keep the ends from meeting in time, whoever they are
CARRIER_PORT = 7340


class Hosts:
    def __init__(self, bench, work: pathlib.Path):
        self.rdsock = str(bench.bin / "tools/sock/rdsock")
        self.work = work
        self.seconds = 0.5 if bench.arguments.quick else 2.0
        self.addresses = {host: os.environ[f"RDFS_HOST_{host.upper()}"] for host in "ab"}
        key = secrets.token_hex(32)
        for host, other in ("ab", "ba"):
            pairs = work / host / ".config/rdsock/pairs"
            pairs.parent.mkdir(parents=True)
            pairs.touch(0o600)
            pairs.write_text(f"rdsock-pairs 1\nlisten {CARRIER_PORT} {self.addresses[host]}\nover verbs\n"
                             f"pair guest {key} {CARRIER_PORT} {self.addresses[other]}\n")

    def on(self, host: str, *command: str) -> list[str]:
        return [*setups.in_network(host), "env", f"HOME={self.work / host}", "taskset", "-c", str("ab".index(host)),
                *command]

    def once(self, what: str, server: list[str], client: list[str]) -> tuple[float, str]:
        """Round trips, or bytes, a second; and what is around the client has said. Either end is started by these."""
        talk, address = talk_program(self.work), self.addresses["a"]
        with process(self.on("a", *server, talk, "serve", address), stdout=subprocess.PIPE, text=True) as serving, \
                serving.stdout:
            port = serving.stdout.readline().strip()
            run = subprocess.run(self.on("b", *client, talk, what, port, str(self.seconds), address), text=True,
                                 capture_output=True, timeout=60)
            if run.returncode != 0:
                raise RuntimeError(f"{' '.join(run.args)}: {run.stderr}")
            serving.wait(30)
            return float(run.stdout), run.stderr

    def run(self, what: str, server: list[str], client: list[str], valid=lambda rate, said: True) -> float:
        for _ in range(ATTEMPTS):
            try:
                rate, said = self.once(what, server, client)
                if valid(rate, said):
                    return rate
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                said = error
            log(f"a run of {' '.join([*client, 'talk', what])} counts for nothing: {said}")
        raise RuntimeError(f"talk {what} failed {ATTEMPTS} times")

    def tcp(self, what: str) -> float:
        return self.run(what, [], [])

    def ours(self, what: str) -> float:
        """With nearly all of it over verbs."""
        def carried(rate: float, said: str) -> bool:
            sent = int(re.search(r"on upgraded ones (\d+) bytes sent", said).group(1))
            return "lead to other hosts" in said and sent > 0.9 * rate * self.seconds * (64 if what == "echo" else 1)
        return self.run(what, [self.rdsock], [self.rdsock, "--stats"], carried)

    def rsocket(self, library: str, what: str) -> float:
        around = ["env", f"LD_PRELOAD={library}"]
        return self.run(what, around, around)


def run(bench) -> None:
    library = next((str(path) for pattern in (f"lib/*/{RSOCKET}", f"lib64/{RSOCKET}")
                    for path in pathlib.Path("/usr").glob(pattern)), None)
    with setups.scratch() as work:
        hosts = Hosts(bench, work)
        peers = {"kernel TCP": hosts.tcp}
        if library is not None:
            peers["rsocket"] = lambda what: hosts.rsocket(library, what)
        for what, how, unit in (("ping-pong of 64 bytes", "echo", "1/s"), ("stream of 1 MiB writes", "stream", "B/s")):
            for peer, theirs in peers.items():
                name = f"{NAME}: {what}, two hosts, beside {peer}"
                if bench.wanted(name):
                    pairs = bench.alternate(lambda: hosts.ours(how), lambda: theirs(how))
                    bench.row(name, unit, peer, 1.0, "nothing to cache", pairs)
