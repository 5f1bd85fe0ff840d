#!/usr/bin/env python3
"""Elastic, Algorithm 8, simulated: LeNet with a batch that grows from 32 to 704 by P = 2, and 1 to 8 workers that follow
it by the model that the run measures, against a static batch with as many updates.

  bench/follow_batch.py [--build DIR] [--seeds 3] [--records 6000] [--epochs 8] [--step-s 0.032] [--mbit 1000] [--jobs 1]

The records are the first ones of Fashion-MNIST, the errors those of its first 2,000 test records after the last update.
An error does not depend on the number of workers, since the global batch does not. So the static batch is trained once,
by one worker; its time on N workers is that of its updates, from twelve of them on each N. Checked is that each number of
workers is in the events, and that no sample is missed or repeated. The times are virtual. A seed takes two trainings of
`records` times `epochs` records: about a minute of a processor each.
"""
import argparse
import concurrent.futures
import gzip
import json
import math
import os
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FASHION = "/usr/share/datasets/fashion-mnist"
FIRST, LAST, POWER, MOST, TRIED, BAR = 32, 704, 2, 8, 12, 0.3
SETS = (("train", None), ("t10k", 2000))
IDX = '{name} {{ idx {{ images: "{folder}/{kind}-images" labels: "{folder}/{kind}-labels" }} scale: 0.00390625 }}\n'
JOB = """name: "follow" net {{ zoo: "lenet" }} threads: 1 seed: {seed} validation: 0
{sets}solver {{ type: "SGD" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 }} strategy {{ allreduce {{}} }}
evaluate {{ every_exchanges: 1000000000 test_records: {tested} }} checkpoint {{ every_seconds: 0 }}
{batch} {workers} stop {{ {stop} }}
"""
CLUSTER = "node {{ count: {most} }} step_seconds: {step_s} link {{ mbit: {mbit} latency_us: 100 }}\n"
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def cut(folder, kind, count):
    """The first records of a set, as files of their own."""
    for name, head, record in (("images-idx3", 16, 28 * 28), ("labels-idx1", 8, 1)):
        with gzip.open(f"{FASHION}/{kind}-{name}-ubyte.gz") as f:
            data = f.read(head + count * record)
        with open(f"{folder}/{kind}-{name.split('-')[0]}", "wb") as f:
            f.write(data[:4] + struct.pack(">I", count) + data[8:])


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.paceline = os.path.join(os.path.abspath(args.build), "paceline")
        self.sets = "".join(IDX.format(name=name, folder=folder, kind=kind)
                            for name, kind in (("train_data", "train"), ("test_data", "t10k")))
        for kind, count in SETS:
            cut(folder, kind, count or args.records)

    def run(self, name, seed, batch, workers, stop, share=FIRST, tested=2000):
        """The result of a simulation, and its events. `share`: the records of a worker's first step."""
        place = os.path.join(self.folder, name)
        os.mkdir(place)
        text = JOB.format(seed=seed, sets=self.sets, batch=batch, workers=workers, stop=stop, tested=tested)
        cluster = CLUSTER.format(most=MOST, step_s=self.args.step_s * share / FIRST, mbit=self.args.mbit)
        for kind, content in (("job", text), ("cluster", cluster)):
            with open(f"{place}/x.{kind}", "w", encoding="utf-8") as f:
                f.write(content)
        done = subprocess.run([self.paceline, "sim", f"{place}/x.job", "--cluster", f"{place}/x.cluster", "--out",
                               f"{place}/run", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: exit {done.returncode}\n{done.stderr.decode()}")
        with open(f"{place}/run/events.jsonl", encoding="utf-8") as f:
            return json.loads(done.stdout), [json.loads(line) for line in f]

    def growing(self, seed):
        end, events = self.run(f"growing-{seed}", seed, f"batch_growth {{ first: {FIRST} last: {LAST} power: {POWER} }}",
                               f"workers: 1 workers_min: 1 workers_max: {MOST} follow_batch {{ change_s: 0.1 }}",
                               f"epochs: {self.args.epochs}")
        assert end["missed"] == 0 and end["repeated"] == 0, end
        changes = [(e["epoch"], e["batch"], e["workers"]) for e in events if e["kind"] == "want_workers"]
        return end, changes, max(e.get("step", 0) for e in events)

    def static(self, seed, batch, updates):
        return self.run(f"static-{seed}", seed, f"global_batch: {batch}", "workers: 1", f"steps: {updates}", batch)[0]

    def seconds(self, workers, batch):
        """Of an update on so many workers: the time by which a run of half as many updates is shorter."""
        ends = [self.run(f"time-{workers}-{steps}", 1, f"global_batch: {batch}", f"workers: {workers}", f"steps: {steps}",
                         math.ceil(batch / workers), tested=32)[0]
                for steps in (TRIED // 2, TRIED)]
        return (ends[1]["virtual_s"] - ends[0]["virtual_s"]) / (TRIED - TRIED // 2)


def error_of(end):
    return 100 * end["test_error"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--records", type=int, default=6000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--step-s", type=float, default=0.032)
    parser.add_argument("--mbit", type=float, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    if not os.path.isdir(FASHION):
        sys.exit("skipped: needs Fashion-MNIST (package dataset-fashion-mnist)")
    with tempfile.TemporaryDirectory(prefix="paceline-follow-") as folder, \
            concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        bench, seeds = Bench(args, folder), range(1, args.seeds + 1)
        grown = list(pool.map(bench.growing, seeds))
        updates = grown[0][2]
        batch = round(args.records * args.epochs / updates)
        for epoch, size, workers in grown[0][1]:
            print(f"epoch {epoch:.2f}: batch {size}, {workers} workers")
        fixed = list(pool.map(lambda seed: bench.static(seed, batch, updates), seeds))
        apart = [error_of(g[0]) - error_of(s) for g, s in zip(grown, fixed)]
        for seed, g, s in zip(seeds, grown, fixed):
            print(f"seed {seed}: {updates} updates, error {error_of(g[0]):.2f} %, with a static batch of {batch} "
                  f"{error_of(s):.2f} %", flush=True)
        times = dict(zip(range(1, MOST + 1), pool.map(lambda n: updates * bench.seconds(n, batch), range(1, MOST + 1))))
    best, took = min(times, key=times.get), statistics.mean(g[0]["virtual_s"] for g in grown)
    print(f"mean difference {statistics.mean(apart):+.2f} points; {took:.1f} s, and static on the best number of workers, "
          f"{best}, {times[best]:.1f} s, on one {times[1]:.1f} s")
    return 0 if abs(statistics.mean(apart)) <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
