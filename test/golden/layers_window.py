"""Layers that read windows: Convolution, Deconvolution, Pooling, LRN."""
import torch
import torch.nn.functional as F

from layers_common import Case, Param


def conv_layer(fields, name="conv", kind="Convolution", bottom="x0", top="y"):
    return ("layer { name: '%s' type: '%s' bottom: '%s' top: '%s' convolution_param { %s } }"
            % (name, kind, bottom, top, fields))


def conv(name, fields, x, O, kernel, stride=1, pad=0, dilation=1, groups=1, bias=True, **more):
    """Weights (O, C / groups, KH, KW)."""
    params = [Param("conv.0", (O, x[0] // groups) + kernel, 0.5)]
    if bias:
        params.append(Param("conv.1", (O,)))
    Case("conv." + name, lambda x, p: {"y": F.conv2d(x[0], p[0], p[1] if bias else None, stride,
                                                     pad,
                                                      dilation, groups)},
         [conv_layer("num_output: %d %s" % (O, fields))], [x], params, **more)


conv("plain", "kernel_size: 3", (3, 6, 5), 4, (3, 3))
conv("no-bias", "kernel_size: 3 bias_term: false", (3, 6, 5), 4, (3, 3), bias=False)
conv("pad", "kernel_size: 3 pad: 1", (2, 5, 4), 3, (3, 3), pad=1)
conv("pad-beyond", "kernel_size: 2 pad: 3", (2, 3, 4), 3, (2, 2), pad=3)
conv("stride", "kernel_size: 3 stride: 2 pad: 1", (2, 7, 6), 3, (3, 3), stride=2, pad=1)
conv("stride-over", "kernel_size: 1 stride: 3", (3, 8, 7), 4, (1, 1), stride=3)
conv("point", "kernel_size: 1", (5, 3, 4), 6, (1, 1))
conv("whole", "kernel_h: 4 kernel_w: 3", (3, 4, 3), 5, (4, 3))
conv("rectangle", "kernel_h: 2 kernel_w: 3 stride_h: 2 stride_w: 1 pad_h: 0 pad_w: 2", (2, 6, 5), 3,
     (2, 3), stride=(2, 1), pad=(0, 2))
conv("lists",
     "kernel_size: 3 kernel_size: 1 stride: 1 stride: 2 pad: 2 pad: 0 dilation: 2 dilation: 1",
     (2, 6, 5), 3, (3, 1), stride=(1, 2), pad=(2, 0), dilation=(2, 1))
conv("dilation", "kernel_size: 3 dilation: 2", (2, 7, 8), 3, (3, 3), dilation=2)
conv("dilation-pad-stride", "kernel_size: 3 dilation: 3 pad: 3 stride: 2", (2, 7, 8), 3, (3, 3),
     dilation=3, pad=3, stride=2)
conv("group", "kernel_size: 3 group: 2 pad: 1", (4, 4, 5), 6, (3, 3), pad=1, groups=2)
conv("group-each", "kernel_size: 3 group: 4 bias_term: false", (4, 5, 4), 4, (3, 3), groups=4,
     bias=False)
conv("group-each-twice", "kernel_size: 2 group: 3", (3, 4, 4), 6, (2, 2), groups=3)
conv("group-dilation-stride", "kernel_size: 3 group: 2 dilation: 2 stride: 2 pad: 2", (4, 7, 6), 4,
     (3, 3), groups=2, dilation=2, stride=2, pad=2)
conv("axis-engine", "kernel_size: 3 axis: 1 engine: CAFFE group: 1", (3, 4, 4), 2, (3, 3))
conv("axis-from-end", "kernel_size: 2 axis: -3 engine: CUDNN force_nd_im2col: true", (3, 4, 4), 2,
     (2, 2))
conv("wide", "kernel_size: 3 pad: 1", (20, 4, 4), 18, (3, 3), pad=1, N=1)
conv("one-channel", "kernel_size: 5", (1, 8, 7), 4, (5, 5), N=3)
conv("test", "kernel_size: 3 group: 2 stride: 2", (4, 6, 5), 4, (3, 3), groups=2, stride=2,
     train=False)

filled = [Param("conv.0", (2, 3, 2, 2)), Param("conv.1", (2,))]
Case("conv.fillers", lambda x, p: {"y": F.conv2d(x[0], p[0], p[1])},
     [conv_layer("num_output: 2 kernel_size: 2 weight_filler { type: 'constant' value: 0.375 }"
                 " bias_filler { value: -2 }")],
     [(3, 3, 3)], filled, inits={"conv.0": torch.full((2, 3, 2, 2), 0.375),
                                 "conv.1": torch.full((2,), -2.0)})
Case("conv.no-fillers", lambda x, p: {"y": F.conv2d(x[0], p[0], p[1])},
     [conv_layer("num_output: 2 kernel_size: 2")],
     [(3, 3, 3)], filled, inits={"conv.0": torch.zeros(2, 3, 2, 2), "conv.1": torch.zeros(2)})
Case("conv.frozen", lambda x, p: {"y": F.conv2d(x[0], p[0].detach(), p[1])},
     [conv_layer("num_output: 2 kernel_size: 2").replace("convolution_param",
                                                         "param { lr_mult: 0 } convolution_param")],
     [(3, 3, 3)], filled)
Case("conv.all-frozen", lambda x, p: {"y": F.conv2d(x[0], p[0].detach(), p[1].detach())},
     [conv_layer("num_output: 2 kernel_size: 2").replace(
         "convolution_param", "param { lr_mult: 0 } param { lr_mult: 0 } convolution_param")],
     [(3, 3, 3)], filled)


def deconv(name, fields, x, O, kernel, stride=1, pad=0, dilation=1, groups=1, bias=True, **more):
    """Weights (C, O / groups, KH, KW); size (H - 1) stride + dilation (K - 1) + 1 - 2 pad."""
    params = [Param("conv.0", (x[0], O // groups) + kernel, 0.5)]
    if bias:
        params.append(Param("conv.1", (O,)))
    Case("deconv." + name,
         lambda x, p: {"y": F.conv_transpose2d(x[0], p[0], p[1] if bias else None, stride, pad, 0,
                                               groups,
                                               dilation)},
         [conv_layer("num_output: %d %s" % (O, fields), kind="Deconvolution")], [x], params, **more)


deconv("plain", "kernel_size: 3", (3, 4, 3), 2, (3, 3))
deconv("no-bias", "kernel_size: 3 bias_term: false", (3, 4, 3), 2, (3, 3), bias=False)
deconv("stride-pad", "kernel_size: 4 stride: 2 pad: 1", (2, 4, 3), 3, (4, 4), stride=2, pad=1)
deconv("stride-over", "kernel_size: 2 stride: 3", (2, 3, 3), 3, (2, 2), stride=3)
deconv("dilation", "kernel_size: 3 dilation: 2 stride: 2", (2, 3, 4), 3, (3, 3), dilation=2,
       stride=2)
deconv("group", "kernel_size: 3 group: 2 stride: 2", (4, 3, 3), 6, (3, 3), groups=2, stride=2)
deconv("group-each", "kernel_size: 4 group: 3 stride: 2 pad: 1 bias_term: false", (3, 3, 4), 3,
       (4, 4),
       groups=3, stride=2, pad=1, bias=False)
deconv("rectangle", "kernel_h: 3 kernel_w: 2 stride_h: 1 stride_w: 2 pad_h: 1 pad_w: 0", (3, 4, 3),
       2,
       (3, 2), stride=(1, 2), pad=(1, 0))
deconv("lists",
       "kernel_size: 2 kernel_size: 3 stride: 2 stride: 1 pad: 0 pad: 2 dilation: 1 dilation: 2",
       (2, 3, 4), 3, (2, 3), stride=(2, 1), pad=(0, 2), dilation=(1, 2))
deconv("test", "kernel_size: 3 stride: 2 axis: 1 engine: CAFFE", (2, 3, 4), 3, (3, 3), stride=2,
       train=False)


def bilinear(K):
    """K × K weights with which a deconvolution interpolates."""
    f = -(-K // 2)
    c = (K - 1) / (2.0 * f)
    w = torch.tensor([1 - abs(i / f - c) for i in range(K)], dtype=torch.float64)
    return w[:, None] * w[None, :]


for K in (3, 4, 5):
    fields = ("num_output: 2 group: 2 kernel_size: %d stride: 2 bias_term: false"
              " weight_filler { type: 'bilinear' }" % K)
    Case("deconv.bilinear-%d" % K,
         lambda x, p: {"y": F.conv_transpose2d(x[0], p[0], None, 2, groups=2)},
         [conv_layer(fields, kind="Deconvolution")], [(2, 3, 3)], [Param("conv.0", (2, 1, K, K))],
         inits={"conv.0": bilinear(K).expand(2, 1, K, K)})


def pooled(size, kernel, stride, pad, up):
    n = (-(-(size + 2 * pad - kernel) // stride) if up else (size + 2 * pad - kernel) // stride) + 1
    return n - 1 if pad and (n - 1) * stride >= size + pad else n


def pool_by_definition(x, largest, kernel, stride, pad, up):
    """A window may run past the far edge by the padding at most; an average divides by its size so
    clipped, padding counted; values are those inside the image."""
    (H, W), rows = x.shape[2:], []
    for i in range(pooled(H, kernel[0], stride[0], pad[0], up)):
        row, top = [], i * stride[0] - pad[0]
        bottom = min(top + kernel[0], H + pad[0])
        for j in range(pooled(W, kernel[1], stride[1], pad[1], up)):
            left = j * stride[1] - pad[1]
            right = min(left + kernel[1], W + pad[1])
            window = x[:, :, max(top, 0):min(bottom, H), max(left, 0):min(right, W)]
            row.append(window.amax((2, 3)) if largest
                       else window.sum((2, 3)) / ((bottom - top) * (right - left)))
        rows.append(torch.stack(row, 2))
    return torch.stack(rows, 2)


def pair(v):
    return v if isinstance(v, tuple) else (v, v)


def pool(name, fields, x, kernel, stride=1, pad=0, up=True, kinds=("MAX", "AVE"), torch_can=True,
         **more):
    kernel, stride, pad = pair(kernel), pair(stride), pair(pad)

    def f(kind):
        def apply(x, p):
            y = pool_by_definition(x[0], kind == "MAX", kernel, stride, pad, up)
            if torch_can:
                other = (F.max_pool2d(x[0], kernel, stride, pad, 1, up) if kind == "MAX"
                         else F.avg_pool2d(x[0], kernel, stride, pad, up, True))
                assert other.shape == y.shape and (other - y).abs().max() < 1e-12, name
                y = other
            return {"y": y}
        return apply

    for kind in kinds:
        Case("pool.%s.%s" % (kind.lower(), name), f(kind),
             ["layer { name: 'pool' type: 'Pooling' bottom: 'x0' top: 'y'"
              " pooling_param { pool: %s %s } }" % (kind, fields)], [x],
             by="torch" if torch_can else "definition", **more)


pool("plain", "kernel_size: 2 stride: 2", (2, 6, 4), 2, 2)
pool("overlap", "kernel_size: 3 stride: 2", (2, 7, 5), 3, 2)
pool("overlap-ceil", "kernel_size: 3 stride: 2", (2, 6, 8), 3, 2)
pool("overlap-floor", "kernel_size: 3 stride: 2 round_mode: FLOOR", (2, 6, 8), 3, 2, up=False)
pool("one-step", "kernel_size: 3", (2, 4, 5), 3)
pool("pad", "kernel_size: 3 stride: 2 pad: 1", (2, 7, 6), 3, 2, 1)
pool("pad-floor", "kernel_size: 3 stride: 2 pad: 1 round_mode: FLOOR", (2, 7, 6), 3, 2, 1, up=False)
pool("pad-one-step", "kernel_size: 3 stride: 1 pad: 1", (3, 4, 5), 3, 1, 1)
pool("pad-left-out", "kernel_size: 2 stride: 2 pad: 1", (2, 5, 4), 2, 2, 1)
pool("pad-wide", "kernel_size: 3 stride: 2 pad: 2", (2, 6, 5), 3, 2, 2, torch_can=False)
pool("far-edge", "kernel_size: 5 stride: 3", (2, 9, 10), 5, 3)
pool("rectangle", "kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0", (2, 7, 4),
     (3, 2), (2, 1), (1, 0))
pool("rectangle-floor",
     "kernel_h: 2 kernel_w: 4 stride_h: 2 stride_w: 3 pad_h: 0 pad_w: 2 round_mode: FLOOR",
     (2, 5, 8), (2, 4), (2, 3), (0, 2), up=False)
pool("global", "global_pooling: true", (4, 3, 5), (3, 5))
pool("whole", "kernel_h: 3 kernel_w: 5 engine: CAFFE", (4, 3, 5), (3, 5))
pool("ties", "kernel_size: 3 stride: 2 pad: 1", (2, 6, 5), 3, 2, 1, data=(0.0, 1.0))
pool("wide", "kernel_size: 2 stride: 2", (20, 4, 3), 2, 2, N=1)
pool("test", "kernel_size: 3 stride: 2 pad: 1 engine: CUDNN", (2, 6, 7), 3, 2, 1, train=False)


def across(x, size, alpha, beta, k):
    """x / (k + alpha / size · Σ of squares over the size channels around)^beta"""
    return F.local_response_norm(x, size, alpha, beta, k)


def within(x, size, alpha, beta):
    """x · (1 + alpha / size² · Σ of squares of size × size pixels around)^-beta; no k here"""
    return x * (1 + alpha * F.avg_pool2d(x * x, size, 1, size // 2,
                                         count_include_pad=True)) ** -beta


def lrn(name, fields, x, size=5, alpha=1.0, beta=0.75, k=1.0, region=across, **more):
    f = lambda x, p: {"y": region(x[0], size, alpha, beta, *([k] if region == across else []))}
    Case("lrn." + name, f,
         ["layer { name: 'lrn' type: 'LRN' bottom: 'x0' top: 'y' lrn_param { %s } }" % fields],
         [x], by="torch" if region == across else "definition", data=(8.0, 0.0), **more)


lrn("across.default", "", (7, 3, 2))
lrn("across.alexnet", "local_size: 5 alpha: 0.0001 beta: 0.75", (8, 2, 3), 5, 1e-4)
lrn("across.fields", "local_size: 3 alpha: 0.5 beta: 0.25 k: 2 norm_region: ACROSS_CHANNELS",
    (6, 2, 3), 3,
    0.5, 0.25, 2.0)
lrn("across.odd-beta", "local_size: 3 alpha: 0.3 beta: 0.6 k: 1.5 engine: CAFFE", (5, 2, 3), 3, 0.3,
    0.6, 1.5)
lrn("across.more-than-channels", "local_size: 7 alpha: 2 engine: CUDNN", (3, 3, 2), 7, 2.0)
lrn("across.itself", "local_size: 1 alpha: 2", (3, 3, 2), 1, 2.0)
lrn("across.wide", "local_size: 5 alpha: 0.1", (19, 2, 2), 5, 0.1)
lrn("across.test", "local_size: 5 alpha: 0.1", (7, 3, 2), 5, 0.1, train=False)
lrn("within.default", "norm_region: WITHIN_CHANNEL", (2, 6, 7), region=within)
lrn("within.quick", "local_size: 3 alpha: 5e-05 beta: 0.75 norm_region: WITHIN_CHANNEL", (3, 4, 5),
    3, 5e-5,
    region=within)
lrn("within.fields", "local_size: 3 alpha: 0.5 beta: 0.4 norm_region: WITHIN_CHANNEL engine: CAFFE",
    (3, 4, 5), 3,
    0.5, 0.4, region=within)
lrn("within.test", "local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL", (3, 4, 3), 3, 0.5,
    region=within,
    train=False)
