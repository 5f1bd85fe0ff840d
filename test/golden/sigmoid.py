#!/usr/bin/python3
"""Writes sigmoid.golden: PyTorch's sigmoid of values that are a formula, and its gradient.

    /usr/bin/python3 sigmoid.py > sigmoid.golden      (Debian: python3-torch)

x and dy come from hash_unit below, which sigmoid_test.c repeats, so only y and dx are stored: N of
each for x up to 2, to 16 and to 128 on both sides of zero. All arithmetic is in double.
"""
import torch

N = 24
DY = 100  # a stream beside those of x, 0, 1, 2


def mix(stream, i):
    v = (i + 0x9E3779B9 * (stream + 1)) & 0xFFFFFFFF
    for _ in range(2):
        v ^= v >> 16
        v = (v * 0x45D9F3B) & 0xFFFFFFFF
    return v ^ (v >> 16)


def hash_unit(stream):
    """N values in [-0.5, 0.5), multiples of 2^-24: exact in a float."""
    return torch.tensor([(mix(stream, i) >> 8) * 2.0**-24 - 0.5 for i in range(N)],
                        dtype=torch.float64)


def put(name, values):
    print(name, len(values), " ".join("%.9g" % v for v in values.tolist()))


for stream, scale in enumerate([4, 32, 256]):
    x = (hash_unit(stream) * scale).requires_grad_()
    y = torch.sigmoid(x)
    y.backward(hash_unit(DY + stream))
    put("y.%d" % scale, y.detach())
    put("dx.%d" % scale, x.grad)
