#!/usr/bin/env python3
"""Records over HTTP through a link of 200 Mbit/s, with a latency of 50 ms for each request.

  bench/http_source.py [--build DIR] [--mbytes N] [--rate MBIT] [--latency MS]

Two network namespaces are the hosts; tbf shapes the link. The server is test/http_server.py, which sleeps
for the latency before it answers. `paceline data verify` reads all records of shards of N megabytes. The
script prints the share of the link's rate, frames and all, once the first second is over, and the rate of
the records' bytes over the whole run. It fails below 90 %. Needs root, for the namespaces.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIDE, CHANNELS = 64, 3
NETWORK = '10.78.0'
SHARD_BYTES = 128 << 20
WARM_S = 1.0
BAR = 0.9


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def make_shards(command, folder, mbytes):
    record = CHANNELS * SIDE * SIDE
    count = mbytes * 10**6 // record
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d, %d), }" % (count, CHANNELS, SIDE, SIDE)
    header += ' ' * (63 - (len(header) + 10) % 64) + '\n'
    with open(os.path.join(folder, 'values.npy'), 'wb') as file:
        file.write(b'\x93NUMPY\x01\x00' + len(header).to_bytes(2, 'little') + header.encode())
        for _ in range(count):
            file.write(os.urandom(record))
    said = run(command, 'data', 'pack', 'npy:values.npy', 'set', '--shard-bytes', str(SHARD_BYTES), cwd=folder)
    os.remove(os.path.join(folder, 'values.npy'))
    return said.split('SPEC')[1].strip().split(':', 1)[1], count


class Hosts:
    def __init__(self, rate):
        self.name = ['http-bench-%d-%d' % (os.getpid(), i) for i in range(2)]
        for name in self.name:
            run('ip', 'netns', 'add', name)
        run('ip', 'link', 'add', 'eth0', 'netns', self.name[0], 'type', 'veth', 'peer', 'name', 'eth0', 'netns',
            self.name[1])
        for i, name in enumerate(self.name):
            run('ip', '-n', name, 'address', 'add', '%s.%d/24' % (NETWORK, i + 1), 'dev', 'eth0')
            run('ip', '-n', name, 'link', 'set', 'eth0', 'up')
            run('ip', '-n', name, 'link', 'set', 'lo', 'up')
            run('tc', '-n', name, 'qdisc', 'replace', 'dev', 'eth0', 'root', 'tbf', 'rate', '%dmbit' % rate, 'burst',
                '128kb', 'latency', '20ms')

    def start(self, host, *command, **options):
        return subprocess.Popen(['ip', 'netns', 'exec', self.name[host], *command], text=True, **options)

    def received(self):
        text = run('ip', '-n', self.name[1], '-s', 'link', 'show', 'eth0').split('RX:')[1]
        return int(text.split('\n')[1].split()[0])

    def end(self):
        for name in self.name:
            subprocess.run(['ip', 'netns', 'delete', name], check=False)


def measure(hosts, command, url):
    samples = []
    begun = time.monotonic()
    reader = hosts.start(1, command, 'data', 'verify', 'shards:' + url, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, env={**os.environ, 'no_proxy': '*'})
    while reader.poll() is None:
        samples.append((time.monotonic(), hosts.received()))
        time.sleep(0.1)
    seconds = time.monotonic() - begun
    said = reader.stdout.read()
    if reader.returncode != 0:
        sys.exit('paceline data verify failed:\n' + said)
    warm = [s for s in samples if s[0] >= begun + WARM_S][:-1]
    return seconds, (warm[-1][1] - warm[0][1]) / (warm[-1][0] - warm[0][0]), said


def main():
    options = argparse.ArgumentParser()
    options.add_argument('--build', default=os.path.join(ROOT, 'build'))
    options.add_argument('--mbytes', type=int, default=300)
    options.add_argument('--rate', type=int, default=200)
    options.add_argument('--latency', type=float, default=50)
    given = options.parse_args()
    command = os.path.join(os.path.abspath(given.build), 'paceline')
    folder = tempfile.mkdtemp(prefix='http-source-')
    hosts = None
    try:
        shards, count = make_shards(command, folder, given.mbytes)
        size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
        hosts = Hosts(given.rate)
        server = hosts.start(0, sys.executable, os.path.join(ROOT, 'test/http_server.py'), folder, '--latency',
                             str(given.latency / 1000), '--address', NETWORK + '.1', stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
        port = int(server.stdout.readline())
        seconds, rate, said = measure(hosts, command, 'http://%s.1:%d/ok/%s' % (NETWORK, port, shards))
        server.stdin.close()
        server.wait()
        link = given.rate * 1e6 / 8
        print('%s\n%d records, %.0f MB in %.2f s: %.1f MB/s, %.1f %% of the link; once warm %.1f %%' %
              (said.splitlines()[0] if said else '', count, size / 1e6, seconds, size / seconds / 1e6,
               100 * size / seconds / link, 100 * rate / link))
        return 0 if rate >= BAR * link else 1
    finally:
        if hosts:
            hosts.end()
        shutil.rmtree(folder)


if __name__ == '__main__':
    sys.exit(main())
