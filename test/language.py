#!/usr/bin/env python3
"""The rules of docs/GLOSSARY.md that a script can check: retired words in names and prose, sentences
that begin with a relative pronoun, static functions of one word, names of files, and comments that
name a file which is not there.

  test/language.py [ROOT]        judge ROOT (default: this repository)
  test/language.py --self-test   show, on a small bad tree, that each rule can fail

test/retired.txt lists the words. A word may stay in backquotes, where a text quotes it.
"""
import collections
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOKEN = re.compile(r'(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<string>"(?:\\.|[^"\\\n])*")|'
                   r"(?P<char>'(?:\\.|[^'\\\n])*')|(?P<name>[A-Za-z_]\w*)", re.S)
FOLDERS = ('src', 'include', 'proto', 'test', 'docs', 'scripts', 'bench', 'examples', 'python')
# Files that quote the words which they retire.
EXEMPT = ('docs/GLOSSARY.md', 'test/retired.txt', 'test/language.py')
METAPHORS = ('keeper', 'courier', 'lessee', 'comeback', 'greeting', 'tenure', 'sponsor', 'parcel', 'reach',
             'origin', 'due', 'lives', 'book', 'beside', 'meet', 'back', 'ear', 'how', 'greet')


def retired(path):
    rules = {'prose': [], 'name': []}
    for line in open(path, encoding='utf-8'):
        if line.startswith('#') or not line.strip():
            continue
        place, pattern, instead = re.match(r'(\w+)\s+((?:\\ |\S)+)\s+(.*\S)', line).groups()
        rules[place].append((pattern, instead))
    prose = [(re.compile(r'\b(?:%s)\b' % p, re.I), i) for p, i in rules['prose']]
    names = [(re.compile(r'(?:%s)' % p), i) for p, i in rules['name']]
    return prose, names


def sentences_without_actor(text):
    """Offsets of sentences that begin with Who, Whoever, What or That which and are no questions."""
    for found in re.finditer(r'(?:\A|[.:;!?]\s|\n\s*(?:[-*|>]|\d+\.)\s+|\n\s*\n\s*|\|\s*)\W{0,3}'
                             r'(?=(Who|Whoever|What|That which)\b)', text):
        end = re.search(r'[.?!|;]|\Z', text[found.end():])
        if end.group(0) != '?':
            yield found.end(), found.group(1)


class Judge:
    def __init__(self, root):
        self.root = root
        self.prose, self.names = retired(os.path.join(HERE, 'retired.txt'))
        self.bad = []

    def complain(self, path, text, offset, says):
        self.bad.append('%s:%d: %s' % (path, text.count('\n', 0, offset) + 1, says))

    def read_prose(self, path, whole, start, text, sentences=True):
        plain = re.sub(r'`[^`\n]*`', lambda m: ' ' * len(m.group(0)), text)
        plain = re.sub(r'\bof course\b', '         ', plain)
        for pattern, instead in self.prose:
            for found in pattern.finditer(plain):
                self.complain(path, whole, start + found.start(),
                              'retired: "%s"; instead: %s' % (found.group(0), instead))
        if sentences:
            for offset, word in sentences_without_actor(plain):
                self.complain(path, whole, start + offset,
                              'a sentence that begins with "%s": name the actor' % word)

    def read_name(self, path, whole, offset, name):
        for part in name.split('_'):
            for pattern, instead in self.names:
                if pattern.fullmatch(part.lower()):
                    self.complain(path, whole, offset, 'retired: %s (%s); instead: %s'
                                  % (part, name, instead))

    def file_names(self, path, whole, start, text):
        """A comment that names a file of the tree which is not there."""
        for found in re.finditer(r'(?<![\w.*<>-])(?:\w+/)*([a-z0-9_]+\.[ch])(?!\w|\.\w)', text):
            if found.group(1) not in self.basenames:
                self.complain(path, whole, start + found.start(), 'no such file: %s' % found.group(0))

    def c_file(self, path, text):
        seen = set()
        for token in TOKEN.finditer(text):
            if token.group('comment'):
                body = re.sub(r'(?m)^(\s*)\*', r'\1 ', token.group(0)[2:].replace('*/', '  '))
                self.read_prose(path, text, token.start() + 2, body)
                self.file_names(path, text, token.start() + 2, body)
            elif token.group('string'):
                self.read_prose(path, text, token.start(), token.group(0), sentences=False)
            elif token.group('name') and token.group(0) not in seen:
                seen.add(token.group(0))
                self.read_name(path, text, token.start(), token.group(0))
        if path.endswith('.c'):
            for found in re.finditer(r'(?m)^static [^;={}()]*?\b([a-z0-9]+)\([^;]*?\)\n\{', text):
                self.complain(path, text, found.start(),
                              'a static function of one word: %s; a verb and an object' % found.group(1)) if found.group(1) not in ('setup', 'teardown', 'main') else None

    def script(self, path, text):
        for found in re.finditer(r'(?m)^\s*#(?!!)(.*(?:\n\s*#.*)*)', text):
            body = re.sub(r'(?m)^(\s*)#', r'\1 ', found.group(1))
            self.read_prose(path, text, found.start(1), body)

    def proto(self, path, text):
        for found in re.finditer(r'//(.*(?:\n\s*//.*)*)', text):
            self.read_prose(path, text, found.start(1), re.sub(r'(?m)^(\s*)//', r'\1  ', found.group(1)))

    def document(self, path, text):
        blocks = re.sub(r'(?ms)^```.*?^```', lambda m: re.sub(r'[^\n]', ' ', m.group(0)), text)
        self.read_prose(path, blocks, 0, blocks)

    def judge(self):
        basenames = collections.defaultdict(list)
        self.basenames = {os.path.basename(path) for path in files(self.root)}
        for path in files(self.root):
            if path in EXEMPT or '/corpus/' in path:
                continue
            base, end = os.path.splitext(os.path.basename(path))
            if end == '.c':
                basenames[base].append(path)
            if end in ('.c', '.h') and any(w in METAPHORS for w in base.split('_')):
                self.bad.append('%s:1: a file named after a metaphor' % path)
            reads = {'.c': self.c_file, '.h': self.c_file, '.sh': self.script, '.py': self.script,
                     '.awk': self.script, '.proto': self.proto, '.md': self.document,
                     '.job': self.script, '.cluster': self.script}.get(end)
            if path == 'run':
                reads = self.script
            if reads:
                with open(os.path.join(self.root, path), encoding='utf-8') as f:
                    reads(path, f.read())
        for base, paths in basenames.items():
            for path in paths[1:]:
                self.bad.append('%s:1: %s has the same name' % (path, paths[0]))


def files(root):
    tops = [os.path.join(root, f) for f in FOLDERS if os.path.isdir(os.path.join(root, f))]
    for top in tops:
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                yield os.path.relpath(os.path.join(folder, name), root)
    for name in ('README.md', 'run', 'CMakeLists.txt'):
        if os.path.isfile(os.path.join(root, name)):
            yield name


# Each rule: a file, its text, and the complaint; None: there must be none.
PLANTED = (
    ('src/coll/parcel.c', 'int n;\n', 'metaphor'),
    ('src/coll/a.c', '/* The driver sends the newcomer a view. */\n', 'retired: "newcomer"'),
    ('src/coll/a.c', '/* Of course the driver sends the joiner a view. */\n', None),
    ('src/coll/a.c', '/* Who leaves sends a message. */\n', 'begins with "Who"'),
    ('src/coll/a.c', '/* A step.\n *\n * Whoever leaves sends a message. */\n', 'begins with "Whoever"'),
    ('src/coll/a.c', 'int x; /* counts; what is lost is not counted. What is late is. */\n',
     'begins with "What"'),
    ('src/coll/a.c', '/* It sends `what` it has. */\n', None),
    ('src/coll/a.c', 'puts("the run goes on");\n', 'retired: "goes on"'),
    ('src/coll/a.c', 'int course;\n', 'retired: course'),
    ('src/coll/a.c', '/* See coll/gone.h. */\n', 'no such file: coll/gone.h'),
    ('src/coll/a.c', '/* See a.c. */\n', None),
    ('src/coll/a.c', 'struct mpca_how x;\n', 'retired: how'),
    ('src/coll/a.c', 'static int take(int n)\n{\n}\n', 'one word: take'),
    ('src/coll/a.c', 'static int take_snapshot(int n)\n{\n}\n', None),
    ('src/coll/a_test.c', 'static int setup(void **state)\n{\n}\n', None),
    ('docs/A.md', 'The run resumes.\n\nWhat is lost is repeated.\n', 'begins with "What"'),
    ('docs/A.md', '| a | Who is lost |\n', 'begins with "Who"'),
    ('docs/A.md', 'Who is lost?\n', None),
    ('docs/A.md', 'The sponsor sends its model.\n', 'retired: "sponsor"'),
    ('docs/A.md', 'The donor sends its model.\n\n```\nthe sponsor\n```\n', None),
    ('proto/a.proto', '// What it is.\n', 'begins with "What"'),
    ('scripts/a.sh', '#!/bin/sh\n# The parcel.\n', 'retired: "parcel"'),
    ('bench/a.py', '# The run runs free.\n', 'retired: "runs free"'),
)


def judged(root):
    judge = Judge(root)
    judge.judge()
    return judge.bad


def plant(root, path, text):
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), 'w', encoding='utf-8') as f:
        f.write(text)


def self_test():
    wrong = 0
    for path, text, says in PLANTED:
        with tempfile.TemporaryDirectory() as root:
            plant(root, path, text)
            bad = judged(root)
        if bool(bad) != (says is not None) or (says and not any(says in line for line in bad)):
            print('self-test: %s: %r: expected %r, found %r' % (path, text, says, bad))
            wrong += 1
    with tempfile.TemporaryDirectory() as root:
        plant(root, 'src/coll/plan.c', 'int n;\n')
        plant(root, 'src/kv/plan.c', 'int n;\n')
        if not any('has the same name' in line for line in judged(root)):
            print('self-test: two files of one name are not found')
            wrong += 1
    return wrong


def main():
    if sys.argv[1:] == ['--self-test']:
        return 1 if self_test() else 0
    bad = judged(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(HERE))
    if bad:
        print('\n'.join(bad))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
