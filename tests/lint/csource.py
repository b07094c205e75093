"""What the lint scripts share: C text without its comments and strings, the files of a tree, and how a finding is told.

Each script takes the tree's root as its only argument (default: the tree it stands in), prints FILE:LINE: MESSAGE for
each finding and exits 1 when there was one. tests/lint/selftest proves on samples that each of them can fail.
"""
import pathlib
import re
import sys

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def root():
    """The tree to look at."""
    if len(sys.argv) > 1:
        return pathlib.Path(sys.argv[1]).resolve()
    return pathlib.Path(__file__).resolve().parents[2]


def files(top, folders, suffixes):
    """The files of some folders of a tree, sorted; not the samples, which are wrong on purpose."""
    found = []
    for folder in folders:
        for path in sorted((top / folder).rglob('*')):
            if path.is_file() and path.suffix in suffixes and 'tests/lint/samples' not in path.as_posix():
                found.append(path)
    return found


def bare(text, keep_strings=False):
    """C text with comments (and, unless told, what is inside quotes) blanked; every line and column stays in place."""
    def blank(match):
        word = match.group(0)
        if word[0] == '/':
            return re.sub(r'[^\n]', ' ', word)
        return word if keep_strings else word[0] + ' ' * (len(word) - 2) + word[-1]
    return TOKEN.sub(blank, text)


def read(path):
    return path.read_text(encoding='utf-8', errors='replace')


def line_of(text, offset):
    return text.count('\n', 0, offset) + 1


class Findings:
    """Findings in order of place; done() tells them and ends the script."""

    def __init__(self, top):
        self.top = top
        self.lines = []

    def add(self, path, line, message):
        self.lines.append((path.relative_to(self.top).as_posix(), line, message))

    def done(self, looked_at):
        for path, line, message in sorted(set(self.lines)):
            print(f'{path}:{line}: {message}')
        if looked_at == 0:
            print(f'{self.top}: nothing to look at: the check proves nothing')
        sys.exit(1 if self.lines or looked_at == 0 else 0)
