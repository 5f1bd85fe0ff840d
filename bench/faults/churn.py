#!/usr/bin/env python3
"""Churn: LeNet on Fashion-MNIST with four paced workers, of which one is killed (kill -9) every few
seconds and replaced by `paceline train` itself, beside the same run without faults.

    bench/faults/churn.py [--strategy NAME…] [--minutes 10] [--every 5] [--pace 0.05]

Needs Debian's dataset-fashion-mnist. Both runs go on at once, so that what the machine does
meanwhile meets both; steps last `pace` seconds, so that the two do not slow each other down.

goodput   committed samples a second, ours with kills over that of the unhurt run
error     of the test set when the minutes are over, in percent, with kills and without
missed    records whose gradient was lost with a worker, in percent of all
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import stage

JOB = os.path.join(stage.HERE, "..", "..", "examples", "fashion-lenet.job")
STRATEGIES = dict(stage.STRATEGIES, sync="sync={tau: 10}", diloco="diloco={tau: 10}",
                  ps="ps={consistency: asp}")
RATE = {"ps": 0.001} # the server takes a step for each of four workers; at 0.01 the loss is soon no number


def write_job(folder):
    """The example's, but that lost workers are replaced."""
    path = os.path.join(folder, "churn.job")
    with open(JOB) as f:
        text = f.read().replace("workers: 4\n", "workers_min: 4\nworkers_max: 4\n")
    with open(path, "w") as f:
        f.write(text)
    return path


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(word) for word in f.read().split()]
    except FileNotFoundError:
        return []


class Run:
    def __init__(self, args, folder, name, strategy):
        self.out = os.path.join(folder, name)
        settings = [f"strategy.{STRATEGIES[strategy]}", f"stop={{seconds: {60 * args.minutes}}}",
                    f"pace={args.pace}", "heartbeat=lan",
                    "batch=16", f"solver.base_lr={RATE.get(strategy, 0.01)}", "threads=1"] + stage.MORE.get(strategy, [])
        command = [os.path.join(args.build, "paceline"), "train", write_job(folder), "--out", self.out, "--json"]
        for setting in settings:
            command += ["--set", setting]
        self.log = open(self.out + ".log", "w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env=dict(os.environ, OMP_WAIT_POLICY="passive"))

    def trains(self):
        try:
            with open(os.path.join(self.out, "events.jsonl")) as f:
                return any('"what":"join"' in line.replace(" ", "") for line in f)
        except FileNotFoundError:
            return False

    def end(self):
        said = self.process.communicate()[0]
        self.log.close()
        if self.process.returncode != 0:
            with open(self.out + ".log") as f:
                sys.exit(f"{self.out}: exit {self.process.returncode}\n{f.read()[-3000:]}")
        return json.loads(said)

    def members(self, *what):
        with open(os.path.join(self.out, "events.jsonl")) as f:
            events = [json.loads(line) for line in f]
        return sum(e["kind"] == "member" and e["what"] in what for e in events)


def churn(args, draw, hurt):
    """Kill one of its workers at intervals, until it ends by itself. Returns the number."""
    kills, at = 0, time.monotonic() + args.every
    while hurt.process.poll() is None:
        time.sleep(0.02)
        if time.monotonic() < at:
            continue
        at += args.every
        alive = children(hurt.process.pid)
        if len(alive) > 1:
            os.kill(draw.choice(alive), signal.SIGKILL)
            kills += 1
    return kills


def measure(args, strategy):
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="paceline-churn-") as folder:
        whole, hurt = (Run(args, folder, name, strategy) for name in ("whole", "hurt"))
        while not (whole.trains() and hurt.trains()):
            if whole.process.poll() is not None or hurt.process.poll() is not None:
                whole.end(), hurt.end()
            time.sleep(0.05)
        kills = churn(args, draw, hurt)
        a, b = whole.end(), hurt.end()
        part = (b["used"] / b["wall_s"]) / (a["used"] / a["wall_s"])
        print(f"{strategy:16} {args.minutes:7g} {kills:5} {hurt.members('join') - 4:8} "
              f"{100 * part:8.1f} {100 * b['test_error']:12.2f} {100 * a['test_error']:8.2f} "
              f"{100 * b['missed'] / (b['used'] + b['missed']):8.2f}   "
              f"{whole.members('dead', 'cut', 'hung', 'fenced')}", flush=True)
        return part, b["test_error"] - a["test_error"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(stage.HERE, "..", "..", "build"))
    parser.add_argument("--strategy", nargs="*", choices=STRATEGIES,
                        default=["sync", "allreduce", "mpca"])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=float, default=5, help="seconds between two kills")
    parser.add_argument("--pace", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("strategy         minutes kills replaced goodput% error% hurt  unhurt  missed%  lost of "
          "the unhurt")
    results = [measure(args, strategy) for strategy in args.strategy]
    print(f"least goodput {100 * min(r[0] for r in results):.1f} %, bar: 85 %; errors apart by at "
          f"most {100 * max(r[1] for r in results):.2f} points, bar: 0.5")


if __name__ == "__main__":
    main()
