#!/usr/bin/env python3
"""Makes the seeds of the fuzzers, test/fuzz/corpus/NAME/*: small files that readers take, and some
that they refuse; and their words, test/fuzz/dict/NAME.dict. Needs numpy and OpenCV, for JPEGs
alone. Run again, it makes the same bytes.

  python3 test/fuzz/corpus.py
"""
import csv
import gzip
import io
import json
import pathlib
import re
import struct
import tarfile
import zipfile
import zlib

import cv2
import numpy

HERE = pathlib.Path(__file__).parent
ROOT = HERE / "corpus"


def put(name, seed, content):
    path = ROOT / name / seed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


# ---- codes of vectors ----


def topk(count, indices, values, room):
    fill = [0] * room
    return struct.pack(f"<I{2 * room}H", count, *(indices + fill)[:room], *(values + fill)[:room])


def codecs():
    put("codec", "f32", struct.pack("<BHff", 0, 2, 1.5, -3))
    put("codec", "bf16", struct.pack("<BHHHHH", 1, 3, 0x3F80, 0xC040, 0x7FC0, 0))
    put("codec", "int8", struct.pack("<BHfbbbb", 2, 3, 0.5, 127, -3, 0, 0))
    put("codec", "topk16", struct.pack("<BH", 3, 40) + topk(2, [3, 39], [0x4040, 0xC080], 3))
    put("codec", "topk64", struct.pack("<BH", 4, 64) + topk(1, [0], [0x7F80], 1))
    put("codec", "beyond", struct.pack("<BH", 3, 40) + topk(2, [3, 40], [0x4040, 0xC080], 3))
    put("codec", "falling", struct.pack("<BH", 3, 40) + topk(2, [9, 3], [0x4040, 0xC080], 3))
    put("codec", "too_many", struct.pack("<BH", 3, 40) + topk(4, [3, 9], [0x4040, 0xC080], 3))


# ---- protobuf's wire format ----


def varint(value):
    out = b""
    value &= (1 << 64) - 1
    while value > 127:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def fixed(field, value):
    return varint(field << 3 | 5) + struct.pack("<f", value)


def floats(n):
    return struct.pack(f"<{n}f", *[0.25 * k - 1 for k in range(n)])


def shape(*dims):
    return block(1, b"".join(varint(d) for d in dims))


def count(dims):
    n = 1
    for dim in dims:
        n *= dim
    return n


def blob(*dims):
    return block(5, floats(count(dims))) + block(7, shape(*dims))


def blob_old(*dims):
    head = b"".join(number(k + 1, dim) for k, dim in enumerate(dims))
    return head + b"".join(fixed(5, 0.5 * k) for k in range(count(dims)))


def blob_double(*dims):
    values = struct.pack(f"<{count(dims)}d", *range(count(dims)))
    return block(8, values) + block(7, shape(*dims))


def layer(name, kind, bottoms, tops, more=b""):
    out = block(1, name) + block(2, kind)
    out += b"".join(block(3, b) for b in bottoms) + b"".join(block(4, t) for t in tops)
    return block(100, out + more)


def layer_v1(name, kind, bottoms, tops, more=b""):
    out = b"".join(block(2, b) for b in bottoms) + b"".join(block(3, t) for t in tops)
    return block(2, out + block(4, name) + number(5, kind) + more)


INPUT = layer("data", "Input", [], ["data", "label"],
              block(143, block(1, shape(1, 1, 4, 4)) + block(1, shape(1))))
CONV = block(106, number(1, 2) + number(4, 3))
INNER = block(117, number(1, 3))
LOSS = layer("loss", "SoftmaxWithLoss", ["ip", "label"], ["loss"])


def caffemodel():
    conv = block(7, blob(2, 1, 3, 3)) + block(7, blob(2)) + CONV
    norm = block(7, blob(2)) + block(7, blob(2)) + block(7, blob(1))
    inner = block(7, blob(3, 8)) + block(7, blob(3)) + INNER
    put("caffemodel", "whole", block(1, "small") + INPUT
        + layer("conv", "Convolution", ["data"], ["conv"], conv)
        + layer("bn", "BatchNorm", ["conv"], ["bn"], norm)
        + layer("ip", "InnerProduct", ["bn"], ["ip"], inner) + LOSS)
    put("caffemodel", "old_blobs", block(1, "old") + INPUT
        + layer("conv", "Convolution", ["data"], ["ip"],
                block(7, blob_old(2, 1, 3, 3)) + block(7, blob_old(1, 1, 1, 2)) + CONV))
    doubles = block(7, blob_double(2, 1, 3, 3)) + block(7, blob_double(2))
    put("caffemodel", "doubles", layer("conv", "Convolution", ["data"], ["conv"], doubles))
    put("caffemodel", "v1", block(1, "v1") + block(3, "data")
        + b"".join(number(4, d) for d in (1, 1, 4, 4))
        + layer_v1("conv", 4, ["data"], ["conv"],
                   block(6, blob_old(2, 1, 3, 3)) + block(10, CONV[3:]))
        + layer_v1("ip", 14, ["conv"], ["ip"],
                   block(6, blob_old(1, 1, 3, 8)) + block(17, INNER[3:])))
    split = layer("s", "Split", ["data"], ["data_a", "data_b"])
    inner = layer("ip", "InnerProduct", ["data_a"], ["ip"], INNER)
    put("caffemodel", "split", INPUT + split + inner
        + layer("sum", "Eltwise", ["data_b", "data_b"], ["sum"], number(10, 1)) + LOSS)


def solverstate():
    history = [blob(2, 1, 3, 3), blob(2), blob(2), blob(2), blob(1), blob(3, 8), blob(3)]
    head = number(1, 500) + block(2, "snap/lenet_iter_500.caffemodel") + number(4, 2)
    for vectors in (1, 2):
        put("solverstate", f"vectors_{vectors}",
            head + b"".join(block(3, b) for b in history) * vectors)
    put("solverstate", "old",
        head + block(3, blob_old(2, 1, 3, 3)) + block(3, blob_old(1, 1, 1, 2)))
    put("solverstate", "none", head)


def binaryproto():
    old = b"".join(number(k + 1, d) for k, d in enumerate((1, 3, 2, 2)))
    put("binaryproto", "old", old + block(5, floats(12)))
    put("binaryproto", "shape", blob(3, 2, 2))
    put("binaryproto", "single", blob_old(1, 1, 2, 2))
    put("binaryproto", "doubles", blob_double(1, 2, 3))


def datum(c, h, w, label, more):
    return number(1, c) + number(2, h) + number(3, w) + more + number(5, label)


def datums():
    put("datum", "bytes", datum(3, 2, 2, 7, block(4, bytes(range(12)))))
    put("datum", "floats", datum(1, 2, 2, 1, b"".join(fixed(6, k) for k in range(4))))
    put("datum", "packed", datum(1, 2, 2, 1, block(6, floats(4))))
    put("datum", "picture", block(4, png(2, 2, 2, 8)) + number(5, 3) + number(7, 1))
    put("datum", "long", datum(1, 80, 80, 7, block(4, bytes(6400))))


# ---- text ----

DATA = "layer { name: 'd' type: 'Input' top: 'd' top: 'l' input_param " \
       "{ shape { dim: 2 dim: 2 dim: 4 dim: 4 } shape { dim: 2 } } }\n"
END = "layer { name: 'ip' type: 'InnerProduct' bottom: 'y' top: 'ip' inner_product_param " \
      "{ num_output: 3 weight_filler { type: 'xavier' } } }\n" \
      "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'l' top: 'loss' }\n"
ONE = {
    "conv": ("Convolution", "convolution_param { num_output: 2 kernel_size: 3 pad: 1 stride: 2 "
             "group: 2 dilation: 1 weight_filler { type: 'msra' } bias_filler { value: 0.5 } }"),
    "conv_sides": ("Convolution", "convolution_param { num_output: 2 kernel_h: 3 kernel_w: 1 "
                   "pad_h: 1 pad_w: 0 bias_term: false axis: 1 } param { lr_mult: 0 }"),
    "deconv": ("Deconvolution", "convolution_param { num_output: 2 kernel_size: 2 stride: 2 "
               "weight_filler { type: 'bilinear' } }"),
    "pool_max": ("Pooling", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }"),
    "pool_ave": ("Pooling", "pooling_param { pool: AVE kernel_h: 2 kernel_w: 3 pad: 1 }"),
    "pool_global": ("Pooling", "pooling_param { pool: AVE global_pooling: true }"),
    "lrn": ("LRN", "lrn_param { local_size: 3 alpha: 5e-05 beta: 0.75 k: 2 }"),
    "lrn_within": ("LRN", "lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }"),
    "norm": ("BatchNorm", "batch_norm_param { eps: 0.001 moving_average_fraction: 0.9 }"),
    "norm_global": ("BatchNorm", "batch_norm_param { use_global_stats: true }"),
    "scale": ("Scale", "scale_param { bias_term: true axis: 1 num_axes: 1 }"),
    "bias": ("Bias", "bias_param { axis: 1 num_axes: 2 filler { type: 'uniform' } }"),
    "flatten": ("Flatten", "flatten_param { axis: 1 end_axis: -1 }"),
    "reshape": ("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 8 } axis: 0 "
                "num_axes: -1 }"),
    "dropout": ("Dropout", "dropout_param { dropout_ratio: 0.25 }"),
    "relu": ("ReLU", "relu_param { negative_slope: 0.1 }"),
    "prelu": ("PReLU", "prelu_param { channel_shared: true filler { value: 0.3 } }"),
    "elu": ("ELU", "elu_param { alpha: 0.5 }"),
    "sigmoid": ("Sigmoid", ""),
    "tanh": ("TanH", ""),
    "absval": ("AbsVal", ""),
    "power": ("Power", "power_param { power: 2 scale: 0.5 shift: 1 }"),
    "exp": ("Exp", "exp_param { base: 2 scale: 0.5 shift: 0.1 }"),
    "log": ("Log", "log_param { base: 10 scale: 0.5 shift: 3 }"),
    "softmax": ("Softmax", "softmax_param { axis: 1 }"),
    "split": ("Split", ""),
    "inner": ("InnerProduct", "inner_product_param { num_output: 2 axis: 1 bias_term: false "
              "weight_filler { type: 'gaussian' std: 0.1 sparse: 1 } } param { name: 'w' }"),
}
WHOLE = {
    "sums": DATA
    + "layer { name: 'e' type: 'Eltwise' bottom: 'd' bottom: 'd' top: 'e' eltwise_param "
      "{ operation: SUM coeff: 1 coeff: -0.5 } }"
      "layer { name: 'c' type: 'Concat' bottom: 'e' bottom: 'd' top: 'c' concat_param { axis: 1 } }"
      "layer { name: 's' type: 'Slice' bottom: 'c' top: 'a' top: 'b' slice_param "
      "{ axis: 1 slice_point: 1 } }"
      "layer { name: 'm' type: 'Eltwise' bottom: 'd' bottom: 'e' top: 'y' eltwise_param "
      "{ operation: MAX } } layer { name: 'q' type: 'Silence' bottom: 'a' bottom: 'b' }" + END,
    "slice": DATA + "layer { name: 'y' type: 'Slice' bottom: 'd' top: 'a' top: 'y' slice_param "
             "{ axis: 1 slice_point: 1 } }" + END,
    "concat": DATA + "layer { name: 'y' type: 'Concat' bottom: 'd' bottom: 'd' top: 'y' "
              "concat_param { axis: 2 } }" + END,
    "eltwise": DATA + "layer { name: 'y' type: 'Eltwise' bottom: 'd' bottom: 'd' top: 'y' "
               "eltwise_param { operation: PROD } }" + END,
    "losses": DATA
    + "layer { name: 'x' type: 'InnerProduct' bottom: 'd' top: 'x' inner_product_param "
      "{ num_output: 3 } param { name: 'w' } param { name: 'b' } }"
      "layer { name: 'z' type: 'InnerProduct' bottom: 'd' top: 'z' inner_product_param "
      "{ num_output: 3 } param { name: 'w' share_mode: STRICT } param { name: 'b' } }"
      "layer { name: 'h' type: 'HingeLoss' bottom: 'x' bottom: 'l' top: 'h' loss_weight: 0.5 "
      "hinge_loss_param { norm: L2 } }"
      "layer { name: 'e' type: 'EuclideanLoss' bottom: 'x' bottom: 'z' top: 'e' }"
      "layer { name: 'g' type: 'SigmoidCrossEntropyLoss' bottom: 'x' bottom: 'z' top: 'g' "
      "propagate_down: true propagate_down: false }"
      "layer { name: 'o' type: 'SoftmaxWithLoss' bottom: 'z' bottom: 'l' top: 'o' top: 'p' "
      "loss_param { ignore_label: 255 normalization: FULL } }"
      "layer { name: 'a' type: 'Accuracy' bottom: 'z' bottom: 'l' top: 'a' include { phase: TEST } "
      "accuracy_param { top_k: 2 } }",
    "phases": "name: 'n' layer { name: 'd' type: 'Data' top: 'd' top: 'l' include { phase: TRAIN } "
              "transform_param { scale: 0.5 crop_size: 4 mean_value: 3 } "
              "data_param { source: 'db' batch_size: 2 backend: LMDB } }"
              "layer { name: 'd' type: 'ImageData' top: 'd' top: 'l' include { phase: TEST } "
              "image_data_param { source: 'list' batch_size: 2 } }"
              "layer { name: 'y' type: 'ReLU' bottom: 'd' top: 'd' }"
              "layer { name: 'y2' type: 'TanH' bottom: 'd' top: 'y' exclude { min_level: 1 "
              "stage: 'never' } }" + END,
    "deploy": "name: 'n' input: 'd' input_dim: 1 input_dim: 2 input_dim: 4 input_dim: 4 "
              "layer { name: 'y' type: 'Convolution' bottom: 'd' top: 'y' convolution_param "
              "{ num_output: 2 kernel_size: 3 } } layer { name: 's' type: 'Softmax' bottom: 'y' "
              "top: 's' }",
    "v1": "name: 'n' input: 'd' input_shape { dim: 1 dim: 2 dim: 4 dim: 4 } "
          "layers { name: 'c' type: CONVOLUTION bottom: 'd' top: 'c' blobs_lr: 1 blobs_lr: 2 "
          "weight_decay: 1 weight_decay: 0 convolution_param { num_output: 2 kernel_size: 3 } } "
          "layers { name: 'r' type: RELU bottom: 'c' top: 'c' } "
          "layers { name: 'p' type: POOLING bottom: 'c' top: 'p' pooling_param "
          "{ kernel_size: 2 } } "
          "layers { name: 'i' type: INNER_PRODUCT bottom: 'p' top: 'i' inner_product_param "
          "{ num_output: 3 } } layers { name: 's' type: SOFTMAX bottom: 'i' top: 's' }",
    "v1_train": "layers { name: 'd' type: DATA top: 'd' top: 'l' include: { phase: TRAIN } "
                "data_param { source: 'db' scale: 0.5 mean_file: 'm' batch_size: 2 crop_size: 4 "
                "mirror: true } } "
                "layers { name: 'i' type: INNER_PRODUCT bottom: 'd' top: 'i' param: 'w' param: 'b' "
                "blob_share_mode: STRICT inner_product_param { num_output: 3 } } "
                "layers { name: 'z' type: SOFTMAX_LOSS bottom: 'i' bottom: 'l' top: 'z' }",
    "sequence": "layer { name: 'd' type: 'Input' top: 'd' top: 'l' input_param { shape { dim: 1 dim: 3 "
                "dim: 4 } shape { dim: 1 } } } layer { name: 'p' type: 'Slice' bottom: 'd' top: 'x' top: 'n' slice_param "
                "{ axis: 2 slice_point: 3 } } layer { name: 'c' type: 'Reshape' bottom: 'n' top: 'c' "
                "reshape_param { shape { dim: 0 dim: 3 } } } layer { name: 'e' type: 'Embed' bottom: "
                "'c' top: 'e' embed_param { num_output: 2 input_dim: 4 bias_term: true } } "
                "layer { name: 'v' type: 'InnerProduct' bottom: 'd' top: 'v' inner_product_param "
                "{ num_output: 2 } } layer { name: 'h' type: 'Reshape' bottom: 'v' top: 'h' "
                "reshape_param { shape { dim: 0 dim: 1 dim: 2 } } } layer { name: 'r' type: 'RNN' "
                "bottom: 'e' bottom: 'c' bottom: 'h' top: 'r' top: 'q' recurrent_param { num_output: 2 "
                "expose_hidden: true } } layer { name: 'g' type: 'GRU' bottom: 'r' bottom: 'c' bottom: "
                "'v' top: 'g' gru_param { num_output: 2 weight_filler { type: 'xavier' } } } "
                "layer { name: 'y' type: 'LSTM' bottom: 'g' top: 'y' recurrent_param { num_output: 3 "
                "bias_filler { value: 0.5 } } } layer { name: 't' type: 'Softmax' bottom: 'y' top: 't' "
                "softmax_param { axis: 2 } }" + END,
    "absurd": "layer { name: 'd' type: 'Input' top: 'd' input_param { shape { dim: 1 dim: 3000000 "
              "dim: 2147483647 } } } layer { name: 'i' type: 'InnerProduct' bottom: 'd' top: 'i' "
              "inner_product_param { num_output: 4294967295 } }",
}


def prototxt():
    for name, (kind, fields) in ONE.items():
        one = f"layer {{ name: 'y' type: '{kind}' bottom: 'd' top: 'y' {fields} }}\n"
        put("prototxt", name, DATA + one + END)
    for name, text in WHOLE.items():
        put("prototxt", name, text)


RATES = {
    "fixed": "lr_policy: 'fixed'",
    "step": "lr_policy: 'step' gamma: 0.1 stepsize: 100",
    "multistep": "lr_policy: 'multistep' gamma: 0.1 stepvalue: 100 stepvalue: 200",
    "inv": "lr_policy: 'inv' gamma: 0.0001 power: 0.75",
    "exp": "lr_policy: 'exp' gamma: 0.99",
    "poly": "lr_policy: 'poly' power: 1.5",
    "sigmoid": "lr_policy: 'sigmoid' gamma: -0.01 stepsize: 50",
}
KINDS = {
    "sgd": "type: 'SGD' momentum: 0.9 weight_decay: 0.0005",
    "nesterov": "type: 'Nesterov' momentum: 0.95",
    "adagrad": "type: 'AdaGrad' delta: 1e-07",
    "rmsprop": "type: 'RMSProp' rms_decay: 0.98",
    "adadelta": "type: 'AdaDelta' momentum: 0.95 delta: 1e-06",
    "adam": "type: 'Adam' momentum: 0.9 momentum2: 0.999",
    "old": "solver_type: ADAM regularization_type: 'L1' weight_decay: 0.001",
}


def solver():
    for name, rate in RATES.items():
        put("solver", f"rate_{name}", f"net: 'n.prototxt' base_lr: 0.01 {rate} max_iter: 500 "
            "test_iter: 10 test_interval: 100 display: 20 snapshot: 250 snapshot_prefix: 's' "
            "solver_mode: CPU random_seed: 7 iter_size: 2 clip_gradients: 10\n")
    for name, kind in KINDS.items():
        put("solver", f"kind_{name}", f"train_net: 'a' test_net: 'b' base_lr: 0.1 {kind} "
            "lr_policy: 'fixed' max_iter: 9 test_iter: 1 test_interval: 3 "
            "test_initialization: false average_loss: 5 debug_info: false "
            "snapshot_after_train: true\n")
    inner = "net_param { " + WHOLE["v1_train"] + " } base_lr: 1 lr_policy: 'fixed' max_iter: 3"
    put("solver", "within", inner)
    put("solver", "within_new", "net_param { " + WHOLE["phases"] + " } base_lr: 1 "
        "lr_policy: 'fixed' max_iter: 3 test_iter: 2 test_interval: 1 "
        "train_state { level: 1 stage: 'a' } "
        "test_state { stage: 'b' }")


JOBS = {
    "single": "strategy { single {} }",
    "sync": "strategy { sync { tau: 4 } } workers: 2",
    "allreduce": "strategy { allreduce {} } workers: 4 local: 1",
    "ps": "strategy { ps { consistency: dssp } } workers: 4",
    "whatever": "threads: 2 workers: 3 seed: 9 collective { wire: bf16 }",
}


def job():
    data = "train_data { idx { images: 'a' labels: 'b' } scale: 0.00390625 mean: 33 } " \
           "test_data { cifar10 { path: 'c' } mirror: true pad: 4 crop: 32 } "
    for name, text in JOBS.items():
        put("job", name, f"name: '{name}' net {{ zoo: 'lenet' }} {data} batch: 64 solver {{ type: "
            f"'SGD' base_lr: 0.01 momentum: 0.9 lr_policy: 'fixed' }} {text} "
            "stop { epochs: 2 }\n")
    put("job", "given", "net { define { " + WHOLE["deploy"] + " } } train_data { images "
        "{ list: 'l' root: 'r' color: gray } resize: 8 } global_batch: 8 stop { steps: 3 }")
    put("job", "lmdb", "net { file: 'n.prototxt' } train_data { lmdb { path: 'db' } "
        "mean_file: 'm' } weights: 'a.caffemodel,b.safetensors' iter_size: 2 batch: 2 "
        "solver { base_lr: 1 } "
        "# a comment\n")
    put("job", "marks", 'net < zoo: "le\\x6eet" "" > batch: 0x40; seed: 017 train_data: { cifar100 '
        "{ path: '\\351\\x41' coarse: true } mean: [1, 2.5e0, 3f] },")


def words():
    """The fields and words of the schemas, and the types of layers, for the readers of text."""
    texts = {name: (HERE / f"../../proto/{name}.proto").read_text() for name in ("caffe", "job")}
    found = {name: set(re.findall(r"(\w+) = \d+", text)) for name, text in texts.items()}
    types = {kind for kind, _ in ONE.values()} | set(re.findall(r"type: '(\w+)'", str(WHOLE)))
    of_caffe = found["caffe"] | types
    for name, chosen in {"prototxt": of_caffe, "solver": of_caffe,
                         "job": of_caffe | found["job"]}.items():
        path = HERE / "dict" / f"{name}.dict"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f'"{word}"\n' for word in sorted(chosen)))


# ---- safetensors ----


def safetensors():
    def file(header, data, pad=0):
        text = json.dumps(header, separators=(",", ":")).encode() + b" " * pad
        return struct.pack("<Q", len(text)) + text + data

    def tensor(dims, begin, end, kind="F32"):
        return {"dtype": kind, "shape": dims, "data_offsets": [begin, end]}

    put("safetensors", "empty", file({}, b""))
    put("safetensors", "one", file({"joint/ip.0": tensor([2, 2], 0, 16)}, floats(4), 3))
    put("safetensors", "scalar", file({"a": tensor([], 0, 4), "b": tensor([0], 4, 4),
                                       "c": tensor([1, 1, 1], 4, 8)}, floats(2)))
    net = {"caffe.net": WHOLE["v1"], "key": "\u00e9\n"}
    put("safetensors", "net",
        file({"__metadata__": net, "joint/c.0": tensor([2, 1], 0, 8)}, floats(2)))
    put("safetensors", "half", file({"a": tensor([2], 0, 4, "F16")}, floats(1)))
    lead = '{"__metadata__":{"check":"' + "0" * 16 + '"}}'
    put("safetensors", "checked", struct.pack("<Q", len(lead)) + lead.encode())


# ---- data ----


def idx():
    def pair(n, h, w, labels):
        first = struct.pack(">II", 0x801, len(labels)) + bytes(labels)
        images = struct.pack(">IIII", 0x803, n, h, w) + bytes(k % 256 for k in range(n * h * w))
        return struct.pack("<H", len(first)) + first + images

    put("idx", "three", pair(3, 4, 5, [1, 0, 9]))
    put("idx", "one", pair(1, 1, 1, [255]))
    put("idx", "fewer", pair(2, 2, 2, [1]))
    put("idx", "none", pair(0, 2, 2, []))


def npys():
    def pair(values, labels):
        first = io.BytesIO()
        numpy.save(first, labels)
        second = io.BytesIO()
        numpy.save(second, values)
        return struct.pack("<H", len(first.getvalue())) + first.getvalue() + second.getvalue()

    count = numpy.arange(3 * 2 * 2 * 2)
    labels = numpy.array([1, 0, 9])
    put("npy", "bytes", pair(count.reshape(3, 2, 2, 2).astype("uint8"), labels.astype("uint8")))
    put("npy", "floats", pair(count.reshape(3, 4, 2).astype("float32"), labels.reshape(3, 1)))
    put("npy", "vectors", pair(count.reshape(3, 8).astype("float32"), labels.astype("int16")))
    put("npy", "columns", pair(numpy.asfortranarray(count.reshape(3, 8).astype("uint8")), labels))
    put("npy", "double", pair(count.reshape(3, 8).astype("float64"), labels))
    put("npy", "negative", pair(count.reshape(3, 8).astype("uint8"), -labels))


def npzs():
    """src/data/npy_array_test.c reads these, too."""
    def archive(save, **arrays):
        out = io.BytesIO()
        save(out, **arrays)
        return out.getvalue()

    arrays = {"x": numpy.arange(3 * 2 * 4, dtype="float32").reshape(3, 2, 4), "y": numpy.array([1, 0, 9]),
              "zeros": numpy.zeros((3, 1000), "uint8")}
    put("npz", "stored", archive(numpy.savez, **arrays))
    put("npz", "deflated", archive(numpy.savez_compressed, **arrays))
    limit, zipfile.ZIP64_LIMIT = zipfile.ZIP64_LIMIT, 0
    put("npz", "zip64", archive(numpy.savez, **arrays))
    put("npz", "zip64_deflated", archive(numpy.savez_compressed, **arrays))
    zipfile.ZIP64_LIMIT = limit
    put("npz", "double", archive(numpy.savez_compressed, x=arrays["x"].astype("float64"),
                                  zeros=numpy.zeros((3, 40000), "uint8")))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as mixed:
        mixed.comment = b"PK\5\6 is no end"
        mixed.writestr(zipfile.ZipInfo("x.npy"), b"no array")
        mixed.writestr(zipfile.ZipInfo("y.npy"), bytes(1 << 12), zipfile.ZIP_DEFLATED)
        mixed.writestr(zipfile.ZipInfo("z.npy"), b"bzip2", zipfile.ZIP_BZIP2)
    put("npz", "mixed", out.getvalue())


def csvs():
    def table(rows, choice=0, **how):
        text = io.StringIO(newline="")
        csv.writer(text, **how).writerows(rows)
        return bytes([choice]) + text.getvalue().encode()

    rows = [["a", "text", "y"], [1, "b,c", 0], [-2.5, 'say "hi"', 1], ["3e2", "two\nlines", 0]]
    put("csv", "minimal", table(rows))
    put("csv", "all", table(rows, 16, quoting=csv.QUOTE_ALL, lineterminator="\n"))
    put("csv", "tabs", table(rows, 2, delimiter="\t"))
    put("csv", "bare", table([[0, 1, "x"], [1, "", "y"]], 13, delimiter=";"))
    put("csv", "late", table([["a", "y"], [1, "no"], [2, "yes"], ["x", "no"]]))
    put("csv", "bom", b"\0\xef\xbb\xbfa,y\r1,0\r\r2,1")
    put("csv", "open", b'\0a,y\n"1,0\n')
    put("csv", "behind", b'\0a,y\n"1"2,0\n')
    put("csv", "uneven", b"\0a,y\n1,0\n2\n")
    put("csv", "twice", b"\0a,a,y\n1,2,0\n")
    put("csv", "digits", b"\0a,y\n0000000000000000.1e-0000000001,1\n9999999999999999e300,0\n")


def texts():
    for seed, choice, content in (
            ("bytes", 0x06, b"a\r\n\xff\0bcdefgh"), ("overlapping", 0x15, "to be, or not to be".encode()),
            ("lengths", 0x03, "\u20aca\r\n\U0001d11ea\u00e9\u20ac".encode()), ("short", 0x0f, b"abc"),
            ("zero", 0x03, b"a\0b"), ("overlong", 0x03, b"\xc0\x80ab"), ("surrogate", 0x03, b"ab\xed\xa0\x80"),
            ("cut", 0x03, b"abc\xf0\x9f")):
        put("text", seed, bytes([choice]) + content)


def cifar():
    pixels = bytes(k * 7 % 256 for k in range(3072))
    put("cifar", "ten", b"\0" + bytes([9]) + pixels + bytes([0]) + pixels)
    put("cifar", "hundred", b"\1" + bytes([19, 99]) + pixels)
    put("cifar", "coarse", b"\3" + bytes([3, 42]) + pixels)
    put("cifar", "label", b"\0" + bytes([10]) + pixels)


def image_list():
    put("image_list", "two", "p.png 0\np.png 3\n")
    put("image_list", "spaces", "  \n\tp.png   7 \r\n\n a b/c d.jpg\t12\n")
    put("image_list", "missing", "q.png 1\n")
    put("image_list", "label", "p.png -1\np.png 99999999999\n")


def lmdb_page(number, flags, nodes, size):
    """A branch or a leaf: heads of nodes grow from the front, nodes from the back."""
    upper, heads, body = size, b"", bytearray(size)
    for node in nodes:
        node += b"\0" * (len(node) % 2)
        upper -= len(node)
        body[upper:upper + len(node)] = node
        heads += struct.pack("<H", upper)
    head = struct.pack("<QHHHH", number, 0, flags, 16 + len(heads), upper)
    body[:len(head) + len(heads)] = head + heads
    return bytes(body)


def lmdb_meta(number, transaction, size, tree):
    free = struct.pack("<IHHQQQQQ", size, 8, 0, 0, 0, 0, 0, (1 << 64) - 1)
    main = struct.pack("<IHHQQQQQ", 0, 0, *tree)
    meta = struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 1 << 20) + free + main
    meta += struct.pack("<QQ", 9, transaction)
    head = struct.pack("<QHHHH", number, 0, 8, 0, 0)
    return (head + meta).ljust(size, b"\0")


def leaf_node(key, value):
    return struct.pack("<HHHH", len(value) & 65535, len(value) >> 16, 0, len(key)) + key + value


def over_node(key, length, page):
    return struct.pack("<HHHH", length & 65535, length >> 16, 1, len(key)) + key \
        + struct.pack("<Q", page)


def branch_node(key, page):
    return struct.pack("<HHHH", page & 65535, page >> 16 & 65535, page >> 32, len(key)) + key


def lmdb_file(size, depth, pages, entries, root, *rest):
    """`pages`: of branches, leaves, overflows."""
    empty = lmdb_meta(0, 0, size, (0, 0, 0, 0, 0, (1 << 64) - 1))
    return empty + lmdb_meta(1, 1, size, (depth, *pages, entries, root)) + b"".join(rest)


def lmdb():
    small = [datum(1, 2, 2, k, block(4, bytes([k] * 4))) for k in range(4)]
    leaves = [leaf_node(b"%08d" % k, small[k]) for k in range(4)]
    put("lmdb", "leaf", lmdb_file(256, 1, (0, 1, 0), 4, 2, lmdb_page(2, 2, leaves, 256)))
    put("lmdb", "tree", lmdb_file(
        256, 2, (1, 2, 0), 4, 4, lmdb_page(2, 2, leaves[:2], 256), lmdb_page(3, 2, leaves[2:], 256),
        lmdb_page(4, 1, [branch_node(b"", 2), branch_node(b"%08d" % 2, 3)], 256)))
    long = datum(3, 8, 12, 2, block(4, bytes(288)))
    over = struct.pack("<QHHI", 3, 0, 4, 2) + long
    put("lmdb", "overflow", lmdb_file(
        256, 1, (0, 1, 2), 2, 2,
        lmdb_page(2, 2, [over_node(b"a", len(long), 3), over_node(b"b", len(long), 3)], 256),
        over.ljust(512, b"\0")))
    picture = block(4, png(2, 2, 2, 8)) + number(5, 3) + number(7, 1)
    values = datum(1, 1, 2, 1, block(6, floats(2)))
    put("lmdb", "picture", lmdb_file(
        512, 1, (0, 1, 0), 1, 2, lmdb_page(2, 2, [leaf_node(b"k", picture)], 512)))
    put("lmdb", "floats", lmdb_file(
        512, 1, (0, 1, 0), 2, 2,
        lmdb_page(2, 2, [leaf_node(b"k", values), leaf_node(b"l", values)], 512)))


# ---- pictures ----


def png_chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content \
        + struct.pack(">I", zlib.crc32(kind + content))


def png(h, w, kind, depth, interlaced=0, more=b""):
    values = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2),
                  (0, 1, 2, 2), (1, 0, 2, 1)]
        sizes = [(len(range(y, h, dy)), len(range(x, w, dx))) for y, x, dy, dx in passes]
    else:
        sizes = [(h, w)]
    rows = b""
    for height, width in sizes:
        n = (width * values * depth + 7) // 8
        for y in range(height if width else 0):
            rows += bytes([y % 5]) + bytes((y + 3 * k) % 256 for k in range(n))
    out = b"\x89PNG\r\n\x1a\n"
    out += png_chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, kind, 0, 0, interlaced))
    if kind == 3:
        out += png_chunk(b"PLTE", bytes(k % 251 for k in range(3 << depth)))
    return out + more + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")


def pngs():
    depths_of = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 4, 8), 4: (8, 16), 6: (8, 16)}
    for kind, depths in depths_of.items():
        for depth in depths:
            put("png", f"kind{kind}_{depth}", png(5, 7, kind, depth))
    put("png", "interlaced", png(9, 10, 2, 8, 1))
    put("png", "see_through", png(2, 2, 3, 2, 0, png_chunk(b"tRNS", b"\0\x80")))
    more = png_chunk(b"gAMA", struct.pack(">I", 45455)) + png_chunk(b"tEXt", b"Title\0x") \
        + png_chunk(b"pHYs", struct.pack(">IIB", 1, 1, 1)) + png_chunk(b"sRGB", b"\0")
    put("png", "promise", png(3, 3, 2, 8, 0, struct.pack(">I", 0x26000007) + b"tEXt" + bytes(8)))
    more += png_chunk(b"zTXt", b"a\0\0" + zlib.compress(b"b"))
    put("png", "notes", png(3, 3, 2, 8, 0, more))


def jpegs():
    y, x = numpy.mgrid[0:17, 0:13]
    colour = numpy.stack([x * 9, y * 7, (x + y) * 5], axis=2).astype(numpy.uint8)
    kinds = {
        "plain": (colour, []),
        "grey": (colour[:, :, 0], []),
        "progressive": (colour, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]),
        "restarts": (colour, [cv2.IMWRITE_JPEG_RST_INTERVAL, 1]),
        "coarse": (colour, [cv2.IMWRITE_JPEG_QUALITY, 5, cv2.IMWRITE_JPEG_OPTIMIZE, 1]),
        "dot": (colour[:1, :1], []),
    }
    for name, (pixels, options) in kinds.items():
        pixels = numpy.ascontiguousarray(pixels)
        put("jpeg", name, cv2.imencode(".jpg", pixels, options)[1].tobytes())


def tar(form, members):
    """An archive of Python's tarfile, without the zeros that fill it up to 10,240 bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
            else:
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    content = out.getvalue().rstrip(b"\0")
    return content + bytes(-len(content) % 512 + 1024)


def webdatasets():
    """src/data/source_webdataset_test.c reads the first three, and "json", whose length lets the target take labels
    from JSON."""
    def record(name, width, label):
        return [(name + ".png", png(1, width, 0, 8)), (name + ".cls", b"%d\n" % label)]

    long = "dogs/" + "/".join(["of a folder whose name is long"] * 4) + "/spot"
    members = [("dogs", None)] + record("dogs/rex", 4, 1) + [("dogs/rex.json", b"{}")] \
        + [("dogs/link.png", "rex.png"), ("README.md", b"words")] + record("k\u00e4tze", 5, 0) \
        + record(long, 3, 12)
    for name, form in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT),
                       ("pax", tarfile.PAX_FORMAT)):
        put("webdataset", name, tar(form, members))
    gnu = tarfile.GNU_FORMAT
    put("webdataset", "empty", tar(gnu, []))
    put("webdataset", "two", tar(gnu, [("a.png", b"GIF"), ("a.jpg", b"\xff\xd8\xff"), ("a.cls", b"x")]))
    put("webdataset", "missing", tar(gnu, [("a.cls", b"1")] + record("b", 1, 0) + [("c.JPG", b"")]))
    put("webdataset", "cut", tar(gnu, record("a", 2, 1048575))[:1100])
    base256 = bytearray(tar(gnu, record("a", 2, 7)))
    base256[124:136] = b"\x80" + struct.pack(">Q", len(png(1, 2, 0, 8))).rjust(11, b"\0")
    put("webdataset", "base256", bytes(base256))
    archive = tar(gnu, record("a", 2, 7))
    indexed = struct.pack("<QQIIIHH", 512, 5, len(png(1, 2, 0, 8)), 3, 9, 1, 2)
    put("webdataset", "index", archive + b"PLTARIDX" + struct.pack("<5Q", 1, 0, 0, 0, 1) + indexed + bytes(8))
    said = [b'{"label": 1}', b'{"caption": "\xc3\xa9", "label": {"coarse": 3, "fine": 12}}\n', b'{"label": {"fine": 7.0}}']
    members = [m for i, text in enumerate(said) for m in ((f"{i}.json", text), (f"{i}.png", png(1, i + 1, 0, 8)))]
    put("webdataset", "json", tar(tarfile.PAX_FORMAT, members) + bytes(2))


def shard(form, shape, classes, count, blocks, data, index, names=0, fields=0, integer=0, block=16384):
    """The target makes checksums right."""
    label = 0 if classes == 0 else 1 if classes <= 256 else 2 if classes <= 65536 else 4
    footer = struct.pack("<10I6Q", form, integer, label, block, *shape, classes, fields, names, count, blocks,
                         len(data), len(index), 0, 0)
    return b"PLSHARD\0" + struct.pack("<II", 1, 0) + data + index + footer + bytes(8)


def shards():
    hashes = bytes(8)
    put("shards", "bytes", shard(1, (1, 2, 3), 3, 4, 1, bytes(range(24)), hashes + bytes([0, 1, 2, 1])))
    put("shards", "unlabelled", shard(1, (1, 1, 1), 0, 9, 1, bytes(9), hashes))
    put("shards", "blocks", shard(1, (1, 1, 5), 300, 7, 4, bytes(35), 4 * hashes + bytes(14), block=8))
    floats = struct.pack("<6f", 1, -2, 0.5, float("inf"), float("nan"), 3e38)
    put("shards", "floats", shard(2, (3, 1, 1), 2, 2, 1, floats, b"no\0yes\0\0" + hashes + b"\1\0", names=7))
    put("shards", "bf16", shard(4, (3, 1, 1), 2, 2, 1, struct.pack("<6H", 0x3f80, 0xbf00, 0, 0x7f80, 0x7fc0, 1),
                                hashes + b"\1\0"))
    field = b"".join(name.ljust(64, b"\0") + struct.pack("<10I", whole, len(dims), *dims, *[0] * (8 - len(dims)))
                     for name, whole, dims in ((b"words", 1, (2,)), (b"at", 0, (1, 1))))
    put("shards", "fields", shard(2, (3, 1, 1), 0, 2, 1, floats, field + hashes, fields=2))
    pictures = [png(1, 4, 0, 8), png(2, 3, 2, 8)]
    sizes = b"".join(struct.pack("<IHH", len(p), h, w) for p, h, w in zip(pictures, (1, 2), (4, 3)))
    put("shards", "pictures", shard(3, (0, 0, 0), 2, 2, 1, b"".join(pictures), hashes + sizes + b"\1\0"))
    put("shards", "cut", shard(1, (1, 2, 3), 3, 4, 1, bytes(24), hashes + bytes(4))[:-9])


def gzips():
    packed = gzip.compress(b"some text\n" * 20, mtime=0)
    put("gzip", "packed", packed)
    put("gzip", "twice", packed + packed)
    put("gzip", "cut", packed[:-5])
    put("gzip", "plain", "plain\n")
    put("gzip", "bomb", gzip.compress(bytes(1 << 18), mtime=0))


# ---- messages of the key-value store (src/kv/kv_message.h) ----

NEWEST = (1 << 64) - 1


def kv_text(text):
    return struct.pack("<I", len(text)) + text.encode()


def kv_meta(version, size=400, checksum=7):
    return struct.pack("<QQQ", version, size, checksum)


def kv_said(kind, node, message):
    return bytes([kind, node, len(message)]) + message


def kv_request(node, what, request, key="x", meta=kv_meta(1), patient=0):
    message = struct.pack("<BQ", what, request)
    if what in (1, 2, 4):
        message += kv_text(key) + meta + bytes([patient])
    return kv_said(0, node, message)


def kv_reply(what, meta=kv_meta(7), nodes=(), status=0, why=""):
    message = struct.pack("<BQ", what, 5) + meta + bytes([len(nodes)])
    message += b"".join(struct.pack("<I", n) + kv_text("127.0.0.1:1") for n in nodes)
    return kv_said(1, 0, message + struct.pack("<i", status) + kv_text(why))


def kv_piece(key, version, at, length):
    return kv_said(2, 1, kv_text(key) + struct.pack("<QQI", version, at, length))


def kvs():
    hold, find, forget, drop, leave = 1, 2, 3, 4, 5
    view = bytes([4, 0b1111])
    put("kv", "share", view + kv_request(0, hold, 1) + kv_request(1, hold, 2) + kv_request(2, find, 3)
        + kv_request(0, hold, 4, meta=kv_meta(2)) + kv_request(3, find, 5, meta=kv_meta(NEWEST))
        + kv_request(1, drop, 6) + kv_request(0, leave, 7) + kv_request(2, find, 8))
    put("kv", "conflict", view + kv_request(0, hold, 1) + kv_request(1, hold, 2, meta=kv_meta(1, 400, 8))
        + kv_request(1, hold, 3, meta=kv_meta(1, 401)) + kv_request(9, hold, 4)
        + kv_request(1, hold, 5, meta=kv_meta(3)) + kv_request(1, hold, 6, meta=kv_meta(2)))
    put("kv", "patient", view + kv_request(2, find, 1, patient=1) + kv_request(9, find, 2, "x",
        kv_meta(NEWEST), 1) + kv_request(3, find, 3, patient=1) + kv_request(3, forget, 3)
        + bytes([4, 0b0011]) + kv_request(0, hold, 4) + bytes([4, 0]))
    put("kv", "tell", kv_reply(0) + kv_reply(1, nodes=range(8)) + kv_reply(2)
        + kv_reply(3, status=-42, why="key 'x'") + kv_reply(1, nodes=[1023]))
    put("kv", "pieces", kv_piece("x", 7, 0, 1 << 18) + kv_piece("joint/w", 7, (4 << 30) - 1, 1)
        + kv_said(3, 1, b"\1") + kv_said(3, 1, b"\2"))
    put("kv", "wrong", view + kv_request(0, hold, 1, "a b") + kv_request(0, hold, 1, "k" * 64)
        + kv_request(0, hold, 1, meta=kv_meta(1, (4 << 30) + 1)) + kv_request(0, 6, 1)
        + kv_reply(1, nodes=[1024]) + kv_reply(3) + kv_piece("x", 1, (4 << 30), 1)
        + kv_piece("x", 1, 0, (1 << 18) + 1) + kv_piece("x", 1, 0, 0) + kv_said(3, 1, b"\3"))


# ---- what a connection begins with, and its frames (src/real/frame.h) ----


def frames():
    def hello(version=5, refusal=0, port=4711, stripe=0, stripes=0, way=0, plain=0, rest=bytes(26)):
        return (b"PACELINE" + struct.pack("<IIQIIHBBBB", version, refusal, 7, 1, 2, port, stripe, stripes, way, plain)
                + rest)

    def head(length, kind, of_class, view, tag):
        return struct.pack("<IBBHIQI", length, kind, of_class, 0, view, tag, 0)

    put("frame", "hello", b"\0" + hello())
    put("frame", "stripe", b"\0" + hello(stripe=2, stripes=4, plain=1))
    put("frame", "shm", b"\0" + hello(way=1, rest=bytes(2) + struct.pack("<II", 99, 3) + bytes(range(16))))
    put("frame", "old", b"\0" + hello(version=4, refusal=1))
    put("frame", "web", b"\0GET / HTTP/1.1\r\n" + b"x" * 48)
    put("frame", "challenge", b"\1PACELINE" + struct.pack("<I", 5) + bytes(12) + bytes(range(40)))
    put("frame", "data", b"\3" + head(4096, 1, 0, 3, 0x18 << 56 | 9 << 16))
    put("frame", "credit", b"\3" + head(65536, 2, 1, 0, 0))
    put("frame", "damaged", b"\2" + head(4096, 1, 0, 3, 7))


# ---- requests to a live page ----


def pages():
    token = "let-me-in-0123456789abcdef"

    def get(path, *fields, method="GET", host="127.0.0.1"):
        return "\r\n".join((f"{method} {path} HTTP/1.1", f"Host: {host}", *fields, "", ""))

    put("page", "page", "\0" + get("/"))
    put("page", "metrics", "\0" + get("/metrics", "Connection: close"))
    put("page", "events", "\0" + get("/events", "Accept: text/event-stream"))
    put("page", "head", "\0" + get("/healthz", method="HEAD"))
    put("page", "two", "\0" + get("/healthz") + get("/", "Connection: close"))
    put("page", "other_site", "\0" + get("/", host="example.org"))
    put("page", "up", "\0" + get("/../../etc/passwd"))
    put("page", "body", "\0" + get("/", "Content-Length: 4", method="POST") + "body")
    put("page", "chunked", "\0" + get("/", "Transfer-Encoding: chunked") + "4\r\nbody\r\n0\r\n\r\n")
    put("page", "query", "\1" + get(f"/?token={token}"))
    put("page", "bearer", "\1" + get("/events", f"Authorization: Bearer {token}"))
    put("page", "wrong", "\1" + get("/", "Authorization: Bearer let-me-in"))
    put("page", "none", "\1" + get("/metrics"))


# ---- control messages, by their number in fuzz_control.c ----


def controls():
    text, words = kv_text, 16
    members = struct.pack("<Q", 0b111) + bytes(8 * (words - 1))
    progress = struct.pack("<4Q", 640, 10, 5, 630) + members
    data = struct.pack("<QQ", 9, 600) + text("/data/train")
    local = struct.pack("<QI", 5, 10) + text("1x28x28 of 10 classes") + struct.pack("<QI", 600, 1)
    local += struct.pack("<QQB", 70, 500, 1)
    records = struct.pack("<Q", 8) + data + data + local
    place = text("host") + text("10.0.0.3:4711")
    hello = struct.pack("<I", 12) + text("0.1.0") + struct.pack("<QQI", 1, 2, 4)
    hello += text("avx512") + text("onednn") + place + records
    welcome = struct.pack("<I", 12) + text("0.1.0") + bytes([0, 1, 0, 1, 0]) + struct.pack("<IQ", 1, 80)
    welcome += records + text("name: 'x'") + text("jobs/")
    view = struct.pack("<III", 3, 1, 2)
    for node in (0, 2):
        view += struct.pack("<I", node) + text("10.0.0.3:4711") + struct.pack("<IB", 0, 4 | node)
    committed = struct.pack("<IQB", 0, 5, 0) + progress
    committed += struct.pack("<ddIQdIQdd", .5, .1, 2, 4096, 38., 1, 64, 12.5, .2) + members + members
    committed += struct.pack("<ddB4Q3QIB", 3., .5, 1, 600, 9000, 0, 0, 64, 0, 128, 3, 0) + struct.pack("<I", 0)
    back = struct.pack("<II", 3, 1) + members + members + struct.pack("<4I", 1, 2, 0, len(hello)) + hello + bytes(8 * 64)
    for k, (name, message) in enumerate((
            ("hello", hello), ("welcome", welcome), ("view", view),
            ("lane_go", struct.pack("<IIQI", 3, 0, 5, 1) + members + members + bytes(2)),
            ("committed", committed),
            ("opening", place + text("train_data") + struct.pack("<QQ", 120, 600)),
            ("done", struct.pack("<iB", -5, 1) + place + text("train_data: cannot open")),
            ("lease", struct.pack("<II4Q", 3, 2, 0, 64, 64, 128)),
            ("share", struct.pack("<IQI4Q", 3, 600, 2, 0, 300, 300, 300)),
            ("trace", struct.pack("<II4Q", 2 << 8, 1, 5, 4096, 10, 20)),
            ("shared", text("sum") + struct.pack("<QIId", 100, 8, 0, 0.)),
            ("progress", progress), ("return", back),
            ("orders", struct.pack("<8Q", 1 << 32 | 16, 2 << 32, 3 << 32 | 1, 7, 8, 64, 0, 9) + members))):
        put("control", name, bytes([k]) + message)


# ---- checkpoints ----


def checkpoints():
    sizes = {"joint/ip.0": (2, 3), "joint/ip.1": (2,), "s/norm.0": (3,)}
    more = {"first/ip.0": (2, 3), "first/ip.1": (2,), "second/ip.0": (2, 3), "second/ip.1": (2,)}
    own = {"own/ip.0": (2, 3), "own/ip.1": (2,), "carried/state": (2, 3), "carried/record": (2, 2)}
    meta = {"format": "paceline 1", "job_hash": "1f", "data_hash": "2e", "lane.0": "5", "place": "640",
            "steps": "10", "used": "630", "missed": "10", "repeated": "0", "seed": "7", "incarnation": "1",
            "best_error": "-0.25", "updates": "12", "leases": "640 8 0 600-624 628-640?", "holdings": "600"}

    def file(tensors, texts):
        table, at = {"__metadata__": texts}, 0
        for name, dims in tensors.items():
            size = 4 * numpy.prod(dims).item()
            table[name] = {"dtype": "F32", "shape": dims, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(table, separators=(",", ":")).encode()
        return struct.pack("<Q", len(text)) + text + floats(at // 4)

    put("checkpoint", "model", file(sizes, meta))
    put("checkpoint", "state", file({**sizes, **more}, meta))
    put("checkpoint", "all", file({**sizes, **more, **own}, {**meta, "holdings": "600 000000000000001f:500:0:0=64,1=72,:/data/a"}))
    put("checkpoint", "no_number", file(sizes, {**meta, "steps": "many"}))
    put("checkpoint", "other_net", file({**sizes, "joint/ip.2": (1,)}, meta))


def onnx():
    """Models of test/golden/onnx, which onnx_cases.py makes."""
    cases = HERE.parent / "golden" / "onnx"
    for name in ("conv_pads", "pool_average_pads", "view", "view_slice", "linear", "arithmetic",
                 "two_blobs", "squeeze_excite", "norms", "split", "lstm_last", "gru_all", "step",
                 "lstm_both", "gru_both_last", "gru_reset_last", "rnn_reverse", "lstm_records_first",
                 "loss_ignored", "loss_pixels", "conv_transpose_dilated"):
        put("onnx", name, (cases / f"case_{name}" / "model.onnx").read_bytes())


def main():
    for make in (caffemodel, onnx, solverstate, binaryproto, datums, prototxt, solver, job, safetensors,
                 idx, npys, npzs, csvs, texts, cifar, image_list, lmdb, pngs, jpegs, webdatasets, shards, gzips, kvs,
                 codecs, frames, pages, controls, checkpoints, words):
        make()


main()
