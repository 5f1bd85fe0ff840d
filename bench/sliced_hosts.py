#!/usr/bin/env python3
"""A model in slices on four hosts against one worker, and both against their prediction: each host is a
network namespace of this machine on a shaped link. Needs root.

  bench/sliced_hosts.py [--build DIR] [--rate 1gbit] [--slices 4] [--step-s 1.2] [--steps 12]
                        [--width 4096] [--batch 256] [--replicas 1]

The net is WIDTH inputs, WIDTH hidden units and WIDTH outputs, fully connected. `--step-s` is the time of
the whole net's step on one core of a host (`pace` in the job): workers are paced to it, so that two cores
carry four of them, and a slice to its part of it, so that what it waits for comes on top. The arithmetic
must fit in that time here, which the last column says: the processor seconds of a step of all workers,
over the time that this machine's cores have for it.

`plan --listen` measures the links with a small net. `plan` then predicts the step on these links. Of a
run the steps from the third to the last count, by the median of the intervals between their beginnings.
"""
import argparse
import json
import os
import random
import re
import resource
import statistics
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(HERE, "faults"))
from hosts import Hosts, why_not  # noqa: E402
from paced_workers import PacedWorkers  # noqa: E402

RECORDS, CLASSES, WARM, LIMIT_S = 8192, 16, 2, 300
JOB = """name: 'wide'
net {{ file: '{folder}/{net}.prototxt' }}
train_data {{ idx {{ images: '{folder}/images' labels: '{folder}/labels' }} scale: 0.0039 }}
batch: {batch}
solver {{ type: "SGD" base_lr: 0.001 lr_policy: "fixed" }}
threads: 1
validation: 0
checkpoint {{ every_seconds: 0 }}
"""


def inner(name, bottom, outputs):
    return (f"layer {{ name: '{name}' type: 'InnerProduct' bottom: '{bottom}' top: '{name}'\n"
            f"  inner_product_param {{ num_output: {outputs} weight_filler {{ type: 'xavier' }} }} }}\n")


def write_inputs(folder, side, batch, width):
    with open(f"{folder}/images", "wb") as f:
        f.write(struct.pack(">4I", 0x803, RECORDS, side, side))
        f.write(random.Random(1).randbytes(RECORDS * side * side))
    with open(f"{folder}/labels", "wb") as f:
        f.write(struct.pack(">2I", 0x801, RECORDS) + bytes(i % CLASSES for i in range(RECORDS)))
    for net, outputs in (("wide", width), ("small", CLASSES)):
        with open(f"{folder}/{net}.prototxt", "w", encoding="utf8") as f:
            f.write("layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n")
            f.write(inner("one", "data", outputs))
            f.write("layer { name: 'act' type: 'Sigmoid' bottom: 'one' top: 'one' }\n")
            f.write(inner("two", "one", outputs))
            f.write("layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'two' bottom: 'label' top: 'loss' }\n")
        with open(f"{folder}/{net}.job", "w", encoding="utf8") as f:
            f.write(JOB.format(folder=folder, net=net, batch=batch))


class Bench(PacedWorkers):
    def __init__(self, args, hosts, folder):
        super().__init__(hosts, args.slices * args.replicas, folder, args.build, LIMIT_S)
        self.args = args

    def with_workers(self, workers, *words):
        key = ["--key", self.key]
        worker = [self.paceline, "worker", "--join", self.join, *key, "--data-root", self.folder, "--threads", "1"]
        return self.finish([self.paceline, *words, "--listen", self.join, *key], [worker] * workers)

    def survey(self):
        """A cluster file: the measured links, and the step as it is stated."""
        path = f"{self.folder}/cluster"
        self.with_workers(self.workers, "plan", f"{self.folder}/small.job", "--set", "pace=0.05", "--workers",
                          str(self.workers), "--emit", path, "--json")
        with open(path, encoding="utf8") as f:
            link = re.search(r"link\s*{[^}]*}", f.read()).group(0)
        with open(path, "w", encoding="utf8") as f:
            f.write(f"node {{ count: {self.workers} }} step_seconds: {self.args.step_s}\n{link}\n")
        print("links: " + " ".join(link.split()))
        return path

    def settings(self, slices, workers):
        strategy = "strategy.single={}" if workers == 1 else "strategy.allreduce={}"
        return ["--set", f"slices={slices}", "--set", f"workers={workers}", "--set", strategy,
                "--set", f"pace={self.args.step_s}"]

    def plan(self, slices, workers, cluster):
        out = subprocess.run([self.paceline, "plan", f"{self.folder}/wide.job", *self.settings(slices, workers),
                              "--cluster", cluster, "--workers", str(workers), "--json"],
                             stdout=subprocess.PIPE, check=True).stdout
        name = "single" if workers == 1 else "allreduce"
        return next(r for r in json.loads(out)["rows"] if r["strategy"] == name)

    def run(self, slices, workers):
        """Seconds of a step, and processor seconds of all processes for it."""
        out, trace = (f"{self.folder}/{kind}-{slices}-{workers}" for kind in ("run", "trace"))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.with_workers(workers, "driver", f"{self.folder}/wide.job", *self.settings(slices, workers),
                          "--set", f"stop={{steps: {self.args.steps}}}", "--out", out, "--trace", trace)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(trace, encoding="utf8") as f:
            spans = [e for e in json.load(f) if e["ph"] == "X" and e["name"] == "compute"]
        first = min(e["pid"] for e in spans)
        begun = sorted(e["ts"] / 1e6 for e in spans if e["pid"] == first)[WARM:]
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return (statistics.median(b - a for a, b in zip(begun, begun[1:])), used / self.args.steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--step-s", type=float, default=1.2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=256)
    args = parser.parse_args()
    reason = why_not()
    if reason:
        sys.exit(f"skipped: {reason}")
    side = round(args.width ** 0.5)
    if side * side != args.width:
        parser.error("--width: must be a square number")
    many = args.slices * args.replicas
    with tempfile.TemporaryDirectory(prefix="paceline-sliced-") as folder, Hosts(many + 1) as hosts:
        write_inputs(folder, side, args.batch, args.width)
        hosts.shape(args.rate)
        bench = Bench(args, hosts, folder)
        cluster = bench.survey()
        # Forward and the weights' gradients of both layers, and the gradient of the hidden units.
        gflop = 5 * 2e-9 * args.batch * args.width ** 2
        print(f"a step of {gflop:.1f} GFLOP takes a core {args.step_s} s: {gflop / args.step_s:.1f} GFLOP/s; "
              f"load {os.getloadavg()[0]:.1f}")
        print("| workers | step ms | planned | off % | faster × | planned × | MB a worker | processors % |\n"
              "|---|---|---|---|---|---|---|---|")
        alone = None
        for slices, workers in (1, 1), (args.slices, many):
            step, used = bench.run(slices, workers)
            plan = bench.plan(slices, workers, cluster)
            alone = alone or (step, plan["round_s"])
            share = used / (step * os.cpu_count())
            times = workers // slices  # replicas have records of their own
            print(f"| {workers} in {slices} slices | {1e3 * step:.0f} | {1e3 * plan['round_s']:.0f} "
                  f"| {100 * (plan['round_s'] / step - 1):+.1f} | {times * alone[0] / step:.2f} "
                  f"| {times * alone[1] / plan['round_s']:.2f} | {plan['worker_bytes'] / 1e6:.1f} "
                  f"| {100 * share:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
