#!/usr/bin/env python3
"""Scores of torchvision's nets, with weights that are a function of their names, for
torch_names_test. Needs torch, torchvision and numpy; writes torch_names.golden.

    python3 test/golden/torch_names.py
"""
import os

import numpy as np
import torch
import torchvision
from torch import nn

SCORES = 10


def numbers(name, count):
    """-1 to 1: a hash of the name, mixed with the place."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 & 0xFFFFFFFF
    x = (np.arange(count, dtype=np.uint64) * 0x9E3779B9 & 0xFFFFFFFF).astype(np.uint32)
    x ^= np.uint32(seed)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x ^= x >> np.uint32(shift)
        x *= np.uint32(factor)
    x ^= x >> np.uint32(16)
    return x.view(np.int32).astype(np.float32) * np.float32(2.0 ** -31)


def fill(name, shape):
    u = numbers(name, int(np.prod(shape)))
    if name.endswith("running_mean"):
        u = np.float32(0.25) * u
    elif name.endswith("running_var"):
        u = np.float32(1.5) + np.float32(0.5) * u
    elif len(shape) > 1:
        u = np.sqrt(np.float32(4.5) / np.float32(np.prod(shape[1:]))) * u
    elif name.endswith("weight"):
        u = np.float32(0.75) + np.float32(0.25) * u
    else:
        u = np.float32(0.25) * u
    return torch.from_numpy(u.reshape(shape))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(3)))
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean([2, 3]))


def main():
    models = torchvision.models
    nets = (("resnet-20", ResNet20, 32), ("resnet-18-b", models.resnet18, 224),
            ("resnet-50-b", models.resnet50, 224), ("vgg-a", models.vgg11, 224),
            ("vgg-16", models.vgg16, 224))
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "torch_names.golden"), "w") as file:
        for name, make, side in nets:
            model = make().eval()
            state = {key: fill(key, tuple(value.shape)) for key, value in model.state_dict().items()
                     if not key.endswith("num_batches_tracked")}
            model.load_state_dict(state, strict=False)
            with torch.no_grad():
                data = numbers("input", 3 * side * side).reshape(1, 3, side, side)
                scores = model(torch.from_numpy(data))
            print(name, *("%.9g" % value for value in scores[0][:SCORES].tolist()), file=file)


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
