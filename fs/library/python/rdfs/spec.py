"""rdfs for fsspec: fsspec.open('rdfs://host[:port]/export/path', key_file=...), and so for pandas.

    import pandas
    pandas.read_csv('rdfs://node/data/table.csv', storage_options={'key_file': '/etc/rdfs/key'})

Storage options are the words of `rdfs -o` (key_file, require, deadline, ro=True ...), and `source` for a
directory that ssh reaches: fsspec.filesystem('rdfs', source='user@node:/srv'). Paths inside begin at the
export's root. An instance has one session, which its threads share.
"""
import shutil
import stat

from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

import rdfs

PROTOCOL = 'rdfs://'


def split_url(url):
    """'rdfs://host:1/data/a/b' as ('rdfs://host:1/data', '/a/b')."""
    host, _, rest = url[len(PROTOCOL):].partition('/')
    export, _, path = rest.lstrip('/').partition('/')
    if not host or not export:
        raise ValueError('%r names no export: write rdfs://HOST[:PORT]/EXPORT/PATH' % url)
    return PROTOCOL + host + '/' + export, '/' + path.strip('/')


def options_text(options):
    """As `-o` takes them: words between commas, a comma in a value behind a backslash."""
    words = []
    for name, value in options.items():
        if value is True:
            words.append(name)
        elif value is not False and value is not None:
            words.append('%s=%s' % (name, str(value).replace('\\', '\\\\').replace(',', '\\,')))
    return ','.join(words)


class RdfsFileSystem(AbstractFileSystem):
    protocol = 'rdfs'
    root_marker = '/'

    def __init__(self, source, queue_bytes=0, use_listings_cache=False, skip_instance_cache=False, asynchronous=False,
                 **options):
        super().__init__(use_listings_cache=use_listings_cache, skip_instance_cache=skip_instance_cache,
                         asynchronous=asynchronous)
        self.source = source
        self.export = rdfs.Export(source, options_text(options), queue_bytes)

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith(PROTOCOL):
            return split_url(path)[1]
        return '/' + path.strip('/')

    @staticmethod
    def _get_kwargs_from_urls(path):
        path = stringify_path(path)
        return {'source': split_url(path)[0]} if path.startswith(PROTOCOL) else {}

    def unstrip_protocol(self, name):
        path = self._strip_protocol(name)
        return self.source + path if self.source.startswith(PROTOCOL) else PROTOCOL + path.lstrip('/')

    def _describe(self, path, attributes):
        link = stat.S_ISLNK(attributes.mode)
        if link:
            try:
                attributes = self.export.stat(path)
            except OSError:
                pass  # it leads nowhere: what it is itself
        kinds = {stat.S_IFDIR: 'directory', stat.S_IFREG: 'file', stat.S_IFLNK: 'link'}
        return {'name': path, 'size': attributes.size, 'type': kinds.get(stat.S_IFMT(attributes.mode), 'other'),
                'islink': link, 'mode': attributes.mode, 'uid': attributes.uid, 'gid': attributes.gid,
                'nlink': attributes.nlink, 'ino': attributes.ino,
                'mtime': attributes.mtime + attributes.mtime_ns / 1e9,
                'created': attributes.btime + attributes.btime_ns / 1e9}

    def info(self, path, **_):
        path = self._strip_protocol(path)
        return self._describe(path, self.export.stat(path, follow=False))

    def ls(self, path, detail=True, **_):
        path = self._strip_protocol(path)
        own = self.info(path)
        if own['type'] != 'directory':
            found = [own]
        else:
            found = [self._describe(path.rstrip('/') + '/' + entry.name, entry.attributes)
                     for entry in self.export.list(path) if entry.attributes is not None]
        return found if detail else [one['name'] for one in found]

    def _open(self, path, mode='rb', block_size=None, autocommit=True, cache_options=None, **_):
        if not autocommit and ('r' not in mode or '+' in mode):
            raise NotImplementedError('rdfs has no transactions: what is written is in the file at once')
        size = block_size if isinstance(block_size, int) and block_size > 0 else 1 << 20
        return self.export.open(path, mode, buffering=size)

    def mkdir(self, path, create_parents=True, **_):
        path = self._strip_protocol(path)
        if create_parents:
            self.makedirs(self._parent(path), exist_ok=True)
        self.export.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        path = self._strip_protocol(path)
        if path == '/':
            if not exist_ok:
                raise FileExistsError(path)
            return
        try:
            self.export.mkdir(path)
        except FileNotFoundError:
            self.makedirs(self._parent(path), exist_ok=True)
            self.makedirs(path, exist_ok)
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise

    def rmdir(self, path):
        self.export.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        path = self._strip_protocol(path)
        try:
            self.export.unlink(path)
        except (IsADirectoryError, PermissionError):
            if not stat.S_ISDIR(self.export.stat(path, follow=False).mode):
                raise
            self.export.rmdir(path)

    def _rm(self, path):
        self.rm_file(path)

    def rm(self, path, recursive=False, maxdepth=None):
        for one in path if isinstance(path, list) else [path]:
            one = self._strip_protocol(one)
            if recursive and stat.S_ISDIR(self.export.stat(one, follow=False).mode):
                self.rm([one.rstrip('/') + '/' + entry.name for entry in self.export.list(one)], recursive=True)
                if one != '/':
                    self.export.rmdir(one)
            elif any(letter in one for letter in '*?[') and not self.exists(one):
                self.rm(self.glob(one), recursive)
            else:
                self.export.unlink(one)

    def mv(self, path1, path2, **_):
        self.export.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    mv_file = mv

    def _same_file(self, path1, path2):
        one = self.export.stat(path1)
        try:
            other = self.export.stat(path2)
        except FileNotFoundError:
            return False
        return (one.ino, one.btime, one.btime_ns) == (other.ino, other.btime, other.btime_ns)

    def cp_file(self, path1, path2, **_):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            return self.makedirs(path2, exist_ok=True)
        if self._same_file(path1, path2):  # opening it to write would empty it
            raise shutil.SameFileError('%r and %r are the same file' % (path1, path2))
        with self.open(path1) as source, self.open(path2, 'wb') as target:
            while piece := source.read(4 << 20):
                target.write(piece)

    def touch(self, path, truncate=True, **_):
        self.export.open(self._strip_protocol(path), 'wb' if truncate else 'ab', buffering=0).close()

    def created(self, path):
        return self.info(path)['created']

    def modified(self, path):
        return self.info(path)['mtime']

    def close(self):
        """Ends the session. fsspec keeps instances; this one is forgotten."""
        self.export.close()
        type(self)._cache.pop(self._fs_token, None)
