#!/usr/bin/env python3
"""The test error of `pace` with its defaults and of `allreduce` after as many epochs, with the same global
batch.

    bench/arena/equal_epochs.py [CELL] [--rates R,R] [--batch N] [--epochs N] [--seeds N,...] [--margin 0.003]
                                [--data DIR] [--out DIR] [--jobs N] [--build DIR]

CELL is as of the arena: resnet20.sgd.k4.w2.46, four workers. --rates are those of `pace` and of `allreduce`,
and --batch is a worker's. The rates of a job whose policy falls at some epochs fall in both. The arithmetic
is real: ResNet-20 takes a quarter of an hour of a core for each of its six runs.

DIR keeps the runs, as the arena does. Fails where the mean over the seeds is worse than that of `allreduce`
by more than --margin.
"""
import argparse
import os
import statistics
import sys

from arena import Arena
from cell import ROOT, Cell
from figures import table
from run import Run

NEVER = 10**6  # steps of virtual time, and steps from one evaluation to the next


def numbers(kind):
    return lambda text: [kind(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cell", nargs="?", default="resnet20.sgd.k4.w2.46")
    parser.add_argument("--rates", type=numbers(float), default=[0.1, 0.1])
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
    runs = {}
    for name, rate in zip(("pace", "allreduce"), args.rates, strict=True):
        settings = {"batch": args.batch, "solver.base_lr": rate, "stop.epochs": args.epochs,
                    "evaluate.every_steps": NEVER}
        runs[name] = [Run(arena, cell, name, settings, seed, NEVER) for seed in args.seeds]
    arena.all_of([run for pair in zip(*runs.values()) for run in pair])
    errors = {name: [run.read()[1][-1][1] for run in some] for name, some in runs.items()}
    rows = [[name, f"{rate:g}", ", ".join(f"{100 * e:.2f}" for e in errors[name]),
             f"{100 * statistics.mean(errors[name]):.2f}"] for name, rate in zip(errors, args.rates)]
    print(f"**{cell.name}**, test error after {args.epochs} epochs, %\n")
    print(table(["strategy", "rate", "seeds", "mean"], rows))
    more = statistics.mean(errors["pace"]) - statistics.mean(errors["allreduce"])
    print(f"\n`pace` is worse by {100 * more:+.2f} points; at most {100 * args.margin:g}: "
          f"{'met' if more <= args.margin else 'not met'}")
    return 0 if more <= args.margin else 1


if __name__ == "__main__":
    sys.exit(main())
