#!/usr/bin/env python3
"""Experiments 2 and 3 of Elastic's chapter 6: all-reduce beside computing against all-reduce.

In simulation: real arithmetic, virtual time. LeNet on Fashion-MNIST with Caffe's own settings for
it, four workers with sixteen records each a step. All runs take equally many steps of one global
batch and differ in the strategy alone:

    allreduce        Eq. 6.1
    method 2         Eq. 6.3, weights re-synchronised every epoch (the thesis: async)
    method 2 strict  Eq. 6.3, never re-synchronised (the thesis: async-strict)
    method 1         Eq. 6.2, which the thesis saw diverge

    bench/elastic_async/elastic_async.py [--build DIR] [--out DIR] [--seeds 6] [--epochs 4]
                                         [--jobs N]
    bench/elastic_async/elastic_async.py --self-test

First come final test errors, and their paired t-test against allreduce over the seeds: a seed gives
all strategies the same first weights and the same order of records. At higher rates one seed shows
where each method gives up. Then throughput where communication takes 0.5, 1 and 2 times as long as
computing, over the bound of Eq. 6.4, (Tcomp + Tcomm) / max(Tcomp, Tcomm).

Prints the tables, and writes table.md and results.json into DIR. Runs that are already in DIR are
not repeated, so it can be interrupted and called again.
"""
import argparse
import concurrent.futures
import hashlib
import itertools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WORKERS, BATCH, RECORDS = 4, 16, 60_000
PARAMETERS = 431_080
STEP_S = 0.02  # of a step, virtual
RATE = 0.01
HIGHER = (0.02, 0.04, 0.06)
METHODS = {
    "allreduce": ("allreduce", {}),
    "method 2": ("async_allreduce", {"method": 2, "sync_every_epochs": 1}),
    "method 2 strict": ("async_allreduce", {"method": 2, "sync_every_epochs": 0}),
    "method 1": ("async_allreduce", {"method": 1, "sync_every_epochs": 0}),
}
BARE = ("allreduce", {"bucket_kb": 0})  # nothing leaves before backward is done, as in the thesis
LINKS = (0.5, 1, 2)  # Tcomm / Tcomp
TIMED_STEPS = 400
CONFIDENCE = 0.95


# ---- the paired t-test ----

def incomplete_beta(a, b, x):
    """I_x(a, b), regularised: its continued fraction, evaluated by Lentz's method."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x)
    return math.exp(front + b * math.log1p(-x)) * fraction / a


def two_sided(t, df):
    """Probability of |T| >= |t| under Student's distribution."""
    return incomplete_beta(df / 2, 0.5, df / (df + t * t))


def paired(ours, theirs):
    """Mean difference, t, degrees of freedom, p."""
    d = [a - b for a, b in zip(ours, theirs)]
    mean, spread, df = statistics.mean(d), statistics.stdev(d), len(d) - 1
    if spread == 0:
        return mean, math.copysign(math.inf, mean) if mean else 0.0, df, 0.0 if mean else 1.0
    t = mean / (spread / math.sqrt(len(d)))
    return mean, t, df, two_sided(t, df)


def self_test():
    """Critical values as printed in tables of the distribution, and Gosset's own example (1908):
    hours of sleep gained by ten patients from two drugs, t = 4.0621, p = 0.00283."""
    for t, df, p in ((12.706, 1, 0.05), (4.303, 2, 0.05), (2.571, 5, 0.05), (4.032, 5, 0.01),
                     (2.228, 10, 0.05), (1.697, 30, 0.1), (0, 4, 1)):
        assert abs(two_sided(t, df) - p) < 2e-5 + p * 1e-3, (t, df, p, two_sided(t, df))
    first = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
    second = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)
    mean, t, df, p = paired(second, first)
    assert df == 9 and abs(mean - 1.58) < 1e-9, (mean, df)
    assert abs(t - 4.0621) < 5e-5 and abs(p - 0.00283) < 5e-6, (t, p)
    print("self-test: done")


# ---- simulations ----

class Run:
    """One simulation; its test errors by epoch, and the pace of its steps."""

    def __init__(self, args, method, rate, seed, steps, link=None):
        self.args, self.method, self.rate, self.seed, self.steps = args, method, rate, seed, steps
        self.link = link
        key = json.dumps([method, rate, seed, steps, link])
        self.dir = os.path.join(args.out, "runs", hashlib.sha1(key.encode()).hexdigest()[:16])

    def command(self):
        strategy, settings = self.method
        once_an_epoch = RECORDS // (WORKERS * BATCH)
        sets = {
            "workers": WORKERS, "batch": BATCH, "validation": 0, "seed": self.seed,
            "solver.base_lr": self.rate, "stop.steps": self.steps, "stop.epochs": 1_000_000,
            "evaluate.every_exchanges": 10**9 if self.link else once_an_epoch,
            "checkpoint.every_seconds": 0, "collective.algorithm": "chunked_ring",
            **{f"strategy.{strategy}.{k}": v for k, v in settings.items()},
        }
        return [os.path.join(self.args.build, "paceline"), "sim",
                os.path.join(ROOT, "examples", "fashion-lenet.job"), "--cluster",
                cluster_file(self.args.out, self.link or 1), "--strategy", strategy,
                "--threads", "1",
                *itertools.chain.from_iterable(("--set", f"{k}={v}") for k, v in sets.items()),
                "--out", self.dir]

    def read(self):
        """Test errors after each epoch, the times of exchanges, and how it ended; None while it has
        not."""
        errors, times, end = {}, [], None
        try:
            with open(os.path.join(self.dir, "events.jsonl")) as f:
                for line in f:
                    event = json.loads(line)
                    if event["kind"] == "eval" and event["set"] == "test":
                        errors[round(event["epoch"])] = event["error"]
                    elif event["kind"] == "exchange":
                        times.append(event["t"])
                    elif event["kind"] == "end":
                        end = event
        except (FileNotFoundError, json.JSONDecodeError):
            pass
        return list(errors.values()), times, end

    def go(self):
        if not self.read()[2]:
            shutil.rmtree(self.dir, ignore_errors=True)
            os.makedirs(os.path.dirname(self.dir), exist_ok=True)
            env = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
            with open(self.dir + ".log", "w") as log:
                subprocess.run(self.command(), stdout=log, stderr=log, env=env, check=False)
            if not self.read()[2]:
                raise SystemExit(f"{' '.join(self.command())}: see {self.dir}.log")
        return self

    def final(self):
        """The test error that it ended with; 0.9 if it did not finish."""
        end = self.read()[2]
        return end["test_error"] if "test_error" in end else 0.9

    def gave_up(self):
        """The number of steps until a gradient was NaN; None: it never was."""
        _, times, end = self.read()
        return len(times) if end["reason"] == "failed" else None

    def steps_per_s(self):
        times = self.read()[1]
        half = len(times) // 2
        return (len(times) - 1 - half) / (times[-1] - times[half])


def cluster_file(out, ratio):
    return os.path.join(out, f"link-{ratio:g}.cluster")


def write_clusters(out):
    """Links on which the exchange of one step takes `ratio` steps: in a ring of chunks each worker
    sends 2(K - 1)/K of the model."""
    for ratio in LINKS:
        mbit = 2 * (WORKERS - 1) / WORKERS * PARAMETERS * 32 / (ratio * STEP_S) / 1e6
        with open(cluster_file(out, ratio), "w") as f:
            f.write(f"node {{ count: {WORKERS} }}\ndriver {{ cores: 1 }}\nstep_seconds: {STEP_S}\n"
                    f"link {{ mbit: {mbit:.6g} latency_us: 100 }}\n")


# ---- the table ----

def percent(errors):
    return " ".join(f"{100 * e:.2f}" for e in errors)


def by_epoch(runs):
    """Medians over seeds after each epoch; of the runs that got so far."""
    return [statistics.median(e) for e in
            itertools.zip_longest(*(r.read()[0] for r in runs), fillvalue=0.9)]


def error_rows(finals, seeds):
    lines = ["| strategy | rate | test error %, mean ± sd | after each epoch (median) "
             "| difference to allreduce, points | t | df | p | |",
             "|---|---|---|---|---|---|---|---|---|"]
    results = []
    for (name, rate), runs in finals.items():
        base = [r.final() for r in finals["allreduce", rate]]
        errors = [r.final() for r in runs]
        row = {"strategy": name, "rate": rate, "errors": errors}
        shown = f"{100 * statistics.mean(errors):.2f}"
        ended = [r.gave_up() for r in runs if r.gave_up() is not None]
        test, verdict = "| | | ", f"diverges after {min(ended)} steps" if ended else ""
        difference = f"{100 * (statistics.mean(errors) - statistics.mean(base)):+.2f}"
        if len(runs) > 1:
            shown += f" ± {100 * statistics.stdev(errors):.2f}"
        if len(runs) > 1 and name != "allreduce":
            _, t, df, p = paired(errors, base)
            test = f"| {t:.2f} | {df} | {p:.3f} "
            verdict = verdict or ("differs" if p < 1 - CONFIDENCE else "no difference") + " at 95 %"
            row.update({"t": t, "df": df, "p": p})
        if name == "allreduce":
            difference = ""
            verdict = verdict or (f"{len(runs)} seeds" if len(runs) > 1 else "one seed")
        results.append(row)
        lines.append(f"| {name} | {rate} | {shown} | {percent(by_epoch(runs))} | {difference} "
                     f"{test}| {verdict} |")
    return lines, results


def throughput_rows(args):
    names = ("allreduce", "method 2", "method 1")
    timed = {(ratio, name): Run(args, METHODS[name], RATE, 1, TIMED_STEPS, ratio)
             for ratio in LINKS for name in names}
    timed.update({(ratio, "bare"): Run(args, BARE, RATE, 1, TIMED_STEPS, ratio) for ratio in LINKS})
    all_of(args, timed.values())
    lines = ["| Tcomm / Tcomp | steps/s of allreduce after backward | bound, Eq. 6.4 "
             "| method 2, times that (of the bound) | method 1 | allreduce beside backward |",
             "|---|---|---|---|---|---|"]
    results = []
    for ratio in LINKS:
        pace = {name: timed[ratio, name].steps_per_s() for name in (*names, "bare")}
        comm = 1 / pace["bare"] - STEP_S
        bound = (STEP_S + comm) / max(STEP_S, comm)
        speedup = {name: pace[name] / pace["bare"] for name in names}
        results.append({"tcomm_s": comm, "bound": bound, "steps_per_s": pace})
        lines.append(
            f"| {comm / STEP_S:.2f} | {pace['bare']:.1f} | {bound:.2f} | "
            + " | ".join(f"{speedup[n]:.2f} ({100 * speedup[n] / bound:.0f} %)"
                         for n in ("method 2", "method 1", "allreduce")) + " |")
    return lines, results


def all_of(args, runs):
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        return list(pool.map(Run.go, runs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "elastic_async"))
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--self-test", action="store_true", help="of the t-test alone")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    os.makedirs(args.out, exist_ok=True)
    write_clusters(args.out)

    steps = args.epochs * RECORDS // (WORKERS * BATCH)
    finals = {}
    for name, method in METHODS.items():
        finals[name, RATE] = [Run(args, method, RATE, seed, steps)
                              for seed in range(1, args.seeds + 1)]
    for rate in HIGHER:
        for name in ("allreduce", "method 2", "method 1"):
            finals[name, rate] = [Run(args, METHODS[name], rate, 1, steps)]
    paced, throughput = throughput_rows(args)
    all_of(args, itertools.chain(*finals.values()))
    errors, tested = error_rows(finals, args.seeds)

    table = "\n".join([*errors, "", *paced])
    print(table)
    with open(os.path.join(args.out, "table.md"), "w") as f:
        f.write(table + "\n")
    with open(os.path.join(args.out, "results.json"), "w") as f:
        json.dump({"steps": steps, "errors": tested, "throughput": throughput}, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
