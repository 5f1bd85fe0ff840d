"""Layers that join, split and rename, InnerProduct, and relations between layers: shared
parameters and blobs, work in place, stopped gradients."""
import torch
import torch.nn.functional as F

from layers_common import Case, Param
from layers_unit import IMAGE, MATRIX, layer


# --- Eltwise ----------------------------------------------------------------------------------

def product(b):
    return b[0] * (product(b[1:]) if len(b) > 1 else 1)


def largest(b):
    return b[0] if len(b) == 1 else torch.maximum(b[0], largest(b[1:]))


def eltwise(name, fields, n, f, x=IMAGE, **more):
    Case("eltwise." + name, lambda b, p: {"y": f(b)},
         [layer("Eltwise", "eltwise_param", fields, ["x%d" % i for i in range(n)])], [x] * n,
         **more)


for x, what in ((IMAGE, ""), (MATRIX, ".matrix")):
    eltwise("default" + what, "", 2, sum, x)
    eltwise("sum-3" + what, "operation: SUM", 3, sum, x)
    eltwise("coeff" + what, "operation: SUM coeff: 0.5 coeff: -1.25", 2,
            lambda b: 0.5 * b[0] - 1.25 * b[1], x)
    eltwise("prod" + what, "operation: PROD", 2, product, x)
    eltwise("prod-3" + what, "operation: PROD", 3, product, x)
    eltwise("max" + what, "operation: MAX", 2, largest, x)
    eltwise("max-3" + what, "operation: MAX", 3, largest, x)
eltwise("coeff-3", "operation: SUM coeff: 2 coeff: 0 coeff: -0.1", 3,
        lambda b: 2 * b[0] - 0.1 * b[2])
eltwise("prod-3-quick", "operation: PROD stable_prod_grad: false", 3, product)
eltwise("wide", "operation: SUM coeff: 1 coeff: -1", 2, lambda b: b[0] - b[1], (18, 3, 2))
eltwise("sum.test", "operation: SUM", 3, sum, train=False)
eltwise("max.test", "operation: MAX", 3, largest, train=False)
# Of equal values the second bottom's is the largest, but a later one must be larger.
Case("eltwise.max-ties", lambda b, p: {"y": b[1] + 0 * b[0] + 0 * b[2]},
     [layer("Eltwise", "eltwise_param", "operation: MAX", ["x0", "x1", "x2"])], [IMAGE] * 3,
     data=(0.0, 1.0), by="definition")
for what, f in (("SUM", lambda b: 2 * b[0]), ("PROD", lambda b: b[0] ** 2)):
    Case("eltwise.itself.%s" % what.lower(), lambda b, p, f=f: {"y": f(b)},
         [layer("Eltwise", "eltwise_param", "operation: " + what, ["x0", "x0"])], [IMAGE])
Case("eltwise.propagate-down", lambda b, p: {"y": b[0] * b[1].detach()},
     [layer("Eltwise", "eltwise_param", "operation: PROD", ["x0", "x1"],
            more="propagate_down: true propagate_down: false")], [IMAGE, IMAGE])
Case("eltwise.propagate-down-beside",
     lambda b, p: {"y": b[0] * b[1].detach(), "z": torch.abs(b[1])},
     [layer("Eltwise", "eltwise_param", "operation: PROD", ["x0", "x1"],
            more="propagate_down: true propagate_down: false"),
      layer("AbsVal", bottoms=["x1"], top="z", name="b")], [IMAGE, IMAGE])


# --- Concat, Slice, Split ---------------------------------------------------------------------

def concat(name, fields, shapes, axis, **more):
    Case("concat." + name, lambda b, p: {"y": torch.cat(b, axis)},
         [layer("Concat", "concat_param", fields, ["x%d" % i for i in range(len(shapes))])], shapes,
         **more)


concat("default", "", [(3, 4, 2), (2, 4, 2)], 1)
concat("3-channels", "axis: 1", [(1, 2, 3), (4, 2, 3), (2, 2, 3)], 1)
concat("rows", "axis: 2", [(2, 3, 4), (2, 1, 4)], 2)
concat("columns", "axis: -1", [(2, 3, 1), (2, 3, 4), (2, 3, 2)], 3)
concat("from-end", "axis: -3", [(3, 2, 2), (2, 2, 2)], 1)
concat("older-field", "concat_dim: 3", [(2, 3, 1), (2, 3, 2)], 3)
concat("matrix", "axis: 1", [(4,), (3,)], 1)
concat("matrix-from-end", "axis: -1", [(2,), (5,), (1,)], 1)
concat("five", "axis: 2", [(2, 1, 3, 2), (2, 2, 3, 2)], 2)
concat("one", "", [IMAGE], 1)
concat("wide", "", [(16, 2, 2), (3, 2, 2), (8, 2, 2)], 1)
concat("test", "axis: 2", [(2, 3, 4), (2, 1, 4)], 2, train=False)
Case("concat.itself", lambda b, p: {"y": torch.cat([b[0], b[1], b[0]], 1)},
     [layer("Concat", "", "", ["x0", "x1", "x0"])], [(3, 4, 2), (2, 4, 2)])


def cut(name, fields, x, axis, sizes, **more):
    tops = ["y%d" % i for i in range(len(sizes))]
    Case("slice." + name, lambda b, p: dict(zip(tops, torch.split(b[0], sizes, axis))),
         [layer("Slice", "slice_param", fields, top="' top: '".join(tops))], [x], **more)


cut("default", "", (4, 3, 2), 1, [2, 2])
cut("points", "slice_point: 1 slice_point: 4", (5, 3, 2), 1, [1, 3, 1])
cut("rows", "axis: 2 slice_point: 3", (2, 4, 3), 2, [3, 1])
cut("columns", "axis: -1", (2, 2, 6), 3, [2, 2, 2])
cut("older-field", "slice_dim: 2", (2, 4, 3), 2, [2, 2])
cut("matrix", "axis: 1 slice_point: 2", (7,), 1, [2, 5])
cut("five", "axis: 3 slice_point: 1", (2, 3, 3, 2), 3, [1, 2])
cut("one", "", (3, 2, 2), 1, [3])
cut("wide", "slice_point: 16 slice_point: 17", (20, 2, 2), 1, [16, 1, 3])
cut("test", "axis: 2 slice_point: 3", (2, 4, 3), 2, [3, 1], train=False)
cut("part-unused", "slice_point: 1 slice_point: 4", (5, 3, 2), 1, [1, 3, 1], heads=["y1"])

for n, x in ((2, IMAGE), (3, MATRIX)):
    tops = ["y%d" % i for i in range(n)]
    Case("split.%d" % n, lambda b, p, tops=tops: {t: b[0] * 1.0 for t in tops},
         [layer("Split", top="' top: '".join(tops))], [x])
Case("split.by-use", lambda b, p: {"y0": torch.tanh(b[0]), "y1": b[0] ** 2, "y2": torch.abs(b[0])},
     [layer("TanH", top="y0", name="a"), layer("Power", "power_param", "power: 2", top="y1",
                                               name="b"),
      layer("AbsVal", top="y2", name="c")], [IMAGE])


# --- Flatten, Reshape -------------------------------------------------------------------------

def reshaped(name, kind, message, fields, x, shape, **more):
    Case(name, lambda b, p: {"y": b[0].reshape((b[0].shape[0],) + shape)},
         [layer(kind, message, fields)], [x], **more)


def flatten(name, fields, x, shape, **more):
    reshaped("flatten." + name, "Flatten", "flatten_param", fields, x, shape, **more)


def reshape(name, fields, x, shape, **more):
    reshaped("reshape." + name, "Reshape", "reshape_param", fields, x, shape, **more)


flatten("default", "", (3, 4, 2), (24,))
flatten("matrix", "", MATRIX, MATRIX)
flatten("rows", "axis: 2", (3, 4, 2), (3, 8))
flatten("part", "axis: 1 end_axis: 2", (3, 4, 2), (12, 2))
flatten("from-end", "axis: -3 end_axis: -2", (3, 4, 2), (12, 2))
flatten("none", "axis: 2 end_axis: 2", (3, 4, 2), (3, 4, 2))
flatten("five", "axis: 2 end_axis: 3", (2, 3, 2, 2), (2, 6, 2))
flatten("test", "axis: 1", (3, 4, 2), (24,), train=False)
reshape("image", "shape { dim: 0 dim: 2 dim: 6 dim: 2 }", (3, 4, 2), (2, 6, 2))
reshape("left", "shape { dim: 0 dim: -1 dim: 2 dim: 3 }", (3, 4, 2), (4, 2, 3))
reshape("kept", "shape { dim: 0 dim: 0 dim: -1 }", (3, 4, 2), (3, 8))
reshape("matrix", "shape { dim: 0 dim: -1 }", (3, 4, 2), (24,))
reshape("from-matrix", "shape { dim: 0 dim: 3 dim: 2 dim: 2 }", (12,), (3, 2, 2))
reshape("axis", "shape { dim: 2 dim: -1 } axis: 1", (3, 4, 2), (2, 12))
reshape("part", "shape { dim: 2 dim: 6 } axis: 1 num_axes: 2", (3, 4, 2), (2, 6, 2))
reshape("put-in", "shape { dim: 1 } axis: 2 num_axes: 0", (3, 4), (3, 1, 4))
reshape("put-at-end", "shape { dim: 1 dim: 1 } axis: -1 num_axes: 0", (6,), (6, 1, 1))
reshape("from-end", "shape { dim: 8 } axis: -3 num_axes: 2", (3, 4, 2), (3, 8))
reshape("kept-in-part", "shape { dim: 0 dim: -1 dim: 2 } axis: 2 num_axes: 2", (3, 4, 2),
        (3, 4, 1, 2))
reshape("same", "shape { dim: 0 dim: 0 dim: 0 dim: 0 }", (3, 4, 2), (3, 4, 2))
reshape("test", "shape { dim: 0 dim: 2 dim: 6 dim: 2 }", (3, 4, 2), (2, 6, 2), train=False)


# --- InnerProduct -----------------------------------------------------------------------------

def inner(name, fields, x, O, I, axis=1, transpose=False, bias=True, **more):
    params = [Param("unit.0", (I, O) if transpose else (O, I))] + ([Param("unit.1",
                                                                          (O,))] if bias else [])
    Case("inner." + name,
         lambda b, p: {"y": F.linear(b[0].flatten(axis), p[0].T if transpose else p[0],
                                     p[1] if bias else None)},
         [layer("InnerProduct", "inner_product_param", "num_output: %d %s" % (O, fields))], [x],
         params, **more)


inner("plain", "", MATRIX, 5, 7)
inner("image", "axis: 1", (3, 4, 2), 5, 24)
inner("no-bias", "bias_term: false", (3, 4, 2), 5, 24, bias=False)
inner("transpose", "transpose: true", MATRIX, 5, 7, transpose=True)
inner("transpose-image", "transpose: true bias_term: false", (3, 4, 2), 5, 24, transpose=True,
      bias=False)
inner("rows", "axis: 2", (3, 4, 2), 5, 8, axis=2)
inner("last", "axis: -1", (3, 4, 2), 5, 2, axis=3)
inner("rows-transpose", "axis: 2 transpose: true", (3, 4), 5, 4, axis=2, transpose=True)
inner("point", "", (6, 1, 1), 4, 6)
inner("one", "", MATRIX, 1, 7, N=5)
inner("wide", "", (20, 2, 1), 18, 40)
inner("fillers", "weight_filler { value: 0.25 } bias_filler { value: 0.75 }", MATRIX, 2, 7,
      inits={"unit.0": torch.full((2, 7), 0.25), "unit.1": torch.full((2,), 0.75)})
inner("no-fillers", "", MATRIX, 2, 7, inits={"unit.0": torch.zeros(2, 7), "unit.1": torch.zeros(2)})
inner("test", "transpose: true", (3, 4, 2), 5, 24, transpose=True, train=False)
inner("rows.test", "axis: 2", (3, 4, 2), 5, 8, axis=2, train=False)


# --- between layers ---------------------------------------------------------------------------

def fc(name, bottom, top, O, more="", fields=""):
    return layer("InnerProduct", "inner_product_param", "num_output: %d %s" % (O, fields), [bottom],
                 top, name, more)


Case("shared.weights", lambda b, p: {"h": F.linear(b[0], p[0], p[1]),
                                     "y": F.linear(F.linear(b[0], p[0], p[1]), p[0], p[2])},
     [fc("a", "x0", "h", 7, "param { name: 'w' }"), fc("b", "h", "y", 7, "param { name: 'w' }")],
     [MATRIX], [Param("a.0", (7, 7)), Param("a.1", (7,)), Param("b.1", (7,))], heads=["y"],
     opencv=False)
Case("shared.siamese", lambda b, p: {"y0": F.conv2d(b[0], p[0], p[1]),
                                     "y1": F.conv2d(b[1], p[0], p[1])},
     [layer("Convolution", "convolution_param", "num_output: 4 kernel_size: 2", ["x%d" % i],
            "y%d" % i, "conv%d" % i,
            "param { name: 'w' share_mode: STRICT } param { name: 'b' }") for i in (0, 1)],
     [IMAGE, IMAGE], [Param("conv0.0", (4, 3, 2, 2)), Param("conv0.1", (4,))], opencv=False)
Case("shared.permissive",
     lambda b, p: {"y0": F.conv2d(b[0], p[0]),
                   "y1": F.linear(b[0].flatten(1), p[0].reshape(4, 24))},
     [layer("Convolution", "convolution_param",
            "num_output: 4 kernel_h: 4 kernel_w: 2 bias_term: false", ["x0"], "y0", "a",
            "param { name: 'w' share_mode: PERMISSIVE }"),
      fc("b", "x0", "y1", 4, "param { name: 'w' share_mode: PERMISSIVE }", "bias_term: false")],
     [IMAGE], [Param("a.0", (4, 3, 4, 2))], opencv=False)
Case("shared.within", lambda b, p: {"y": b[0] * spread_channels(p[0]) + spread_channels(p[0])},
     [layer("Scale", "scale_param", "bias_term: true",
            more="param { name: 'w' } param { name: 'w' }")],
     [IMAGE], [Param("unit.0", (3,))], opencv=False)


Case("silence", lambda b, p: {"h": torch.tanh(b[0]), "y": torch.abs(b[0])},
     [layer("TanH", top="h", name="a"), layer("AbsVal", name="b"),
      "layer { name: 'c' type: 'Silence' bottom: 'h' bottom: 'label' }"], [IMAGE], heads=["y"],
     opencv=False)


def spread_channels(w):
    return w.reshape(1, -1, 1, 1)


def conv3(x, p):
    return F.conv2d(x, p, padding=1)


C3 = "num_output: 3 kernel_size: 3 pad: 1 bias_term: false"


def conv_in(bottom, top, name):
    return layer("Convolution", "convolution_param", C3, [bottom], top, name)


Case("in-place.chain",
     lambda b, p: {"y": torch.abs(torch.tanh(F.leaky_relu(conv3(b[0], p[0]), 0.25)))},
     [conv_in("x0", "y", "conv"),
      layer("ReLU", "relu_param", "negative_slope: 0.25", ["y"], "y", "a"),
      layer("TanH", "", "", ["y"], "y", "b"), layer("AbsVal", "", "", ["y"], "y", "c")],
     [IMAGE], [Param("conv.0", (3, 3, 3, 3), 0.5)])
Case("in-place.before-conv",
     lambda b, p: {"x0": torch.sigmoid(torch.relu(b[0])),
                   "y": conv3(torch.sigmoid(torch.relu(b[0])), p[0])},
     [layer("ReLU", "", "", ["x0"], "x0", "a"), layer("Sigmoid", "", "", ["x0"], "x0", "b"),
      conv_in("x0", "y", "conv")],
     [IMAGE], [Param("conv.0", (3, 3, 3, 3), 0.5)], heads=["y"])
Case("in-place.after-branch",
     lambda b, p: {"y": conv3(b[0], p[0]) * torch.relu(b[0]), "h": conv3(b[0], p[0]),
                   "x0": torch.relu(b[0])},
     [conv_in("x0", "h", "conv"), layer("ReLU", "", "", ["x0"], "x0", "a"),
      layer("Eltwise", "eltwise_param", "operation: PROD", ["h", "x0"], "y", "b")],
     [IMAGE], [Param("conv.0", (3, 3, 3, 3), 0.5)], heads=["y"])


def residual(b, p, s):
    h = conv3(b[0], p[0])
    m = h.numel() // 3
    after = [s[0] + h.mean((0, 2, 3)), s[1] + h.var((0, 2, 3), unbiased=False) * m / (m - 1),
             s[2] + 1]
    h = F.batch_norm(h, None, None, p[1], p[2], training=True, eps=0.01)
    g = conv3(torch.relu(h), p[3])
    return {"h": torch.relu(h), "g": g, "y": torch.relu(b[0] + g),
            **{"bn.%d!" % k: v for k, v in enumerate(after)}}


Case("in-place.residual", residual,
     [conv_in("x0", "h", "conv"),
      layer("BatchNorm", "batch_norm_param", "eps: 0.01 moving_average_fraction: 1", ["h"], "h",
            "bn"),
      layer("Scale", "scale_param", "bias_term: true", ["h"], "h", "scale"),
      layer("ReLU", "", "", ["h"], "h", "relu"),
      conv_in("h", "g", "conv2"), layer("Eltwise", "", "", ["x0", "g"], "y", "sum"),
      layer("ReLU", "", "", ["y"], "y", "relu2")],
     [IMAGE],
     [Param("conv.0", (3, 3, 3, 3), 0.5), Param("scale.0", (3,), 1.0, 1.0), Param("scale.1", (3,)),
      Param("conv2.0", (3, 3, 3, 3), 0.5)], heads=["y"], opencv=False,
     states=[Param("bn.0", (3,)), Param("bn.1", (3,)), Param("bn.2", (1,))])
