#!/usr/bin/env python3
"""Usage: names.py [--self-test]

What the documents name is there: a path of ours in backquotes exists, `path:Name` is a name in that file, and so are those
of "`path` (`Name`, `Name`)". In
docs/verbs.md a `Class::Name` is one of the file named last, and a function of the RDMA libraries that it explains is
one that transport/verbs calls.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DOCUMENTS = ['CONTRIBUTING.md', 'README.md', 'ARCHITECTURE.md', 'server/README.md', 'fs/fuse/README.md',
             'tools/copy/README.md', 'tools/pipe/README.md'] + sorted(
    os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, 'docs/*.md')))
# What was called otherwise once, and is named for that.
FORMER = {'transport/handshake.*'}
FOLDERS = ('transport', 'fs', 'server', 'tools', 'tests', 'docs', 'cmake', 'packaging')
PATH = re.compile(r'^((?:%s)/[A-Za-z0-9_.*/-]*|CONTRIBUTING\.md|CHANGELOG\.md)(?::([A-Za-z0-9_:]+))?$' % '|'.join(FOLDERS))

NAMES_OF = re.compile(r'`([^`\s]+)`\s+\(((?:`[^`\n]+`[,\s]*(?:both ways\s*)?)+)')


def read(path):
    with open(os.path.join(ROOT, path), encoding='utf-8') as file:
        return file.read()


def has_name(text, name):
    """Every part of A::b is a word of the text, and the whole is where it is defined outside its class."""
    return all(re.search(r'\b%s\b' % part, text) for part in name.split('::'))


def problems_of(document, text):
    problems = []
    last = None
    called = '\n'.join(read(os.path.relpath(path, ROOT))
                       for path in glob.glob(os.path.join(ROOT, 'transport/verbs/*.[ch]*')))
    for token in re.findall(r'`([^`\n]+)`', text):
        token = token.split()[0].rstrip('.,')
        if match := PATH.match(token):
            path, name = match.groups()
            if 'NAME' in path or path in FORMER:
                continue
            if not glob.glob(os.path.join(ROOT, path)):
                problems.append('%s: there is no %s' % (document, path))
            elif name and not has_name(read(path), name):
                problems.append('%s: there is no %s in %s' % (document, name, path))
            last = path
        elif re.match(r'^(ibv|rdma)_[a-z_]+$', token) and document == 'docs/verbs.md':
            if not re.search(r'\b%s\(' % token, called):
                problems.append('%s: transport/verbs does not call %s' % (document, token))
        elif re.match(r'^[A-Z]\w+::\w+$', token) and document == 'docs/verbs.md' and last and os.path.isfile(os.path.join(ROOT, last)):
            if not has_name(read(last), token):
                problems.append('%s: there is no %s in %s' % (document, token, last))
    for path, names in NAMES_OF.findall(text):
        for name in re.findall(r'`(\w+(?:::\w+)*)`', names):
            if PATH.match(path) and os.path.isfile(os.path.join(ROOT, path)) and not has_name(read(path), name):
                problems.append('%s: there is no %s in %s' % (document, name, path))
    return problems


def main():
    if '--self-test' in sys.argv:
        lies = ['`transport/verbs/nothing.cc`', '`transport/verbs/cm.cc:CmChannel::Nothing`', '`ibv_nothing`',
                '`transport/verbs/cm.cc` and `CmChannel::Nothing`', '`transport/verbs/cm.cc` (`CmChannel`, `Nothing`)', '`docs/none*.md`']
        problems = ['%s is not noticed' % lie for lie in lies if not problems_of('docs/verbs.md', lie)]
    else:
        problems = [problem for document in DOCUMENTS for problem in problems_of(document, read(document))]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
