"""A TCP connection of two unmodified programs (talk.cc) under rdsock, and over the kernel's TCP: the same programs,
the same processors."""

import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent


class Talk:
    def __init__(self, rdsock: pathlib.Path, scratch: pathlib.Path, server_cpu: int, client_cpu: int, seconds: float):
        self.rdsock = [str(rdsock)]
        self.program = scratch / "talk"
        self.server_cpu = server_cpu
        self.client_cpu = client_cpu
        self.seconds = seconds
        if not self.program.exists():
            subprocess.run(["c++", "-O2", "-std=c++20", "-o", self.program, HERE / "talk.cc"], check=True)

    def run(self, what: str, shim: bool) -> float:
        """Round trips, or bytes, a second."""
        before = self.rdsock if shim else []

        def command(cpu, *arguments):
            return ["taskset", "-c", str(cpu), *before, str(self.program), *arguments]
        server = subprocess.Popen(command(self.server_cpu, "serve"), stdout=subprocess.PIPE, text=True)
        try:
            port = server.stdout.readline().strip()
            client = subprocess.run(command(self.client_cpu, what, port, str(self.seconds)), check=True, text=True,
                                    stdout=subprocess.PIPE)
            server.wait(30)
            return float(client.stdout)
        finally:
            server.stdout.close()
            if server.poll() is None:
                server.kill()
                server.wait()
