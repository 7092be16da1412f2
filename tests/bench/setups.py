"""What is measured: file systems mounted side by side, and rdping. Each is a context manager that leaves
nothing behind."""

import contextlib
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def wait_for(condition, seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: nothing after {seconds} s")
        time.sleep(0.02)


def busy_ticks() -> int:
    """Of all processors since the machine began, the kernel's own threads among them; what a guest's host took is not."""
    user, nice, system, _, _, hard, soft = map(int, open("/proc/stat").readline().split()[1:8])
    return user + nice + system + hard + soft


def wait_until_idle(seconds: float = 20) -> None:
    """Until the kernel is done with what was removed or freed before (blocks trimmed, pages given back to a host), which
    would take a processor from a program that uses several. Goes on after so many seconds in any case."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = busy_ticks()
        time.sleep(0.5)
        if busy_ticks() - before <= 10:
            return


def device_of(path: pathlib.Path) -> str | None:
    """major:minor of what is mounted there; not by looking at it, which another user's mount forbids root too."""
    lines = (line.split() for line in open("/proc/self/mountinfo"))
    return next((words[2] for words in lines if words[4] == str(path)), None)


def is_mounted(path: pathlib.Path) -> bool:
    return device_of(path) is not None


@contextlib.contextmanager
def scratch():
    """A directory on tmpfs: what is behind every mount here."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="rdfs-bench-", dir="/dev/shm"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def pinned(cpus: set[int]):
    """This process and all that it starts meanwhile: programs, servers and what is done on them."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def in_network(name: str) -> tuple[str, ...]:
    """What starts a program in that network namespace, and in our own view of the file systems: what it mounts is
    seen here."""
    return "nsenter", f"--net=/run/netns/{name}"


@contextlib.contextmanager
def network(name: str, settings: str = ""):
    """A network namespace of that name, for root: what starts programs in it. The settings are a script that is run in
    it."""
    inside = in_network(name)
    try:
        subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run([*inside, "bash", "-ec", f"ip link set lo up; {settings}"], check=True)
        yield inside
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


class Host(NamedTuple):
    """What starts programs there, and at which address it listens for the host before it, if there is one."""
    inside: tuple[str, ...]
    address: str


@contextlib.contextmanager
def linked_hosts(count: int, shape: str):
    """Networks in a row, each with a link of its own to the next, shaped by that queueing discipline (tc(8)) in either
    direction: a host talks to its neighbours only."""
    with contextlib.ExitStack() as stack:
        names = [f"rdfs-bench-{os.getpid()}-{i}" for i in range(count)]
        hosts = [Host(stack.enter_context(network(name)), f"10.78.{i}.2") for i, name in enumerate(names)]
        for i in range(1, count):
            link(names[i - 1], names[i], i, shape)
        yield hosts


def link(before: str, behind: str, number: int, shape: str) -> None:
    subprocess.run(["ip", "link", "add", "next", "netns", before, "type", "veth", "peer", "name", "before", "netns",
                    behind], check=True)
    for name, device, last in ((before, "next", 1), (behind, "before", 2)):
        for command in (f"ip address add 10.78.{number}.{last}/24 dev {device}", f"ip link set {device} up",
                        f"tc qdisc add dev {device} root {shape}"):
            subprocess.run([*in_network(name), *command.split()], check=True)


@contextlib.contextmanager
def process(command: list[str], **options):
    child = subprocess.Popen(command, **{"stdin": subprocess.DEVNULL, **options})
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def unmount(path: pathlib.Path) -> None:
    for _ in range(50):
        if not is_mounted(path):
            return
        subprocess.run(["fusermount3", "-u", str(path)], stderr=subprocess.DEVNULL)
        time.sleep(0.05)
    subprocess.run(["fusermount3", "-uz", str(path)])


def set_read_ahead(path: pathlib.Path, kib: int) -> None:
    """The same for every file system that is compared; only root may. (rdfs is told to leave it alone.)"""
    knob = pathlib.Path(f"/sys/class/bdi/{device_of(path)}/read_ahead_kb")
    if knob.exists() and os.geteuid() == 0:
        knob.write_text(str(kib))


@contextlib.contextmanager
def mounted(command: list[str], mount: pathlib.Path, output, read_ahead_kib: int, user: str | None = None):
    """The program that `command` starts in the foreground, which mounts on `mount`."""
    with process(command, stdout=output, stderr=output, user=user) as fuse:
        wait_for(lambda: is_mounted(mount), 20, command[0])
        # The kernel answers once FUSE_INIT is done, which sets it back.
        as_user(user, lambda: mount.stat().st_ino)
        set_read_ahead(mount, read_ahead_kib)
        try:
            yield fuse
        finally:
            unmount(mount)


@contextlib.contextmanager
def client(servers: list[int], command: list[str], mount: pathlib.Path, *arguments):
    """As `mounted`, and with "anew" to end it and mount again: of what was done before, only the server knows then."""
    with contextlib.ExitStack() as stack:
        side = {"mount": mount}

        def anew():
            stack.close()
            side["pids"] = [*servers, stack.enter_context(mounted(command, mount, *arguments)).pid]
        side["anew"] = anew
        anew()
        yield side


def make_places(work: pathlib.Path, user: str | None, *names: str) -> list[pathlib.Path]:
    """Directories of that user's, whom PostgreSQL for one wants not to be root."""
    work.chmod(0o755)
    places = [work / name for name in names]
    for place in places:
        place.mkdir()
        if user is not None:
            shutil.chown(place, user)
    return places


def as_user(user: str | None, job):
    """What the job returns, as JSON has it, done by a process of that user's: a mount of his is nobody else's."""
    if user is None:
        return job()
    result, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(*[pwd.getpwnam(user).pw_uid] * 3)  # as `process`: the group is looked at, too
            os.write(said, json.dumps(job()).encode())
            os._exit(0)
        except BaseException as error:
            log(f"as {user}: {error!r}")
            os._exit(1)
    os.close(said)
    with os.fdopen(result) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(f"a measurement as {user} failed")
    return json.loads(told)


@contextlib.contextmanager
def rdfsd(bin_dir: pathlib.Path, backing: pathlib.Path, address: str = "127.0.0.1", user: str | None = None,
          before: tuple[str, ...] = (), limits: str = ""):
    """The server of a directory: its process, and what to mount. `before` starts it elsewhere; `limits` are lines of
    its configuration."""
    with scratch() as work, open(work / "log", "w") as output:
        work.chmod(0o755)
        (work / "config").write_text(limits)
        config = ["--config", str(work / "config")] if limits else []
        trusted = ",trusted" if os.geteuid() == 0 and user is None else ""
        command = [*before, str(bin_dir / "server/rdfsd"), *config, "--export", f"bench={backing}{trusted}",
                   "--listen", address, "--port", "0", "--no-auth", "-f"]
        with process(command, stdout=output, stderr=output, user=user) as daemon:
            ready = lambda: "ready on port" in (work / "log").read_text()
            wait_for(ready, 20, "rdfsd")
            port = (work / "log").read_text().split("ready on port ")[1].split()[0]
            yield daemon, f"rdfs://{address}:{port}/bench"


@contextlib.contextmanager
def rdfs_mount(bin_dir: pathlib.Path, transport: str, read_ahead_kib: int, address: str = "127.0.0.1",
               user: str | None = None, limits: str = ""):
    with scratch() as work, open(work / "log", "w") as output:
        backing, mount = make_places(work, user, "export", "mnt")
        with rdfsd(bin_dir, backing, address, user, limits=limits) as (daemon, source):
            command = [str(bin_dir / "fs/fuse/rdfs"), source, str(mount), "-o", f"require={transport},read_ahead=0", "-f"]
            with client([daemon.pid], command, mount, output, read_ahead_kib, user) as side:
                side["source"] = source
                yield side


def messages(bin_dir: pathlib.Path, mount: pathlib.Path) -> dict[str, int]:
    """Round trips of a mount so far, by operation."""
    command = [str(bin_dir / "fs/fuse/rdfs"), "stats", "--json", str(mount)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out)["figures"].get("round_trips", {})


@contextlib.contextmanager
def null_mount(read_ahead_kib: int):
    """FUSE alone (null_fs.cc), which believes for ever what it has said."""
    with scratch() as work, open(work / "log", "w") as output:
        program, mount = work / "null_fs", work / "mnt"
        mount.mkdir()
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True,
                               text=True).stdout.split()
        subprocess.run(["c++", "-O2", "-std=c++20", "-o", program, HERE / "null_fs.cc", *flags], check=True)
        with mounted([str(program), str(mount), "ever"], mount, output, read_ahead_kib) as fuse:
            yield {"mount": mount, "pids": [fuse.pid]}


def build_passthrough_hp() -> pathlib.Path:
    """libfuse's own example, from the distribution's source package, as it is but for the writeback cache, which it
    asks for whenever it caches anything: we answer for each write, and it is to do the same."""
    if "RDFS_BENCH_PASSTHROUGH" in os.environ:
        return pathlib.Path(os.environ["RDFS_BENCH_PASSTHROUGH"])
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "rdfs"
    program = cache / "passthrough_hp-writes-through"
    if program.exists():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    with scratch() as work:
        subprocess.run([str(HERE / "fetch-source"), "fuse3", str(work)], check=True)
        source = next(work.glob("*/example/passthrough_hp.cc"))
        text = source.read_text()
        asks = "conn->want |= FUSE_CAP_WRITEBACK_CACHE"
        if text.count(asks) != 1:
            raise RuntimeError("this passthrough_hp.cc asks for the writeback cache in another way than 3.14's")
        source.write_text(text.replace(asks, "(void)conn"))
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], check=True,
                               capture_output=True, text=True).stdout.split()
        subprocess.run(["g++", "-O2", "-std=c++17", "-D_FILE_OFFSET_BITS=64",
                        f"-I{source.parent}", f"-I{source.parent.parent / 'include'}", str(source), "-o",
                        str(program), *flags, "-lpthread"], check=True)
    return program


@contextlib.contextmanager
def passthrough_mount(read_ahead_kib: int, user: str | None = None, options: tuple[str, ...] = ()):
    program = build_passthrough_hp()
    with scratch() as work, open(work / "log", "w") as output:
        backing, mount = make_places(work, user, "export", "mnt")
        if user is not None:  # who need not be able to enter the cache
            program = shutil.copy(program, work / "passthrough_hp")
        command = [str(program), "--foreground", *options, str(backing), str(mount)]
        with mounted(command, mount, output, read_ahead_kib, user) as fuse:
            yield {"mount": mount, "pids": [fuse.pid]}


@contextlib.contextmanager
def sshd(backing: pathlib.Path):
    """A server of our own: what mounts that directory of its on a place."""
    with scratch() as keys:
        start = f". {ROOT}/tests/e2e/private-sshd; private_sshd_start {keys}"
        subprocess.run(["bash", "-c", start], check=True)
        pid = int((keys / "sshd.pid").read_text())
        user = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
        try:
            command = ["sshfs", "-f", "-F", str(keys / "ssh_config"), f"{user}@localhost:{backing}"]
            yield lambda mount: [*command, str(mount)]
        finally:
            os.kill(pid, signal.SIGTERM)


@contextlib.contextmanager
def sshfs_mount(read_ahead_kib: int):
    with scratch() as work, open(work / "log", "w") as output:
        backing, mount = make_places(work, None, "export", "mnt")
        with sshd(backing) as command, client([], command(mount), mount, output, read_ahead_kib) as side:
            yield side


@contextlib.contextmanager
def rdping_server(bin_dir: pathlib.Path, cpu: int, address: str = "127.0.0.1"):
    with scratch() as work, open(work / "log", "w") as output:
        command = ["taskset", "-c", str(cpu), str(bin_dir / "tools/rdping/rdping"), "server", "0", "--listen",
                   address]
        with process(command, stdout=output, stderr=output):
            wait_for(lambda: "rdping client" in (work / "log").read_text(), 20, "rdping server")
            yield int((work / "log").read_text().split(f"rdping client {address} ")[1].split()[0])


def rdping_rows(bin_dir: pathlib.Path, port: int, cpu: int, transport: str, address: str = "127.0.0.1") -> dict:
    """One run of the client: kernel TCP first, then the transport. (transport, operation) -> row."""
    command = ["taskset", "-c", str(cpu), str(bin_dir / "tools/rdping/rdping"), "client", address, str(port),
               "--json", "--seconds", "0.2", "--sizes", "1048576", "--require", transport]
    for _ in range(3):
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode == 0:
            return {(row["transport"], row["operation"]): row for row in json.loads(run.stdout)["rows"]}
        log(f"a run of rdping counts for nothing: {run.stderr.strip()}")
    raise RuntimeError("rdping failed three times")
