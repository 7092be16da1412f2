#!/usr/bin/env python3
"""Usage: messages.py [--self-test]

Every sentence that a program can end with or log as an error or a warning is in docs/troubleshooting.md: in a row
of a table, or as one of a class of its section "The other sentences". And what the document quotes is still said.

A sentence is what stands in quotation marks at a Code::k*, or is given to one of HELPERS. A class is a bullet of
the section: the sentences of these codes, in these folders, that have one of the pieces which the bullet quotes.
So a new sentence needs a row, unless it speaks as its class does. (What FromErrno makes ends in an errno, which
the section has first.)
"""
import ast
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LITERAL = r'"((?:[^"\\\n]|\\.)*)"'
LITERALS = re.compile(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+')
# What takes a sentence without naming a code: it ends a program, or a Status is made of it.
# (BadSource, NoExport and NoHost fill a sentence that has a Code::k* and a row; what Malformed, Hostile, Unexpected
# and Impossible are given is what a broken peer said. A Note of an errno ends in that.)
HELPERS = ('LogError', 'LogWarn', 'Refuse', 'Refused', 'Wrong', 'Fail', 'No', 'Cannot', 'because', 'no', 'Failed', 'UsageError',
           'WithContext', 'BadValue', r'Note(?=\((?!errno))', 'WaitFor')
USAGE = ('Refuse', 'Wrong', 'Fail', 'no', 'kHint', 'BadValue')
# Why something cannot be used, beside that it cannot.
REASONS = r'\b(?:Viability|return)\s*\{\s*false,|\bOffer(?:\s+\w+)?\{|\boffer = \{'
# A variable that holds a sentence, which is one by its length.
HOLDS = (r'\b(?:constexpr|const)\s+(?:auto|std::string(?:_view)?|char(?:\s*\*(?:\s*const)?)?)\s+(?P<holds>\w+)(?:\[\])?'
         r'\s*(?=[={(])(?:=(?!=))?')
LEAST_HELD = 4
# Held texts that are none: help and what it lists, a script, what fills a sentence that has its row, what rdinfo
# prints.
NO_SENTENCES = {
    'transport/base/url_scheme.h': ('kSchemes',),
    'fs/fuse/command/options.cc': ('kWords', 'kIgnored', 'kDescription'), 'server/command/options.cc': ('kDescription', 'kFooter'),
    'tools/copy/command/options.cc': ('kAbout',), 'tools/pipe/command/options.cc': ('kAboutLevel',),
    'tools/pipe/library/options.cc': ('kForBoth', 'kForReceivers'),
    'tools/sock/preload/successor.cc': ('InterpreterOf',),
    'tools/copy/remote/own_binary.cc': ('kScript',), 'tools/copy/file/names.cc': ('why',),
    'tools/rdinfo/firewall.cc': ('kPorts',), 'tools/rdinfo/fact.h': ('kAdviceTitle',),
    'tools/sock/rdsock.cc': ('kDescription',),
}
# What CLI11 says of a command line, and we pass on; '|' is where it puts two pieces together.
CLI11 = ('A subcommand| is required', '{} is required', 'The following argument was not expected: {}',
         'The following arguments were not expected: {}', '{}: Value {} not in range {} to {}', '{}: {} not in {}',
         '{}: {} required {} missing', '{}: At Most {} required but received {}',
         '{}: {} unit not recognized.| Allowed values: {}', '{} excludes {}',
         '{}: Input is empty', '{}: Value {} could not be converted to {}',
         '{}: {} multiplied by {}| factor would cause number overflow. Use smaller value.', 'Could not convert: {} = {}')
CLI11_HEADERS = '/usr/include/CLI/*.hpp'
STARTS = re.compile(r'Code::(?P<code>k\w+),|\b(?P<helper>%s)\(|'
                    r'\b(?:(?:fmt::print|fprintf|fputs|Print)\((?=\s*(?:stderr|kFailed(?!, Status::FromErrno)),)|Say\()|'
                    r'(?P<set>\bkHint\b|\.reason\b|\bsentence_)\s*=(?!=)|(?P<reason>%s)|%s' %
                    ('|'.join(HELPERS), REASONS, HOLDS))
# Functions that return the sentence, and say so by their files.
RETURNS = ('tools/sock/rdsock.cc', 'tools/sock/preload/connection_meet.cc', 'fs/library/queue.cc', 'server/service.cc',
           'transport/verbs/errors.cc')
RETURN = re.compile(r'\breturn\s+(?:std::string\(|fmt::format\()?\s*(?=")')
# A bullet by the first piece that it quotes: the codes or helpers, and the files, that it speaks for.
CLASSES = {
    'the peer sent': (('kProtocolError',), r''),
    'went away': (('kDisconnected',), r''),
    'does not answer': (('kDeadlineExceeded', 'kDisconnected'), r''),
    'the local slice': (('kInvalidArgument', 'kBusy', 'kErrno', 'Refused', 'Fail', 'WithContext'),
                        r'transport/|fs/client/|tools/sock/ring|tools/copy/export/session'),
    'nothing is kept under this key': (('kInvalidArgument', 'kNotFound', 'kBusy', 'kErrno', 'kDisconnected', 'kDeadlineExceeded'),
                                       r'server/(supervisor/|service|record/|loop/)|'
                                       r'tools/(pipe/io/handover|copy/remote/)'),
    'OpenSSL could not': (('kInternal',), r''),
    'a NULL is': (('kInvalidArgument', 'kErrno', 'Refuse', 'return'), r'(fs|tools/pipe)/library/'),
    'exclude each other': (('kInvalidArgument', 'print', 'return') + USAGE,
                           r'tools/(?!sock/preload)|fs/(fuse|watch|library)/|server/(command/(options|config)|session/export)|'
                           r'transport/(base/watch_command|session/dial)'),
    'listening on port': (('print', 'return'), r'tools/|fs/watch/|server/main'),
    'begun anew': (('LogWarn',), r''),
}
# What only begins a sentence that is another's.
BEGINNINGS = ('the peer', '-e:', '--ssh', 'rdsend', 'rdrecv')
SECTION = '## The other sentences'


def sources():
    for folder in ('transport', 'fs', 'server', 'tools'):
        for ending in ('cc', 'h'):
            for path in glob.glob(os.path.join(ROOT, folder, '**', '*.' + ending), recursive=True):
                # What breaks connections on purpose speaks to tests only.
                if '/transport/fault/' not in path:
                    with open(path, encoding='utf-8') as file:
                        yield os.path.relpath(path, ROOT), re.sub(r'^\s*//.*$', '', file.read(), flags=re.M)
    for path in glob.glob(os.path.join(ROOT, 'fs/library/python/rdfs/*.py')):
        with open(path, encoding='utf-8') as file:
            yield os.path.relpath(path, ROOT), file.read()
    yield 'CLI11', ''.join('fmt::print(stderr, "%s");\n' % said.replace('|', '') for said in CLI11)


def cli11_says():
    """What is in CLI11 and is not said by it, where it is installed for all."""
    headers = [open(path, encoding='utf-8').read() for path in glob.glob(CLI11_HEADERS)]
    return ['CLI11 does not say "%s"' % piece for said in CLI11 for piece in re.split(r'\{\}|\|', said)
            if headers and not any(piece.strip(' :') in header for header in headers)]


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
    if path.endswith('.py'):
        yield from (('raise', bare(re.sub(r'%[rsd]', '{}', sentence))) for sentence in raised(text))
        return
    for start in STARTS.finditer(text):
        kind = (start['code'] or start['helper'] or start['set'] or (start['reason'] and 'reason') or
                (start['holds'] and 'holds') or 'print')
        end = end_of(text, start.end())
        # A helper that is given a whole Status, or a variable: that one's code is met by itself.
        if kind in HELPERS + ('holds',) and 'Code::k' in text[start.end():end]:
            continue
        for sentence in map(bare, said_at(text, start.end(), end)):
            if kind != 'holds' or is_held(path, start['holds'], sentence):
                yield kind, sentence
    if path in RETURNS:
        for start in RETURN.finditer(text):
            for sentence in said_at(text, start.end(), end_of(text, start.end())):
                if words(sentence) > 1:  # one alone is a name
                    yield 'return', bare(sentence)


def is_held(path, name, text):
    """Whether the text that a variable holds is a sentence, and no path, list or help."""
    return words(text) >= LEAST_HELD and not text.startswith('/') and name not in NO_SENTENCES.get(path, ())


def raised(text):
    """What the exceptions of a Python module say."""
    for node in ast.walk(ast.parse(text)):
        for part in node.exc.args if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) else ():
            part = part.left if isinstance(part, ast.BinOp) else part
            pieces = part.values if isinstance(part, ast.JoinedStr) else [part]
            said = [piece.value if isinstance(piece, ast.Constant) else '{}' for piece in pieces]
            if isinstance(part, ast.JoinedStr) or isinstance(said[0], str) and said[0] != '{}':
                yield ''.join(said)


def texts(path, text):
    """All that is in quotation marks."""
    if not path.endswith('.py'):
        return [joined(found) for found in LITERALS.findall(text)]
    return [node.value for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)]


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
    said = flat(' '.join(found for path, text in code for found in texts(path, text)))
    quotes = [part.strip(" :;,.'()") for quote in rows(document) for part in parts(quote)]
    problems = ['nothing says "%s" any more' % quote for quote in quotes if quote not in said]
    bullets = classes(document)
    problems += ['no bullet begins with "%s"' % first for first in CLASSES if first not in [b[0] for b in bullets]]
    problems += ['no class is that of the bullet "%s"' % b[0] for b in bullets if b[0] not in CLASSES]
    by_path = dict(code)
    problems += ['%s holds no %s any more' % (path, name) for path, names in NO_SENTENCES.items() for name in names
                 if not re.search(r'\b%s\b' % name, by_path.get(path, ''))]
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
    ('fs/fuse/command/mount_helper.cc', 'return Refuse("the wombat has eaten it");'),
    ('tools/copy/command/options.cc', 'return Wrong(first ? "give a DST" : "the wombat has eaten it");'),
    ('tools/x.cc', 'Say("rdcp: the wombat has eaten {}\\n", it);'),
    ('tools/x.cc', 'fprintf(stderr, "rdcp: the wombat has eaten it\\n");'),
    ('tools/sock/rdsock.cc', 'return "the wombat has eaten it";'),
    ('server/x.cc', 'LogError("the wombat has eaten {}", it);'),
    ('server/x.cc', 'LogWarn("{}: the wombat has eaten it", name);'),
    ('server/x.cc', 'return made.status().WithContext("the wombat has eaten it");'),
    ('transport/x.cc', 'offer.reason = "the wombat has eaten it";'),
    ('transport/x.cc', 'offer = {Kind::kShm, false, 0, "", "the wombat has eaten it"};'),
    ('transport/x.cc', 'Offer offer{Kind::kTcp, listens, 0, "", "the wombat has eaten it"};'),
    ('transport/x.cc', 'return {false, fmt::format("the wombat has eaten {}", it)};'),
    ('transport/x.cc', 'return Viability{false, "the wombat has eaten it"};'),
    ('transport/ssh/launch.cc', 'RDFS_RETURN_IF_ERROR(WaitFor(fd, POLLOUT, deadline, "the wombat has eaten it"));'),
    ('server/x.cc', 'constexpr std::string_view kWombat =\n    "the wombat has eaten it";'),
    ('server/x.cc', 'inline constexpr char kWombat[] = "the wombat has eaten it";'),
    ('transport/x.cc', 'const std::string late = fmt::format("the wombat has eaten {}", it);'),
    ('transport/x.cc', 'const std::string late("the wombat has eaten it");'),
    ('tools/copy/x.cc', 'Print(stderr, fmt::format("{}: the wombat has eaten it\\n", name));'),
    ('fs/fuse/command/daemon.cc', 'Print(kFailed, killed ? "stopped by a signal" : "the wombat has eaten it");'),
    ('transport/verbs/errors.cc', 'return fmt::format("the wombat has eaten {}", it);'),
    ('tools/copy/x.cc', 'report.Note("the wombat has eaten " + it);'),
    ('fs/fuse/command/options.cc', 'return BadValue(word, value, "the wombat has eaten it");'),
    ('fs/library/python/rdfs/x.py', 'raise OSError(22, "the wombat has eaten it")'),
    ('fs/library/python/rdfs/x.py', 'raise ValueError("%r: the wombat has eaten it" % it)'),
    ('fs/library/python/rdfs/x.py', 'raise ValueError(f"the wombat has eaten {it}")'),
)
CODES = ('Errno', 'InvalidArgument', 'NotFound', 'Busy', 'DeadlineExceeded', 'Unsupported', 'Disconnected',
         'ProtocolError', 'VersionMismatch', 'AuthenticationFailed', 'ResourceExhausted', 'Unavailable', 'Internal')


def self_test(document, code):
    problems = []
    for row in ('no memory for TLS', 'a lock was lost to a local process', 'The following argument was not expected',
                'not readable'):
        if not missing(document.replace('| "' + row, '| "none'), code):
            problems.append('a row that is missing is not noticed: ' + row)
    if not stale(document + '\n| "no such sentence" | |', code):
        problems.append('a sentence that nothing says is not noticed')
    if not stale(document.replace('"malformed"', '"malfermed"'), code):
        problems.append('a piece of a class that nothing says is not noticed')
    for path, line in [(path, line % each) for path, line in PLANTED for each in CODES] + list(PLANTED_HELPERS):
        if not missing(document, [(path, line)]):
            problems.append('%s: not noticed: %s' % (path, line))
    # A class is for its own codes and files.
    for path, line in (('tools/x.cc', 'Status(Code::kUnavailable, "the peer sent a malformed thing");'),
                       ('tools/x.cc', 'Status(Code::kInvalidArgument, "the local slice is eaten");'),
                       ('server/x.cc', 'LogError("{} has been begun anew", it);')):
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
        problems = missing(document, code) + stale(document, code) + cli11_says()
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
