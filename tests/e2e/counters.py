"""What a running rdfs has counted, by asking it (SIGUSR1) and reading its log."""
import os
import re
import signal
import time

LINE = re.compile(r"counters:(.*); round trips:(.*)\n")


def round_trips(client, log):
    """Round trips so far of the rdfs with the pid `client`, by operation."""
    return counted(client, log)[1]


def figures(client, log):
    """The other counters of it, by name."""
    return counted(client, log)[0]


def counted(client, log):
    """Both."""
    told = len(LINE.findall(open(log).read()))
    os.kill(client, signal.SIGUSR1)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        lines = LINE.findall(open(log).read())
        if len(lines) > told:
            words = [part.split() for part in lines[-1]]
            return [dict(zip(part[::2], map(int, part[1::2]))) for part in words]
        time.sleep(0.01)
    raise AssertionError("no counters in the log")
