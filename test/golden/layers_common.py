"""Shared by the layers_*.py: a case is a small net, its results and its gradients.

A case's net is scaffolding around the layers under test:

    in.data ── (in.slice ── in.shape.i ──) in.i ── x0, x1, ..    scaled by 1, to have gradients
    T ── head.T ── head.T.loss    InnerProduct and SoftmaxWithLoss for each top T that is no loss

Data, parameters and labels come from a formula, which layers_test.c repeats. A function in PyTorch
or written from the layer's definition gives the tops; gradients are autograd's, in double.
"""
import os
import re
import sys

import cv2
import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
cv2.setNumThreads(1)
DATA, LABELS, STATE, CLASSES = 100, 101, 200, 3  # streams beside the parameters' 0, 1, 2, ...
cases = []


def mix(stream, i):
    v = (i + 0x9E3779B9 * (stream + 1)) & 0xFFFFFFFF
    for _ in range(2):
        v ^= v >> 16
        v = (v * 0x45D9F3B) & 0xFFFFFFFF
    return v ^ (v >> 16)


def hashed(stream, shape, scale, offset):
    """unit · scale + offset as a float has it, unit a multiple of 2^-24 in [-0.5, 0.5)."""
    n = int(np.prod(shape, dtype=np.int64))
    values = [np.float32(((mix(stream,
                               i) >> 8) * 2.0**-24 - 0.5) * scale + offset) for i in range(n)]
    return torch.tensor(np.array(values, dtype=np.float64)).reshape(shape)


def labels_of(N, classes):
    return torch.tensor([mix(LABELS, n) % classes for n in range(N)])


def count(shape):
    return int(np.prod(shape, dtype=np.int64))


def dims(shape):
    return "x".join(str(d) for d in shape) if len(shape) else "scalar"


class Param:
    """A blob of parameters (or of state): its name as the segment table has it, and its formula."""

    def __init__(self, name, shape, scale=1.0, offset=0.0):
        self.name, self.shape, self.scale, self.offset = name, tuple(shape), scale, offset

    def line(self, kind, stream):
        return "%s %s %s %d %.9g %.9g" % (kind, self.name, dims(self.shape), stream, self.scale,
                                          self.offset)


class Case:
    """
    f(x, p)   from the list of bottoms and that of parameters to a dictionary: name of top, tensor
    layers    text of the layers under test; bottoms are x0, x1, .., and `label`
    bottoms   shapes of a record's part of each
    params    Param of each blob of parameters, in order
    losses    names of tops that are losses, with their weights; all other tops get a head
    labels    number of classes of the labels that the data layer gives
    target    the last bottom, t instead of x: no gradient goes there; (scale, offset, whole), its
              own formula, rounded down if whole; or a tensor, its values
    inits     name of a blob of parameters: what its filler makes of it
    states    Param of each blob of state before the pass; f returns what follows as "NAME!"
    windows   passes with the same parameters, each over data of its own. If several: f(x, p, c),
              c what it returned as "carried!" of the pass before, cut off; None: the first
    by        who said it, beside autograd's gradients
    """

    def __init__(self, name, f, layers, bottoms, params=(), N=2, data=(2.0, 0.0), train=True,
                 losses=None, labels=CLASSES, states=(), tolerance=1e-5, heads=None, by="torch",
                 opencv=True, target=None, inits=None, windows=1):
        self.name, self.f, self.by, self.N, self.data = name, f, by, N, data
        self.layers = [re.sub(r"\s+", " ", line).strip() for line in layers]
        self.bottoms = [tuple(b) for b in bottoms]
        self.params, self.states = list(params), list(states)
        self.train, self.losses, self.labels = train, losses or {}, labels
        self.tolerance, self.heads, self.opencv, self.target = tolerance, heads, opencv, target
        self.inits, self.windows = inits or {}, windows
        self.family = f.__module__  # the file that has the case
        cases.append(self)

    def record(self):
        return self.bottoms[0] if len(self.bottoms) == 1 else (sum(count(b) for b in self.bottoms),)

    def inputs(self, stream=DATA):
        """The bottoms' values: parts of each record, one after another."""
        x = hashed(stream, (self.N,) + self.record(), *self.data).reshape(self.N, -1)
        parts = list(torch.split(x, [count(b) for b in self.bottoms], 1))
        if isinstance(self.target, torch.Tensor):
            parts[-1] = self.target.double()
        elif self.target:
            scale, offset, whole = self.target
            t = hashed(DATA, x.shape, scale, offset)[:, -count(self.bottoms[-1]):]
            parts[-1] = t.floor() if whole else t
        parts = [p.reshape((self.N,) + b).clone() for p, b in zip(parts, self.bottoms)]
        return [p.requires_grad_(i < self.with_gradient()) for i, p in enumerate(parts)]

    def with_gradient(self):
        return len(self.bottoms) - (1 if self.target is not None else 0)

    def front(self):
        lines = ["layer { name: 'in.data' type: 'Input' top: 'data' top: 'label' }"]
        n = len(self.bottoms)
        if n > 1:
            at, points = 0, []
            for b in self.bottoms[:-1]:
                at += count(b)
                points.append("slice_point: %d" % at)
            tops = " ".join("top: 'part%d'" % i for i in range(n))
            lines.append("layer { name: 'in.slice' type: 'Slice' bottom: 'data' %s"
                         " slice_param { %s } }" % (tops, " ".join(points)))
            for i, b in enumerate(self.bottoms):
                shape = " ".join("dim: %d" % d for d in (0,) + b)
                top = "image%d" % i if i < self.with_gradient() else "t"
                lines.append("layer { name: 'in.shape.%d' type: 'Reshape' bottom: 'part%d'"
                             " top: '%s' reshape_param { shape { %s } } }" % (i, i, top, shape))
        for i in range(self.with_gradient()):
            bottom = "data" if n == 1 else "image%d" % i
            lines.append("layer { name: 'in.%d' type: 'Scale' bottom: '%s' top: 'x%d' }" % (i,
                                                                                            bottom,
                                                                                            i))
        return lines

    def head(self, name):
        return ["layer { name: 'head.%s' type: 'InnerProduct' bottom: '%s' top: 'score.%s'"
                " inner_product_param { num_output: %d bias_term: false } }" % (name, name, name,
                                                                                CLASSES),
                "layer { name: 'head.%s.loss' type: 'SoftmaxWithLoss' bottom: 'score.%s'"
                " bottom: 'label' top: 'loss.%s' }" % (name, name, name)]

    def write(self, out):
        first, n = self.with_gradient(), len(self.params)
        p = [hashed(first + k, q.shape, q.scale, q.offset).requires_grad_() for k,
             q in enumerate(self.params)]
        s = [hashed(STATE + k, q.shape, q.scale, q.offset) for k, q in enumerate(self.states)]
        put, carried = lambda *words: print(*words, file=out), None
        for window in range(self.windows):
            x = self.inputs(DATA + 200 * window)
            results = (self.f(x, p, carried) if self.windows > 1 else
                       self.f(x, p, s) if self.states else self.f(x, p))
            carried = results.get("carried!")
            tops = {k: v for k, v in results.items() if not k.endswith("!")}
            heads = []
            if self.train:
                heads = self.heads
                if heads is None:
                    heads = [t for t in tops if t not in self.losses]
            weights = [Param("head.%s.0" % t, (CLASSES, count(tops[t].shape[1:]))) for t in heads]
            if window == 0:
                self.write_net(put, x, p, s, tops, heads, weights, carried)
            else:
                put("window %d" % (DATA + 200 * window))
            loss = torch.zeros((), dtype=torch.float64)
            for k, (name, q) in enumerate(zip(heads, weights)):
                W = hashed(first + n + k, q.shape, 1.0, 0.0)
                loss = loss + F.cross_entropy(F.linear(tops[name].flatten(1), W),
                                              labels_of(self.N, self.labels) % CLASSES)
            for name, weight in self.losses.items():
                loss = loss + weight * tops[name].sum()
            self.write_results(put, x, p, results, tops, loss)

    def write_net(self, put, x, p, s, tops, heads, weights, carried):
        scales = [Param("in.%d.0" % i, (b[0],), 0.0, 1.0) for i,
                  b in enumerate(self.bottoms[:self.with_gradient()])]
        blobs = list(zip(self.params + self.states, p + s))
        said = self.by + (" opencv" if self.opencv and in_child(opencv_agrees, self, x, blobs,
                                                                tops) else "")
        put("case %s by %s" % (self.name, said))
        put("net %s %d %s %.9g %.9g %d %g" % ("train" if self.train else "test", self.N,
                                              dims(self.record()),
                                              self.data[0], self.data[1], self.labels,
                                              self.tolerance))
        if isinstance(self.target, torch.Tensor):
            put("given", values(self.target))
        elif self.target:
            put("target %d %.9g %.9g %s" % (count(self.bottoms[-1]), *self.target[:2],
                                            "whole" if self.target[2] else "real"))
        if carried is not None:
            put("carries %d" % carried.shape[1])
        for line in self.front() + self.layers + [line for t in heads for line in self.head(t)]:
            put(line)
        for name, value in self.inits.items():
            put("init", name, values(value))
        for k, q in enumerate(scales + self.params + weights):
            put(q.line("param", k))
        for k, q in enumerate(self.states):
            put(q.line("state", STATE + k))

    def write_results(self, put, x, p, results, tops, loss):
        for name, value in tops.items():
            put("top", name, values(value))
        for q in self.states:
            put("after", q.name, values(results[q.name + "!"]))
        if "carried!" in results:
            put("carried -", values(results["carried!"]))
        if not self.train:
            return
        for v in p:
            v.grad = None
        loss.backward()
        put("loss -", values(loss))
        for i, v in enumerate(x[:self.with_gradient()]):
            put("dx x%d" % i, values(gradient(v)))
        for q, v in zip(self.params, p):
            put("dw", q.name, values(gradient(v)))


def gradient(v):
    return v.grad if v.grad is not None else torch.zeros_like(v)


def values(v):
    v = v.detach()
    return dims(tuple(v.shape)) + " " + " ".join(number(f) for f in v.reshape(-1).tolist())


def number(f):
    text = "%.7g" % f
    return "0" if float(text) == 0.0 else text


# --- OpenCV's reader of Caffe's files as a second source of forward results -----------------

def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def caffemodel(params):
    """NetParameter.layer (100): name (1), type (2), blobs (7) of shape (7) and data (5)."""
    layers = {}
    for name, values in params:
        layer = name.rsplit(".", 1)[0]
        shape = field(1, b"".join(varint(d) for d in (values.shape or (1,))))
        data = values.detach().numpy().astype("<f4").tobytes()
        layers.setdefault(layer, []).append(field(7, field(7, shape) + field(5, data)))
    return b"".join(field(100, field(1, name.encode()) + b"".join(blobs)) for name,
                    blobs in layers.items())


def in_child(f, *args):
    """Some nets break the heap of OpenCV 4.6, which is no verdict either."""
    child = os.fork()
    if child == 0:
        os._exit(0 if f(*args) else 1)
    return os.waitpid(child, 0)[1] == 0


def opencv_agrees(case, x, blobs, tops):
    """Whether OpenCV reads the layers under test and finds the same tops. A refusal is no verdict,
    other values are: OpenCV departs from Caffe in places, and each is looked at by hand."""
    net = "".join("input: 'x%d' input_shape { %s }\n" % (i,
                                                         " ".join("dim: %d" % d for d in v.shape))
                  for i, v in enumerate(x)) + "\n".join(case.layers)
    net += "".join("layer { name: 'out.%s' type: 'Concat' bottom: '%s' top: 'out.%s' }\n" % (t, t,
                                                                                             t)
                   for t in tops)  # forward() knows layers alone by name
    model = caffemodel([(q.name, v) for q, v in blobs])
    try:
        dnn = cv2.dnn.readNetFromCaffe(np.frombuffer(net.encode(), np.uint8),
                                       np.frombuffer(model, np.uint8))
        for i, v in enumerate(x):
            dnn.setInput(v.detach().numpy().astype(np.float32), "x%d" % i)
        names = list(tops)
        got = dnn.forward(["out." + t for t in names])
    except (cv2.error, SystemError) as error:
        print("%s: OpenCV refuses: %s" % (case.name, str(error).strip().splitlines()[0][-100:]),
              file=sys.stderr)
        return False
    for name, value in zip(names, got):
        want = tops[name].detach().numpy()
        if value.size != want.size:
            print("%s: OpenCV says %s is %s, not %s" % (case.name, name, value.shape, want.shape),
                  file=sys.stderr)
            return False
        wrong = np.abs(value.reshape(-1) - want.reshape(-1)).max()
        if not wrong <= 1e-4 * np.abs(want).max() + 1e-6:
            print("%s: OpenCV differs at %s by %g" % (case.name, name, wrong), file=sys.stderr)
            return False
    return True
