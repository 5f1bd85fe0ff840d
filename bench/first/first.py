#!/usr/bin/env python3
"""The first comparison: every strategy at its own best, eight workers, one network.

In simulation: real arithmetic, virtual time. The net is fc-480-160 on Fashion-MNIST; the link is such
that a whole model takes w steps to cross it, and copies and sums cost what `paceline bench wire`
measures here. Settings to try are in grid.json. Successive halving on the validation set chooses
among them, for `single` as for the others: its rounds are four times as long, as its final run is.
The target is the error that `single` has after 40,000 steps, the median of three seeds. Then one
rule holds for all, `single` included: a seed's time is when the median of its last five validation
errors is first at the target, and a strategy's time is the median of its three seeds.

    bench/first/first.py [--build DIR] [--w 2.46] [--only NAME,...] [--jobs 2] [--out DIR]
                         [--tuned bench/first/tuned.json]

Prints the table, and writes table.md, results.json, tuned.json and first.svg into DIR. Runs that
are already in DIR are not repeated, so it can be interrupted and called again. Tuning takes four
hours of a core, the rest three; with --tuned the settings are those that were chosen on 2026-11-21,
and what the file lacks is tuned.
"""
import argparse
import concurrent.futures
import hashlib
import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
STEP_S = 0.004  # of a step, virtual
PARAMETERS = 455_370
WORKERS = 8
SINGLE_STEPS = 40_000
FINAL_STEPS = 10_000  # of the others' virtual time, at most
ALONE = SINGLE_STEPS // FINAL_STEPS  # `single` trains longer by this factor, also during tuning
RUNGS = ((1_500, 2), (5_000, 1))  # of the halving: steps' virtual time, settings that are kept
SEEDS = (1, 2, 3)
LAST = 5  # validation errors that a median is taken of


def cluster_file(args):
    """A link that a model takes w steps to cross, and a latency that is as short beside a step as
    on gigabit Ethernet beside a step of the w = 2.46 case, ResNet-152: 100 us of 0.78 s. A
    core's time for a byte is measured once for a folder of runs and a w."""
    path = os.path.join(args.out, f"first-w{args.w:g}.cluster")
    if os.path.exists(path):
        return path
    mbit = PARAMETERS * 32 / (args.w * STEP_S) / 1e6
    wire = json.loads(subprocess.run(
        [os.path.join(args.build, "paceline"), "bench", "wire", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)
    with open(path, "w") as f:
        f.write(f"node {{ count: {WORKERS} }}\ndriver {{ cores: 4 }}\n")
        f.write(f"step_seconds: {STEP_S}\n")
        f.write(f"link {{ mbit: {mbit:.6g} latency_us: {STEP_S / 0.78 * 100:.3g} }}\n")
        f.write(f"costs {{ copy_gb_s: {1 / wire['copy_ns_per_byte']:.2f} "
                f"reduce_gb_s: {1 / wire['reduce_ns_per_byte']:.2f} }}\n")
    return path


def shown(value):
    """As protobuf text has it."""
    return str(value).lower() if isinstance(value, bool) else value


class Run:
    """One simulation; its validation errors over virtual time."""

    def __init__(self, args, name, settings, seed, steps, target=None):
        self.args, self.name, self.settings, self.seed = args, name, dict(settings), seed
        self.steps, self.target = steps, target
        key = json.dumps([args.w, name, sorted(settings.items()), seed, steps, target])
        self.dir = os.path.join(args.out, "runs", hashlib.sha1(key.encode()).hexdigest()[:16])

    def command(self):
        strategy = self.name.split()[0]
        alone = strategy == "single"
        fixed = {
            "workers": 1 if alone else WORKERS,
            "stop.seconds": self.steps * STEP_S,
            "stop.epochs": 100000,
            "seed": self.seed,
            "collective.chunk_kb": 16,
        }
        words = self.name.split()[1:]
        if strategy == "ps":
            fixed["strategy.ps.consistency"] = words[0]
        elif words == ["symmetric"]:
            fixed["strategy.mpca.coordination"] = "symmetric"
        elif words == ["streaming"]:
            fixed.update({"strategy.diloco.fragments": 4, "strategy.diloco.overlap": 5})
        sets = itertools.chain.from_iterable(
            ("--set", f"{k}={shown(v)}") for k, v in {**fixed, **self.settings}.items())
        return [os.path.join(self.args.build, "paceline"), "sim",
                os.path.join(ROOT, "examples", "fashion-fc.job"), "--cluster", self.args.cluster,
                "--strategy", strategy, *sets, "--out", self.dir]

    def read(self):
        """Errors over time, exchanges, and how it ended; None while it has not."""
        errors, tests, exchanges, end = [], [], 0, None
        try:
            with open(os.path.join(self.dir, "events.jsonl")) as f:
                for line in f:
                    if not line.endswith("\n"):
                        break
                    event = json.loads(line)
                    if event["kind"] == "eval" and event["set"] == "validation":
                        errors.append((event["t"], event["error"]))
                    elif event["kind"] == "eval" and event["set"] == "test":
                        tests.append((event["t"], event["error"]))
                    elif event["kind"] == "exchange":
                        exchanges += 1
                    elif event["kind"] == "end":
                        end = event
        except FileNotFoundError:
            pass
        return errors, tests, exchanges, end

    def passed(self, errors):
        """When the median of the last five was first at the target or below; infinity: never."""
        for i in range(LAST, len(errors) + 1):
            if (self.target is not None and
                    statistics.median(e for _, e in errors[i - LAST:i]) <= self.target):
                return errors[i - 1][0]
        return math.inf

    def go(self):
        errors, _, _, end = self.read()
        cut = end and end["reason"] == "interrupted" and self.passed(errors) == math.inf
        if not end or cut:
            subprocess.run(["rm", "-rf", self.dir], check=True)
            os.makedirs(os.path.dirname(self.dir), exist_ok=True)
            env = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
            with open(self.dir + ".log", "w") as log:
                process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=env)
                while process.poll() is None:
                    time.sleep(0.5)
                    if self.passed(self.read()[0]) < math.inf:
                        process.send_signal(signal.SIGINT)
                        process.wait()
            if process.returncode not in (0, 130):
                print(f"  {self.name} {self.settings}: exit {process.returncode}, "
                      f"see {self.dir}.log", flush=True)
        return self

    def score(self):
        errors = self.read()[0]
        return statistics.median(e for _, e in errors[-LAST:]) if errors else 1.0


def settings_of(grid):
    keys = list(grid)
    return [dict(zip(keys, values)) for values in itertools.product(*grid.values())]


def all_of(args, runs):
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        return list(pool.map(Run.go, runs))


def tune(args, grids):
    """Successive halving: all settings run for a while, each strategy's two best for longer. Returns
    the strategies in the order of their results."""
    alive, scores = {name: settings_of(grid) for name, grid in grids.items()}, {}
    for steps, kept in RUNGS:
        runs = all_of(args, [Run(args, name, s, 1, steps * (ALONE if name == "single" else 1))
                             for name in alive for s in alive[name]])
        for name in alive:
            mine = sorted((r for r in runs if r.name == name), key=Run.score)
            keep = mine[:kept]
            for r in mine:
                mark = "*" if r in keep else " "
                print(f" {mark} {steps:6d} steps  {r.score():.4f}  {name}  {r.settings}", flush=True)
            alive[name] = [r.settings for r in keep]
            scores[name] = keep[0].score()
    return {name: alive[name][0] for name in sorted(alive, key=scores.get)}


def svg(path, rows, target):
    """Medians of five over virtual time, seed 1 of each strategy."""
    width, height, left, top = 900, 520, 60, 20
    colours = ["#1b6ca8", "#d1495b", "#edae49", "#00798c", "#7b2d8b", "#2e933c", "#8d5524",
               "#5c5c5c", "#e07a5f", "#3d405b", "#81b29a", "#b5179e", "#4361ee", "#606c38", "#000"]
    longest = max((c[-1][0] for _, c in rows if c), default=1)
    low, high = target * 0.9, target * 2.2

    def point(t, e):
        x = left + (width - left - 200) * t / longest
        y = top + (height - top - 50) * (high - min(max(e, low), high)) / (high - low)
        return f"{x:.1f},{y:.1f}"

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>']
    a, b = point(0, target).split(","), point(longest, target).split(",")
    out.append(f'<line x1="{a[0]}" y1="{a[1]}" x2="{b[0]}" y2="{b[1]}" stroke="#999" '
               'stroke-dasharray="4 3"/>')
    for i, (name, curve) in enumerate(rows):
        colour = colours[i % len(colours)]
        points = " ".join(point(t, e) for t, e in curve)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out.append(f'<text x="{width - 190}" y="{top + 16 * (i + 1)}" fill="{colour}">{name}</text>')
    for k in range(6):
        x = left + (width - left - 200) * k / 5
        out.append(f'<text x="{x:.0f}" y="{height - 30}" text-anchor="middle">'
                   f'{longest * k / 5:.0f}</text>')
        e = low + (high - low) * k / 5
        y = float(point(0, e).split(",")[1])
        out.append(f'<text x="{left - 8}" y="{y + 4:.0f}" text-anchor="end">{100 * e:.1f}</text>')
    out.append(f'<text x="{(left + width - 200) / 2}" y="{height - 8}" text-anchor="middle">virtual '
               'seconds; % validation error, median of five evaluations</text></svg>')
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")


def curve_of(run):
    errors = run.read()[0]
    return [(errors[i - 1][0], statistics.median(e for _, e in errors[i - LAST:i]))
            for i in range(LAST, len(errors) + 1)]


def test_at(run, t):
    """The test error beside the validation error at t: evaluated right after it."""
    later = [e for s, e in run.read()[1] if s >= t]
    return later[0] if later else float("nan")


def choose(args):
    """The settings of every strategy, from the file that --tuned names or by tuning."""
    with open(os.path.join(HERE, "grid.json")) as f:
        grids = {k: v for k, v in json.load(f).items() if k != "about"}
    if args.only:
        grids = {k: v for k, v in grids.items() if k in ["single", *args.only.split(",")]}
    best = {}
    if args.tuned:
        with open(args.tuned) as f:
            best = {k: v for k, v in json.load(f).items() if k in grids}
    best.update(tune(args, {k: v for k, v in grids.items() if k not in best}))
    with open(os.path.join(args.out, "tuned.json"), "w") as f:
        json.dump(best, f, indent=1)
    return best


def result_of(name, settings, runs):
    """The result of a strategy over its three seeds."""
    times = [r.passed(r.read()[0]) for r in runs]
    return {"strategy": name, "settings": settings, "times": times,
            "median": statistics.median(times),
            "tests": [test_at(r, t) for r, t in zip(runs, times) if t < math.inf],
            "exchanges": min(r.read()[2] for r in runs),
            "lowest": min(e for r in runs for _, e in curve_of(r))}


def finite(value):
    """Infinity and NaN, which JSON does not have, become null."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table_of(results, target):
    whole = next(r["median"] for r in results if r["strategy"] == "single")
    lines = ["| strategy | at its best with | virtual s to "
             f"{100 * target:.2f} % (seeds {', '.join(map(str, SEEDS))}) | times `single` | test "
             "error there, % | exchanges |", "|---|---|---|---|---|---|"]
    for r in sorted(results, key=lambda r: r["median"]):
        shown = ", ".join("–" if t == math.inf else f"{t:.1f}" for t in r["times"])
        if r["median"] == math.inf:
            shown += f" (lowest: {100 * r['lowest']:.2f} %)"
        speed = "–" if r["median"] == math.inf else f"{whole / r['median']:.2f}"
        tests = "–" if not r["tests"] else f"{100 * statistics.median(r['tests']):.2f}"
        some = " ".join(f"{k.split('.')[-1]}={v}" for k, v in r["settings"].items())
        void = " (void: fewer than 50)" if r["strategy"] != "single" and r["exchanges"] < 50 else ""
        lines.append(f"| {r['strategy']} | {some} | {shown} | {speed} | {tests} | "
                     f"{r['exchanges']}{void} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "first"))
    parser.add_argument("--w", type=float, default=2.46)
    parser.add_argument("--only", default="")
    parser.add_argument("--tuned", help="settings that were chosen before: tuned.json")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    args.cluster = cluster_file(args)

    started = time.time()
    best = choose(args)
    print(f"tuned in {(time.time() - started) / 60:.0f} minutes", flush=True)
    alone = all_of(args, [Run(args, "single", best["single"], s, SINGLE_STEPS) for s in SEEDS])
    target = statistics.median(r.score() for r in alone)
    print(f"single after {SINGLE_STEPS} steps: {target:.4f}", flush=True)
    for r in alone:
        r.target = target
    finals = alone + all_of(args, [Run(args, name, s, seed, FINAL_STEPS, target)
                                   for name, s in best.items() if name != "single"
                                   for seed in SEEDS])
    results, curves = [], []
    for name in best:
        runs = [r for r in finals if r.name == name]
        results.append(result_of(name, best[name], runs))
        curves.append((name, curve_of(runs[0])))
    table = table_of(results, target)
    print(table)
    with open(os.path.join(args.out, "table.md"), "w") as f:
        f.write(table + "\n")
    with open(os.path.join(args.out, "results.json"), "w") as f:
        json.dump(finite({"w": args.w, "target": target, "results": results}), f, indent=1,
                  allow_nan=False)
    svg(os.path.join(args.out, "first.svg"), curves, target)


if __name__ == "__main__":
    main()
