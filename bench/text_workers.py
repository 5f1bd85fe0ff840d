#!/usr/bin/env python3
"""The validation loss of examples/shakespeare-lstm.job by several workers, simulated, against `single`.

    bench/text_workers.py [--workers 4] [--epochs N] [--text FILE] [--only WORD,...] [--margin 0.05]
                          [--rate 1] [--seed 1] [--out DIR] [--paceline FILE]

Every run takes as many samples: --epochs of the text, by RMSProp, 32 windows a step of a worker. `single`
has the job's rate, several workers have --rate times as much: each takes a part of the steps alone. `sync`
exchanges every 5 steps, `downpour` at each one, and has the learning rule at the worker. Each worker
carries the state of its streams: with `sync` those of all workers' steps, with the strategies of leases as
many as one worker takes. The arithmetic is real, so that a run costs what `single` costs: about a minute of
a core for each epoch. With --out DIR runs stay there, and a further call continues them.

Prints the last validation loss of each, and what it is above that of `single`. Fails when one is more than
--margin nats a character above it.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
JOB = os.path.join(HERE, "..", "examples", "shakespeare-lstm.job")
BATCH = 32
CLUSTER = """node {{ count: {workers} jitter: 0.05 }} driver {{ }}
step_seconds: 0.08
link {{ mbit: 1000 latency_us: 100 }}
"""
STRATEGIES = {  # the job's strategy, and whether its workers take the records of a step together
    "single": ("single {}", True),
    "sync": ("sync { tau: 5 }", True),
    "mpca": ("mpca {}", False),
    "downpour": ("downpour { n_push: 1 n_fetch: 1 learning_rule: worker }", False),
}


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def make_job(name, args):
    """The example's text with the strategy, the workers and their streams."""
    strategy, together = STRATEGIES[name]
    workers = 1 if name == "single" else args.workers
    with open(JOB, encoding="utf-8") as f:
        text = f.read()
    text, found = re.subn(r"strategy \{ single \{\} \}", f"strategy {{ {strategy} }}\nworkers: {workers}", text)
    rate = 1 if name == "single" else args.rate
    text, rates = re.subn(r"base_lr: ([0-9.]+)", lambda m: f"base_lr: {float(m[1]) * rate:g}", text)
    text, streams = re.subn(r"streams: \d+\n", f"streams: {BATCH * (workers if together else 1)}\n", text)
    if (found, rates, streams) != (1, 1, 1):
        sys.exit(f"{JOB}: expected one strategy, one rate and one line of streams")
    return text, workers


def last_loss(run):
    with open(os.path.join(run, "events.jsonl"), encoding="utf-8") as f:
        losses = [e["loss"] for e in map(json.loads, f) if e["kind"] == "eval" and e["set"] == "validation"]
    return losses[-1]


def simulate(name, folder, args):
    text, workers = make_job(name, args)
    job, cluster = (os.path.join(folder, f"{name}.{kind}") for kind in ("job", "cluster"))
    run = os.path.join(folder, name)
    write(job, text)
    write(cluster, CLUSTER.format(workers=workers))
    command = [args.paceline, "sim", job, "--cluster", cluster, "--out", run, "--quiet", "--seed", str(args.seed),
               "--epochs", f"{args.epochs:g}", "--set", f"train_data.text.path={args.text}"]
    if os.path.exists(os.path.join(run, "events.jsonl")):
        command.append("--resume")
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
        sys.exit(" ".join(command))
    return last_loss(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--text", default="data/tinyshakespeare.txt")
    parser.add_argument("--only", default=",".join(STRATEGIES), help="some of " + ", ".join(STRATEGIES))
    parser.add_argument("--margin", type=float, default=0.05)
    parser.add_argument("--rate", type=float, default=1, help="of several workers, in multiples of the job's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", metavar="DIR", help="where runs stay")
    parser.add_argument("--paceline", default="build/paceline")
    args = parser.parse_args()
    args.text = os.path.abspath(args.text)
    names = ["single"] + [n for n in args.only.split(",") if n != "single"]
    if set(names) - set(STRATEGIES):
        parser.error(f"--only: expected some of {', '.join(STRATEGIES)}")
    losses = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = args.out or folder
        os.makedirs(folder, exist_ok=True)
        for name in names:
            losses[name] = simulate(name, folder, args)
            print(f"{name:10s} {losses[name]:.4f} {losses[name] - losses['single']:+.4f}", flush=True)
    return 0 if max(losses.values()) <= losses["single"] + args.margin else 1


if __name__ == "__main__":
    sys.exit(main())
