"""power_loss.py write DIRECTORY: writes and syncs there in every way that a program can, tells what is on disk by then, a
line each, and lets this kernel's power fail in the middle of it. As root, in a guest.
power_loss.py check DIRECTORY TOLD: what was told is there.
"""
import ctypes
import mmap
import os
import random
import sys
import threading
import time

SECONDS = 4
BLOCK = 4096
BLOCKS = 64
# What was told last may not have left the guest, and what followed was under way: fewer than this of one kind.
UNHEARD = 20
# How many kinds of things are told.
KINDS = 10


def content(*names):
    """What a file, or a piece of one, has to hold."""
    source = random.Random(" ".join(map(str, names)))
    return source.randbytes(source.choice((1, 100, 4095, 4096, 4097, 30_000, 131_073, 300_000)))


def block(*names):
    return random.Random(" ".join(map(str, names))).randbytes(BLOCK)


SEEN = set()


def told(*words):
    SEEN.add(words[0])
    # One write: lines of several threads do not mix. What the power cuts off has no point at its end.
    os.write(1, (" ".join(map(str, words)) + " .\n").encode())


def put(fd, data):
    while data:
        data = data[os.write(fd, data):]


def sync_directory(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def new_files(top):
    """Files that are new, and their names; every other one replaces another by rename."""
    number = 0
    while True:
        number += 1
        name = f"{top}/file{number}"
        fd = os.open(name + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        put(fd, content("file", number))
        os.fsync(fd)
        os.close(fd)
        os.rename(name + ".new", name)
        sync_directory(top)
        told("file", number)
        with open(f"{top}/current.new", "wb") as file:
            file.write(content("current", number))
            file.flush()
            os.fdatasync(file.fileno())
        os.rename(f"{top}/current.new", f"{top}/current")
        sync_directory(top)
        told("current", number)


def appends(top):
    fd = os.open(f"{top}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sync_directory(top)
    number = 0
    while True:
        number += 1
        put(fd, block("log", number)[:1000])
        os.fdatasync(fd)
        told("log", number)


def blocks(top, name, flags):
    """Blocks of one file, over and over; `flags`: how each is on disk when its write returns."""
    fd = os.open(f"{top}/{name}", os.O_RDWR | os.O_CREAT | flags)
    os.ftruncate(fd, BLOCKS * BLOCK)
    os.fsync(fd)
    sync_directory(top)
    memory = mmap.mmap(-1, BLOCK)  # aligned, for O_DIRECT
    number = 0
    while True:
        number += 1
        memory[:] = block(name, number)
        os.pwritev(fd, [memory], number % BLOCKS * BLOCK)
        if not flags & os.O_DSYNC:
            os.fsync(fd)
        told(name, number)


def mapped(top):
    fd = os.open(f"{top}/mapped", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, BLOCKS * BLOCK)
    os.fsync(fd)
    sync_directory(top)
    memory = mmap.mmap(fd, BLOCKS * BLOCK)
    number = 0
    while True:
        number += 1
        at = number % BLOCKS * BLOCK
        memory[at:at + BLOCK] = block("mapped", number)
        memory.flush(at, BLOCK)
        told("mapped", number)


def removals(top):
    number = 0
    while True:
        number += 1
        os.close(os.open(f"{top}/gone{number}", os.O_WRONLY | os.O_CREAT))
        os.mkdir(f"{top}/directory{number}")
        sync_directory(top)
        told("made", number)
        os.unlink(f"{top}/gone{number}")
        sync_directory(top)
        told("gone", number)


def careless(top):
    """What nobody syncs."""
    number = 0
    while True:
        number += 1
        with open(f"{top}/careless{number}", "wb") as file:
            file.write(content("careless", number))
        told("careless", number)
        time.sleep(0.02)


def write(top):
    work = [(new_files,), (appends,), (blocks, "dsync", os.O_DSYNC), (blocks, "direct", os.O_DIRECT),
            (blocks, "fsync", 0), (mapped,), (removals,), (careless,)]
    for function, *arguments in work:
        directory = f"{top}/{(arguments or [function.__name__])[0]}"
        os.mkdir(directory)
        sync_directory(top)
        threading.Thread(target=function, args=(directory, *arguments), daemon=True).start()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or len(SEEN) < KINDS:
        time.sleep(0.05)
    os.write(1, b"the power fails\n")
    time.sleep(1)  # so that this is told
    # reboot(2), LINUX_REBOOT_CMD_POWER_OFF: nothing is synced.
    ctypes.CDLL(None).reboot(0x4321FEDC)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


class Checker:
    def __init__(self, top, lines):
        self.top = top
        self.last = {}
        self.all = {}
        self.wrong = []
        for line in lines:
            words = line.split()
            if len(words) == 3 and words[2] == ".":
                self.last[words[0]] = int(words[1])
                self.all.setdefault(words[0], []).append(int(words[1]))

    def must(self, right, what):
        if not right:
            self.wrong.append(what)

    def files(self):
        for number in self.all["file"]:
            self.must(read(f"{self.top}/new_files/file{number}") == content("file", number), f"file {number} is lost, or another")
        last = self.last["current"]
        self.must(read(f"{self.top}/new_files/current") in [content("current", last + more) for more in range(UNHEARD)],
                  f"what replaced others is not {last}")

    def log(self):
        have = read(f"{self.top}/appends/log") or b""
        for number in self.all["log"]:
            self.must(have[(number - 1) * 1000:number * 1000] == block("log", number)[:1000], f"record {number} of the log is lost")

    def blocks(self, directory, name):
        have = read(f"{self.top}/{directory}/{name}") or b""
        for number in range(max(1, self.last[name] - BLOCKS + 1), self.last[name] + 1):
            at = number % BLOCKS * BLOCK
            self.must(have[at:at + BLOCK] in (block(name, number), block(name, number + BLOCKS)), f"block {number} of '{name}' is lost")

    def removed(self):
        for number in self.all["made"]:
            self.must(os.path.isdir(f"{self.top}/removals/directory{number}"), f"directory {number} is lost")
        for number in self.all["gone"]:
            self.must(not os.path.exists(f"{self.top}/removals/gone{number}"), f"file {number} is there again")

    def careless(self):
        """How many of those that nobody synced are not there."""
        return sum(read(f"{self.top}/careless/careless{number}") != content("careless", number) for number in self.all["careless"])


def check(top, path):
    with open(path, encoding="ascii") as file:
        checker = Checker(top, file.read().splitlines())
    checker.files()
    checker.log()
    for name in ("dsync", "direct", "fsync"):
        checker.blocks(name, name)
    checker.blocks("mapped", "mapped")
    checker.removed()
    lost = checker.careless()
    checker.must(lost > 0, "what nobody synced is all there: no power has failed")
    for sentence in checker.wrong[:20]:
        print(f"power_loss.py: {sentence}", file=sys.stderr)
    counts = ", ".join(f"{len(numbers)} {kind}" for kind, numbers in sorted(checker.all.items()))
    print(f"told: {counts}; {len(checker.wrong)} of it wrong; of 'careless', which nobody synced, {lost} are lost")
    sys.exit(1 if checker.wrong else 0)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](*sys.argv[2:])
