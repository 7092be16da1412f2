"""Streams of bytes between two programs, over RDMA, shared memory or TCP; the other end may be rdsend or rdrecv.

    import rdfs.pipe, tarfile
    with rdfs.pipe.Receiver(7000, 'sesame') as stream, tarfile.open(fileobj=stream, mode='r|') as tar:
        tar.extractall()

    import rdfs.pipe, tarfile
    with rdfs.pipe.Sender('node', 7000, 'sesame') as stream, tarfile.open(fileobj=stream, mode='w|') as tar:
        tar.add('dir')

A tar that is not closed before its Sender's block ends is not sent whole.
A key is any text, the same at both ends; it never travels. None: the option key_file. Options are rdfs_pipe_send's
and rdfs_pipe_listen's (rdfs.h): 'encrypt,timeout=10'. Whatever fails raises OSError with the errno and a sentence;
what breaks off raises, and is never taken for the end. A child after a fork cannot use what it has inherited, and does
not end it.
"""
import ctypes
import io
import os

from rdfs._library import Error, byref, c_text, library

__all__ = ['Receiver', 'Sender']

_PIECE = 1 << 20
_SLICE_MS = 200


class _Pipe:
    def __init__(self, name, *arguments):
        self.held = ctypes.c_void_p()
        self._process = os.getpid()
        error = Error()
        result = getattr(library, 'rdfs_pipe_' + name)(*arguments, byref(self.held), byref(error))
        if result < 0:
            raise OSError(-result, error.sentence.decode(errors='replace'))

    def call(self, name, *arguments):
        if not self.held:
            raise ValueError('I/O operation on closed pipe.')
        if os.getpid() != self._process:
            raise ValueError("the pipe was opened before the fork, and is the parent's")
        result = getattr(library, 'rdfs_pipe_' + name)(self.held, *arguments)
        if result < 0:
            raise OSError(-result, library.rdfs_pipe_sentence(self.held).decode(errors='replace'))
        return result

    def transport(self):
        text = ctypes.create_string_buffer(512)
        self.call('transport', text, len(text))
        return text.value.decode(errors='replace')

    def close(self):
        held, self.held = self.held, None
        if held and os.getpid() == self._process:
            library.rdfs_pipe_close(held)

    __del__ = close


def _text(value):
    return None if value is None else c_text(value.encode() if isinstance(value, str) else value)


class Sender:
    """To a receiver at `hosts`. Leaving the with block finishes the stream; an exception breaks it off."""

    def __init__(self, hosts, port, key=None, options=''):
        self._waiting = bytearray()  # small pieces, until they are worth a call
        self._pipe = _Pipe('send', _text(hosts), port, _text(key), _text(options))

    @property
    def transport(self):
        """What it goes over, and why not over something better."""
        return self._pipe.transport()

    def writable(self):
        return True

    def write(self, data):
        """All of it; how many bytes that were."""
        if not self._pipe.held:
            raise ValueError('I/O operation on closed pipe.')
        view = memoryview(data).cast('B')
        if view.nbytes < _PIECE:
            self._waiting += view
        if len(self._waiting) >= _PIECE or view.nbytes >= _PIECE:
            self.flush()
        if view.nbytes >= _PIECE:
            self._put(data if isinstance(data, bytes) else bytes(view) if view.readonly else view)
        return view.nbytes

    def _put(self, data):
        from_ = data if isinstance(data, bytes) else (ctypes.c_char * len(data)).from_buffer(data)
        self._pipe.call('write', from_, len(data))

    def flush(self):
        """What was written is on its way; only finish() says that it has come."""
        data, self._waiting = self._waiting, bytearray()
        if data:
            self._put(data)

    def finish(self):
        """That was all: returns when every receiver has confirmed it."""
        self.flush()
        self._pipe.call('finish')
        self.close()

    def close(self):
        """What is not finished has broken off, and the receivers are told so."""
        self._pipe.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None and self._pipe.held:
            self.finish()
        self.close()


class _Raw(io.RawIOBase):
    def __init__(self, pipe):
        self._pipe = pipe

    def readable(self):
        return True

    def readinto(self, buffer):
        view = memoryview(buffer).cast('B')
        if not view.nbytes:
            return 0
        to = (ctypes.c_char * view.nbytes).from_buffer(view)
        while True:  # in between the interpreter heeds signals
            try:
                return self._pipe.call('read_within', to, view.nbytes, _SLICE_MS)
            except BlockingIOError:
                pass

    def close(self):
        if not self.closed:
            super().close()
            self._pipe.close()


class Receiver(io.BufferedReader):
    """Listens on `port` (0: any, see .port) for one sender. Its end is only an end where all has come.

    Leaving the with block finishes the stream, also where a reader has left something over, as tarfile does; an
    exception, and close(), break off what has not been read to its end.
    """

    def __init__(self, port, key=None, options=''):
        pipe = _Pipe('listen', port, _text(key), _text(options))
        self.port = pipe.call('port')
        self._pipe = pipe
        super().__init__(_Raw(pipe), _PIECE)

    def finish(self):
        """Drops what is left; returns when the sender knows that all has come."""
        while self.read1(_PIECE):
            pass
        self._pipe.call('finish')
        self.close()

    def __exit__(self, kind, *_):
        if kind is None and not self.closed:
            self.finish()
        self.close()

    @property
    def transport(self):
        """What it goes over; nothing while no sender has come."""
        return self._pipe.transport()
