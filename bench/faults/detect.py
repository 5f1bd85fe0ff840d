#!/usr/bin/env python3
"""How soon a worker that hangs, or has its cable pulled, is removed, and that it contributes
nothing stale when it continues.

    bench/faults/detect.py [--times 100] [--strategy sync] [--only stop|link]

SIGSTOP and a dead cable (a network namespace for each member; needs root) hit one of four paced
workers. Each time: until the driver's event says so; then SIGCONT, or the cable back in, and until
the worker has ended by itself.
stale   exchanges of that worker's own, or records beyond those that members could take, that the
        ledger has after it was put out: `used` and `missed` must add up to what the run has covered
"""
import argparse
import random
import signal
import time

import hosts
import stage

WORKERS, LATE = 4, 0.25


def stale(run, victim, end):
    cut = next(e for e in run.events if e["kind"] == "member" and e["what"] != "join")
    own = sum(1 for e in run.events if e["kind"] == "exchange" and e.get("node") == victim and
              e["t"] > cut["t"] + LATE)
    books = end["used"] + end["missed"] - round(end["epochs"] * stage.TRAIN)
    return own + abs(round(books))


def once(run, victim, hurt, heal, args, draw):
    run.wait(lambda: run.exchanges() >= 4 * WORKERS, 60, "exchanges")
    time.sleep(draw.random() * 0.3)
    hurt(run, victim)
    begun = time.monotonic()
    run.wait(lambda: run.members() == 1, 60, "a suspicion")
    took = time.monotonic() - begun
    event = next(e for e in run.events if e["kind"] == "member" and e["what"] != "join")
    if event["node"] != victim:
        raise stage.Failure(f"worker {event['node']} was put out, and {victim} was hurt")
    before = run.exchanges()
    run.wait(lambda: run.exchanges() >= before + 2 * WORKERS, 60, "exchanges after it")
    healed = time.monotonic()
    heal(run, victim)
    try:
        run.worker[victim].wait(30)
    except stage.subprocess.TimeoutExpired:
        raise stage.Failure(f"it does not end once it is let go:\n{run.said()}") from None
    gone = time.monotonic() - healed
    before = run.exchanges()
    run.wait(lambda: run.exchanges() >= before + 2 * WORKERS, 60, "exchanges after that")
    end = run.finish()
    if run.members() != 1:
        raise stage.Failure("somebody else was put out, too")
    return took, gone, stale(run, victim, end), event["what"]


def series(name, args, hurt, heal, **how):
    draw = random.Random(args.seed)
    took, gone, old, what = [], [], 0, set()
    with stage.Stage(args) as scene:
        for _ in range(args.times):
            with scene.run(WORKERS, stage.strategy_settings(args.strategy) +
                           [f"pace={args.pace}"], retry=0, **how) as run:
                one = once(run, draw.randrange(WORKERS), hurt, heal, args, draw)
            took.append(one[0])
            gone.append(one[1])
            old += one[2]
            what.add(one[3])
    print(f"{name:8} {args.strategy:12} {len(took):5} {stage.spread(took)} {stage.spread(gone)} "
          f"{old:6}  {', '.join(sorted(what))}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    stage.arguments(parser)
    parser.add_argument("--strategy", choices=stage.STRATEGIES, default="sync")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--pace", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["stop", "link"])
    args = parser.parse_args()
    print("ms                    times    put out p50, p99, max    ended p50, p99, max   stale  as")
    if args.only != "link":
        series("SIGSTOP", args, lambda run, n: run.worker[n].send_signal(signal.SIGSTOP),
               lambda run, n: run.worker[n].send_signal(signal.SIGCONT))
    missing = hosts.why_not()
    if args.only != "stop" and missing:
        print(f"cable: skipped: {missing}")
    elif args.only != "stop":
        with hosts.Hosts(WORKERS + 1) as net:
            host = lambda node: WORKERS if node is None else node
            series("cable", args, lambda run, n: net.link(n, False),
                   lambda run, n: net.link(n, True),
                   wrap=lambda node: net.enter(host(node)),
                   address=lambda node: f"{net.address(host(node))}:0")
    print("bar: put out within 1500 ms p99 by the LAN preset; stale 0")


if __name__ == "__main__":
    main()
