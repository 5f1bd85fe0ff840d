#!/usr/bin/env python3
"""Memory of data that does not fit: a worker's within memory_budget, and that of a billion records.

    bench/data_memory.py SHARDS [--budget 900MB] [--seconds 25] [--records 1000000000] [--paceline FILE]

budget    a run of one worker on SHARDS (as in shards:SHARDS; bench/shards_scale.py makes 18 GB of them) with
          that memory_budget; the net is small, so the budget is filled by kept records. Printed is the highest
          resident memory of the worker's process, over the budget
billion   `paceline bench data` on a shard of so many records of one byte, which this script writes: highest
          resident memory, seconds until it is open and until the first batch of 256
Needs a Python with xxhash.
"""
import argparse
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time

import xxhash

HERE = os.path.dirname(os.path.abspath(__file__))
BLOCK = 16384
NET = """name: 'means'
layer { name: 'data' type: 'Data' top: 'data' top: 'label' }
layer { name: 'pool' type: 'Pooling' bottom: 'data' top: 'pool' pooling_param { pool: AVE global_pooling: true } }
layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'
  inner_product_param { num_output: 1000 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
"""
JOB = """name: 'budget' net {{ file: 'net.prototxt' }}
train_data {{ shards {{ shards: '{shards}' }} resize: 256 crop: 224 mirror: true scale: 0.01 }}
batch: 64 solver {{ base_lr: 0.001 lr_policy: 'fixed' }} stop {{ seconds: {seconds} }} memory_budget: '{budget}'
"""
UNITS = {"": 1, "MB": 1e6, "GB": 1e9, "MiB": 2**20, "GiB": 2**30}


def highest(pid, field):
    """Bytes of the process's memory by that line of its status; 0: it is not there."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return int(re.search(field + r":\s+(\d+) kB", f.read())[1]) * 1024
    except (OSError, TypeError):
        return 0


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return f.read().split()
    except OSError:
        return []


def measure_budget(args, folder):
    for name, text in (("net.prototxt", NET), ("budget.job", JOB.format(**vars(args)))):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
    run = subprocess.Popen([args.paceline, "train", "budget.job", "--workers", "1", "--out", "run", "--json"], cwd=folder,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    most = 0
    while run.poll() is None:
        most = max([most] + [highest(p, "VmHWM") for p in children(run.pid)])
        time.sleep(0.1)
    if run.returncode:
        sys.exit(f"paceline train ended with {run.returncode}")
    number, unit = re.fullmatch(r"([\d.]+)(\w*)", args.budget).groups()
    print(f"budget    {args.budget}: at most {most / 1e6:.1f} MB, {most / float(number) / UNITS[unit]:.3f} of it; "
          f"{json.loads(run.stdout.read())['used']} records; bar: 1.05", flush=True)


def write_billion(path, count):
    """Little variety: the bytes of a mebibyte, from another place for each block."""
    pool, hashes, written, number = random.Random(1).randbytes(1 << 20), bytearray(), 0, 0
    with open(path, "wb") as f:
        f.write(b"PLSHARD\0" + struct.pack("<II", 1, 0))
        while written < count:
            at = number * 7919 % (len(pool) - BLOCK)
            block = pool[at:at + min(BLOCK, count - written)]
            hashes += struct.pack("<Q", xxhash.xxh3_64_intdigest(block))
            written += f.write(block)
            number += 1
        f.write(hashes)
        footer = struct.pack("<10I6Q", 1, 0, 0, BLOCK, 1, 1, 1, 0, 0, 0, count, number, count, len(hashes),
                             xxhash.xxh3_64_intdigest(bytes(hashes)), 1)
        f.write(footer + struct.pack("<Q", xxhash.xxh3_64_intdigest(footer)))


def measure_billion(args, folder):
    path = os.path.join(folder, "billion.shard")
    write_billion(path, args.records)
    bench = subprocess.Popen([args.paceline, "bench", "data", f"shards:{path}", "--batch", "256", "--seconds", "3",
                              "--json"], stdout=subprocess.PIPE, text=True)
    most = 0
    while bench.poll() is None:
        most = max(most, highest(bench.pid, "VmHWM"))
        time.sleep(0.05)
    said = json.loads(bench.stdout.read())
    print(f"billion   {said['records']} records: at most {most / 1e6:.1f} MB, open after {said['open_s']:.3f} s, first batch "
          f"after {said['first_batch_s']:.3f} s, {said['records_per_s']:.0f} records/s; bar: 64 MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("shards")
    parser.add_argument("--budget", default="900MB")
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--records", type=int, default=10**9)
    parser.add_argument("--paceline", default=os.path.join(HERE, "..", "build", "paceline"))
    args = parser.parse_args()
    args.paceline = os.path.abspath(args.paceline)
    with tempfile.TemporaryDirectory(prefix="paceline-memory-", dir="/var/tmp") as folder:
        measure_budget(args, folder)
        measure_billion(args, folder)


if __name__ == "__main__":
    main()
