#!/usr/bin/env python3
"""Six workers, one at 0.45 of the speed, and a link that a model takes 23 steps to cross: `pace` with its
defaults against `sync` at its best τ, `sync` by seconds, and `mpca`.

    bench/arena/no_wait.py [--net NET] [--seeds N,...] [--target ERROR] [--steps N]
                           [--out DIR] [--jobs N] [--build DIR]

All have one optimizer, SGD with momentum 0.9. `pace` has the cell's rate, which is one for a worker alone,
times two; each rival takes the best of its settings and rates below, by its time to the target with the
first seed. A time is when the median of five validation errors is first at the target. The cell LeNet is
that of the bar; the net `small` takes a fifteenth of its time.

DIR keeps the runs, as the arena does.
"""
import argparse
import math
import os
import statistics

from arena import Arena
from cell import ROOT, STEP_S, Cell
from figures import shown, table
from run import Run

RIVALS = {"sync": ("sync", [{"strategy.sync.tau": tau} for tau in (10, 25, 50, 100, 200)]),
          "sync by seconds": ("sync seconds", [{"strategy.sync.seconds": s * STEP_S} for s in (25, 50, 100, 200)]),
          "mpca": ("mpca", [{"strategy.mpca.alpha": alpha} for alpha in (0.05, 0.1)])}
RATES = (2, 4, 8)  # times the cell's
EVALUATE = {"evaluate.every_steps": 25, "evaluate.test_records": 64, "validation": 3000}
BAR = 2


def steps_to(run, target):
    t = run.passed(target)
    return t / STEP_S if t < math.inf else math.inf


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--net", default="lenet")
    parser.add_argument("--seeds", type=lambda s: [int(n) for n in s.split(",")], default=[11, 12, 13])
    parser.add_argument("--target", type=float, default=0.11)
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "no_wait"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    args = parser.parse_args()
    args.data, args.scale = "", 1
    arena, cell = Arena(args), Cell.of(f"{args.net}.sgd.six.w23")

    def of(name, settings, seeds):
        return [Run(arena, cell, name, {**EVALUATE, **settings}, s, args.steps, args.target) for s in seeds]

    chosen = {"pace": of("pace", {"rate": RATES[0]}, args.seeds)}
    tried = {}
    for label, (name, all_of) in RIVALS.items():
        tried[label] = [(name, {"rate": rate, **some}) for rate in RATES for some in all_of]
    first = {label: [of(*one, args.seeds[:1])[0] for one in some] for label, some in tried.items()}
    arena.all_of([*chosen["pace"], *(r for some in first.values() for r in some)])
    for label, runs in first.items():
        best = min(range(len(runs)), key=lambda i: (runs[i].passed(args.target), runs[i].score()))
        chosen[label] = of(*tried[label][best], args.seeds)
    arena.all_of([r for some in chosen.values() for r in some])
    medians = {label: statistics.median(steps_to(r, args.target) for r in some) for label, some in chosen.items()}
    rows = []
    for label, some in chosen.items():
        settings = ", ".join(f"{k.split('.')[-1]} {v:g}" for k, v in some[0].settings.items() if k not in EVALUATE)
        ratio = medians[label] / medians["pace"]
        rows.append([label, settings, shown([medians[label]]), shown(steps_to(r, args.target) for r in some),
                     "never" if ratio == math.inf else f"{ratio:.2f}"])
    print(f"**{cell.name}**, to {100 * args.target:g} % validation error\n")
    print(table(["strategy", "with", "steps of a fast worker", "seeds", "times as long as `pace`"], rows))
    met = all(medians[label] >= BAR * medians["pace"] for label in ("sync", "mpca"))
    print(f"\n{BAR} × faster than `sync` at its best τ and than `mpca`: {'met' if met else 'not met'}")


if __name__ == "__main__":
    main()
