#!/usr/bin/env python3
"""Training on a machine that other processes use: are the default settings near the best ones?

One busy process for each processor runs beside LeNet, batch 64, on Fashion-MNIST. `paceline train`
with one worker runs with its default settings, and with each fixed choice of threads and of how
OpenMP's threads wait, in turns. The speed is that of the whole training, from its first step to its
last, in samples/s. With --late the busy processes begin some seconds after training has.

    bench/busy.py [--build DIR] [--rounds 3] [--seconds 15] [--late] [--quiet]

--quiet starts no busy process. Prints a line a setting, and the ratio of the default to the best.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LATE = 4.0  # seconds


def settings_of(cores):
    """Name: options, environment. A fixed setting keeps its number of threads: --deterministic."""
    fixed = ["--deterministic"]
    found = {"default": ([], {})}
    for threads in sorted({1, cores}):
        for waits in ("active", "passive") if threads > 1 else ("passive",):
            found[f"{threads} threads, {waits}"] = (
                ["--threads", str(threads), *fixed], {"OMP_WAIT_POLICY": waits})
    return found


def start_busy(count):
    loop = "import os\nwhile os.getppid() == %d: sum(range(100000))" % os.getpid()
    return [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]


def stop(processes):
    for p in processes:
        p.kill()
        p.wait()


def train(args, options, env, folder):
    """Samples/s of a training of this many seconds, and its log lines about threads."""
    command = [os.path.join(args.build, "paceline"), "train",
               os.path.join(ROOT, "examples", "fashion-lenet.job"), "--workers", "1", "--json",
               "--unset", "stop.epochs", "--set", f"stop.seconds={args.seconds}",
               "--set", "validation=0",
               "--unset", "test_data", "--out", os.path.join(folder, "run"), *options]
    subprocess.run(["rm", "-rf", os.path.join(folder, "run")], check=True)
    busy = [] if args.late or args.quiet else start_busy(args.cores)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    p = subprocess.Popen(command, env={**environment, **env}, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    if args.late and not args.quiet:
        time.sleep(LATE)
        busy = start_busy(args.cores)
    try:
        out, err = p.communicate(timeout=args.seconds + 120)
    finally:
        p.send_signal(signal.SIGKILL) if p.poll() is None else None
        stop(busy)
    if p.returncode != 0:
        sys.exit(f"{' '.join(command)}: {p.returncode}\n{err}")
    said = [line for line in err.splitlines() if "threads compute now" in line]
    return json.loads(out)["samples_per_s"], said


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()
    args.cores = len(os.sched_getaffinity(0))
    speeds = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PACELINE_TUNER"] = os.path.join(folder, "kernels.txt")
        for _ in range(args.rounds):
            for name, (options, env) in settings_of(args.cores).items():
                speed, said = train(args, options, env, folder)
                speeds.setdefault(name, []).append(speed)
                print(f"{name}: {speed:.0f} samples/s", *said, sep="\n    ", flush=True)
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    best = max((name for name in medians if name != "default"), key=medians.get)
    for name, speed in medians.items():
        print(f"{name:24} {speed:8.0f} samples/s   {speed / medians[best]:.2f} of the best")
    print(f"default / best ({best}): {medians['default'] / medians[best]:.2f}")


if __name__ == "__main__":
    main()
