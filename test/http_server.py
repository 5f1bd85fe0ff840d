#!/usr/bin/env python3
"""A server of files by ranges over HTTP, for tests and benches, which misbehaves on request.

  test/http_server.py FOLDER [--latency SECONDS] [--certificate FILE] [--address ADDRESS] [--port N]

prints its port and serves until its standard input ends. /MODE/NAME is the file NAME of FOLDER, served
as MODE says. Of modes that misbehave, those in ODD do so at each second request of a path, and those in
LATER at every request but the first one, which opens the file.
"""
import argparse
import collections
import http.server
import os
import re
import socket
import ssl
import struct
import sys
import threading
import time

ODD = {'reset', 'truncate', 'shift', 'short', 'long', 'more', 'unnamed', 'wait', 'garbage'}
LATER = {'resets': 'reset', 'truncates': 'truncate', 'shifts': 'shift', 'shorts': 'short', 'longs': 'long',
         'mores': 'more', 'waits': 'wait', 'etag': 'etag', 'modified': 'modified', 'total': 'total',
         'gone': '404', 'wholes': 'whole', 'downs': '503'}
STATUS = re.compile(r'[345]\d\d$')
REDIRECTS = {'loop': '/loop/%s', 'moved': '/ok/%s', 'ftp': 'ftp://127.0.0.1/%s', 'local': 'file:///etc/passwd?%s'}
PIECE = 1 << 16


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        time.sleep(self.server.latency)
        mode, _, name = self.path.split('?')[0].strip('/').partition('/')
        with self.server.lock:
            self.server.asked[self.path] += 1
            asked = self.server.asked[self.path]
        if mode == 'busy':
            mode = '503' if asked <= 2 else 'ok'
        elif mode == 'secret':
            mode = 'ok' if self.headers.get('Authorization') == 'Basic bWU6c2VjcmV0' else '401'
        elif mode in ODD:
            mode = mode if asked % 2 == 0 else 'ok'
        elif mode in LATER:
            mode = LATER[mode] if asked > 1 else 'ok'
        if STATUS.match(mode):
            return self.refuse(int(mode))
        if mode in REDIRECTS:
            return self.redirect(REDIRECTS[mode] % name)
        if mode == 'garbage':
            self.wfile.write(b'\0\xff this is no HTTP \r\n\r\n' * 100)
            return self.cut()
        return self.send_range(mode, os.path.join(self.server.folder, os.path.basename(name)))

    def refuse(self, status):
        self.send_response(status)
        self.send_header('Content-Length', '5')
        self.end_headers()
        self.wfile.write(b'sorry')

    def redirect(self, where):
        self.send_response(302)
        self.send_header('Location', where)
        self.send_header('Content-Length', '0')
        self.end_headers()

    def cut(self, reset=False):
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            self.connection.close()

    def send_range(self, mode, path):
        if not os.path.isfile(path):
            return self.refuse(404)
        length = os.path.getsize(path)
        wanted = re.match(r'bytes=(\d+)-(\d+)$', self.headers.get('Range', ''))
        first, last = (int(wanted[1]), int(wanted[2])) if wanted else (0, length - 1)
        last = min(last, length - 1)
        if first > last:
            return self.refuse(416)
        whole = mode == 'whole' or not wanted
        if whole:
            first, last = 0, length - 1
        named = (first + 1, last + 1) if mode == 'shift' else (first, last)
        if mode == 'short':
            last -= 1
        n = last - first + 1
        sent = n + 1000 if mode in ('long', 'more') else n
        self.send_response(200 if whole else 206)
        if not whole and mode != 'unnamed':
            self.send_header('Content-Range', 'bytes %d-%d/%d' % (*named, length + (mode == 'total')))
        if mode in ('chunked', 'more'):
            self.send_header('Transfer-Encoding', 'chunked')
        else:
            self.send_header('Content-Length', str(sent))
        if mode == 'gzip':
            self.send_header('Content-Encoding', 'gzip')
        if mode != 'plain':
            self.send_header('ETag', '"%s"' % ('other' if mode == 'etag' else 'one'))
            self.send_header('Last-Modified', 'Thu, 0%d Jan 1970 00:00:00 GMT' % (2 if mode == 'modified' else 1))
        if mode == 'headers':
            for i in range(3000):
                self.send_header('X-%d' % i, 'y' * 50)
        self.end_headers()
        with open(path, 'rb') as file:
            file.seek(first)
            self.send_body(mode, file, n, sent)

    def send_body(self, mode, file, n, sent):
        if mode in ('reset', 'truncate', 'wait'):
            self.wfile.write(file.read(n // 2))
            self.wfile.flush()
            if mode == 'wait': # until the other side has had enough
                self.connection.settimeout(30)
                try:
                    self.connection.recv(1)
                except OSError:
                    pass
            return self.cut(mode == 'reset')
        chunked = mode in ('chunked', 'more')
        left = sent
        while left > 0:
            some = file.read(min(PIECE, left, n)) or b'x' * left
            n -= len(some) if n >= len(some) else n
            left -= len(some)
            self.wfile.write(b'%x\r\n%s\r\n' % (len(some), some) if chunked else some)
        if chunked:
            self.wfile.write(b'0\r\n\r\n')


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_): # of clients that went away
        pass


def main():
    options = argparse.ArgumentParser()
    options.add_argument('folder')
    options.add_argument('--latency', type=float, default=0)
    options.add_argument('--certificate')
    options.add_argument('--address', default='127.0.0.1')
    options.add_argument('--port', type=int, default=0)
    given = options.parse_args()
    server = Server((given.address, given.port), Handler)
    server.folder, server.latency = given.folder, given.latency
    server.asked, server.lock = collections.Counter(), threading.Lock()
    if given.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(given.certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.buffer.read()


if __name__ == '__main__':
    main()
