#!/usr/bin/env python3
"""The live page of a real run of eight workers, in a browser: each event is in the page's DOM within a
second of its line in events.jsonl, its curves are those of that file, the page is drawn within 2 s also after many events, and it asks for
nothing from elsewhere. So does the report of the run.

  test/page/follow_test.py BUILD [--events 100000] [--pictures DIR]
"""
import argparse
import json
import os
import tempfile
import threading
import time

import kit
from browser_test import Page, covered_curve, curve_of, points_of, report
from devtools import Browser, Tab
from live_test import Run

# The time of the newest point of a curve that is drawn, and now, at each change of the page.
WATCH = """(() => {
    window.seen = { train_loss: [], exchange_s: [] };
    const look = () => {
        for (const [curve, list] of Object.entries(window.seen)) {
            const path = document.querySelector(`path[data-curve="${curve}"]`);
            if (!path) continue;
            const d = path.getAttribute('d'), s = path.closest('svg').dataset, x = parseFloat(d.slice(d.lastIndexOf('L') + 1));
            const unit = (s.x1 - s.x0) / s.width;
            if (Number.isNaN(x)) continue; // one point
            list.push([Date.now() / 1000, +s.x0 + (x - s.left) * unit, 0.006 * unit]);
        }
    };
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
})()"""


class Late(Exception):
    """An event was drawn too late: by the page, or by a machine that others load."""


class Lines(threading.Thread):
    """When each line of a growing file was first there."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.events, self.over = path, [], threading.Event()

    def run(self):
        while not os.path.exists(self.path):
            time.sleep(0.01)
        with open(self.path, encoding='utf-8') as f:
            rest = ''
            while not self.over.is_set():
                text, now = f.read(), time.time()
                *lines, rest = (rest + text).split('\n')
                self.events += [(now, json.loads(line)) for line in lines]
                time.sleep(0.02)

    def count(self):
        return len(self.events)


def find_lags(events, kind, seen, since):
    """Seconds from an event's line to the first drawing that has it. Of a drawing's last moment on no
    event counts, since none could show it."""
    lags, k = [], 0
    until = seen[-1][0]
    for written, event in events:
        if event['kind'] != kind or written < since or written > until - 1:
            continue
        while k < len(seen) and seen[k][1] < event['t'] - seen[k][2]:
            k += 1
        if k == len(seen):
            raise Late()
        lags.append(max(0.0, seen[k][0] - written))
    return lags


def check_curves(tab, lines):
    """The curves that the page has put together as it got events, up to their newest points."""
    page = Page(tab.value('document.documentElement.outerHTML'))
    for chart, curve, kind, key in (('loss', 'train_loss', 'loss', 'loss'), ('exchange', 'exchange_s', 'exchange', 'seconds')):
        points, dx, _, _ = points_of(page.charts[chart], '0', curve)
        expected = curve_of([e for _, e in lines.events[:] if e['t'] <= points[-1][0] + dx], kind, key)
        assert len(points) >= 3, (curve, len(points))
        covered_curve(page, chart, curve, expected)


def check_page(tab, url):
    tab.wait('document.documentElement?.dataset.drawn > 0 && document.querySelectorAll("svg[data-chart] path[data-curve]").length > 0')
    others = [u for u in tab.requests() if not u.startswith(url)]
    assert tab.requests() and not others, others
    return int(tab.value('document.documentElement.dataset.drawn'))


def follow_run(browser, run, lines, args):
    url = 'http://127.0.0.1:%d/' % run.port
    while not any(e['kind'] == 'loss' for _, e in lines.events[:]):
        time.sleep(0.05)
    tab = Tab(browser, url)
    check_page(tab, url)
    tab.value(WATCH)
    since = time.time()
    while lines.count() < args.events:
        assert run.process.poll() is None, run.said
        time.sleep(0.2)
    late = Tab(browser, url)
    drawn = check_page(late, url)
    count = lines.count()
    print('live page after %d events: drawn after %d ms' % (count, drawn))
    assert drawn <= 2000, drawn
    time.sleep(2)
    seen = tab.value('window.seen')
    for kind, curve in ('loss', 'train_loss'), ('exchange', 'exchange_s'):
        lags = sorted(find_lags(lines.events[:], kind, seen[curve], since))
        assert len(lags) >= 3, (kind, len(lags), len(seen[curve]))
        print('%d events of %s: drawn %.2f s after their lines at the median, %.2f s at most' %
              (len(lags), kind, lags[len(lags) // 2], lags[-1]))
        if lags[-1] > 1:
            raise Late()
    check_page(tab, url)
    check_curves(tab, lines)
    if args.pictures:
        late.screenshot(os.path.join(args.pictures, 'live.png'))


def check_report(build, browser, run, folder, args):
    path = os.path.join(folder, 'report.html')
    report(build, run.folder, '-o', path)
    tab = Tab(browser, 'file://' + path)
    drawn = check_page(tab, 'file://' + path)
    print('report of %d events: drawn after %d ms' % (len(kit.read_events(run.folder)), drawn))
    assert drawn <= 2000, drawn
    if args.pictures:
        tab.screenshot(os.path.join(args.pictures, 'report.png'))


def follow(build, program, args):
    with tempfile.TemporaryDirectory() as folder:
        job, browser = kit.write_job(folder), Browser(program)
        run = Run(build, job, '--workers', '8', '--epochs', '1000000', '--set', 'strategy.ps={}', '--page', '0')
        lines = Lines(os.path.join(run.folder, 'events.jsonl'))
        lines.start()
        try:
            follow_run(browser, run, lines, args)
            run.end()
            check_report(build, browser, run, folder, args)
        finally:
            lines.over.set()
            run.end()
            browser.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build')
    parser.add_argument('--events', type=int, default=10000)
    parser.add_argument('--pictures')
    args = parser.parse_args()
    build, program = os.path.abspath(args.build), kit.find_browser()
    if not program:
        print('[  SKIPPED ] test_the_live_page_in_a_browser')
        return
    for _ in range(3):
        try:
            follow(build, program, args)
            return
        except Late:
            print('later than 1 s; once more')
    raise AssertionError('in three runs an event was drawn later than 1 s after its line')


if __name__ == '__main__':
    main()
