"""Layers of values one by one or by channel: activations, Softmax, Scale, Bias, BatchNorm."""
import math

import torch
import torch.nn.functional as F

from layers_common import Case, Param

IMAGE, MATRIX = (3, 4, 2), (7,)


def layer(kind, message="", fields="", bottoms=("x0",), top="y", name="unit", more=""):
    text = "%s { %s }" % (message, fields) if message else ""
    return "layer { name: '%s' type: '%s' %s top: '%s' %s %s }" % (
        name, kind, " ".join("bottom: '%s'" % b for b in bottoms), top, text, more)


def unit(name, kind, message, fields, f, data=(4.0, 0.0), params=(), x=IMAGE, in_place=False,
         **more):
    top = "x0" if in_place else "y"
    Case(name, lambda b, p: {top: f(b[0], *p)}, [layer(kind, message, fields, top=top)], [x],
         params, data=data,
         **more)


def everywhere(name, *args, **more):
    """An image, a matrix, in place, and a test."""
    unit(name + ".image", *args, **more)
    unit(name + ".matrix", *args, x=MATRIX, **more)
    unit(name + ".in-place", *args, in_place=True, **more)
    unit(name + ".test", *args, train=False, **more)


everywhere("relu.plain", "ReLU", "relu_param", "", torch.relu)
everywhere("relu.slope", "ReLU", "relu_param", "negative_slope: 0.1",
           lambda x: F.leaky_relu(x, 0.1))
unit("relu.engine", "ReLU", "relu_param", "engine: CAFFE negative_slope: -0.5",
     lambda x: F.leaky_relu(x, -0.5))
# With a slope down on both sides, the sign does not reveal the overwritten value.
unit("relu.down.in-place", "ReLU", "relu_param", "negative_slope: -0.5",
     lambda x: F.leaky_relu(x, -0.5), in_place=True)
unit("elu.down.in-place", "ELU", "elu_param", "alpha: -0.5", lambda x: F.elu(x, -0.5),
     in_place=True)
unit("relu.no-message", "ReLU", "", "", torch.relu, x=(20, 3, 2))
everywhere("elu.plain", "ELU", "elu_param", "", F.elu)
everywhere("elu.alpha", "ELU", "elu_param", "alpha: 0.3", lambda x: F.elu(x, 0.3))
everywhere("sigmoid", "Sigmoid", "sigmoid_param", "engine: CUDNN", torch.sigmoid, data=(12.0, 0.0))
everywhere("tanh", "TanH", "tanh_param", "engine: CAFFE", torch.tanh, data=(6.0, 0.0))
everywhere("absval", "AbsVal", "", "", torch.abs)
everywhere("clip", "Clip", "clip_param", "min: -0.75 max: 1.5", lambda x: torch.clamp(x, -0.75, 1.5))
for kind, message, fields, f in (
        ("ReLU", "", "", torch.relu), ("ReLU", "relu_param", "negative_slope: 0.1",
                                       lambda x: F.leaky_relu(x, 0.1)),
        ("ELU", "elu_param", "alpha: 0.3", lambda x: F.elu(x, 0.3)), ("AbsVal", "", "", torch.abs)):
    unit("%s%s.of-zero" % (kind.lower(), ".fields" if fields else ""), kind, message, fields, f,
         data=(0.0, 0.0))
for kind, f in (("Sigmoid", torch.sigmoid), ("TanH", torch.tanh)):
    unit("%s.far" % kind.lower(), kind, "", "", f, data=(240.0, 0.0))

everywhere("power.default", "Power", "power_param", "", lambda x: x * 1.0)
everywhere("power.linear", "Power", "power_param", "scale: -0.5 shift: 0.25",
           lambda x: 0.25 - 0.5 * x)
everywhere("power.square", "Power", "power_param", "power: 2 scale: 0.5 shift: 1.25",
           lambda x: (1.25 + 0.5 * x) ** 2)
everywhere("power.root", "Power", "power_param", "power: 0.5 scale: 0.25 shift: 1",
           lambda x: (1 + 0.25 * x) ** 0.5)
unit("power.square-alone", "Power", "power_param", "power: 2", lambda x: x ** 2)
unit("power.cube", "Power", "power_param", "power: 3 scale: 2 shift: -0.5",
     lambda x: (2 * x - 0.5) ** 3)
unit("power.cube-no-shift", "Power", "power_param", "power: 3 scale: 2", lambda x: (2 * x) ** 3)
unit("power.inverse", "Power", "power_param", "power: -1 shift: 3", lambda x: 1 / (3 + x))
unit("power.minus-three-quarters", "Power", "power_param", "power: -0.75 scale: 0.2 shift: 1",
     lambda x: (1 + 0.2 * x) ** -0.75)
unit("power.zeroth", "Power", "power_param", "power: 0 scale: 2 shift: 1",
     lambda x: (1 + 2 * x) ** 0)
unit("power.of-constant", "Power", "power_param", "power: 2 scale: 0 shift: 1.5",
     lambda x: (1.5 + 0 * x) ** 2)

everywhere("exp.default", "Exp", "exp_param", "", torch.exp)
everywhere("exp.two", "Exp", "exp_param", "base: 2 scale: 0.5 shift: -1",
           lambda x: 2 ** (0.5 * x - 1))
unit("exp.less-than-one", "Exp", "exp_param", "base: 0.25 scale: 0.5", lambda x: 0.25 ** (0.5 * x))
unit("exp.shift", "Exp", "exp_param", "shift: 0.5", lambda x: torch.exp(x + 0.5))
everywhere("log.default", "Log", "log_param", "", torch.log, data=(2.0, 2.0))
everywhere("log.ten", "Log", "log_param", "base: 10 scale: 0.5 shift: 1.5",
           lambda x: torch.log(1.5 + 0.5 * x) / math.log(10))
unit("log.less-than-one", "Log", "log_param", "base: 0.5 shift: 4",
     lambda x: torch.log(4 + x) / math.log(0.5))
unit("log.scale", "Log", "log_param", "scale: -2", lambda x: torch.log(-2 * x), data=(2.0, -2.0))

for shared in (False, True):
    for x, what in ((IMAGE, "image"), (MATRIX, "matrix"), ((18, 2, 3), "wide")):
        w = Param("unit.0", () if shared else (x[0],))
        fields = "channel_shared: %s" % str(shared).lower()
        for in_place in (False, True):
            unit("prelu.%s.%s%s" % ("shared" if shared else "own", what,
                                    ".in-place" if in_place else ""), "PReLU",
                 "prelu_param", fields, lambda x, w: F.prelu(x, w.reshape(-1)), params=[w], x=x,
                 in_place=in_place)
unit("prelu.of-zero", "PReLU", "", "", lambda x, w: F.prelu(x, w), params=[Param("unit.0", (3,))],
     data=(0.0, 0.0))
unit("prelu.filler", "PReLU", "prelu_param", "filler { value: 0.125 }", lambda x, w: F.prelu(x, w),
     params=[Param("unit.0", (3,))], inits={"unit.0": torch.full((3,), 0.125)})
unit("prelu.no-filler", "PReLU", "", "", lambda x, w: F.prelu(x, w), params=[Param("unit.0", (3,))],
     inits={"unit.0": torch.full((3,), 0.25)})
unit("prelu.default.test", "PReLU", "", "", lambda x, w: F.prelu(x, w),
     params=[Param("unit.0", (3,))], train=False)

# Dropout is a copy when testing; its training has a test of its own.
unit("dropout.test", "Dropout", "dropout_param", "dropout_ratio: 0.25", lambda x: x * 1.0,
     train=False)
unit("dropout.test.in-place", "Dropout", "", "", lambda x: x * 1.0, train=False, in_place=True)

for axis, x in ((1, MATRIX), (1, (5, 3, 2)), (2, (3, 5, 2)), (-1, (3, 2, 5)), (1, (6, 1, 1)),
                (1, (4, 6)),
                (-1, (4, 6)), (3, (2, 3, 2, 4))):
    unit("softmax.%d-of-%s" % (axis, "x".join(map(str, x))), "Softmax", "softmax_param",
         "" if axis == 1 else "axis: %d" % axis, lambda x, axis=axis: torch.softmax(x, axis), x=x)
unit("softmax.far", "Softmax", "", "", lambda x: torch.softmax(x, 1), x=(5, 3, 2), data=(60.0, 0.0))
unit("softmax.test", "Softmax", "softmax_param", "engine: CAFFE", lambda x: torch.softmax(x, 1),
     x=MATRIX, train=False)
unit("softmax.image.test", "Softmax", "softmax_param", "engine: CUDNN axis: 1",
     lambda x: torch.softmax(x, 1),
     x=(5, 3, 2), train=False)
unit("softmax.in-place", "Softmax", "", "", lambda x: torch.softmax(x, 1), x=(5, 3, 2),
     in_place=True)


# --- Scale and Bias ---------------------------------------------------------------------------

def spread(w, x, axis):
    """w's dimensions are x's from axis on."""
    axis = axis % x.dim() if w.dim() else 0
    return w.reshape((1,) * axis + tuple(w.shape) + (1,) * (x.dim() - axis - w.dim()))


def scale(name, fields, shape, axis=1, bias=False, x=IMAGE, in_place=False, **more):
    params = [Param("unit.0", shape, 1.0, 1.0)] + ([Param("unit.1", shape)] if bias else [])
    top = "x0" if in_place else "y"
    Case("scale." + name,
         lambda b, p: {top: b[0] * spread(p[0], b[0],
                                          axis) + (spread(p[1], b[0], axis) if bias else 0)},
         [layer("Scale", "scale_param", fields, top=top)], [x], params, **more)


def bias(name, fields, shape, axis=1, x=IMAGE, in_place=False, **more):
    top = "x0" if in_place else "y"
    Case("bias." + name, lambda b, p: {top: b[0] + spread(p[0], b[0], axis)},
         [layer("Bias", "bias_param", fields, top=top)], [x], [Param("unit.0", shape)], **more)


for in_place in (False, True):
    tail = ".in-place" if in_place else ""
    scale("channel" + tail, "", (3,), in_place=in_place)
    scale("channel-bias" + tail, "bias_term: true", (3,), bias=True, in_place=in_place)
    bias("channel" + tail, "", (3,), in_place=in_place)
scale("matrix", "bias_term: true axis: 1 num_axes: 1", (7,), bias=True, x=MATRIX)
scale("rows", "axis: 2 bias_term: true", (4,), 2, bias=True)
scale("last", "axis: -1", (2,), -1)
scale("two-axes", "num_axes: 2 bias_term: true", (3, 4), bias=True)
scale("last-two", "axis: 2 num_axes: 2", (4, 2), 2)
scale("all-axes", "axis: 1 num_axes: -1 bias_term: true", (3, 4, 2), bias=True)
scale("all-from-two", "axis: -2 num_axes: -1", (4, 2), 2)
scale("scalar", "num_axes: 0 bias_term: true", (), bias=True)
scale("wide", "bias_term: true", (21,), bias=True, x=(21, 3, 2))
scale("five", "axis: 2 bias_term: true", (2,), 2, bias=True, x=(3, 2, 2, 2))
scale("test", "bias_term: true", (3,), bias=True, train=False)
scale("rows.test.in-place", "axis: 2 bias_term: true", (4,), 2, bias=True, train=False,
      in_place=True)
scale("fillers", "bias_term: true filler { value: 0.5 } bias_filler { value: -3 }", (3,), bias=True,
      inits={"unit.0": torch.full((3,), 0.5), "unit.1": torch.full((3,), -3.0)})
scale("no-fillers", "bias_term: true", (3,), bias=True,
      inits={"unit.0": torch.ones(3), "unit.1": torch.zeros(3)})
bias("filler", "filler { type: 'constant' value: 1.5 }", (3,),
     inits={"unit.0": torch.full((3,), 1.5)})
bias("no-filler", "", (3,), inits={"unit.0": torch.zeros(3)})
bias("matrix", "axis: 1 num_axes: 1", (7,), x=MATRIX)
bias("rows", "axis: 2", (4,), 2)
bias("two-axes", "num_axes: 2", (3, 4))
bias("all-axes", "axis: -3 num_axes: -1", (3, 4, 2))
bias("scalar", "num_axes: 0", ())
bias("rows.test.in-place", "axis: 2", (4,), 2, train=False, in_place=True)


def by_bottom(name, kind, message, fields, shapes, f, **more):
    Case(name, lambda b, p: {"y": f(b[0], spread(b[1], b[0], 0))},
         [layer(kind, message, fields, ("x0", "x1"))],
         shapes, **more)


times, plus = lambda x, w: x * w, lambda x, w: x + w
for kind, message, f in (("Scale", "scale_param", times), ("Bias", "bias_param", plus)):
    what = kind.lower() + ".by-bottom."
    by_bottom(what + "channels", kind, message, "axis: 0", [IMAGE, (3,)], f)
    by_bottom(what + "rows", kind, message, "axis: 0", [IMAGE, (3, 4)], f)
    by_bottom(what + "all", kind, message, "axis: 0", [IMAGE, IMAGE], f)
    by_bottom(what + "matrix", kind, message, "axis: 0", [MATRIX, MATRIX], f)
    by_bottom(what + "channels.test", kind, message, "axis: 0", [IMAGE, (3,)], f, train=False)


# --- BatchNorm --------------------------------------------------------------------------------

def batch_norm(name, fields, x, eps=1e-5, fraction=0.999, by_state=False, count=1.5, in_place=False,
               more_text="", N=3, **more):
    """State: sums of means, of variances by m - 1 and of ones, faded by `fraction` each pass."""
    C, top = x[0], "x0" if in_place else "y"
    states = [Param("unit.0", (C,), 1.0 if count else 0.0),
              Param("unit.1", (C,), 1.0 if count else 0.0, count),
              Param("unit.2", (1,), 0.0, count)]

    def f(b, p, s):
        around, m = [d for d in range(b[0].dim()) if d != 1], b[0].numel() // C
        mean, variance = b[0].mean(around), b[0].var(around, unbiased=False)
        after = [fraction * s[0] + mean, fraction * s[1] + variance * m / max(m - 1, 1),
                 fraction * s[2] + 1]
        if not more.get("train", True):
            after = s  # where Paceline departs from Caffe: a test changes nothing
        if by_state:
            after, divisor = s, s[2] if count else 1.0
            mean, variance = s[0] / divisor, s[1] / divisor
        y = (b[0] - spread(mean, b[0], 1)) / (spread(variance, b[0], 1) + eps).sqrt()
        if not by_state and m > 1:
            own = F.batch_norm(b[0], None, None, training=True, eps=eps)
            assert (own - y).abs().max() < 1e-12
        return {top: y, **{q.name + "!": v for q, v in zip(states, after)}}

    Case("batch-norm." + name, f, [layer("BatchNorm", "batch_norm_param", fields, top=top,
                                         more=more_text)], [x],
         states=states, N=N, opencv=by_state, **more)


lr = "param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 }"
for in_place in (False, True):
    tail = ".in-place" if in_place else ""
    batch_norm("train" + tail, "", IMAGE, in_place=in_place)
    batch_norm("train-matrix" + tail, "eps: 0.01", MATRIX, 0.01, in_place=in_place)
    batch_norm("global" + tail, "use_global_stats: true eps: 0.001", IMAGE, 1e-3, by_state=True,
               in_place=in_place)
    batch_norm("test" + tail, "", IMAGE, by_state=True, train=False, in_place=in_place)
batch_norm("train-fraction", "moving_average_fraction: 0.75 eps: 0.5 use_global_stats: false",
           IMAGE, 0.5, 0.75,
           more_text=lr)
batch_norm("train-wide", "moving_average_fraction: 0.5", (19, 2, 3), fraction=0.5)
batch_norm("train-first", "moving_average_fraction: 0.9", IMAGE, fraction=0.9, count=0.0)
batch_norm("train-one-value", "eps: 0.25", MATRIX, 0.25, N=1)
batch_norm("global-matrix", "use_global_stats: true", MATRIX, by_state=True)
batch_norm("test-matrix", "use_global_stats: true eps: 0.25", MATRIX, 0.25, by_state=True,
           train=False, more_text=lr)
batch_norm("test-by-batch", "use_global_stats: false moving_average_fraction: 0.5", IMAGE,
           fraction=0.5, train=False)
batch_norm("test-fresh", "eps: 0.25", IMAGE, 0.25, by_state=True, count=0.0, train=False)
