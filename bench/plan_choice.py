#!/usr/bin/env python3
"""The choice of `paceline plan` against simulations of all rows: random jobs and clusters, each planned, and
then simulated with each strategy and each number of workers.

  bench/plan_choice.py [--build DIR] [--pairs 20] [--seed 1] [--jobs 2] [--ledger FILE]

A pair is a net, a batch, two to five nodes of unequal speeds, and a link. A run is as long as sixteen of its
rounds by the plan, and no shorter than two seconds; its speed is that of its second half. Printed is for each pair the row that the plan calls the
best, the row that is the fastest in simulation, and the loss of speed of the one against the other. The
ledger keeps the speed of each run, and a second call continues with it. Needs Fashion-MNIST.
"""
import argparse
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FASHION = "/usr/share/datasets/fashion-mnist"
NETS = {"fc-480-160": 'zoo: "fc-480-160"', "fc-64": f'file: "{ROOT}/bench/arena/small.prototxt"'}
JOB = """name: "pair" net {{ {net} }} batch: {batch} threads: 1 workers: {nodes} validation: 0
train_data {{ idx {{ images: "{data}/train-images-idx3-ubyte.gz" labels: "{data}/train-labels-idx1-ubyte.gz" }}
scale: 0.00390625 }} solver {{ type: "SGD" base_lr: 0.002 lr_policy: "fixed" }} strategy {{ auto {{}} }} checkpoint {{ every_seconds: 0 }} stop {{ seconds: 1 }}
"""
ROUNDS, LEAST_S, LIMIT_S = 16, 2, 900
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def draw_pair(draw):
    """A job's text and a cluster's."""
    nodes, net = draw.randint(2, 5), draw.choice(sorted(NETS))
    batch, step_s = draw.choice([8, 16, 32]), 10 ** draw.uniform(-2.5, -1.3)
    speeds = [1.0] + [draw.choice([1, 1, 0.75, 0.5, 0.25]) for _ in range(nodes - 1)]
    mbit, latency = 10 ** draw.uniform(1, 4), draw.choice([50, 100, 300, 1000])
    cluster = "".join(f"node {{ speed: {s} }}\n" for s in speeds)
    cluster += f"step_seconds: {step_s:.4g}\nlink {{ mbit: {mbit:.4g} latency_us: {latency} }}\n"
    name = f"{net}, batch {batch}, {nodes} nodes {speeds}, {1e3 * step_s:.1f} ms, {mbit:.0f} Mbit/s, {latency} us"
    return name, JOB.format(net=NETS[net], batch=batch, nodes=nodes, data=FASHION), cluster


def run(paceline, *words):
    done = subprocess.run([paceline, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV, check=False,
                          timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}\n{done.stderr.decode()}")
    return json.loads(done.stdout)


def speed_of(paceline, folder, row, seconds):
    """Samples a virtual second of the simulated row between the ends of two runs, which are equal until the first."""
    ends = []
    for span in (seconds / 2, seconds):
        ends.append(run(paceline, "sim", f"{folder}/x.job", "--cluster", f"{folder}/x.cluster", "--strategy",
                        row["strategy"], "--set", f"workers={row['workers']}", "--set", f"stop={{ seconds: {span} }}",
                        "--out", os.path.join(folder, f"{row['strategy']}-{row['workers']}-{span}"), "--json"))
    return (ends[1]["samples"] - ends[0]["samples"]) / (ends[1]["virtual_s"] - ends[0]["virtual_s"])


class Ledger:
    def __init__(self, path):
        self.path, self.speeds = path, {}
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                self.speeds = {tuple(key): speed for key, speed in map(json.loads, f)}

    def add(self, key, speed):
        self.speeds[key] = speed
        if self.path:
            with open(self.path, "a", encoding="utf-8") as f:
                f.write(json.dumps([key, speed]) + "\n")


def measure_pair(number, pair, args, ledger, pool):
    name, job, cluster = pair
    with tempfile.TemporaryDirectory(prefix="paceline-choice-") as folder:
        for kind, text in (("job", job), ("cluster", cluster)):
            with open(f"{folder}/x.{kind}", "w", encoding="utf-8") as f:
                f.write(text)
        plan = run(args.paceline, "plan", f"{folder}/x.job", "--cluster", f"{folder}/x.cluster", "--json")
        rows, speeds = plan["rows"], {}
        waiting = {}
        for i, row in enumerate(rows):
            key = (args.seed, number, row["strategy"], row["workers"])
            if key in ledger.speeds:
                speeds[i] = ledger.speeds[key]
                continue
            seconds = max(ROUNDS * row["round_s"], LEAST_S)
            waiting[pool.submit(speed_of, args.paceline, folder, row, seconds)] = (i, key)
        for done in concurrent.futures.as_completed(waiting):
            i, key = waiting[done]
            speeds[i] = done.result()
            ledger.add(key, speeds[i])
    best, fastest = plan["best"], max(speeds, key=speeds.get)
    loss = 1 - speeds[best] / speeds[fastest]
    off = [rows[i]["samples_per_s"] / s - 1 for i, s in speeds.items()]
    print(f"{number + 1:2d} {name}\n   chosen {rows[best]['strategy']} x {rows[best]['workers']}: {speeds[best]:.0f}/s; "
          f"fastest {rows[fastest]['strategy']} x {rows[fastest]['workers']}: {speeds[fastest]:.0f}/s; "
          f"loss {100 * loss:.1f} %; predictions off by {100 * min(off):.1f} to {100 * max(off):.1f} % "
          f"({len(off)} rows)", flush=True)
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--ledger")
    args = parser.parse_args()
    if not os.path.isdir(FASHION):
        sys.exit("skipped: needs Fashion-MNIST (package dataset-fashion-mnist)")
    args.paceline = os.path.join(os.path.abspath(args.build), "paceline")
    ledger, draw = Ledger(args.ledger), random.Random(args.seed)
    pairs = [draw_pair(draw) for _ in range(args.pairs)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        losses = [measure_pair(i, pair, args, ledger, pool) for i, pair in enumerate(pairs)]
    within = sum(loss <= 0.05 for loss in losses)
    print(f"within 5 % of the fastest: {within} of {len(losses)}; the largest loss {100 * max(losses):.1f} %")
    return 0 if within == len(losses) else 1


if __name__ == "__main__":
    sys.exit(main())
