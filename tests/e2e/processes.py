"""A server's processes: its children, how often they sleep, and how to stop all of it."""
import os
import signal
import subprocess
import time


def children(pid):
    """The pids of its children. Not every kernel has /proc/PID/task/PID/children."""
    found = subprocess.run(["pgrep", "-P", str(pid)], stdout=subprocess.PIPE, text=True)
    return [int(child) for child in found.stdout.split()]


def sleeps(pid, name):
    """How often the threads of that name have gone to sleep so far."""
    count = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        if open(f"/proc/{pid}/task/{thread}/comm").read().strip() == name:
            status = open(f"/proc/{pid}/task/{thread}/status").read()
            count += int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return count


def freeze(*pids):
    """Returns when they have stopped: the signal alone leaves them time to answer."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        for thread in os.listdir(f"/proc/{pid}/task"):
            while open(f"/proc/{pid}/task/{thread}/stat").read().rsplit(")", 1)[1].split()[0] != "T":
                time.sleep(0.01)


def thaw(*pids):
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)
