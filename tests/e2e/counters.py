"""What a running rdfs has counted, by asking it (SIGUSR1) and reading its log."""
import os
import re
import signal
import time


def round_trips(client, log):
    """Round trips so far of the rdfs with the pid `client`, by operation."""
    told = len(re.findall(r"round trips:.*\n", open(log).read()))
    os.kill(client, signal.SIGUSR1)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        lines = re.findall(r"round trips:(.*)\n", open(log).read())
        if len(lines) > told:
            words = lines[-1].split()
            return dict(zip(words[::2], map(int, words[1::2])))
        time.sleep(0.01)
    raise AssertionError("no counters in the log")
