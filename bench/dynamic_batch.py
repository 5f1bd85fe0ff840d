#!/usr/bin/env python3
"""Elastic, Table 6.7, on fc-480-160 and Fashion-MNIST: batches that grow against batches that do not, for real.

  bench/dynamic_batch.py [--build DIR] [--seeds 3] [--epochs 50] [--batches 512,2048,4096] [--ledger FILE]

Of each effective batch B_eff: a static batch of B_eff, with and without LARS; the batch that grows from 32 by P = 2
to the B_max of Table 6.6, with and without LARS; and the static batch B_h that takes as many updates as the one that
grows, likewise. Rates and warm-up are those of Table 6.5, momentum is 0.9; B_h has the rate of the growing batch.
Printed is the best accuracy on 5,000 held-out records in the course of a run, mean and range over the seeds, beside
the thesis' figures, which are of AlexNet on 50 classes of ImageNet. The ledger keeps the runs that are done.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FASHION = "/usr/share/datasets/fashion-mnist"
FIRST, POWER, RECORDS, WARMUP = 32, 2, 55_000, 2.5
RATE, RATES, LARS_RATES = 0.01, {512: 0.02, 2048: 0.02, 4096: 0.04}, {512: 2, 2048: 8, 4096: 10}  # Table 6.5
LAST, EQUAL = {512: 1472, 2048: 6080, 4096: 12224}, {512: 151, 2048: 294, 4096: 411}  # Table 6.6; B_h
THESIS = {512: (56.7, 55.7, 60.6), 2048: (48.9, 55.0, 59.6), 4096: (42.6, 50.5, 57.5)}  # static, LARS, dynamic
JOB = """name: "batch" net {{ zoo: "fc-480-160" }} threads: 1 workers: 1 seed: {seed} validation: 5000
train_data {{ idx {{ images: "{data}/train-images-idx3-ubyte.gz" labels: "{data}/train-labels-idx1-ubyte.gz" }}
scale: 0.00390625 }} solver {{ type: "{rule}" base_lr: {rate} lr_policy: "fixed" momentum: 0.9 clock: epochs
warmup: {warmup} warmup_lr: {from_rate} }} strategy {{ allreduce {{}} }} {batch} checkpoint {{ every_seconds: 0 }} stop {{ epochs: {epochs} }}
"""


def variants(effective):
    grows = f"batch_growth {{ first: {FIRST} last: {LAST[effective]} power: {POWER} }}"
    lars = LARS_RATES[effective]
    yield "static", "SGD", RATES[effective], f"global_batch: {effective}"
    yield "static, LARS", "LARS", lars, f"global_batch: {effective}"
    yield "dynamic", "SGD", RATE, grows
    yield "dynamic, LARS", "LARS", lars, grows
    yield f"B_h = {EQUAL[effective]}", "SGD", RATE, f"global_batch: {EQUAL[effective]}"
    yield f"B_h = {EQUAL[effective]}, LARS", "LARS", lars, f"global_batch: {EQUAL[effective]}"


def accuracy_of(paceline, text):
    """The best on the held-out records, in percent, and the number of updates."""
    with tempfile.TemporaryDirectory(prefix="paceline-batch-") as folder:
        path = os.path.join(folder, "x.job")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        done = subprocess.run([paceline, "train", path, "--out", f"{folder}/run", "--json"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        with open(f"{folder}/run/events.jsonl", encoding="utf-8") as f:
            events = [json.loads(line) for line in f]
    end = json.loads(done.stdout) if done.stdout else {}
    diverged = end.get("reason") == "diverged" or b"the model diverged" in done.stderr
    if done.returncode != 0 and not diverged:
        sys.exit(f"exit {done.returncode}: {done.stderr.decode()}")
    evals = [e for e in events if e["kind"] == "eval" and e["set"] == "validation"]
    return 100 * (1 - min((e["error"] for e in evals), default=1)), max((e["step"] for e in evals), default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--batches", default="512,2048,4096")
    parser.add_argument("--ledger")
    args = parser.parse_args()
    if not os.path.isdir(FASHION):
        sys.exit("skipped: needs Fashion-MNIST (package dataset-fashion-mnist)")
    paceline, ledger = os.path.join(os.path.abspath(args.build), "paceline"), {}
    if args.ledger and os.path.exists(args.ledger):
        with open(args.ledger, encoding="utf-8") as f:
            ledger = {text: tuple(result) for text, result in map(json.loads, f)}
    print("| B_eff | run | rate | updates | best accuracy, % | in the thesis |\n|---|---|---|---|---|---|", flush=True)
    for effective in map(int, args.batches.split(",")):
        for number, (name, rule, rate, batch) in enumerate(variants(effective)):
            results = []
            for seed in range(1, args.seeds + 1):
                text = JOB.format(seed=seed, data=FASHION, rule=rule, rate=rate, batch=batch, epochs=args.epochs,
                                  warmup=WARMUP if rate != RATE else 0, from_rate=RATE if rate != RATE else 0)
                if text not in ledger:
                    ledger[text] = accuracy_of(paceline, text)
                    if args.ledger:
                        with open(args.ledger, "a", encoding="utf-8") as f:
                            f.write(json.dumps([text, ledger[text]]) + "\n")
                results.append(ledger[text])
            best = [r[0] for r in results]
            print(f"| {effective} | {name} | {rate} | {results[0][1]:.0f} | {statistics.mean(best):.2f} ({min(best):.2f} to "
                  f"{max(best):.2f}) | {THESIS[effective][number] if number < 3 else '–'} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
