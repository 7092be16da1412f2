"""What is done on a mount. Each returns a rate: more is better. The client's page cache is emptied before
reads (posix_fadvise), so that they reach the file system; the server's memory is warm."""

import contextlib
import json
import os
import pathlib
import random
import subprocess
import tarfile
import time

MIB = 1 << 20


def forget(path: pathlib.Path) -> None:
    """Written out, and none of it in the client's cache any more."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def drop(path: pathlib.Path) -> None:
    """Its pages, from the client's cache."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def make_file(mount: pathlib.Path, size: int, name: str = "large") -> pathlib.Path:
    path = mount / name
    if not path.exists() or path.stat().st_size != size:
        with open(path, "wb") as file:
            block = random.Random(1).randbytes(MIB)
            for _ in range(size // MIB):
                file.write(block)
    return path


def read_through(path: pathlib.Path) -> float:
    """Seconds; bytes come into the same memory, a MiB at a time."""
    buffer = bytearray(MIB)
    fd = os.open(path, os.O_RDONLY)
    start = time.perf_counter()
    while os.readv(fd, [buffer]) > 0:
        pass
    elapsed = time.perf_counter() - start
    os.close(fd)
    return elapsed


def sequential_read(mount: pathlib.Path, size: int) -> float:
    path = make_file(mount, size)
    forget(path)
    return size / read_through(path)


def sequential_write(mount: pathlib.Path, size: int) -> float:
    """With its fsync."""
    path = mount / "written"
    block = random.Random(2).randbytes(MIB)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    start = time.perf_counter()
    for _ in range(size // MIB):
        os.write(fd, block)
    os.fsync(fd)
    elapsed = time.perf_counter() - start
    os.close(fd)
    os.unlink(path)
    return size / elapsed


def fio_reads(path: pathlib.Path, depth: int, seconds: float) -> dict:
    """What fio says of 4 KiB O_DIRECT reads at random places, so many under way."""
    engine = ["--ioengine=psync"] if depth == 1 else ["--ioengine=libaio", f"--iodepth={depth}"]
    percentiles = "--percentile_list=1:10:20:30:40:50:60:70:80:90:95:99:99.9"
    return fio("--rw=randread", "--bs=4k", "--direct=1", f"--runtime={seconds}", percentiles, *engine,
               "--name=read", f"--filename={path}")["read"]


def fio_reads_together(paths: list[pathlib.Path], seconds: float) -> float:
    """4 KiB O_DIRECT reads a second at random places of all these files, each by a thread of its own."""
    jobs = [option for path in paths for option in (f"--name={path}", f"--filename={path}")]
    return fio("--rw=randread", "--bs=4k", "--direct=1", f"--runtime={seconds}", "--ioengine=psync", "--thread",
               "--group_reporting", *jobs)["read"]["iops"]


def fio(*arguments: str) -> dict:
    """Its first job."""
    out = subprocess.run(["fio", "--time_based", "--output-format=json", *arguments], check=True, capture_output=True,
                         text=True).stdout
    return json.loads(out[out.index("{"):])["jobs"][0]


def random_read(mount: pathlib.Path, depth: int, seconds: float, name: str = "") -> float:
    """Reads a second; of a file that is there, if it is named."""
    return fio_reads(mount / name if name else make_file(mount, 256 * MIB), depth, seconds)["iops"]


def read_latencies(mount: pathlib.Path, seconds: float) -> dict[float, float]:
    """Microseconds within which that share of reads, in percent, is done, one read at a time."""
    found = fio_reads(make_file(mount, 64 * MIB), 1, seconds)["clat_ns"]["percentile"]
    return {float(share): nanoseconds / 1000 for share, nanoseconds in found.items()}


def small_files(mount: pathlib.Path, count: int) -> float:
    directory = mount / "small"
    directory.mkdir()
    start = time.perf_counter()
    for i in range(count):
        os.close(os.open(directory / f"{i}", os.O_CREAT | os.O_WRONLY))
    for i in range(count):
        os.stat(directory / f"{i}")
    for i in range(count):
        os.unlink(directory / f"{i}")
    elapsed = time.perf_counter() - start
    directory.rmdir()
    return 3 * count / elapsed


def make_tar(path: pathlib.Path, source: pathlib.Path, most: int = 3000) -> None:
    """Of the first directories and files of a source tree."""
    with tarfile.open(path, "w") as tar:
        for name in sorted(source.rglob("*"))[:most]:
            if (name.is_file() or name.is_dir()) and not name.is_symlink() and os.access(name, os.R_OK):
                tar.add(name, arcname=str(name.relative_to(source)), recursive=False)


def untar(mount: pathlib.Path, tar: pathlib.Path) -> float:
    directory = mount / "tree"
    directory.mkdir()
    start = time.perf_counter()
    # Without times: passthrough_hp cannot set them.
    subprocess.run(["tar", "-C", str(directory), "-xmf", str(tar)], check=True)
    elapsed = time.perf_counter() - start
    return 1 / elapsed


def find(mount: pathlib.Path) -> float:
    """Of the tree that untar left; removes it."""
    subprocess.run(["sync", "-f", str(mount)], check=False)
    start = time.perf_counter()
    subprocess.run(["find", str(mount / "tree"), "-type", "f", "-size", "+0"], check=True,
                   stdout=subprocess.DEVNULL)
    elapsed = time.perf_counter() - start
    subprocess.run(["rm", "-rf", str(mount / "tree")], check=True)
    return 1 / elapsed


def with_children(pids: list[int]) -> list[int]:
    """The processes and all that are theirs and alive."""
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # gone meanwhile
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
    found = list(pids)
    for pid in found:  # which grows
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def cpu_seconds(pids: list[int]) -> float:
    """utime + stime of the processes and their children that are alive, in ticks of 10 ms."""
    ticks = 0
    for pid in with_children(pids):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def run_seconds(pids: list[int]) -> float:
    """The same of their threads that are alive, by the scheduler, where the kernel tells."""
    tasks = [task for pid in with_children(pids) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    if not (tasks[0] / "schedstat").exists():
        return cpu_seconds(pids)
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident(pids: list[int]) -> int:
    """Bytes of memory that is theirs alone, of the processes and their children."""
    found = 0
    for pid in with_children(pids):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                found += 1024 * int(line.split()[1])
    return found
