#!/usr/bin/env python3
"""Usage: commands.py BUILD_DIR [--without PROGRAM] [--self-test]

Each command's --help, its man page and its completions name the same options and subcommands, and the first two the
same defaults. Of each option the page says what --help begins with, and may say more behind it, and zsh no more than
that beginning. Each command and subcommand has --help, --version and -v. --without names a program that this build leaves out.
--self-test takes something away from each of them, one after the other, and wants every loss noticed.
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAMS = {
    'rdfs': 'fs/fuse/rdfs', 'mount.rdfs': 'fs/fuse/mount.rdfs', 'rdfsd': 'server/rdfsd',
    'rdcp': 'tools/copy/rdcp', 'rdsend': 'tools/pipe/rdsend', 'rdrecv': 'tools/pipe/rdrecv',
    'rdsock': 'tools/sock/rdsock', 'rdping': 'tools/rdping/rdping', 'rdinfo': 'tools/rdinfo/rdinfo',
}
SUBCOMMANDS = {
    'rdping': ['server', 'client'], 'rdfs': ['status', 'stats', 'top', 'watch'],
    'rdfsd': ['status', 'stats', 'top'],
}
FARHOST = 'a-host-of-the-test'
EVERY = {'--help', '--version', '-v'}
COLUMN = 30  # where --help says what an option is
LETTERS = 40  # of that, letters and digits: so many have to be in the page, too
OPTION = re.compile(r'^-{1,2}[A-Za-z0-9][A-Za-z0-9-]*$')


def read(path):
    with open(os.path.join(ROOT, path), encoding='utf-8') as file:
        return file.read()


def help_of(build, command, sub=None):
    words = [os.path.join(build, PROGRAMS[command])] + ([sub] if sub else []) + ['--help']
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout


def help_options(text):
    """The options of the section "Options:"."""
    found = set()
    section = re.search(r'^Options:\n((?:  .*\n)+)', text, re.M).group(1)
    for line in section.splitlines():
        declared = re.match(r'  (-\S+)', line)
        if declared:
            found |= {re.sub(r'[{=].*', '', name) for name in declared.group(1).split(',')}
    return found


def help_defaults(text):
    """What each option of --help, by its last name, or "PORT" is without it: "=7337" (newer CLI11: " [7337]") or
    "(default: all)"."""
    found = {}
    for entry in re.split(r'\n  (?=[-A-Z])', text.partition('\nOptions:')[0] + text.partition('\nOptions:')[2]):
        name = re.match(r'(-\S+|[A-Z]+ )', entry)
        value = re.search(r'\(default:? ([^)]+)\)|^.*(?:\]|\b[A-Z]+)(?:=| \[)([0-9.]+)\]? ?$|^-\S*\{([0-9.]+)\}', entry, re.M)
        if name and value:
            found[re.sub(r'[{=].*', '', name.group(1).strip().split(',')[-1])] = flat(value.group(value.lastindex))
    return found


def help_texts(text):
    """What --help says of each option, by all its names, the last one last."""
    section = re.search(r'^Options:\n((?:  .*\n)+)', text, re.M).group(1)
    found = {}
    for entry in re.split(r'^(?=  -)', section, flags=re.M)[1:]:
        names = [re.sub(r'[{=].*', '', name) for name in re.match(r'  (-\S+)', entry).group(1).split(',')]
        lines = entry.splitlines()
        # Behind a declaration that is too long for its column the text is in the next line.
        beside = len(lines) == 1 or lines[0][:COLUMN].endswith('  ')
        found[tuple(names)] = letters(' '.join([lines[0][COLUMN:] if beside else ''] + lines[1:]))
    return found


def letters(text):
    return re.sub(r'[^a-z0-9]', '', text.lower())


def flat(text):
    return re.sub(r'\s+', ' ', text)


def mount_defaults(text):
    """The same of the words of -o: "(30)", "(rw)"."""
    section = text[text.index('OPTIONS OF -o'):text.index('SIGNALS')]
    found = {}
    for entry in re.split(r'\n  (?=[a-z])', section)[1:]:
        if value := re.search(r'\((\d+|rw)\b', entry):
            found[re.match(r'[a-z_]+', entry).group()] = value.group(1)
    return found


def mount_words(text):
    """What rdfs --help says of -o: the word before '=' of each."""
    section = text[text.index('OPTIONS OF -o'):text.index('SIGNALS')]
    found = set()
    for line in section.splitlines()[1:]:
        declared = re.match(r'  ([a-z_]+(?:, [a-z]+)*)', line)
        if declared:
            found |= set(declared.group(1).split(', '))
    return found


def page_options(page, section):
    """What follows each .TP of a section: the options in it, without fonts and arguments."""
    text = re.search(r'^\.SH "?%s"?\n(.*?)(?=^\.SH|\Z)' % section, page, re.M | re.S).group(1)
    found = set()
    for heading in re.findall(r'^\.TP\n(.*)$', text, re.M):
        words = re.sub(r'^\.[A-Z]+ ', '', heading).replace('\\-', '-').replace('"', ' ')
        found |= {word for word in re.split(r'[\s,=\[\]]+', words) if OPTION.match(word)}
    return found


def page_texts(page, section):
    """The options of a section, by their last names, and the text of each."""
    text = re.search(r'^\.SH "?%s"?\n(.*?)(?=^\.SH|\Z)' % section, page, re.M | re.S).group(1).replace('\\-', '-')
    found = {}
    for heading, said in re.findall(r'^\.TP\n\.B[IR]? (.*)\n((?:.*\n)*?)(?=\.TP|\Z)', text, re.M):
        names = [name for name in re.split(r'[\s,=\[\]"]+', heading) if name]
        options = [name for name in names if OPTION.match(name)]
        found[options[-1] if options else names[0]] = said
    return found


def page_defaults(page, section, pattern):
    """The same of those options in whose text there is `pattern`: what that finds."""
    values = {name: re.search(pattern, said) for name, said in page_texts(page, section).items()}
    return {name: value.group(1) for name, value in values.items() if value}


def page_synopsis(page):
    """The words of it that are no placeholders."""
    text = re.search(r'^\.SH SYNOPSIS\n(.*?)(?=^\.SH)', page, re.M | re.S).group(1)
    return set(re.findall(r'\b[a-z]+\b', re.sub(r'\\f.', '', text.replace('\\-', '-'))))


def page_command_options(page, command):
    """Those in the heading that a page's section WATCHING gives a command, and those that all have."""
    text = re.search(r'^\.SH WATCHING\n(.*?)(?=^\.SH)', page, re.M | re.S).group(1).replace('\\-', '-')
    heading = re.search(r'^\.TP\n\.B %s\b(.*)$' % command, text, re.M).group(1)
    found = {word for word in re.split(r'[\s\[\]|]+', re.sub(r'\\f.', '', heading)) if OPTION.match(word)}
    return found | ({'-h', '--help', '--version', '-v'} if 'Each takes -h, --help, --version and -v,' in text else set())


def known_words():
    """What the code takes behind -o, but for what it ignores."""
    code = read('fs/fuse/command/options.cc')
    table = code[code.index('constexpr auto kWords'):code.index('#undef RDFS_FLAG')]
    return set(re.findall(r'^    \{"([a-z_]+)"', table, re.M))


def page_words(page):
    text = re.search(r'^\.SH "MOUNT OPTIONS"\n(.*?)(?=^\.SH)', page, re.M | re.S).group(1)
    found = set()
    for heading in re.findall(r'^\.TP\n\.B (.*)$', text, re.M):
        found |= {word.split('=')[0] for word in heading.split(', ')}
    return found


def bash_words(script, line):
    """What bash offers behind `line`, where there are no files, and FARHOST is the one host."""
    words = ' '.join("'%s'" % word for word in line)
    run = script + '\ncompopt() { :; }\nCOMP_WORDS=(%s) COMP_CWORD=%d\n_rdfs %s\nprintf "%%s\\n" "${COMPREPLY[@]}"\n' % (
        words, len(line) - 1, line[0])
    with tempfile.TemporaryDirectory() as empty, tempfile.NamedTemporaryFile('w') as hosts:
        print('192.0.2.1', FARHOST, file=hosts, flush=True)
        return set(subprocess.run(['bash', '-c', run], capture_output=True, text=True, check=True, cwd=empty,
                                  env={**os.environ, 'HOSTFILE': hosts.name}, timeout=20).stdout.split())


def zsh_commands(script, command):
    """The words that it offers as the first one, for rdping in each of its places."""
    if command == 'rdping':
        section = script[script.index('_rdfs_rdping() {'):]
    else:
        section = re.search(r'^    %s\)\n(.*?);;' % command, script, re.M | re.S).group(1)
    return [set(words.split()) for words in re.findall(r"'1:[^'(]*(?:\(|compadd )([a-z ]+)[)}]", section)]


def zsh_options(script, command, sub=None):
    """Each option that it offers, and the text of that; one that is there twice also as "OPTION twice"."""
    if sub:
        function = '_rdfs_rdping() {' if command == 'rdping' else '_rdfs_watching() {'
        script, command = script[script.index(function):], sub
    elif command == 'rdping':
        script, command = script[script.index('_rdfs_rdping() {'):], r'\*'
    section = re.search(r'^    %s\)\n(.*?);;' % command, script, re.M | re.S).group(1)
    offers = re.findall(r"""^ +['"]\*?(-[^\[=]+)=?\[([^\]]*)\]""", section, re.M)
    options = [option for option, _ in offers]
    return dict(offers) | {'%s twice' % option: '' for option in options if options.count(option) > 1}


def zsh_words(script):
    section = script[script.index('_values'):script.index('\n}\n')]
    return set(re.findall(r"""['"]([a-z_]+)[\['"]""", section)) - {'mount'}


class Check:
    def __init__(self, build, programs):
        self.build = build
        self.programs = programs
        self.problems = []

    def same(self, what, wanted, got):
        if missing := sorted(wanted - got):
            self.problems.append('%s lacks %s' % (what, ' '.join(missing)))
        if extra := sorted(got - wanted):
            self.problems.append('%s has %s, which --help does not' % (what, ' '.join(extra)))

    def run(self, pages, bash, zsh):
        for command, path in self.programs.items():
            if os.path.exists(os.path.join(self.build, path)):
                self.command(command, pages[command], bash, zsh)
                self.subcommands(command, pages[command], bash, zsh)
            else:
                self.problems.append('%s is not built' % command)
        text = help_of(self.build, 'rdfs')
        self.defaults('rdfs.1, MOUNT OPTIONS', mount_defaults(text),
                      page_defaults(pages['rdfs'], 'MOUNT OPTIONS', r'\((\d+|rw)\b'))
        # --help leaves some of mount(8)'s words to the reader.
        also = {'nosuid', 'nodev', 'exec', 'atime'}
        words = mount_words(text) | also
        self.same('fs/fuse/command/options.cc, kWords', words, known_words())
        self.same('rdfs.1, MOUNT OPTIONS', words, page_words(pages['rdfs']))
        offered = {word.split('=')[0] for word in bash_words(bash, ['rdfs', '-o', ''])}
        self.same('bash completion of rdfs -o', words, offered)
        # As bash splits "-o ro,require=".
        self.same('bash completion of rdfs -o require=', {'verbs', 'shm', 'tcp'},
                  bash_words(bash, ['rdfs', '-o', 'ro,require', '=']))
        self.same('bash completion of rdfs -o require=s', {'shm'},
                  bash_words(bash, ['rdfs', '-o', 'ro,require', '=', 's']))
        self.same('bash completion of rdfs -o key_file=FILE,', {'FILE,read_ahead='},
                  bash_words(bash, ['rdfs', 'S', 'M', '-o', 'key_file', '=', 'FILE,read']))
        self.same('bash completion of rdfs -o key_file=FILE,idmap=user,', {'user,read_ahead='},
                  bash_words(bash, ['rdfs', '-o', 'key_file', '=', 'FILE,idmap', '=', 'user,read']))
        for command in ('rdfs', 'mount.rdfs', 'rdsend'):
            self.same('bash completion of hosts for %s' % command, {FARHOST},
                      bash_words(bash, [command, FARHOST[:-1]]))
        self.same('bash completion of rdfsd --export data=', {'/proc/self/cmdline'},
                  bash_words(bash, ['rdfsd', '--export', 'data', '=', '/proc/self/cmdline']))
        self.same('zsh completion of rdfs -o', words, zsh_words(zsh))
        return self.problems

    def defaults(self, what, wanted, got):
        self.same(what, {'%s, without it %s,' % each for each in wanted.items()},
                  {'%s, without it %s,' % each for each in got.items()})

    def texts(self, what, wanted, got):
        for names, said in wanted.items():
            if not letters(got.get(names[-1], '')).startswith(said[:LETTERS]):
                self.problems.append('%s says something else of %s than --help' % (what, names[-1]))

    def shorter(self, what, wanted, got):
        for names, said in wanted.items():
            for name in names:
                if not said.startswith(letters(got.get(name, ''))):
                    self.problems.append('%s says something else of %s than --help' % (what, name))

    def subcommands(self, command, page, bash, zsh):
        words = set(SUBCOMMANDS.get(command, []))
        if not words:
            return
        self.same('the SYNOPSIS of %s' % command, words, page_synopsis(page) & words)
        self.same('bash completion of %s, its first word,' % command, words,
                  bash_words(bash, [command, '']) - {FARHOST})
        offers = zsh_commands(zsh, command)
        for offered in offers or [set()]:
            self.same('zsh completion of %s, its first word,' % command, words, offered)

    def command(self, command, page, bash, zsh):
        said = subprocess.run([os.path.join(self.build, PROGRAMS[command]), '--version'], capture_output=True,
                              text=True, timeout=20)
        if said.returncode != 0 or not re.fullmatch(r'%s \d+\.\d+\.\d+\n' % re.escape(command), said.stdout):
            self.problems.append('%s --version does not say "%s" and its version' % (command, command))
        for sub in [None] + SUBCOMMANDS.get(command, []):
            name = command + (' ' + sub if sub else '')
            text = help_of(self.build, command, sub)
            wanted, texts = help_options(text), help_texts(text)
            if lacks := sorted(EVERY - wanted):
                self.problems.append('%s --help lacks %s' % (name, ' '.join(lacks)))
            if sub and command != 'rdping':
                told = page_command_options(page, name)
            else:
                told = page_options(page, sub.upper() + ' OPTIONS' if sub else 'OPTIONS')
            self.same('the man page of %s' % name, wanted, told)
            if not sub or command == 'rdping':
                defaults = help_defaults(text)
                if (port := defaults.pop('PORT', None)) and 'is %s unless given' % port not in page:
                    self.problems.append('the man page of %s does not say that PORT is %s' % (name, port))
                section = sub.upper() + ' OPTIONS' if sub else 'OPTIONS'
                self.defaults('the man page of %s' % name, defaults,
                              page_defaults(page, section, r'\(default:? ([^)]+)\)'))
                self.texts('the man page of %s' % name, texts, page_texts(page, section))
            self.same('bash completion of ' + name, wanted,
                      bash_words(bash, [command] + ([sub] if sub else []) + ['-']))
            offered = zsh_options(zsh, command, sub)
            self.same('zsh completion of ' + name, wanted, set(offered))
            self.shorter('zsh completion of ' + name, texts, offered)


def page_path(command):
    return 'docs/man/%s.%d' % (command, 8 if command in ('rdfsd', 'mount.rdfs') else 1)


def well_formed():
    problems = []
    for command in PROGRAMS:
        path = os.path.join(ROOT, page_path(command))
        said = subprocess.run(['groff', '-man', '-Tutf8', '-ww', '-z', path], capture_output=True,
                              text=True, timeout=20).stderr
        problems += ['%s: %s' % (path, line) for line in said.splitlines()]
    for shell, path in (('bash', 'rdfs.bash'), ('zsh', '_rdfs')):
        said = subprocess.run([shell, '-n', os.path.join(ROOT, 'packaging/completion', path)],
                              capture_output=True, text=True, timeout=20)
        if said.returncode != 0:
            problems.append('%s -n %s: %s' % (shell, path, said.stderr))
    return problems


def self_test(build, programs, pages, bash, zsh):
    losses = [
        (pages, bash.replace("echo ' watch'", "echo ''"), zsh),
        (pages, bash.replace('"server client"', '"server"'), zsh),
        (pages, bash, zsh.replace('compadd status stats top watch', 'compadd status stats top')),
        (pages, bash, zsh.replace("'1:command:(status stats top)'", "'1:command:(status stats)'")),
        (pages, bash, zsh.replace("'1:subcommand:(server client)'", "'1:subcommand:(server)'", 1)),
        ({**pages, 'rdfs': pages['rdfs'].replace('.B rdfs watch\n', '.B rdfs\n')}, bash, zsh),
        ({**pages, 'rdfsd': pages['rdfsd'].replace('.B rdfsd top\n', '.B rdfsd\n')}, bash, zsh),
        ({**pages, 'rdfs': pages['rdfs'].replace('included (30)', 'included (60)')}, bash, zsh),
        ({**pages, 'rdfsd': pages['rdfsd'].replace('(default 40)', '(default 20)')}, bash, zsh),
        ({**pages, 'rdsend': pages['rdsend'].replace('(default 10)', '')}, bash, zsh),
        ({**pages, 'rdsend': pages['rdsend'].replace('(default 3)', '(default 19)')}, bash, zsh),
        ({**pages, 'rdping': pages['rdping'].replace('(default 64)', '(default 8)')}, bash, zsh),
        ({**pages, 'rdping': pages['rdping'].replace('7339', '7337')}, bash, zsh),
        ({**pages, 'rdinfo': pages['rdinfo'].replace('7337', '7339')}, bash, zsh),
        ({**pages, 'rdcp': pages['rdcp'].replace('Copy what symlinks lead to', 'Copy symlinks')}, bash, zsh),
        ({**pages, 'rdfsd': pages['rdfsd'].replace('Serve one client over', 'Serve one')}, bash, zsh),
        ({**pages, 'rdping': pages['rdping'].replace('Of each measurement', 'Of all measurements')}, bash, zsh),
        ({**pages, 'mount.rdfs': pages['mount.rdfs'].replace('mount nothing', 'mount')}, bash, zsh),
        ({**pages, 'rdcp': pages['rdcp'].replace('.BI \\-\\-port', '.BI \\-\\-ports')}, bash, zsh),
        ({**pages, 'rdfs': pages['rdfs'].replace('.B deadline=', '.B deadlines=')}, bash, zsh),
        (pages, bash.replace('--verbs-port', ''), zsh),
        (pages, bash.replace('"-o -s -f', '"-o -f'), zsh),
        (pages, bash.replace('read_ahead=', ''), zsh),
        (pages, bash.replace('"-o "*,* | ', ''), zsh),
        (pages, bash.replace(' | "= "*,*)', ')'), zsh),
        (pages, bash.replace('--export\\ *)', '--exports)'), zsh),
        (pages, bash.replace('@(rdfs|mount.rdfs|rdsend)', '@(rdfs|mount.rdfs)'), zsh),
        ({**pages, 'rdfs': pages['rdfs'].replace('[\\fB\\-n \\fITURNS', '[\\fITURNS')}, bash, zsh),
        ({**pages, 'rdfsd': pages['rdfsd'].replace('Each takes', 'Some take')}, bash, zsh),
        (pages, bash.replace('"rdfs watch") echo "-h --help --version -v -o', '"rdfs watch") echo "-h --help --version -v'), zsh),
        (pages, bash, zsh.replace("'--json[One", "'--jason[One")),
        (pages, bash, zsh.replace("'--stdio[serve one client", "'--stdio[serve one program")),
        (pages, bash, zsh.replace("'-L[Copy what symlinks", "'-L[Copy the symlinks")),
        (pages, bash, zsh.replace("'async[", "'asink[")),
        (pages, bash, zsh.replace("'--sizes[", "'--sises[")),
        (pages, bash, zsh.replace("'-V[", "'--version[Print the version]' \\\n        '-V[")),
        (pages, bash, zsh.replace("'writeback[", "'write_back[").replace('"writeback[', '"wb[')),
    ]
    problems = ['loss %d is not noticed' % number for number, loss in enumerate(losses)
                if loss == (pages, bash, zsh) or not Check(build, programs).run(*loss)]
    if not Check(build, {**programs, 'rdcp': 'tools/copy/none'}).run(pages, bash, zsh):
        problems.append('a program that is not built is not noticed')
    EVERY.add('--no-such-option')
    if not Check(build, programs).run(pages, bash, zsh):
        problems.append('a program without one of the options that all have is not noticed')
    return problems


def main():
    build = os.path.abspath(sys.argv[1])
    pages = {command: read(page_path(command)) for command in PROGRAMS}
    bash, zsh = read('packaging/completion/rdfs.bash'), read('packaging/completion/_rdfs')
    programs = dict(PROGRAMS)
    if '--without' in sys.argv:
        del programs[sys.argv[sys.argv.index('--without') + 1]]
    if '--self-test' in sys.argv:
        problems = self_test(build, programs, pages, bash, zsh)
    else:
        problems = well_formed() + Check(build, programs).run(pages, bash, zsh)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
