#!/usr/bin/env python3
"""Every event and key that the sources write is in docs/EVENTS.md, and every one there is written.

  test/events.py                  judge the tree
  test/events.py --run FILE...    also: the lines of these events.jsonl have documented kinds and keys
"""
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ADDS = re.compile(r'(?:cJSON_Add\w+ToObject|events_add_measure|events_add_whole)\(\s*(event|start|records|ends),\s*"(\w+)"')
# Written as text, not by cJSON (train/event_log.c), and keys of the objects within a start event.
EXTRA = {'dropped': {'lines'}}
COMMON = {'t', 'kind', 'simulated'}


def documented():
    events, kind = {}, None
    for line in open(os.path.join(ROOT, 'docs', 'EVENTS.md'), encoding='utf-8'):
        heading = re.match(r'### (\w+)', line)
        key = re.match(r'\| `(\w+)` \|', line)
        if heading:
            kind = heading.group(1)
            events[kind] = set()
        elif key and kind:
            events[kind].add(key.group(1))
    return events


def written():
    events = {k: set(v) for k, v in EXTRA.items()}
    folder = os.path.join(ROOT, 'src', 'train')
    for name in sorted(os.listdir(folder)):
        if not name.endswith('.c') or name.endswith('_test.c'):
            continue
        text = open(os.path.join(folder, name), encoding='utf-8').read()
        for function in re.split(r'(?m)^\}', text):
            kinds = re.findall(r'(?:events_new|new_at)\([^;]*?"(\w+)"\)', function)
            keys = {key for object_, key in ADDS.findall(function) if object_ in ('event', 'start')}
            if not kinds and re.search(r'cJSON \*start\b', function):
                kinds = ['start']
            for kind in kinds:
                events.setdefault(kind, set()).update(keys - COMMON)
    return events


def main():
    there, page, bad = written(), documented(), []
    for kind in sorted(set(there) | set(page)):
        if kind not in page:
            bad.append('docs/EVENTS.md has no event %s' % kind)
        elif kind not in there:
            bad.append('docs/EVENTS.md: %s: no source writes it' % kind)
        else:
            bad += ['docs/EVENTS.md: %s has no key %s' % (kind, k) for k in sorted(there[kind] - page[kind])]
            bad += ['docs/EVENTS.md: %s: no source writes %s' % (kind, k)
                    for k in sorted(page[kind] - there[kind])]
    for path in sys.argv[2:] if sys.argv[1:2] == ['--run'] else []:
        for line in open(path, encoding='utf-8'):
            event = json.loads(line)
            for key in set(event) - COMMON - page.get(event['kind'], set()):
                bad.append('%s: %s.%s is not in docs/EVENTS.md' % (path, event['kind'], key))
    print('\n'.join(bad), end='\n' if bad else '')
    return 1 if bad or not there else 0


if __name__ == '__main__':
    sys.exit(main())
