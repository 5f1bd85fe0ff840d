#!/usr/bin/env python3
"""Four paced workers against PyTorch DDP with gloo and post-local SGD, on the same four hosts: network
namespaces of this machine on shaped links. Needs root. Both train the same nets on Fashion-MNIST with
64 records a worker and step, SGD with momentum 0.9 and the same rates.

    bench/vs_ddp.py [--build DIR] [--rates 1gbit,100mbit] [--nets lenet,fc] [--step-s 0.06]
                    [--python PYTHON] [--steps 100] [--target 0.12] [--only NAME,...] [--limit 240]

First the rate: samples/s of some steps. Then the time to the target's test error, of which evaluation
is no part: PyTorch's clock stands meanwhile, and here the driver evaluates on its own host. `fc` is
784-1600-800-10, 10 MB. A step lasts --step-s at least, in both; 0: as long as it takes here, where four
workers share the cores. Each rival of PyTorch tries the job's rate, and twice and four times that, as
its batch is four times as large; only the best counts. Paceline's own strategies have the job's rate.
"""
import argparse
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "faults"))
from hosts import Hosts, why_not  # noqa: E402
from paced_workers import ROOT, PacedWorkers  # noqa: E402

WORKERS, PORT = 4, 29600
RATE = {"lenet": 0.02, "fc": 0.02}
FC = """layer { name: 'data' type: 'Data' top: 'data' top: 'label' }
layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'a' inner_product_param { num_output: 1600 weight_filler { type: 'xavier' } } }
layer { name: 'ra' type: 'ReLU' bottom: 'a' top: 'a' }
layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' inner_product_param { num_output: 800 weight_filler { type: 'xavier' } } }
layer { name: 'rb' type: 'ReLU' bottom: 'b' top: 'b' }
layer { name: 'c' type: 'InnerProduct' bottom: 'b' top: 'c' inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'c' bottom: 'label' top: 'loss' }
"""
OURS = {"pace": [], "mpca": [], "sync 10": ["strategy.sync.tau=10"], "allreduce": []}
THEIRS = {"ddp": "ddp", "ddp fp16": "fp16", "ddp bf16": "bf16", "post-local 10": "local"}


class Race(PacedWorkers):
    def __init__(self, args, hosts, folder):
        super().__init__(hosts, WORKERS, folder, args.build, args.limit + 300)
        self.args, self.port = args, PORT
        with open(os.path.join(folder, "fc.prototxt"), "w") as f:
            f.write(FC)

    def ours(self, name, net, steps, target):
        out = os.path.join(self.folder, f"run{self.port}")
        self.port += 1
        source = "zoo:'lenet'" if net == "lenet" else f"file:'{self.folder}/fc.prototxt'"
        fields = [f"net={{{source}}}", "solver.type=SGD", "solver.momentum=0.9", "solver.weight_decay=0.0005",
                  "solver.lr_policy=fixed", f"solver.base_lr={RATE[net]}", "batch=64", f"workers={WORKERS}", "threads=1",
                  f"pace={self.args.step_s}", "validation=0", "checkpoint.every_seconds=0", *OURS[name]]
        fields += [f"stop.steps={steps}", "evaluate.every_exchanges=1000000000"] if steps else \
            [f"stop.test_error={target}", f"stop.seconds={self.args.limit}",
             f"evaluate.every_steps={round(2 / max(self.args.step_s, 0.02))}"]
        words = [word for field in fields for word in ("--set", field)]
        self.together("driver", os.path.join(ROOT, "examples", "fashion-lenet.job"), "--strategy", name.split()[0],
                      *words, "--unset", "stop.epochs", "--out", out)
        with open(os.path.join(out, "events.jsonl")) as f:
            events = [json.loads(line) for line in f]
        begun = max(e["t"] for e in events if e["kind"] == "member" and e["what"] == "join")
        curve = [(e["t"] - begun, e["error"]) for e in events if e["kind"] == "eval" and e.get("error") is not None]
        losses = [e for e in events if e["kind"] == "loss"]
        first, last = losses[0], losses[-1]
        samples = (last["step"] - first["step"]) * 64 * WORKERS / max(1e-9, last["t"] - first["t"])
        return samples, next((t for t, error in curve if error <= target), None)

    def theirs(self, name, net, rate, steps, target):
        self.port += 1
        command = [self.args.python, os.path.join(HERE, "ddp_worker.py"), "--world", str(WORKERS),
                   "--master", f"{self.hosts.address(0)}:{self.port}", "--net", net, "--mode", THEIRS[name],
                   "--rate", str(rate), "--step-s", str(self.args.step_s), "--steps", str(steps or 100_000)]
        if not steps:
            step_s = max(self.args.step_s, 64 * WORKERS / self.speed[name])
            command += ["--target", str(target), "--every", str(max(1, round(2 / step_s)))]
            command[command.index("100000")] = str(max(20, round(self.args.limit / step_s)))
        ranks = [[*command, "--rank", str(rank)] for rank in range(WORKERS)]
        result = json.loads(self.finish(ranks[0], ranks[1:]))
        return result["samples_s"], next((t for t, error in result["curve"] if error <= target), None)

    def cell(self, rate, net):
        args, self.speed = self.args, {}
        print(f"\n{net}, {rate}, steps of {1e3 * args.step_s:.0f} ms\n\n"
              f"| | samples/s | s to {100 * args.target:.0f} % | rate |\n|---|---|---|---|", flush=True)
        for name in (n for n in (*OURS, *THEIRS) if not args.only or n in args.only):
            if name in OURS:
                samples, _ = self.ours(name, net, args.steps, 0)
            else:
                samples, _ = self.theirs(name, net, RATE[net], max(20, args.steps // 3) + (60 if THEIRS[name] == "local" else 0), 0)
                self.speed[name] = samples
            seconds, best = self.fastest(name, net) if args.limit else (None, RATE[net])
            print(f"| {name} | {samples:.0f} | {f'{seconds:.1f}' if seconds else '–'} | {best:g} |", flush=True)

    def fastest(self, name, net):
        """Its time to the target, and with which rate."""
        times = []
        for rate in [RATE[net]] if name in OURS else [factor * RATE[net] for factor in (1, 2, 4)]:
            seconds = (self.ours(name, net, 0, self.args.target) if name in OURS else
                       self.theirs(name, net, rate, 0, self.args.target))[1]
            print(f"{name}, rate {rate:g}: {seconds} s", file=sys.stderr, flush=True)
            times.append((seconds or float("inf"), rate))
        seconds, rate = min(times)
        return (seconds if seconds < float("inf") else None), rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--rates", default="1gbit,100mbit")
    parser.add_argument("--nets", default="lenet,fc")
    parser.add_argument("--only", type=lambda s: s.split(","), default=[])
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has PyTorch")
    parser.add_argument("--step-s", type=float, default=0.06)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--target", type=float, default=0.12)
    parser.add_argument("--limit", type=float, default=240, help="seconds of a run; 0: samples/s alone")
    args = parser.parse_args()
    reason = why_not()
    if reason:
        sys.exit(f"skipped: {reason}")
    for name in "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE":
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="paceline-ddp-") as folder, Hosts(WORKERS + 1) as hosts:
        race = Race(args, hosts, folder)
        for rate in args.rates.split(","):
            hosts.shape(rate)
            for net in args.nets.split(","):
                race.cell(rate, net)
    return 0


if __name__ == "__main__":
    sys.exit(main())
