#!/usr/bin/env python3
"""Every file that docs/ALGORITHMS.md and docs/PROTOCOL.md name exists, and defines the functions named after it.

  test/algorithms.py [ROOT]        judge ROOT (default: this repository)
  test/algorithms.py --self-test   show that a missing file and a missing function are found
"""
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGES = ('docs/ALGORITHMS.md', 'docs/PROTOCOL.md')
NAMED = re.compile(r'`((?:src|test|examples|include|proto|bench|scripts)/[\w./]+)`((?:\s*:\s*`\w+`(?:,\s*`\w+`)*)?)')


def judge(root):
    bad = []
    for page in PAGES:
        if not os.path.isfile(os.path.join(root, page)):
            continue
        text = open(os.path.join(root, page), encoding='utf-8').read()
        for found in NAMED.finditer(text):
            path, functions = found.group(1), re.findall(r'`(\w+)`', found.group(2))
            line = text.count('\n', 0, found.start()) + 1
            if not os.path.exists(os.path.join(root, path)):
                bad.append('%s:%d: there is no %s' % (page, line, path))
                continue
            for name in functions if os.path.isfile(os.path.join(root, path)) else ():
                source = open(os.path.join(root, path), encoding='utf-8').read()
                if not re.search(r'\b%s\(' % name, source):
                    bad.append('%s:%d: %s has no %s' % (page, line, path, name))
    return bad


def self_test():
    with tempfile.TemporaryDirectory() as root:
        for path, text in (('docs/ALGORITHMS.md', '`src/a.c`: `f`, `g`; `src/b.c`\n'), ('src/a.c', 'int f(void);\n')):
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), 'w', encoding='utf-8') as f:
                f.write(text)
        bad = judge(root)
    expected = ['docs/ALGORITHMS.md:1: src/a.c has no g', 'docs/ALGORITHMS.md:1: there is no src/b.c']
    if bad != expected:
        print('self-test: found %r' % bad)
    return bad != expected


def main():
    if sys.argv[1:] == ['--self-test']:
        return 1 if self_test() else 0
    bad = judge(sys.argv[1] if len(sys.argv) > 1 else HERE)
    print('\n'.join(bad), end='\n' if bad else '')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
