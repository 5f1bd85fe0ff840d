#!/usr/bin/env python3
"""docs/JOBS.md, the reference of job and cluster files, from the comments of proto/*.proto.

  scripts/jobs_md.py           write docs/JOBS.md
  scripts/jobs_md.py --check   fail if docs/JOBS.md is out of date
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FIELD = re.compile(r'(?:(optional|repeated)\s+)?([\w.]+)\s+(\w+)\s*=\s*\d+\s*(?:\[default\s*=\s*([^\]]*)\])?\s*;')
INTRO = """# Job and cluster files

This page lists every field of a job file and of a cluster file. `scripts/jobs_md.py` writes it from the comments of
`proto/job.proto`, `proto/cluster.proto` and, for the solver, `proto/caffe.proto`; change those. Both files are protobuf
text: `field: value`, and `field { ... }` for a part with fields of its own. Paths are relative to the job file. A field
that is set is honoured or refused by name. `paceline train JOB --dry-run` prints a job with all its defaults.

Abbreviations of the papers: *MPCA*, *DSSP*, *SparkNet*, *SparkDML*, *Elastic* (the thesis); *ours*: not from a paper.
"""


class Message:
    def __init__(self, name, comment):
        self.name, self.comment = name, comment
        self.fields, self.enums = [], {}  # (oneof, field, type, default, text), name → words


def parse(path):
    """The messages of a schema by name, in order, nested ones as Outer.Inner; and its first comment."""
    messages, stack, comment, oneof, last = {}, [], [], None, None
    enums, head = {}, []
    for number, line in enumerate(open(path, encoding='utf-8')):
        code, _, said = line.partition('//')
        code, said = code.strip(), said.strip()
        if not code:
            if not said:
                comment, last = [], None
            elif last is not None and re.match(r'\s{40,}//', line):
                last[-1] += ' ' + said
            else:
                comment.append(said)
                last = None
                if not messages and not stack:
                    head.append(said)
            continue
        enum = re.match(r'enum (\w+) \{(.*)\}', code)
        if enum:
            words = re.findall(r'(\w+) = \d+', enum.group(2))
            (stack[-1].enums if stack else enums)[enum.group(1)] = words
            if stack: # as other messages name it
                enums['%s.%s' % (stack[-1].name, enum.group(1))] = words
            last = None
        elif code.startswith('enum '):
            name, words = code.split()[1], []
            (stack[-1].enums if stack else enums)[name] = words
            stack.append(words)
        elif stack and isinstance(stack[-1], list) and code != '}':
            stack[-1] += re.findall(r'(\w+) = \d+', code)
        elif code.startswith('message '):
            name = '.'.join([m.name for m in stack if isinstance(m, Message)][-1:] + [code.split()[1]])
            messages[name] = Message(name, ' '.join(comment))
            if not code.endswith('{}'):
                stack.append(messages[name])
            comment, last = [], None
        elif code.startswith('oneof '):
            oneof = code.split()[1]
        elif code == '}':
            if oneof:
                oneof = None
            elif stack:
                stack.pop()
            comment, last = [], None
        elif stack and FIELD.match(code):
            label, kind, name, default = FIELD.match(code).groups()
            last = [oneof, name, kind + (' (repeated)' if label == 'repeated' else ''), default or '',
                    ' '.join(comment + ([said] if said else []))]
            stack[-1].fields.append(last)
            comment = []
    return messages, enums, ' '.join(head)


def row(message, enums, field):
    oneof, name, kind, default, text = field
    words = message.enums.get(kind) or enums.get(kind)
    if words:
        kind = ', '.join('`%s`' % w for w in words)
    elif kind.split('.')[-1][0].isupper():
        kind = '[%s](#%s)' % (kind, kind.lower().replace('.', ''))
    if oneof:
        text = '%s (one of `%s`)' % (text, oneof)
    text = text[:1].upper() + text[1:]
    return '| `%s` | %s | %s | %s |' % (name, kind, '`%s`' % default if default else '',
                                       text.replace('|', '\\|'))


def section(message, enums, title=None):
    out = ['### %s' % (title or message.name), '']
    if message.comment:
        out += [message.comment, '']
    if not message.fields:
        return '\n'.join(out + ['No fields.', ''])
    out += ['| field | type or values | default | meaning |', '|---|---|---|---|']
    return '\n'.join(out + [row(message, enums, f) for f in message.fields] + [''])


def page():
    out = [INTRO]
    for path, title in (('job.proto', '## The job'), ('cluster.proto', '## The cluster, for `paceline sim`')):
        messages, enums, head = parse(os.path.join(ROOT, 'proto', path))
        out += [title, '', head, '']
        out += [section(m, enums) for m in messages.values()]
    messages, enums, _ = parse(os.path.join(ROOT, 'proto', 'caffe.proto'))
    solver = messages['SolverParameter']
    out += ['## The solver', '', 'The fields of `solver`, which are Caffe\'s.', '',
            section(solver, enums, 'caffe.SolverParameter')]
    return '\n'.join(out).rstrip() + '\n'


def main():
    path = os.path.join(ROOT, 'docs', 'JOBS.md')
    text = page()
    if sys.argv[1:] == ['--check']:
        if not os.path.isfile(path) or open(path, encoding='utf-8').read() != text:
            print('docs/JOBS.md is not current: run scripts/jobs_md.py')
            return 1
        return 0
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    return 0


if __name__ == '__main__':
    sys.exit(main())
