#!/usr/bin/env python3
"""The cost of TLS: all-reduces over sealed connections and over plain ones, in turns. Needs root.

    bench/tls_cost.py [--build DIR] [--rounds N] [--hosts N] [--floats F] [--reps R]

1gbit      hosts are network namespaces with links of 1 Gbit/s (bench/netns.sh): the bar is +1.5 %
unshaped   the same without a limit: both ends of each connection share this machine's cores

A round is one run with `--insecure` and one without, in an order that alternates. It prints the
median of the rounds' times, the ratio with its smallest and largest value, and the share of a core
that rank 0 uses. For a quiet machine."""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = (("plain", ["--insecure"]), ("tls", []))
LIMIT_S = 600


def measure(args, shape, more):
    """What `paceline bench allreduce` prints of one run."""
    done = subprocess.run(
        [os.path.join(HERE, "netns.sh"), *shape, str(args.hosts),
         os.path.join(os.path.abspath(args.build), "paceline"), "bench", "allreduce", "--floats", args.floats,
         "--reps", str(args.reps), "--json", *more],
        check=False, timeout=LIMIT_S, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(args, name, shape):
    seconds, cpu = {"plain": [], "tls": []}, {"plain": [], "tls": []}
    for i in range(args.rounds):
        for kind, more in KINDS if i % 2 == 0 else reversed(KINDS):
            result = measure(args, shape, more)
            seconds[kind].append(result["median_ms"])
            cpu[kind].append(result["cpu_percent"])
    ratios = [t / p for t, p in zip(seconds["tls"], seconds["plain"])]
    plain, tls = (statistics.median(seconds[kind]) for kind in ("plain", "tls"))
    print(f"{name}: plain {plain:.1f} ms, tls {tls:.1f} ms: "
          f"{100 * (statistics.median(ratios) - 1):+.1f} % "
          f"({100 * (min(ratios) - 1):+.1f} to {100 * (max(ratios) - 1):+.1f}); rank 0 uses "
          f"{statistics.median(cpu['plain']):.1f} % and {statistics.median(cpu['tls']):.1f} % of a core", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--floats", default="1e7")
    parser.add_argument("--reps", type=int, default=10)
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("network namespaces need root; run it with sudo")
    compare(args, "1gbit", [])
    compare(args, "unshaped", ["--unshaped"])


if __name__ == "__main__":
    main()
