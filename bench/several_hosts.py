#!/usr/bin/env python3
"""A run over three hosts, each a network namespace of this machine: with the commands that a
user of several machines types. Needs root.

  bench/several_hosts.py [--build DIR]

  together      a driver and a worker on host 0, a worker on each other: all train to the end; each
                says by which interface it listens
  no way        host 2 has no route to host 1: its worker leaves, both ends say who cannot reach whom,
                and the run waits for another
  wrong way     a worker on host 1 that listens on loopback: it leaves by the driver's trial
  --max-mbit 10 what leaves host 1 by its interface meanwhile, headers and all
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "faults"))
from hosts import Hosts, ip, why_not  # noqa: E402
from stage import make_key, write_data  # noqa: E402

WIDE = """name: 'wide'
layer { name: 'data' type: 'Data' top: 'data' top: 'label' }
layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1'
  inner_product_param { num_output: 3500 weight_filler { type: 'xavier' } } }
layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2'
  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' top: 'loss' }
"""


class Machines:
    """The driver on host 0, and workers on their hosts; the output of each is in a file."""

    def __init__(self, hosts, build, folder, *more):
        self.hosts, self.folder, self.all = hosts, folder, []
        self.paceline = os.path.join(os.path.abspath(build), "paceline")
        self.join = f"{hosts.address(0)}:29500"
        out = tempfile.mkdtemp(prefix="run-", dir=folder)
        os.rmdir(out)
        self.out = out
        self.key = os.path.join(folder, "run.key")
        if not os.path.exists(self.key):
            make_key(os.path.abspath(build), folder)
        self.driver = self.start(0, "driver", "tiny.job", "--listen", self.join, "--key", self.key,
                                 "--out", out, *more)
        self.wait(lambda: "paceline worker --join" in self.said(self.driver), 30, "the driver")

    def start(self, host, *words):
        name = os.path.join(self.folder, f"said-{len(self.all)}-{os.path.basename(self.out)}")
        log = open(name, "wb")
        process = subprocess.Popen(self.hosts.enter(host) + [self.paceline, *words],
                                   cwd=self.folder, stdout=log, stderr=log,
                                   env=dict(os.environ, OMP_WAIT_POLICY="passive"))
        process.said, process.log = name, log
        self.all.append(process)
        return process

    def worker(self, host, *more):
        return self.start(host, "worker", "--join", self.join, "--key", self.key, "--data-root",
                          self.folder, "--threads", "1", *more)

    @staticmethod
    def said(process):
        with open(process.said, encoding="utf8") as f:
            return f.read()

    def wait(self, condition, limit, what):
        until = time.monotonic() + limit
        while not condition():
            if time.monotonic() > until:
                sys.exit(f"{what}: not within {limit} s; they said:\n" +
                         "\n".join(self.said(p) for p in self.all))
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.all:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.log.close()


def expect(condition, what, machines):
    if not condition:
        sys.exit(f"{what}; they said:\n" + "\n".join(machines.said(p) for p in machines.all))


def together(hosts, args, folder):
    since = time.monotonic()
    with Machines(hosts, args.build, folder, "--set", "workers=3", "--set", "stop.epochs=5") as m:
        workers = [m.worker(host) for host in range(3)]
        m.wait(lambda: m.driver.poll() is not None, 120, "the end")
        expect(m.driver.returncode == 0, "the driver failed", m)
        for host, worker in enumerate(workers):
            m.wait(lambda w=worker: w.poll() is not None, 20, "a worker's end")
            expect(worker.returncode == 0, "a worker failed", m)
            expect(re.search(rf"listens on {re.escape(hosts.address(host))}:\d+ \(eth0\)",
                             m.said(worker)), "no interface is named", m)
        expect(f"listens on {m.join} (eth0)" in m.said(m.driver), "no interface is named", m)
        print(f"together      3 hosts, exit 0 everywhere, {time.monotonic() - since:.1f} s")


def no_way(hosts, args, folder):
    ip("-n", f"{hosts.prefix}-2", "route", "add", "unreachable", hosts.address(1))
    with Machines(hosts, args.build, folder, "--set", "workers=2") as m:
        first = m.worker(1)
        m.wait(lambda: "1 of 2 are here" in m.said(m.driver), 30, "the first worker")
        since = time.monotonic()
        second = m.worker(2)
        m.wait(lambda: "left while opening" in m.said(m.driver) and second.poll() is not None, 30,
               "a refusal")
        took = time.monotonic() - since
        at = re.search(r"listens on (\S+) ", m.said(first)).group(1)
        says = rf"worker 1 at {re.escape(hosts.address(2))}:\d+ cannot reach worker 0 at {at}: "
        expect(m.driver.poll() is None and second.returncode != 0, "the driver has ended", m)
        for process in (m.driver, second):
            expect(re.search(says, m.said(process)), "not both ends are named", m)
        m.worker(0)
        m.wait(lambda: m.driver.poll() is not None, 60, "the end")
        expect(m.driver.returncode == 0, "the driver failed", m)
        print(f"no way        {took:.1f} s, both ends named: {re.search(says + '.*', m.said(second)).group(0)}")
    ip("-n", f"{hosts.prefix}-2", "route", "del", "unreachable", hosts.address(1))


def wrong_way(hosts, args, folder):
    with Machines(hosts, args.build, folder, "--set", "workers=1") as m:
        since = time.monotonic()
        worker = m.worker(1, "--listen", "127.0.0.1:0")
        m.wait(lambda: worker.poll() is not None, 30, "a refusal")
        found = re.search(r"the driver at \S+ cannot reach worker 0 at 127\.0\.0\.1:\d+: .*",
                          m.said(worker))
        expect(found, "no refusal", m)
        print(f"wrong way     {time.monotonic() - since:.1f} s: {found.group(0)}")


def sent_bytes(hosts, host):
    path = "/sys/class/net/eth0/statistics/tx_bytes"
    # A namespace's own sysfs is mounted by ip netns exec.
    return int(subprocess.run(hosts.enter(host) + ["cat", path], check=True, capture_output=True,
                              text=True).stdout)


def a_rate(hosts, args, folder):
    with open(os.path.join(folder, "wide.prototxt"), "w", encoding="utf8") as f:
        f.write(WIDE)
    with Machines(hosts, args.build, folder, "--set", "net={file: 'wide.prototxt'}", "--set",
                  "workers=2", "--set", "strategy.allreduce={bucket_kb: 0}", "--set",
                  "heartbeat=lan") as m:
        for host in (1, 2):
            m.worker(host, "--max-mbit", "10")
        m.wait(lambda: "loss" in m.said(m.driver), 60, "training")
        time.sleep(10)
        before, since = sent_bytes(hosts, 1), time.monotonic()
        time.sleep(30)
        mbit = (sent_bytes(hosts, 1) - before) * 8e-6 / (time.monotonic() - since)
        lost = re.findall(r"worker \d: (?:cut|dead|hung)", m.said(m.driver))
        expect(not lost, "a false suspicion", m)
        print(f"--max-mbit 10 {mbit:.2f} Mbit/s left host 1 in 30 s, 0 suspicions (250 ms / 1 s)")
        expect(5 < mbit <= 10.5, "that is not the rate", m)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    args = parser.parse_args()
    why = why_not()
    if why:
        sys.exit(why)
    folder = tempfile.mkdtemp(prefix="paceline-hosts-")
    write_data(folder)
    job = os.path.join(folder, "tiny.job")
    with open(job, encoding="utf8") as f:
        text = f.read()
    with open(job, "w", encoding="utf8") as f: # workers have their own threads
        f.write(text.replace("threads: 1\n", ""))
    try:
        with Hosts(3) as hosts:
            together(hosts, args, folder)
            no_way(hosts, args, folder)
            wrong_way(hosts, args, folder)
            a_rate(hosts, args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
