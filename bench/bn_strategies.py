#!/usr/bin/env python3
"""BatchNorm nets under each strategy: is the global model, with the global running statistics,
as accurate as the workers' own models, each with its own?

bench/bn.prototxt on Fashion-MNIST (package dataset-fashion-mnist), simulated: four workers of
unequal speed, 400 steps each of 32 records; two minutes of a core for each seed.

    bench/bn_strategies.py [--build DIR] [--seeds N] [--only WORD] [--fraction F]

joint     the final model's error on the test set, by `paceline test` from final.safetensors
workers   the same of each worker's model and its own s, as its last step left them, which is before
          the last exchange mixed or replaced them. Runs do not keep these: paceline_own, a second
          copy of the command, evaluates them beside the joint model (test/lib/own_models.h)
apart     joint less the workers' median, in points; within --bar (1), or the row fails
on the way  how much the joint model was behind at most at steps 100, 200 and 300, where rates are
          high and a step moves either by points; no bar

The rate falls to 0 over the run. The solver suits the strategy: no momentum where gradients come
late (`ps` but for bsp, `downpour`), and for `diloco` the inner optimizer of its papers.
--fraction F sets moving_average_fraction; with 0.999, Caffe's default, s is the mean of all that a
run of 400 steps has seen."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

STEPS, EVERY = 400, 100
CLUSTER = """node { count: 3 jitter: 0.05 } node { speed: 0.7 jitter: 0.05 } driver { }
step_seconds: 0.01
link { mbit: 100 latency_us: 100 }
"""
DATA = "/usr/share/datasets/fashion-mnist/t10k-"
SPEC = f"idx:{DATA}images-idx3-ubyte.gz,{DATA}labels-idx1-ubyte.gz?scale=0.00390625"


def sgd(rate, momentum=0.9):
    return f"base_lr: {rate} momentum: {momentum}"


ADAMW = "type: 'AdamW' base_lr: 0.003 momentum: 0.9 momentum2: 0.999 weight_decay: 0.01"
STRATEGIES = [  # the name in the table, the job's strategy, its solver
    ("single", "single {}", sgd(0.05)),
    ("sync", "sync { tau: 20 }", sgd(0.05)),
    ("allreduce", "allreduce {}", sgd(0.05)),
    ("async_allreduce, method 1", "async_allreduce { method: 1 }", sgd(0.05)),
    ("async_allreduce, method 2", "async_allreduce {}", sgd(0.05)),
    ("ps, bsp", "ps { consistency: bsp }", sgd(0.05)),
    ("ps, asp", "ps { consistency: asp }", sgd(0.1, 0)),
    ("ps, ssp", "ps { consistency: ssp }", sgd(0.1, 0)),
    ("ps, dssp", "ps {}", sgd(0.1, 0)),
    ("ps, dssp, colocated", "ps { colocated: true }", sgd(0.1, 0)),
    ("downpour", "downpour {}", sgd(0.1, 0)),
    ("easgd", "easgd { tau: 5 }", sgd(0.05)),
    ("easgd, sync", "easgd { mode: sync tau: 5 }", sgd(0.05)),
    ("mpca, driver", "mpca {}", sgd(0.05)),
    ("mpca, symmetric", "mpca { coordination: symmetric }", sgd(0.05)),
    ("pace, driver", "pace {}", sgd(0.05)),
    ("pace, symmetric", "pace { coordination: symmetric }", sgd(0.05)),
    ("gossip", "gossip { p: 0.2 }", sgd(0.05)),
    ("diloco", "diloco { tau: 20 }", ADAMW),
    ("diloco, streaming", "diloco { tau: 20 fragments: 3 overlap: 2 }", ADAMW),
]


def command(args, folder, net, name, strategy, solver, seed):
    settings = [f"net={{ file: '{net}' }}", "validation=0", "batch=32",
                f"stop={{ steps: {STEPS} }}",
                f"solver={{ {solver} lr_policy: 'poly' power: 1 max_iter: {STEPS} }}",
                f"strategy={{ {strategy} }}", f"evaluate.every_steps={EVERY}",
                "checkpoint.every_seconds=0"]
    out = [os.path.join(args.build, "paceline_own"), "sim", "examples/fashion-lenet.job", "--json",
           "--cluster", os.path.join(folder, "a.cluster"), "--out", os.path.join(folder, "run"),
           "--seed", str(seed), "--workers", "1" if name == "single" else "4", "--threads", "1"]
    for setting in settings:
        out += ["--set", setting]
    return out


def judge(args, folder, net):
    """The joint model's error by the command as it is."""
    out = subprocess.run(
        [os.path.join(args.build, "paceline"), "test", "--net", net, "--weights",
         os.path.join(folder, "run", "final.safetensors"), "--data", SPEC, "--threads", "1",
         "--json"], check=True, capture_output=True, text=True).stdout
    return 1 - json.loads(out)["accuracy"]


def measure(args, folder, net, row, seed):
    own = os.path.join(folder, "own.jsonl")
    subprocess.run(["rm", "-rf", own, os.path.join(folder, "run")], check=True)
    environment = dict(os.environ, PACELINE_OWN_MODELS=own, OMP_WAIT_POLICY="passive")
    end = subprocess.run(command(args, folder, net, *row, seed), check=True, env=environment,
                         capture_output=True, text=True).stdout
    with open(own) as f:
        judged = [json.loads(line) for line in f]
    joint = judge(args, folder, net)
    last = judged[-1]
    if abs(joint - last["joint"]) > 2e-6 or abs(joint - json.loads(end)["test_error"]) > 2e-6:
        sys.exit(f"{row[0]}: `paceline test` says {joint}, the run {last['joint']}")
    return joint, last["own"], [j["joint"] - statistics.median(j["own"]) for j in judged]


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    args.add_argument("--build", default="build")
    args.add_argument("--seeds", type=int, default=1)
    args.add_argument("--only", default="", metavar="WORD", help="strategies whose row has it")
    args.add_argument("--fraction", type=float, default=0.95)
    args.add_argument("--bar", type=float, default=1.0, help="points")
    args = args.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if os.path.exists(os.path.join(args.build, "build.ninja")):
        subprocess.run(["ninja", "-C", args.build, "paceline_own", "paceline_cli"], check=True,
                       stdout=subprocess.DEVNULL)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        net = os.path.join(folder, "bn.prototxt")
        with open("bench/bn.prototxt") as f, open(net, "w") as out:
            out.write(re.sub(r"(fraction:) 0.95", rf"\1 {args.fraction:g}", f.read()))
        with open(os.path.join(folder, "a.cluster"), "w") as out:
            out.write(CLUSTER)
        for seed in range(1, args.seeds + 1):
            print(f"seed {seed}, moving_average_fraction {args.fraction:g}; errors in %\n"
                  "strategy                    joint   workers: min median    max   apart   "
                  "on the way", flush=True)
            for row in STRATEGIES:
                if args.only not in row[0]:
                    continue
                joint, own, apart = measure(args, folder, net, row, seed)
                ok = abs(apart[-1]) * 100 <= args.bar
                failed |= not ok
                print(f"{row[0]:26} {100 * joint:6.2f} {100 * min(own):14.2f} "
                      f"{100 * statistics.median(own):6.2f} {100 * max(own):6.2f} "
                      f"{100 * apart[-1]:+7.2f} {100 * max(apart[:-1]):+12.2f}   "
                      f"{'pass' if ok else 'FAIL'}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
