#!/usr/bin/env python3
"""`paceline plan` against real workers: four hosts and a driver, each a network namespace of this
machine on a shaped link. Needs root.

  bench/plan_real.py [--build DIR] [--rates 1gbit,100mbit] [--only NAME,...] [--step-s 0.05]
                     [--steps 200] [--job FILE]

For each rate `plan --listen` measures the hosts, whose workers are paced, so that two cores carry
four of them. Each strategy is then planned on what was measured, and run. Of a run the steps from the
tenth to the last count: the seconds of a round (a step's mean time, times the steps of a round; of
gossip nothing; of mpca and pace the time in which each shard is exchanged once) and the share of the
time in which workers compute, both as means over the workers.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(HERE, "faults"))
from hosts import Hosts, why_not  # noqa: E402
from paced_workers import PacedWorkers  # noqa: E402

WORKERS, WARM, LIMIT_S = 4, 9, 240
PLAIN = ["solver.type=SGD", "solver.momentum=0", "solver.base_lr=0.01"]
STRATEGIES = {
    "sync": ["strategy.sync.tau=5"],
    "allreduce": [],
    "async_allreduce": [],
    "easgd": ["strategy.easgd.tau=5"],
    "diloco": ["strategy.diloco.tau=10"],
    "ps asp": ["strategy.ps.consistency=asp"],
    "ps bsp": ["strategy.ps.consistency=bsp"],
    "downpour": [*PLAIN, "strategy.downpour.n_push=5", "strategy.downpour.n_fetch=5"],
    "gossip": ["strategy.gossip.p=0.2"],
    "mpca": [],
    "pace": [],
}
BY_SHARD = ("mpca", "pace")


class Bench(PacedWorkers):
    def __init__(self, args, hosts, folder):
        super().__init__(hosts, WORKERS, folder, args.build, LIMIT_S)
        self.args = args
        self.job = ["--set", "threads=1", "--set", f"pace={args.step_s}", "--set", "validation=0",
                    "--set", "checkpoint.every_seconds=0", "--set", "evaluate.every_exchanges=1000000000"]

    def survey(self, rate):
        path = os.path.join(self.folder, f"{rate}.cluster")
        begun = time.monotonic()
        self.together("plan", self.args.job, *self.job, "--workers", str(WORKERS), "--emit", path, "--json")
        with open(path) as f:
            print(f"{rate}: measured in {time.monotonic() - begun:.1f} s\n{f.read()}", flush=True)
        return path

    def settings(self, name):
        return [*self.job, *(word for field in STRATEGIES[name] for word in ("--set", field))]

    def plan(self, name, cluster):
        out = subprocess.run([self.paceline, "plan", self.args.job, *self.settings(name), "--cluster", cluster,
                              "--workers", str(WORKERS), "--json"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, check=False, env=self.env)
        if out.returncode != 0:
            sys.exit(f"plan of {name}: {out.stderr.decode()}")
        rows = [r for r in json.loads(out.stdout)["rows"] if r["strategy"] == name.split()[0]]
        return rows[0] if rows else None

    def run(self, name):
        out, trace = os.path.join(self.folder, "run"), os.path.join(self.folder, "trace.json")
        shutil.rmtree(out, ignore_errors=True)
        if os.path.exists(trace):
            os.remove(trace)
        self.together("driver", self.args.job, "--strategy", name.split()[0], *self.settings(name), "--set", f"workers={WORKERS}",
                      "--set", f"stop.steps={self.args.steps}", "--unset", "stop.epochs",
                      "--out", out, "--trace", trace)
        with open(trace) as f:
            spans = [e for e in json.load(f) if e["ph"] == "X"]
        with open(os.path.join(out, "events.jsonl")) as f:
            events = [json.loads(line) for line in f]
        return measured(spans, events)


def measured(spans, events):
    """Of the workers: seconds a step, the share of computing, and exchanges a second of one shard."""
    steps, shares, windows = [], [], []
    by_worker = {}
    for e in spans:
        if e["name"] == "compute":
            by_worker.setdefault(e["pid"], []).append((e["ts"] / 1e6, e["dur"] / 1e6))
    assert len(by_worker) == WORKERS, f"{len(by_worker)} workers"
    for computing in by_worker.values():
        computing = sorted(computing)[WARM:]
        window = computing[-1][0] - computing[0][0]
        windows.append(window)
        steps.append(window / (len(computing) - 1))
        shares.append(sum(d for _, d in computing[:-1]) / window)
    # One event for each exchange of a shard.
    exchanges = [e for e in events if e["kind"] == "exchange"]
    seconds = exchanges[-1]["t"] - exchanges[0]["t"] if len(exchanges) > 1 else 0
    return {"step_s": statistics.mean(steps), "share": statistics.mean(shares),
            "exchanges_s": len(exchanges) / seconds if seconds else 0}


def shards_of(name):
    return 12 if name == "pace" else 3


def row(name, plan, real):
    if name in BY_SHARD:
        round_s = shards_of(name) / real["exchanges_s"]
    else:
        round_s = real["step_s"] * plan["round_steps"]
    off, apart = plan["round_s"] / round_s - 1, plan["utilisation"] - real["share"]
    shown = "–" if name == "gossip" else f"{1e3 * round_s:.1f} | {1e3 * plan['round_s']:.1f} | {100 * off:+.1f}"
    if name == "gossip":
        shown = "– | – | –"
    return (f"| {name} | {shown} | {100 * real['share']:.1f} | {100 * plan['utilisation']:.1f} "
            f"| {100 * apart:+.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--job", default=os.path.join(ROOT, "examples", "fashion-fc.job"))
    parser.add_argument("--rates", default="1gbit,100mbit")
    parser.add_argument("--only", default=",".join(STRATEGIES))
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    reason = why_not()
    if reason:
        sys.exit(f"skipped: {reason}")
    with tempfile.TemporaryDirectory(prefix="paceline-plan-") as folder, Hosts(WORKERS + 1) as hosts:
        bench = Bench(args, hosts, folder)
        for rate in args.rates.split(","):
            hosts.shape(rate)
            cluster = bench.survey(rate)
            print("| strategy | round ms, real | planned | off % | computing %, real | planned | apart |\n"
                  "|---|---|---|---|---|---|---|", flush=True)
            for name in args.only.split(","):
                plan = bench.plan(name, cluster)
                print(row(name, plan, bench.run(name)) if plan else f"| {name} | is not planned |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
