#!/usr/bin/env python3
"""Training steps of the zoo's nets in PyTorch: the other half of bench/vs_torch.py, which starts it.

    bench/torch_step.py --net resnet-20 --batch 64 --threads 2 --layout nhwc --precision f32 --steps 40
    bench/torch_step.py --net shakespeare-lstm --batch 32 --threads 2 --layout steps-first --no-onednn

A step has new records (two batches that lie ready take turns, nothing is copied), forward, loss,
backward, and an update by SGD with momentum and weight decay; of shakespeare-lstm the update of
its job, and the state of a step is the next one's. Prints one JSON object: the
milliseconds of each step, the CPU time of one, the number of parameters, GFLOP/s of a plain matrix
product, the highest resident memory, and what it was after the import and the first step of a net of one convolution.
"""
import argparse
import json
import resource
import time

import text_curve
import torch
from torch import nn
from torch.nn import functional as F

# ---- nets, layer by layer as src/model/zoo_*.c has them ----


def conv(i, o, k, stride=1, pad=0):
    return nn.Conv2d(i, o, k, stride, pad)


def relu():
    return nn.ReLU(inplace=True)


def max_pool(k, stride, pad=0):  # Caffe rounds up
    return nn.MaxPool2d(k, stride, pad, ceil_mode=True)


def mean_pool(k, stride):
    return nn.AvgPool2d(k, stride, ceil_mode=True)


def lrn():
    return nn.LocalResponseNorm(5, 0.0001, 0.75, 1.0)


def lenet():
    return nn.Sequential(
        conv(1, 20, 5), max_pool(2, 2), conv(20, 50, 5), max_pool(2, 2), nn.Flatten(),
        nn.Linear(800, 500), relu(), nn.Linear(500, 10))


def cifar10_quick():
    return nn.Sequential(
        conv(3, 32, 5, 1, 2), max_pool(3, 2), relu(), conv(32, 32, 5, 1, 2), relu(),
        mean_pool(3, 2), conv(32, 64, 5, 1, 2), relu(), mean_pool(3, 2), nn.Flatten(),
        nn.Linear(1024, 64), nn.Linear(64, 10))


def alexnet_small():
    return nn.Sequential(
        conv(3, 64, 5, 1, 2), relu(), lrn(), max_pool(3, 2), conv(64, 64, 5, 1, 2), relu(), lrn(),
        max_pool(3, 2), conv(64, 128, 3, 1, 1), relu(), max_pool(3, 2), nn.Flatten(),
        nn.Linear(2048, 1024), relu(), nn.Dropout(0.5), nn.Linear(1024, 10))


def vgg_a():
    layers, i = [], 3
    for outputs in ([64], [128], [256, 256], [512, 512], [512, 512]):
        for o in outputs:
            layers += [conv(i, o, 3, 1, 1), relu()]
            i = o
        layers.append(max_pool(2, 2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), relu(), nn.Dropout(0.5),
        nn.Linear(4096, 4096), relu(), nn.Dropout(0.5), nn.Linear(4096, 1000))


def conv_bn(i, o, k, stride):
    return [conv(i, o, k, stride, k // 2), nn.BatchNorm2d(o)]


class Block(nn.Module):
    """Two convolutions beside the image, or where the size changes beside a projection of it."""

    def __init__(self, i, o, halves):
        super().__init__()
        stride = 2 if halves else 1
        self.short = nn.Sequential(*conv_bn(i, o, 1, 2)) if halves else nn.Identity()
        self.branch = nn.Sequential(*conv_bn(i, o, 3, stride), relu(), *conv_bn(o, o, 3, 1))
        self.relu = relu()

    def forward(self, x):
        short = self.short(x)
        return self.relu(self.branch(x).add_(short))


def resnet(depth):
    layers, i = [*conv_bn(3, 16, 3, 1), relu()], 16
    for stage, o in enumerate((16, 32, 64)):
        for k in range((depth - 2) // 6):
            layers.append(Block(i, o, stage > 0 and k == 0))
            i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Inception(nn.Module):
    def __init__(self, i, n1, r3, n3, r5, n5, pool):
        super().__init__()
        self.ways = nn.ModuleList([
            nn.Sequential(conv(i, n1, 1), relu()),
            nn.Sequential(conv(i, r3, 1), relu(), conv(r3, n3, 3, 1, 1), relu()),
            nn.Sequential(conv(i, r5, 1), relu(), conv(r5, n5, 5, 1, 2), relu()),
            nn.Sequential(max_pool(3, 1, 1), conv(i, pool, 1), relu())])

    def forward(self, x):
        return torch.cat([way(x) for way in self.ways], 1)


class GoogLeNet(nn.Module):
    """With its two auxiliary classifiers: a list of scores."""

    def __init__(self):
        super().__init__()
        self.begin = nn.Sequential(
            conv(3, 64, 7, 2, 3), relu(), max_pool(3, 2), lrn(), conv(64, 64, 1), relu(),
            conv(64, 192, 3, 1, 1), relu(), lrn(), max_pool(3, 2),
            Inception(192, 64, 96, 128, 16, 32, 32), Inception(256, 128, 128, 192, 32, 96, 64),
            max_pool(3, 2), Inception(480, 192, 96, 208, 16, 48, 64))
        self.middle = nn.Sequential(
            Inception(512, 160, 112, 224, 24, 64, 64), Inception(512, 128, 128, 256, 24, 64, 64),
            Inception(512, 112, 144, 288, 32, 64, 64))
        self.end = nn.Sequential(
            Inception(528, 256, 160, 320, 32, 128, 128), max_pool(3, 2),
            Inception(832, 256, 160, 320, 32, 128, 128),
            Inception(832, 384, 192, 384, 48, 128, 128), mean_pool(7, 1), nn.Flatten(),
            nn.Dropout(0.4), nn.Linear(1024, 1000))
        self.loss1, self.loss2 = self.auxiliary(512), self.auxiliary(528)

    @staticmethod
    def auxiliary(i):
        return nn.Sequential(
            mean_pool(5, 3), conv(i, 128, 1), relu(), nn.Flatten(), nn.Linear(2048, 1024), relu(),
            nn.Dropout(0.7), nn.Linear(1024, 1000))

    def forward(self, x):
        a = self.begin(x)
        b = self.middle(a)
        return [self.end(b), self.loss1(a), self.loss2(b)]


NETS = {  # how to make it, a record, classes
    "lenet": (lenet, (1, 28, 28), 10),
    "cifar10-quick": (cifar10_quick, (3, 32, 32), 10),
    "resnet-20": (lambda: resnet(20), (3, 32, 32), 10),
    "resnet-110": (lambda: resnet(110), (3, 32, 32), 10),
    "alexnet-small": (alexnet_small, (3, 32, 32), 10),
    "vgg-a": (vgg_a, (3, 224, 224), 1000),
    "googlenet": (GoogLeNet, (3, 224, 224), 1000),
}
TEXT_NETS, CHARACTERS = ("shakespeare-lstm",), 65
WEIGHTS = (1.0, 0.3, 0.3)  # of GoogLeNet's losses; others have one

# ---- a step ----


class Steps:
    def __init__(self, net, record, classes, batch, layout, precision):
        form = torch.channels_last if layout == "nhwc" else torch.contiguous_format
        self.net = net.train().to(memory_format=form)
        self.sgd = torch.optim.SGD(
            net.parameters(), lr=1e-6, momentum=0.9, weight_decay=0.0005, foreach=True)
        self.batches = [
            (torch.rand(batch, *record).to(memory_format=form), torch.randint(classes, (batch,)))
            for _ in range(2)]
        self.bf16 = precision == "bf16"
        self.taken = 0

    def loss(self, x, labels):
        scores = self.net(x)
        if not isinstance(scores, list):
            return F.cross_entropy(scores, labels)
        return sum(w * F.cross_entropy(s, labels) for w, s in zip(WEIGHTS, scores))

    def take(self):
        x, labels = self.batches[self.taken % 2]
        self.taken += 1
        self.sgd.zero_grad(set_to_none=True)
        if self.bf16:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = self.loss(x, labels)
        else:
            loss = self.loss(x, labels)
        loss.backward()
        self.sgd.step()
        return loss.item()


class TextSteps:
    """Of examples/shakespeare-lstm.job; windows lie ready, records or steps first."""

    def __init__(self, batch, layout):
        self.first = layout == "steps-first"
        self.net = text_curve.Net("lstm", CHARACTERS)
        for layer in self.net.layers:
            layer.units.batch_first = not self.first
        self.parameters = [p for p in self.net.parameters() if p.requires_grad]
        self.rms = torch.optim.RMSprop(self.parameters, lr=1e-6, alpha=text_curve.DECAY,
                                       eps=text_curve.DELTA, foreach=True)
        size = (text_curve.WINDOW, batch) if self.first else (batch, text_curve.WINDOW)
        self.batches = [(torch.randint(CHARACTERS, size), torch.randint(CHARACTERS, size))
                        for _ in range(2)]
        self.state, self.taken = self.net.zero_state(batch), 0

    def take(self):
        x, labels = self.batches[self.taken % 2]
        self.taken += 1
        scores, self.state = self.net(x, self.state)
        loss = F.cross_entropy(scores.flatten(0, 1), labels.flatten())
        self.rms.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, text_curve.CLIP)
        self.rms.step()
        return loss.item()


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mb():
    with open("/proc/self/status") as f:
        kib = next(line.split()[1] for line in f if line.startswith("VmHWM"))
    return int(kib) * 1024 * 1e-6


def product_gflops(threads):
    """The best of a few products of two matrices, by CPU time: is the BLAS an optimised one?"""
    a, best = torch.rand(768, 768), float("inf")
    for _ in range(5):
        start = cpu_seconds()
        a @ a
        best = min(best, cpu_seconds() - start)
    return 2 * 768 ** 3 / best * threads * 1e-9


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--net", choices=(*NETS, *TEXT_NETS), required=True)
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--layout", choices=("nchw", "nhwc", "records-first", "steps-first"), default="nchw")
    p.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    p.add_argument("--no-onednn", action="store_true", help="PyTorch's own LSTM")
    p.add_argument("--steps", type=int, default=40)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    small = nn.Sequential(conv(3, 8, 3), relu(), nn.Flatten(), nn.Linear(8 * 36, 10))
    Steps(small, (3, 8, 8), 10, 4, a.layout, a.precision).take()
    product = product_gflops(a.threads)
    begin = peak_mb()
    if a.no_onednn:
        torch._C._set_mkldnn_enabled(False)
    if a.net in TEXT_NETS:
        steps = TextSteps(a.batch, a.layout)
    else:
        make, record, classes = NETS[a.net]
        steps = Steps(make(), record, classes, a.batch, a.layout, a.precision)
    for _ in range(a.steps // 10 + 2):
        steps.take()
    ms, cpu = [], cpu_seconds()
    for _ in range(a.steps):
        start = time.perf_counter()
        steps.take()
        ms.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({
        "version": torch.__version__, "ms": ms,
        "cpu_ms": (cpu_seconds() - cpu) * 1e3 / a.steps, "peak_mb": peak_mb(), "begin_mb": begin,
        "product_gflops": product,
        "parameters": sum(p.numel() for p in steps.net.parameters() if p.requires_grad)}))


if __name__ == "__main__":
    main()
