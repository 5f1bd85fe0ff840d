#!/usr/bin/env python3
"""Mistakes on one of three hosts, each a network namespace of this machine, one after the other: the
other two train to the end, and the driver names the third and its error. Needs root.

  bench/several_slips.py [--build DIR] [--slow 20] [--only CASE...]

A driver and a worker on host 0, a worker on host 1; the mistake is on host 2, but for `own name`,
where the worker on host 0 joins by its own name, which leads to 127.0.1.1 there, and all three train.
`slow` opens its data for --slow seconds (300: five minutes), with a fifth of that as patience: the
run waits for it and all three train.
"""
import argparse
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "faults"))
from hosts import Hosts, ip, why_not  # noqa: E402
import stage  # noqa: E402

CLASSES, EACH, SIDE = 3, 100, 12
RELEASE = b"paceline-release:"
JOB = """name: 'slips'
net { file: 'net.prototxt' }
train_data { images { list: 'pets' color: gray } scale: 0.00390625 }
batch: 16
solver { base_lr: 0.01 momentum: 0.9 lr_policy: 'fixed' }
strategy { sync { tau: 4 } }
kernels: ref
heartbeat: lan
pace: 0.01
"""


def write_png(path, rows):
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))
    raw = b"".join(b"\0" + bytes(row) for row in rows)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" +
                chunk(b"IHDR", struct.pack(">2I5B", SIDE, SIDE, 8, 0, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def write_pictures(folder, seed=1):
    """A bright bar on noise: across, down, slanted."""
    draw = random.Random(seed)
    for label in range(CLASSES):
        os.makedirs(os.path.join(folder, "pets", "abc"[label]))
        for i in range(EACH):
            at = 3 + draw.randrange(6)
            rows = [[draw.randrange(100) + 150 * (row == at, col == at, row + col == 2 * at)[label]
                     for col in range(SIDE)] for row in range(SIDE)]
            write_png(os.path.join(folder, "pets", "abc"[label], f"{i:03}.png"), rows)


class Slip:
    """One case: a run with a driver, and the output of each process in a file."""

    def __init__(self, hosts, args, folder):
        self.hosts, self.args, self.all = hosts, args, []
        self.folder = tempfile.mkdtemp(prefix="case-", dir=folder)
        self.paceline = os.path.join(os.path.abspath(args.build), "paceline")
        self.data = [os.path.join(self.folder, f"data-{host}") for host in range(3)]
        for data in self.data:
            shutil.copytree(os.path.join(folder, "data"), data)
        for name, text in (("net.prototxt", stage.NET), ("slips.job", JOB)):
            for data in self.data:
                with open(os.path.join(data, name), "w", encoding="utf8") as f:
                    f.write(text)
        self.join = f"{hosts.address(0)}:29500"
        self.key = stage.make_key(os.path.abspath(args.build), self.folder)
        self.driver = None

    def begin(self, more, listen=None):
        """With a driver, which waits for workers when this returns."""
        self.driver = self.start(0, "driver", "slips.job", "--listen", listen or self.join,
                                 "--key", self.key, "--out", os.path.join(self.folder, "run"), *more)
        self.wait(lambda: "paceline worker --join" in self.said(self.driver), 30, "the driver")

    def start(self, host, *words, paceline=None, env=None):
        name = os.path.join(self.folder, f"said-{len(self.all)}")
        with open(name, "wb") as log:
            process = subprocess.Popen(
                self.hosts.enter(host) + ["unshare", "--uts", "sh", "-c",
                                          f"hostname host-{host} && exec \"$@\"", "sh",
                                          paceline or self.paceline, *words],
                cwd=self.data[host], stdout=log, stderr=log,
                env=dict(os.environ, OMP_WAIT_POLICY="passive", **(env or {})))
        process.said = name
        self.all.append(process)
        return process

    def worker(self, host, *more, root=None, join=None, **how):
        return self.start(host, "worker", "--join", join or self.join, "--key", self.key, "--data-root",
                          root or self.data[host], "--threads", "1", *more, **how)

    @staticmethod
    def said(process):
        with open(process.said, encoding="utf8", errors="replace") as f:
            return f.read()

    def wait(self, condition, limit, what):
        until = time.monotonic() + limit
        while not condition():
            if time.monotonic() > until:
                raise RuntimeError(f"{what}: not within {limit} s")
            time.sleep(0.02)

    def trains(self):
        """An exchange has been made since now."""
        path = os.path.join(self.folder, "run", "events.jsonl")

        def exchanges():
            if not os.path.exists(path):
                return 0
            with open(path, encoding="utf8") as f:
                return f.read().count('"kind":"exchange"')
        before = exchanges()
        self.wait(lambda: exchanges() > before + 3, 60, "training")


    def end(self):
        for process in self.all:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


TWO = ("--set", "workers_min=2", "--set", "workers_max=3", "--set", "stop={steps: 1000}")
THREE = ("--set", "workers=3", "--set", "stop={steps: 300}")


def two_train(slip):
    """Workers on hosts 0 and 1; training when this returns."""
    slip.good = [slip.worker(0), slip.worker(1)]
    slip.trains()


def wrong_folder(slip):
    empty = os.path.join(slip.folder, "empty")
    os.mkdir(empty)
    slip.worker(2, root=empty)
    two_train(slip)
    return r"host-2, \S+\) left while opening: train_data: .*--data-root"


def third_joins(slip):
    two_train(slip)
    slip.worker(2)
    slip.wait(lambda: "worker 2 has joined" in slip.said(slip.driver), 60, "the third")
    slip.trains()


def broken_picture(slip):
    third_joins(slip)
    for folder, _, names in os.walk(os.path.join(slip.data[2], "pets")):
        for name in names:
            os.truncate(os.path.join(folder, name), 60)
    return r"host-2, \S+\) left while training: step \d+: .*\.png.*start its worker again"


def folder_gone(slip):
    third_joins(slip)
    os.rename(os.path.join(slip.data[2], "pets"), os.path.join(slip.data[2], "gone"))
    return r"host-2, \S+\) left while training: step \d+: .*No such file.*start its worker again"


def firewall(slip):
    two_train(slip)
    ip("-n", f"{slip.hosts.prefix}-2", "route", "add", "unreachable", slip.hosts.address(1))
    slip.worker(2)
    return r"host-2, \S+\) left while opening: .*cannot reach worker \d at .*--listen"


def firewall_later(slip):
    third_joins(slip)
    ip("-n", f"{slip.hosts.prefix}-2", "route", "add", "blackhole", slip.hosts.address(1))
    return r"worker 2 \(host-2, \S+\) is lost: no heartbeat, or no link, for"


def slow_env(slip, seconds):
    shim = os.path.join(slip.folder, "slow_open.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim,
                    os.path.join(HERE, "faults", "slow_open.c"), "-ldl"], check=True)
    files = CLASSES * EACH
    return {"LD_PRELOAD": shim, "SLOW_PATH": ".png", "SLOW_OPENS": str(files),
            "SLOW_MS": str(int(1000 * seconds / files))}


def stopped(slip):
    third = slip.worker(2, env=slow_env(slip, 60))
    slip.wait(lambda: "listens on" in slip.said(third), 30, "the third")
    time.sleep(2)
    third.send_signal(signal.SIGSTOP)
    two_train(slip)
    return r"host-2, \S+\) left while opening: no progress for 5 s"


def own_name(slip):
    slip.good = [slip.worker(0, join="h0:29500"), slip.worker(1), slip.worker(2)]
    return rf"worker \d is at {re.escape(slip.hosts.address(0))}:"


def other_data(slip):
    two_train(slip)
    shutil.rmtree(os.path.join(slip.data[2], "pets"))
    write_pictures(slip.data[2], seed=2)
    slip.worker(2)
    return r"host-2, \S+\) left while opening: .*other data: train_data has as many records.*copy"


def other_release(slip):
    two_train(slip)
    with open(slip.paceline, "rb") as f:
        program = f.read()
    mark = re.search(re.escape(RELEASE) + rb"([0-9.]+)", program)
    other = os.path.join(slip.folder, "paceline")
    with open(other, "wb") as f:
        f.write(program.replace(mark.group(0), RELEASE + b"9" + mark.group(1)[1:]))
    os.chmod(other, 0o755)
    slip.worker(2, paceline=other)
    return r"host-2, \S+\) left while opening: the worker is release 9\S+ .*the driver release 0\S+ .*same release"


def slow(slip):
    slip.good = [slip.worker(0), slip.worker(1), slip.worker(2, env=slow_env(slip, slip.args.slow))]
    return r"worker \d \(host-2, \S+\) gets ready: \d+ of \d+" if slip.args.slow > 12 else r"host"


def check(slip, mistake):
    """The driver's message about the third host; raises on a violated expectation."""
    says = mistake(slip)
    slip.wait(lambda: slip.driver.poll() is not None, 120 + 2 * slip.args.slow, "the end")
    text = slip.said(slip.driver)
    if slip.driver.returncode != 0:
        raise RuntimeError(f"the driver ended with {slip.driver.returncode}")
    for worker in slip.good:
        slip.wait(lambda w=worker: w.poll() is not None, 20, "a worker's end")
        if worker.returncode != 0:
            raise RuntimeError(f"a good worker ended with {worker.returncode}")
    found = re.search(f".*{says}.*", text)
    if not found:
        raise RuntimeError(f"the driver does not say {says}")
    return found.group(0).strip()


def play(name, hosts, args, folder):
    mistake, more = CASES[name]
    if name == "slow":
        more = (*more, "--wait", str(args.slow / 5))
    listen = "0.0.0.0:29500" if name == "own name" else None
    begun, slip = time.monotonic(), None
    try:
        slip = Slip(hosts, args, folder)
        slip.begin(more, listen)
        said = check(slip, mistake)
        print(f"{name:15} pass {time.monotonic() - begun:6.1f} s  {said[:230]}", flush=True)
        return True
    except RuntimeError as why:
        print(f"{name:15} FAIL {why}", flush=True)
        for process in slip.all if slip else []:
            print(f"---- {slip.said(process)}")
        return False
    finally:
        if slip:
            slip.end()
        for kind in ("unreachable", "blackhole"):
            ip("-n", f"{hosts.prefix}-2", "route", "del", kind, hosts.address(1), check=False)


CASES = {
    "wrong folder": (wrong_folder, TWO),
    "broken picture": (broken_picture, TWO),
    "folder gone": (folder_gone, TWO),
    "firewall": (firewall, TWO),
    "firewall later": (firewall_later, TWO),
    "stopped": (stopped, (*TWO, "--wait", "5")),
    "own name": (own_name, THREE),
    "other data": (other_data, TWO),
    "other release": (other_release, TWO),
    "slow": (slow, THREE),
}


def stop(number, frame):
    """Removes everything it made."""
    sys.exit(128 + number)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("--slow", type=float, default=20, help="seconds that opening takes")
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    args = parser.parse_args()
    why = why_not()
    if why:
        sys.exit(why)
    signal.signal(signal.SIGTERM, stop)
    passed = 0
    with tempfile.TemporaryDirectory(prefix="paceline-slips-") as folder, Hosts(3) as hosts:
        write_pictures(os.path.join(folder, "data"))
        names = f"/etc/netns/{hosts.prefix}-0"  # of host 0: ip netns exec puts it before /etc
        os.makedirs(names)
        try:
            with open(os.path.join(names, "hosts"), "w", encoding="utf8") as f:
                f.write("127.0.0.1 localhost\n127.0.1.1 h0\n")
            for name in args.only:
                passed += play(name, hosts, args, folder)
        finally:
            shutil.rmtree(names)
    print(f"{passed} passed, {len(args.only) - passed} failed")
    sys.exit(passed < len(args.only))


if __name__ == "__main__":
    main()
