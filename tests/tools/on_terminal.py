#!/usr/bin/env python3
"""Usage: on_terminal.py [--closes] COMMAND...

Runs it with a terminal for its standard error, prints what that got, and ends with its status. Its standard input is
ours, its standard output nobody's. With --closes nobody has the terminal's other end any more once progress was drawn."""

import os
import pty
import subprocess
import sys
import tty

LIMIT_SECONDS = 60

command = sys.argv[1:]
closes = command[0] == "--closes"
if closes:
    command = command[1:]
ours, theirs = pty.openpty()
tty.setraw(theirs)  # what is written is what comes
child = subprocess.Popen(["timeout", str(LIMIT_SECONDS), *command], stdout=subprocess.DEVNULL, stderr=theirs)
os.close(theirs)
try:
    while said := os.read(ours, 4096):
        os.write(1, said)
        if closes and b"\x1b[K" in said:
            break
except OSError:  # the last one has closed it
    pass
os.close(ours)
sys.exit(child.wait())
