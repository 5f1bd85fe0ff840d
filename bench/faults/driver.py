#!/usr/bin/env python3
"""kill -9 of the driver, real processes: how long after it is started again the first exchange is
committed, and what of the work is lost.

    bench/faults/driver.py [--strategy NAME…] [--kills 20] [--workers 4] [--pace 0.01] [--away 0.2]

One run a strategy, whose driver is killed again and again at moments drawn from the seed, and started
again `away` seconds later on the same port, with --resume. Steps take `pace` seconds.
back    from the start of the new driver's process to the first `exchange` event that it writes
lost    exchanges that events before had told of and that the new driver does not go on behind
"""
import argparse
import os
import random
import signal
import subprocess
import time

import stage


class Run:
    """A driver that dies and returns, and its workers."""

    def __init__(self, scene, name, args):
        scene.count += 1
        self.scene, self.out = scene, os.path.join(scene.folder, f"run-{scene.count}")
        self.at = stage.free_port()
        self.settings = stage.strategy_settings(name) + scene.preset_set + [
            f"workers={args.workers}", f"pace={args.pace}",
            f"checkpoint.every_seconds={args.checkpoint}"]
        self.log = open(self.out + ".log", "wb")
        self.read_to, self.rest, self.events, self.worker = 0, "", [], []
        self.driver = None
        self.start_driver([])
        for _ in range(args.workers):
            self.worker.append(self.start("worker", "--join", self.at, "--retry", "60"))

    def start(self, *arguments):
        return subprocess.Popen([os.path.join(self.scene.build, "paceline"), *arguments],
                                cwd=self.scene.folder, stdout=subprocess.DEVNULL, stderr=self.log,
                                env=dict(os.environ, OMP_WAIT_POLICY="passive"))

    def start_driver(self, more):
        sets = [word for setting in self.settings for word in ("--set", setting)]
        self.driver = self.start("driver", "tiny.job", "--listen", self.at, "--out", self.out,
                                 *sets, *more)

    poll = stage.Run.poll
    wait = stage.wait_until

    def said(self):
        with open(self.out + ".log") as f:
            return f.read()[-4000:]

    def count(self, kind, since=0):
        return sum(1 for e in self.events[since:] if e["kind"] == kind)

    def end(self):
        for process in [self.driver] + self.worker:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.log.close()


def one_kill(run, args, draw, total):
    """(seconds, exchanges lost, exchanges up to where it resumes)"""
    since = len(run.events)
    run.wait(lambda: run.count("exchange", since) >= args.warm, 60, "exchanges")
    time.sleep(draw.random() * 8 * args.pace)
    run.driver.send_signal(signal.SIGKILL)
    run.driver.wait()
    run.poll()
    total += run.count("exchange", since)
    time.sleep(args.away)
    since = len(run.events)
    started = time.monotonic()
    run.start_driver(["--resume"])
    run.wait(lambda: run.count("exchange", since) > 0, 60, "an exchange after it")
    took = time.monotonic() - started
    back = [e for e in run.events[since:] if e["kind"] == "back"]
    if not back or back[0]["workers"] != args.workers:
        raise stage.Failure(f"not all have return; they said:\n{run.said()}")
    first = next(i for i, e in enumerate(run.events) if i >= since and e["kind"] == "exchange")
    return took, total - back[0]["exchanges"], back[0]["exchanges"], first


def measure(scene, name, args):
    draw = random.Random(args.seed)
    run = Run(scene, name, args)
    took, lost, total = [], [], 0
    try:
        for _ in range(args.kills):
            one = one_kill(run, args, draw, total)
            took.append(one[0])
            lost.append(one[1])
            # Later reports of the new driver are counted at the next death.
            total = one[2] + run.count("exchange", one[3])
        run.driver.send_signal(signal.SIGINT)
        run.driver.wait(60)
        run.poll()
        end = run.events[-1]
        books = end["used"] + end["missed"] - end["epochs"] * stage.TRAIN
    finally:
        run.end()
    print(f"{name:16} {args.workers:7} {len(took):5} {stage.spread(took)} {max(lost):6} "
          f"{end['missed']:8} {books:8.1f}", flush=True)
    return stage.quantile(took, 0.99), max(lost)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    stage.arguments(parser)
    parser.add_argument("--strategy", nargs="*", choices=stage.STRATEGIES,
                        default=["sync", "allreduce", "async_allreduce", "diloco", "easgd-sync",
                                 "mpca-symmetric", "gossip"])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--pace", type=float, default=0.01)
    parser.add_argument("--away", type=float, default=0.2)
    parser.add_argument("--checkpoint", type=float, default=3, help="seconds between two; 0: none")
    parser.add_argument("--warm", type=int, default=20, help="exchanges before a kill")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("ms               workers kills      back p50, p99, max          lost   missed    books")
    with stage.Stage(args) as scene:
        worst = [measure(scene, name, args) for name in args.strategy]
    print(f"worst p99 {1e3 * max(w[0] for w in worst):.1f} ms, bar: 2000 ms; "
          f"lost at most {max(w[1] for w in worst)}, bar: 1")


if __name__ == "__main__":
    main()
