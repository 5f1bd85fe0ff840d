#!/usr/bin/env python3
"""The memory of a worker that `paceline plan` prints against the peak of a real one (VmHWM).

  bench/plan_memory.py [--build DIR] [--steps 200] [--only STRATEGY,...]

Two workers train a net of 5.8 million parameters on Fashion-MNIST, in processes of their own, whose limit of rate is far
beyond what they reach: so they use connections as hosts do, and no memory that they share. From the peak of each
that of a worker with a net of 13 thousand parameters is taken away: the process without vectors. The algorithm of
exchanges is given to strategies that take one, since plan and run may choose on other links, and some algorithms have a
vector more than others. One of the workers
also copies the final model; the other one, whose peak is the smaller, is compared. Printed are bytes in vectors as long
as the model, too.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FASHION = "/usr/share/datasets/fashion-mnist"
LAYER = """layer {{ name: '{name}' type: 'InnerProduct' bottom: '{below}' top: '{name}'
  inner_product_param {{ num_output: {outputs} weight_filler {{ type: 'xavier' }} }} }}
"""
JOB = """name: "memory" net {{ file: "{net}" }} batch: 8 threads: 1 workers: 2 validation: 0
train_data {{ idx {{ images: "{data}/t10k-images-idx3-ubyte.gz" labels: "{data}/t10k-labels-idx1-ubyte.gz" }}
scale: 0.00390625 }} solver {{ type: "SGD" base_lr: 0.001 lr_policy: "fixed" momentum: 0.9 }}
{collective} strategy {{ allreduce {{}} }} checkpoint {{ every_seconds: 0 }} stop {{ steps: {steps} }}
"""
COLLECTIVES = ["collective { algorithm: chunked_ring }", ""]  # most strategies have exchanges of their own
WORKERS, LIMIT_MBIT = 2, "100000"
CLUSTER = "node { count: 2 } step_seconds: 0.1 link { mbit: 1000 latency_us: 100 }\n"
# Of two workers of `gossip` one touches its second place for a model only if that arrives before the first is mixed in:
# with few sends that may take hundreds of steps.
SETTINGS = {"sync": ["strategy.sync.tau=5"], "easgd": ["strategy.easgd.tau=5"], "diloco": ["strategy.diloco.tau=5"],
            "gossip": ["strategy.gossip.p=1", "stop.steps=400"]}


def write_net(path, width):
    layers = [("a", "data", width), ("b", "a", width), ("c", "b", 10)]
    with open(path, "w", encoding="utf-8") as f:
        f.write("layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n")
        f.writelines(LAYER.format(name=name, below=below, outputs=n) for name, below, n in layers)
        f.write("layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'c' bottom: 'label' top: 'loss' }\n")


def peak_of(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            return next((1024 * int(line.split()[1]) for line in f if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def peaks(paceline, folder, job, strategy):
    """Of the run's workers, the smallest first."""
    at = f"127.0.0.1:{free_port()}"
    driver = [paceline, "driver", f"{folder}/{job}.job", "--strategy", strategy, "--listen", at, "--max-mbit", LIMIT_MBIT,
              "--out", f"{folder}/{job}-{strategy}"]
    for setting in SETTINGS.get(strategy, []):
        driver += ["--set", setting]
    worker = [paceline, "worker", "--join", at, "--threads", "1", "--max-mbit", LIMIT_MBIT]
    runs = [subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for words in (driver, worker, worker)]
    best = [0] * WORKERS
    try:
        while any(run.poll() is None for run in runs):
            for i, run in enumerate(runs[1:]):
                best[i] = max(best[i], peak_of(run.pid))
            time.sleep(0.005)
    finally:
        for run in runs:
            if run.poll() is None:
                run.kill()
    for run in runs:
        if run.returncode != 0:
            sys.exit(f"{' '.join(run.args)}: exit {run.returncode}\n{run.stderr.read().decode()}")
    return sorted(best)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only")
    args = parser.parse_args()
    if not os.path.isdir(FASHION):
        sys.exit("skipped: needs Fashion-MNIST (package dataset-fashion-mnist)")
    paceline, worst = os.path.join(os.path.abspath(args.build), "paceline"), 0
    with tempfile.TemporaryDirectory(prefix="paceline-memory-") as folder:
        with open(f"{folder}/x.cluster", "w", encoding="utf-8") as f:
            f.write(CLUSTER)
        vector = 4 * (784 * 2048 + 2048 + 2048 * 2048 + 2048 + 2048 * 10 + 10)
        print("| strategy | planned MB (vectors) | real | off |\n|---|---|---|---|", flush=True)
        done = set()
        for collective in COLLECTIVES:
            for name, width in (("wide", 2048), ("small", 16)):
                write_net(f"{folder}/{name}.prototxt", width)
                with open(f"{folder}/{name}.job", "w", encoding="utf-8") as f:
                    f.write(JOB.format(net=f"{folder}/{name}.prototxt", data=FASHION, steps=args.steps,
                                       collective=collective))
            plan = subprocess.run([paceline, "plan", f"{folder}/wide.job", "--cluster", f"{folder}/x.cluster", "--workers",
                                   "2..2", "--json"], stdout=subprocess.PIPE, check=True)
            for row in json.loads(plan.stdout)["rows"]:
                strategy, planned = row["strategy"], row["worker_memory"]
                if row["workers"] != 2 or strategy in done or (args.only and strategy not in args.only.split(",")):
                    continue
                done.add(strategy)
                real = peaks(paceline, folder, "wide", strategy)[0] - peaks(paceline, folder, "small", strategy)[0]
                off = planned / real - 1
                worst = max(worst, abs(off))
                print(f"| `{strategy}` | {planned / 1e6:.1f} ({planned / vector:.1f}) | {real / 1e6:.1f} "
                      f"({real / vector:.1f}) | {100 * off:+.1f} % |", flush=True)
    return 0 if worst <= 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
