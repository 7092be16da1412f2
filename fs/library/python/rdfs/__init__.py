"""Files of another machine over RDMA, shared memory or TCP, without a mount.

    import rdfs
    with rdfs.Export('rdfs://node/data', 'key_file=/etc/rdfs/key') as export:
        with export.open('dir/file') as file:
            file.seek(1 << 20)
            print(file.read(100))
        print([entry.name for entry in export.list('dir')])

Source and options are those of `rdfs SOURCE MNT -o OPTIONS`. Whatever fails raises OSError with the errno and a
sentence. Threads may share an export; their calls take turns. A child after a fork connects anew: there what it
has inherited raises ValueError, and closing it does nothing. What is made has the permissions that open() and
os.mkdir() give: the umask counts where none are named. `rdfs.spec` has the same as a file system for fsspec,
which pandas and others use; `rdfs.pipe` has streams from one program to another.
"""
import ctypes
import io
import os
import threading
from collections import namedtuple

from rdfs._library import Attributes, Error, byref, c_text, library

__all__ = ['Entry', 'Export', 'File', 'version']

Entry = namedtuple('Entry', 'name attributes')
Entry.__doc__ = 'A name of a directory, and an Attributes of it: None where it went while it was listed.'

NOFOLLOW = 0x100  # AT_SYMLINK_NOFOLLOW
_MODES = {'r': os.O_RDONLY, 'w': os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 'a': os.O_WRONLY | os.O_CREAT | os.O_APPEND,
          'x': os.O_WRONLY | os.O_CREAT | os.O_EXCL}


def _text(value):
    return c_text(os.fsencode(value))


def _umask():
    try:
        with open('/proc/self/status', 'rb') as status:
            for line in status:
                if line.startswith(b'Umask:'):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o077)  # for a moment, and in every thread
    os.umask(mask)
    return mask


def version():
    """The library's version."""
    return library.rdfs_version().decode()


def flags_of(mode):
    """open()'s mode as flags of open(2)."""
    kind = mode.replace('b', '').replace('+', '')
    if kind not in _MODES or sorted(mode) != sorted(set(mode)):
        raise ValueError('%r is no mode: give one of rb, wb, ab, xb, with a + to read and write' % mode)
    flags = _MODES[kind]
    return flags & ~os.O_ACCMODE | os.O_RDWR if '+' in mode else flags


class Export:
    """A session with a server, and one queue in it. Opens at most for the option deadline (30 s)."""

    def __init__(self, source, options='', queue_bytes=0):
        self._export, self._queue = ctypes.c_void_p(), ctypes.c_void_p()
        self._process = os.getpid()
        self._lock = threading.RLock()  # a sentence belongs to the call before it; a collected File closes itself
        error = Error()
        self._tell(library.rdfs_connect(_text(source), _text(options), queue_bytes, byref(self._export),
                                        byref(error)), error)
        result = library.rdfs_queue_open(self._export, byref(self._queue), byref(error))
        if result < 0:
            library.rdfs_disconnect(self._export)
        self._tell(result, error)
        self.source = source

    @staticmethod
    def _tell(result, error):
        if result < 0:
            raise OSError(-result, error.sentence.decode(errors='replace'))

    def is_inherited(self):
        """Whether a fork lies between: the session is the parent's, and a lock may be held for ever."""
        return os.getpid() != self._process

    def is_open(self):
        return bool(self._queue) and not self.is_inherited()

    def _must_be_ours(self):
        if self.is_inherited():
            raise ValueError('%s: the export was opened before the fork: connect in the child' % self.source)

    def call(self, name, *arguments):
        """A call of rdfs.h that waits, on this export's queue."""
        self._must_be_ours()
        with self._lock:
            if not self._queue:
                raise ValueError('%s: the export is closed' % self.source)
            result = getattr(library, 'rdfs_' + name)(self._queue, *arguments)
            if result < 0:
                raise OSError(-result, library.rdfs_sentence(self._queue).decode(errors='replace'))
            return result

    @property
    def transport(self):
        """What it goes over, and why not over something better."""
        self._must_be_ours()
        text = ctypes.create_string_buffer(512)
        library.rdfs_transport(self._export, text, len(text))
        return text.value.decode(errors='replace')

    def close(self):
        """Ends the session; files that are open are of no use any more."""
        if self.is_inherited():
            return
        with self._lock:
            queue, export, self._queue, self._export = self._queue, self._export, None, None
            if queue:  # a File that is collected meanwhile finds the export closed
                library.rdfs_queue_close(queue)
                library.rdfs_disconnect(export)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, '_queue', None):
            self.close()

    def open(self, path, mode='rb', permissions=None, buffering=io.DEFAULT_BUFFER_SIZE):
        """A file in binary mode, as open() gives it; buffering=0: a File itself."""
        raw = File(self, path, mode, permissions)
        if buffering == 0:
            return raw
        if '+' in mode:
            return io.BufferedRandom(raw, buffering)
        return (io.BufferedReader if raw.readable() else io.BufferedWriter)(raw, buffering)

    def stat(self, path, follow=True):
        """Attributes: size, mode, mtime, mtime_ns ..."""
        attributes = Attributes()
        self.call('stat', _text(path), 0 if follow else NOFOLLOW, byref(attributes))
        return attributes

    def list(self, path=''):
        """Every Entry of a directory, in no order."""
        listing = ctypes.c_void_p()
        self.call('list', _text(path) or b'/', byref(listing))
        try:
            return [self._entry(listing, i) for i in range(library.rdfs_listing_count(listing))]
        finally:
            library.rdfs_listing_free(listing)

    @staticmethod
    def _entry(listing, index):
        found = library.rdfs_listing_attributes(listing, index)
        attributes = Attributes.from_buffer_copy(found.contents) if found else None
        return Entry(os.fsdecode(library.rdfs_listing_name(listing, index)), attributes)

    def mkdir(self, path, mode=None):
        self.call('mkdir', _text(path), 0o777 & ~_umask() if mode is None else mode)

    def rmdir(self, path):
        self.call('rmdir', _text(path))

    def unlink(self, path):
        self.call('unlink', _text(path))

    def rename(self, old, new):
        """As os.rename: what is at `new` is replaced."""
        self.call('rename', _text(old), _text(new), 0)

    def symlink(self, target, path):
        self.call('symlink', _text(target), _text(path))

    def readlink(self, path):
        text = ctypes.create_string_buffer(4096)
        length = self.call('readlink', _text(path), text, len(text))
        return os.fsdecode(text.raw[:length])


class File(io.RawIOBase):
    """An open file, unbuffered. Its position is its own; pread and pwrite leave it alone."""

    def __init__(self, export, path, mode='rb', permissions=None):
        self._file = ctypes.c_void_p()
        self._export = export
        self._flags = flags_of(mode)
        self._position = 0
        if permissions is None:
            permissions = 0o666 & ~_umask() if self._flags & os.O_CREAT else 0
        export.call('open', _text(path), self._flags, permissions, byref(self._file))
        self.name, self.mode = path, mode
        if self._flags & os.O_APPEND:
            self._position = self.size()

    def _open(self):
        if self.closed:
            raise ValueError('I/O operation on closed file.')
        return self._file

    def readable(self):
        return self._flags & os.O_ACCMODE != os.O_WRONLY

    def writable(self):
        return self._flags & os.O_ACCMODE != os.O_RDONLY

    def seekable(self):
        return True

    def size(self):
        attributes = Attributes()
        self._export.call('fstat', self._open(), byref(attributes))
        return attributes.size

    def pread_into(self, buffer, offset):
        """Fills a writable buffer from `offset` on; returns how many bytes, fewer only at the end of the file."""
        view = memoryview(buffer).cast('B')
        if not self.readable():
            raise io.UnsupportedOperation('not readable')
        if not view.nbytes:
            return 0
        to = (ctypes.c_char * view.nbytes).from_buffer(view)
        return self._export.call('pread', self._open(), to, view.nbytes, offset)

    def pwrite(self, data, offset):
        """Returns how many bytes were written, fewer only where there is no space."""
        if not self.writable():
            raise io.UnsupportedOperation('not writable')
        data = bytes(data)
        return self._export.call('pwrite', self._open(), data, len(data), offset)

    def readinto(self, buffer):
        count = self.pread_into(buffer, self._position)
        self._position += count
        return count

    def write(self, data):
        count = self.pwrite(data, self._position)
        self._position += count
        return count

    def seek(self, offset, whence=os.SEEK_SET):
        base = {os.SEEK_SET: lambda: 0, os.SEEK_CUR: lambda: self._position, os.SEEK_END: self.size}[whence]()
        if base + offset < 0:
            raise OSError(22, 'a position is not negative')
        self._position = base + offset
        return self._position

    def tell(self):
        return self._position

    def truncate(self, size=None):
        size = self._position if size is None else size
        self._export.call('truncate', self._open(), size)
        return size

    def fsync(self, data_only=False):
        """What was written is on the server's disk then."""
        self._export.call('fsync', self._open(), data_only)

    def close(self):
        if not self.closed:
            super().close()
            # With the export, it was closed already.
            if self._file and self._export.is_open():
                self._export.call('close', self._file)
