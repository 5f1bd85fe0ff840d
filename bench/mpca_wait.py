#!/usr/bin/env python3
"""The cost of MPCA's exchanges during training for eight workers, by their links.

w is the time in which one whole model crosses one link, in steps: 0.66, 2.46 and 9.23 are ResNet-110,
ResNet-152 and VGG-A on gigabit Ethernet (MPCA, Table 1). Simulated with one core a node, on which
copies, sums and seals cost what `paceline bench wire` and `openssl speed` say a core does; figures
are read from the run's trace. No checkpoints, which with `symmetric` leave by a worker's link.

    bench/mpca_wait.py [--paceline FILE] [--gigabit CORES] [--quick]

utilisation  seconds of steps as the cluster file has them, over those from a worker's first to its
             last, the worst of all workers
cycle        from one exchange of a shard to the next, in steps, and over its bound: the time in which
             the busiest link can carry what it must, and a step at least
bytes        sent and received by the busiest node a cycle, over what the best schedule has it carry
"""
import argparse
import collections
import json
import os
import statistics
import subprocess
import tempfile

WORKERS, STEP, FLOATS = 8, 0.2, 784 * 480 + 480 + 480 * 160 + 160 + 160 * 10 + 10
COSTS = {"copy": 18.5, "reduce": 18.8, "crypto": 5.4}  # GB/s of a core: bench wire, openssl speed
SETTINGS = [("driver", 1), ("driver", 2), ("driver", 3), ("symmetric", 1), ("symmetric", 3)]


def simulate(paceline, folder, cluster, settings, steps):
    path = os.path.join(folder, "a.cluster")
    trace = os.path.join(folder, "trace.json")
    with open(path, "w") as f:
        f.write(cluster)
    command = [paceline, "sim", "examples/fashion-fc.job", "--cluster", path, "--json", "--workers",
               str(WORKERS), "--trace", trace, "--out", os.path.join(folder, "run"), "--set",
               "strategy.mpca={}", "--set", "batch=4", "--set", "validation=0", "--set",
               f"stop.steps={steps}", "--set", "stop.epochs=1000", "--set",
               "checkpoint.every_seconds=0", "--threads", "1", "--kernels", "dnnl"]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(trace) as f:
        events = json.load(f)
    os.remove(trace)
    subprocess.run(["rm", "-rf", os.path.join(folder, "run")], check=True)
    return events


def measure(events, shards, step):
    compute, begun, sent, names = (collections.defaultdict(list), collections.defaultdict(list),
                                   collections.Counter(), {})
    for e in events:
        if e["ph"] == "M" and e["name"] == "process_name":
            names[e["pid"]] = e["args"]["name"]
    received = collections.Counter()
    pids = {name: pid for pid, name in names.items()}
    for e in events:
        if e["ph"] != "X":
            continue
        if e["name"] == "compute":
            compute[e["pid"]].append((e["ts"], e["ts"] + e["dur"]))
        elif e["name"] == "exchange" and "worker" in names[e["pid"]]:
            begun[e["pid"], e["tid"]].append(e["ts"])
    first = min(t for spans in begun.values() for t in spans)
    last = min(max(spans) for spans in begun.values())
    settled = first + (last - first) / 3  # by then the pace is known
    for e in events:
        if e["ph"] == "X" and e["name"] == "send" and settled <= e["ts"] < last:
            sent[e["pid"]] += e["args"]["bytes"]
            received[pids.get(e["args"]["peer"])] += e["args"]["bytes"]
    use = []
    for spans in compute.values():
        whole = [s for s in spans if s[1] <= last]
        use.append(len(whole) * step * 1e6 / (whole[-1][1] - whole[0][0]))
    cycles = []
    for times in begun.values():
        times = [t for t in sorted(times) if t >= settled]
        cycles.append((times[-1] - times[0]) / (len(times) - 1) / 1e6)
    cycle = statistics.mean(cycles)
    busiest = max(max(sent[p], received[p]) for p in names) / ((last - settled) / 1e6 / cycle)
    return min(use), cycle / step, busiest


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--paceline", default="build/paceline")
    args.add_argument("--gigabit", type=int, metavar="CORES",
                      help="links of 1000 Mbit/s, and steps to match, on nodes of so many cores")
    args.add_argument("--double", choices=COSTS, help="let this cost twice as much")
    args.add_argument("--quick", action="store_true", help="the middle w alone")
    args = args.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    costs = dict(COSTS)
    if args.double:
        costs[args.double] /= 2
    cores = args.gigabit or 1
    k = WORKERS
    print("coordination phases     w  utilisation  cycle/steps  /bound  bytes/bound")
    with tempfile.TemporaryDirectory() as folder:
        for w in [2.46] if args.quick else [0.66, 2.46, 9.23]:
            step = FLOATS * 4 / 125e6 / w if args.gigabit else STEP
            mbit = FLOATS * 32 / (w * step) / 1e6
            for coordination, phases in SETTINGS:
                each = 2 * k / (k + 1) if coordination == "driver" else 2 * (k - 1) / k
                cluster = (
                    f"node {{ count: {k} cores: 1 }} driver {{ cores: 1 }}\n"
                    f"step_seconds: {step:.9f}\nlink {{ mbit: {mbit:.6f} latency_us: 100 }}\n"
                    "costs { " + " ".join(f"{name}_gb_s: {cores * gb_s}"
                                          for name, gb_s in costs.items()) + " }\n")
                cycles = 24
                steps = round(cycles * max(1.0, each * w))
                events = simulate(args.paceline, folder, cluster,
                                  [f"strategy.mpca.phases={phases}",
                                   f"strategy.mpca.coordination={coordination}"], steps)
                use, cycle, busiest = measure(events, phases, step)
                bound = max(1.0, each * w)
                print(f"{coordination:12} {phases:6} {w:5.2f} {100 * use:10.2f} % {cycle:12.2f} "
                      f"{cycle / bound:7.3f} {busiest / (each * FLOATS * 4):12.3f}", flush=True)


if __name__ == "__main__":
    main()
