"""Streams of one size between two processes: rdsend and rdrecv, and what they are compared with. Each function
runs one transfer and returns bytes a second, from the start of the first process to the end of the last."""

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


def timed(shell: str, size: int) -> float:
    start = time.monotonic()
    subprocess.run(["bash", "-o", "pipefail", "-c", shell], check=True)
    return size / (time.monotonic() - start)


def with_receiver(receiver: str, sender: str, port: int, size: int) -> float:
    """`receiver` listens before the clock starts."""
    process = subprocess.Popen(["bash", "-o", "pipefail", "-c", receiver])
    try:
        wait_for(lambda: listens(port), 10, receiver)
        start = time.monotonic()
        subprocess.run(["bash", "-o", "pipefail", "-c", sender], check=True)
        if process.wait(60) != 0:
            raise RuntimeError(f"{receiver}: failed")
        return size / (time.monotonic() - start)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def ours(tools: pathlib.Path, transport: str, file: pathlib.Path, piped: bool) -> float:
    port = free_port()
    receiver = f"{tools}/rdrecv --listen 127.0.0.1 --require {transport} {port} {KEY}"
    sender = f"{tools}/rdsend --plaintext --require {transport} 127.0.0.1 {port} {KEY}"
    if piped:
        return with_receiver(f"{receiver} | cat >/dev/null", f"cat {file} | {sender}", port, file.stat().st_size)
    return with_receiver(f"{receiver} >/dev/null", f"{sender} <{file}", port, file.stat().st_size)


def plain_pipe(file: pathlib.Path) -> float:
    """Two processes and 1 MiB at a time, as much as a pipe takes."""
    return timed(f"dd if={file} bs=1M status=none | dd of=/dev/null bs=1M status=none", file.stat().st_size)


def cat_pipe(file: pathlib.Path) -> float:
    return timed(f"cat {file} | cat >/dev/null", file.stat().st_size)


def nc(file: pathlib.Path) -> float:
    port = free_port()
    return with_receiver(f"nc -l 127.0.0.1 {port} >/dev/null", f"nc -N 127.0.0.1 {port} <{file}", port,
                         file.stat().st_size)


def socat(file: pathlib.Path) -> float:
    port = free_port()
    return with_receiver(f"socat -u -b 1048576 TCP-LISTEN:{port},bind=127.0.0.1 - >/dev/null",
                         f"socat -u -b 1048576 - TCP:127.0.0.1:{port} <{file}", port, file.stat().st_size)
