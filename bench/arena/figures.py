#!/usr/bin/env python3
"""The papers' figures in the arena: small nets on Fashion-MNIST, simulated, with the papers' numbers.

    bench/arena/figures.py FIGURE... [--out DIR] [--seeds N] [--jobs N] [--scale F] [--build DIR]

mpca-10a     error over time with and without extrapolation (γ)
mpca-10c     three of eight nodes contested: models weighted by their steps (τ), or equally
mpca-13c     speed-up over one worker, K = 1 … 8
mpca-table2  time to three errors over that of one worker: the paper's settings, and ours
easgd        share of the time in which workers compute, by the steps between two visits (τ)
downpour     samples a second over one worker, K = 1 … 8, and the error after as many samples
dssp-table1  two unequal workers: time to a target error with BSP, ASP, SSP and DSSP
dssp-3       samples a second of BSP, SSP, DSSP and ASP: a fully connected net, and convolutions alone
elastic-6.3  an iteration, and the time to an error, with all-reduce in the background and after it

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
from cell import DSSP_ASP_S, DSSP_BSP_S, ELASTIC_S, ROOT, STEP_S, WORKERS, Cell
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


def shown(counts):
    return ", ".join("–" if c == math.inf else f"{c:.0f}" for c in counts)


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


# MPCA, Table 2: seconds of ResNet-110 to 50, 30 and 10 % test error, eight GPUs.
TABLE_2 = {"single": (179, 457, 10429), "sync": (103, 252, 2559), "easgd": (112, 260, 2070),
           "ps asp": (165, 322, 7361), "mpca": (109, 255, 1841)}
TABLE_2_TARGETS = (1.5, 1.25, 1.1)  # of the least error of `single`
# The paper's τ of the synchronous approach is Table 1's, and EASGD's is §7.1's. All have one rate.
PAPER_STACK = {"sync": {"strategy.sync.tau": 58, "collective.algorithm": "tree"},
               "easgd": {"strategy.easgd.tau_auto": False, "strategy.easgd.tau": 20},
               "ps asp": {}, "mpca": {}}
# The rates that the arena has found best for eight workers (fc.adam.even.w2.46.tuned.json).
OUR_STACK = {"sync": {"rate": 8, "strategy.sync.tau_auto": True}, "easgd": {"rate": 2}, "ps asp": {"rate": 0.5},
             "mpca": {"rate": 8, "strategy.mpca.alpha": 0.1}, "pace": {}}


def mpca_table2(arena, args):
    alone = play(arena, args, {"single": ("small.adam.k1.w0.66", "single",
                                          {**EVALUATE, "rate": 1, "evaluate.every_steps": 100})}, 20_000)["single"]
    least = statistics.median(min((e for _, e in r.curve()), default=1) for r in alone)
    targets = [share * least for share in TABLE_2_TARGETS]
    base = [median_passed(alone, t) for t in targets]
    drawn = {"the paper": {name: TABLE_2["single"][2] / s[2] for name, s in TABLE_2.items() if name != "single"}}
    rows = []
    for stack, settings in (("the paper's settings", PAPER_STACK), ("ours", OUR_STACK)):
        runs = {}
        for name, some in settings.items():
            line = {name: ("small.adam.even.w0.66", name, {**EVALUATE, **some})}
            runs |= play(arena, args, line, 2_500 if name == "ps asp" else 6_000, targets[-1])
        drawn[stack] = {}
        for name, some in runs.items():
            ratios = [b / median_passed(some, t) for b, t in zip(base, targets)]
            if ratios[-1] > 0:
                drawn[stack][name] = ratios[-1]
            last = shown(r.passed(targets[-1]) / STEP_S for r in some)
            paper = [f"{a / b:.2f}" for a, b in zip(TABLE_2["single"], TABLE_2.get(name, ()))] or ["–"] * 3
            rows.append([stack, name, *(f"{x:.2f}" if x > 0 else "–" for x in ratios), last, *paper])
    head = (f"{', '.join(f'{100 * t:.2f}' for t in targets)} % validation error, which one worker has after "
            f"{', '.join(f'{b / STEP_S:.0f}' for b in base)} steps.\n\n")
    return (head + table(["settings", "system", "times as fast as one worker: early", "middle", "late",
                          "steps to the late error: seeds", "the paper: 50 %", "30 %", "10 %"], rows),
            report.bars("MPCA, Table 2: speed-up over one worker to the last error, w = 0.66",
                        [*PAPER_STACK, "pace"], drawn))


# MPCA, §7.1 and §7.2: what w is, EASGD's τ, and the share of the time in which GPUs compute, in %.
EASGD = {"ResNet-110": (0.66, 20, 97), "ResNet-152": (2.46, 50, 95), "VGG-A": (9.23, 95, 90)}
EASGD_VISITS = 30


def speed(run, steps):
    """Steps that all workers together take in the time of one, until the last exchange. Each exchange
    stands for `steps` of them."""
    run.read()
    return run.exchanges * steps * STEP_S / run.exchanged_at


def easgd(arena, args):
    rows, series = [], {}
    small = {"batch": 4, "validation": 64, "evaluate.test_records": 4, "evaluate.every_steps": 100_000}
    shares = sorted({0.75, 1, *(tau / WORKERS / w for w, tau, _ in EASGD.values())})
    for net, (w, tau, percent) in EASGD.items():
        taus = sorted({round(s * WORKERS * w) for s in shares})
        found = {}
        for t in taus:
            runs = play(arena, args, {t: (f"small.adam.spread.w{w:g}", "easgd",
                                          {**small, "strategy.easgd.tau_auto": False, "strategy.easgd.tau": t})},
                        EASGD_VISITS * max(t, WORKERS * w))
            found[t] = statistics.mean(100 * speed(r, t) / WORKERS for r in runs[t])
        series[f"{net}, w = {w:g}"] = [(t / WORKERS / w, u) for t, u in found.items()]
        at_tau = min(found, key=lambda t: abs(t - tau))
        rows.append([net, f"{w:g}", ", ".join(f"{t}: {u:.1f}" for t, u in found.items()), f"{tau}",
                     f"{found[at_tau]:.1f}", f"{percent}"])
    series["the paper"] = sorted((tau / WORKERS / w, percent) for w, tau, percent in EASGD.values())
    return (table(["net", "w", "τ: % of the time computing", "the paper's τ", "here", "the paper"], rows),
            report.chart("EASGD (MPCA, §7): % of the time computing; 8 workers",
                         "τ over the steps of K downloads", "% of the time", series, (40, 100)))


# ---- Downpour ----

# SparkDML, Fig. 3 and 4: 48 cores of three machines, 88 of five; the most, with 0.1 and 5 million records.
# The convolutions learn nothing in so short a run; their speed alone is shown.
DOWNPOUR = {"fully connected": ("small", 1.0, 7.2, 1), "convolutions": ("conv", 0.02, 11, 0.25)}
DOWNPOUR_COUNTS = (1, 2, 4, 8)
PUSH = 5  # steps between two pushes, and two fetches, each an exchange: the default


def downpour(arena, args):
    rows, series = [], {}
    for net, (cell, w, paper, epochs) in DOWNPOUR.items():
        settings = {"solver.momentum": 0, "solver.base_lr": 0.01, "strategy.downpour.n_push": PUSH,
                    "strategy.downpour.n_fetch": PUSH, "evaluate.every_steps": 50, "validation": 3000,
                    "stop.epochs": max(0.05, epochs * args.scale)}
        runs = play(arena, args, {k: (f"{cell}.sgd.k{k}.w{w:g}", "downpour", settings) for k in DOWNPOUR_COUNTS},
                    1_000_000)
        speeds = {k: statistics.mean(speed(r, PUSH / 2) for r in some) for k, some in runs.items()}
        series[f"{net}, w = {w:g}"] = list(speeds.items())
        series[f"{net}: the paper"] = [(k, paper) for k in DOWNPOUR_COUNTS]
        for k, some in runs.items():
            errors = [100 * r.read()[3]["validation_error"] for r in some] if epochs == 1 else []
            rows.append([net, f"{k}", f"{speeds[k]:.2f}", f"{statistics.mean(errors):.2f}" if errors else "–",
                         ", ".join(f"{e:.1f}" for e in errors) or "–", f"{paper}" if k == max(runs) else "–"])
    return (table(["net", "K", "times the samples a second of a step alone", "% error after an epoch", "seeds",
                   "the paper's most"], rows),
            report.chart("Downpour (SparkDML, Fig. 3 and 4): samples a second over one worker's", "K",
                         "times as many", series, (0, 12)))


# ---- Elastic ----

ELASTIC_TARGET = 0.16


def elastic_63(arena, args):
    rows, drawn = [], {"here": {}, "the paper": {}}
    for batch, (compute, reduce, wait, background, iterations, *durations) in ELASTIC_S.items():
        w = reduce / compute / (2 * (WORKERS - 1) / WORKERS)  # a ring moves that many models a link
        cell = f"small.sgd.waiting{batch}.w{w:.4f}"
        common = {**EVALUATE, "batch": batch, "rate": 4}
        runs = play(arena, args, {
            "after": (cell, "allreduce", {**common, "strategy.allreduce.bucket_kb": 0}),
            "in the background": (cell, "async_allreduce", common)}, 1_500, ELASTIC_TARGET)
        paper = {"after": (compute + reduce + wait) / compute, "in the background": background / compute}
        for (way, some), duration in zip(runs.items(), durations):
            here = statistics.mean(1 / speed(r, 1) for r in some)
            label = f"{way.split()[-1]}, {batch}"
            drawn["here"][label], drawn["the paper"][label] = here, paper[way]
            needed = [r.passed(ELASTIC_TARGET) / STEP_S * speed(r, 1) for r in some]
            rows.append([f"{batch}", way, f"{here:.3f}", f"{paper[way]:.3f}", shown([statistics.median(needed)]),
                         shown(needed), f"{iterations}", f"{durations[0] / duration:.2f}"])
        times = [median_passed(some, ELASTIC_TARGET) for some in runs.values()]
        for row, t in zip(rows[-2:], times):
            row.append(f"{times[0] / t:.2f}" if t < math.inf else "–")
    return (table(["batch", "all-reduce", "an iteration over its computing", "the paper",
                   f"iterations to {100 * ELASTIC_TARGET:.0f} %", "seeds", "the paper's, to 40 % accuracy",
                   "times as fast: the paper", "here"], rows),
            report.bars("Elastic, Table 6.3: an iteration over its computing; batch 64 and 128",
                        list(drawn["here"]), drawn))


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


FIGURES = {"mpca-10a": mpca_10a, "mpca-10c": mpca_10c, "mpca-13c": mpca_13c,
           "mpca-table2": mpca_table2, "easgd": easgd, "downpour": downpour, "elastic-6.3": elastic_63,
           "dssp-table1": dssp_table1, "dssp-3": dssp_3}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("figure", nargs="+", choices=FIGURES)
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "figures"))
    parser.add_argument("--seeds", type=int, default=3)
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
