#!/usr/bin/python3
"""Writes lenet.golden: PyTorch's results for three nets whose parameters and data are a formula.

    /usr/bin/python3 lenet.py > lenet.golden      (Debian: python3-torch)

Parameters, data and labels come from hash_unit below, which lenet_test.c repeats, so only results
are stored. All arithmetic is in double. Lines are: name, number of values, values.
"""
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
DATA, LABELS, PROBE = 100, 101, 200  # streams beside the parameters' 0, 1, 2, ...
SAMPLES = 24


def mix(stream, i):
    v = (i + 0x9E3779B9 * (stream + 1)) & 0xFFFFFFFF
    for _ in range(2):
        v ^= v >> 16
        v = (v * 0x45D9F3B) & 0xFFFFFFFF
    return v ^ (v >> 16)


def hash_unit(stream, n):
    """n values in [-0.5, 0.5), multiples of 2^-24: exact in a float."""
    return torch.tensor([(mix(stream, i) >> 8) * 2.0**-24 - 0.5 for i in range(n)],
                        dtype=torch.float64)


def tensor(stream, shape, scale):
    n = 1
    for d in shape:
        n *= d
    return (hash_unit(stream, n) * scale).reshape(shape)


def put(name, values):
    values = torch.as_tensor(values).reshape(-1).tolist()
    print(name, len(values), " ".join("%.9g" % v for v in values))


def run(name, shapes, scales, data_shape, classes, forward):
    params = [tensor(k, s, c).requires_grad_() for k, (s, c) in enumerate(zip(shapes, scales))]
    data = tensor(DATA, data_shape, 1.0) + 0.5
    labels = torch.tensor([mix(LABELS, i) % classes for i in range(data_shape[0])])
    scores = forward(params, data)
    loss = F.cross_entropy(scores, labels)
    loss.backward()
    put(name + ".loss", loss.detach())
    put(name + ".scores", scores.detach())
    for k, p in enumerate(params):
        g = p.grad.reshape(-1)
        n = len(g)
        put("%s.norm.%d" % (name, k), g.norm())
        put("%s.probe.%d" % (name, k), g.dot(hash_unit(PROBE + k, n)))
        put("%s.sample.%d" % (name, k), g[[j * n // SAMPLES for j in range(SAMPLES)]])


def lenet(p, x):
    x = F.max_pool2d(F.conv2d(x, p[0], p[1]), 2, 2, ceil_mode=True)
    x = F.max_pool2d(F.conv2d(x, p[2], p[3]), 2, 2, ceil_mode=True)
    x = F.relu(F.linear(x.flatten(1), p[4], p[5]))
    return F.linear(x, p[6], p[7])


def fc(p, x):
    x = torch.sigmoid(F.linear(x.flatten(1), p[0], p[1]))
    x = torch.sigmoid(F.linear(x, p[2], p[3]))
    return F.linear(x, p[4], p[5])


def small(p, x):
    """Padding, a leaky ReLU, averages over windows that hang over both edges; dropout is off."""
    x = F.leaky_relu(F.conv2d(x, p[0], p[1], padding=1), 0.125)
    x = F.avg_pool2d(x, 3, 2, padding=1, ceil_mode=True, count_include_pad=True)
    x = F.conv2d(x, p[2], None, stride=2)
    x = F.max_pool2d(x, 2, 2, ceil_mode=True)
    return F.linear(x.flatten(1), p[3], p[4])


run("lenet",
    [(20, 1, 5, 5), (20,), (50, 20, 5, 5), (50,), (500, 800), (500,), (10, 500), (10,)],
    [0.5, 0.25, 0.25, 0.25, 0.125, 0.25, 0.25, 0.25], (3, 1, 28, 28), 10, lenet)
run("small", [(6, 3, 3, 3), (6,), (4, 6, 3, 3), (7, 16), (7,)], [1.0, 0.5, 1.0, 1.0, 0.5],
    (5, 3, 16, 14), 7, small)
run("fc", [(480, 784), (480,), (160, 480), (160,), (10, 160), (10,)],
    [0.125, 0.25, 0.25, 0.25, 0.5, 0.25], (3, 1, 28, 28), 10, fc)
