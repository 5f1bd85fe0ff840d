#!/usr/bin/env python3
"""False suspicions: unpaced workers and a driver share two cores, without faults, so no worker
may be removed.

    bench/faults/suspicions.py MINUTES [--preset lan|busy] [--workers 4] [--strategy sync…]

The minutes are shared by the strategies. A run that loses a member counts it and is started again.
"""
import argparse
import os
import time

import stage


def watch(scene, strategy, args, seconds):
    """Returns how many members were lost, and exchanges made."""
    lost = exchanges = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with scene.run(args.workers, stage.strategy_settings(strategy)) as run:
            while time.monotonic() < until and run.members() == 0:
                time.sleep(0.2)
            lost += run.members()
            for e in run.events:
                if e["kind"] == "member" and e["what"] != "join":
                    print(f"  {strategy}: worker {e['node']} {e['what']} at {e['t']:.1f} s",
                          flush=True)
            exchanges += run.exchanges()
            run.finish()
    return lost, exchanges


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    stage.arguments(parser)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--strategy", nargs="*", choices=stage.STRATEGIES, default=["sync", "mpca"])
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    lost = 0
    with stage.Stage(args) as scene:
        for strategy in args.strategy:
            n, exchanges = watch(scene, strategy, args, 60 * args.minutes / len(args.strategy))
            lost += n
            print(f"{strategy:16} {args.workers} workers on 2 cores, preset {args.preset}, "
                  f"{args.minutes / len(args.strategy):g} minutes: {exchanges} exchanges, "
                  f"{n} members lost", flush=True)
    print(f"false suspicions: {lost}; bar: 0 in 30 minutes")


if __name__ == "__main__":
    main()
