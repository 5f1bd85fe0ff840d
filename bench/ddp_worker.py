#!/usr/bin/env python3
"""One process of PyTorch DDP with gloo on Fashion-MNIST: the rival in bench/vs_ddp.py, which starts it.

    bench/ddp_worker.py --rank R --world K --master ADDR:PORT --net lenet|fc --mode ddp|fp16|bf16|local
                        --rate RATE [--tau 10] --step-s S --steps N [--target ERROR] [--every N]

Modes: ddp, gradients averaged beside the backward pass, in buckets; fp16 and bf16, the same with the
hook that compresses them; local, SGD with periodic averages of the model (post-local SGD, τ steps
apart, averages of every step in the first tenth of an epoch). The records lie in memory, decoded. A step
takes S seconds at least, a third of them forward. The backward pass waits in each layer for that layer's
share of the multiplications, so that exchanges run beside it as on a machine of the worker's own. Rank 0
evaluates on the test set every N steps, while the clock stands, and prints one JSON object: samples/s of
all workers, the curve of (seconds, error), and whether the target was reached, where the run ends.
"""
import argparse
import gzip
import json
import os
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional as F
from torch_step import lenet

FOLDER = "/usr/share/datasets/fashion-mnist"
WARM = 5  # steps before the clock of the rate starts
LOCAL_FROM = 47  # the first step without an average, where averages are periodic: a tenth of an epoch


def fc():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1600), nn.ReLU(), nn.Linear(1600, 800), nn.ReLU(),
                         nn.Linear(800, 10))


def read(prefix):
    def array(kind, skip):
        with gzip.open(os.path.join(FOLDER, f"{prefix}-{kind}-ubyte.gz")) as f:
            return numpy.frombuffer(f.read(), numpy.uint8, offset=skip)
    images = torch.from_numpy(array("images-idx3", 16).reshape(-1, 1, 28, 28).astype(numpy.float32) / 256)
    return images, torch.from_numpy(array("labels-idx1", 8).astype(numpy.int64))


class Pace:
    """Makes the backward pass of a net last `seconds`: each layer waits for its share of them."""

    def __init__(self, net, seconds):
        self.seconds, self.begun = seconds, 0
        self.layers = [layer for layer in net if isinstance(layer, (nn.Linear, nn.Conv2d))]
        self.work = {}  # multiplications of a record
        for layer in self.layers:
            layer.register_forward_hook(self.forward)

    def forward(self, layer, _, out):
        self.work[layer] = layer.weight.numel() * (out[0, 0].numel() if out.dim() == 4 else 1)
        if out.requires_grad:
            out.register_hook(lambda _: self.wait(layer))

    def wait(self, layer):
        """What comes after `layer` is done, and it begins."""
        done = sum(self.work[each] for each in self.layers[self.layers.index(layer):]) / sum(self.work.values())
        time.sleep(max(0, self.begun + done * self.seconds - time.monotonic()))


class Training:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(1)
        net = {"lenet": lenet, "fc": fc}[args.net]()
        for layer in net:
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.local = args.mode == "local"
        self.pace = Pace(net, args.step_s * 2 / 3)
        self.net = net if self.local else nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
        if args.mode in ("fp16", "bf16"):
            self.net.register_comm_hook(None, getattr(default_hooks, f"{args.mode}_compress_hook"))
        self.sgd = torch.optim.SGD(net.parameters(), lr=args.rate, momentum=0.9, weight_decay=0.0005)
        self.train, self.test = read("train"), read("t10k")
        self.order = iter(())
        self.epoch = 0

    def batch(self):
        """The next 64 of this rank's share of the epoch, which is shuffled as a whole."""
        index = next(self.order, None)
        if index is None or len(index) < 64:
            shuffled = torch.randperm(len(self.train[0]), generator=torch.Generator().manual_seed(self.epoch))
            self.order = iter(shuffled[self.args.rank::self.args.world].split(64))
            self.epoch += 1
            index = next(self.order)
        return self.train[0][index], self.train[1][index]

    def step(self, n):
        begun = time.monotonic()
        images, labels = self.batch()
        self.sgd.zero_grad(set_to_none=False)
        loss = F.cross_entropy(self.net(images), labels)
        time.sleep(max(0, self.args.step_s / 3 - (time.monotonic() - begun)))
        self.pace.begun = time.monotonic()
        loss.backward()
        self.sgd.step()
        if self.local and (n < LOCAL_FROM or n % self.args.tau == 0):
            self.average()

    @torch.no_grad()
    def average(self):
        """Of the model, as one vector."""
        values = nn.utils.parameters_to_vector(self.net.parameters())
        dist.all_reduce(values)
        nn.utils.vector_to_parameters(values / self.args.world, self.net.parameters())

    @torch.no_grad()
    def error(self):
        self.net.eval()
        net = self.net if self.local else self.net.module
        wrong = sum((net(x).argmax(1) != y).sum().item() for x, y in zip(self.test[0].split(500), self.test[1].split(500)))
        self.net.train()
        return wrong / len(self.test[0])


def main():
    parser = argparse.ArgumentParser()
    for name, kind, default in (("rank", int, 0), ("world", int, 4), ("tau", int, 10), ("steps", int, 100),
                                ("every", int, 0), ("rate", float, 0.04), ("step-s", float, 0), ("target", float, 0)):
        parser.add_argument(f"--{name}", type=kind, default=default)
    for name in "master", "net", "mode":
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")  # of a host; gloo may take loopback
    dist.init_process_group("gloo", init_method=f"tcp://{args.master}", rank=args.rank, world_size=args.world)
    training = Training(args)
    curve, seconds, warm_s, warm = [], 0.0, 0.0, WARM + (LOCAL_FROM if training.local else 0)
    reached = torch.zeros(1)
    for n in range(args.steps):
        begun = time.monotonic()
        training.step(n)
        seconds += time.monotonic() - begun
        if n + 1 == warm:
            warm_s = seconds
        if args.every and (n + 1) % args.every == 0:
            if args.rank == 0:
                curve.append((seconds, training.error()))
                reached[0] = curve[-1][1] <= args.target
            dist.broadcast(reached, 0)
            if reached.item():
                break
    dist.barrier()
    if args.rank == 0:
        print(json.dumps({"samples_s": 64 * args.world * (n + 1 - warm) / (seconds - warm_s), "curve": curve,
                          "reached": bool(reached.item()), "seconds": seconds, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
