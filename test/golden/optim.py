#!/usr/bin/python3
"""Writes optim.golden: five weights after each of 50 steps of PyTorch's optimizers.

    /usr/bin/python3 optim.py > optim.golden      (Debian: python3-torch)

The gradient is x/2 plus noise from hash_unit below, which optim_test.c repeats together with the
settings, so only the weights after each step are stored. Three of them learn as told; two learn
twice as fast and do not decay. All arithmetic is in double, on settings rounded to float. Lines
are: name, number of values, values.
"""
import math
import torch

STEPS, WEIGHTS, BIASES, START = 50, 3, 2, 100


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


def f32(v):
    return torch.tensor(v, dtype=torch.float32).item()


def run(name, make, rate, decay, halve=0, each_step=None, gradient=None):
    start = hash_unit(START, WEIGHTS + BIASES) * 4
    w, b = [torch.nn.Parameter(p) for p in start.split([WEIGHTS, BIASES])]
    rate, decay = f32(rate), f32(decay)
    optim = make([{"params": [w], "lr": rate, "weight_decay": decay, "decays": True},
                  {"params": [b], "lr": 2 * rate, "weight_decay": 0.0, "decays": False}])
    values = []
    for t in range(STEPS):
        noise = (hash_unit(t, WEIGHTS + BIASES) * 4).split([WEIGHTS, BIASES])
        for k, p in enumerate((w, b)):
            group = optim.param_groups[k]
            group["lr"] = (k + 1) * rate * (0.5**(t // halve) if halve else 1)
            p.grad = p.detach() / 2 + noise[k]
            if each_step:
                each_step(group, t + 1)
        if gradient:
            gradient(w, b)
        optim.step()
        values += w.tolist() + b.tolist()
    print(name, len(values), " ".join("%.9g" % v for v in values))


def caffes_delta(delta, beta2):
    """Caffe adds delta to the root of v, PyTorch to the root of v corrected for its beginning: the
    same, once PyTorch's is corrected, too."""
    def each_step(group, t):
        group["eps"] = f32(delta) / math.sqrt(1 - f32(beta2)**t)
    return each_step


def sgd(nesterov):
    return lambda p: torch.optim.SGD(p, lr=1, momentum=f32(0.9), nesterov=nesterov)


def adagrad(p):
    return torch.optim.Adagrad(p, eps=f32(1e-3))


def rmsprop(p):
    return torch.optim.RMSprop(p, alpha=f32(0.9), eps=f32(0.01))


def adadelta(p):
    return torch.optim.Adadelta(p, rho=f32(0.9), eps=f32(1e-3))


def clipped(most):
    """Of the whole gradient, before any decay."""
    def gradient(w, b):
        norm = torch.linalg.norm(torch.cat([w.grad, b.grad])).item()
        for p in (w, b):
            p.grad *= min(1, most / norm)
    return gradient


def l1(decay):
    def gradient(w, b):
        w.grad += f32(decay) * torch.sign(w.detach())
    return gradient


def lars(p):
    """You, Gitman and Ginsburg 2017, Algorithm 1, as LARC does it with PyTorch's SGD at a rate of 1:
    the gradient is scaled by the rate and the layer's own, after the decay is added."""
    return torch.optim.SGD(p, lr=1, momentum=f32(0.9))


def layer_rates(decay, trust):
    def each_step(group, t):
        p, = group["params"]
        w, g = torch.linalg.norm(p.detach()), torch.linalg.norm(p.grad)
        own = decay if group["decays"] else 0.0
        local = f32(trust) * w / (g + own * w) if w > 0 and g > 0 else 1.0
        p.grad = group["lr"] * local * (p.grad + own * p.detach())
        group["lr"], group["weight_decay"] = 1.0, 0.0
    return each_step


def adam(p):
    return torch.optim.Adam(p, betas=(f32(0.9), f32(0.999)))


def adamw(p):
    return torch.optim.AdamW(p, betas=(f32(0.8), f32(0.98)), eps=f32(0.05))


def adamw_as_it_comes(p):
    return torch.optim.AdamW(p, betas=(f32(0.9), f32(0.999)))


run("sgd", sgd(False), 0.1, 0.01)
run("nesterov", sgd(True), 0.1, 0.01)
run("adagrad", adagrad, 0.3, 0.01, halve=8)
run("rmsprop", rmsprop, 0.05, 0.01, halve=8)
run("adadelta", adadelta, 1.0, 0.01, halve=8)
run("clipped", sgd(False), 0.1, 0.01, gradient=clipped(1.5))
run("clipped_of_four", sgd(False), 0.1, 0.01, gradient=clipped(f32(5) / 4))
run("l1", sgd(False), 0.1, 0, gradient=l1(0.2))
run("l1_adadelta", adadelta, 1.0, 0, gradient=l1(0.2))
run("adam", adam, 0.1, 0.01, halve=8, each_step=caffes_delta(0.05, 0.999))
run("adamw", adamw, 0.1, 0.1, halve=8)
run("lars", lars, 2.0, 0.01, halve=8, each_step=layer_rates(f32(0.01), 0.02))
run("lars_as_it_comes", lars, 8.0, 0.0, each_step=layer_rates(0.0, 0.001))
run("adamw_as_it_comes", adamw_as_it_comes, 0.01, 0.01)
