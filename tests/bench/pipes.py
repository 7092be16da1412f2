"""Streams of one size between two processes: rdsend and rdrecv, and what they are compared with. Each method of
Streams runs one transfer and returns bytes a second, from the start of the first process to the end of the last."""

import pathlib
import socket
import subprocess
import time

from setups import wait_for

KEY = "bench"


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

    def __init__(self, tools: pathlib.Path, file: pathlib.Path, sender_cpu: int, receiver_cpu: int):
        self.tools = tools
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

    def ours(self, transport: str, piped: bool) -> float:
        port = free_port()
        receiver = f"{self.tools}/rdrecv --listen 127.0.0.1 --require {transport} {port} {KEY}"
        sender = f"{self.tools}/rdsend --plaintext --require {transport} 127.0.0.1 {port} {KEY}"
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
