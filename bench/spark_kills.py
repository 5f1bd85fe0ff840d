#!/usr/bin/env python3
"""kill -9 of executors of a standalone cluster on this machine, one after the other, while LeNet trains on
Fashion-MNIST.

  bench/spark_kills.py [--executors 3] [--kills 50] [--epochs 15] [--strategies sync mpca allreduce] [--seed 1]

For each strategy a fit without kills, and then as many fits as the kills take. A kill waits until all
workers train, and none is made in the last third of a fit. Reported are, as p50, p99 and the largest:

  late     seconds by which an exchange of the others is later than usual: of the gaps between the three
           exchanges behind the kill, in each lane, the longest, less the median gap before it
  joins    seconds from the registration of the executor that comes in the place of the killed one, as
           Spark's event log has it, until its worker is a member of the run and trains

and the test error of the fits, and whether the books of all sets of records are even: used + missed -
repeated is due. Times of a machine that computes other things are too long.
"""
import argparse
import json
import math
import os
import random
import shutil
import signal
import statistics
import sys
import time

from spark_cluster import Cluster

POLL_S = 0.01
SETTLE_S = 3  # of training with all workers, before a kill
PATIENCE_S = 900
GAPS = 3
LEAST, BEFORE = 5, 50  # gaps that say what is usual
LAST = 2 / 3  # of a fit: no kill is made from here on


class Events:
    """The events of a run, as they are written. The run counts seconds from its start; `offset` is that
    start by this machine's clock, to within the pause between two looks."""

    def __init__(self, path):
        self.path, self.at, self.rest = path, 0, ""
        self.all, self.offset, self.moved = [], math.inf, time.time()

    def look(self):
        try:
            with open(self.path, encoding="utf-8") as f:
                f.seek(self.at)
                text = f.read()
                self.at = f.tell()
        except FileNotFoundError:
            return
        lines = (self.rest + text).split("\n")
        self.rest = lines.pop()
        now = time.time()
        self.moved = now if lines else self.moved
        for event in map(json.loads, lines):
            self.all.append(event)
            self.offset = min(self.offset, now - event["t"])

    def of(self, kind, **fields):
        return [e for e in self.all if e["kind"] == kind
                and all(e.get(k) == v for k, v in fields.items())]

    def lost(self):
        return sum(len(self.of("member", what=what)) for what in ("dead", "cut", "hung", "fenced"))

    def members(self):
        return len(self.of("member", what="join")) - len(self.of("member", what="leave")) - self.lost()


class Fit:
    def __init__(self, cluster, strategy, epochs, number):
        self.cluster, self.epochs = cluster, epochs
        self.folder = cluster.path(f"{strategy}-{number}")
        self.log = os.path.join(self.folder, "log")
        os.makedirs(self.log)
        self.events = Events(os.path.join(self.folder, "run", "events.jsonl"))
        self.kills = []
        self.application = cluster.submit(
            "FashionLenet", cluster.path("fashion"), epochs, cluster.workers, self.folder, strategy,
            conf=("spark.eventLog.enabled=true", f"spark.eventLog.dir=file:{self.log}",
                  "spark.eventLog.rolling.enabled=false", "spark.eventLog.compress=false"))

    def await_that(self, condition):
        """False: the fit has ended."""
        while time.time() < self.events.moved + PATIENCE_S:
            self.events.look()
            if condition():
                return True
            if self.application.poll() is not None:
                return False
            time.sleep(POLL_S)
        sys.exit(f"{self.folder}: no event for {PATIENCE_S} s")

    def epoch(self):
        losses = self.events.of("loss")
        return losses[-1]["epoch"] if losses else 0

    def trains(self):
        return len(self.events.of("exchange")) > LEAST and self.events.members() == self.cluster.workers

    def kill_some(self, most, draw):
        while len(self.kills) < most and self.await_that(self.trains):
            since = time.time()
            if not self.await_that(lambda: time.time() > since + SETTLE_S) or self.epoch() > LAST * self.epochs:
                return
            lost = self.events.lost()
            os.kill(draw.choice(self.cluster.executors()), signal.SIGKILL)
            self.kills.append(time.time())
            self.await_that(lambda: self.events.lost() > lost)

    def end(self):
        """The test error."""
        self.await_that(lambda: bool(self.events.of("end")))
        output = self.application.communicate()[0]
        if self.application.returncode != 0:
            sys.exit(f"{self.folder}: the fit has failed")
        self.events.look()
        return float(next(line.split()[2] for line in output.splitlines() if line.startswith("test error")))

    def lateness(self):
        lanes = {}
        for event in self.events.of("exchange"):
            lanes.setdefault(event.get("lane"), []).append(event["t"] + self.events.offset)
        for kill in self.kills:
            late = []
            for times in lanes.values():
                gaps = list(zip(times, times[1:]))
                before = [b - a for a, b in gaps if b <= kill][-BEFORE:]
                behind = [b - a for a, b in gaps if b > kill][:GAPS]
                if before and behind:
                    late.append(max(behind) - statistics.median(before))
            yield max(0, *late)

    def joins(self):
        """Kills whose replacement has not joined before the end of the fit are left out."""
        registered = []
        for name in os.listdir(self.log):
            with open(os.path.join(self.log, name), encoding="utf-8") as f:
                registered += [e["Timestamp"] / 1000 for e in map(json.loads, f)
                               if e["Event"] == "SparkListenerExecutorAdded"]
        joined = [e["t"] + self.events.offset for e in self.events.of("member", what="join")]
        for kill in self.kills:
            came = [t for t in registered if t > kill]
            trains = [t for t in joined if came and t > min(came)]
            if trains:
                yield min(trains) - min(came)

    def even(self):
        sets = self.events.of("records")
        return bool(sets) and all(s["used"] + s["missed"] - s["repeated"] == s["due"] for s in sets)


def spread(values):
    """p50, p99 and the largest."""
    if not values:
        return "none"
    ordered = sorted(values)
    ranks = [ordered[math.ceil(p * len(ordered)) - 1] for p in (0.5, 0.99)]
    return f"{ranks[0]:.2f} {ranks[1]:.2f} {ordered[-1]:.2f} s of {len(ordered)}"


def measure(cluster, strategy, options, draw):
    fit = Fit(cluster, strategy, options.epochs, 0)
    undisturbed, even = fit.end(), fit.even()
    kills, late, joins, errors = 0, [], [], []
    while kills < options.kills:
        shutil.rmtree(fit.folder)
        fit = Fit(cluster, strategy, options.epochs, len(errors) + 1)
        fit.kill_some(options.kills - kills, draw)
        errors.append(fit.end())
        if not fit.kills:
            sys.exit(f"{strategy}: a fit of {options.epochs:g} epochs is too short for a kill: more --epochs")
        kills += len(fit.kills)
        late += fit.lateness()
        joins += fit.joins()
        even = even and fit.even()
    shutil.rmtree(fit.folder)
    print(f"{strategy}: {kills} kills in {len(errors)} fits; late {spread(late)}; joins {spread(joins)}; "
          f"test error {100 * statistics.mean(errors):.2f} % (largest {100 * max(errors):.2f}), "
          f"without kills {100 * undisturbed:.2f} %; books {'even' if even else 'NOT EVEN'}", flush=True)
    return even


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executors", type=int, default=3)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--epochs", type=float, default=15)
    parser.add_argument("--strategies", nargs="+", default=["sync", "mpca", "allreduce"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with Cluster(options.executors) as cluster:
        even = [measure(cluster, strategy, options, draw) for strategy in options.strategies]
    return 0 if all(even) else 1


if __name__ == "__main__":
    sys.exit(main())
