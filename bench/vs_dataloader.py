#!/usr/bin/env python3
"""Our loader beside PyTorch's DataLoader: the same records, maps, batches and cores, in turns.

    bench/vs_dataloader.py [--cifar FOLDER] [--pictures N] [--rounds 5] [--seconds 6]
                           [--workers 2] [--python FILE] [--paceline FILE]

cifar     CIFAR-10 (binary version) in FOLDER: pad 4, crop 32, mirror, mean and scale. PyTorch: the
          arrays of torchvision's CIFAR10, RandomCrop(32, padding=4), RandomHorizontalFlip, ToTensor,
          Normalize
pictures  a folder of N JPEG files of 500 x 375 pixels (about 40 KB), made from seeds: the shorter edge to
          256, a crop of 224, mirror, mean and scale. PyTorch: ImageFolder with Resize(256),
          RandomCrop(224), RandomHorizontalFlip, ToTensor, Normalize, decoded by Pillow
shards    the same pictures, packed by `paceline data pack`; PyTorch's as before

Batches have 64 records. Ours: `paceline bench data --threads WORKERS`. PyTorch's: num_workers as many,
persistent_workers, prefetch_factor 4, one OpenMP thread; the first 10 batches are not counted. A round
takes each of the two for `--seconds`; printed are medians over the rounds and their ratio.
Needs a Python with torch, torchvision and Pillow (--python).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH = 64

# Runs in the Python that has torch: prints records a second.
PEER = r'''
import os, sys, time, pickle
os.environ["OMP_NUM_THREADS"] = "1"
import numpy, torch, torchvision
from PIL import Image
from torchvision import transforms as T
torch.set_num_threads(1)
kind, path, workers, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
last = [T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize((0.5,) * 3, (0.25,) * 3)]
if kind == "cifar":
    raw = numpy.concatenate([numpy.fromfile(os.path.join(path, f"data_batch_{i}.bin"), numpy.uint8)
                             for i in range(1, 6)]).reshape(-1, 3073)
    class Cifar(torch.utils.data.Dataset):
        data, targets = raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy(), raw[:, 0].tolist()
        maps = T.Compose([T.RandomCrop(32, padding=4)] + last)
        def __len__(self): return len(self.targets)
        def __getitem__(self, i): return self.maps(Image.fromarray(self.data[i])), self.targets[i]
    data = Cifar()
else:
    data = torchvision.datasets.ImageFolder(path, T.Compose([T.Resize(256), T.RandomCrop(224)] + last))
loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True, num_workers=workers, drop_last=True,
                                     persistent_workers=True, prefetch_factor=4)
taken, begin, warm = 0, None, 10
while begin is None or time.monotonic() - begin < seconds:
    for x, y in loader:
        if begin is not None:
            taken += len(y)
            if time.monotonic() - begin >= seconds: break
        elif warm == 0:
            begin = time.monotonic()
        warm -= 1
print(taken / (time.monotonic() - begin))
'''

# The same Python makes the pictures: smooth shapes with some noise, as photographs compress.
MAKER = r'''
import os, sys
import numpy
from PIL import Image
folder, count = sys.argv[1], int(sys.argv[2])
draw = numpy.random.default_rng(1)
for i in range(count):
    small = draw.integers(0, 255, (12, 16, 3), dtype=numpy.uint8)
    picture = numpy.asarray(Image.fromarray(small).resize((500, 375), Image.BICUBIC), numpy.int16)
    picture = picture + draw.normal(0, 6, picture.shape).astype(numpy.int16)
    at = os.path.join(folder, f"class{i % 10}")
    os.makedirs(at, exist_ok=True)
    Image.fromarray(picture.clip(0, 255).astype(numpy.uint8)).save(os.path.join(at, f"{i:05}.jpg"), quality=85)
'''


def ours(args, spec):
    said = subprocess.run([args.paceline, "bench", "data", spec, "--batch", str(BATCH), "--threads",
                           str(args.workers), "--seconds", str(args.seconds), "--json"],
                          stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(said)["records_per_s"]


def peer(args, kind, path):
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    said = subprocess.run([args.python, "-c", PEER, kind, path, str(args.workers), str(args.seconds)],
                          stdout=subprocess.PIPE, check=True, text=True, env=env).stdout
    return float(said)


def compare(args, name, spec, kind, path):
    rates = [(ours(args, spec), peer(args, kind, path)) for _ in range(args.rounds)]
    mine, theirs = (statistics.median(r[k] for r in rates) for k in (0, 1))
    ratios = [a / b for a, b in rates]
    print(f"{name:9} {mine:9.0f} {theirs:9.0f} {mine / theirs:7.2f}   {min(ratios):.2f} to {max(ratios):.2f}",
          flush=True)
    return mine / theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--cifar", help="folder of CIFAR-10's binary version")
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--paceline", default=os.path.join(HERE, "..", "build", "paceline"))
    args = parser.parse_args()
    print("records/s      ours   PyTorch   ratio   of single rounds")
    ratios = []
    maps = "mirror=true&mean=127.5&scale=0.015686275"
    if args.cifar:
        ratios.append(compare(args, "cifar", f"cifar10:{args.cifar}?pad=4&crop=32&{maps}", "cifar", args.cifar))
    with tempfile.TemporaryDirectory(prefix="paceline-pictures-") as folder:
        pictures, packed = os.path.join(folder, "pictures"), os.path.join(folder, "packed")
        subprocess.run([args.python, "-c", MAKER, pictures, str(args.pictures)], check=True)
        said = subprocess.run([args.paceline, "data", "pack", f"images:{pictures}", packed, "--json"],
                              stdout=subprocess.PIPE, check=True, text=True).stdout
        maps = "resize=256&crop=224&" + maps
        ratios.append(compare(args, "pictures", f"images:{pictures}?{maps}", "pictures", pictures))
        ratios.append(compare(args, "shards", f"{json.loads(said)['spec']}?{maps}", "pictures", pictures))
    print(f"least ratio {min(ratios):.2f}; bar: 2")


if __name__ == "__main__":
    main()
