#!/usr/bin/env python3
"""Causes of slow exchanges, planted in runs of real processes: 95 % of the exchanges that wait for long
blame the right worker for the right cause.

  test/process/blame_real.py BUILD
"""
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib

WORKERS = 3
NET = """name: 'tiny'
layer { name: 'data' type: 'Data' top: 'data' top: 'label' }
layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1'
  inner_product_param { num_output: 400 weight_filler { type: 'xavier' } } }
layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2'
  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' top: 'loss' }
"""
JOB = """name: 'tiny'
net { file: 'net.prototxt' }
train_data { images { list: 'pictures' } scale: 0.00390625 }
batch: 8
solver { base_lr: 0.001 lr_policy: 'fixed' }
strategy { allreduce { } }
workers: %d
threads: 1
kernels: ref
pace: 0.02
"""


def png(pixels):
    """A grey picture of 8 × 8."""
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    rows = b''.join(b'\0' + bytes(pixels[8 * y:8 * y + 8]) for y in range(8))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>2I5B', 8, 8, 8, 0, 0, 0, 0)) +
            chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


def write_job(folder):
    draw = random.Random(1)
    for label in range(3):
        os.makedirs(os.path.join(folder, 'pictures', str(label)))
        for i in range(80):
            pixels = [draw.randrange(100) + (150 if at // 8 == label else 0) for at in range(64)]
            with open(os.path.join(folder, 'pictures', str(label), '%d.png' % i), 'wb') as f:
                f.write(png(pixels))
    for name, text in (('net.prototxt', NET), ('tiny.job', JOB % WORKERS)):
        with open(os.path.join(folder, name), 'w', encoding='ascii') as f:
            f.write(text)


class Run:
    """A driver and three workers, of which worker 0 is the odd one; behind a proxy of that rate, if one is given."""

    def __init__(self, build, folder, name, mbit=None, environment=None, epochs=8):
        self.build, self.out, self.odd = build, os.path.join(folder, name), None
        self.processes = []
        driver = self.start(['driver', os.path.join(folder, 'tiny.job'), '--listen', '127.0.0.1:0', '--out', self.out,
                             '--epochs', str(epochs)], stderr=subprocess.PIPE)
        for line in driver.stderr:
            found = re.search(r'paceline worker --join (\S+)', line)
            if found:
                break
        else:
            raise AssertionError('the driver gives no address')
        self.address = found.group(1)
        self.odd = self.join_behind(mbit) if mbit else self.join(self.address, environment=environment)
        for line in driver.stderr:
            if 'worker 0' in line:
                break
        for _ in range(WORKERS - 1):
            self.join(self.address)
        self.driver = driver

    def start(self, arguments, command='paceline', environment=None, **pipes):
        process = subprocess.Popen([os.path.join(self.build, command), *arguments], text=True, env={**os.environ, **(environment or {})},
                                   **{'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL, **pipes})
        self.processes.append(process)
        return process

    def join(self, address, *options, environment=None):
        return self.start(['worker', '--join', address, *options], environment=environment)

    def join_behind(self, mbit):
        """Route 0 leads to the driver, route 1 from the other workers to this one."""
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            listen = '127.0.0.1:%d' % s.getsockname()[1]
        proxy = self.start([self.address, listen], 'paceline_proxy', stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        routes = [proxy.stdout.readline().split()[2] for _ in range(2)]
        proxy.stdin.write('mbit %g\n' % mbit)
        proxy.stdin.flush()
        assert proxy.stdout.readline() == 'ok\n'
        return self.join(routes[0], '--listen', listen, '--advertise', routes[1])

    def lines(self, kind):
        try:
            with open(os.path.join(self.out, 'events.jsonl'), encoding='utf-8') as f:
                return [e for e in map(json.loads, filter(lambda line: line.endswith('\n'), f)) if e['kind'] == kind]
        except FileNotFoundError:
            return []

    def await_exchange(self, n):
        until = time.monotonic() + 60
        while not any(e['n'] >= n for e in self.lines('exchange')):
            assert time.monotonic() < until and self.driver.poll() is None, 'exchange %d does not come' % n
            time.sleep(0.05)

    def end(self):
        try:
            self.driver.communicate(timeout=90)
            assert self.driver.returncode == 0, self.driver.returncode
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.kill()
                process.wait()


def expect(run, cause, least_s, at_least):
    """Of the exchanges with long waits, which `least_s` bounds, 95 % name worker 0 and the cause."""
    run.end()
    waits = [e for e in run.lines('exchange') if e['n'] > 3 and e['waited_s'] >= least_s]
    right = [e for e in waits if e.get('blamed') == 0 and e.get('cause') == cause]
    print('%s: %d of %d long waits; %s' % (cause, len(right), len(waits), right[:1] and right[0]['why']))
    assert len(waits) >= at_least and len(right) >= 0.95 * len(waits), [e for e in waits if e not in right][:5]


def test_slow_link(build, folder):
    expect(Run(build, folder, 'link', mbit=5, epochs=3), 'link', 0.3, 20)


def test_late_data(build, folder):
    slow = {'LD_PRELOAD': os.path.join(build, 'libslow_open.so'), 'SLOW_PATH': '.png', 'SLOW_OPENS': '1000000', 'SLOW_MS': '25'}
    expect(Run(build, folder, 'data', environment=slow, epochs=4), 'data', 0.1, 20)


def test_stopped_worker(build, folder):
    """With --listen heartbeats come once a second; shorter stops are long steps."""
    run = Run(build, folder, 'stop', epochs=16)
    for n in (10, 40, 70):
        run.await_exchange(n)
        os.kill(run.odd.pid, signal.SIGSTOP)
        time.sleep(2.2)
        os.kill(run.odd.pid, signal.SIGCONT)
    expect(run, 'stop', 1.9, 3)


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        write_job(folder)
        test_slow_link(build, folder)
        test_late_data(build, folder)
        test_stopped_worker(build, folder)


if __name__ == '__main__':
    main()
