#!/usr/bin/env python3
"""DSSP's Table I in simulation: two unequal workers and a parameter server, over step jitter.

The ratio of the two workers' steps comes from BSP : ASP of the paper's Table I alone. In the time in
which ASP makes 1/t_fast + 1/t_slow pushes, BSP makes 2/t_slow; with as many pushes to the target,
6159.2 / 2993.1 = (t_slow/t_fast + 1) / 2, so t_slow = 3.116 t_fast.

    bench/dssp.py [--paceline FILE] [--steps N] [--seeds N] [--target ERROR] [--json FILE]

samples/s  of virtual time, over the whole run; beside it, of ASP's
lead       the largest at which a worker was let go on
target     virtual seconds until the validation error is at most ERROR, which is looked at every
           fifty pushes; - : not within the run. (k of n): so many seeds reached it

The job is fc-480-160 on Fashion-MNIST: the paper's ResNet-110 on CIFAR-100 takes days to simulate.
What consistency does to throughput is the paper's to compare with; time to a target is this job's.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "arena"))
from cell import DSSP_ASP_S as ASP, DSSP_BSP_S as BSP, SLOW_STEPS as RATIO  # noqa: E402

PAPER = {"bsp": 6159.2, "asp": 2993.1, "ssp 3": 5678.2, "ssp 6": 5703.8, "ssp 15": 5564.9,
         "dssp letter": 3016.4}
JITTERS = [0, 0.01, 0.02, 0.03, 0.05, 0.10]
WAYS = {
    "bsp": "consistency: bsp",
    "asp": "consistency: asp",
    "ssp 3": "consistency: ssp staleness: 3",
    "ssp 6": "consistency: ssp staleness: 6",
    "ssp 15": "consistency: ssp staleness: 15",
    "dssp letter": "consistency: dssp s_lower: 3 r_max: 12 credit: letter",
    "dssp text": "consistency: dssp s_lower: 3 r_max: 12 credit: text",
    "dssp hard": "consistency: dssp s_lower: 3 r_max: 12 hard_bound: true",
}
BATCH, STEP, TOGETHER = 64, 0.1, 0.005        # TOGETHER: pushes within this time count as simultaneous


def simulate(args, folder, way, jitter, seed):
    cluster, run = os.path.join(folder, "a.cluster"), os.path.join(folder, f"run-{os.getpid()}")
    with open(cluster, "w") as f:
        f.write(f"node {{ jitter: {jitter} }} node {{ speed: {1 / RATIO} jitter: {jitter} }}\n"
                f"step_seconds: {STEP} link {{ mbit: 100000 latency_us: 10 }}\n")
    command = [args.paceline, "sim", "examples/fashion-fc.job", "--cluster", cluster, "--out", run,
               "--workers", "2", "--threads", "1", "--kernels", "auto", "--seed", str(seed),
               "--set", f"strategy.ps={{ {WAYS[way]} }}", "--set", "validation=1000",
               "--set", "solver={ type: 'SGD' base_lr: 0.3 lr_policy: 'fixed' }",
               "--set", "stop={ steps: %d }" % args.steps, "--set", "checkpoint.every_seconds=0",
               "--set", "evaluate.every_exchanges=50"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    with open(os.path.join(run, "events.jsonl")) as f:
        events = [json.loads(line) for line in f]
    subprocess.run(["rm", "-rf", run], check=True)
    return events


def largest_lead(exchanges):
    """Of pushes with equal times, each may have been released by another's."""
    pushes, most, at = {0: 0, 1: 0}, 0, 0
    while at < len(exchanges):
        together = [e for e in exchanges[at:at + 4] if e["t"] - exchanges[at]["t"] < TOGETHER]
        for e in together:
            pushes[e["node"]] = e["n"]
        most = max([most] + [e["n"] - min(pushes.values()) for e in together])
        at += len(together)
    return most


def figures(args, events):
    exchanges = [e for e in events if e["kind"] == "exchange"]
    evals = [e for e in events if e["kind"] == "eval" and e["set"] == "validation"]
    return {
        "rate": len(exchanges) * BATCH / exchanges[-1]["t"],
        "lead": largest_lead(exchanges),
        "target": next((e["t"] for e in evals if e["error"] <= args.target), None),
        "error": evals[-1]["error"],
    }


def cell(rows):
    reached = [r["target"] for r in rows if r["target"] is not None]
    target = f"{statistics.median(reached):7.1f}" if reached else "      -"
    if 0 < len(reached) < len(rows):
        target += f" ({len(reached)} of {len(rows)})"
    return (statistics.mean(r["rate"] for r in rows), max(r["lead"] for r in rows), target,
            statistics.mean(r["error"] for r in rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default="build/paceline")
    parser.add_argument("--steps", type=int, default=500, help="of each worker")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--target", type=float, default=0.29)
    parser.add_argument("--json", help="all figures, here")
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    print(f"t_slow / t_fast = {RATIO:.3f}, {args.steps} steps of each, {args.seeds} seeds, target "
          f"{args.target}")
    everything = []
    with tempfile.TemporaryDirectory() as folder:
        for jitter in JITTERS:
            print(f"\njitter {100 * jitter:.0f} %      samples/s  of asp   lead   target s       "
                  f"error at the end", flush=True)
            rows = {}
            for way in WAYS:
                rows[way] = [figures(args, simulate(args, folder, way, jitter, seed))
                             for seed in range(1, args.seeds + 1)]
                everything += [dict(r, way=way, jitter=jitter) for r in rows[way]]
            asp = cell(rows["asp"])[0]
            for way in WAYS:
                rate, lead, target, error = cell(rows[way])
                paper = f"   (paper: {ASP / PAPER[way]:.2f} of asp's time)" \
                    if jitter == 0 and way in PAPER else ""
                print(f"{way:14s} {rate:12.1f} {rate / asp:8.2f} {lead:6d}  {target:16s} "
                      f"{100 * error:6.2f} %{paper}", flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(everything, f, indent=1)


if __name__ == "__main__":
    main()
