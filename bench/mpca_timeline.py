#!/usr/bin/env python3
"""MPCA's Fig. 9 from a real run: a driver and three workers, each in a network namespace of this
machine on a shaped link. `paceline report` draws the figure from the trace. Needs root.

  bench/mpca_timeline.py [--build DIR] [--rate 100mbit] [--step-s 0.02] [--steps 300] [-o FOLDER]

FOLDER gets timeline.svg and report.html. The workers are paced, so that two cores carry three of
them. Of the run are printed: for each node the share of the time in which it computes, in which a
lane of it reduces or broadcasts, and in which two lanes or more do so at once; and how many steps a
worker takes between two updates of a shard.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(HERE, "faults"))
from hosts import Hosts, why_not  # noqa: E402
from paced_workers import PacedWorkers  # noqa: E402

WORKERS, LIMIT_S = 3, 240
PHASES = ("reduce", "broadcast")


def cover(spans, begin, end):
    """The seconds in which at least one of the spans, and in which at least two, are under way."""
    edges = sorted((min(max(t, begin), end), step) for a, b in spans for t, step in ((a, 1), (b, -1)))
    once = twice = open_now = 0
    last = begin
    for t, step in edges:
        once += (t - last) * (open_now >= 1)
        twice += (t - last) * (open_now >= 2)
        open_now, last = open_now + step, t
    return once, twice


def measure(path):
    with open(path, encoding="utf8") as f:
        spans = [e for e in json.load(f) if e["ph"] == "X"]
    of = lambda node, *kinds: [(e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6) for e in spans
                               if e["pid"] == node and e["name"] in kinds]
    for node in range(1, WORKERS + 2):
        moves = of(node, *PHASES)
        begin, end = moves[len(moves) // 10][0], moves[-len(moves) // 10][1]  # without start and end
        (computes, _), (one, two) = (cover(s, begin, end) for s in (of(node, "compute"), moves))
        name = "driver  " if node == 1 else f"worker {node - 2}"
        print(f"{name}  computes {100 * computes / (end - begin):5.1f} %, reduces or broadcasts "
              f"{100 * one / (end - begin):5.1f} %, two lanes at once {100 * two / (end - begin):5.1f} %")
    steps = len(of(2, "compute")) / (len(of(2, "broadcast")) / 3)
    print(f"steps between two updates of a shard: {steps:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--job", default=os.path.join(ROOT, "examples", "fashion-fc.job"))
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("-o", "--out", default="mpca-timeline")
    args = parser.parse_args()
    reason = why_not()
    if reason:
        sys.exit(f"skipped: {reason}")
    out = os.path.abspath(args.out)
    with tempfile.TemporaryDirectory(prefix="paceline-timeline-") as folder, Hosts(WORKERS + 1) as hosts:
        hosts.shape(args.rate)
        run, trace = os.path.join(folder, "run"), os.path.join(folder, "trace.json")
        bench = PacedWorkers(hosts, WORKERS, folder, args.build, LIMIT_S)
        bench.together("driver", args.job, "--strategy", "mpca", "--set", f"workers={WORKERS}", "--set", "threads=1",
                       "--set", f"pace={args.step_s}", "--set", f"stop.steps={args.steps}", "--unset", "stop.epochs",
                       "--out", run, "--trace", trace)
        os.makedirs(out, exist_ok=True)
        subprocess.run([bench.paceline, "report", run, "--trace", trace, "-o", os.path.join(out, "report.html"),
                        "--svg", out], check=True, stdout=subprocess.DEVNULL)
        measure(trace)
    print(os.path.join(out, "timeline.svg"))


if __name__ == "__main__":
    main()
