#!/usr/bin/env python3
"""kill -9 of one of N workers, real processes: how much later the survivors' next committed exchange
comes than it would have, and what of the work is lost.

    bench/faults/kill.py [--strategy NAME…] [--kills 100] [--workers 4] [--pace 0.01]

A fresh run for each kill: a tiny net, steps of `pace` seconds, a kill at a moment drawn from the seed.
late    over what the survivors' exchanges took between each other before: the longest gap, of each
        survivor where each has exchanges of its own, that lies around the death or follows it, less
        the median gap. The driver's clock; the death itself and its detection are in it.
lost    records of the dead worker that the ledger counts as missed, in steps, at most; where there
        are common rounds
again   records that it counts as repeated, in steps: what the dead worker held, and the others went
        over, of which it may have done a part; where there are leases. The run goes on until that has
        been handed out and done.
"""
import argparse
import random
import statistics
import time

import stage

BATCH = 16 # records of a step of the stage's job
AGAIN = 40 # steps: those of the leases that the others hold, and of what they are given then


def series_of(events, dead):
    """The times of exchanges, by lane and worker, before the death and after it. If one worker
    reports for all, the next one reports after its death.
    """
    at = next(i for i, e in enumerate(events) if e["kind"] == "member" and e["what"] != "join")
    tellers = {e.get("node") for e in events[:at] if e["kind"] == "exchange"}
    series = {}
    for i, e in enumerate(events):
        node = e.get("node") if len(tellers) > 1 else None
        if e["kind"] == "exchange" and node != dead:
            times = series.setdefault((node, e["lane"]), ([], []))
            times[i > at].append(e["t"])
    return [times for times in series.values() if len(times[0]) >= 4]


def settled(run, dead):
    """Every series has continued."""
    run.poll()
    return all(len(after) >= 3 for _, after in series_of(run.events, dead))


def gaps_late(events, dead, window=3):
    """The delay of the latest exchange around and after the death."""
    late = []
    for before, after in series_of(events, dead):
        usual = statistics.median(b - a for a, b in zip(before, before[1:]))
        line = before[-2:] + after[:window]
        late.append(max(b - a for a, b in zip(line, line[1:])) - usual)
    if not late:
        raise stage.Failure("too few exchanges to judge")
    return max(late)


def one_kill(scene, strategy, args, draw):
    with scene.run(args.workers, stage.strategy_settings(strategy) +
                   [f"pace={args.pace}"]) as run:
        run.wait(lambda: run.exchanges() >= args.warm * max(1, len(run.series())) and
                 min(run.series().values()) >= 5, 60, "exchanges")
        time.sleep(draw.random() * 8 * args.pace)
        victim = draw.randrange(args.workers)
        killed = time.monotonic()
        run.worker[victim].kill()
        run.wait(lambda: run.members() == 1, 30, "a death")
        heard = time.monotonic() - killed
        run.wait(lambda: settled(run, victim), 30, "exchanges after it")
        time.sleep(AGAIN * args.pace)
        end = run.finish()
        if run.members() != 1:
            raise stage.Failure(f"more were lost than one: {run.said()}")
        late = gaps_late(run.events, victim)
        return late, heard, end["missed"] / BATCH, end["repeated"] / BATCH


def measure(scene, strategy, args):
    draw = random.Random(args.seed)
    late, heard, lost, again = [], [], [], []
    for _ in range(args.kills):
        one = one_kill(scene, strategy, args, draw)
        for values, value in zip((late, heard, lost, again), one):
            values.append(value)
    print(f"{strategy:16} {args.workers:7} {len(late):5} {stage.spread(late)} {stage.spread(heard)}"
          f" {max(lost):6.1f} {statistics.median(again):7.1f} {max(again):6.1f}", flush=True)
    return stage.quantile(late, 0.99)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    stage.arguments(parser)
    parser.add_argument("--strategy", nargs="*", choices=stage.STRATEGIES,
                        default=list(stage.STRATEGIES))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--pace", type=float, default=0.01)
    parser.add_argument("--warm", type=int, default=8, help="exchanges before a kill")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("ms               workers kills      late p50, p99, max   driver knows p50, p99, max"
          "   lost, again p50, max: steps")
    with stage.Stage(args) as scene:
        worst = max(measure(scene, strategy, args) for strategy in args.strategy)
    print(f"worst p99 {1e3 * worst:.1f} ms; bar: 500 ms")


if __name__ == "__main__":
    main()
