#!/usr/bin/env python3
"""Usage: library.py SOURCE KEY_FILE EXPORTED_DIRECTORY

The modules `rdfs` and `rdfs.spec`, as they are installed, against a real rdfsd whose directory is at hand. pandas
takes part where it is installed, and in ./check --full.
"""
import errno
import importlib.util
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
import unittest

import fsspec

import rdfs
import rdfs.pipe
from rdfs.spec import RdfsFileSystem, options_text, split_url

SOURCE, KEY, ROOT = sys.argv[1:]
OPTIONS = {'key_file': KEY, 'require': 'tcp'}


# A process that forks beside all that is open: a child that leaves, and one that connects by itself.
FORKS = '''
import multiprocessing, os, sys, threading
import fsspec, rdfs, rdfs.pipe
source, key = sys.argv[1:]
words = {'source': source, 'key_file': key, 'require': 'tcp'}
export = rdfs.Export(source, 'require=tcp,key_file=' + key)
file = export.open('dir/file')
receiver = rdfs.pipe.Receiver(0, 'sesame', 'require=tcp')
sender = rdfs.pipe.Sender('127.0.0.1', receiver.port, 'sesame', 'require=tcp')
sender.write(b'whole')
sender.flush()
fs = fsspec.filesystem('rdfs', **words)

def refused(call):
    try:
        call()
    except ValueError as error:
        return 'before the fork' in str(error)

def connects_anew():
    sys.exit(len(fsspec.filesystem('rdfs', **words).cat('/dir/file')) != 3_000_000)

child = os.fork()
if child == 0:
    if not all(map(refused, (export.list, lambda: export.transport, lambda: sender._pipe.transport(), receiver.finish))):
        os._exit(9)
    export.close()
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
child = multiprocessing.get_context('fork').Process(target=connects_anew)
child.start()
child.join()
assert child.exitcode == 0, child.exitcode
came = []
thread = threading.Thread(target=lambda: came.append(receiver.read()))
thread.start()
sender.finish()
thread.join()
assert came == [b'whole'], came
receiver.finish()
assert len(file.read()) == 3_000_000 == fs.info('/dir/file')['size']
export.close()
'''


def path(name):
    return os.path.join(ROOT, name)


def content(name):
    with open(path(name), 'rb') as file:
        return file.read()


class Bindings(unittest.TestCase):
    def setUp(self):
        self.export = rdfs.Export(SOURCE, 'key_file=' + KEY)
        self.addCleanup(self.export.close)

    def test_files(self):
        data = random.Random(1).randbytes(1_500_000)
        with self.export.open('made', 'wb') as file:
            file.write(data)
        self.assertEqual(content('made'), data)
        with self.export.open('made', 'r+b') as file:
            file.seek(1000)
            file.write(b'other')
            file.seek(-3, os.SEEK_END)
            self.assertEqual(file.read(), data[-3:])
        with self.export.open('made', 'ab') as file:
            file.write(b'end')
        data = data[:1000] + b'other' + data[1005:] + b'end'
        self.assertEqual(content('made'), data)
        with self.export.open('made', buffering=0) as file:
            piece = bytearray(100)
            self.assertEqual(file.pread_into(piece, len(data) - 10), 10)
            self.assertEqual(piece[:10], data[-10:])
            self.assertEqual(file.tell(), 0)
            with self.assertRaises(io.UnsupportedOperation):
                file.pwrite(b'x', 0)
        with self.assertRaises(ValueError):
            file.read(1)

    def test_names(self):
        self.export.mkdir('d')
        self.export.open('d/x', 'xb').close()
        with self.assertRaises(FileExistsError):
            self.export.open('d/x', 'xb')
        self.export.symlink('x', 'd/link')
        self.assertEqual(self.export.readlink('d/link'), 'x')
        self.assertEqual(sorted(entry.name for entry in self.export.list('d')), ['link', 'x'])
        self.export.rename('d/x', 'd/y')
        with self.assertRaises(FileNotFoundError) as raised:
            self.export.stat('d/x')
        self.assertIn("looking at 'd/x'", str(raised.exception))
        self.export.unlink('d/link')
        self.export.unlink('d/y')
        self.export.rmdir('d')
        self.assertFalse(os.path.exists(path('d')))

    def test_errors(self):
        with self.assertRaises(OSError) as raised:
            rdfs.Export(SOURCE, 'nonsense')
        self.assertEqual(raised.exception.errno, errno.EINVAL)
        self.assertIn('no such option', str(raised.exception))
        with self.assertRaises(PermissionError):
            rdfs.Export(SOURCE)  # no key
        self.export.close()
        with self.assertRaises(ValueError):
            self.export.list()

    def test_a_nul_cuts_nothing_off(self):
        self.export.open('kept', 'wb').close()
        bad, export = 'kept\0other', self.export
        for call in (lambda: export.unlink(bad), lambda: export.open(bad), lambda: export.open(bad, 'wb'),
                     lambda: export.stat(bad), lambda: export.list(bad), lambda: export.mkdir(bad),
                     lambda: export.rmdir(bad), lambda: export.rename(bad, 'x'), lambda: export.rename('kept', 'x\0y'),
                     lambda: export.symlink('x\0y', 'link'), lambda: export.symlink('x', 'link\0'),
                     lambda: export.readlink(bad), lambda: rdfs.Export(SOURCE + '\0', 'key_file=' + KEY),
                     lambda: rdfs.Export(SOURCE, 'key_file=' + KEY + '\0')):
            self.assertRaises(ValueError, call)
        self.assertTrue(os.path.exists(path('kept')))
        self.assertFalse(os.path.lexists(path('x')) or os.path.lexists(path('link')))
        export.unlink('kept')

    def test_a_fork_beside_what_is_open(self):
        ran = subprocess.run([sys.executable, '-c', FORKS, SOURCE, KEY], stdin=subprocess.DEVNULL, timeout=120,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(ran.returncode, 0, ran.stdout)

    def test_the_umask_counts(self):
        fs = fsspec.filesystem('rdfs', source=SOURCE, **OPTIONS)
        self.addCleanup(os.umask, os.umask(0o077))
        self.export.mkdir('own')
        self.export.open('own/file', 'wb').close()
        self.export.open('own/told', 'wb', permissions=0o644).close()
        fs.mkdir('/own/below')
        fs.touch('/own/touched')
        fs.pipe('/own/piped', b'content')
        modes = {name: os.stat(path('own/' + name)).st_mode & 0o777
                 for name in ('.', 'file', 'told', 'below', 'touched', 'piped')}
        self.assertEqual(modes, {'.': 0o700, 'file': 0o600, 'told': 0o644, 'below': 0o700, 'touched': 0o600,
                                 'piped': 0o600})
        shutil.rmtree(path('own'))

    def test_threads_share_an_export(self):
        failures = []

        def work(number):
            for i in range(20):
                name = 'thread-%d' % number
                with self.export.open(name, 'wb') as file:
                    file.write(b'%d' % i)
                if content(name) != b'%d' % i:
                    failures.append(name)
                self.export.unlink(name)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


class Pipes(unittest.TestCase):
    def receive(self, take, options='require=tcp'):
        """A Receiver's port, and a thread in which `take` has it; what it returned or raised is in .outcome."""
        receiver = rdfs.pipe.Receiver(0, 'sesame', options)

        def work():
            try:
                with receiver:
                    thread.outcome = take(receiver)
            except OSError as error:
                thread.outcome = error
        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join)
        return receiver.port, thread

    def test_large_and_small_pieces(self):
        data = random.Random(2).randbytes(5_000_001)
        port, thread = self.receive(lambda receiver: receiver.read())
        with rdfs.pipe.Sender('127.0.0.1', port, 'sesame', 'require=tcp') as sender:
            self.assertIn('tcp', sender.transport)
            for piece in (data[:7], data[7:100], data[100:3_000_000], bytearray(data[3_000_000:])):
                self.assertEqual(sender.write(piece), len(piece))
        thread.join()
        self.assertEqual(thread.outcome, data)

    def test_what_is_written_too_late_is_refused(self):
        port, thread = self.receive(lambda receiver: receiver.read())
        with rdfs.pipe.Sender('127.0.0.1', port, 'sesame', 'require=tcp') as sender:
            sender.write(b'whole')
            sender.finish()
            self.assertRaises(ValueError, sender.write, b'more')
        self.assertRaises(ValueError, sender.write, b'more')
        thread.join()
        self.assertEqual(thread.outcome, b'whole')

    def names(self, receiver):
        with tarfile.open(fileobj=receiver, mode='r|') as tar:
            return sorted(member.name for member in tar)

    def test_a_tar_that_leaves_something_over(self):
        port, thread = self.receive(self.names, 'encrypt')
        with rdfs.pipe.Sender('127.0.0.1', port, 'sesame', 'encrypt,compress') as sender:
            with tarfile.open(fileobj=sender, mode='w|', bufsize=1 << 20) as tar:
                tar.add(path('dir'), 'dir')
        thread.join()
        self.assertEqual(thread.outcome, ['dir', 'dir/file'])

    def test_the_module_s_example_of_a_sender(self):
        code = textwrap.dedent(re.findall(r'(?:^    .+\n)+', rdfs.pipe.__doc__, re.M)[1])
        port, thread = self.receive(self.names)
        code = code.replace("'node', 7000", "'127.0.0.1', %d" % port).replace("'dir'", "%r, 'dir'" % path('dir'))
        exec(code, {})
        thread.join()
        self.assertEqual(thread.outcome, ['dir', 'dir/file'])

    def test_what_breaks_off_is_no_end(self):
        port, thread = self.receive(lambda receiver: receiver.read())
        with self.assertRaises(KeyError):
            with rdfs.pipe.Sender('127.0.0.1', port, 'sesame') as sender:
                sender.write(b'part')
                raise KeyError
        thread.join()
        self.assertIsInstance(thread.outcome, OSError)

    def test_who_waits_for_a_sender_can_be_interrupted(self):
        waits = ('import signal, rdfs.pipe\n'
                 'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
                 'with rdfs.pipe.Receiver(0, "sesame") as receiver:\n'
                 '    print(receiver.port, flush=True)\n'
                 '    receiver.read()\n')
        with subprocess.Popen([sys.executable, '-c', waits], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            self.assertTrue(process.stdout.readline())
            time.sleep(0.3)  # by then it reads
            process.send_signal(signal.SIGINT)
            try:
                said = process.communicate(timeout=60)[1]
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        self.assertIn('KeyboardInterrupt', said)

    def test_a_wrong_key(self):
        port, thread = self.receive(lambda receiver: receiver.read())
        with self.assertRaises(PermissionError):
            rdfs.pipe.Sender('127.0.0.1', port, 'open')
        with rdfs.pipe.Sender('127.0.0.1', port, 'sesame') as sender:
            sender.write(b'whole')
        thread.join()
        self.assertEqual(thread.outcome, b'whole')


    def test_a_nul_cuts_nothing_off(self):
        self.assertRaises(ValueError, rdfs.pipe.Receiver, 0, 'ses\0ame')
        self.assertRaises(ValueError, rdfs.pipe.Receiver, 0, 'sesame', 'encrypt\0')
        self.assertRaises(ValueError, rdfs.pipe.Sender, '127.0.0.1\0', 1, 'sesame')
        self.assertRaises(ValueError, rdfs.pipe.Sender, '127.0.0.1', 1, 'ses\0ame')


class Fsspec(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fs = fsspec.filesystem('rdfs', source=SOURCE, **OPTIONS)

    def test_it_is_found_by_its_name(self):
        self.assertIs(fsspec.get_filesystem_class('rdfs'), RdfsFileSystem)
        with fsspec.open(SOURCE + '/table.csv', 'rt', **OPTIONS) as file:
            self.assertEqual(file.readline(), 'a,b\n')
        fs, inside = fsspec.core.url_to_fs(SOURCE + '/dir/file', **OPTIONS)
        self.assertIs(fs, self.fs)  # one session
        self.assertEqual(inside, '/dir/file')
        self.assertEqual(fs.unstrip_protocol(inside), SOURCE + '/dir/file')

    def test_reading(self):
        data = content('dir/file')
        self.assertEqual(self.fs.cat('/dir/file'), data)
        self.assertEqual(self.fs.cat_file('dir/file', start=1_000_000, end=1_000_010), data[1_000_000:1_000_010])
        with self.fs.open('dir/file', block_size=4096) as file:
            for offset in (2_999_990, 5, 1_234_567):
                file.seek(offset)
                self.assertEqual(file.read(20), data[offset:offset + 20])
        self.assertEqual(self.fs.info(SOURCE + '/dir/file')['size'], len(data))
        self.assertEqual(self.fs.ls('/dir', detail=False), ['/dir/file'])
        self.assertEqual(self.fs.ls('/dir/file')[0]['type'], 'file')
        self.assertIn('/dir/file', self.fs.find('/'))
        self.assertEqual(self.fs.glob('/d*/f*'), ['/dir/file'])
        self.assertFalse(self.fs.exists('/none'))
        with self.assertRaises(FileNotFoundError):
            self.fs.info('/none')

    def test_changing(self):
        fs = self.fs
        fs.makedirs('/m/n/o', exist_ok=True)
        with self.assertRaises(FileExistsError):
            fs.makedirs('/m/n/o')
        fs.pipe('/m/n/file', b'content')
        fs.mv('/m/n/file', '/m/moved')
        fs.cp_file('/m/moved', '/m/copy')
        self.assertEqual(content('m/copy'), b'content')
        os.link(path('m/copy'), path('m/hard'))
        os.symlink('copy', path('m/soft'))
        for name in ('copy', 'hard', 'soft'):
            with self.assertRaises(shutil.SameFileError):
                fs.cp_file('/m/copy', '/m/' + name)
        self.assertEqual(content('m/copy'), b'content')
        fs.put(path('dir/file'), '/m/put')
        self.assertEqual(content('m/put'), content('dir/file'))
        fs.touch('/m/touched')
        os.symlink('/m/n', path('m/link'))
        self.assertEqual(fs.info('/m/link')['type'], 'directory')
        self.assertTrue(fs.isdir('/m/link'))
        fs.rm('/m/moved')
        with self.assertRaises(OSError):
            fs.rm('/m/n')
        fs.rm('/m', recursive=True)
        self.assertFalse(os.path.exists(path('m')))

    def test_transactions(self):
        with self.assertRaises(NotImplementedError):
            with self.fs.transaction:
                self.fs.open('/uncommitted', 'wb')
        self.assertFalse(os.path.exists(path('uncommitted')))
        with self.fs.open('/dir/file', 'rb', autocommit=False) as file:
            self.assertEqual(file.read(3), content('dir/file')[:3])

    def test_pandas(self):
        if not importlib.util.find_spec('pandas') and os.environ.get('RDFS_CHECK_FULL') != '1':
            self.skipTest('pandas is not installed; ./check --full installs it')
        import pandas
        table = pandas.read_csv(SOURCE + '/table.csv', storage_options=OPTIONS)
        self.assertEqual(table['b'].sum(), 6)
        table.to_csv(SOURCE + '/written.csv', index=False, storage_options=OPTIONS)
        self.assertEqual(content('written.csv'), content('table.csv'))

    def test_words(self):
        self.assertEqual(split_url('rdfs://h:1/e'), ('rdfs://h:1/e', '/'))
        self.assertEqual(split_url('rdfs://[::1]/e//a/b/'), ('rdfs://[::1]/e', '/a/b'))
        for bad in ('rdfs://h', 'rdfs:///e/x'):
            self.assertRaises(ValueError, split_url, bad)
        self.assertEqual(options_text({'ro': True, 'plaintext': False, 'key_file': 'a,b', 'deadline': 5}),
                         'ro,key_file=a\\,b,deadline=5')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
