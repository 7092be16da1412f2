#!/usr/bin/env python3
"""Usage: security.py [--self-test]

SECURITY.md names tests, fuzzers and files that are there. "Suite.Case", "Suite.*", and ".Case" for another case of the
suite named before it in the same cell.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = re.compile(r'^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)', re.M)
NAMES = re.compile(r'(?<![\w/.])([A-Z]\w+)?\.([A-Z]\w+|\*)')


def known():
    cases = set()
    for path in glob.glob(os.path.join(ROOT, 'tests', '**', '*.cc'), recursive=True):
        with open(path, encoding='utf-8') as file:
            cases.update(CASES.findall(file.read()))
    return cases


def problems(text, cases):
    found = []
    suites = {suite for suite, _ in cases}
    for cell in re.split(r'[|\n]', text):
        suite = None
        for name, case in NAMES.findall(cell):
            suite = name or suite
            if case == '*' and suite not in suites or case != '*' and (suite, case) not in cases:
                found.append('no test %s.%s' % (suite, case))
    for fuzzer in re.findall(r'\bfuzz_([a-z_]+)', text):
        if not os.path.exists(os.path.join(ROOT, 'tests/fuzz', fuzzer + '.cc')):
            found.append('no fuzzer ' + fuzzer)
    for path in re.findall(r'`([a-z]+/[\w/.]+)`', text):
        if not os.path.exists(os.path.join(ROOT, path)):
            found.append('no file ' + path)
    return found


def self_test():
    cases = {('Suite', 'Case'), ('Suite', 'Other')}
    assert problems('| Suite.Case, .Other, Suite.* | `tests/docs` |', cases) == []
    for wrong in ('Suite.Gone', 'Suite.Case, .Gone', 'Gone.*', 'fuzz_gone', '`tests/gone/x.cc`'):
        assert len(problems(wrong, cases)) == 1, wrong


if __name__ == '__main__':
    if sys.argv[1:] == ['--self-test']:
        self_test()
        sys.exit(0)
    with open(os.path.join(ROOT, 'SECURITY.md'), encoding='utf-8') as page:
        wrong = problems(page.read(), known())
    print('\n'.join(wrong))
    sys.exit(1 if wrong else 0)
