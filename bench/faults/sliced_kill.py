#!/usr/bin/env python3
"""A slice of a large model dies where two replicas of two slices train, and a standby takes its place, in
simulation: how much later the other replica's next exchange comes than it would have, and how long the
replica takes until it is whole again.

    bench/faults/sliced_kill.py [--mbit 1000,250] [--after 5.4] [--paceline build/paceline]

The net has 24.7 million parameters, with momentum: the state of a slice is 99 MB. Steps take 0.2 s; a worker
is killed at 40 % of an interval between two exchanges, or at other moments (--after, in such intervals).
late    the longest gap between two exchanges around the death, less the usual one (bar: 0.5 s)
whole   from the death to the end of the first round in which both replicas have a share again (bar: 2 s
        and the time in which the state crosses a link)
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAYER = "layer {{ name: '{0}' type: 'InnerProduct' bottom: '{1}' top: '{0}' " \
        "inner_product_param {{ num_output: {2} weight_filler {{ type: 'xavier' }} }} }}\n"
SIZES = (("one", "data", 4096), ("two", "one", 4096), ("three", "two", 1190), ("ip", "three", 10))
STATE_BYTES = 4 * 2 * (784 * 4096 + 4096 * 4096 + 4096 * 1190 + 1190 * 10) / 2


def net():
    return ("layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n" +
            "".join(LAYER.format(*size) for size in SIZES) +
            "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n")


def run(args, folder, mbit, killed, steps):
    """The events of a run; with `killed`, worker 1 dies at that time."""
    out = tempfile.mkdtemp(dir=folder) + "/run"
    with open(os.path.join(folder, "net.prototxt"), "w") as f:
        f.write(net())
    with open(os.path.join(folder, "cluster"), "w") as f:
        f.write(f"node {{ count: 5 }} step_seconds: 0.2 link {{ mbit: {mbit} }}\n")
        if killed is not None:
            f.write(f"fault {{ at: {killed:.4f} kill: 1 }}\n")
    fields = [f"net={{file:'{folder}/net.prototxt'}}", "slices=2", "workers=4", "standby=1", "batch=4",
              "solver={base_lr:0.001 momentum:0.9 lr_policy:'fixed' type:'SGD'}", "validation=0",
              f"stop.steps={steps}", "evaluate.every_steps=1000000", "checkpoint.every_seconds=0"]
    subprocess.run([args.paceline, "sim", os.path.join(ROOT, "examples", "fashion-fc.job"), "--cluster",
                    os.path.join(folder, "cluster"), "--strategy", "allreduce", "--out", out,
                    *(word for field in fields for word in ("--set", field))],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(os.path.join(out, "events.jsonl")) as f:
        return [json.loads(line) for line in f]


def exchanges(events):
    return [(e["t"], e["bytes"]) for e in events if e["kind"] == "exchange"]


def measure(args, folder, mbit, moment):
    before = exchanges(run(args, folder, mbit, None, 6))
    usual = statistics.median(b[0] - a[0] for a, b in zip(before[1:], before[2:]))
    killed = before[0][0] + (moment - 1) * usual
    after = exchanges(run(args, folder, mbit, killed, int(moment) + 7 + int(3000 / mbit)))
    gaps = [b[0] - a[0] for a, b in zip(after, after[1:]) if b[0] > killed]
    alone = next(i for i, (t, n) in enumerate(after) if t > killed and n < before[2][1])
    whole = next(t for t, n in after[alone:] if n >= before[2][1])
    return usual, max(gaps) - usual, whole - killed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", default="1000,250", help="rates of the links")
    parser.add_argument("--after", default="5.4", help="when the worker dies, in intervals between exchanges")
    parser.add_argument("--paceline", default=os.path.join(ROOT, "build", "paceline"))
    args = parser.parse_args()
    worst = 0
    print("| link | killed after | usual interval | late | whole after | 2 s + state / link |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for mbit in map(float, args.mbit.split(",")):
            for moment in map(float, args.after.split(",")):
                usual, late, whole = measure(args, folder, mbit, moment)
                bar = 2 + STATE_BYTES / (mbit * 125e3)
                print(f"| {mbit:g} Mbit/s | {moment:g} | {usual:.2f} s | {late:.2f} s | {whole:.2f} s | {bar:.2f} s |",
                      flush=True)
                worst = max(worst, late - 0.5, whole - bar)
    return 0 if worst <= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
