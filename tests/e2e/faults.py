"""Threads that note every call and its answer (tests/e2e/acknowledged) work on mounts of one export while things break.

    faults.py BUILD_DIR WORK_DIR

No call may fail or take longer than the mount's deadline, and afterwards the export must be what the answers say, seen
through each mount and at the server: nothing lost, nothing done twice. From the environment:

    RDFS_FAULT_OVER     a mount for each of these transports (shm tcp)
    RDFS_FAULT_KINDS    what breaks (cut worker freeze stall); also: server, upgrade, packets (needs root and netem)
    RDFS_FAULT_SECONDS  how long (3; with RDFS_CHECK_FULL=1 60)
    RDFS_FAULT_SEED     of faults and calls; printed, and random if not given
"""
import ctypes
import errno
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

BIN, WORK = sys.argv[1], sys.argv[2]
OVER = os.environ.get("RDFS_FAULT_OVER", "shm tcp").split()
KINDS = os.environ.get("RDFS_FAULT_KINDS", "cut worker freeze stall").split()
FULL = os.environ.get("RDFS_CHECK_FULL", "0") != "0"
SECONDS = float(os.environ.get("RDFS_FAULT_SECONDS") or (60 if FULL else 3))
SEED = int(os.environ.get("RDFS_FAULT_SEED") or random.randrange(10**6))
ADDRESS = os.environ.get("RDFS_RDMA_ADDRESS") if "verbs" in OVER else "127.0.0.1"
THREADS, SHARED = 4, 600
DEADLINE = 20
# EIO: a crash in the middle of a call may leave it open whether it was done (ARCHITECTURE.md, "After a restart").
UNSURE = [errno.EIO] if KINDS != ["upgrade"] else []
if "server" in KINDS or "upgrade" in KINDS:
    # What only the supervisor held is gone with it: files that were open and had no name any more.
    UNSURE += [errno.ESTALE]
UNSURE = ",".join(map(str, UNSURE))

libc = ctypes.CDLL(None, use_errno=True)


def wait_until(what, true, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def text(path):
    with open(path) as file:
        return file.read()


class Server:
    def __init__(self):
        self.port, self.starts = 0, 0
        os.mkdir(f"{WORK}/export")
        os.mkdir(f"{WORK}/run")
        self.program = f"{WORK}/rdfsd"
        self.install()
        self.start()

    def install(self):
        """Over one that runs, as package managers do it."""
        shutil.copy2(f"{BIN}/server/rdfsd", f"{self.program}.new")
        os.rename(f"{self.program}.new", self.program)

    def start(self):
        self.starts += 1
        self.kills = []  # of the worker
        log = f"{WORK}/server-{self.starts}.log"
        trusted = ",trusted" if os.geteuid() == 0 else ""
        for _ in range(30):
            with open(log, "w") as out:
                self.process = subprocess.Popen(
                    [self.program, "--export", f"e2e={WORK}/export{trusted}", "--listen", ADDRESS, "--port",
                     str(self.port), "--key-file", f"{WORK}/key", "--lease", "20", "-f"],
                    stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                    env={**os.environ, "XDG_RUNTIME_DIR": f"{WORK}/run"})
            wait_until("rdfsd is ready", lambda: "ready on port" in text(log) or self.process.poll() is not None)
            # Somebody else's connection may have the port of a server that was killed, for a moment.
            if "another program holds the port" not in text(log):
                break
            time.sleep(1)
        found = re.search(r"ready on port (\d+)", text(log))
        assert found, text(log)
        self.port = int(found.group(1))

    def worker(self):
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], stdout=subprocess.PIPE, text=True)
        return int(found.stdout.split()[0]) if found.stdout else None

    def kill_worker(self):
        """Not more often than its supervisor bears within a minute. Whether it did."""
        now = time.monotonic()
        self.kills = [at for at in self.kills if at > now - 62]
        if len(self.kills) == 4:
            return False
        self.kills.append(now)
        signal_if_there(self.worker(), signal.SIGKILL)
        return True

    def kill(self):
        worker = self.worker()
        self.process.kill()
        self.process.wait()
        signal_if_there(worker, signal.SIGKILL)
        wait_until("the killed worker has gone", lambda: worker is None or has_ended(worker))

    def stop(self):
        self.process.terminate()
        status = self.process.wait(timeout=20)
        # Asked to stop before it has seen that its worker was killed, it says that of its end.
        killed = bool(self.kills) and time.monotonic() - self.kills[-1] < 5
        assert status == 0 or (killed and status == 137), f"status {status}: " + text(f"{WORK}/server-{self.starts}.log")


def signal_if_there(pid, number):
    try:
        if pid is not None:
            os.kill(pid, number)
    except ProcessLookupError:
        pass


class Mount:
    def __init__(self, server, name, over):
        self.over, self.path, self.log = over, f"{WORK}/{name}", f"{WORK}/{name}.log"
        os.mkdir(self.path)
        with open(self.log, "w") as out:
            self.process = subprocess.Popen(
                [f"{BIN}/fs/fuse/rdfs", f"rdfs://{ADDRESS}:{server.port}/e2e", self.path, "-o",
                 f"key_file={WORK}/key,require={over},deadline={DEADLINE}", "-f"],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        wait_until("rdfs has mounted", lambda: self.mounted() or self.process.poll() is not None)
        assert self.mounted(), text(self.log)

    def mounted(self):
        return f" {self.path} " in text("/proc/self/mountinfo")

    def cut(self):
        """Ends its connections, wherever they are in a frame. Whether there was one."""
        pidfd = os.pidfd_open(self.process.pid)
        ended = 0
        for name in os.listdir(f"/proc/{self.process.pid}/fd"):
            try:
                if not os.readlink(f"/proc/{self.process.pid}/fd/{name}").startswith("socket:"):
                    continue
            except FileNotFoundError:
                continue
            fd = libc.syscall(438, pidfd, int(name), 0)  # pidfd_getfd(2)
            if fd < 0:
                assert ctypes.get_errno() == errno.EBADF, os.strerror(ctypes.get_errno())  # closed meanwhile
                continue
            try:
                end = socket.socket(fileno=fd)
            except OSError as error:  # the number is another file's meanwhile
                assert error.errno == errno.ENOTSOCK, error
                os.close(fd)
                continue
            with end:
                if end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    continue
                try:
                    end.shutdown(socket.SHUT_RDWR)
                    ended += 1
                except OSError as error:
                    assert error.errno == errno.ENOTCONN, error
        os.close(pidfd)
        return ended > 0

    def end(self):
        subprocess.run(["fusermount3", "-u", self.path], check=True, timeout=10)
        self.process.wait(timeout=10)


def has_ended(pid):
    """Every thread of it; also if nobody has waited for it: some inits take seconds, in which clients would have no
    server."""
    try:
        alone = len(os.listdir(f"/proc/{pid}/task")) == 1
        return alone and text(f"/proc/{pid}/stat").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def freeze(pid, seconds):
    signal_if_there(pid, signal.SIGSTOP)
    time.sleep(seconds)
    signal_if_there(pid, signal.SIGCONT)


def packets(device, rule):
    subprocess.run(["tc", "qdisc", "replace", "dev", device, "root", "netem", *rule.split()], check=True)


def break_something(dice, server, mounts):
    kind = dice.choice(KINDS)
    if kind == "cut":
        # Several in a row, also while the session is being made anew.
        mount = dice.choice([mount for mount in mounts if mount.over != "verbs"] or mounts)
        for _ in range(dice.randrange(1, 6)):
            mount.cut()
            time.sleep(dice.random() * 0.03)
    elif kind == "worker":
        if not server.kill_worker():
            return "nothing"
    elif kind == "server":
        server.kill()
        time.sleep(dice.random() * 0.5)
        server.start()
    elif kind == "upgrade":
        server.install()
        if dice.random() < 0.3:
            return "install"  # and the one that runs goes on for some time
        server.stop()
        server.start()
    elif kind == "freeze":
        freeze(dice.choice(mounts).process.pid, dice.random() * 0.7)
    elif kind == "stall":
        freeze(server.worker(), dice.random() * 0.7)
    elif kind == "packets":
        packets("lo", dice.choice(["loss 3%", "loss 1% delay 2ms 1ms", "duplicate 5%", "loss 100%"]))
        time.sleep(dice.random())
        packets("lo", "delay 0ms")
    return kind


def check(where, acknowledged):
    done = subprocess.run([acknowledged, "check", f"{WORK}/journals", str(SHARED), UNSURE, where],
                          stdout=subprocess.PIPE, text=True, timeout=120)
    if done.returncode != 0:
        print(f"as seen in {where}:\n{done.stdout}")
    return done.returncode == 0


def main():
    dice = random.Random(SEED)
    acknowledged = f"{BIN}/tests/e2e/acknowledged/acknowledged"
    server = Server()
    os.mkdir(f"{WORK}/journals")
    subprocess.run([acknowledged, "prepare", f"{WORK}/export", str(SHARED), str(THREADS)], check=True)
    mounts = [Mount(server, f"mount-{i}", over) for i, over in enumerate(OVER)]
    work = subprocess.Popen(
        [acknowledged, "run", f"{WORK}/journals", str(SHARED), str(THREADS), str(SEED), str(int(SECONDS) + 100),
         str(DEADLINE + 5), UNSURE, *(mount.path for mount in mounts)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True)
    assert work.stdout.readline() == "begins\n"
    end = time.monotonic() + SECONDS
    broken = {}
    while time.monotonic() < end and work.poll() is None:
        kind = break_something(dice, server, mounts)
        broken[kind] = broken.get(kind, 0) + 1
        time.sleep(dice.random() * 0.2)
    said = work.communicate("stop\n" if work.poll() is None else None, timeout=60)[0]
    print(f"{'+'.join(OVER)}, seed {SEED}, {broken}: {said}", end="")
    fine = work.returncode == 0
    for mount in mounts:
        fine = check(mount.path, acknowledged) and fine
    for mount in mounts:
        mount.end()
    fine = check(f"{WORK}/export", acknowledged) and fine
    server.stop()
    if not fine:
        keep = os.environ.get("RDFS_FAULT_KEEP")
        if keep:
            subprocess.run(["cp", "-r", f"{WORK}/journals", f"{WORK}/export", keep], check=True)
        for name in sorted(os.listdir(WORK)):
            if name.endswith(".log"):
                print(f"--- {name}\n" + "\n".join(text(f"{WORK}/{name}").splitlines()[-25:]))
    return 0 if fine else 1


sys.exit(main())
