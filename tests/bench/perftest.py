"""perftest (ib_read_bw, ib_write_bw, ib_send_lat) between two processes on the RDMA device of this machine or
guest: what its kernel and its CPUs give. perftest's own defaults: it polls, keeps 128 requests under way, takes
one completion for 100 writes, and uses one buffer of the message's size."""

import os
import subprocess
import time

MIB = 1 << 20
ATTEMPTS = 5  # under load it prints 0.00, inf or nan now and then


def listening(port: int) -> bool:
    out = subprocess.run(["rdma", "resource", "show", "cm_id"], capture_output=True, text=True).stdout
    return any("LISTEN" in line and f":{port} " in line + " " for line in out.splitlines())


def columns(program: str, options: list[str], server_cpu: int, client_cpu: int) -> list[float]:
    """The figures of the client's last line."""
    address, port = os.environ["RDFS_RDMA_ADDRESS"], 18515
    command = ["timeout", "60", program, "-R", "-F", "-p", str(port), *options]
    for _ in range(ATTEMPTS):
        server = subprocess.Popen(["taskset", "-c", str(server_cpu), *command], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while not listening(port) and server.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        client = subprocess.run(["taskset", "-c", str(client_cpu), *command, address], capture_output=True,
                                text=True, stdin=subprocess.DEVNULL)
        if client.returncode != 0:
            server.terminate()
        server.wait()
        lines = [line.split() for line in client.stdout.splitlines() if line.strip()[:1].isdigit()]
        if client.returncode == 0 and lines and is_sound(lines[-1]):
            return [float(figure) for figure in lines[-1]]
    raise RuntimeError(f"{program} gave no figures in {ATTEMPTS} attempts:\n{client.stdout}{client.stderr}")


def is_sound(figures: list[str]) -> bool:
    try:
        return all(0 < float(figure) < 1e9 for figure in figures[:4])
    except ValueError:
        return False


def bandwidth(program: str, count: int, server_cpu: int, client_cpu: int, options=(), size: int = MIB) -> float:
    """Bytes a second, in messages of that size; perftest's MB are 2^20 bytes."""
    return MIB * columns(program, ["-s", str(size), "-n", str(count), *options], server_cpu, client_cpu)[3]


def round_trips(size: int, count: int, server_cpu: int, client_cpu: int) -> float:
    """A second, from the median: ib_send_lat tells half of a round trip, in us."""
    figures = columns("ib_send_lat", ["-s", str(size), "-n", str(count)], server_cpu, client_cpu)
    return 1e6 / (2 * figures[4])
