#!/usr/bin/env python3
"""Runs every command of docs/TUTORIAL.md, and of README.md what can run here, in an empty folder.

  test/tutorial.py [BUILD]       BUILD: the folder of the command (default: build)
  test/tutorial.py --self-test   show that a wrong command and a wrong output are found

In docs/TUTORIAL.md a block ```console holds commands after `$ ` and lines of their output, where … stands for
any text, and alone for any lines; `exit N` is the expected status. A block ```file NAME is written to NAME.
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT_S = 240
# Commands of README.md that need another machine, packages, or somebody's own pictures; the job and the steps of
# "Your own pictures" are run by test/process/own_pictures_test.c.
README_SKIPS = (r'^\./run demo$', r'10\.0\.0\.1', r'pets')


def blocks(text):
    for found in re.finditer(r'(?ms)^```(console|file (\S+))\n(.*?)^```$', text):
        yield (found.group(2), found.group(3))


def commands(block):
    """(command, expected lines, expected status) of a console block."""
    out = []
    for line in block.rstrip('\n').split('\n'):
        if line.startswith('$ '):
            out.append([line[2:], [], 0])
        elif out and out[-1][0].endswith('\\') and not out[-1][1]:
            out[-1][0] += '\n' + line
        elif re.match(r'exit \d+$', line):
            out[-1][2] = int(line.split()[1])
        elif out:
            out[-1][1].append(line)
    return out


def matches(expected, printed):
    """Do the expected lines occur in this order, with … for any text?"""
    at = 0
    for line in expected:
        if line.strip() == '…':
            continue
        pattern = re.compile('.*'.join(re.escape(part) for part in line.strip().split('…')))
        while at < len(printed) and not pattern.search(' '.join(printed[at].split())):
            at += 1
        if at == len(printed):
            return line
        at += 1
    return None


def run(command, folder, build):
    environment = dict(os.environ, PATH=build + ':' + os.environ['PATH'], PACELINE_TUNER='off')
    try:
        done = subprocess.run(['bash', '-c', command], cwd=folder, env=environment, text=True, timeout=LIMIT_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode if done.returncode >= 0 else 128 - done.returncode, done.stdout.split('\n')
    except subprocess.TimeoutExpired as late:
        return -1, ['not done within %d s' % LIMIT_S, str(late.stdout)]


def play(text, folder, build):
    bad = 0
    for name, block in blocks(text):
        if name:
            with open(os.path.join(folder, name), 'w', encoding='utf-8') as f:
                f.write(block)
            continue
        for command, expected, status in commands(block):
            code, printed = run(command, folder, build)
            missing = matches(expected, printed)
            if code != status or missing:
                bad += 1
                print('$ %s\nexit %d, expected %d%s; it printed:\n%s' % (
                    command, code, status, '; no line %r' % missing if missing else '', '\n'.join(printed[-30:])))
    return bad


def readme(text, folder, build):
    """The indented commands of README.md, on the tutorial's job."""
    bad = 0
    for line in re.findall(r'(?m)^    ((?:paceline|\./run) .*)$', text):
        command = re.sub(r'\s+#.*', '', line).replace('my.job', 'shapes.job')
        if any(re.search(skip, command) for skip in README_SKIPS):
            continue
        code, printed = run(command, folder, build)
        if code != 0:
            bad += 1
            print('README: $ %s\nexit %d:\n%s' % (command, code, '\n'.join(printed[-30:])))
    return bad


def self_test():
    text = '```console\n$ echo one two\none…\n$ false\nexit 1\n```\n'
    wrong = ('```console\n$ echo one\ntwo\n```\n', '```console\n$ false\n```\n')
    with tempfile.TemporaryDirectory() as folder:
        out, sys.stdout = sys.stdout, open(os.devnull, 'w', encoding='utf-8')
        found = [play(t, folder, '/nowhere') for t in (text,) + wrong]
        sys.stdout = out
    if found != [0, 1, 1]:
        print('self-test: found %r' % found)
    return found != [0, 1, 1]


def main():
    if sys.argv[1:] == ['--self-test']:
        return 1 if self_test() else 0
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, 'build'))
    with tempfile.TemporaryDirectory(prefix='paceline-tutorial-') as folder:
        os.symlink(os.path.join(ROOT, 'examples'), os.path.join(folder, 'examples'))
        with open(os.path.join(ROOT, 'docs', 'TUTORIAL.md'), encoding='utf-8') as f:
            bad = play(f.read(), folder, build)
        with open(os.path.join(ROOT, 'README.md'), encoding='utf-8') as f:
            bad += readme(f.read(), folder, build)
    print('%d commands failed' % bad if bad else 'every command did what the page says')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
