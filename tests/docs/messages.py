#!/usr/bin/env python3
"""Usage: messages.py [--self-test]

docs/troubleshooting.md has the sentences that need something done: all that are logged as errors, and every
status about a thing that is missing, a key, a limit or a version. And what it quotes is still said. Sentences
are compared by the pieces between what differs in them.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CODES = 'Unavailable|AuthenticationFailed|ResourceExhausted|VersionMismatch'
LITERAL = r'"((?:[^"\\\n]|\\.)*)"'
LITERALS = re.compile(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+')
STARTS = re.compile(r'(?:LogError\(|Code::k(?:%s),\s*(?:errno\w*,\s*|error,\s*)?(?:std::string\()?'
                    r'(?:fmt::format\(\s*)?)\s*(?=")' % CODES)


def sources():
    for folder in ('transport', 'fs', 'server', 'tools'):
        for ending in ('cc', 'h'):
            for path in glob.glob(os.path.join(ROOT, folder, '**', '*.' + ending), recursive=True):
                # What breaks connections on purpose speaks to tests only.
                if '/transport/fault/' not in path:
                    with open(path, encoding='utf-8') as file:
                        yield os.path.relpath(path, ROOT), re.sub(r'^\s*//.*$', '', file.read(), flags=re.M)


def joined(literals):
    return ''.join(re.findall(LITERAL, literals)).replace('\\"', '"')


def flat(text):
    return re.sub(r'\s+', ' ', text)


def pieces(sentence):
    """What stands between what differs, as far as it says something."""
    stripped = [flat(piece).strip(" :;,.'\"") for piece in re.split(r'\{[^}]*\}', sentence)]
    return [piece for piece in stripped if len(piece.split()) >= 2]


def missing(document, code):
    """Each sentence that needs something done and is in no row."""
    problems = []
    for path, text in code:
        for start in STARTS.finditer(text):
            sentence = joined(LITERALS.match(text, start.end()).group())
            # A row may quote a part only.
            if pieces(sentence) and not any(quote in piece or piece in quote
                                            for piece in pieces(sentence) for quote in quotes(document)):
                problems.append('%s: docs/troubleshooting.md has no row for "%s"' % (path, sentence))
    return problems


def quotes(document):
    """The longest piece of what each row quotes."""
    rows = re.findall(r'^\| "(.*?)" \|', document, re.M)
    return [max(row.split('…'), key=len).strip(" :;,.'") for row in rows]


def stale(document, code):
    said = flat(' '.join(joined(found) for _, text in code for found in LITERALS.findall(text)))
    return ['nothing says "%s" any more' % quote for quote in quotes(document) if quote not in said]


def main():
    code = list(sources())
    with open(os.path.join(ROOT, 'docs/troubleshooting.md'), encoding='utf-8') as file:
        document = file.read()
    if '--self-test' in sys.argv:
        problems = []
        if not missing(document.replace('| "no memory for TLS"', '| "none"'), code):
            problems.append('a row that is missing is not noticed')
        if not stale(document + '\n| "no such sentence" | |', code):
            problems.append('a sentence that nothing says is not noticed')
    else:
        problems = missing(document, code) + stale(document, code)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
