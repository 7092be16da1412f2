#!/usr/bin/env python3
"""Usage: commands.py BUILD_DIR [--self-test]

Each command's --help, its man page and its completions name the same options. --self-test takes an option
away from each of them, one after the other, and wants every loss noticed.
"""
import os
import re
import subprocess
import sys

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


def page_command_options(page, command):
    """Those in the heading that a page's section WATCHING gives a command, and those that all have."""
    text = re.search(r'^\.SH WATCHING\n(.*?)(?=^\.SH)', page, re.M | re.S).group(1).replace('\\-', '-')
    heading = re.search(r'^\.TP\n\.B %s\b(.*)$' % command, text, re.M).group(1)
    found = {word for word in re.split(r'[\s\[\]|]+', re.sub(r'\\f.', '', heading)) if OPTION.match(word)}
    return found | ({'-h', '--help', '--version'} if 'Each takes -h, --help and --version.' in text else set())


def known_words():
    """What the code takes behind -o, but for what it ignores."""
    code = read('fs/fuse/options.cc')
    table = code[code.index('constexpr auto kWords'):code.index('#undef RDFS_FLAG')]
    return set(re.findall(r'^    \{"([a-z_]+)"', table, re.M))


def page_words(page):
    text = re.search(r'^\.SH "MOUNT OPTIONS"\n(.*?)(?=^\.SH)', page, re.M | re.S).group(1)
    found = set()
    for heading in re.findall(r'^\.TP\n\.B (.*)$', text, re.M):
        found |= {word.split('=')[0] for word in heading.split(', ')}
    return found


def bash_words(script, line):
    """What bash offers behind `line`."""
    words = ' '.join("'%s'" % word for word in line)
    run = script + '\ncompopt() { :; }\nCOMP_WORDS=(%s) COMP_CWORD=%d\n_rdfs %s\nprintf "%%s\\n" "${COMPREPLY[@]}"\n' % (
        words, len(line) - 1, line[0])
    return set(subprocess.run(['bash', '-c', run], capture_output=True, text=True, check=True,
                              timeout=20).stdout.split())


def zsh_options(script, command, sub=None):
    if sub:
        function = '_rdfs_rdping() {' if command == 'rdping' else '_rdfs_watching() {'
        script, command = script[script.index(function):], sub
    elif command == 'rdping':
        script, command = script[script.index('_rdfs_rdping() {'):], r'\*'
    section = re.search(r'^    %s\)\n(.*?);;' % command, script, re.M | re.S).group(1)
    return set(re.findall(r"""^ +['"]\*?(-[^\[=]+)=?\[""", section, re.M))


def zsh_words(script):
    section = script[script.index('_values'):script.index('\n}\n')]
    return set(re.findall(r"""['"]([a-z_]+)[\['"]""", section)) - {'mount'}


class Check:
    def __init__(self, build):
        self.build = build
        self.problems = []

    def same(self, what, wanted, got):
        if missing := sorted(wanted - got):
            self.problems.append('%s lacks %s' % (what, ' '.join(missing)))
        if extra := sorted(got - wanted):
            self.problems.append('%s has %s, which --help does not' % (what, ' '.join(extra)))

    def run(self, pages, bash, zsh):
        for command in [name for name, path in PROGRAMS.items()
                        if os.path.exists(os.path.join(self.build, path))]:
            self.command(command, pages[command], bash, zsh)
        text = help_of(self.build, 'rdfs')
        # --help leaves some of mount(8)'s words to the reader.
        also = {'nosuid', 'nodev', 'exec', 'atime'}
        words = mount_words(text) | also
        self.same('fs/fuse/options.cc, kWords', words, known_words())
        self.same('rdfs.1, MOUNT OPTIONS', words, page_words(pages['rdfs']))
        offered = {word.split('=')[0] for word in bash_words(bash, ['rdfs', '-o', ''])}
        self.same('bash completion of rdfs -o', words, offered)
        # As bash splits "-o ro,require=".
        self.same('bash completion of rdfs -o require=', {'verbs', 'shm', 'tcp'},
                  bash_words(bash, ['rdfs', '-o', 'ro,require', '=']))
        self.same('bash completion of rdfs -o require=s', {'shm'},
                  bash_words(bash, ['rdfs', '-o', 'ro,require', '=', 's']))
        self.same('zsh completion of rdfs -o', words, zsh_words(zsh))
        return self.problems

    def command(self, command, page, bash, zsh):
        for sub in [None] + SUBCOMMANDS.get(command, []):
            name = command + (' ' + sub if sub else '')
            wanted = help_options(help_of(self.build, command, sub))
            if sub and command != 'rdping':
                told = page_command_options(page, name)
            else:
                told = page_options(page, sub.upper() + ' OPTIONS' if sub else 'OPTIONS')
            self.same('the man page of %s' % name, wanted, told)
            if command == 'mount.rdfs':  # run by mount(8), typed by nobody
                continue
            self.same('bash completion of ' + name, wanted,
                      bash_words(bash, [command] + ([sub] if sub else []) + ['-']))
            self.same('zsh completion of ' + name, wanted, zsh_options(zsh, command, sub))


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


def self_test(build, pages, bash, zsh):
    losses = [
        ({**pages, 'rdcp': pages['rdcp'].replace('.BI \\-\\-port', '.BI \\-\\-ports')}, bash, zsh),
        ({**pages, 'rdfs': pages['rdfs'].replace('.B deadline=', '.B deadlines=')}, bash, zsh),
        (pages, bash.replace('--verbs-port', ''), zsh),
        (pages, bash.replace('read_ahead=', ''), zsh),
        ({**pages, 'rdfs': pages['rdfs'].replace('[\\fB\\-n \\fITURNS', '[\\fITURNS')}, bash, zsh),
        ({**pages, 'rdfsd': pages['rdfsd'].replace('Each takes', 'Some take')}, bash, zsh),
        (pages, bash.replace('"rdfs watch") echo "-h --help --version -o', '"rdfs watch") echo "-h --help --version'), zsh),
        (pages, bash, zsh.replace("'--json[One", "'--jason[One")),
        (pages, bash, zsh.replace("'async[", "'asink[")),
        (pages, bash, zsh.replace("'--sizes[", "'--sises[")),
        (pages, bash, zsh.replace("'writeback[", "'write_back[").replace('"writeback[', '"wb[')),
    ]
    return ['loss %d is not noticed' % number for number, loss in enumerate(losses)
            if not Check(build).run(*loss)]


def main():
    build = os.path.abspath(sys.argv[1])
    pages = {command: read(page_path(command)) for command in PROGRAMS}
    bash, zsh = read('packaging/completion/rdfs.bash'), read('packaging/completion/_rdfs')
    if '--self-test' in sys.argv:
        problems = self_test(build, pages, bash, zsh)
    else:
        problems = well_formed() + Check(build).run(pages, bash, zsh)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
