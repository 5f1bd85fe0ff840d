#!/usr/bin/env python3
"""A worker joins a run with 100 MB of state, over links of a gigabit: how long until its first
useful step, and what that costs the others.

    bench/faults/join.py [--strategy NAME…] [--joins 10] [--link 1000]

Needs root: each node is a host of its own (a network namespace), whose link lets `--link` Mbit/s out
and in. `paceline driver`, three paced workers; a fourth comes, stays for some steps, is told to leave
(SIGTERM), and another comes. The net is 784-31447-10: 25 million parameters, 100 MB; half as wide
where the optimizer's state goes along, which is as long.

ready     from the newcomer's process start to its hello: data, net, initial values
asks      from there to the view that holds it: until a member stands at a commit point, and the
          view's two ways. In step, rounds are as long as the job says: this is most of it
state     from the view until it has what it needs to go on
idle      from there to the beginning of its first step: an exchange in which it has no weight yet;
          where the next exchange brings the model (sync, mpca), that is in here and not in `state`
begins    from the process start to the beginning of its first step that counts
useful    the same to its end: with the pace that the job asks for
own       of `useful`, what is not the run's own rhythm: ready + state
bar       1 s + bytes / (0.8 link), of what a newcomer is sent
others    step time of the others from the view to the newcomer's first step, over that of the
          twelve steps before: median, p90; the sponsor's, once a join, among them
"""
import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import hosts
import stage

HIDDEN, SIDE = 31447, 28
NET = """name: 'wide'
layer { name: 'data' type: 'Data' top: 'data' top: 'label' }
layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1'
  inner_product_param { num_output: HIDDEN weight_filler { type: 'xavier' } } }
layer { name: 'relu' type: 'ReLU' bottom: 'ip1' top: 'ip1' }
layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2'
  inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' top: 'loss' }
"""
# Settings, seconds a step, width, steps from one exchange to the next: as often as a link of a
# gigabit bears, each of which moves one to three times the model over it.
STRATEGIES = {
    "allreduce": (["strategy.allreduce={}"], 1.5, HIDDEN // 2, 1),
    "sync": (["strategy.sync={tau: 8}"], 0.5, HIDDEN, 8),
    "mpca": (["strategy.mpca={}"], 0.5, HIDDEN, 4),
    "pace": (["strategy.pace={}"], 0.5, HIDDEN, 4),
    "easgd": (["strategy.easgd={tau: 12}"], 0.5, HIDDEN, 12),
    "ps": (["strategy.ps={}"], 3.0, HIDDEN // 2, 1),
    "gossip": (["strategy.gossip={p: 0.05}"], 0.5, HIDDEN, 20),
}
WORKERS = 3
MODELS = 2 # the row of a trace on which a newcomer waits for its state


class Run:
    """A driver and its workers on hosts of their own; their output is recorded with the time."""

    def __init__(self, args, net, folder, name, workers=WORKERS, settings=()):
        self.args, self.net, self.folder = args, net, folder
        self.at = f"{hosts.Hosts.address(workers + 1)}:29500"
        more, pace, _, tau = STRATEGIES[name]
        self.pace = args.pace or pace
        self.round_s = tau * self.pace
        self.draw = random.Random(args.seed)
        self.in_step = name in ("allreduce", "sync")
        self.out, self.trace = os.path.join(folder, name), os.path.join(folder, name + ".trace")
        self.events, self.seen, self.offset = [], {}, None
        self.files, self.workers = {}, []
        settings = more + [f"pace={self.pace}", "heartbeat=busy", *settings]
        self.log = self.out + ".log"
        self.key = os.path.join(folder, "run.key")
        if not os.path.exists(self.key):
            stage.make_key(self.args.build, folder)
        self.driver = self.start(workers + 1, "driver", "wide.job", "--listen", self.at,
                                 "--key", self.key, "--out", self.out, "--trace", self.trace, "--wait", "120",
                                 *(w for s in settings for w in ("--set", s)))
        for host in range(workers):
            self.come(host)

    def start(self, host, *arguments):
        log = open(self.log, "ab")
        started = subprocess.Popen(
            self.net.enter(host) + [os.path.join(self.args.build, "paceline"), *arguments],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=log,
            env=dict(os.environ, OMP_WAIT_POLICY="passive"))
        log.close()
        return started

    def come(self, host):
        self.workers.append(self.start(host, "worker", "--join", self.at, "--key", self.key,
                                       "--data-root", self.folder))
        return self.workers[-1]

    def lines(self, path):
        """The complete lines written there since the last call."""
        at, rest = self.files.get(path, (0, ""))
        try:
            with open(path) as f:
                f.seek(at)
                text = rest + f.read()
                at = f.tell()
        except FileNotFoundError:
            return []
        *whole, rest = text.split("\n")
        self.files[path] = at, rest
        return whole

    def poll(self):
        now = time.monotonic()
        for line in self.lines(os.path.join(self.out, "events.jsonl")):
            event = json.loads(line)
            self.events.append(event)
            ahead = now - event["t"]
            self.offset = ahead if self.offset is None else min(self.offset, ahead)
        for line in self.lines(self.log):
            words = line.split()
            if "is at" in line and "worker" in words:
                self.seen[int(words[words.index("worker") + 1])] = now

    def said(self):
        with open(self.log) as f:
            return f.read()

    wait = stage.wait_until

    def count(self, kind, **more):
        return sum(e["kind"] == kind and all(e.get(k) == v for k, v in more.items())
                   for e in self.events)

    def exchanges(self):
        return self.count("exchange")

    def end(self):
        for process in [self.driver] + self.workers:
            if process.poll() is None:
                process.kill()
            process.wait()


def joins(args, run):
    """The moments of each: process start, as seconds of the run."""
    run.wait(lambda: run.count("member", what="join") == WORKERS and run.exchanges() >= 2, 300, "a run")
    moments = []
    for _ in range(args.joins):
        had, exchanges = run.count("member", what="join"), run.exchanges()
        run.wait(lambda: run.exchanges() >= exchanges + 1, 120, "an exchange")
        time.sleep(run.draw.random() * run.round_s) # at any moment between two
        begun = time.monotonic()
        guest = run.come(WORKERS)
        run.wait(lambda: run.count("member", what="join") == had + 1, 120, "a join")
        exchanges = run.exchanges()
        run.wait(lambda: run.exchanges() >= exchanges + (2 if run.in_step else WORKERS + 1), 120,
                 "exchanges with it")
        time.sleep(1.2 * run.pace) # its first step is taken then
        moments.append((begun, had))
        guest.send_signal(signal.SIGTERM)
        run.wait(lambda: guest.poll() is not None, 120, "its leave")
    return moments


def spans(run):
    """Of each worker: (name, start, end, args), in seconds of the run."""
    with open(run.trace) as f:
        text = f.read().strip()
    every = {}
    for span in json.loads(text):
        if span.get("ph") == "X" and span["pid"] >= 2:
            begun = span["ts"] / 1e6
            every.setdefault(span["pid"] - 2, []).append(
                (span["name"], begun, begun + span["dur"] / 1e6, span["tid"], span["args"]))
    for one in every.values():
        one.sort(key=lambda s: s[1])
    return every


def steps(of, begun, end):
    """Seconds from the end of each step to that of the next, of those that end in that time."""
    ends = [s[2] for s in of if s[0] == "compute"]
    return [b - a for a, b in zip(ends, ends[1:]) if begun <= b and a <= end]


def first_steps(run, moments):
    every, rows = spans(run), []
    for begun, node in moments:
        join = next(e["t"] for e in run.events if e["kind"] == "member" and e["node"] == node)
        begun -= run.offset
        hello = run.seen[node] - run.offset
        first = next((s for s in every[node] if s[0] == "compute"))
        fetch = next((s[2] for s in every[node] if s[0] == "wait" and s[3] == MODELS), join)
        before, meanwhile = [], []
        for other in range(WORKERS):
            before += steps(every[other], begun - 12 * run.pace, begun)
            meanwhile += steps(every[other], join, first[1])
        rows.append({
            "ready": hello - begun, "asks": join - hello, "state": fetch - join,
            "begins": first[1] - begun, "useful": first[2] - begun,
            "idle": first[1] - fetch, "step": first[2] - first[1],
            "own": hello - begun + fetch - join,
            "before": before, "meanwhile": meanwhile})
    return rows


def report(args, name, rows):
    state = 4 * (STRATEGIES[name][2] * 795 + 10) * (2 if name == "allreduce" else 1)
    bar = 1 + 8 * state / (0.8e6 * args.link)
    text = f"{name:10}"
    for key in ("ready", "asks", "state", "idle", "step", "own", "begins", "useful"):
        values = [r[key] for r in rows]
        text += f" {statistics.median(values):6.2f} {max(values):6.2f}"
    before = [s for r in rows for s in r["before"]]
    meanwhile = [s for r in rows for s in r["meanwhile"]]
    text += f"  {bar:5.2f}"
    for q in (0.5, 0.9):
        if before and meanwhile:
            a, b = stage.quantile(before, q), stage.quantile(meanwhile, q)
            text += f"  {a:6.3f} {b:6.3f} {100 * (b / a - 1):+6.1f}%"
    print(text, flush=True)


def shape(net, mbit):
    for host in range(net.n):
        tbf = ["tbf", "rate", f"{mbit}mbit", "burst", "128kb", "latency", "20ms"]
        for where, device in ((f"{net.prefix}-{host}", "eth0"),
                              (f"{net.prefix}-switch", f"port{host}")):
            subprocess.run(["tc", "-n", where, "qdisc", "replace", "dev", device, "root", *tbf],
                           check=True)


def write_job(folder, hidden, workers=WORKERS):
    stage.SIDE = SIDE
    stage.write_data(folder)
    with open(os.path.join(folder, "wide.prototxt"), "w") as f:
        f.write(NET.replace("HIDDEN", str(hidden)))
    text = stage.JOB.replace("net.prototxt", "wide.prototxt").replace("kernels: ref\n", "")
    text = text.replace("batch: 16", "batch: 2").replace(" momentum: 0.9", "")
    with open(os.path.join(folder, "wide.job"), "w") as f:
        f.write(text.replace("'tiny'", "'wide'") + f"workers_min: {workers}\nworkers_max: {workers + 1}\n")


def measure(args, name):
    with tempfile.TemporaryDirectory(prefix="paceline-join-", dir=args.temp) as folder, \
            hosts.Hosts(WORKERS + 2) as net:
        shape(net, args.link)
        write_job(folder, STRATEGIES[name][2])
        run = Run(args, net, folder, name)
        try:
            moments = joins(args, run)
            run.driver.send_signal(signal.SIGINT)
            run.driver.wait(120)
            if args.keep:
                shutil.copytree(folder, os.path.join(args.keep, name), dirs_exist_ok=True)
            rows = first_steps(run, moments)
        finally:
            run.end()
        report(args, name, rows)
        return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(stage.HERE, "..", "..", "build"))
    parser.add_argument("--strategy", nargs="*", choices=STRATEGIES,
                        default=list(STRATEGIES))
    parser.add_argument("--joins", type=int, default=10)
    parser.add_argument("--link", type=int, default=1000, help="Mbit/s")
    parser.add_argument("--pace", type=float, help="seconds a step takes, for all strategies")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--temp", help="where the runs are kept meanwhile")
    parser.add_argument("--keep", help="a folder for events and traces")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    args.build = os.path.abspath(args.build)
    missing = hosts.why_not()
    if missing:
        sys.exit(f"cannot measure: {missing}")
    print("s, p50 max    ready         asks          state         idle          step          own "
          "          begins        useful        bar   others' step p50, p90")
    for name in args.strategy:
        measure(args, name)


if __name__ == "__main__":
    main()
