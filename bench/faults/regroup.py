#!/usr/bin/env python3
"""Regrouping: one of N workers on one machine is killed, and the others agree on who is left.

    bench/faults/regroup.py [--kills 20] [--strategy sync]

Measured as bench/faults/kill.py does, at a pace that leaves the cores free, so that hearing of the
death, the next view, and the exchange done again among those who are left are all in it.
"""
import argparse

import kill
import stage

BARS = {2: 0.1, 4: 0.2, 8: 0.5}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    stage.arguments(parser)
    parser.add_argument("--strategy", choices=stage.STRATEGIES, default="sync")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pace", type=float, default=0.01)
    parser.add_argument("--warm", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("ms               workers kills      late p50, p99, max   driver knows p50, p99, max"
          "   lost steps")
    with stage.Stage(args) as scene:
        for args.workers, bar in BARS.items():
            worst = kill.measure(scene, args.strategy, args)
            print(f"{args.workers} workers: p99 {1e3 * worst:.1f} ms, bar {1e3 * bar:.0f} ms: "
                  f"{'met' if worst <= bar else 'NOT MET'}")


if __name__ == "__main__":
    main()
