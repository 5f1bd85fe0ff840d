#!/usr/bin/env python3
"""`paceline report --png` and `--svg`: the pictures are decoded here, and their curves are those of the events; files
of others are not replaced.

  test/page/png_test.py BUILD
"""
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

import kit

BLUE, GREEN, FRAME = (0x00, 0x72, 0xb2), (0x00, 0x9e, 0x73), (0x81, 0x8b, 0x98)


def call(build, *arguments):
    return subprocess.run([os.path.join(build, 'paceline'), 'report', *arguments], capture_output=True, text=True, check=False)


class Picture:
    """A PNG of 8 bits and three colours, by the format's description."""

    def __init__(self, path):
        with open(path, 'rb') as f:
            data = f.read()
        assert data[:8] == b'\x89PNG\r\n\x1a\n'
        at, packed, self.chunks = 8, b'', {}
        while at < len(data):
            length, kind = struct.unpack('>I4s', data[at:at + 8])
            body = data[at + 8:at + 8 + length]
            assert struct.unpack('>I', data[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + body), kind
            self.chunks[kind] = body
            packed += body if kind == b'IDAT' else b''
            at += 12 + length
        self.width, self.height, *form = struct.unpack('>IIBBBBB', self.chunks[b'IHDR'])
        assert form == [8, 2, 0, 0, 0]
        self.rows = self.unfilter(zlib.decompress(packed))

    def unfilter(self, raw):
        stride, rows, above = self.width * 3, [], bytearray(self.width * 3)
        for y in range(self.height):
            kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
            for i in range(stride):
                left, up, corner = (row[i - 3] if i > 2 else 0), above[i], (above[i - 3] if i > 2 else 0)
                if kind == 4:
                    guess = left + up - corner
                    near = min((left, up, corner), key=lambda v: abs(guess - v))
                row[i] = row[i] + (0, left, up, (left + up) // 2, near if kind == 4 else 0)[kind] & 255
            rows.append(row)
            above = row
        return rows

    def near(self, x, y, color, most=90):
        """Is the pixel of about that colour?"""
        pixel = self.rows[y][3 * x:3 * x + 3]
        return sum(abs(a - b) for a, b in zip(pixel, color)) <= most

    def around(self, x, y, color):
        return any(self.near(i, j, color) for j in range(int(y) - 1, int(y) + 3) for i in range(int(x) - 1, int(x) + 3)
                   if 0 <= i < self.width and 0 <= j < self.height)

    def frame(self):
        """The left, right, upper and lower edges of the axes, in pixels."""
        rows = [y for y in range(self.height) if sum(self.near(x, y, FRAME, 120) for x in range(0, self.width, 4)) > self.width / 8]
        middle = (rows[0] + rows[-1]) // 2
        columns = [x for x in range(self.width) if all(self.near(x, y, FRAME, 120) for y in range(rows[0] + 3, rows[-1] - 3, 37))]
        assert rows and columns and middle
        return columns[0], columns[-1], rows[0], rows[-1]


def places(picture, points, last):
    """Axes begin at 0 and end at the last number, and a twentieth above the greatest value."""
    left, right, top, low = picture.frame()
    most = 1.05 * max(v for _, v in points)
    return [(left + (right - left) * x / last, low - (low - top) * v / most) for x, v in points]


def test_curves_are_those_of_the_events(build, folder, run, events):
    out = os.path.join(folder, 'curves')
    done = call(build, run, '-o', os.path.join(folder, 'a.html'), '--png', out, '--dpi', '150', '--axis', 'time')
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(out)) == ['error.png', 'exchange.png', 'loss.png', 'rate.png', 'throughput.png', 'waited.png', 'workers.png']
    last = max(e['t'] for e in events if e['kind'] == 'eval')
    picture = Picture(os.path.join(out, 'error.png'))
    assert picture.width == 1000  # 640 / 96 inches
    assert picture.chunks[b'pHYs'] == struct.pack('>IIB', 5906, 5906, 1)
    first = min(e['t'] for e in events if e['kind'] == 'eval')
    assert first < last / 4
    errors = places(picture, [(e['t'], e['error']) for e in events if e['kind'] == 'eval'], last)
    assert len(errors) >= 20 and all(picture.around(x, y, BLUE) for x, y in errors)
    blue_is_on_the_curve(picture, errors)
    picture = Picture(os.path.join(out, 'loss.png'))
    ends = max(e['t'] for e in events if e['kind'] in ('loss', 'eval'))
    losses = [(e['t'], e['loss']) for e in events if e['kind'] == 'loss']
    found = [picture.around(x, y, BLUE) or picture.around(x, y, GREEN) for x, y in places(picture, losses, ends)]
    assert all(found), found.index(False)
    assert sum(picture.near(x, y, GREEN, 30) for y in range(picture.height) for x in range(picture.width)) > 500


def blue_is_on_the_curve(picture, points):
    left, right, top, low = picture.frame()
    blue = [(x, y) for y in range(top + 2, low - 2) for x in range(left + 2, right - 2) if picture.near(x, y, BLUE)]
    assert len(blue) > 500
    for x, y in blue:
        distance = min(to_line(x + 0.5, y + 0.5, a, b) for a, b in zip(points, points[1:]) if a[0] - 4 <= x <= b[0] + 4)
        assert distance < 3, (x, y, distance)


def to_line(x, y, a, b):
    dx, dy = b[0] - a[0], b[1] - a[1]
    along = max(0, min(1, ((x - a[0]) * dx + (y - a[1]) * dy) / (dx * dx + dy * dy)))
    return math.hypot(x - a[0] - along * dx, y - a[1] - along * dy)


def test_runs_have_colours_and_names(build, folder, run):
    """Two runs: the second is green, and the legend above the frame has both."""
    out = os.path.join(folder, 'two')
    done = call(build, run, run, '-o', os.path.join(folder, 'b.html'), '--png', out, '--dpi', '100')
    assert done.returncode == 0, done.stderr
    picture = Picture(os.path.join(out, 'rate.png'))
    top = picture.frame()[2]
    for color in (BLUE, GREEN):
        assert sum(picture.near(x, y, color, 30) for y in range(top) for x in range(picture.width)) > 20, color
    dark = sum(picture.near(x, y, (0x1f, 0x23, 0x28), 200) for y in range(40, top) for x in range(picture.width))
    assert dark > 100  # the names


def test_timeline_has_phases(build, folder, run):
    """Worker 0 computes from 0 to 8 s, and reduces from 1 to 4 s, in the colours of the page."""
    trace, out = os.path.join(folder, 'trace.json'), os.path.join(folder, 'timeline')
    span = '{"name":"%s","ph":"X","ts":%d,"dur":%d,"pid":2,"tid":%d,"args":{}},\n'
    with open(trace, 'w', encoding='utf-8') as f:
        f.write('[\n' + span % ('compute', 0, 8e6, 1) + span % ('exchange', 1e6, 6e6, 8) + span % ('reduce', 1e6, 3e6, 8) +
                '{"name":"thread_name","ph":"M","pid":2,"tid":8,"args":{"name":"lane 0"}}\n]\n')
    done = call(build, run, '--trace', trace, '-o', os.path.join(folder, 'd.html'), '--png', out, '--svg', out, '--dpi', '96')
    assert done.returncode == 0, done.stderr
    with open(os.path.join(out, 'timeline.svg'), encoding='utf-8') as f:
        text = f.read()
    boxes = {color: (float(x), float(width)) for color, x, width in
             re.findall(r'<rect fill="(#\w+)" x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="12.0"/>', text)}
    (left, all_s), (at, lasted) = boxes['#0072b2'], boxes['#009e73']
    assert abs(lasted / all_s - 3 / 8) < 1e-3 and abs((at - left) / all_s - 1 / 8) < 1e-3, boxes
    assert '>worker 0: lane 0<' in text and '#a6dccc' in boxes
    picture = Picture(os.path.join(out, 'timeline.png'))
    greens = max(sum(picture.near(x, y, GREEN, 30) for x in range(picture.width)) for y in range(picture.height))
    assert abs(greens - lasted) <= 2, (greens, lasted)
    assert os.path.exists(os.path.join(out, 'error.svg'))


def test_files_of_others_stay(build, folder, run):
    out, page = os.path.join(folder, 'mine'), os.path.join(folder, 'c.html')
    os.mkdir(out)
    with open(os.path.join(out, 'loss.png'), 'wb') as f:
        f.write(b'\x89PNG\r\n\x1a\nmine')
    for arguments, text in ((('--png', out), 'is no file of this command'), (('--svg', '/proc/no/x'), 'No such file'), (('--png', '/proc/no/x'), 'No such file'),
                            (('--png', out, '--axis', 'hours'), 'expected time, epochs or samples'),
                            (('--png', os.path.join(folder, 'n'), '--dpi', '10'), '--dpi')):
        done = call(build, run, '-o', page, *arguments)
        assert done.returncode == 2 and text in done.stderr, (arguments, done)
    with open(os.path.join(out, 'loss.png'), 'rb') as f:
        assert f.read() == b'\x89PNG\r\n\x1a\nmine'
    again = os.path.join(folder, 'again')
    for _ in range(2):
        assert call(build, run, '-o', page, '--png', again).returncode == 0


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        run, events = os.path.join(folder, 'run <1>'), kit.long_run(400, 100)
        kit.write_run(run, events)
        test_curves_are_those_of_the_events(build, folder, run, events)
        test_runs_have_colours_and_names(build, folder, run)
        test_timeline_has_phases(build, folder, run)
        test_files_of_others_stay(build, folder, run)


if __name__ == '__main__':
    main()
