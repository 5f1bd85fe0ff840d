#!/usr/bin/env python3
"""A run begins with 100 MB of weights from a file, over links of a gigabit: how long until all its
workers have them.

    bench/faults/begin.py [--workers 2 4 8] [--link 1000] [--runs 3]

Needs root: each node is a host of its own (a network namespace), whose link lets `--link` Mbit/s out
and in. Hosts and net are join.py's. The same run is made without a file, each time: its workers draw
what they begin with.

file      from the last worker's process start until the last worker begins its first step
drawn     the same without a file
takes     of the first, until the last has what the file holds, since it was in (by the trace)
link      the bytes of the model over the link
"""
import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import hosts
import join
import stage


def weights(args, folder):
    """A model of that size in a file, by one step of one worker."""
    out = os.path.join(folder, "from")
    subprocess.run([os.path.join(args.build, "paceline"), "train", "wide.job", "--workers", "1", "--out", out,
                    "--set", "stop={steps: 1}", "--set", "strategy.single={}",
                    "--set", "workers_min=1", "--set", "workers_max=1"],
                   cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return os.path.join(out, "final.safetensors")


def run_once(args, net, folder, workers, settings):
    """Seconds until the last worker begins its first step, and until the last has the initial state."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        join.write_job(out, join.HIDDEN, workers)
        run = join.Run(args, net, out, "sync", workers, settings)
        begun = time.monotonic()
        try:
            run.wait(lambda: run.exchanges() >= 1, 300, "an exchange")
            run.driver.send_signal(signal.SIGINT)
            run.driver.wait(120)
            every = join.spans(run)
        finally:
            run.end()
        first = max(next(s[1] for s in every[n] if s[0] == "compute") for n in range(workers))
        takes = [s[2] - s[1] for n in range(workers) for s in every[n]
                 if s[0] == "wait" and s[3] == join.MODELS]
        return first - (begun - run.offset), max(takes, default=0.0)


def measure(args, workers):
    with tempfile.TemporaryDirectory(prefix="paceline-begin-", dir=args.temp) as folder, \
            hosts.Hosts(workers + 2) as net:
        join.shape(net, args.link)
        join.write_job(folder, join.HIDDEN, workers)
        file = weights(args, folder)
        drawn, given, takes = [], [], []
        for _ in range(args.runs):
            drawn.append(run_once(args, net, folder, workers, [])[0])
            took, waited = run_once(args, net, folder, workers, [f"weights={file}"])
            given.append(took)
            takes.append(waited)
        link = 8 * 4 * (join.HIDDEN * 795 + 10) / (1e6 * args.link)
        text = f"{workers:7}"
        for values in (given, drawn, takes):
            text += f" {statistics.median(values):6.2f} {max(values):6.2f}"
        print(f"{text} {link:6.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(stage.HERE, "..", "..", "build"))
    parser.add_argument("--workers", nargs="*", type=int, default=[2, 4, 8])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--link", type=int, default=1000, help="Mbit/s")
    parser.add_argument("--temp", help="where the runs are kept meanwhile")
    args = parser.parse_args()
    args.build, args.pace, args.seed = os.path.abspath(args.build), 0.2, 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    missing = hosts.why_not()
    if missing:
        sys.exit(f"cannot measure: {missing}")
    print("workers    file         drawn         takes        link   (s; p50 max)")
    for workers in args.workers:
        measure(args, workers)


if __name__ == "__main__":
    main()
