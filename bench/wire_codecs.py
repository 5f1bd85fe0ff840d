#!/usr/bin/env python3
"""Time to an error with each wire format on a slow link, simulated (real arithmetic, virtual time).

    bench/wire_codecs.py [--build DIR] [--seeds N] [--first S] [--mbit M] [--strategies LIST] [--wires LIST]
                         [--steps N] [--target PERCENT]

A net with two hidden layers (160 and 64 units, 136,000 weights) on Fashion-MNIST (package
dataset-fashion-mnist); four workers, batches of 32, SGD with momentum, a rate that falls to 0 over
all steps. A step takes 10 ms; copying and adding are charged (`costs`). The driver is fast, so that
an evaluation is there at once.

reached   virtual seconds to the target, by the first evaluation at or below it: linear between it
          and the one before
faster    f32's time over it
error     the final test error in %
apart     points more than f32's
MB        sent and received by all workers, in MB

Runs of one wire format take the same steps as all others, so `error` compares equal work."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

NET = """define {
  layer { name: "data" type: "Data" top: "data" top: "label" }
  layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
    inner_product_param { num_output: 160 weight_filler { type: "xavier" } } }
  layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
  layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
    inner_product_param { num_output: 64 weight_filler { type: "xavier" } } }
  layer { name: "relu2" type: "ReLU" bottom: "ip2" top: "ip2" }
  layer { name: "ip3" type: "InnerProduct" bottom: "ip2" top: "ip3"
    inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
  layer { name: "accuracy" type: "Accuracy" bottom: "ip3" bottom: "label" top: "accuracy"
    include { phase: TEST } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip3" bottom: "label" top: "loss" }
}"""
CLUSTER = """node {{ count: 4 }} driver {{ speed: 1000 }}
step_seconds: 0.01
link {{ mbit: {mbit} latency_us: 100 }}
costs {{ copy_gb_s: 8 reduce_gb_s: 8 crypto_gb_s: 4 }}
"""
DATA = "/usr/share/datasets/fashion-mnist"
STRATEGIES = {
    "sync": "sync { tau: 10 }",
    "allreduce": "allreduce {}",
    "async_allreduce": "async_allreduce { method: 1 }",
    "diloco": "diloco { tau: 20 outer_momentum: 0.5 }",
    "mpca": "mpca {}",
    "pace": "pace {}",
    "pace-symmetric": "pace { coordination: symmetric }",
    "easgd-sync": "easgd { mode: sync tau: 5 }",
    "ps": "ps { consistency: asp }",
    "ps-bsp": "ps { consistency: bsp }",
    "downpour": "downpour {}",
    "easgd": "easgd { tau: 5 }",
    "gossip": "gossip { p: 0.2 }",
}
LATE = ("ps", "downpour")  # gradients come late: no momentum


def settings(args, strategy, wire):
    momentum = 0 if strategy in LATE else 0.9
    rate = 0.1 if strategy in LATE else 0.02
    every = max(1, args.steps // 40)
    return [f"net={{ {NET} }}", "validation=0", "batch=32", f"stop={{ steps: {args.steps} }}",
            f"train_data={{ idx {{ images: '{DATA}/train-images-idx3-ubyte.gz' labels: "
            f"'{DATA}/train-labels-idx1-ubyte.gz' }} scale: 0.00390625 }}",
            f"test_data={{ idx {{ images: '{DATA}/t10k-images-idx3-ubyte.gz' labels: "
            f"'{DATA}/t10k-labels-idx1-ubyte.gz' }} scale: 0.00390625 }}",
            f"solver={{ type: 'SGD' base_lr: {rate} momentum: {momentum} lr_policy: 'poly' power: 1 "
            f"max_iter: {args.steps} }}",
            f"strategy={{ {STRATEGIES[strategy]} }}", f"evaluate.every_steps={every}",
            "checkpoint.every_seconds=0", f"collective.wire={wire}"]


def measure(args, folder, strategy, wire, seed):
    run = os.path.join(folder, "run")
    subprocess.run(["rm", "-rf", run], check=True)
    command = [os.path.join(args.build, "paceline"), "sim", "bench/fashion-small.job", "--quiet",
               "--cluster", os.path.join(folder, "a.cluster"), "--out", run, "--seed", str(seed),
               "--workers", "4", "--threads", "1"]
    for setting in settings(args, strategy, wire):
        command += ["--set", setting]
    result = subprocess.run(command, capture_output=True, text=True,
                            env=dict(os.environ, OMP_WAIT_POLICY="passive"))
    if result.returncode != 0:
        sys.exit(f"{strategy}, {wire}: {result.stderr}")
    with open(os.path.join(run, "events.jsonl")) as f:
        return [json.loads(line) for line in f]


def curve_of(events):
    return [(e["t"], 100 * e["error"]) for e in events
            if e["kind"] == "eval"]


def passed(curve, target):
    before = None
    for t, error in curve:
        if error <= target:
            if before is None or before[1] == error:
                return t
            return before[0] + (t - before[0]) * (before[1] - target) / (before[1] - error)
        before = (t, error)
    return None


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    args.add_argument("--build", default="build")
    args.add_argument("--seeds", type=int, default=1)
    args.add_argument("--first", type=int, default=1, help="the first seed")
    args.add_argument("--mbit", type=float, default=10)
    args.add_argument("--strategies", default="sync,allreduce,mpca,pace")
    args.add_argument("--wires", default="f32,bf16,int8,topk16,topk64")
    args.add_argument("--steps", type=int, default=800)
    args.add_argument("--target", type=float, default=14.0, help="test error in %%")
    args = args.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    args.build = os.path.abspath(args.build)
    print(f"{args.mbit:g} Mbit/s, {args.steps} steps, target {args.target:g} %\n"
          "strategy         wire     seed  reached  faster   error   apart      MB", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "a.cluster"), "w") as out:
            out.write(CLUSTER.format(mbit=args.mbit))
        for strategy in args.strategies.split(","):
            for seed in range(args.first, args.first + args.seeds):
                base = None
                for wire in args.wires.split(","):
                    events = measure(args, folder, strategy, wire, seed)
                    curve = curve_of(events)
                    reached, error = passed(curve, args.target), curve[-1][1]
                    base = base or (reached, error)
                    faster = base[0] / reached if reached and base[0] else float("nan")
                    moved = sum(e.get("bytes", 0) for e in events if e["kind"] == "exchange")
                    shown = f"{reached:8.2f}" if reached else "       –"
                    print(f"{strategy:16} {wire:8} {seed:4} {shown} {faster:7.2f} {error:7.2f} "
                          f"{error - base[1]:+7.2f} {moved / 1e6:7.1f}", flush=True)


if __name__ == "__main__":
    main()
