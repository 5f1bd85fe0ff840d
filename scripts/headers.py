#!/usr/bin/env python3
"""The public headers, read: the names that the library exports, its binary interface, and the
declarations of the Python module.

  scripts/headers.py --functions   the functions of include/paceline, one a line
  scripts/headers.py --write       write test/abi.txt and python/paceline/_interface.py
  scripts/headers.py --check       fail if these are out of date, or the binary interface has changed
  scripts/headers.py --self-test   show, on small changes of a header, that --check finds them

test/abi.txt has each function, constant, struct and field of this number of the binary interface (the
soname's, cmake/install.cmake). --check and --write refuse whatever breaks a program that was built with
those: a function or a constant that is missing or another one, a field that has moved, a struct of
another size. A struct that begins with `size_t size` may grow, by fields beyond its former size; one
that ends with `reserved` may have further fields there, and keeps its size.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECORD = os.path.join(ROOT, 'test/abi.txt')
PYTHON = os.path.join(ROOT, 'python/paceline/_interface.py')

CTYPES = {
    'void': 'None', 'bool': 'c_bool', 'char': 'c_char', 'int': 'c_int', 'unsigned': 'c_uint',
    'unsigned short': 'c_ushort', 'unsigned long long': 'c_ulonglong', 'size_t': 'c_size_t',
    'uint8_t': 'c_uint8', 'uint16_t': 'c_uint16', 'uint32_t': 'c_uint32', 'uint64_t': 'c_uint64',
    'int64_t': 'c_int64', 'float': 'c_float', 'double': 'c_double',
}


class Field:
    """A field of a struct or an argument: its type without stars, stars, lengths of arrays, and the
    arguments of a function that it points to."""

    def __init__(self, base, name, stars=0, lengths=(), arguments=None):
        self.base, self.name, self.stars = base, name, stars
        self.lengths, self.arguments = list(lengths), arguments


class Headers:
    def __init__(self, folder):
        self.names = sorted(os.path.basename(p) for p in glob.glob(os.path.join(folder, '*.h')))
        self.folder = folder
        self.functions, self.structs, self.enums, self.constants = {}, {}, {}, []
        for name in self.names:
            with open(os.path.join(folder, name), encoding='utf-8') as f:
                self.read(f.read())

    def read(self, text):
        text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S).replace('\\\n', ' ')
        self.constants += re.findall(r'(?m)^#define (PL_\w+) +\d+\s*$', text)
        text = re.sub(r'(?m)^#.*$', '', text).replace('extern "C" {', '')
        for name, body in re.findall(r'typedef struct (\w+) \{(.*?)\} \1;', text, re.S):
            self.structs[name] = [f for part in body.split(';') if part.strip()
                                  for f in read_fields(part)]
        for body, name in re.findall(r'(?:typedef )?enum(?: \w+)? \{(.*?)\}\s*(\w*);', text, re.S):
            words = re.findall(r'\bPL_\w+(?=\s*(?:=|,|$))', body.strip())
            self.enums[name or words[0]] = words
            self.constants += words
        text = re.sub(r'(typedef )?(struct|enum)[^;{]*\{.*?\}[^;]*;', '', text, flags=re.S)
        for result, name, arguments in re.findall(
                r'([a-z][\w \n]*?(?: |\*|\*const \*))(pl_\w+)\(([^;]*)\);', text):
            self.functions[name] = (' '.join(result.split()), ' '.join(arguments.split()))


def split_commas(text):
    depth, parts = 0, ['']
    for c in text:
        depth += (c == '(') - (c == ')')
        if c == ',' and depth == 0:
            parts.append('')
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


def read_fields(text):
    """The fields of one declaration: `const char *from, *to`, `char name[64]`, `int (*f)(void *)`."""
    text = ' '.join(text.split())
    pointer = re.match(r'(.*?)\s*\(\*(\w+)\)\((.*)\)$', text)
    if pointer:
        result = read_fields(pointer.group(1) + ' _')[0]
        arguments = [read_fields(a)[0] for a in split_commas(pointer.group(3)) if a != 'void']
        return [Field(result.base, pointer.group(2), result.stars, (), arguments)]
    first = re.match(r'((?:const )?(?:struct )?(?:unsigned (?:short|long long|int)|\w+))(?: const)?(?: (?=\*|\w)|(?=\*))(.*)$',
                     text)
    base = first.group(1).replace('const ', '').replace('struct ', '')
    fields = []
    for part in split_commas(first.group(2)) or ['']:
        stars = part.count('*')
        name = re.search(r'(\w+)?((?:\[\w+\])*)$', re.sub(r'\bconst\b', '', part))
        fields.append(Field(base, name.group(1) or '_', stars,
                            re.findall(r'\[(\w+)\]', name.group(2))))
    return fields


def unnamed(argument):
    """`const char *path` without its name, which binds nobody."""
    return argument if argument.endswith(')') or ' ' not in argument else \
        re.sub(r'\s*\w+((\[\w+\])?)$', r'\1', argument)


# ---- the binary interface ----

def measure(headers):
    """Sizes, offsets and values, by the compiler."""
    lines = ['#include "paceline/%s"' % name for name in headers.names]
    lines += ['#include <stddef.h>', '#include <stdio.h>', 'int main(void)', '{']
    for name, fields in headers.structs.items():
        lines.append('    printf("struct %s %%zu\\n", sizeof(%s));' % (name, name))
        for field in fields:
            lines.append('    printf("field %s.%s %%zu %%zu\\n", offsetof(%s, %s), sizeof(((%s *)0)->%s));'
                         % (name, field.name, name, field.name, name, field.name))
    for name in headers.constants:
        lines.append('    printf("constant %s %%lld\\n", (long long)%s);' % (name, name))
    lines += ['    return 0;', '}']
    with tempfile.TemporaryDirectory() as work:
        source, program = os.path.join(work, 'layout.c'), os.path.join(work, 'layout')
        with open(source, 'w', encoding='utf-8') as f:
            f.write('\n'.join(lines) + '\n')
        subprocess.run([os.environ.get('CC', 'cc'), '-std=c17', '-w', '-I', os.path.dirname(headers.folder),
                        '-o', program, source], check=True)
        text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    functions = ['function %s: %s(%s)' % (name, result, ', '.join(map(unnamed, split_commas(arguments))))
                 for name, (result, arguments) in sorted(headers.functions.items())]
    return functions + text.splitlines()


def parsed(lines):
    """By kind and name: functions' types, constants' values, structs' sizes, fields' places."""
    found = {}
    for line in lines:
        kind, name, rest = line.replace(':', '', 1).split(' ', 2) if line.startswith('function') \
            else line.split(' ', 2)
        found[kind, name] = rest
    return found


def grows(found, struct):
    return found.get(('field', struct + '.size'), '').startswith('0 ')


def broken(before, now):
    """How programs that were built with `before` would break, one a line."""
    was, is_ = parsed(before), parsed(now)
    for (kind, name), rest in was.items():
        found = is_.get((kind, name))
        if name.endswith('.reserved'):
            continue
        if found is None:
            yield '%s %s is missing' % (kind, name)
        elif kind == 'struct' and grows(was, name) and int(found) >= int(rest):
            continue
        elif found != rest:
            yield '%s %s is now %s, not %s' % (kind, name, found, rest)
    for kind, name in is_:
        struct = name.split('.')[0]
        if kind != 'field' or (kind, name) in was or ('struct', struct) not in was:
            continue
        reserved = was.get(('field', struct + '.reserved'))
        if reserved and int(is_[kind, name].split()[0]) >= int(reserved.split()[0]):
            continue
        if not grows(was, struct):
            yield 'field %s is new in a struct that cannot grow' % name
        elif int(is_[kind, name].split()[0]) < int(was['struct', struct]):
            yield 'field %s lies within the former struct, where older programs have padding' % name


# ---- declarations of the Python module ----

def ctype(headers, field):
    """A pointer is a c_void_p, but for texts and functions."""
    if field.arguments is not None:
        result = 'c_char_p' if field.base == 'char' and field.stars else \
            'c_void_p' if field.stars else CTYPES.get(field.base, 'c_int')
        return 'CFUNCTYPE(%s)' % ', '.join([result] + [ctype(headers, a) for a in field.arguments])
    if field.stars:
        return 'c_char_p' if field.base == 'char' and field.stars == 1 else 'c_void_p'
    kind = field.base if field.base in headers.structs else CTYPES.get(field.base, 'c_int')
    for length in reversed(field.lengths):
        kind = '(%s * %s)' % (kind, length)
    return kind


def ordered(headers):
    """Structs after those that they contain."""
    done = []

    def add(name):
        if name in done:
            return
        for field in headers.structs[name]:
            if field.base in headers.structs and not field.stars and field.arguments is None:
                add(field.base)
        done.append(name)
    for name in headers.structs:
        add(name)
    return done


def module(headers, lines):
    values = {name: rest for (kind, name), rest in parsed(lines).items() if kind == 'constant'}
    out = ['"""The functions, structs and constants of include/paceline; scripts/headers.py writes this."""',
           'from ctypes import (CFUNCTYPE, Structure, c_bool, c_char, c_char_p, c_double, c_float,',
           '                    c_int, c_size_t, c_uint, c_uint16, c_uint32, c_uint64, c_ulonglong,',
           '                    c_ushort, c_void_p)', '']
    for name in headers.constants:
        out.append('%s = %s' % (name, values[name]))
    for name in ordered(headers):
        out += ['', '', 'class %s(Structure):' % name, '    _fields_ = [']
        for field in headers.structs[name]:
            out.append('        ("%s", %s),' % (field.name, ctype(headers, field)))
        out.append('    ]')
    out += ['', '', '# By name: the result, and the arguments.', 'FUNCTIONS = {']
    for name in sorted(headers.functions):
        result, arguments = headers.functions[name]
        kinds = [] if arguments == 'void' else [read_fields(a)[0] for a in split_commas(arguments)]
        for kind in kinds: # an array as an argument is a pointer
            kind.stars += len(kind.lengths)
            kind.lengths = []
        found = read_fields(result + ('_' if result.endswith('*') else ' _'))[0]
        out.append('    "%s": (%s, [%s]),' % (name, ctype(headers, found),
                                              ', '.join(ctype(headers, k) for k in kinds)))
    out += ['}', '']
    return '\n'.join(wrapped(out))


def wrapped(lines):
    for line in lines:
        while len(line) > 100:
            cut = line.rindex(', ', 0, 100) + 1
            yield line[:cut]
            line = ' ' * 12 + line[cut:].lstrip()
        yield line


# ---- commands ----

def read_file(path):
    if not os.path.exists(path):
        return ''
    with open(path, encoding='utf-8') as f:
        return f.read()


def judge(headers):
    now = measure(headers)
    record = [l for l in read_file(RECORD).splitlines() if l and not l.startswith('#')]
    bad = list(broken(record, now))
    return bad, '# The binary interface; scripts/headers.py writes this.\n' + '\n'.join(now) + '\n', \
        module(headers, now)


def self_test():
    header = 'typedef struct pl_a {\n    size_t size;\n    int x;\n} pl_a;\n' \
             'typedef struct pl_b {\n    int x;\n} pl_b;\nenum { PL_ONE = 1 };\n' \
             'typedef struct pl_c {\n    double x;\n    size_t reserved[2];\n} pl_c;\n' \
             'int pl_f(const pl_a *a, double *out);\n'
    changes = (
        (lambda t: t, None),
        (lambda t: t.replace('    int x;\n} pl_a', '    int x;\n    int pad_;\n    double y;\n} pl_a'),
         'pl_a.pad_ lies within'),
        (lambda t: t.replace('    int x;\n} pl_a', '    int x;\n    double y;\n} pl_a'), None),
        (lambda t: t.replace('    int x;\n} pl_b', '    int x, y;\n} pl_b'), 'pl_b'),
        (lambda t: t.replace('size_t reserved[2]', 'size_t y;\n    size_t reserved[1]'), None),
        (lambda t: t.replace('size_t reserved[2]', 'size_t y;\n    size_t reserved[2]'), 'pl_c'),
        (lambda t: t.replace('size;\n    int x', 'size;\n    double y;\n    int x'), 'pl_a.x is now'),
        (lambda t: t.replace('PL_ONE = 1', 'PL_ONE = 2'), 'PL_ONE is now 2'),
        (lambda t: t.replace('double *out', 'float *out'), 'pl_f is now'),
        (lambda t: t.replace('int pl_f(const pl_a *a, double *out);\n', ''), 'pl_f is missing'),
    )
    wrong = 0
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.join(work, 'paceline')
        os.mkdir(folder)

        def measured(text):
            with open(os.path.join(folder, 'a.h'), 'w', encoding='utf-8') as f:
                f.write('#include <stddef.h>\n' + text)
            return measure(Headers(folder))
        before = measured(header)
        for number, (change, says) in enumerate(changes):
            bad = list(broken(before, measured(change(header))))
            if bool(bad) != bool(says) or (says and not any(says in line for line in bad)):
                print('self-test: change %d: expected %r, found %r' % (number, says, bad))
                wrong = 1
    return wrong


def main():
    command = sys.argv[1:]
    headers = Headers(os.path.join(ROOT, 'include/paceline'))
    if command == ['--functions']:
        print('\n'.join(sorted(headers.functions)))
        return 0
    if command == ['--self-test']:
        return self_test()
    if command not in (['--check'], ['--write']):
        print(__doc__, file=sys.stderr)
        return 2
    bad, record, python = judge(headers)
    for line in bad:
        print('the binary interface: ' + line)
    for path, text in ((RECORD, record), (PYTHON, python)):
        if command == ['--write'] and not bad:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, 'w', encoding='utf-8') as f:
                f.write(text)
        elif not bad and read_file(path) != text:
            bad.append('')
            print('%s is out of date: run scripts/headers.py --write' % os.path.relpath(path, ROOT))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
