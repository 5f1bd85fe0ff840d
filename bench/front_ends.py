#!/usr/bin/env python3
"""The cost of ways to start and watch a run, against the plain command, in turns: LeNet on Fashion-MNIST.

    bench/front_ends.py python|page [--build DIR] [--rounds N] [--epochs E] [--workers W]
                                [--python PYTHON]

python   paceline.train from Python, on the same files: the bar is 1 % of the samples a second
page     --page, with a reader of its events, as a browser is one: the bar is 0.5 %

A round is one run of each, in an order that alternates. The rate of a run is `samples_per_s` of its
`end` event, which begins with the first step. It prints the medians, the median of the rounds' ratios
with the smallest and largest one, the seconds of the whole processes, and the load of the machine. For a
quiet machine."""
import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
JOB = os.path.join(ROOT, "examples", "fashion-lenet.job")
LIMIT_S, BARS = 900, {"python": 1.0, "page": 0.5}
PROGRAM = """import sys, paceline
if __name__ == "__main__":
    paceline.train(sys.argv[1], workers=int(sys.argv[2]), threads=1, epochs=float(sys.argv[3]),
                   strategy="allreduce", out=sys.argv[4])
"""


def follow(process):
    """Reads the page's events to their end."""
    for line in process.stderr:
        found = re.match(r"page +http://([^:]+):(\d+)/", line)
        if found:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            break
    else:
        sys.exit("front_ends: the command gives no page")
    connection = http.client.HTTPConnection(found.group(1), int(found.group(2)), timeout=LIMIT_S)
    connection.request("GET", "/events")
    try:
        for _ in connection.getresponse():
            pass
    except (OSError, http.client.HTTPException):
        pass  # the command has ended


def measure(args, kind, folder):
    """(samples a second, seconds of the process) of one run."""
    out = os.path.join(folder, "run-%d" % len(os.listdir(folder)))
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    command = [os.path.join(args.build, "paceline"), "train", JOB, "--workers", str(args.workers), "--set", "threads=1",
               "--strategy", "allreduce", "--epochs", str(args.epochs), "--out", out]
    if kind == "python":
        program = os.path.join(folder, "program.py")
        with open(program, "w", encoding="ascii") as file:
            file.write(PROGRAM)
        environment.update(PYTHONPATH=os.path.join(ROOT, "python"),
                           PACELINE_LIBRARY=os.path.join(args.build, "libpaceline.so.1"))
        command = [args.python, program, JOB, str(args.workers), str(args.epochs), out]
    if kind == "page":
        command += ["--page", "0"]
    begun = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, text=True,
                               stderr=subprocess.PIPE if kind == "page" else subprocess.DEVNULL)
    if kind == "page":
        follow(process)
    if process.wait(timeout=LIMIT_S) != 0:
        sys.exit("front_ends: %s ended with %d" % (" ".join(command), process.returncode))
    seconds = time.monotonic() - begun
    with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as file:
        end = json.loads(file.read().strip().splitlines()[-1])
    return end["samples_per_s"], seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(BARS))
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--python", default=sys.executable, help="one with NumPy")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    rates, seconds = {"command": [], args.kind: []}, {"command": [], args.kind: []}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(args.rounds):
            for kind in ("command", args.kind) if i % 2 == 0 else (args.kind, "command"):
                rate, whole = measure(args, kind, folder)
                rates[kind].append(rate)
                seconds[kind].append(whole)
    slower = [100 * (command / other - 1) for command, other in zip(rates["command"], rates[args.kind])]
    for kind, list_of in rates.items():
        print("%-8s %.0f samples/s (%.0f to %.0f), %.2f s in all" % (
            kind, statistics.median(list_of), min(list_of), max(list_of), statistics.median(seconds[kind])))
    print("%s: %+.2f %% slower (%+.2f to %+.2f), bar %.1f %%; load %.1f" % (
        args.kind, statistics.median(slower), min(slower), max(slower), BARS[args.kind], os.getloadavg()[0]))


if __name__ == "__main__":
    main()
