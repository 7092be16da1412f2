"""librdfs as ctypes sees it: structures and signatures of rdfs.h, and nothing else.

The library is looked for where the dynamic linker looks. Calls release the interpreter's lock.
"""
import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_uint, c_uint16, c_uint32, c_uint64, c_void_p

__all__ = ['Attributes', 'Completion', 'Error', 'byref', 'c_text', 'library']


def c_text(value):
    """Bytes as C takes a text: a NUL inside would cut it off, and it would name something else."""
    if b'\0' in value:
        raise ValueError('embedded null byte')
    return value


class Error(ctypes.Structure):
    _fields_ = [('number', c_int), ('sentence', ctypes.c_char * 508)]


class Attributes(ctypes.Structure):
    _fields_ = ([(name, c_uint64) for name in ('ino', 'size', 'blocks')] +
                [(name, c_int64) for name in ('atime', 'mtime', 'ctime', 'btime')] +
                [(name, c_uint32) for name in ('atime_ns', 'mtime_ns', 'ctime_ns', 'btime_ns',
                                               'mode', 'nlink', 'uid', 'gid')] +
                [('change', c_uint64)])


class Completion(ctypes.Structure):
    _fields_ = [('user', c_void_p), ('result', c_int64), ('file', c_void_p), ('listing', c_void_p),
                ('sentence', c_char_p)]


library = ctypes.CDLL('librdfs.so.0')

_P = c_void_p  # what rdfs.h leaves incomplete
for _name, _result, _arguments in (
        ('version', c_char_p, ()),
        ('connect', c_int, (c_char_p, c_char_p, c_size_t, POINTER(_P), POINTER(Error))),
        ('disconnect', c_int, (_P,)),
        ('transport', c_int, (_P, c_char_p, c_size_t)),
        ('queue_open', c_int, (_P, POINTER(_P), POINTER(Error))),
        ('queue_close', None, (_P,)),
        ('buffer_alloc', _P, (_P, c_size_t)),
        ('buffer_data', _P, (_P,)),
        ('buffer_size', c_size_t, (_P,)),
        ('buffer_free', None, (_P,)),
        ('poll', c_int, (_P, POINTER(Completion), c_int, c_int)),
        ('queue_fd', c_int, (_P,)),
        ('sentence', c_char_p, (_P,)),
        ('submit_pread', c_int, (_P, _P, _P, c_size_t, c_size_t, c_uint64, _P)),
        ('submit_pwrite', c_int, (_P, _P, _P, c_size_t, c_size_t, c_uint64, _P)),
        ('open', c_int, (_P, c_char_p, c_int, c_uint32, POINTER(_P))),
        ('close', c_int, (_P, _P)),
        ('pread', c_ssize_t, (_P, _P, _P, c_size_t, c_uint64)),
        ('pwrite', c_ssize_t, (_P, _P, _P, c_size_t, c_uint64)),
        ('fsync', c_int, (_P, _P, c_int)),
        ('truncate', c_int, (_P, _P, c_uint64)),
        ('fstat', c_int, (_P, _P, POINTER(Attributes))),
        ('stat', c_int, (_P, c_char_p, c_int, POINTER(Attributes))),
        ('list', c_int, (_P, c_char_p, POINTER(_P))),
        ('mkdir', c_int, (_P, c_char_p, c_uint32)),
        ('rmdir', c_int, (_P, c_char_p)),
        ('unlink', c_int, (_P, c_char_p)),
        ('rename', c_int, (_P, c_char_p, c_char_p, c_uint)),
        ('symlink', c_int, (_P, c_char_p, c_char_p)),
        ('readlink', c_ssize_t, (_P, c_char_p, c_char_p, c_size_t)),
        ('listing_count', c_size_t, (_P,)),
        ('listing_name', c_char_p, (_P, c_size_t)),
        ('listing_attributes', POINTER(Attributes), (_P, c_size_t)),
        ('listing_free', None, (_P,)),
        ('pipe_send', c_int, (c_char_p, c_uint16, c_char_p, c_char_p, POINTER(_P), POINTER(Error))),
        ('pipe_listen', c_int, (c_uint16, c_char_p, c_char_p, POINTER(_P), POINTER(Error))),
        ('pipe_port', c_int, (_P,)),
        ('pipe_transport', c_int, (_P, c_char_p, c_size_t)),
        ('pipe_write', c_ssize_t, (_P, _P, c_size_t)),
        ('pipe_read', c_ssize_t, (_P, _P, c_size_t)),
        ('pipe_read_within', c_ssize_t, (_P, _P, c_size_t, c_int)),
        ('pipe_finish', c_int, (_P,)),
        ('pipe_sentence', c_char_p, (_P,)),
        ('pipe_close', None, (_P,))):
    _function = getattr(library, 'rdfs_' + _name)
    _function.restype = _result
    _function.argtypes = _arguments
