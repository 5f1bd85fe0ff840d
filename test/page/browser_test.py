#!/usr/bin/env python3
"""A report in a browser: curves read back from the page equal the events, 10^5 events are drawn within
2 s, and no text of a run becomes part of the page's HTML.

  test/page/browser_test.py BUILD
"""
import bisect
import html.parser
import os
import re
import subprocess
import sys
import tempfile

import kit

EVIL = '</script><script>document.title="broken"</script><img src=x onerror=alert(1)>'


class Page(html.parser.HTMLParser):
    """Drawings with their curves; tables; names of elements."""

    def __init__(self, text):
        super().__init__()
        self.charts, self.tags, self.root, self.tables, self.row = {}, {}, {}, {}, None
        self.chart = self.table = self.cell = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags[tag] = self.tags.get(tag, 0) + 1
        if tag == 'html':
            self.root = attrs
        elif tag == 'svg' and 'data-chart' in attrs:
            self.chart = self.charts.setdefault(attrs['data-chart'], {'scale': attrs, 'curves': {}})
        elif tag == 'path' and 'data-curve' in attrs:
            self.chart['curves'][attrs['data-run'], attrs['data-curve']] = attrs['d']
        elif tag == 'table':
            self.table = self.tables.setdefault(attrs.get('aria-label', ''), [])
        elif tag == 'tr':
            self.row = []
        elif tag in ('td', 'th'):
            self.cell = ''

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data

    def handle_endtag(self, tag):
        if tag in ('td', 'th') and self.cell is not None:
            self.row.append(self.cell)
            self.cell = None
        elif tag == 'tr' and self.table is not None and self.row is not None:
            self.table.append(self.row)


def points_of(chart, run, curve):
    """The points of a curve in the units of its axes, and how near a pixel's hundredth can be."""
    s = {k: float(v) for k, v in chart['scale'].items() if k.startswith('data-') and k not in ('data-chart', 'data-axis')}
    assert s['data-log'] == 0 or curve.endswith('loss'), curve
    numbers = re.findall(r'[ML](-?[\d.]+) (-?[\d.]+)', chart['curves'][run, curve])
    import math
    lift = (math.log, math.exp) if s['data-log'] else (float, float)
    y0, y1 = lift[0](s['data-y0']), lift[0](s['data-y1'])
    x_unit = (s['data-x1'] - s['data-x0']) / s['data-width']
    y_unit = (y1 - y0) / s['data-height']
    points = [(s['data-x0'] + (float(x) - s['data-left']) * x_unit,
               y0 + (s['data-top'] + s['data-height'] - float(y)) * y_unit) for x, y in numbers]
    return points, 0.006 * x_unit, 0.006 * y_unit, lift[0]


def same_curve(page, chart, curve, expected, run='0'):
    """Every event is a point of the curve, and every point an event."""
    points, dx, dy, lift = points_of(page.charts[chart], run, curve)
    assert len(points) == len(expected), (curve, len(points), len(expected))
    for (x, y), (t, value) in zip(points, expected):
        assert abs(x - t) <= dx and abs(y - lift(value)) <= dy, (curve, x, t, y, value)


def covered_curve(page, chart, curve, expected, run='0'):
    """A curve of more events than pixels: every point is an event, and no event is above or below all
    points of its column of pixels and the two next to it."""
    points, dx, dy, lift = points_of(page.charts[chart], run, curve)
    expected = sorted(expected)
    times = [t for t, _ in expected]
    for x, y in points:
        near = expected[bisect.bisect_left(times, x - dx):bisect.bisect_right(times, x + dx)]
        assert any(abs(y - lift(v)) <= dy for _, v in near), (curve, x, y)
    for pick in (min, max):
        value = pick(v for _, v in expected)
        assert abs(pick(y for _, y in points) - lift(value)) <= dy, (curve, value)
    width = float(page.charts[chart]['scale']['data-width'])
    step = float(page.charts[chart]['scale']['data-x1']) / width
    xs = [x for x, _ in points]
    for column in range(int(width)):
        values = [v for _, v in expected[bisect.bisect_left(times, column * step):bisect.bisect_left(times, (column + 1) * step)]]
        ys = [y for _, y in points[bisect.bisect_left(xs, (column - 1) * step):bisect.bisect_right(xs, (column + 2) * step)]]
        if values:
            assert max(ys) >= lift(max(values)) - 2 * dy and min(ys) <= lift(min(values)) + 2 * dy, (curve, column)
    assert len(points) < 10 * width, 'the page draws more than can be seen'


def curve_of(events, kind, key, **fits):
    return [(e['t'], e[key]) for e in events if e['kind'] == kind and all(e.get(k) == v for k, v in fits.items())]


def report(build, *arguments):
    done = subprocess.run([os.path.join(build, 'paceline'), 'report', *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_long_run(build, browser, folder):
    name = os.path.join(folder, 'a"><b>evil<')
    events = kit.long_run(100000, 1000)
    events.insert(2, {'t': 0.1, 'kind': 'warning', 'what': 'size', 'text': EVIL})
    events[0]['job'] = events[0]['settings'] = events[0]['net'] = EVIL
    attic, evil = {'host': 'attic', 'cpu': 'EPYC', 'cores': 16, 'memory': 64e9}, {'host': EVIL[:63], 'cpu': EVIL, 'cores': -1}
    events[0].update(attic)
    for event in events:
        if event.get('what') == 'join':
            event.update(evil if event['node'] in (2, 4, 5) else attic)
    kit.write_run(name, events)
    second = os.path.join(folder, 'second')
    kit.write_run(second, kit.long_run(500, 200))
    path = os.path.join(folder, 'report.html')
    report(build, name, second, '-o', path)
    text = kit.open_page(browser, 'file://' + path + '#error', folder)
    page = Page(text)
    assert page.tags.get('img', 0) == 0 and page.tags.get('b', 0) == 0 and 'broken' not in text.split('<body')[0]
    drawn = int(page.root['data-drawn'])
    print('drawn after %d ms, page of %.1f MB' % (drawn, os.path.getsize(path) / 1e6))
    assert drawn <= 2000, drawn
    same_curve(page, 'loss', 'train_loss', curve_of(events, 'loss', 'loss'))
    same_curve(page, 'loss', 'validation_loss', curve_of(events, 'eval', 'loss'))
    same_curve(page, 'error', 'validation_error', curve_of(events, 'eval', 'error'))
    covered_curve(page, 'exchange', 'exchange_s', curve_of(events, 'exchange', 'seconds'))
    covered_curve(page, 'exchange', 'waited_s', curve_of(events, 'exchange', 'waited_s'))
    other = kit.read_events(second)
    same_curve(page, 'loss', 'train_loss', curve_of(other, 'loss', 'loss'), '1')
    assert page.tables['machines'] == [['machine', 'processor', 'cores', 'memory', 'nodes'],
                                       ['attic', 'EPYC', '16', '64 GB', 'driver, workers 0, 1, 3, 6–8'],
                                       [EVIL[:63], EVIL[:63], '–', '–', 'workers 2, 4, 5']], page.tables['machines']
    rows = [r for r in page.tables['error, %'] if r[0].endswith('validation error')]
    wanted = [[str(float(e['t'])), str(e['error'])] for e in events + other if e['kind'] == 'eval']
    assert [[str(float(r[1])), r[4]] for r in rows] == wanted, rows[:3]


def main():
    build, browser = os.path.abspath(sys.argv[1]), kit.find_browser()
    if not browser:
        print('[  SKIPPED ] test_pages_in_a_browser')
        return
    with tempfile.TemporaryDirectory() as folder:
        test_long_run(build, browser, folder)


if __name__ == '__main__':
    main()
