#!/usr/bin/env python3
"""A storm over real processes: seeds draw a strategy, how many workers, and what happens to some of
them and when; invariants are checked at the end of each run.

    bench/faults/storm.py [--seeds 20] [--first 1]     as many seeds, from the first
    bench/faults/storm.py --seed N                     that one again, with a log of each step

Each worker is behind a fault proxy of its own. One worker at least is never hurt. Faults: kill,
pause (SIGSTOP and, some time later, SIGCONT), blackhole, unheard (one way), reset, corrupt, slow
(a link of 1 Mbit/s), clog (100 ms each way). At the end all that can be healed is healed.

Checked: the run goes on within a bounded time and ends well; views follow each other; each number
is put out once at most, and no more workers than were hurt; each exchange has its number once;
who was put out contributes nothing more; records used and missed add up to those covered, but for
what was gone over again, of which there is no more than what counts as repeated.
"""
import argparse
import random
import signal
import sys
import time

import stage

FAULTS = ["kill", "pause", "blackhole", "unheard", "reset", "corrupt", "slow", "clog"]
SAID = {"blackhole": ["blackhole"], "unheard": ["0 oneway down", "1 oneway up"],
        "reset": ["reset"], "corrupt": ["corrupt 2000"], "slow": ["mbit 1"], "clog": ["delay 100"]}
HEALS = {"pause", "blackhole", "unheard", "corrupt", "slow", "clog"}
LATE, LIMIT = 0.25, 60


def draw_plan(seed):
    draw = random.Random(seed)
    strategy = draw.choice(sorted(stage.STRATEGIES))
    left = 2 if strategy == "gossip" else 1 # who is alone has nobody to speak to
    workers = draw.randint(left + 1, 5)
    hurt = draw.sample(range(workers), draw.randint(1, workers - left))
    steps = []
    for node in hurt:
        at, fault = draw.uniform(0, 1.5), draw.choice(FAULTS)
        steps.append((at, node, fault))
        if fault in HEALS:
            steps.append((at + draw.choice([0.1, 0.5, 3.0]), node, "heal " + fault))
    return strategy, workers, hurt, sorted(steps)


def carry_out(run, node, fault):
    process = run.worker[node]
    if fault in ("kill", "pause", "heal pause"):
        if process.poll() is None:
            process.send_signal({"kill": signal.SIGKILL, "pause": signal.SIGSTOP,
                                 "heal pause": signal.SIGCONT}[fault])
        return
    for line in ["pass"] if fault.startswith("heal") else SAID[fault]:
        run.proxy[node].tell(line)


def check(run, hurt, workers, end):
    views, out, numbers = [], {}, {}
    for e in run.events:
        if e["kind"] == "member":
            if e["what"] not in ("join", "leaf", "participates"):
                if e["node"] in out:
                    raise stage.Failure(f"worker {e['node']} is put out twice")
                out[e["node"]] = e["t"]
                views.append(e["view"])
        if e["kind"] == "exchange":
            key = e.get("node"), e["lane"]
            if e["n"] <= numbers.get(key, 0):
                raise stage.Failure(f"exchange {e['n']} of {key} comes after {numbers[key]}")
            numbers[key] = e["n"]
            if e.get("node") in out and e["t"] > out[e["node"]] + LATE:
                raise stage.Failure(f"an exchange of worker {e['node']}, which is out")
    if views != sorted(views): # who is lost in one step of the driver's has one view
        raise stage.Failure(f"views {views}")
    first = [node for node in out if node < workers] # who is hurt for long comes back, and goes again
    if len(first) > len(hurt): # of two who cannot hear each other either goes
        raise stage.Failure(f"of {workers}, {hurt} were hurt, and {sorted(out)} are out")
    again = end["epochs"] * stage.TRAIN - end["used"] - end["missed"]
    if not -0.5 < again < end["repeated"] + 0.5:
        raise stage.Failure(f"{again:g} records were covered again: {end}")
    return len(out)


def play(scene, seed, tell):
    strategy, workers, hurt, steps = draw_plan(seed)
    print(f"seed {seed}: {strategy}, {workers} workers, " +
          ", ".join(f"{node} {fault} at {at:.2f}" for at, node, fault in steps), flush=True)
    with scene.run(workers, stage.strategy_settings(strategy) + ["pace=0.005"],
                   proxied=range(workers)) as run:
        run.wait(lambda: run.exchanges() >= 5, LIMIT, "exchanges")
        begun = time.monotonic()
        for at, node, fault in steps:
            time.sleep(max(0, begun + at - time.monotonic()))
            if tell:
                print(f"  {at:.2f}: {fault} {node}", flush=True)
            carry_out(run, node, fault)
        for _ in range(2): # what was under way when the last fault ended, and what came after
            before = run.exchanges()
            run.wait(lambda b=before: run.exchanges() >= b + 10, LIMIT, "exchanges after the storm")
        end = run.finish(LIMIT)
        lost = check(run, hurt, workers, end)
        print(f"  {run.exchanges()} exchanges, {lost} put out, {end['missed']} records missed",
              flush=True)
        if tell:
            print(run.said())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    stage.arguments(parser)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    seeds = [args.seed] if args.seed is not None else range(args.first, args.first + args.seeds)
    failed = []
    with stage.Stage(args) as scene:
        for seed in seeds:
            try:
                play(scene, seed, args.seed is not None)
            except stage.Failure as why:
                failed.append(seed)
                print(f"seed {seed} FAILED: {why}\n  again: bench/faults/storm.py --seed {seed}",
                      flush=True)
    print(f"{len(seeds) - len(failed)} of {len(seeds)} seeds well")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
