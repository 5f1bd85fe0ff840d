#!/usr/bin/env python3
"""Our training step beside PyTorch's: the same nets, batches and threads, in turns.

    bench/vs_torch.py [--nets NAME,...] [--threads 1,2] [--rounds 5] [--steps 40]
                      [--python FILE ...] [--blas FOLDER] [--precision f32|bf16]
                      [--paceline FILE] [--library] [--within 30] [--text FILE] [--json FILE]

Each round takes `--steps` timed steps of ours (`paceline bench step`, as the command comes) and of
each PyTorch setting, a fresh process each time, so that what the machine does meanwhile meets all
alike. Settings: NCHW and channels_last (of shakespeare-lstm: records or steps first, with oneDNN's LSTM or
PyTorch's own); the allocator as it is and made to keep its memory; with
several threads, OpenMP's waiting as it is and active; for each --python (default: /usr/bin/python3)
that has torch. PyTorch runs eagerly: torch.compile is not tried. Ahead of the rounds each setting takes a
quarter of a round's steps, and those are dropped whose fastest is more than --within (30) % behind the best's.

With --library ours does without its own convolutions (PACELINE_WINOGRAD=off) and chooses among
oneDNN's, anew, in a file of choices of its own.

A step is whole on both sides: other records than the step before, forward, loss, backward, weight
decay, momentum and update. Ours also loads its records, on a thread of its own; PyTorch's lie ready.
shakespeare-lstm is the job of examples/, which reads --text. Where a step takes more than half a second, a
round has a fifth of the steps. Both sides must have as many parameters.

PyTorch gets a BLAS that is worth the comparison: Debian's takes whatever libblas.so.3 there is, and
with the reference one (libblas3) its fully connected layers run at a fiftieth of the speed. Install
libopenblas0, or name a folder that holds OpenBLAS's libblas.so.3 (--blas); a PyTorch whose matrix
product stays below a tenth of the machine's peak ends the script. Variables OPENBLAS_* of the
caller's are not passed on: OpenBLAS knows its machine.

Prints a table for a record in bench/records:
  ms        median (p10-p90) over all rounds, ours and the PyTorch setting with the lowest median
  ratio     PyTorch's median over ours, and the lowest and highest of single rounds
  memory    highest resident MB, and in brackets what that is above the process at its beginning:
            ours when the command starts, PyTorch's after the import and a step of a tiny net;
            least: the smallest of all settings that were not dropped

A round in which other processes (or the hypervisor) took more than 3 % of the machine is repeated,
as is what goes ahead; when that was necessary more often than there are rounds, the measurement is
VOID: exit 3. With --noisy nothing is repeated, and a line gives the CPU time of a step on both sides, of
which other processes take nothing.
Fetch nothing, build nothing: ./run makes build/paceline, Debian's python3-torch is one PyTorch.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NETS = {  # batch, a record
    "lenet": (64, "1x28x28"),
    "cifar10-quick": (100, "3x32x32"),
    "resnet-20": (64, "3x32x32"),
    "resnet-110": (64, "3x32x32"),
    "alexnet-small": (128, "3x32x32"),
    "vgg-a": (16, "3x224x224"),
    "googlenet": (16, "3x224x224"),
}
TEXT_NETS = ("shakespeare-lstm",)
TEXT_BATCH = 32
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
               "MALLOC_TOP_PAD_": str(64 << 20)}
OTHERS_MAX = 0.03   # of the machine
PRODUCT_MIN = 0.1   # of the machine's peak, by PyTorch's matrix product
SLOW_MS, SLOW_PART = 500, 5


class Void(Exception):
    pass


# ---- the machine ----


def busy_seconds():
    """Of all processors, stolen time included."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    return sum(u.ru_utime + u.ru_stime for u in
               map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


class Watch:
    """The use of the machine by other processes during a `with`."""

    def __enter__(self):
        self.begun, self.busy, self.own = time.monotonic(), busy_seconds(), own_seconds()
        return self

    def __exit__(self, *_):
        elapsed = (time.monotonic() - self.begun) * os.cpu_count()
        others = busy_seconds() - self.busy - (own_seconds() - self.own)
        self.others = max(0.0, others / elapsed)


# ---- the two sides ----


def call(command, env=None):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    done = subprocess.run(command, env={**inherited, **(env or {})}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


class Ours:
    name = "paceline"

    def __init__(self, a, net, threads):
        if net in TEXT_NETS:
            what = [os.path.join(HERE, "..", "examples", net + ".job"), "--set",
                    f"train_data.text.path={a.text}"]
        else:
            what = ["--net", net, "--input", NETS[net][1], "--batch", str(NETS[net][0])]
        self.command = [a.paceline, "bench", "step", *what, "--threads", str(threads),
                        "--precision", a.precision, "--json", "--each", "--steps"]
        self.env = a.library_alone

    def take(self, steps):
        taken = call(self.command + [str(steps)], self.env)
        taken["cpu_ms"] = sum(taken["census"]["busy"]) * statistics.mean(taken["ms"])
        return taken


def batch_of(net):
    return TEXT_BATCH if net in TEXT_NETS else NETS[net][0]


LAYOUTS = {  # the words of a setting, and its arguments
    "NCHW": ("--layout", "nchw"),
    "channels_last": ("--layout", "nhwc"),
    "records first, oneDNN": ("--layout", "records-first"),
    "records first": ("--layout", "records-first", "--no-onednn"),
    "steps first, oneDNN": ("--layout", "steps-first"),
    "steps first": ("--layout", "steps-first", "--no-onednn"),
}
IMAGE_LAYOUTS = 2


def layouts_of(net):
    every = list(LAYOUTS)
    return every[IMAGE_LAYOUTS:] if net in TEXT_NETS else every[:IMAGE_LAYOUTS]


class Torch:
    def __init__(self, a, net, threads, python, layout, env, name):
        self.name, self.env = name, env
        self.command = [python, os.path.join(HERE, "torch_step.py"), "--net", net, "--batch",
                        str(batch_of(net)), "--threads", str(threads), *LAYOUTS[layout],
                        "--precision", a.precision, "--steps"]

    def take(self, steps):
        return call(self.command + [str(steps)], self.env)


def torch_settings(a, net, threads):
    out = []
    for python, version in a.pythons:
        for layout in layouts_of(net):
            for memory in ({}, KEEP_MEMORY):
                for wait in (None, "active") if threads > 1 else (None,):
                    env = {"OMP_NUM_THREADS": str(threads), **a.libraries, **memory}
                    words = [version, layout]
                    words += ["memory kept"] if memory else []
                    if wait:
                        env["OMP_WAIT_POLICY"] = wait
                        words.append("active waits")
                    out.append(Torch(a, net, threads, python, layout, env, ", ".join(words)))
    return out


def with_torch(pythons):
    """Those of the interpreters that have PyTorch, with its version."""
    out = []
    for python in pythons:
        done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode == 0:
            out.append((python, done.stdout.strip()))
        else:
            print(f"{python}: no PyTorch: {done.stderr.strip().splitlines()[-1:]}",
                  file=sys.stderr)
    return out


# ---- rounds ----


def quantile(values, part):
    return sorted(values)[round((len(values) - 1) * part)]


def median(values):
    return statistics.median(values)


def summary(side, rounds):
    every = [ms for r in rounds for ms in r["ms"]]
    return {"name": side.name, "steps": len(every), "median_ms": median(every),
            "p10_ms": quantile(every, 0.1), "p90_ms": quantile(every, 0.9),
            "round_ms": [median(r["ms"]) for r in rounds],
            "peak_mb": max(r["peak_mb"] for r in rounds),
            "above_mb": max(r["peak_mb"] - r["begin_mb"] for r in rounds),
            "round_cpu_ms": [r["cpu_ms"] for r in rounds],
            "cpu_ms": median([r["cpu_ms"] for r in rounds])}


def check(net, ours, side, taken):
    if taken["parameters"] != ours["parameters"]:
        sys.exit(f"{net}: ours has {ours['parameters']} parameters, that of {side.name} "
                 f"{taken['parameters']}")
    peak = 100 * ours["gflops"] / ours["peak_percent"]
    if taken["product_gflops"] < PRODUCT_MIN * peak:
        sys.exit(f"{side.name}: a matrix product at {taken['product_gflops']:.1f} GFLOP/s, where "
                 f"this machine's peak is {peak:.0f}: its BLAS is no match; see --blas")


class Patience:
    """How often a piece of the measurement may be disturbed, and is then done again."""

    def __init__(self, a, what):
        self.noisy, self.left, self.what, self.repeated = a.noisy, a.rounds, what, 0

    def disturbed(self, watch):
        if self.noisy or watch.others <= OTHERS_MAX:
            return False
        self.repeated += 1
        if self.repeated > self.left:
            raise Void(f"{self.what}: other processes took {watch.others:.1%} of the machine; more "
                       f"than {OTHERS_MAX:.0%} in {self.repeated} pieces of the measurement")
        return True


def scout(a, net, first, settings, steps, patience):
    """The settings that may be the best, by their fastest step; and the times of the others."""
    ms = {}
    for side in settings:
        while True:
            with Watch() as watch:
                taken = side.take(steps)
            check(net, first, side, taken)
            if not patience.disturbed(watch):
                break
        ms[side] = taken["cpu_ms"] if a.noisy else min(taken["ms"])
    most = (1 + a.within / 100) * min(ms.values())
    return ([s for s in settings if ms[s] <= most],
            {s.name: ms[s] for s in settings if ms[s] > most})


def measure(a, net, threads):
    ours = Ours(a, net, threads)
    first = ours.take(2)
    slow = median(first["ms"]) > SLOW_MS
    steps = max(2, a.steps // SLOW_PART) if slow else a.steps
    patience = Patience(a, f"{net}, {threads} threads")
    settings, dropped = scout(a, net, first, torch_settings(a, net, threads), max(3, steps // 4),
                              patience)
    sides, rounds = [ours, *settings], 0
    results = {side: [] for side in sides}
    while rounds < a.rounds:
        with Watch() as watch:
            taken = {side: side.take(steps) for side in sides}
        told = ", ".join(f"{s.name} {median(t['ms']):.2f}" for s, t in taken.items())
        print(f"{net}, {threads} threads, round {rounds + 1}: others {watch.others:.1%}; {told}",
              file=sys.stderr)
        if patience.disturbed(watch):
            continue
        rounds += 1
        for side in sides:
            results[side].append(taken[side])
    last = results[ours][-1]
    mine = summary(ours, results[ours])
    theirs = [summary(s, r) for s, r in results.items() if s is not ours]
    best = min(theirs, key=lambda t: t["median_ms"])
    ratios = [t / m for t, m in zip(best["round_ms"], mine["round_ms"])]
    return {"net": net, "threads": threads, "batch": batch_of(net), "precision": a.precision,
            "parameters": first["parameters"], "steps": mine["steps"], "slow": slow,
            "repeated": patience.repeated, "ours": mine, "torch": theirs, "dropped": dropped, "best": best,
            "ratio": best["median_ms"] / mine["median_ms"], "ratios": ratios,
            "isa": last["isa"], "kernels": last["kernels"], "reorders": last["reorders"],
            "gflops": last["gflops"], "peak_percent": last["peak_percent"],
            "census": last["census"], "first_step_s": last["first_step_s"]}


# ---- the table ----

HEAD = """\
| net | threads | steps | ours, ms | PyTorch's best, ms | ratio | % of peak | memory, ours | best's | least | setting |
|---|---|---|---|---|---|---|---|---|---|---|"""


def times(s):
    return f"{s['median_ms']:.2f} ({s['p10_ms']:.2f}–{s['p90_ms']:.2f})"


def memory(s):
    return f"{s['peak_mb']:.0f} ({s['above_mb']:.0f})"


def row(m):
    least = min((t["peak_mb"], t["above_mb"]) for t in m["torch"])
    return (f"| {m['net']} b{m['batch']} {m['precision']} | {m['threads']} | {m['steps']} | "
            f"{times(m['ours'])} | {times(m['best'])} | {m['ratio']:.2f} "
            f"({min(m['ratios']):.2f}–{max(m['ratios']):.2f}) | {m['peak_percent']:.0f} | "
            f"{memory(m['ours'])} | {memory(m['best'])} | {least[0]:.0f} ({least[1]:.0f}) | "
            f"{m['best']['name']} |")


def cpu_line(m):
    best = min(m["torch"], key=lambda t: t["cpu_ms"])
    ratios = [t / o for t, o in zip(best["round_cpu_ms"], m["ours"]["round_cpu_ms"])]
    return (f"{m['net']}, {m['threads']} threads: CPU time of a step, ms: ours {m['ours']['cpu_ms']:.1f}, "
            f"PyTorch's best {best['cpu_ms']:.1f} ({best['name']}): ratio "
            f"{best['cpu_ms'] / m['ours']['cpu_ms']:.2f} ({min(ratios):.2f}–{max(ratios):.2f})")


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nets", default=",".join(NETS))
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=40, help="of a round")
    p.add_argument("--python", nargs="+", default=["/usr/bin/python3"])
    p.add_argument("--blas", metavar="FOLDER", help="of a libblas.so.3 for PyTorch")
    p.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    p.add_argument("--paceline", default=os.path.join(HERE, "..", "build", "paceline"))
    p.add_argument("--noisy", action="store_true", help="continue, whatever else the machine does")
    p.add_argument("--library", action="store_true", help="ours without own convolutions")
    p.add_argument("--within", type=float, default=30, metavar="PERCENT",
                   help="of the best, ahead of the rounds: other settings are dropped")
    p.add_argument("--text", default="data/tinyshakespeare.txt", help="of shakespeare-lstm")
    p.add_argument("--json", metavar="FILE", help="everything, for who counts again")
    a = p.parse_args()
    unknown = [n for n in a.nets.split(",") if n not in NETS and n not in TEXT_NETS]
    if unknown:
        sys.exit(f"--nets: expected some of {', '.join((*NETS, *TEXT_NETS))}, not {', '.join(unknown)}")
    a.libraries = {"LD_LIBRARY_PATH": a.blas} if a.blas else {}
    a.pythons = with_torch(a.python)
    if not a.pythons:
        sys.exit("no interpreter with PyTorch: see --python")
    choices = tempfile.TemporaryDirectory()
    a.library_alone = {"PACELINE_WINOGRAD": "off",
                       "PACELINE_TUNER": os.path.join(choices.name, "kernels.txt")} if a.library else {}
    measured, void = [], None
    try:
        print(HEAD, flush=True)
        for net in a.nets.split(","):
            for threads in map(int, a.threads.split(",")):
                measured.append(measure(a, net, threads))
                print(row(measured[-1]), flush=True)
                if a.noisy:
                    print(cpu_line(measured[-1]), flush=True)
    except Void as why:
        void = str(why)
        print(f"VOID: {void}")
    if a.noisy:
        print("\nMeasured with --noisy: not for a record.")
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"measured": measured, "void": void, "noisy": a.noisy}, f, indent=1)
    sys.exit(3 if void else 0)


main()
