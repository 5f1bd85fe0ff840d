#!/usr/bin/env python3
"""Data sets of growing size in shards: until the first batch is there, and records a second, with the page
cache dropped before each.

    bench/shards_scale.py FOLDER --pictures FOLDER [--records 1300000] [--pool 20000] [--seconds 10]
                          [--shares 5,10,20,50,100] [--rounds 3] [--paceline FILE] [--keep]

Writes shards of 10,000 JPEG files of about 15 KB into FOLDER (20 GB by default). The pool of pictures is
made from the JPEG files below --pictures: the script scales each to 400 x 300, crops 300 x 225 pixels and
encodes them again. A seed determines the position of the crop, the mirroring and the brightness. Each shard
samples the pool. This script writes the shards itself, as src/data/shard_format.h describes them, and so tests
the reader against an independent writer.

first     s from the start of `paceline bench data` until the first batch of 64 is there: opened, read, decoded,
          resized to 256 and cropped to 224
records/s of the whole loader in the seconds after it; `change` is to the first size
Needs root, to drop the page cache, and a Python with Pillow and xxhash.
"""
import argparse
import glob
import io
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import time

import xxhash
from PIL import Image, ImageEnhance

HERE = os.path.dirname(os.path.abspath(__file__))
PER_SHARD, BLOCK, CLASSES = 10000, 16384, 1000
MASK = (1 << 64) - 1


def make_pool(args):
    """JPEG bytes, height and width."""
    files = sorted(glob.glob(os.path.join(args.pictures, "**", "*.[jJ][pP]*[gG]"), recursive=True))
    if not files:
        sys.exit(f"{args.pictures}: no JPEG files")
    draw, pool = random.Random(1), []
    opened = [Image.open(f).convert("RGB").resize((400, 300), Image.BILINEAR) for f in files[:400]]
    for i in range(args.pool):
        picture = opened[i % len(opened)]
        x, y = draw.randrange(100), draw.randrange(75)
        picture = picture.crop((x, y, x + 300, y + 225))
        if draw.random() < 0.5:
            picture = picture.transpose(Image.FLIP_LEFT_RIGHT)
        picture = ImageEnhance.Brightness(picture).enhance(draw.uniform(0.7, 1.3))
        out = io.BytesIO()
        picture.save(out, "JPEG", quality=86)
        pool.append(out.getvalue())
    return pool


def mix(folded, value):
    """hash_mix of base/hash.c is part of no check: the footer's data_hash only names the data."""
    return xxhash.xxh3_64_intdigest(struct.pack("<QQ", folded, value)) & MASK


def write_shard(path, pool, seed):
    draw = random.Random(seed)
    sizes, labels, hashes, block, data, folded = bytearray(), bytearray(), bytearray(), bytearray(), 0, 0
    with open(path + ".new", "wb") as f:
        f.write(b"PLSHARD\0" + struct.pack("<II", 1, 0))
        for i in range(PER_SHARD):
            picture = pool[draw.randrange(len(pool))]
            block += picture
            sizes += struct.pack("<IHH", len(picture), 225, 300)
            labels += struct.pack("<H", draw.randrange(CLASSES))
            if len(block) >= BLOCK or i + 1 == PER_SHARD:
                checksum = xxhash.xxh3_64_intdigest(bytes(block))
                folded = mix(folded, checksum)
                hashes += struct.pack("<Q", checksum)
                data += f.write(block)
                block.clear()
        index = bytes(hashes + sizes + labels)
        f.write(index)
        footer = struct.pack("<10I6Q", 3, 0, 2, BLOCK, 0, 0, 0, CLASSES, 0, 0, PER_SHARD, len(hashes) // 8, data,
                             len(index), xxhash.xxh3_64_intdigest(index), folded)
        f.write(footer + struct.pack("<Q", xxhash.xxh3_64_intdigest(footer)))
    os.rename(path + ".new", path)
    return data


def shard_path(args, number):
    return os.path.join(args.folder, f"scale-{number:05}.shard")


def make_shards(args, count):
    missing = [n for n in range(count) if not os.path.exists(shard_path(args, n))]
    pool = make_pool(args) if missing else []
    begin, written = time.monotonic(), 0
    for n in missing:
        written += write_shard(shard_path(args, n), pool, n)
    if missing:
        print(f"wrote {len(missing)} shards, {written / 1e9:.1f} GB, in {time.monotonic() - begin:.0f} s; "
              f"a picture has {written / len(missing) / PER_SHARD / 1e3:.1f} KB", flush=True)


def measure(args, count):
    subprocess.run(["sync"], check=True)
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3\n")
    spec = f"shards:{args.folder}/scale-{{00000..{count - 1:05}}}.shard?resize=256&crop=224&mirror=true"
    said = subprocess.run([args.paceline, "bench", "data", spec, "--seconds", str(args.seconds), "--json"],
                          stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(said)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("folder")
    parser.add_argument("--pictures", required=True)
    parser.add_argument("--records", type=int, default=1300000)
    parser.add_argument("--pool", type=int, default=20000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--shares", default="5,10,20,50,100")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paceline", default=os.path.join(HERE, "..", "build", "paceline"))
    parser.add_argument("--keep", action="store_true", help="leave the shards, for another time")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    total = (args.records + PER_SHARD - 1) // PER_SHARD
    make_shards(args, total)
    shares = [float(s) for s in args.shares.split(",")]
    counts = [max(1, round(total * s / 100)) for s in shares]
    found = {n: [] for n in counts}
    for _ in range(args.rounds):  # sizes in turns, so that the machine's changes meet all alike
        for n in counts:
            found[n].append(measure(args, n))
    print("share      records  first s: median, most    records/s   change")
    rate = [statistics.median(r["records_per_s"] for r in found[n]) for n in counts]
    for share, n, r in zip(shares, counts, rate):
        firsts = [x["first_batch_s"] for x in found[n]]
        print(f"{share:4.0f} % {n * PER_SHARD:11}  {statistics.median(firsts):8.3f} {max(firsts):8.3f}     {r:9.0f}   "
              f"{100 * (r / rate[0] - 1):+.1f} %")
    if not args.keep:
        for n in range(total):
            os.remove(shard_path(args, n))


if __name__ == "__main__":
    main()
