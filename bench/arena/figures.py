#!/usr/bin/env python3
"""The papers' figures in the arena: small nets on Fashion-MNIST, simulated, with the papers' numbers.

    bench/arena/figures.py FIGURE... [--out DIR] [--seeds N] [--jobs N] [--scale F] [--build DIR]

mpca-10a     error over time with and without extrapolation (γ)
mpca-10c     three of eight nodes contested: models weighted by their steps (τ), or equally
mpca-13c     speed-up over one worker, K = 1 … 8
dssp-table1  two unequal workers: time to a target error with BSP, ASP, SSP and DSSP
dssp-3       samples a second of BSP, SSP, DSSP and ASP: a fully connected net, and convolutions alone

DIR keeps each run's job and events, a ledger of all runs, and FIGURE.md and .svg. What is there is not
repeated, so that the command can be interrupted and called again. --scale shortens the runs by a
factor, to try the command itself. Nets and data are smaller than the papers', so times are compared as
ratios alone.
"""
import argparse
import math
import os
import statistics

import report
from arena import Arena
from cell import DSSP_ASP_S, DSSP_BSP_S, ROOT, STEP_S, Cell
from run import Run

# An evaluation takes the driver a third of a step a batch: fewer steps than there are between two.
EVALUATE = {"evaluate.every_steps": 25, "evaluate.test_records": 64, "validation": 3000}
BATCH = 64


def seeds_of(args):
    return range(1, args.seeds + 1)


def play(arena, args, lines, steps, target=None):
    """The runs of each line, over the seeds: {label: [run]}."""
    steps = max(1, round(steps * args.scale))
    runs = {label: [Run(arena, Cell.of(cell), name, settings, seed, steps, target) for seed in seeds_of(args)]
            for label, (cell, name, settings) in lines.items()}
    arena.all_of([r for some in runs.values() for r in some])
    return runs


def error_at(run, t):
    """The last median of five evaluations by then; of no such, guessing's."""
    return next((e for s, e in reversed(run.curve()) if s <= t), 0.9)


def mean_curve(runs, points=60):
    end = max((r.curve()[-1][0] for r in runs if r.curve()), default=STEP_S)
    times = [end * (i + 1) / points for i in range(points)]
    return [(t / STEP_S, 100 * statistics.mean(error_at(r, t) for r in runs)) for t in times]


def median_passed(runs, target):
    return statistics.median(r.passed(target) for r in runs)


def table(heads, rows):
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|",
                      *("| " + " | ".join(row) + " |" for row in rows)])


def errors_table(runs, paper, shares=(0.15, 0.3, 0.5, 0.75, 1)):
    """Errors at shares of the time: the mean of the seeds, and each."""
    end = max(r.curve()[-1][0] for some in runs.values() for r in some if r.curve())
    rows = []
    for label, some in runs.items():
        cells = []
        for share in shares:
            all_of = [100 * error_at(r, share * end) for r in some]
            cells.append(f"{statistics.mean(all_of):.2f} ({', '.join(f'{e:.1f}' for e in all_of)})")
        rows.append([label, *cells, paper[label]])
    return table(["", *(f"% after {share * end / STEP_S:.0f} steps" for share in shares), "the paper"], rows)


# ---- MPCA ----

def mpca_10a(arena, args):
    common = {**EVALUATE, "rate": 4, "strategy.mpca.ramp": 1}
    runs = play(arena, args, {
        f"γ = {gamma:g}, w = {w:g}": (f"small.adam.even.w{w:g}", "mpca", {**common, "strategy.mpca.gamma": gamma})
        for w in (2.46, 9.23) for gamma in (0, 0.7)}, 3_000)
    paper = {label: "slower first, catches up, surpasses" if "0.7" in label else "lower error first" for label in runs}
    return errors_table(runs, paper), report.chart(
        "MPCA, Fig. 10a: extrapolation, not ramped up; 8 workers", "steps", "% validation error",
        {k: mean_curve(v) for k, v in runs.items()}, (8, 30))


def mpca_10c(arena, args):
    common = {**EVALUATE, "rate": 4}
    equal = {**common, "strategy.mpca.weights": "equal"}
    runs = play(arena, args, {
        "no node contested": ("small.adam.even.w2.46", "mpca", common),
        "weighted by τ": ("small.adam.contested.w2.46", "mpca", common),
        "equal weights": ("small.adam.contested.w2.46", "mpca", equal),
    }, 3_000)
    shown = errors_table(runs, {"no node contested": "the lowest error", "weighted by τ": "between",
                                "equal weights": "the slowest"})
    return shown, report.chart("MPCA, Fig. 10c: three of eight nodes contested", "steps",
                               "% validation error", {k: mean_curve(v) for k, v in runs.items()}, (8, 30))


SPEED_UP = 6.9  # MPCA §7.1, eight GPUs


def mpca_13c(arena, args):
    single = play(arena, args, {"single": ("small.adam.k1.w0.66", "single",
                                           {**EVALUATE, "rate": 1, "evaluate.every_steps": 100})}, 20_000)
    target = 1.1 * statistics.median(min((e for _, e in r.curve()), default=1) for r in single["single"])
    alone = median_passed(single["single"], target)
    counts = [2, 4, 6, 8]
    ways = {"mpca, the rate of one worker": ("mpca", lambda k: 1),
            "mpca, K times the rate": ("mpca", lambda k: k),
            "pace, the rate of one worker": ("pace", lambda k: 1)}
    series, rows = {}, []
    for label, (name, rate) in ways.items():
        runs = play(arena, args, {k: (f"small.adam.k{k}.w0.66", name,
                                      {**EVALUATE, "rate": rate(k)})
                                  for k in counts}, 10_000, target)
        times = {k: median_passed(some, target) for k, some in runs.items()}
        series[label] = [(1, 1), *((k, alone / t) for k, t in times.items() if t < math.inf)]
        rows.append([label, *(f"{alone / t:.2f}" if t < math.inf else "–" for t in times.values())])
    rows.append(["the paper, ResNet-110", "–", "–", "–", f"{SPEED_UP}"])
    series["the paper"] = [(1, 1), (8, SPEED_UP)]
    head = f"To {100 * target:.2f} % validation error, which one worker has after {alone / STEP_S:.0f} steps.\n\n"
    return (head + table(["speed-up over one worker", *(f"K = {k}" for k in counts)], rows),
            report.chart("MPCA, Fig. 13c: speed-up over one worker, w = 0.66", "K", "times as fast", series,
                         (0, 10)))


# ---- DSSP ----

PAPER_S = {"BSP": DSSP_BSP_S, "SSP 3": 5678.2, "SSP 6": 5703.8, "SSP 15": 5564.9, "DSSP": 3016.4, "ASP": DSSP_ASP_S}
WAYS = {"BSP": "consistency: bsp", "SSP 3": "consistency: ssp staleness: 3",
        "SSP 6": "consistency: ssp staleness: 6", "SSP 15": "consistency: ssp staleness: 15",
        "DSSP": "consistency: dssp s_lower: 3 r_max: 12 credit: letter",
        "DSSP, hard bound": "consistency: dssp s_lower: 3 r_max: 12 hard_bound: true",
        "ASP": "consistency: asp"}
TARGET = 0.29  # of fc-480-160, as bench/dssp.py


def of_servers(way, rate):
    return {"strategy.ps": f"{{ {WAYS[way]} }}", "solver.base_lr": rate, "solver.momentum": 0}


def dssp_table1(arena, args):
    runs = play(arena, args, {way: ("fc.sgd.mixed.w0.001", "ps", {**EVALUATE, **of_servers(way, 0.3)})
                              for way in WAYS}, 1_600, TARGET)
    times = {way: median_passed(some, TARGET) for way, some in runs.items()}
    ours = {way: t / times["ASP"] for way, t in times.items()}
    paper = {way: PAPER_S[way] / PAPER_S["ASP"] for way in WAYS if way in PAPER_S}
    rows = [[way, f"{times[way] / STEP_S:.0f}", ", ".join(f"{r.passed(TARGET) / STEP_S:.0f}" for r in runs[way]),
             f"{ours[way]:.2f}", f"{paper[way]:.2f}" if way in paper else "–"] for way in WAYS]
    return (table(["", f"steps of the faster worker to {100 * TARGET:.0f} %", "seeds", "of ASP's time",
                   "in Table I, to 0.67"], rows),
            report.bars("DSSP, Table I: time to the target, of ASP's", list(WAYS), {"here": ours, "the paper": paper}))


NETS = {"fully connected": ("small", 1.0, ["ASP", "DSSP", "SSP", "BSP"]),
        "convolutions alone": ("conv", 0.02, ["BSP", "SSP", "DSSP", "ASP"])}


def samples_per_step(runs):
    """Of all workers together, in the time of one worker's step."""
    return statistics.mean(r.read()[2] * BATCH / (r.read()[3]["t"] / STEP_S) for r in runs)


def dssp_3(arena, args):
    values, rows = {}, []
    ways = ["BSP", "SSP 3", "SSP 15", "DSSP", "DSSP, hard bound", "ASP"]
    for net, (cell, w, order) in NETS.items():
        runs = play(arena, args, {way: (f"{cell}.sgd.jittery.w{w:g}", "ps",
                                        {**EVALUATE, **of_servers(way, 0.05), "evaluate.every_steps": 10_000})
                                  for way in ways},
                    600)
        values[net] = {way: samples_per_step(some) for way, some in runs.items()}
        rows.append([net, f"{w:g}", *(f"{values[net][way]:.1f}" for way in ways), " > ".join(order)])
    return (table(["net", "w", *ways, "the paper, fastest first"], rows),
            report.bars("DSSP, Fig. 3: samples in the time of a step; 4 workers, jitter 10 %", ways, values))


FIGURES = {"mpca-10a": mpca_10a, "mpca-10c": mpca_10c, "mpca-13c": mpca_13c, "dssp-table1": dssp_table1,
           "dssp-3": dssp_3}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("figure", nargs="+", choices=FIGURES)
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "figures"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    args = parser.parse_args()
    args.data = ""
    arena = Arena(args)
    for name in args.figure:
        shown, drawn = FIGURES[name](arena, args)
        for suffix, content in (("md", shown), ("svg", drawn)):
            with open(os.path.join(args.out, f"{name}.{suffix}"), "w") as f:
                f.write(content + "\n")
        print(f"**{name}**\n\n{shown}\n", flush=True)


if __name__ == "__main__":
    main()
