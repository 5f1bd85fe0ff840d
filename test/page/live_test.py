#!/usr/bin/env python3
"""The live page of a real run: its events arrive within a second and equal events.jsonl; metrics; and
strangers at its port, who are refused while training continues.

  test/page/live_test.py BUILD
"""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import kit


class Run:
    """`paceline train` with a page; ends within a minute."""

    def __init__(self, build, job, *options):
        self.folder = os.path.join(os.path.dirname(job), 'run-%d' % len(os.listdir(os.path.dirname(job))))
        self.process = subprocess.Popen([os.path.join(build, 'paceline'), 'train', job, '--out', self.folder, *options],
                                        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.said, self.url = [], None
        for line in self.process.stderr:
            self.said.append(line)
            found = re.match(r'page +http://([^:]+):(\d+)/(?:\?token=(\S+))?', line)
            if found:
                self.host, self.port, self.token = found.group(1), int(found.group(2)), found.group(3)
                break
        else:
            raise AssertionError(''.join(self.said))
        threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True).start()

    def get(self, path, method='GET', headers=None):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=10)
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        body = answer.read().decode('utf-8')
        connection.close()
        return answer, body

    def status(self, path, method='GET', headers=None):
        return self.get(path, method, headers)[0].status

    def end(self):
        """For a test that has failed."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=30)

    def wait(self):
        code = self.process.wait(timeout=60)
        assert code == 0, (code, self.said)
        return kit.read_events(self.folder)


def follow(run):
    """Reads /events until the end: the merged document, and when each loss arrived."""
    connection = http.client.HTTPConnection('127.0.0.1', run.port, timeout=20)
    connection.request('GET', '/events')
    answer = connection.getresponse()
    assert answer.status == 200 and answer.getheader('Content-Type') == 'text/event-stream'
    document, kind, arrivals, statuses = None, None, [], 0
    for line in answer:
        line = line.decode('utf-8').rstrip('\n')
        if line.startswith('event: '):
            kind = line[7:]
        elif line.startswith('data: '):
            value = json.loads(line[6:])
            if kind == 'end':
                break
            if kind == 'document':
                document = value['runs'][0]
                arrivals += [(None, t) for t in document['curves']['train_loss']['t']]
            elif kind == 'change':
                arrivals += [(time.monotonic(), t) for t in value['curves']['train_loss']['t']]
                for name, columns in value.pop('curves').items():
                    for column, more in columns.items():
                        document['curves'][name][column] += more
                document.update(value)
            statuses += kind == 'status'
    connection.close()
    return document, arrivals, statuses


def is_of_this_machine(events, hosts):
    """Driver and workers are on one machine, which the page has in one row."""
    start = next(e for e in events if e['kind'] == 'start')
    joins = [e for e in events if e['kind'] == 'member' and e['what'] == 'join']
    with open('/proc/cpuinfo', encoding='utf-8') as f:
        models = [line.split(':', 1)[1].strip() for line in f if line.startswith('model name')]
    memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGESIZE')
    assert len(joins) == 2, joins
    for event in [start] + joins:
        assert (event['host'], event['memory'], [event['cpu']]) == (socket.gethostname(), memory, models[:1]), event
        assert 1 <= event['cores'] == start['cores'] <= os.cpu_count(), event
    assert hosts == [[start['host'], start['cpu'], start['cores'], memory, [-1, 0, 1]]], hosts


def test_page_equals_the_events(run, document, arrivals, statuses, events):
    for curve, kind, key in (('train_loss', 'loss', 'loss'), ('rate', 'loss rate', 'rate'), ('exchange_s', 'exchange', 'seconds'),
                             ('waited_s', 'exchange', 'waited_s')):
        mine = document['curves'][curve]
        wanted = [(e['t'], e[key]) for e in events if e['kind'] in kind.split()]
        assert list(zip(mine['t'], mine['value'])) == wanted, (curve, len(mine['t']), len(wanted))
    errors = [e for e in events if e['kind'] == 'eval' and e['set'] == 'validation']
    assert document['curves']['validation_error']['value'] == [e['error'] for e in errors]
    facts = {label: value for _, label, _, value in document['facts']}
    is_of_this_machine(events, document['hosts'])
    assert facts['ended by'] == 'epochs' and document['ended'] is True
    assert statuses >= 4, statuses
    early = min(at - t for at, t in arrivals if at)
    lag = max(at - t - early for at, t in arrivals if at)
    print('%d losses; the latest arrived %.2f s late' % (len(arrivals), lag))
    assert len(arrivals) >= 3 and lag <= 1, lag


def test_metrics(run):
    answer, text = run.get('/metrics')
    assert answer.getheader('Content-Type').startswith('text/plain; version=0.0.4')
    seen, typed = {}, set()
    for line in text.splitlines():
        if line.startswith('# TYPE '):
            assert line.split()[2] not in typed, line
            typed.add(line.split()[2])
        elif not line.startswith('#'):
            found = re.fullmatch(r'(paceline_\w+)((?:\{[^}]*\})?) (\S+)', line)
            assert found and found.group(1) in typed, line
            seen[found.group(1) + found.group(2)] = float(found.group(3))
    assert seen['paceline_run_info{job="tiny",net="net.prototxt",strategy="allreduce"}'] == 1, seen
    assert seen['paceline_exchanges_total'] > 0 and seen['paceline_workers'] == 2
    assert seen['paceline_train_loss'] > 0 and seen['paceline_ended'] == 0
    knows_dashboard(typed)


def knows_dashboard(names):
    """The dashboard in examples asks for metrics that there are."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'examples', 'grafana', 'paceline.json')
    with open(path, encoding='utf-8') as f:
        asked = set(re.findall(r'paceline_\w+', f.read()))
    assert asked and asked <= names, asked - names


def test_requests(run):
    answer, text = run.get('/')
    assert answer.status == 200 and 'data-live="yes"' in text and answer.getheader('Cache-Control') == 'no-store'
    assert run.get('/healthz')[1] == 'ok\n'
    assert run.get('/', 'HEAD')[1] == ''
    for path in ('/events.jsonl', '/job.prototxt', '/../events.jsonl', '/%2e%2e/%2e%2e/etc/passwd', '/..%2fjob.prototxt',
                 '//etc/passwd', '/events/', '/' + 'a' * 4000):
        assert run.status(path) == 404, path
    for method in ('POST', 'PUT', 'DELETE', 'OPTIONS', 'TRACE'):
        assert run.status('/', method) == 405, method
    assert run.status('/', headers={'Host': 'rebound.example:80'}) == 403
    assert run.status('/metrics', headers={'Host': '127.0.0.1.example'}) == 403


def send_raw(run, text):
    """What a stranger who sends these bytes gets within half a second."""
    got = b''
    with socket.create_connection(('127.0.0.1', run.port), timeout=0.5) as s:
        try:
            for part in text:
                s.sendall(part)
            while True:
                more = s.recv(4096)
                if not more:
                    break
                got += more
        except (ConnectionError, TimeoutError):
            pass
    return got


def test_strangers(run):
    head = b'GET / HTTP/1.1\r\nHost: localhost\r\n'
    got = send_raw(run, [head + b'X: '] + [b'x' * 65536] * 160 + [b'\r\n\r\n'])  # 10 MB
    assert not got.startswith(b'HTTP/1.1 200'), got[:100]
    for text in ([b'\0' * 1000 + b'\r\n\r\n'], [b'GET\r\n\r\n'], [b'GET / HTTP/9.9\r\nHost: x\r\n\r\n']):
        assert b' 200 ' not in send_raw(run, text)[:20]
    crowd = []
    for _ in range(1000):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(('127.0.0.1', run.port))
        crowd.append(s)
    time.sleep(0.5)
    assert run.process.poll() is None, 'a crowd has ended the run'
    for s in crowd:
        s.close()
    assert run.get('/healthz')[1] == 'ok\n'


def stop_a_worker(run):
    """For longer than two heartbeats take, as another program could that takes its processor."""
    pid = run.process.pid
    with open('/proc/%d/task/%d/children' % (pid, pid), encoding='ascii') as f:
        worker = int(f.read().split()[0])
    os.kill(worker, signal.SIGSTOP)
    time.sleep(0.6)
    os.kill(worker, signal.SIGCONT)


def test_the_stopped_worker_is_blamed(events):
    longest = max((e for e in events if e['kind'] == 'exchange' and e['n'] > 10), key=lambda e: e['waited_s'])
    assert longest['waited_s'] > 0.3 and longest['cause'] == 'stop' and longest['blamed'] == longest['waited_for'], longest
    assert re.fullmatch(r'it was silent for 0\.\d+ s', longest['why']), longest


def test_token(build, job):
    run = Run(build, job, '--epochs', '1', '--set', 'pace=0.08', '--page', '0.0.0.0:0')
    try:
        check_token(run)
        run.wait()
    finally:
        run.end()


def check_token(run):
    assert run.token and len(run.token) == 64
    assert run.status('/healthz') == 200
    for path in ('/', '/events', '/metrics'):
        assert run.status(path) == 403
        assert run.status(path + '?token=' + run.token[:-1]) == 403
        assert run.status(path + '?token=') == 403
        assert run.status(path, headers={'Authorization': 'Bearer x' + run.token}) == 403
    assert run.status('/?token=' + run.token) == 200
    assert run.status('/metrics', headers={'Authorization': 'Bearer ' + run.token}) == 200


def test_page_and_strangers(build, job):
    run = Run(build, job, '--epochs', '12', '--set', 'pace=0.02', '--page', '0')
    try:
        assert run.token is None and run.host == '127.0.0.1'
        found = []
        follower = threading.Thread(target=lambda: found.extend(follow(run)), daemon=True)
        follower.start()
        test_requests(run)
        test_strangers(run)
        test_metrics(run)
        stop_a_worker(run)
        events = run.wait()
        follower.join(20)
        test_page_equals_the_events(run, *found, events)
        test_the_stopped_worker_is_blamed(events)
    finally:
        run.end()


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        job = kit.write_job(folder)
        test_page_and_strangers(build, job)
        test_token(build, job)


if __name__ == '__main__':
    main()
