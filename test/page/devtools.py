"""A browser without a window that is asked through a pipe, by the protocol of its developer tools."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    """Messages are JSON, each with a zero byte at its end: to the browser's descriptor 3, from its 4."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix='paceline-browser-')
        to_read, self.to = os.pipe()
        self.of, of_write = os.pipe()
        options = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run', '--disable-extensions',
                   '--disable-background-networking', '--disable-component-update', '--remote-debugging-pipe',
                   # A page behind another is drawn as often as one in front.
                   '--disable-background-timer-throttling', '--disable-renderer-backgrounding', '--disable-backgrounding-occluded-windows',
                   '--user-data-dir=' + self.profile, '--window-size=1360,1000', 'about:blank']
        # The shell gives the pipe the numbers that the browser expects.
        script = 'exec "$0" "$@" 3<&%d 4>&%d' % (to_read, of_write)
        self.process = subprocess.Popen(['/bin/bash', '-c', script, program, *options], pass_fds=(to_read, of_write),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(of_write)
        self.rest, self.number, self.events = b'', 0, []

    def read(self, until):
        while b'\0' not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.of], [], [], left)[0]:
                raise AssertionError('the browser does not answer')
            more = os.read(self.of, 1 << 20)
            if not more:
                raise AssertionError('the browser has ended')
            self.rest += more
        text, self.rest = self.rest.split(b'\0', 1)
        return json.loads(text)

    def call(self, method, session=None, limit=40, **parameters):
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': parameters, **({'sessionId': session} if session else {})}
        os.write(self.to, json.dumps(message).encode() + b'\0')
        until = time.monotonic() + limit
        while True:
            answer = self.read(until)
            if answer.get('id') == self.number:
                assert 'error' not in answer, answer
                return answer['result']
            self.events.append(answer)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.of)
        shutil.rmtree(self.profile, ignore_errors=True)


class Tab:
    """A page, with the addresses of all that it asked for."""

    def __init__(self, browser, url):
        self.browser = browser
        target = browser.call('Target.createTarget', url='about:blank')['targetId']
        self.session = browser.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        browser.call('Network.enable', self.session)
        browser.call('Page.navigate', self.session, url=url)

    def value(self, expression):
        answer = self.browser.call('Runtime.evaluate', self.session, expression=expression, returnByValue=True)
        assert 'exceptionDetails' not in answer, answer['exceptionDetails']
        return answer['result'].get('value')

    def wait(self, expression, limit=40):
        until = time.monotonic() + limit
        while not self.value(expression):
            assert time.monotonic() < until, expression
            time.sleep(0.05)

    def requests(self):
        return [e['params']['request']['url'] for e in self.browser.events
                if e.get('sessionId') == self.session and e['method'] == 'Network.requestWillBeSent']

    def screenshot(self, path):
        shot = self.browser.call('Page.captureScreenshot', self.session, captureBeyondViewport=True, format='png')
        with open(path, 'wb') as f:
            f.write(base64.b64decode(shot['data']))
