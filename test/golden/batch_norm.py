#!/usr/bin/python3
"""Writes batch_norm.golden: PyTorch's results for a net with BatchNorm between two Scales.

    /usr/bin/python3 batch_norm.py > batch_norm.golden      (Debian: python3-torch)

Parameters, data and labels come from hash_unit below, which batch_norm_test.c repeats, so only
results are stored: of two steps of training, of a test with the running sums that those leave, and
of a step that trains with them. All arithmetic is in double. Lines are: name, number of values,
values. "dx" is the gradient of the loss by what BatchNorm reads.
"""
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
DATA, LABELS = 100, 101  # streams beside the parameters' 0, 1, 2, ...
EPS, FRACTION, CLASSES = 0.03125, 0.875, 3  # exact in a float


def mix(stream, i):
    v = (i + 0x9E3779B9 * (stream + 1)) & 0xFFFFFFFF
    for _ in range(2):
        v ^= v >> 16
        v = (v * 0x45D9F3B) & 0xFFFFFFFF
    return v ^ (v >> 16)


def tensor(stream, shape):
    """Values in [-0.5, 0.5), multiples of 2^-24: exact in a float."""
    n = 1
    for d in shape:
        n *= d
    values = [(mix(stream, i) >> 8) * 2.0**-24 - 0.5 for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def put(name, values):
    values = torch.as_tensor(values).detach().reshape(-1).tolist()
    print(name, len(values), " ".join("%.9g" % v for v in values))


def by_channel(v):
    return v.reshape(1, -1, 1, 1)


def run(name, N, C, H, W):
    shapes = [(C,), (C,), (C,), (C,), (CLASSES, C * H * W), (CLASSES,)]
    params = [tensor(k, s) for k, s in enumerate(shapes)]
    for k in (0, 2):  # the scales' w
        params[k] = params[k] + 1.0
    params = [p.requires_grad_() for p in params]
    labels = torch.tensor([mix(LABELS, i) % CLASSES for i in range(N)])
    sums, squares, count = torch.zeros(C, dtype=torch.float64), torch.zeros(C, dtype=torch.float64), 0.0

    def step(what, at, normalise, backward):
        data = tensor(DATA + 10 * at, (N, C, H, W)) * 2.0
        x = data * by_channel(params[0]) + by_channel(params[1])
        x.retain_grad()
        y = normalise(x)
        z = y * by_channel(params[2]) + by_channel(params[3])
        loss = F.cross_entropy(F.linear(z.flatten(1), params[4], params[5]), labels)
        put("%s.%s.y" % (name, what), y)
        put("%s.%s.loss" % (name, what), loss)
        if backward:
            loss.backward()
            put("%s.%s.dx" % (name, what), x.grad)
            for k, p in enumerate(params):
                put("%s.%s.dw.%d" % (name, what, k), p.grad)
                p.grad = None

    def by_batch(x):
        """PyTorch's own running values, wholly replaced, are this batch's mean and variance (by
        m - 1); Caffe's sums are made of them."""
        nonlocal sums, squares, count
        mean, variance = torch.zeros(C, dtype=torch.float64), torch.zeros(C, dtype=torch.float64)
        y = F.batch_norm(x, mean, variance, training=True, momentum=1.0, eps=EPS)
        sums, squares = FRACTION * sums + mean, FRACTION * squares + variance
        count = FRACTION * count + 1.0
        return y

    def by_state(x):
        return F.batch_norm(x, sums / count, squares / count, training=False, eps=EPS)

    for at in (0, 1):
        step("train%d" % at, at, by_batch, True)
        put("%s.train%d.s.0" % (name, at), sums)
        put("%s.train%d.s.1" % (name, at), squares)
        put("%s.train%d.s.2" % (name, at), count)
    step("test", 2, by_state, False)
    step("global", 3, by_state, True)


run("image", 5, 3, 4, 3)
run("point", 6, 4, 1, 1)
