#!/usr/bin/env python3
"""The arena: strategies in cells of net, optimizer, group of workers and link, on equal terms.

In simulation: real arithmetic, virtual time; copies and sums cost what `paceline bench wire` measures
here. Each competitor has its defaults, and settings that successive halving on the validation set
chooses from grid.json, `single` likewise, which trains four times as long. `late` is the least error of
`single`, plus 2 % of it, and `early` plus 25 %, both the median of three seeds. One rule holds for all,
`single` included: a seed's time is when the median of its last five validation errors is first at the
target, and a competitor's time is the median of its seeds. A competitor with fewer than 50 exchanges is
void.

    bench/arena/arena.py CELL... [--only NAME,...] [--defaults NAME,...] [--tuned FILE] [--out DIR]
                         [--data DIR] [--jobs N] [--scale F] [--seeds N] [--build DIR]

CELL is NET.OPTIMIZER.GROUP.wW, as fc.adam.uneven.w9.23 (cell.py). --defaults names competitors that are
not tuned but have the defaults of their strategies, and the cell's rate, which is one for `single`. --data is the folder of CIFAR-10's binary version.
--scale shortens all runs by a factor, and --seeds takes fewer, to try the arena itself.

DIR keeps each run's job and events, a ledger of all runs, and CELL.md, .json, .svg and .tuned.json. What
is there is not repeated, so that the command can be interrupted and called again. A cell of `fc` takes
about ten hours of a core, three where the settings are known (--tuned CELL.tuned.json).
"""
import argparse
import concurrent.futures
import json
import os
import statistics
import threading

import halving
import report
from cell import ROOT, Cell, measure_wire
from run import Run

FINAL_STEPS = 10_000  # virtual time of a final run, at most
EARLY, LATE = 1.25, 1.02  # of the least error of `single`


class Arena:
    """Where runs are kept, and what all of them share."""

    def __init__(self, args):
        self.build, self.out, self.data = args.build, args.out, args.data
        self.jobs, self.scale = args.jobs, args.scale
        self.lock = threading.Lock()
        os.makedirs(self.out, exist_ok=True)
        path = os.path.join(self.out, "wire.json")
        if not os.path.exists(path):
            with open(path, "w") as f:
                json.dump(measure_wire(self.build), f)
        with open(path) as f:
            self.wire = json.load(f)

    def all_of(self, runs):
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(Run.go, runs))

    def note(self, run):
        """A line of the ledger for a run that has ended."""
        end = run.read()[3] or {}
        with self.lock, open(os.path.join(self.out, "ledger.jsonl"), "a") as f:
            json.dump({"cell": run.cell.name, "competitor": run.name, "settings": run.settings,
                       "seed": run.seed, "steps": run.steps, "score": run.score(),
                       "ended": end.get("reason", "failed"), "dir": os.path.basename(run.dir)}, f)
            f.write("\n")


def choose(arena, cell, args):
    """The settings of each competitor."""
    grid = halving.read_grid()
    if args.only:
        unknown = set(args.only) - set(grid) - set(args.defaults)
        if unknown:
            raise SystemExit(f"no competitor {', '.join(sorted(unknown))}; there are {', '.join(grid)}")
        grid = {k: v for k, v in grid.items() if k in ("single", *args.only)}
    best = {name: {} for name in args.defaults}
    if args.tuned:
        with open(args.tuned) as f:
            best.update((k, v) for k, v in json.load(f).items() if k in grid and k not in args.defaults)
    grid = {k: v for k, v in grid.items() if k not in best}
    best.update(halving.tune(arena, cell, grid))
    for axis in halving.at_edge(grid, best):
        print(f"at the edge of its grid: {axis}", flush=True)
    with open(os.path.join(arena.out, cell.name + ".tuned.json"), "w") as f:
        json.dump(best, f, indent=1)
    return best


def play(arena, cell, args):
    best = choose(arena, cell, args)

    def runs_of(name, target=None):
        steps = halving.steps_of(arena, name, FINAL_STEPS)
        return [Run(arena, cell, name, best[name], seed, steps, target) for seed in range(1, args.seeds + 1)]

    alone = arena.all_of(runs_of("single"))
    least = statistics.median(min((e for _, e in r.curve()), default=1.0) for r in alone)
    targets = {"late": LATE * least, "early": EARLY * least}
    others = arena.all_of([r for name in best if name != "single" for r in runs_of(name, targets["late"])])
    finals = {name: [r for r in [*alone, *others] if r.name == name] for name in best}
    results = [report.result_of(runs, targets) for runs in finals.values()]
    print(report.write(arena.out, cell, targets, results,
                       {name: runs[0].curve() for name, runs in finals.items()}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cell", nargs="+")
    parser.add_argument("--only", type=lambda s: s.split(","), default=[])
    parser.add_argument("--defaults", type=lambda s: s.split(","), default=[])
    parser.add_argument("--tuned")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "arena"))
    parser.add_argument("--data", default=os.path.join(ROOT, "data", "cifar-10-batches-bin"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    args = parser.parse_args()
    cells = [Cell.of(name) for name in args.cell]
    arena = Arena(args)
    for cell in cells:
        play(arena, cell, args)


if __name__ == "__main__":
    main()
