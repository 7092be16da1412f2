"""Unmodified programs under rdsock, and over the kernel's TCP: the same programs, the same processors. Simple ones of
our own (talk.cc), redis, PostgreSQL and nginx. Servers run on the first processor and clients on the second, or both
on one. far_sockets.py has those between hosts."""

import contextlib
import os
import pathlib
import re
import resource
import shutil
import subprocess
import time
from typing import NamedTuple

import setups
import workloads
from pipes import free_port, listens
from setups import log, process, wait_for

HERE = pathlib.Path(__file__).resolve().parent
POSTGRES_USER = "postgres"  # which is not to be root
PATH = os.environ["PATH"] + ":/usr/sbin"
# Of these it is measured, too, how long an answer may take: one over the time within which 99 of 100 came.
WAITS = ("redis, 50 connections", "nginx and wrk, 1 KiB", "nginx and wrk, 1 MiB")
PLACEMENTS = {"two CPUs": (0, 1), "one CPU": (0, 0)}


class Ends(NamedTuple):
    """Which of them are under rdsock."""
    server: bool
    client: bool


NEITHER, BOTH = Ends(False, False), Ends(True, True)
# To programs the other end is of no concern: with rdsock around one of them nothing may become slower.
ONE = {"server alone": Ends(True, False), "client alone": Ends(False, True)}


class Tcp:
    """The kernel's TCP, or rdsock around one end or both. `said` is what rdsock's --stats told of the last client."""

    said = ""

    def __init__(self, bench, work: pathlib.Path, cpus: tuple[int, int], environment: dict[str, str] | None = None):
        self.environment = {**os.environ, "PATH": PATH, **(environment or {})}
        self.rdsock = [str(bench.bin / "tools/sock/rdsock")]
        self.work = work
        self.server_cpu, self.client_cpu = cpus
        self.quick = bench.arguments.quick
        self.seconds = 0.3 if self.quick else 1.0

    @staticmethod
    def on(cpu: int, *command: str) -> list[str]:
        return ["taskset", "-c", str(cpu), *command]

    def serving(self, shim: bool, *command: str) -> list[str]:
        return self.on(self.server_cpu, *(self.rdsock if shim else []), *command)

    def ask(self, ends: Ends, *command: str) -> str:
        """What a client says; some of its connections have to have moved if both ends are under rdsock, else none."""
        before = [*self.rdsock, "--stats"] if ends.client else []
        run = subprocess.run(self.on(self.client_cpu, *before, *command), capture_output=True, text=True, timeout=120,
                             env=self.environment)
        if run.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {run.stderr}")
        moved = re.search(r"connections, [1-9]\d* upgraded", run.stderr) is not None
        if ends.client and moved != ends.server:
            what = "a connection was upgraded" if moved else "no connection was upgraded"
            raise RuntimeError(f"{' '.join(command)}: {what}: {run.stderr}")
        self.said = run.stderr
        return run.stdout


def talk_program(work: pathlib.Path) -> str:
    program = work / "talk"
    if not program.exists():
        subprocess.run(["c++", "-O2", "-std=c++20", "-o", program, HERE / "talk.cc"], check=True)
    return str(program)


class Talk(Tcp):
    """Connections of talk.cc; each run starts both ends."""

    @contextlib.contextmanager
    def server(self, shim: bool, *arguments: str):
        command = self.serving(shim, talk_program(self.work), *arguments)
        with process(command, stdout=subprocess.PIPE, text=True, env=self.environment) as server, server.stdout:
            yield server, server.stdout.readline().strip()

    def run(self, what: str, ends: Ends) -> float:
        """Round trips, or bytes, a second."""
        with self.server(ends.server, "serve") as (server, port):
            rate = float(self.ask(ends, talk_program(self.work), what, port, str(self.seconds)))
            server.wait(30)
            return rate

    def connect(self, ends: Ends) -> float:
        """Connections a second that carry nothing. None is upgraded, so nothing is asked about that."""
        before = self.rdsock if ends.client else []
        with self.server(ends.server, "accept") as (_, port):
            client = self.on(self.client_cpu, *before, talk_program(self.work), "connect", port,
                             "1000" if self.quick else "3000")
            return float(subprocess.run(client, check=True, capture_output=True, text=True).stdout)

    def idle(self, shim: bool, count: int, seconds: float) -> tuple[float, float]:
        """Bytes of memory that two processes with `count` connections between them have, and seconds of CPU that they
        use in `seconds` in which nothing is said."""
        limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 16 * count)

        def more_descriptors():
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        options = {"stdout": subprocess.PIPE, "text": True, "preexec_fn": more_descriptors}
        before = [*self.rdsock, "--stats"] if shim else []
        program = talk_program(self.work)
        said = self.work / "stats"
        with contextlib.ExitStack() as stack:
            server_command = self.on(self.server_cpu, *before, program, "keep", str(count))
            server = stack.enter_context(process(server_command, stderr=subprocess.DEVNULL, **options))
            port = stack.enter_context(server.stdout).readline().strip()
            client_command = self.on(self.client_cpu, *before, program, "open", port, str(count))
            stderr = stack.enter_context(open(said, "w"))
            client = stack.enter_context(process(client_command, stderr=stderr, **options))
            if stack.enter_context(client.stdout).readline().strip() != "open":
                raise RuntimeError(f"{count} connections could not be opened")
            pids = [server.pid, client.pid]
            cpu = workloads.cpu_seconds(pids)
            time.sleep(seconds)
            used = sum(proportional_memory(pid) for pid in pids), workloads.cpu_seconds(pids) - cpu
        if shim:
            upgraded = int(re.search(r"(\d+) upgraded", said.read_text()).group(1))
            if upgraded < 0.99 * count:
                raise RuntimeError(f"only {upgraded} of {count} connections were upgraded")
        return used


def proportional_memory(pid: int) -> float:
    """Bytes, of the process or of the one that `rdsock --stats` waits for; what two share counts half in each."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    text = pathlib.Path(f"/proc/{children[0] if children else pid}/smaps_rollup").read_text()
    return 1024 * float(re.search(r"^Pss:\s+(\d+) kB", text, re.M).group(1))


class Servers(Tcp):
    """Two servers of a kind, one under rdsock. Each method is a context manager; what it yields measures, with
    rdsock around these ends. `waited`: in the last measurement 99 of 100 answers came within so many seconds, where
    the client says so."""

    waited = 0.0

    @contextlib.contextmanager
    def both(self, start):
        """start(shim, port) is a context manager that runs a server."""
        ports = {False: free_port(), True: free_port()}
        with contextlib.ExitStack() as stack:
            for shim, port in ports.items():
                stack.enter_context(start(shim, port))
                wait_for(lambda: listens(port), 20, "a server")
            yield ports

    def quiet(self, shim: bool, *command: str):
        return process(self.serving(shim, *command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       env=self.environment)

    @contextlib.contextmanager
    def redis(self, options: list[str], requests: int):
        """GETs a second."""
        def start(shim, port):
            return self.quiet(shim, "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir",
                              str(self.work))
        with self.both(start) as ports:
            def measure(ends):
                out = self.ask(ends, "redis-benchmark", "-h", "127.0.0.1", "-p", str(ports[ends.server]), "-t", "get",
                               "--csv", "-n", str(requests // 5 if self.quick else requests), *options)
                rate, *_, waited, _ = re.search(r'^"GET",(.*)', out, re.M).group(1).replace('"', "").split(",")
                self.waited = float(waited) / 1e3
                return float(rate)
            yield measure

    @contextlib.contextmanager
    def postgres(self):
        """Transactions of pgbench -S a second."""
        programs = max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
        root = os.geteuid() == 0
        as_user = ["setpriv", "--reuid", POSTGRES_USER, "--regid", POSTGRES_USER, "--init-groups"] if root else []

        @contextlib.contextmanager
        def start(shim, port):
            data = self.work / f"postgres-{port}"
            data.mkdir()
            if root:
                shutil.chown(data, POSTGRES_USER, POSTGRES_USER)
                self.work.chmod(0o755)
            subprocess.run([*as_user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "bench",
                            "--no-sync", "--no-instructions"], check=True, stdout=subprocess.DEVNULL)
            command = [*as_user, str(programs / "postgres"), "-D", str(data), "-p", str(port), "-c", "fsync=off", "-c",
                       "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
            with self.quiet(shim, *command):
                wait_for(lambda: listens(port), 20, "postgres")
                wait_for(lambda: subprocess.run(["pgbench", "-i", "-q", "-s", "1", *reach(port)],
                                                capture_output=True).returncode == 0, 20, "pgbench -i")
                yield

        def reach(port):
            return ["-h", "127.0.0.1", "-p", str(port), "-U", "bench", "postgres"]
        with self.both(start) as ports:
            def measure(ends):
                out = self.ask(ends, "pgbench", "-n", "-S", "-c", "8", "-M", "prepared", "-T",
                               "1" if self.quick else "3", *reach(ports[ends.server]))
                return float(re.search(r"^tps = ([\d.]+)", out, re.M).group(1))
            yield measure

    @contextlib.contextmanager
    def nginx(self, size: int):
        """Requests of wrk a second, for a file of this size."""
        pages = self.work / "pages"
        pages.mkdir(exist_ok=True)
        (pages / "page").write_bytes(os.urandom(size))

        def start(shim, port):
            folder = self.work / f"nginx-{port}"
            folder.mkdir()
            temporary = " ".join(f"{what}_temp_path {folder};"
                                 for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            user = "user root;" if os.geteuid() == 0 else ""
            (folder / "conf").write_text(
                f"{user} daemon off; worker_processes 1; pid {folder}/pid; error_log stderr;"
                "events { worker_connections 256; }"
                f"http {{ access_log off; sendfile on; keepalive_requests 100000000; {temporary}"
                f"server {{ listen 127.0.0.1:{port}; root {pages}; }} }}\n")
            return self.quiet(shim, "nginx", "-p", str(folder), "-c", str(folder / "conf"))
        with self.both(start) as ports:
            def measure(ends):
                out = self.ask(ends, "wrk", "--latency", "-t", "1", "-c", "20", "-d", "1" if self.quick else "3",
                               f"http://127.0.0.1:{ports[ends.server]}/page")
                if "Non-2xx" in out or "Socket errors" in out:
                    raise RuntimeError(out)
                waited, unit = re.search(r"^\s+99%\s+([\d.]+)(us|ms|s)$", out, re.M).groups()
                self.waited = float(waited) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
                return float(re.search(r"^Requests/sec:\s+([\d.]+)", out, re.M).group(1))
            yield measure


@contextlib.contextmanager
def busy(cpus: tuple[int, int]):
    """Another program on each of these processors, which computes all the time."""
    with contextlib.ExitStack() as stack:
        for cpu in cpus:
            stack.enter_context(process(Tcp.on(cpu, "sh", "-c", "while :; do :; done")))
        yield


def without_spinning(work: pathlib.Path) -> dict[str, str]:
    """An environment in which rdsock does not spin: where it is not told which processor an end is on."""
    library = work / "no_cpu.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"], check=True, text=True,
                   input="int sched_getcpu(void) { return -1; }\n")
    return {"LD_PRELOAD": str(library)}


class Sleepers(Talk):
    """Ends that do not spin: rdsock has to have slept for what it received."""

    def run(self, what: str, ends: Ends) -> float:
        rate = super().run(what, ends)
        if ends.client:
            received, sleeps = map(int, re.search(r"received in (\d+); .* (\d+) sleeps", self.said).groups())
            if sleeps < 0.9 * received:
                raise RuntimeError(f"{what}: rdsock has spun: {self.said}")
        return rate


def compare(bench, name: str, unit: str, goal: float, cached: str, measure, ends: Ends = BOTH) -> None:
    pairs = bench.alternate(lambda: measure(ends), lambda: measure(NEITHER))
    bench.row(name, unit, "kernel TCP", goal, cached, pairs)


def simple(bench, work) -> None:
    cached = "nothing to cache"
    for what, how, placement, goal, unit in (
            ("ping-pong of 64 bytes", "echo", "two CPUs", 20.0, "1/s"),
            ("ping-pong of 64 bytes", "echo", "one CPU", 1.4, "1/s"),
            ("stream of 1 MiB writes", "stream", "two CPUs", 2.0, "B/s"),
            ("stream of 1 MiB writes", "stream", "one CPU", 1.0, "B/s")):
        name = f"sockets: {what}, {placement}"
        if bench.wanted(name):
            talk = Talk(bench, work, PLACEMENTS[placement])
            compare(bench, name, unit, goal, cached, lambda ends: talk.run(how, ends))
    name = "sockets: ping-pong of 64 bytes, two busy CPUs"
    if bench.wanted(name):
        talk = Talk(bench, work, (0, 1))
        with busy((0, 1)):
            compare(bench, name, "1/s", 1.2, cached, lambda ends: talk.run("echo", ends))
    name = "sockets: ping-pong of 64 bytes, no spinning, two CPUs"
    if bench.wanted(name):
        talk = Sleepers(bench, work, (0, 1), without_spinning(work))
        compare(bench, name, "1/s", 1.0, cached, lambda ends: talk.run("echo", ends))
    for placement, cpus in PLACEMENTS.items():
        for which, ends in {"both ends": BOTH, **ONE}.items():
            name = f"sockets: connect and close, {which}, {placement}"
            if bench.wanted(name):
                compare(bench, name, "1/s", 0.95, cached, Talk(bench, work, cpus).connect, ends)


def programs(bench, work) -> None:
    for placement, cpus in PLACEMENTS.items():
        one = placement == "one CPU"
        servers = Servers(bench, work, cpus)
        # On one processor none may be slower than 0.95 of TCP; the goals are those of two.
        for what, goal, one_end, start in (
                ("redis, 50 connections", 2.0, False, lambda: servers.redis(["-c", "50"], 200_000)),
                ("redis, 50 connections, pipelined by 16", 1.5, False,
                 lambda: servers.redis(["-c", "50", "-P", "16"], 1_000_000)),
                ("redis, one connection", 1.0, True, lambda: servers.redis(["-c", "1"], 50_000)),
                ("pgbench -S -c 8 -M prepared", 1.15, True, servers.postgres),
                ("nginx and wrk, 1 KiB", 1.2, True, lambda: servers.nginx(1024)),
                ("nginx and wrk, 1 MiB", 1.2, False, lambda: servers.nginx(1 << 20))):
            rows = {f"sockets: {what}, {placement}": (0.95 if one else goal, BOTH)}
            if one_end and not one:
                rows |= {f"sockets: {what}, {which}, {placement}": (0.95, ends) for which, ends in ONE.items()}
            rows = {name: row for name, row in rows.items() if bench.wanted(name)}
            slowest = f"sockets: {what}, the slowest of 100 answers, {placement}"
            has_slowest = what in WAITS and bench.wanted(slowest)
            if not rows and not has_slowest:
                continue
            with start() as measure:
                for name, (least, ends) in rows.items():
                    compare(bench, name, "1/s", least, "all in memory", measure, ends)
                if has_slowest:
                    def speed_of_slowest(ends):
                        measure(ends)
                        return 1 / servers.waited
                    compare(bench, slowest, "1/s", 0.95, "all in memory", speed_of_slowest)


def idle(bench, work) -> None:
    """What a moved connection costs while nothing is said: memory of both ends more than over TCP, and CPU."""
    count, seconds = 1000, (2 if bench.arguments.quick else 30)
    names = ["sockets: memory of an idle connection, 1,000 of them", "sockets: CPU of 1,000 idle ones in a minute"]
    if not any(bench.wanted(name) for name in names):
        return
    talk = Talk(bench, work, (0, 1))
    theirs, _ = talk.idle(False, count, 0)
    ours, cpu = talk.idle(True, count, seconds)
    for name, unit, used, most in ((names[0], "KiB", (ours - theirs) / count / 1024, 64.0),
                                   (names[1], "s", cpu * 60 / seconds, 0.01)):
        bench.rows.append({"name": name, "unit": unit, "ours": used, "goal": most, "holds": used <= most})
        log(f"{name}: {used:.3f} {unit}, at most {most}")


def run(bench) -> None:
    with setups.scratch() as work:
        simple(bench, work)
        programs(bench, work)
        idle(bench, work)
