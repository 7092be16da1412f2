#!/usr/bin/env python3
"""Usage: same_trees.py [--content] ONE OTHER
Prints each difference between two trees, and fails if there is one: names, kinds, modes, owners, times,
content, holes, symlinks, hard links, devices, extended attributes. Goes by descriptor: a path may be
longer than PATH_MAX. --content: names, kinds, content, and where symlinks lead only."""
import os
import stat
import sys

CONTENT = "--content" in sys.argv
PAIRS = {}
BACK = {}
found = 0


def differ(path, what, one, other):
    global found
    found += 1
    if found <= 20:
        print(f"{path[-200:]!r}: {what}: {one!r} and {other!r}")


def xattrs(at, name):
    path = f"/proc/self/fd/{at}/".encode() + name
    return {each: os.getxattr(path, each, follow_symlinks=False)
            for each in os.listxattr(path, follow_symlinks=False)}


def read(at, name):
    """(offset, bytes) of what is not zero."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=at)
    size = os.fstat(fd).st_size
    out = []
    offset = 0
    try:
        while offset < size:
            try:
                offset = os.lseek(fd, offset, os.SEEK_DATA)
            except OSError:
                break
            block = os.pread(fd, 65536 - offset % 65536, offset)
            if not block:
                break
            if block.strip(b"\0"):
                out.append((offset - offset % 65536, block.strip(b"\0")))
            offset += len(block)
    finally:
        os.close(fd)
    return out


def same_file(path, ats, name, infos):
    one, other = infos
    facts = [("kind", stat.S_IFMT)]
    if not CONTENT:
        facts = [("mode", lambda info: info.st_mode), ("uid", lambda info: info.st_uid),
                 ("gid", lambda info: info.st_gid), ("time", lambda info: info.st_mtime_ns),
                 ("rdev", lambda info: info.st_rdev)]
    if CONTENT:
        facts = [("kind", lambda info: stat.S_IFMT(info.st_mode))]
    if stat.S_ISREG(one.st_mode):
        facts.append(("size", lambda info: info.st_size))
    if not stat.S_ISDIR(one.st_mode) and not CONTENT:
        facts.append(("links", lambda info: info.st_nlink))
    for what, fact in facts:
        if fact(one) != fact(other):
            differ(path, what, fact(one), fact(other))
    if not CONTENT and xattrs(ats[0], name) != xattrs(ats[1], name):
        differ(path, "attributes", xattrs(ats[0], name), xattrs(ats[1], name))
    if stat.S_ISLNK(one.st_mode) and stat.S_ISLNK(other.st_mode):
        targets = [os.readlink(name, dir_fd=at) for at in ats]
        if targets[0] != targets[1]:
            differ(path, "target", *targets)
    if stat.S_ISREG(one.st_mode) and stat.S_ISREG(other.st_mode):
        if read(ats[0], name) != read(ats[1], name):
            differ(path, "content", "", "")
        if other.st_blocks * 512 > one.st_blocks * 512 + 65536:
            differ(path, "blocks", one.st_blocks, other.st_blocks)
    if one.st_nlink > 1 and not stat.S_ISDIR(one.st_mode) and not CONTENT:
        if PAIRS.setdefault(one.st_ino, other.st_ino) != other.st_ino or \
           BACK.setdefault(other.st_ino, one.st_ino) != one.st_ino:
            differ(path, "linked otherwise", one.st_ino, other.st_ino)


def same_directory(path, ats):
    lists = [set(os.listdir(at)) for at in ats]
    lists = [{os.fsencode(name) for name in names} for names in lists]
    for name in lists[0] ^ lists[1]:
        differ(path + b"/" + name, "is in", name in lists[0], name in lists[1])
    for name in sorted(lists[0] & lists[1]):
        infos = [os.stat(name, dir_fd=at, follow_symlinks=False) for at in ats]
        below = path + b"/" + name
        same_file(below, ats, name, infos)
        if all(stat.S_ISDIR(info.st_mode) for info in infos):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            inner = [os.open(name, flags, dir_fd=at) for at in ats]
            same_directory(below, inner)
            for fd in inner:
                os.close(fd)


sys.setrecursionlimit(10000)
tops = [os.fsencode(path) for path in sys.argv[1:] if not path.startswith("--")]
fds = [os.open(top, os.O_RDONLY | os.O_DIRECTORY) for top in tops]
same_file(b"", fds, b".", [os.fstat(fd) for fd in fds])
same_directory(b"", fds)
sys.exit(found > 0)
