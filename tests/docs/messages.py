#!/usr/bin/env python3
"""Usage: messages.py [--self-test]

Every sentence that a program can end with or log as an error is in docs/troubleshooting.md: in a row of a table,
or as one of a class of its section "The other sentences". And what the document quotes is still said.

A sentence is what stands in quotation marks at a Code::k*, or is given to one of HELPERS. A class is a bullet of
the section: the sentences of these codes, in these folders, that have one of the pieces which the bullet quotes.
So a new sentence needs a row, unless it speaks as its class does. (What FromErrno makes ends in an errno, which
the section has first.)
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LITERAL = r'"((?:[^"\\\n]|\\.)*)"'
LITERALS = re.compile(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+')
# What takes a sentence without naming a code: it ends a program, or a Status is made of it.
# (BadSource, BadValue, NoExport and NoHost fill a sentence that has a Code::k* and a row; what Malformed, Hostile,
# Unexpected and Impossible are given is what a broken peer said.)
HELPERS = ('LogError', 'Refuse', 'Refused', 'Wrong', 'Fail', 'No', 'Cannot', 'because', 'no', 'Failed', 'UsageError',
           'WithContext')
USAGE = ('Refuse', 'Wrong', 'Fail', 'no', 'kHint')
STARTS = re.compile(r'Code::(?P<code>k\w+),|\b(?P<helper>%s)\(|\b(?:fmt::print|fprintf|fputs)\((?=\s*stderr,)|'
                    r'(?P<set>\bkHint\b|\.reason\b|\bsentence_)\s*=(?!=)' % '|'.join(HELPERS))
# Functions that return the sentence, and say so by their files.
RETURNS = ('tools/sock/rdsock.cc', 'tools/sock/preload/connection_meet.cc', 'fs/library/queue.cc', 'server/service.cc')
RETURN = re.compile(r'\breturn\s+(?:std::string\(|fmt::format\()?\s*(?=")')
# A bullet by the first piece that it quotes: the codes or helpers, and the files, that it speaks for.
CLASSES = {
    'the peer sent': (('kProtocolError',), r''),
    'went away': (('kDisconnected',), r''),
    'does not answer': (('kDeadlineExceeded', 'kDisconnected'), r''),
    'the local slice': (('kInvalidArgument', 'kBusy', 'kErrno', 'Refused', 'Fail', 'WithContext'),
                        r'transport/|fs/client/|tools/sock/ring|tools/copy/export/session'),
    'nothing is kept under this key': (('kInvalidArgument', 'kNotFound', 'kBusy', 'kErrno', 'kDisconnected'),
                                       r'server/(supervisor|intent_ring|loop|conn_lane)|'
                                       r'tools/(pipe/handover|copy/remote/)'),
    'OpenSSL could not': (('kInternal',), r''),
    'a NULL is': (('kInvalidArgument', 'kErrno', 'Refuse', 'return'), r'(fs|tools/pipe)/library/'),
    'exclude each other': (('kInvalidArgument', 'print', 'return') + USAGE,
                           r'tools/(?!sock/preload)|fs/(fuse|watch|library)/|server/(options|config|export)|'
                           r'transport/(base/watch_command|session/dial)'),
    'listening on port': (('print', 'return'), r'tools/|fs/watch/|server/main'),
}
# What only begins a sentence that is another's.
BEGINNINGS = ('the peer', '-e:', 'rdsend', 'rdrecv')
SECTION = '## The other sentences'


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


def end_of(text, at):
    """Where the brackets that are open at `at` close, or the statement ends."""
    depth = 0
    for token in re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|[][(){};]').finditer(text, at):
        if token.group() in '([{':
            depth += 1
        elif token.group() in ')]}':
            depth -= 1
        if depth < 0 or (token.group() == ';' and depth == 0):
            return token.start()
    return len(text)


def said_at(text, begin, end):
    """The sentences of an expression: "{}" for what differs, one for each way that it can go."""
    sentences, last, common = [], begin, ''
    for found in LITERALS.finditer(text, begin, end):
        between = text[last:found.start()]
        if sentences and re.search(r'(?<!:):(?!:)', between):
            sentences.append(common + joined(found.group()))
        else:
            said = sentences.pop() + '{}' if sentences else ''
            if '?' in between:
                common = said
            sentences.append(said + joined(found.group()))
        last = found.end()
    return sentences


def bare(sentence):
    sentence = re.sub(r'\\n|\\r|\\x1b\[K', ' ', sentence)
    sentence = re.sub(r'\{[^}]*\}', '{}', flat(sentence)).strip()
    # A program's own name comes first.
    return re.sub(r'^rd\w+: |; see [\w ={}]+ --help$', '', sentence)


def words(text):
    return len(re.findall(r"[\w'-]*[^\W\d_][\w'-]*", text.replace('{}', ' ')))


def said_in(path, text):
    """Each sentence of a file, and the code or helper that has it."""
    for start in STARTS.finditer(text):
        kind = start['code'] or start['helper'] or start['set'] or 'print'
        end = end_of(text, start.end())
        # A helper that is given a whole Status: that one's code is met by itself.
        if not start['helper'] or 'Code::k' not in text[start.end():end]:
            for sentence in said_at(text, start.end(), end):
                yield kind, bare(sentence)
    if path in RETURNS:
        for start in RETURN.finditer(text):
            for sentence in said_at(text, start.end(), end_of(text, start.end())):
                yield 'return', bare(sentence)


def rows(document):
    return re.findall(r'^\| "(.*?)" \|', document, re.M)


def parts(quote):
    """What a row quotes, between what differs."""
    return [part for part in (flat(part).strip() for part in quote.split('…')) if part]


def whole(part):
    """A pattern that has it, and no half words."""
    return r'(?<!\w)' * part[0].isalnum() + re.escape(part) + r'(?!\w)' * part[-1].isalnum()


def classes(document):
    """What each bullet of the section quotes in its bold beginning."""
    section = document.partition(SECTION)[2]
    beginnings = re.findall(r'^- \*\*(.*?)\*\*', section, re.M | re.S)
    bullets = [re.findall(r'"([^"]+)"', flat(bold).replace('…', '{}')) for bold in beginnings]
    return [quoted for quoted in bullets if quoted]


def in_row(sentence, patterns):
    """Whether a row has it: all that the row quotes, in this order, and enough of the sentence."""
    return any(pattern.search(sentence) and (length >= 4 or 2 * length >= words(sentence))
               for pattern, length in patterns)


def in_class(path, kind, sentence, bullets):
    for quoted in bullets:
        kinds, files = CLASSES.get(quoted[0], ((), 'x^'))
        if kind in kinds and re.match(files, path) and any(piece in sentence for piece in quoted):
            return True
    return False


def missing(document, code):
    """Each sentence that is in no row and of no class."""
    patterns = [(re.compile('.*'.join(whole(part) for part in parts(quote))), words(quote))
                for quote in rows(document)]
    bullets = classes(document)
    problems = []
    for path, text in code:
        for kind, sentence in said_in(path, text):
            # What only puts other sentences together has none of its own.
            own = words(sentence) and sentence not in BEGINNINGS
            if own and not in_row(sentence, patterns) and not in_class(path, kind, sentence, bullets):
                problems.append('%s: docs/troubleshooting.md has no row for "%s" (%s)' % (path, sentence, kind))
    return problems


def stale(document, code):
    said = flat(' '.join(joined(found) for _, text in code for found in LITERALS.findall(text)))
    quotes = [part.strip(" :;,.'()") for quote in rows(document) for part in parts(quote)]
    problems = ['nothing says "%s" any more' % quote for quote in quotes if quote not in said]
    bullets = classes(document)
    problems += ['no bullet begins with "%s"' % first for first in CLASSES if first not in [b[0] for b in bullets]]
    problems += ['no class is that of the bullet "%s"' % b[0] for b in bullets if b[0] not in CLASSES]
    own = [(path, kind, sentence) for path, text in code for kind, sentence in said_in(path, text)]
    problems += ['no sentence of its class says "%s" any more' % piece for quoted in bullets for piece in quoted
                 if not any(in_class(path, kind, sentence, [[quoted[0]]] if piece == quoted[0] else [])
                            or (piece in sentence and in_class(path, kind, sentence, [quoted]))
                            for path, kind, sentence in own)]
    return problems


# A sentence of each kind that nobody has described yet, and where it would stand.
PLANTED = (
    ('transport/x.cc', 'return Status(Code::k%s, "the wombat has eaten it");'),
    ('transport/x.cc', 'return {Code::k%s, errno, std::string("the wombat ") + name + " has eaten it"};'),
    ('tools/x.cc', 'return Status(Code::k%s, fmt::format("{}: eaten", name));'),
)
PLANTED_HELPERS = (
    ('fs/fuse/mount_helper.cc', 'return Refuse("the wombat has eaten it");'),
    ('tools/copy/options.cc', 'return Wrong(first ? "give a DST" : "the wombat has eaten it");'),
    ('tools/x.cc', 'fmt::print(stderr, "rdcp: the wombat has eaten {}\\n", it);'),
    ('tools/sock/rdsock.cc', 'return "the wombat has eaten it";'),
    ('server/x.cc', 'LogError("the wombat has eaten {}", it);'),
    ('server/x.cc', 'return made.status().WithContext("the wombat has eaten it");'),
    ('transport/x.cc', 'offer.reason = "the wombat has eaten it";'),
)
CODES = ('Errno', 'InvalidArgument', 'NotFound', 'Busy', 'DeadlineExceeded', 'Unsupported', 'Disconnected',
         'ProtocolError', 'VersionMismatch', 'AuthenticationFailed', 'ResourceExhausted', 'Unavailable', 'Internal')


def self_test(document, code):
    problems = []
    if not missing(document.replace('| "no memory for TLS"', '| "none"'), code):
        problems.append('a row that is missing is not noticed')
    if not stale(document + '\n| "no such sentence" | |', code):
        problems.append('a sentence that nothing says is not noticed')
    if not stale(document.replace('"malformed"', '"malfermed"'), code):
        problems.append('a piece of a class that nothing says is not noticed')
    for path, line in [(path, line % each) for path, line in PLANTED for each in CODES] + list(PLANTED_HELPERS):
        if not missing(document, [(path, line)]):
            problems.append('%s: not noticed: %s' % (path, line))
    # A class is for its own codes and files.
    for path, line in (('tools/x.cc', 'Status(Code::kUnavailable, "the peer sent a malformed thing");'),
                       ('tools/x.cc', 'Status(Code::kInvalidArgument, "the local slice is eaten");')):
        if not missing(document, [(path, line)]):
            problems.append('%s: a class takes what is not its own: %s' % (path, line))
    return problems


def main():
    code = list(sources())
    with open(os.path.join(ROOT, 'docs/troubleshooting.md'), encoding='utf-8') as file:
        document = file.read()
    if '--self-test' in sys.argv:
        problems = self_test(document, code)
    else:
        problems = missing(document, code) + stale(document, code)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
