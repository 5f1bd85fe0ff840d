#!/usr/bin/env python3
"""The test error of `pace` with its defaults and of `allreduce` after as many epochs, with the same global
batch.

    bench/arena/equal_epochs.py [CELL] [--rates R,...] [--batch N] [--epochs N] [--seeds N,...]
                                [--margin 0.003] [--data DIR] [--out DIR] [--jobs N] [--build DIR]

CELL is as of the arena: resnet20.sgd.k4.w2.46, four workers. Both try all of --rates, and what counts of each
is the rate with the least validation error. A rate that falls at some epochs of the job falls in both. --batch
is a worker's. The arithmetic is real: ResNet-20 takes half an hour of a core for each of its six runs.

DIR keeps the runs, as the arena does. Fails where the mean test error over the seeds is worse than that of
`allreduce` by more than --margin.
"""
import argparse
import os
import statistics
import sys

from arena import Arena
from cell import ROOT, Cell
from figures import table
from run import Run

STRATEGIES = ("pace", "allreduce")
NEVER = 10**6  # steps of virtual time, and steps from one evaluation to the next


def numbers(kind):
    return lambda text: [kind(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cell", nargs="?", default="resnet20.sgd.k4.w2.46")
    parser.add_argument("--rates", type=numbers(float), default=[0.1])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=numbers(int), default=[11, 12, 13])
    parser.add_argument("--margin", type=float, default=0.003)
    parser.add_argument("--data", default=os.path.join(ROOT, "data", "cifar-10-batches-bin"))
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "equal_epochs"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    args = parser.parse_args()
    args.scale = 1
    arena, cell = Arena(args), Cell.of(args.cell)
    tried = {}
    for name in STRATEGIES:
        for rate in args.rates:
            settings = {"batch": args.batch, "solver.base_lr": rate, "stop.epochs": args.epochs,
                        "evaluate.every_steps": NEVER}
            tried[name, rate] = [Run(arena, cell, name, settings, seed, NEVER) for seed in args.seeds]
    arena.all_of([run for runs in zip(*tried.values()) for run in runs])
    validation, test = ({key: [run.read()[which][-1][1] for run in runs] for key, runs in tried.items()}
                        for which in range(2))
    best = {name: min((key for key in tried if key[0] == name), key=lambda key: statistics.mean(validation[key]))
            for name in STRATEGIES}
    rows = [[name, f"{rate:g}", f"{100 * statistics.mean(validation[name, rate]):.2f}",
             ", ".join(f"{100 * e:.2f}" for e in errors), f"{100 * statistics.mean(errors):.2f}"]
            for (name, rate), errors in test.items()]
    print(f"**{cell.name}**, errors after {args.epochs} epochs, %\n")
    print(table(["strategy", "rate", "validation", "test, seeds", "mean"], rows))
    more = statistics.mean(test[best["pace"]]) - statistics.mean(test[best["allreduce"]])
    print(f"\n`pace`, rate {best['pace'][1]:g}, is worse than `allreduce`, rate {best['allreduce'][1]:g}, by "
          f"{100 * more:+.2f} points; at most {100 * args.margin:g}: {'met' if more <= args.margin else 'not met'}")
    return 0 if more <= args.margin else 1


if __name__ == "__main__":
    sys.exit(main())
