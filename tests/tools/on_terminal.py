#!/usr/bin/env python3
"""Usage: on_terminal.py COMMAND...

Runs it with a terminal for its standard error, prints what that got, and ends with its status. Its standard input is
ours, its standard output nobody's."""

import os
import pty
import subprocess
import sys

LIMIT_SECONDS = 60

ours, theirs = pty.openpty()
child = subprocess.Popen(["timeout", str(LIMIT_SECONDS), *sys.argv[1:]], stdout=subprocess.DEVNULL, stderr=theirs)
os.close(theirs)
try:
    while said := os.read(ours, 4096):
        os.write(1, said)
except OSError:  # the last one has closed it
    pass
sys.exit(child.wait())
