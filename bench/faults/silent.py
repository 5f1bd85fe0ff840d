#!/usr/bin/env python3
"""Workers join a run while strangers hold connections to its driver and send nothing, or too slowly.

    bench/faults/silent.py [--silent 1000] [--drips 200] [--joins 30] [--build build]

The run is the tiny job's on loopback. One process holds the strangers' connections, and connects again
wherever one is closed: silent ones; and drips, of which each says one byte a second of a hello, or of
garbage, or half a hello at once, or a whole one, and then nothing. One worker trains all the time. Others
come, one after the other, and leave again.

join      from a worker's process start until the driver says that it is a member; seconds
without   the same before the strangers come
"""
import argparse
import os
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import stage

LIMIT = 120
AGAIN = 0.05  # until a stranger whose connection was closed connects once more
ANY, DRIVER = 0xffffffff, 0xfffffffe


def hello(version):
    """The first bytes of a worker without a number; from version 3 on followed by 64 bytes that prove nothing."""
    first = b"PACELINE" + struct.pack("<IIQIIHBB", version, 0, 0, ANY, DRIVER, 1, 0, 0)
    return first.ljust(64, b"\0") + (b"x" * 64 if version > 2 else b"")


class Stranger:
    """A connection that sends `text[:at once]`, then a byte a second."""

    def __init__(self, text, once, every):
        self.text, self.once, self.every = text, once, every
        self.socket, self.said, self.due = None, 0, 0.0

    def connect(self, address, selector, now):
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(address)
        selector.register(self.socket, selectors.EVENT_READ, self)
        self.said, self.due = 0, now + self.every * 0.05

    def say(self, now):
        n = self.once if self.said == 0 and self.once else 1
        try:
            self.said += self.socket.send(self.text[self.said:self.said + n])
        except OSError:
            pass
        self.due = now + self.every

    def hang_up(self, selector, now):
        selector.unregister(self.socket)
        self.socket.close()
        self.socket, self.due = None, now + AGAIN


def besiege(address, silent, drips, version):
    """Until it is killed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    whole = hello(version)
    kinds = [(whole, 0, 1.0), (b"\xff" * 64, 0, 1.0), (whole[:32], 32, 1.0), (whole, len(whole), 1.0)]
    all_of_them = [Stranger(b"", 0, 1e9) for _ in range(silent)]
    all_of_them += [Stranger(*kinds[i % len(kinds)]) for i in range(drips)]
    selector, closed = selectors.DefaultSelector(), 0
    while True:
        now = time.monotonic()
        for s in all_of_them:
            if s.socket is None and now >= s.due:
                s.connect(address, selector, now)
            elif s.socket is not None and now >= s.due and s.said < len(s.text):
                s.say(now)
        for key, _ in selector.select(0.02):
            try:
                ended = key.data.socket.recv(4096) == b""
            except BlockingIOError:
                ended = False
            except OSError:
                ended = True
            if ended:
                key.data.hang_up(selector, now)
                closed += 1


class Siege(stage.Run):
    """The driver is `paceline driver`: it requires this user's key."""
    strategy = "sync={tau: 4}"

    def __init__(self, args, folder):
        self.out, self.args, self.folder = os.path.join(folder, "run"), args, folder
        self.program_path = os.path.join(os.path.abspath(args.build), "paceline")
        self.read_to, self.rest, self.events, self.worker, self.proxy = 0, "", [], [], {}
        self.at = stage.free_port()
        self.err = open(self.out + ".log", "wb")
        settings = ["workers_min=1", "workers_max=4", "heartbeat=lan", "pace=0.01",
                    f"strategy.{self.strategy}"]
        self.driver = subprocess.Popen(
            [self.program_path, "driver", "tiny.job", "--out", self.out, "--listen", self.at] +
            [word for s in settings for word in ("--set", s)],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=self.err)
        self.join()
        self.wait(lambda: self.exchanges() >= 3, LIMIT, "exchanges")

    def join(self):
        """Seconds."""
        before, begun = self.members("join"), time.monotonic()
        self.worker.append(subprocess.Popen(
            [self.program_path, "worker", "--join", self.at], cwd=self.folder,
            stdout=subprocess.DEVNULL, stderr=self.err, env=dict(os.environ, OMP_WAIT_POLICY="passive")))
        self.wait(lambda: self.members("join") > before, LIMIT, "a worker's join")
        return time.monotonic() - begun

    def leave(self):
        before = self.members("leave")
        self.worker[-1].send_signal(signal.SIGTERM)
        self.wait(lambda: self.members("leave") > before, LIMIT, "a worker's leave")
        self.worker.pop().wait(LIMIT)

    def joins(self, n):
        took = []
        for _ in range(n):
            took.append(self.join())
            self.leave()
        return took


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(stage.HERE, "..", "..", "build"))
    parser.add_argument("--silent", type=int, default=1000)
    parser.add_argument("--drips", type=int, default=200)
    parser.add_argument("--joins", type=int, default=30)
    parser.add_argument("--protocol", type=int, default=3, help="the version that strangers speak")
    parser.add_argument("--limit", type=float, default=2.0, help="seconds that a join may take")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paceline-silent-") as folder:
        stage.write_data(folder)
        with Siege(args, folder) as run:
            without = run.joins(args.joins)
            host, port = run.at.split(":")
            strangers = os.fork()
            if strangers == 0:
                besiege((host, int(port)), args.silent, args.drips, args.protocol)
            try:
                time.sleep(3)
                took = run.joins(args.joins)
            except stage.Failure as why:
                sys.exit(f"{args.silent} silent and {args.drips} dripping connections: "
                         f"{str(why).splitlines()[0]}")
            finally:
                os.kill(strangers, signal.SIGKILL)
                os.waitpid(strangers, 0)
    print(f"join, ms: p50, p99, max of {args.joins}")
    print(f"without strangers                 {stage.spread(without)}")
    print(f"{args.silent} silent, {args.drips} dripping        {stage.spread(took)}")
    sys.exit(0 if max(took) <= args.limit else f"a join took more than {args.limit} s")


if __name__ == "__main__":
    main()
