#!/usr/bin/env python3
"""Usage: across.py server ADDRESS PORT | client ADDRESS PORT ROUNDS BYTES [WAY [FILE]]

A program that knows nothing of rdsock. The client sends rounds of bytes, each of them known from the
round, the server compares them and answers with as many others, which the client compares; at the end each
shuts its half down and sees the other's end of file. WAY is how the client waits: block (default), epoll
(edges), fork (a child goes on halfway). FILE is made halfway: until somebody removes it there are more rounds,
then those of the second half.

The client prints "whole" (exit status 0), or "reset" (exit status 3) when the connection was reset; bytes
that are wrong, too few or too many are exit status 1, at both ends. The server prints "wrong" then, too.
"""
import hashlib
import os
import select
import signal
import socket
import struct
import sys


def pattern(name, count):
    seed = hashlib.sha256(name.encode()).digest()
    return (seed * (count // len(seed) + 1))[:count]


class Wrong(Exception):
    pass


class Waits:
    """A connection whose calls do not block, behind epoll with edges."""

    def __init__(self, connection):
        self.connection = connection
        connection.setblocking(False)
        self.epoll = select.epoll()
        self.epoll.register(connection, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

    def recv(self, count):
        while True:
            try:
                return self.connection.recv(count)
            except BlockingIOError:
                self.wait()

    def sendall(self, data):
        data = memoryview(data)
        while data:
            try:
                data = data[self.connection.send(data):]
            except BlockingIOError:
                self.wait()

    def wait(self):
        if not self.epoll.poll(20):
            raise Wrong('nothing comes')

    def shutdown(self, how):
        self.connection.shutdown(how)


def take(connection, count):
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise Wrong('%d of %d bytes, then the end' % (len(data), count))
        data += piece
    return bytes(data)


def serve(connection):
    number = 0
    while True:
        first = connection.recv(1)
        if not first:
            break
        size, = struct.unpack('>I', first + take(connection, 3))
        if take(connection, size) != pattern('up %d' % number, size):
            raise Wrong('round %d: other bytes came' % number)
        connection.sendall(pattern('down %d' % number, size))
        number += 1
    connection.shutdown(socket.SHUT_WR)


def server(address, port):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.create_server((address, port))
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            try:
                serve(connection)
            except ConnectionError as error:
                print('ended:', error, flush=True)
            except Wrong as error:
                print('wrong:', error, flush=True)
            os._exit(0)
        connection.close()


def rounds(connection, first, last, size):
    for number in range(first, last):
        # Small ones, and now and then one of many rings.
        count = size if number % 7 == 6 else 1 + number * 37 % 900
        connection.sendall(struct.pack('>I', count) + pattern('up %d' % number, count))
        if take(connection, count) != pattern('down %d' % number, count):
            raise Wrong('round %d: other bytes came back' % number)


def client(address, port, count, size, way='block', file=None):
    connection = socket.create_connection((address, port))
    connection.settimeout(None)
    if way == 'epoll':
        connection = Waits(connection)
    half = count // 2
    rounds(connection, 0, half, size)
    if file:
        open(file, 'w').close()
    while file and os.path.exists(file):
        rounds(connection, half, half + 7, size)
        half += 7
    child = os.fork() if way == 'fork' else -1
    if child > 0:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    rounds(connection, half, half + count - count // 2, size)
    connection.shutdown(socket.SHUT_WR)
    if connection.recv(10):
        raise Wrong('more bytes than were sent')
    print('whole', flush=True)


def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == 'server':
        server(address, port)
    signal.alarm(60)  # silence ends the client by a signal
    try:
        client(address, port, int(sys.argv[4]), int(sys.argv[5]), *sys.argv[6:])
    except ConnectionError:
        print('reset', flush=True)
        sys.exit(3)
    except Wrong as error:
        print('wrong:', error, flush=True)
        sys.exit(1)


main()
