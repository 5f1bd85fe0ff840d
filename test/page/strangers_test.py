#!/usr/bin/env python3
"""Strangers at the port of a live page: wrong tokens, a header of 10 MB, a thousand connections and paths
out of the folder. All are refused, the run loses no step, and takes as many a second as without them.

  test/page/strangers_test.py BUILD [--pace 0.02] [--seconds 2] [--rounds 2] [--least 0.8]

Stretches with strangers and without take turns in one run; `--pace 0` trains as fast as it can, and then
strangers and training share the cores.
"""
import argparse
import os
import socket
import statistics
import tempfile
import threading
import time

import kit
from live_test import Run, send_raw


class Strangers:
    """Threads that attack until `over`; `served` counts answers that no stranger may get."""

    def __init__(self, run):
        self.run, self.over, self.served, self.attacks = run, threading.Event(), 0, 0
        self.threads = [threading.Thread(target=self.repeat, args=(attack,), daemon=True)
                        for attack in (self.token, self.header, self.crowd, self.paths)]

    def repeat(self, attack):
        while not self.over.is_set():
            try:
                attack()
            except OSError:
                pass  # the crowd has all connections
            self.attacks += 1
            time.sleep(0.02)

    def ask(self, path):
        got = send_raw(self.run, [b'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' % path.encode()])
        self.served += b' 200 ' in got[:20]

    def token(self):
        self.ask('/events?token=' + 'f' * 64)

    def header(self):
        got = send_raw(self.run, [b'GET / HTTP/1.1\r\nHost: localhost\r\nX: '] + [b'x' * 65536] * 160 + [b'\r\n\r\n'])
        self.served += b' 200 ' in got[:20]

    def crowd(self):
        crowd = []
        for _ in range(1000):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(('127.0.0.1', self.run.port))
            crowd.append(s)
        time.sleep(0.3)
        for s in crowd:
            s.close()

    def paths(self):
        for path in ('/../events.jsonl', '/%2e%2e/%2e%2e/etc/passwd', '/..%2fjob.prototxt', '//etc/passwd', '/events.jsonl'):
            self.ask(path)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(20)


class Counter:
    """The exchanges, that is steps, in a growing events.jsonl."""

    def __init__(self, folder):
        self.file, self.count = open(os.path.join(folder, 'events.jsonl'), encoding='utf-8'), 0

    def now(self):
        self.count += self.file.read().count('"kind":"exchange"')
        return self.count

    def rate(self, seconds):
        begun, before = time.monotonic(), self.now()
        time.sleep(seconds)
        return (self.now() - before) / (time.monotonic() - begun)


def check_books(events):
    steps = [e['n'] for e in events if e['kind'] == 'exchange']
    assert steps == list(range(1, len(steps) + 1)), 'a step is missing'
    end = events[-1]
    assert end['kind'] == 'end' and end['repeated'] == end['missed'] == 0, end
    assert [e['what'] for e in events if e['kind'] == 'member'] == ['join'] * 2


def measure(run, args):
    """Steps a second with strangers over those without, of each round."""
    counter, quotients, rates = Counter(run.folder), [], []
    time.sleep(1)
    for _ in range(args.rounds):
        calm = counter.rate(args.seconds)
        with Strangers(run) as strangers:
            time.sleep(0.2)
            attacked = counter.rate(args.seconds)
        assert strangers.served == 0 and strangers.attacks >= 4, (strangers.served, strangers.attacks)
        assert run.process.poll() is None, run.said
        quotients.append(attacked / calm)
        rates.append((calm, attacked))
    print('steps/s without and with strangers: ' + ', '.join('%.1f %.1f' % r for r in rates))
    return quotients


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build')
    parser.add_argument('--pace', type=float, default=0.02)
    parser.add_argument('--seconds', type=float, default=2)
    parser.add_argument('--rounds', type=int, default=2)
    parser.add_argument('--least', type=float, default=0.8)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        token = os.path.join(folder, 'token')
        with open(token, 'w', encoding='ascii', opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
            f.write('0123456789abcdef' * 4 + '\n')
        run = Run(os.path.abspath(args.build), kit.write_job(folder), '--epochs', '1000000', '--set', 'pace=%g' % args.pace,
                  '--page', '0', '--page-token', token)
        try:
            while not os.path.exists(os.path.join(run.folder, 'events.jsonl')):
                time.sleep(0.01)
            quotients = measure(run, args)
            run.end()
            check_books(kit.read_events(run.folder))
        finally:
            run.end()
        print('with strangers over without: median %.3f, from %.3f to %.3f' %
              (statistics.median(quotients), min(quotients), max(quotients)))
        assert statistics.median(quotients) >= args.least, quotients


if __name__ == '__main__':
    main()
