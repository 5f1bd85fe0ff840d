#!/usr/bin/env python3
"""The table of ONNX's cases only grows: a case that passed in any earlier commit passes now. The test
golden/onnx_cases_test judges that the table is true. Ends with 77 where there is no history.

  test/onnx_table.py              judge the tree
  test/onnx_table.py --self-test  does it find tables that shrink?
"""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = 'test/golden/onnx/cases.txt'


def git(root, *arguments):
    return subprocess.run(['git', '-C', root, *arguments], capture_output=True, text=True, check=False)


def passing(text):
    rows = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith('#')]
    return {row[0] for row in rows if row[1:] == ['pass']}


def lost_cases(root):
    """Those that passed in a commit and do not now, each with that commit; None: there is no history."""
    try:
        log = git(root, 'log', '--full-history', '--format=%H', 'HEAD', '--', TABLE)
    except FileNotFoundError:
        return None
    if log.returncode != 0:
        return None
    with open(os.path.join(root, TABLE), encoding='utf-8') as f:
        now = passing(f.read())
    lost = {}
    for commit in log.stdout.split():
        for case in passing(git(root, 'show', '%s:%s' % (commit, TABLE)).stdout) - now:
            lost.setdefault(case, commit[:10])
    return lost


def write_table(root, text):
    path = os.path.join(root, TABLE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)


def self_test():
    with tempfile.TemporaryDirectory() as root:
        write_table(root, 'node/a pass\n')
        assert lost_cases(root) is None
        identity = ('-c', 'user.name=test', '-c', 'user.email=test@localhost')
        git(root, 'init', '-q')
        for table in '# pass\nnode/a pass\nnode/b unsupported: it may pass\n', 'node/b pass\nnode/a pass\n':
            write_table(root, table)
            git(root, 'add', '-A')
            assert git(root, *identity, 'commit', '-qm', 'a table').returncode == 0
        assert lost_cases(root) == {}
        write_table(root, 'node/a pass\nnode/b pass\nnode/c pass\n')
        assert lost_cases(root) == {}
        # A merge that takes the shorter table of the other branch.
        for command in (('branch', 'other'), (*identity, 'commit', '-qam', 'longer'), ('checkout', '-q', 'other'),
                        (*identity, 'commit', '-q', '--allow-empty', '-m', 'other'),
                        (*identity, 'merge', '-q', '-s', 'ours', '-m', 'merge', '-')):
            assert git(root, *command).returncode == 0, command
        assert set(lost_cases(root)) == {'node/c'}
        git(root, 'checkout', '-q', '-')
        write_table(root, 'node/a unsupported: pass\nnode/c pass\n')
        assert set(lost_cases(root)) == {'node/a', 'node/b'}


def main():
    if sys.argv[1:] == ['--self-test']:
        self_test()
        return 0
    lost = lost_cases(ROOT)
    if lost is None:
        print('skipped: the tree has no history')
        return 77
    for case, commit in sorted(lost.items()):
        print('%s: %s passed in %s and does not pass now' % (TABLE, case, commit))
    return 1 if lost else 0


if __name__ == '__main__':
    sys.exit(main())
