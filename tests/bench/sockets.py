"""Unmodified programs under rdsock, and over the kernel's TCP: the same programs, the same processors. Simple ones of
our own (talk.cc), redis, PostgreSQL and nginx. Servers run on the first processor and clients on the second, or both
on one."""

import contextlib
import os
import pathlib
import re
import resource
import shutil
import subprocess
import time

import setups
import workloads
from pipes import free_port, listens
from setups import log, process, wait_for

HERE = pathlib.Path(__file__).resolve().parent
POSTGRES_USER = "postgres"  # which is not to be root
PATH = os.environ["PATH"] + ":/usr/sbin"


class Tcp:
    """The kernel's TCP, or rdsock around one end or both."""

    def __init__(self, bench, work: pathlib.Path, cpus: tuple[int, int]):
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

    def ask(self, shim: bool, *command: str) -> str:
        """What a client says; under rdsock some of its connections have to have moved."""
        before = [*self.rdsock, "--stats"] if shim else []
        run = subprocess.run(self.on(self.client_cpu, *before, *command), capture_output=True, text=True, timeout=120)
        if run.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {run.stderr}")
        if shim and not re.search(r"connections, [1-9]\d* upgraded", run.stderr):
            raise RuntimeError(f"{' '.join(command)}: no connection was upgraded: {run.stderr}")
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
        with process(command, stdout=subprocess.PIPE, text=True) as server, server.stdout:
            yield server, server.stdout.readline().strip()

    def run(self, what: str, shim: bool) -> float:
        """Round trips, or bytes, a second."""
        with self.server(shim, "serve") as (server, port):
            rate = float(self.ask(shim, talk_program(self.work), what, port, str(self.seconds)))
            server.wait(30)
            return rate

    def connect(self, server_shim: bool, client_shim: bool) -> float:
        """Connections a second that carry nothing. None is upgraded, so nothing is asked about that."""
        before = self.rdsock if client_shim else []
        with self.server(server_shim, "accept") as (_, port):
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
    rdsock or without."""

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
                       env={**os.environ, "PATH": PATH})

    @contextlib.contextmanager
    def redis(self, options: list[str], requests: int):
        """GETs a second."""
        def start(shim, port):
            return self.quiet(shim, "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir",
                              str(self.work))
        with self.both(start) as ports:
            def measure(shim):
                out = self.ask(shim, "redis-benchmark", "-h", "127.0.0.1", "-p", str(ports[shim]), "-t", "get", "--csv",
                               "-n", str(requests // 5 if self.quick else requests), *options)
                return float(re.search(r'^"GET","([\d.]+)"', out, re.M).group(1))
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
            def measure(shim):
                out = self.ask(shim, "pgbench", "-n", "-S", "-c", "8", "-M", "prepared", "-T",
                               "1" if self.quick else "3", *reach(ports[shim]))
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
            def measure(shim):
                out = self.ask(shim, "wrk", "-t", "1", "-c", "20", "-d", "1" if self.quick else "3",
                               f"http://127.0.0.1:{ports[shim]}/page")
                if "Non-2xx" in out or "Socket errors" in out:
                    raise RuntimeError(out)
                return float(re.search(r"^Requests/sec:\s+([\d.]+)", out, re.M).group(1))
            yield measure


def simple(bench, work) -> None:
    for what, how, cpus, placement, goal, unit in (
            ("ping-pong of 64 bytes", "echo", (0, 1), "two CPUs", 20.0, "1/s"),
            ("ping-pong of 64 bytes", "echo", (0, 0), "one CPU", 1.4, "1/s"),
            ("stream of 1 MiB writes", "stream", (0, 1), "two CPUs", 2.0, "B/s"),
            ("stream of 1 MiB writes", "stream", (0, 0), "one CPU", 1.0, "B/s")):
        name = f"sockets: {what}, {placement}"
        if bench.wanted(name):
            talk = Talk(bench, work, cpus)
            pairs = bench.alternate(lambda: talk.run(how, True), lambda: talk.run(how, False))
            bench.row(name, unit, "kernel TCP", goal, "nothing to cache", pairs)
    for ends, server in (("both ends", True), ("client alone", False)):
        name = f"sockets: connect and close, {ends}, two CPUs"
        if bench.wanted(name):
            talk = Talk(bench, work, (0, 1))
            pairs = bench.alternate(lambda: talk.connect(server, True), lambda: talk.connect(False, False))
            bench.row(name, "1/s", "kernel TCP", 0.95, "nothing to cache", pairs)


def programs(bench, work) -> None:
    for placement, cpus in (("two CPUs", (0, 1)), ("one CPU", (0, 0))):
        one = placement == "one CPU"
        servers = Servers(bench, work, cpus)
        # On one processor none may be slower than 0.95 of TCP; the goals are those of two.
        for what, goal, start in (
                ("redis, 50 connections", 2.0, lambda: servers.redis(["-c", "50"], 200_000)),
                ("redis, 50 connections, pipelined by 16", 1.5,
                 lambda: servers.redis(["-c", "50", "-P", "16"], 1_000_000)),
                ("redis, one connection", 1.0, lambda: servers.redis(["-c", "1"], 50_000)),
                ("pgbench -S -c 8 -M prepared", 1.15, servers.postgres),
                ("nginx and wrk, 1 KiB", 1.2, lambda: servers.nginx(1024)),
                ("nginx and wrk, 1 MiB", 1.2, lambda: servers.nginx(1 << 20))):
            name = f"sockets: {what}, {placement}"
            if not bench.wanted(name):
                continue
            with start() as measure:
                pairs = bench.alternate(lambda: measure(True), lambda: measure(False))
            bench.row(name, "1/s", "kernel TCP", 0.95 if one else goal, "all in memory", pairs)


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
