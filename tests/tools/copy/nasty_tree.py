#!/usr/bin/env python3
"""Usage: nasty_tree.py DIRECTORY
Makes there a tree of what is hard to copy. As an ordinary user without devices, owners and what only
root may set."""
import os
import random
import socket
import struct
import sys

ROOT = os.geteuid() == 0
BUFFERS = (0, 1, 4095, 4096, 4097, 65535, 65536, 65537, 131072, 1048575, 1048577)


def write(path, content=b"content\n"):
    with open(path, "wb") as file:
        file.write(content)


def names(top):
    folder = os.path.join(top, b"names")
    os.mkdir(folder)
    odd = [b"\xff\xfe\x80", b"new\nline", b"tab\there", b"\x1b[31mred\x07", b"-rf", b"--help", b" ", b"  x ",
           b"*", b"?[a]", b"a:b", b"host:file", b"\\", b"'\"$(id)`", b"...", b".hidden", b"n" * 255,
           "\u00e4\u202e\U0001f600".encode(), b".rdcp-0000000000000000", b"\x01", b"\x7f"]
    for name in odd:
        write(os.path.join(folder, name), name)
        os.mkdir(os.path.join(folder, b"d" + name[:254]))


def links(top):
    for folder in (b"one", b"two", b"two/three"):
        os.mkdir(os.path.join(top, folder))
    write(os.path.join(top, b"one/first"), b"linked" * 1000)
    for name in (b"one/again", b"two/other", b"two/three/deep", b"at_the_top"):
        os.link(os.path.join(top, b"one/first"), os.path.join(top, name))
    for i in range(50):
        write(os.path.join(top, b"one/pair%d" % i), b"%d" % i)
        os.link(os.path.join(top, b"one/pair%d" % i), os.path.join(top, b"two/three/pair%d" % i))
    folder = os.path.join(top, b"symlinks")
    os.mkdir(folder)
    for name, target in ((b"dangling", b"nowhere"), (b"absolute", b"/etc/passwd"), (b"loop", b"loop"),
                         (b"up", b"../one"), (b"itself", b"."), (b"long", b"x/" * 2000),
                         (b"odd", b"\xff\n\x1b")):
        os.symlink(target, os.path.join(folder, name))
    os.link(os.path.join(folder, b"dangling"), os.path.join(top, b"two/linked_symlink"),
            follow_symlinks=False)
    os.utime(os.path.join(folder, b"dangling"), ns=(10**18, 10**18 + 7), follow_symlinks=False)


def sizes(top):
    folder = os.path.join(top, b"sizes")
    os.mkdir(folder)
    source = random.Random(1)
    for size in BUFFERS:
        write(os.path.join(folder, b"%d" % size), source.randbytes(size))
    with open(os.path.join(folder, b"sparse"), "wb") as file:
        file.truncate(10 << 30)
        file.seek(5_000_000_000)
        file.write(b"in the middle")
    with open(os.path.join(folder, b"hole_first"), "wb") as file:
        file.seek(1 << 20)
        file.write(b"end" * 5000)
    with open(os.path.join(folder, b"all_hole"), "wb") as file:
        file.truncate(1_000_000)


def modes(top):
    folder = os.path.join(top, b"modes")
    os.mkdir(folder)
    for mode in (0o000, 0o111, 0o400, 0o444, 0o4755, 0o2755, 0o6711, 0o1777, 0o777):
        if mode in (0o000, 0o111) and not ROOT:
            continue
        write(os.path.join(folder, b"f%o" % mode))
        os.chmod(os.path.join(folder, b"f%o" % mode), mode)
        os.mkdir(os.path.join(folder, b"d%o" % mode))
        if ROOT or mode & 0o300 == 0o300:
            write(os.path.join(folder, b"d%o" % mode, b"inside"))
        os.chmod(os.path.join(folder, b"d%o" % mode), mode if ROOT else mode | 0o500)
    if ROOT:
        for uid, gid in ((1, 2), (65534, 0), (4_000_000, 4_000_001)):
            path = os.path.join(folder, b"owned%d" % uid)
            write(path)
            os.chown(path, uid, gid)
            os.chmod(path, 0o6755)
            os.symlink(b"x", path + b"link")
            os.chown(path + b"link", uid, gid, follow_symlinks=False)


def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def attributes(top):
    folder = os.path.join(top, b"attributes")
    os.mkdir(folder)
    nobody = 0xFFFFFFFF
    access = acl((1, 6, nobody), (2, 7, 12345), (4, 4, nobody), (16, 6, nobody), (32, 0, nobody))
    for name in (b"file", b"readonly"):
        path = os.path.join(folder, name)
        write(path)
        os.setxattr(path, b"user.small", b"\0binary\xff")
        os.setxattr(path, b"user.large", b"x" * 2000)
        os.setxattr(path, b"user.empty", b"")
        os.setxattr(path, "system.posix_acl_access", access)
        if ROOT:
            os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0))
            os.setxattr(path, "trusted.ours", b"t")
    os.chmod(os.path.join(folder, b"readonly"), 0o440)
    path = os.path.join(folder, b"directory")
    os.mkdir(path)
    os.setxattr(path, "system.posix_acl_default", access)
    write(os.path.join(path, b"inherits"))
    write(os.path.join(path, b"inherits_not"))
    os.removexattr(os.path.join(path, b"inherits_not"), "system.posix_acl_access")
    os.mkdir(os.path.join(path, b"inherits_too"))
    os.setxattr(path, b"user.of_a_directory", b"d")


def specials(top):
    folder = os.path.join(top, b"specials")
    os.mkdir(folder)
    os.mkfifo(os.path.join(folder, b"fifo"), 0o640)
    os.link(os.path.join(folder, b"fifo"), os.path.join(top, b"two/fifo"))
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.chdir(folder)  # a socket's path is short
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")
    server.close()
    os.fchdir(here)
    os.close(here)
    if ROOT:
        os.mknod(os.path.join(folder, b"char"), 0o20620, os.makedev(1, 3))
        os.mknod(os.path.join(folder, b"block"), 0o60600, os.makedev(7, 300))


def times(top):
    folder = os.path.join(top, b"times")
    os.mkdir(folder)
    seconds = {b"1969": -1, b"1901": -2**31, b"1970": 0, b"2038": 2**31, b"2106": 2**32 + 5, b"2400": 13_569_465_600}
    for name, at in seconds.items():
        path = os.path.join(folder, name)
        for make in (write, lambda p: os.mkdir(p + b"d")):
            make(path)
        for each in (path, path + b"d"):
            os.utime(each, ns=(at * 10**9 + 1, at * 10**9 + 999_999_999))


def deep(top):
    """A path of some 12,000 bytes, by descriptor."""
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for level in range(100):
        name = b"level%d_" % level + b"d" * 110
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        fd = os.open(b"before", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=at)
        os.write(fd, b"%d" % level)
        os.close(fd)
        os.close(at)
        at = inner
    fd = os.open(b"bottom", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=at)
    os.write(fd, b"bottom")
    os.close(fd)
    os.link(b"bottom", b"bottom_again", src_dir_fd=at, dst_dir_fd=at)
    os.utime(b"bottom", ns=(5 * 10**9, 6 * 10**9), dir_fd=at)


def main():
    top = os.fsencode(sys.argv[1])
    os.mkdir(top)
    for make in (names, links, sizes, modes, attributes, specials, times, deep):
        make(top)
    os.mkdir(os.path.join(top, b"empty"))
    os.makedirs(os.path.join(top, b"many"))
    for i in range(3000):
        write(os.path.join(top, b"many", b"%d" % i), b"%d" % i)
    os.utime(os.path.join(top, b"one"), ns=(3, 4))
    os.utime(top, ns=(10**9, 2 * 10**9))


main()
