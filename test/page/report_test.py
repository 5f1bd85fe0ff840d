#!/usr/bin/env python3
"""`paceline report` without a browser: the page is one file that loads nothing, the table and the files
for TensorBoard have every event, a trace's parts add up, and wrong input is refused.

  test/page/report_test.py BUILD
"""
import csv
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

import kit

EVIL = '</script><script>document.title="broken"</script><img src=x onerror=alert(1)>'


def call(build, *arguments):
    return subprocess.run([os.path.join(build, 'paceline'), 'report', *arguments], capture_output=True, text=True, check=False)


def report(build, *arguments):
    done = call(build, *arguments)
    assert done.returncode == 0, done.stderr
    return done


def data_of(path):
    with open(path, encoding='utf-8') as f:
        text = f.read()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return text, json.loads(found.group(1))


def test_page_loads_nothing(build, folder):
    """Texts of events, names and fields do not end the element that has the data."""
    run, page = os.path.join(folder, 'a"><b>evil<'), os.path.join(folder, 'evil.html')
    events = kit.long_run(500, 100)
    events[0]['job'] = events[0]['settings'] = EVIL
    events.insert(1, {'t': 0.1, 'kind': 'warning', 'what': 'size', 'text': EVIL})
    kit.write_run(run, events)
    with open(os.path.join(run, 'job.prototxt'), 'w', encoding='utf-8') as f:
        f.write('name: "%s"\n' % EVIL.replace('"', '\\"'))
    report(build, run, '-o', page)
    text, data = data_of(page)
    assert text.count('<script') == 2 and text.count('</script') == 2 and '<b>' not in text and '<img' not in text
    assert "default-src 'none'" in text
    around = re.sub(r'id="data">.*?</script>', '', text, flags=re.S).replace("'http://www.w3.org/2000/svg'", '')
    for word in ('http:', 'https:', ' src=', ' href=', 'url(', '@import', 'fetch(', 'XMLHttp', 'innerHTML', 'eval('):
        assert word not in around, word
    assert any(mark[5] == EVIL[:len(mark[5])] and len(mark[5]) > 70 for mark in data['runs'][0]['marks'])
    assert EVIL in data['runs'][0]['job'].replace('\\"', '"') and data['runs'][0]['name'] == 'a"><b>evil<'


def wanted_points(events):
    """The points of each curve by the events alone."""
    wanted, before = {}, 0
    add = lambda name, e, value: wanted.setdefault(name, []).append((e['t'], value))
    for e in events:
        if e['kind'] == 'loss':
            add('train_loss', e, e['loss'])
            add('rate', e, e['rate'])
            add('samples_per_s', e, e['samples'] / (e['t'] - before))
            before = e['t']
        elif e['kind'] == 'eval':
            add('validation_error', e, e['error'])
            add('validation_loss', e, e['loss'])
        elif e['kind'] == 'exchange':
            add('exchange_s', e, e['seconds'])
            add('waited_s', e, e['waited_s'])
    return wanted


def same_points(got, wanted):
    for name, points in wanted.items():
        assert len(got[name]) == len(points), name
        for (t, value), (t0, v0) in zip(got[name], points):
            assert math.isclose(t, t0, rel_tol=1e-9) and math.isclose(value, v0, rel_tol=1e-6), (name, t, t0, value, v0)


def test_csv_has_all_points(build, folder, events, run):
    path = os.path.join(folder, 'points.csv')
    report(build, run, '-o', os.path.join(folder, 'a.html'), '--csv', path)
    got, last = {}, 0
    with open(path, encoding='utf-8', newline='') as f:
        for row in csv.DictReader(f):
            assert row['run'] == 'run, "1"'
            got.setdefault(row['curve'], []).append((float(row['time_s']), float(row['value'])))
            if row['curve'] == 'exchange_s':  # epochs of exchanges lie between those of losses
                epoch, time = float(row['epochs']), float(row['time_s'])
                assert abs(epoch - min(time, 100) / 10) < 0.011 + 0.1 * (time < 1) and epoch >= last, (epoch, time)
                assert math.isclose(float(row['samples']), epoch * 60000, rel_tol=1e-6)
                last = epoch
    same_points(got, wanted_points(events))
    assert got['workers'][-1][1] == 8 and min(v for t, v in got['workers'] if t > 1) == 7


# ---- TensorBoard's files, read by the format's description ----

CRC = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
    CRC.append(i)


def masked(data):
    crc = 0xffffffff
    for byte in data:
        crc = CRC[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def fields(data):
    """Fields of a message of protobuf, by number."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found[key >> 3] = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            found[key >> 3] = data[at:at + size]
            at += size
    return found


def test_tensorboard_has_all_points(build, folder, events, run):
    assert masked(b'123456789') == (((0xe3069283 >> 15 | 0xe3069283 << 17) + 0xa282ead8) & 0xffffffff)  # RFC 3720's check
    directory = os.path.join(folder, 'board')
    report(build, run, '-o', os.path.join(folder, 'a.html'), '--tensorboard', directory)
    file, = os.listdir(os.path.join(directory, 'run, "1"'))
    began = int(re.fullmatch(r'events\.out\.tfevents\.(\d+)\.paceline', file).group(1))
    with open(os.path.join(directory, 'run, "1"', file), 'rb') as f:
        data = f.read()
    records, at = [], 0
    while at < len(data):
        size, = struct.unpack_from('<Q', data, at)
        assert struct.unpack_from('<I', data, at + 8)[0] == masked(data[at:at + 8])
        records.append(fields(data[at + 12:at + 12 + size]))
        assert struct.unpack_from('<I', data, at + 12 + size)[0] == masked(data[at + 12:at + 12 + size])
        at += size + 16
    assert records[0][3] == b'brain.Event:2'
    got = {}
    for record in records[1:]:
        value = fields(fields(record[5])[1])
        t = struct.unpack('<d', record[1])[0] - began
        got.setdefault(value[1].decode(), []).append((round(t, 6), struct.unpack('<f', value[2])[0]))
        assert record[2] >= 0
    same_points(got, wanted_points(events))


def test_longest_waits_are_explained(build, folder, events, run):
    """Those whose cause is known, the longest first."""
    path = os.path.join(folder, 'waits.html')
    report(build, run, '-o', path)
    waits = data_of(path)[1]['runs'][0]['waits']
    known = sorted((e for e in events if 'why' in e), key=lambda e: -e['waited_s'])[:8]
    assert len(known) == 8 and [w[:2] for w in waits] == [[e['t'], e['n']] for e in known], waits
    assert waits[0][2] == 'waited %.3g s for worker 3: its link sent at 38 Mbit/s' % known[0]['waited_s'], waits[0]


def test_runs_are_compared(build, folder, run):
    other, page = os.path.join(folder, 'b', 'run, "1"'), os.path.join(folder, 'two.html')
    kit.write_run(other, kit.long_run(50, 20, workers=4))
    for directory, rate in ((run, '0.1'), (other, '0.2')):
        with open(os.path.join(directory, 'job.prototxt'), 'w', encoding='utf-8') as f:
            f.write('name: "a"\nsolver {\n  base_lr: %s\n  gamma: 0.5\n}\n' % rate)
    report(build, run, other + '//', '-o', page)
    data = data_of(page)[1]
    assert [r['name'] for r in data['runs']] == ['run, "1"', 'run, "1" (2)']
    assert data['differences'] == [['solver.base_lr', '0.1', '0.2']]
    facts = [{label: value for _, label, _, value in r['facts']} for r in data['runs']]
    assert [f['workers of the job'] for f in facts] == [8, 4] and facts[0]['samples used'] == 600000
    assert facts[0]['faults'] == 1 and facts[0]['recoveries'] == 1


def test_trace_adds_up(build, folder):
    """A real run of two workers, of which each step takes 4 ms or more."""
    job, run = kit.write_job(folder), os.path.join(folder, 'real')
    trace = os.path.join(run + '.trace')
    subprocess.run([os.path.join(build, 'paceline'), 'train', job, '--out', run, '--trace', trace, '--epochs', '4', '-q',
                    '--set', 'pace=0.004'], check=True, stdout=subprocess.DEVNULL)
    report(build, run, '--trace', trace, '-o', os.path.join(folder, 'real.html'))
    data = data_of(os.path.join(folder, 'real.html'))[1]
    of = data['runs'][0]['trace']
    with open(trace, encoding='utf-8') as f:
        spans = [e for e in json.load(f) if e['ph'] == 'X']
    for node, *seconds in of['nodes']:
        mine = [e for e in spans if e['pid'] == node + 2]
        whole = (max(e['ts'] + e['dur'] for e in mine) - min(e['ts'] for e in mine)) / 1e6
        assert math.isclose(sum(seconds), whole, rel_tol=1e-6, abs_tol=1e-6), (node, sum(seconds), whole)
        if node >= 0:
            compute = sum(e['dur'] for e in mine if e['name'] in ('compute', 'update')) / 1e6
            named = dict(zip(of['purposes'], seconds))
            assert named['compute'] + named['data'] + named['copy'] <= compute + 1e-3 + named['copy']
            assert named['compute'] > 0.5 * compute
    workers = [n for n, *_ in of['nodes'] if n >= 0]
    assert workers == [0, 1]
    for i, row in enumerate(of['waits']):
        for k, seconds in enumerate(row):
            peer = 'driver' if k == 0 else 'worker %d' % (k - 1)
            wanted = sum(e['dur'] for e in spans if e['pid'] == i + 1 and e['name'] == 'wait' and e['args']['peer'] == peer) / 1e6
            assert math.isclose(seconds, wanted, rel_tol=1e-6, abs_tol=1e-9), (i, k)
            assert of['stood'][i][k] <= seconds + 1e-9


def test_wrong_input_is_refused(build, folder, run):
    mine, empty = os.path.join(folder, 'mine.html'), os.path.join(folder, 'empty')
    os.mkdir(empty)
    with open(mine, 'w', encoding='utf-8') as f:
        f.write('<!DOCTYPE html>\nmine\n')
    for arguments, text in (((), 'which run'), ((os.path.join(folder, 'none'),), 'No such file'), ((mine,), 'is no directory'),
                            ((empty, '-o', os.path.join(folder, 'x.html')), 'events.jsonl'), ((run, '-o', mine), 'is not replaced'),
                            ((run, '-o', os.path.join(folder, 'no', 'x.html')), 'No such file'), ((run, '-o'), 'a value is missing'),
                            ((run, '--trace', mine, '-o', os.path.join(folder, 'x.html')), 'no span'),
                            ((run, '--trace', 'a', '--trace', 'b'), 'more --trace than runs'), ((run, '-x'), 'unknown option')):
        done = call(build, *arguments)
        assert done.returncode == 2 and text in done.stderr, (arguments, done)
    with open(mine, encoding='utf-8') as f:
        assert f.read() == '<!DOCTYPE html>\nmine\n'


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        run, events = os.path.join(folder, 'run, "1"'), kit.long_run(3000, 100)
        kit.write_run(run, events)
        test_page_loads_nothing(build, folder)
        test_csv_has_all_points(build, folder, events, run)
        test_tensorboard_has_all_points(build, folder, events, run)
        test_longest_waits_are_explained(build, folder, events, run)
        test_runs_are_compared(build, folder, run)
        test_trace_adds_up(build, folder)
        test_wrong_input_is_refused(build, folder, run)


if __name__ == '__main__':
    main()
