#!/usr/bin/env python3
"""Makes the cases of test/golden/onnx: small models as exporters write them, inputs, and the outputs
of onnxruntime. Needs onnx, onnxruntime and numpy.

    python3 test/golden/onnx_cases.py
"""
import os
import shutil

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx")
rng = np.random.default_rng(7)


def floats(*shape, low=-1.0, high=1.0):
    return (low + (high - low) * rng.random(shape)).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def node(kind, inputs, output, **attributes):
    outputs = output if isinstance(output, list) else [output]
    return helper.make_node(kind, inputs.split(), outputs, name="node_" + outputs[-1], **attributes)


def case(name, opset, nodes, constants, data, batch="N", output="y", reference=False, labels=None,
         axis=0):
    """`data`: the input x as an array, whose dimension `axis` counts records. `labels`: a second input.
    `reference`: onnxruntime lacks the operator; ONNX's reference implementation has it."""
    inputs = {"x": data} if labels is None else {"x": data, "labels": labels}
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype),
                                       list(value.shape[:axis]) + [batch]
                                       + list(value.shape[axis + 1:]))
         for key, value in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, key) for key, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                              ir_version=min(9, 3 if opset < 9 else 8))
    if model.ir_version < 4:  # constants have to be inputs as well
        for key, value in constants.items():
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            model.graph.input.append(helper.make_tensor_value_info(key, kind, value.shape))
    session = (ReferenceEvaluator(model) if reference else onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]))
    result, = session.run(None, inputs)
    folder = os.path.join(HERE, "case_" + name)
    os.makedirs(folder)
    with open(os.path.join(folder, "model.onnx"), "wb") as file:
        file.write(model.SerializeToString())
    files = {"input_%d" % k: value for k, value in enumerate(inputs.values())}
    for what, value in {**files, "output_0": np.asarray(result)}.items():
        with open(os.path.join(folder, what + ".pb"), "wb") as file:
            file.write(numpy_helper.from_array(value.astype(np.float32)).SerializeToString())


def windows():
    x = floats(2, 3, 9, 7)
    w, b = floats(4, 3, 3, 3), floats(4)
    for name, attributes in (
            ("pads", {"pads": [0, 1, 2, 1]}),
            ("pads_down", {"pads": [2, 0, 1, 3], "strides": [2, 2]}),
            ("dilated", {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
            ("same_upper", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
            ("same_lower", {"auto_pad": "SAME_LOWER", "strides": [2, 3]})):
        case("conv_" + name, 11, [node("Conv", "x w b", "y", **attributes)], {"w": w, "b": b}, x)
    case("conv_groups_bias", 13, [node("Conv", "x w", "c", group=3, kernel_shape=[2, 3]),
                                  node("Add", "c b", "y")],
         {"w": floats(6, 1, 2, 3), "b": floats(1, 6, 1, 1)}, x)
    case("conv_transpose", 13, [node("ConvTranspose", "x w b", "y", strides=[2, 3],
                                     pads=[1, 1, 1, 1], group=3)],
         {"w": floats(3, 2, 3, 4), "b": floats(6)}, x)
    for name, kind, attributes in (
            ("max_behind", "MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2],
                                       "pads": [0, 0, 1, 1]}),
            ("max_floor", "MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
            ("max_ceil", "MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
            ("max_pads", "MaxPool", {"kernel_shape": [3, 2], "strides": [1, 2],
                                     "pads": [1, 1, 1, 1]}),
            ("average_pads", "AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2],
                                             "pads": [1, 1, 1, 1]}),
            ("average_counted", "AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1],
                                                "count_include_pad": 1}),
            ("average_behind", "AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2],
                                               "pads": [0, 0, 1, 1]})):
        case("pool_" + name, 11, [node(kind, "x", "y", **attributes)], {}, x)


def pads():
    x = floats(2, 3, 5, 4)
    w = {"w": floats(2, 3, 3, 3)}
    case("pad", 13, [node("Pad", "x pads", "p"), node("Conv", "p w", "y")],
         {"pads": ints(0, 0, 1, 2, 0, 0, 1, 2), **w}, x)
    case("pad_uneven", 18, [node("Pad", "x pads zero", "p", mode="constant"), node("Relu", "p", "y")],
         {"pads": ints(0, 0, 3, 0, 0, 0, 1, 2), "zero": np.array(0, np.float32)}, x)
    case("pad_attribute", 9, [node("Pad", "x", "p", pads=[0, 0, 0, 1, 0, 0, 2, 0]),
                              node("MaxPool", "p", "y", kernel_shape=[2, 2])], {}, x)
    case("pad_nothing", 13, [node("Pad", "x pads", "p"), node("Relu", "p", "y")],
         {"pads": ints(0, 0, 0, 0, 0, 0, 0, 0)}, x)


def flat():
    """How PyTorch flattens an image, in several exporters."""
    x = floats(3, 2, 2, 3)
    gemm = node("Gemm", "f w b", "y", transB=1)
    weights = {"w": floats(5, 12), "b": floats(5)}
    case("flatten", 13, [node("Flatten", "x", "f"), gemm], weights, x)
    case("view", 11, [node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0),
                      node("Unsqueeze", "n", "u", axes=[0]),
                      node("Concat", "u rest", "t", axis=0), node("Reshape", "x t", "f"), gemm],
         {**weights, "zero": np.array(0, np.int64), "rest": ints(-1)}, x)
    case("view_slice", 17, [node("Shape", "x", "s"), node("Slice", "s a b1", "n"),
                            node("Concat", "n rest", "t", axis=0), node("Reshape", "x t", "f"),
                            gemm],
         {**weights, "a": ints(0), "b1": ints(1), "rest": ints(12)}, x)
    case("linear", 21, [node("Reshape", "x t", "f"), node("Transpose", "w", "wt", perm=[1, 0]),
                        node("MatMul", "f wt", "m"), node("Add", "b m", "y")],
         {**weights, "t": ints(-1, 12)}, x)
    case("gemm_scaled", 13, [node("Flatten", "x", "f"),
                             node("Gemm", "f w b", "y", transB=1, alpha=0.5, beta=2.0)],
         weights, x)
    case("static_batch", 8, [node("Reshape", "x t", "f"), node("MatMul", "f w", "m"),
                             node("Add", "m b", "y")],
         {"t": ints(3, 12), "w": floats(12, 5), "b": floats(1, 5)}, x, batch=3)


def units():
    x = floats(2, 3, 4, 2, low=-3, high=3)
    case("units", 17, [node("LeakyRelu", "x", "a", alpha=0.2), node("Elu", "a", "b", alpha=0.7),
                       node("Tanh", "b", "c"), node("PRelu", "c slope", "d"),
                       node("Sigmoid", "d", "e"), node("Neg", "e", "f"), node("Exp", "f", "g"),
                       node("Sqrt", "g", "h"), node("Log", "h", "i"), node("Abs", "i", "y")],
         {"slope": floats(3, 1, 1)}, x)
    case("relu6", 13, [node("Clip", "x zero six", "a"), node("Identity", "a", "y")],
         {"zero": np.array(0, np.float32), "six": np.array(1.5, np.float32)}, x)
    case("clip_attributes", 8, [node("Clip", "x", "y", min=-0.5, max=2.0)], {}, x)
    case("arithmetic", 13, [node("Mul", "x two", "a"), node("Add", "a half", "b"),
                            node("Sub", "one b", "c"), node("Div", "c four", "d"),
                            node("Mul", "d by_channel", "e"), node("Sub", "e by_pixel", "f"),
                            node("Pow", "f square", "y")],
         {"two": np.array(2, np.float32), "half": np.array([0.5], np.float32),
          "one": np.array(1, np.float32), "four": np.array(4, np.float32),
          "by_channel": floats(3, 1, 1), "by_pixel": floats(1, 1, 4, 2),
          "square": np.array(2, np.float32)}, x)
    case("two_blobs", 13, [node("Relu", "x", "a"), node("Sigmoid", "x", "b"),
                           node("Add", "a b", "c"), node("Sub", "c x", "d"),
                           node("Mul", "d a", "e"), node("Div", "e b", "f"),
                           node("Max", "f x", "g"), node("Sum", "g a b", "h"),
                           node("Concat", "h x", "y", axis=1)], {}, x)
    case("squeeze_excite", 17, [node("GlobalAveragePool", "x", "p"), node("Conv", "p w", "c"),
                                node("Sigmoid", "c", "s"), node("Mul", "x s", "y")],
         {"w": floats(3, 3, 1, 1)}, x)
    case("norms", 15, [node("BatchNormalization", "x scale bias mean variance", "a", epsilon=1e-3),
                       node("LRN", "a", "y", size=3, alpha=0.3, beta=0.6, bias=1.5)],
         {"scale": floats(3), "bias": floats(3), "mean": floats(3),
          "variance": floats(3, low=0.2, high=2)}, x)
    case("mean_softmax", 13, [node("ReduceMean", "x", "m", axes=[2, 3], keepdims=0),
                              node("Dropout", "m", "d"), node("LogSoftmax", "d", "y", axis=-1)],
         {}, x)
    case("softmax_of_pixels", 11, [node("GlobalMaxPool", "x", "m"), node("Softmax", "m", "s"),
                                   node("Squeeze", "s", "y", axes=[2, 3])], {}, x)
    case("split", 13, [node("Split", "x sizes", ["a", "b"], axis=1), node("Relu", "a", "c"),
                       node("Concat", "b c", "y", axis=1)], {"sizes": ints(1, 2)}, x)


def elsewhere():
    """Weights in a file beside the model, as exporters write large ones: one behind the other."""
    x = floats(2, 5)
    constants = {"w": floats(5, 40), "v": floats(40, 3)}
    case("external", 17, [node("MatMul", "x w", "h"), node("MatMul", "h v", "y")], constants, x)
    path = os.path.join(HERE, "case_external", "model.onnx")
    model = onnx.load(path)
    onnx.save_model(model, path, save_as_external_data=True, all_tensors_to_one_file=True,
                    location="weights.bin", size_threshold=0)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    want = numpy_helper.to_array(onnx.load_tensor(os.path.join(HERE, "case_external", "output_0.pb")))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-6)


def sequences():
    """As PyTorch's batch_first exports them: the records first outside, the steps within."""
    x = floats(3, 4, 5)
    for kind, gates, more in (("LSTM", 4, {}), ("GRU", 3, {"linear_before_reset": 1})):
        constants = {"w": floats(1, gates * 6, 5), "r": floats(1, gates * 6, 6),
                     "b": floats(1, 2 * gates * 6), "v": floats(6, 2)}
        case(kind.lower() + "_all", 14, [
            node("Transpose", "x", "t", perm=[1, 0, 2]),
            helper.make_node(kind, ["t", "w", "r", "b"], ["h", "last"], hidden_size=6, **more),
            node("Squeeze", "h one", "s"), node("Transpose", "s", "u", perm=[1, 0, 2]),
            node("MatMul", "u v", "y")], {**constants, "one": ints(1)}, x)
        case(kind.lower() + "_last", 14, [
            node("Transpose", "x", "t", perm=[1, 0, 2]),
            helper.make_node(kind, ["t", "w", "r", "b"], ["h", "last"], hidden_size=6, **more),
            node("Squeeze", "last zero", "s"), node("MatMul", "s v", "y")],
             {**constants, "zero": ints(0)}, x)
    case("step", 14, [node("Tanh", "x", "a"), node("Gather", "a last", "b", axis=1),
                      node("MatMul", "b v", "y")],
         {"last": np.array(-1, np.int64), "v": floats(5, 2)}, x)


def units_of(kind, gates, H, directions=1, **attributes):
    """x is (N, T, 5); exporters name the activations of an RNN."""
    nodes = [node("Transpose", "x", "t", perm=[1, 0, 2]),
             helper.make_node(kind, ["t", "w", "r", "b"], ["h", "last"], hidden_size=H,
                              **attributes)]
    return nodes, {"w": floats(directions, gates * H, 5), "r": floats(directions, gates * H, H),
                   "b": floats(directions, 2 * gates * H)}


def state_units():
    """ONNX's RNN, whose output is its state."""
    x = floats(3, 4, 5)
    nodes, constants = units_of("RNN", 1, 6, activations=["Tanh"])
    case("rnn_all", 14, nodes + [node("Squeeze", "h one", "s"),
                                 node("Transpose", "s", "u", perm=[1, 0, 2]),
                                 node("MatMul", "u v", "y")],
         {**constants, "one": ints(1), "v": floats(6, 2)}, x)
    nodes, constants = units_of("RNN", 1, 6)
    case("rnn_last", 9, nodes + [node("Squeeze", "last", "s", axes=[0]),
                                 node("MatMul", "s v", "y")],
         {**constants, "v": floats(6, 2)}, x)


def reset_units():
    """ONNX's GRU by default: the reset gate multiplies the state, not its product."""
    x = floats(3, 4, 5)
    nodes, constants = units_of("GRU", 3, 6)
    case("gru_reset_all", 14, nodes + [node("Squeeze", "h one", "s"),
                                       node("Transpose", "s", "u", perm=[1, 0, 2]),
                                       node("MatMul", "u v", "y")],
         {**constants, "one": ints(1), "v": floats(6, 2)}, x)
    nodes, constants = units_of("GRU", 3, 6, activations=["Sigmoid", "Tanh"])
    case("gru_reset_last", 9, nodes + [node("Squeeze", "last", "s", axes=[0]),
                                       node("MatMul", "s v", "y")],
         {**constants, "v": floats(6, 2)}, x)


def directions():
    """Sequences that are read backwards, and both ways, as PyTorch exports two layers of them."""
    x = floats(3, 4, 5)
    for kind, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        nodes, constants = units_of(kind, gates, 3, directions=2, direction="bidirectional")
        more = {"w2": floats(2, gates * 2, 6), "r2": floats(2, gates * 2, 2),
                "b2": floats(2, 2 * gates * 2)}
        second = helper.make_node(kind, ["j", "w2", "r2", "b2"], ["h2"], hidden_size=2,
                                  direction="bidirectional")
        case(kind.lower() + "_both", 14, nodes + [
            node("Transpose", "h", "d", perm=[0, 2, 1, 3]), node("Reshape", "d dims", "j"), second,
            node("Transpose", "h2", "d2", perm=[0, 2, 1, 3]), node("Reshape", "d2 dims", "j2"),
            node("Transpose", "j2", "u", perm=[1, 0, 2]), node("MatMul", "u v", "y")],
             {**constants, **more, "dims": ints(0, 0, -1), "v": floats(4, 2)}, x)
        nodes, constants = units_of(kind, gates, 3, directions=2, direction="bidirectional")
        case(kind.lower() + "_both_last", 14, nodes + [
            node("Gather", "last zero", "a", axis=0), node("Gather", "last one", "b1", axis=0),
            node("Concat", "a b1", "j", axis=1), node("MatMul", "j v", "y")],
             {**constants, "zero": np.array(0, np.int64), "one": np.array(1, np.int64),
              "v": floats(6, 2)}, x)
        nodes, constants = units_of(kind, gates, 3, direction="reverse")
        case(kind.lower() + "_reverse", 9, nodes + [
            node("Squeeze", "h", "s", axes=[1]), node("Transpose", "s", "u", perm=[1, 0, 2]),
            node("Squeeze", "last", "l", axes=[0]), node("MatMul", "l v", "m"),
            node("Flatten", "u", "f"), node("MatMul", "f v2", "m2"), node("Add", "m m2", "y")],
             {**constants, "v": floats(3, 2), "v2": floats(12, 2)}, x)
        constants = {"w": floats(1, gates * 3, 5), "r": floats(1, gates * 3, 3)}
        units = helper.make_node(kind, ["x", "w", "r"], ["h", "last"], hidden_size=3, layout=1)
        case(kind.lower() + "_records_first", 14, [
            units, node("Flatten", "h", "f"), node("Flatten", "last", "g"),
            node("Concat", "f g", "y", axis=1)], constants, x, reference=True)


def steps_first():
    """As PyTorch exports without batch_first: the graph's input has the steps first, (T, N, D)."""
    for kind, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        x = floats(4, 3, 5)
        constants = {"w": floats(2, gates * 3, 5), "r": floats(2, gates * 3, 3),
                     "b": floats(2, 2 * gates * 3)}
        units = helper.make_node(kind, ["x", "w", "r", "b"], ["h", "last"], hidden_size=3,
                                 direction="bidirectional")
        case(kind.lower() + "_steps_first", 14, [
            units, node("Transpose", "h", "u", perm=[2, 0, 1, 3]), node("Flatten", "u", "f"),
            node("MatMul", "f v", "m"), node("Gather", "last zero", "a", axis=0),
            node("Gather", "last one", "b1", axis=0), node("Concat", "a b1", "j", axis=1),
            node("MatMul", "j v2", "m2"), node("Add", "m m2", "y")],
             {**constants, "zero": np.array(0, np.int64), "one": np.array(1, np.int64),
              "v": floats(24, 2), "v2": floats(6, 2)}, x, axis=1)


def losses():
    """At the end of a graph; a label that counts for nothing."""
    x, labels = floats(4, 6), ints(2, 0, 4, 3)
    weights = {"w": floats(6, 5)}
    for name, attributes in (("mean", {}), ("sum", {"reduction": "sum"}),
                             ("ignored", {"ignore_index": 4}),
                             ("sum_ignored", {"ignore_index": 3, "reduction": "sum"})):
        case("loss_" + name, 13, [node("MatMul", "x w", "s"),
                                  node("SoftmaxCrossEntropyLoss", "s labels", "y", **attributes)],
             weights, x, labels=labels)
    case("loss_likelihood", 12, [node("MatMul", "x w", "s"), node("LogSoftmax", "s", "l", axis=1),
                                 node("NegativeLogLikelihoodLoss", "l labels", "y",
                                      ignore_index=0)], weights, x, labels=labels)
    case("loss_cast", 13, [node("MatMul", "x w", "s"), node("Cast", "labels", "c", to=7),
                           node("SoftmaxCrossEntropyLoss", "s c", "y")],
         weights, x, labels=np.array([2, 0, 4, 3], np.float32))
    case("loss_cast_likelihood", 13, [
        node("MatMul", "x w", "s"), node("LogSoftmax", "s", "l", axis=1),
        node("Cast", "labels", "c", to=6), node("NegativeLogLikelihoodLoss", "l c", "y")],
         weights, x, labels=np.array([1, 4, 0, 2], np.float32))
    pixels = np.array([[[0, 2, 1], [3, 3, 0]], [[1, 2, 2], [0, 3, 1]]], np.int64)
    case("loss_pixels", 17, [node("Conv", "x w", "s"), node("LogSoftmax", "s", "l", axis=1),
                             node("NegativeLogLikelihoodLoss", "l labels", "y")],
         {"w": floats(4, 3, 1, 1)}, floats(2, 3, 2, 3), labels=pixels)
    case("loss_pixels_softmax", 13, [
        node("Conv", "x w", "s"),
        node("SoftmaxCrossEntropyLoss", "s labels", "y", ignore_index=3)],
         {"w": floats(4, 3, 1, 1)}, floats(2, 3, 2, 3), labels=pixels)


def recurrent_loss():
    """Both directions, then one that is read backwards, and a loss, which fine-tuning needs."""
    nodes, constants = units_of("LSTM", 4, 3, directions=2, direction="bidirectional")
    more = {"w2": floats(1, 12, 6), "r2": floats(1, 12, 4), "b2": floats(1, 24), "dims": ints(0, 0, -1),
            "w3": floats(1, 4, 4), "r3": floats(1, 4, 4), "b3": floats(1, 8), "v": floats(4, 5)}
    case("loss_recurrent", 14, nodes + [
        node("Transpose", "h", "d", perm=[0, 2, 1, 3]), node("Reshape", "d dims", "j"),
        helper.make_node("GRU", ["j", "w2", "r2", "b2"], ["h2"], hidden_size=4, direction="reverse"),
        node("Squeeze", "h2 one", "s2"),
        helper.make_node("RNN", ["s2", "w3", "r3", "b3"], ["", "last3"], hidden_size=4),
        node("Squeeze", "last3 zero", "q"), node("MatMul", "q v", "s"),
        node("SoftmaxCrossEntropyLoss", "s labels", "y")],
         {**constants, **more, "one": ints(1), "zero": ints(0)}, floats(3, 4, 5),
         labels=ints(1, 4, 0))


def transposed_windows():
    """Pads that differ before and behind, and output padding, which may be more than these."""
    x = floats(2, 3, 4, 3)
    for name, attributes in (
            ("pads", {"pads": [1, 0, 0, 2]}),
            ("pads_stride", {"pads": [0, 2, 1, 1], "strides": [2, 3]}),
            ("twice", {"pads": [1, 1, 1, 1], "strides": [2, 2], "output_padding": [1, 1]}),
            ("beyond", {"strides": [3, 2], "output_padding": [2, 1]}),
            ("dilated", {"pads": [1, 0, 1, 0], "strides": [3, 2], "dilations": [2, 2],
                         "output_padding": [2, 1]})):
        case("conv_transpose_" + name, 11, [node("ConvTranspose", "x w b", "y", group=3,
                                                 **attributes)],
             {"w": floats(3, 2, 3, 3), "b": floats(6)}, x)


def versions():
    """Operators whose meaning, or whose way to be told it, changed with an opset."""
    x = floats(2, 6, 5, 4)
    w, wide = floats(6, 3), floats(120, 3)
    half, no = np.array(0.5, np.float32), np.array(False)

    case("opset_9_slice", 9, [node("Shape", "x", "s"), node("Slice", "s", "n", starts=[0], ends=[1]),
                              node("Concat", "n rest", "t", axis=0), node("Reshape", "x t", "f"),
                              node("MatMul", "f w", "y")], {"rest": ints(120), "w": wide}, x)
    case("opset_10_slice", 10, [node("Shape", "x", "s"), node("Slice", "s from to axes steps", "n"),
                                node("Concat", "n rest", "t", axis=0), node("Reshape", "x t", "f"),
                                node("MatMul", "f w", "y")],
         {"from": ints(0), "to": ints(2), "axes": ints(0), "steps": ints(2), "rest": ints(120),
          "w": wide}, x)
    case("opset_10_dropout", 10, [node("Dropout", "x", "a", ratio=0.3), node("Relu", "a", "y")], {},
         x)
    case("opset_12_dropout", 12, [node("Dropout", "x half", "a"), node("Relu", "a", "y")],
         {"half": half}, x)
    case("opset_13_dropout", 13, [node("Dropout", "x half no", "a"), node("Relu", "a", "y")],
         {"half": half, "no": no}, x)
    window = {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}
    case("opset_10_pool", 10, [node("AveragePool", "x", "y", **window)], {}, x)
    case("opset_19_pool", 19, [node("AveragePool", "x", "y", dilations=[1, 1], **window)], {}, x)
    case("opset_19_pool_pads", 19, [node("AveragePool", "x", "y", pads=[1, 1, 1, 1],
                                         kernel_shape=[3, 3], strides=[2, 2],
                                         count_include_pad=1)], {}, x)
    case("opset_12_softmax", 12, [node("Softmax", "x", "y", axis=1)], {}, floats(2, 6, 1, 1))
    case("opset_12_softmax_default", 12, [node("MatMul", "x w", "m"), node("Softmax", "m", "y")],
         {"w": w}, floats(4, 6))
    case("opset_13_softmax_default", 13, [node("Softmax", "x", "y")], {}, x)
    case("opset_13_log_softmax", 13, [node("LogSoftmax", "x", "y", axis=1)], {}, x)
    case("opset_12_unsqueeze", 12, [node("GlobalAveragePool", "x", "p"),
                                    node("Squeeze", "p", "q", axes=[-1, -2]),
                                    node("Unsqueeze", "q", "u", axes=[2]), node("Relu", "u", "y")],
         {}, x)
    case("opset_13_unsqueeze", 13, [node("GlobalAveragePool", "x", "p"),
                                    node("Squeeze", "p behind", "q"),
                                    node("Unsqueeze", "q two", "u"), node("Relu", "u", "y")],
         {"behind": ints(-1, -2), "two": ints(2)}, x)
    case("opset_12_split", 12, [node("Split", "x", ["a", "b"], axis=1, split=[2, 4]),
                                node("Concat", "b a", "y", axis=-3)], {}, x)
    case("opset_13_split", 13, [node("Split", "x", ["a", "b"], axis=1),
                                node("Concat", "b a", "y", axis=1)], {}, x)
    case("opset_18_split", 18, [node("Split", "x", ["a", "b", "c"], axis=2, num_outputs=3),
                                node("Concat", "c a b", "y", axis=2)], {}, x)
    case("opset_17_mean", 17, [node("ReduceMean", "x", "y", axes=[-1, -2], keepdims=1)], {}, x)
    case("opset_18_mean", 18, [node("ReduceMean", "x axes", "y", keepdims=0)], {"axes": ints(2, 3)},
         x)
    case("opset_18_pad", 18, [node("Pad", "x pads zero axes", "p"), node("Relu", "p", "y")],
         {"pads": ints(1, 2, 0, 1), "zero": np.array(0, np.float32), "axes": ints(2, 3)}, x)
    case("opset_19_cast", 19, [node("Cast", "x", "a", to=1, saturate=1), node("Relu", "a", "y")], {},
         x)
    norm = {"scale": floats(6), "bias": floats(6), "mean": floats(6),
            "variance": floats(6, low=0.2, high=2)}
    case("opset_8_norm", 8, [node("BatchNormalization", "x scale bias mean variance", "y",
                                  spatial=1)], norm, x)
    case("opset_14_norm", 14, [node("BatchNormalization", "x scale bias mean variance", "y",
                                    training_mode=0)], norm, x)
    case("opset_13_clip", 13, [helper.make_node("Clip", ["x", "", "half"], ["y"])], {"half": half}, x)
    case("opset_15_shape", 15, [node("Shape", "x", "n", start=0, end=1),
                                node("Constant", "", "rest", value_ints=[-1]),
                                node("Concat", "n rest", "t", axis=0), node("Reshape", "x t", "f"),
                                node("MatMul", "f w", "y")], {"w": wide}, x)
    case("opset_14_reshape", 14, [node("Reshape", "x t", "f", allowzero=1),
                                  node("MatMul", "f w", "y")], {"t": ints(-1, 120), "w": wide}, x)
    case("opset_13_gather", 13, [node("Gather", "x step", "y", axis=1)],
         {"step": np.array(-2, np.int64)}, floats(2, 3, 4))
    case("opset_15_pow", 15, [node("Pow", "x two", "y")], {"two": np.array(2, np.int64)}, x)
    case("opset_16_prelu", 16, [node("PRelu", "x slope", "a"), node("LeakyRelu", "a", "y")],
         {"slope": floats(6, 1, 1)}, x)
    case("opset_20_constant", 20, [node("ConstantOfShape", "dims", "c",
                                        value=numpy_helper.from_array(np.array([0.5], np.float32))),
                                   node("Mul", "x c", "y")], {"dims": ints(6, 1, 1)}, x)
    case("opset_21_flatten", 21, [node("Flatten", "x", "f", axis=-3), node("MatMul", "f w", "y")],
         {"w": wide}, x)


def means():
    x = floats(2, 6, 5, 5)
    case("mean", 13, [node("Relu", "x", "r"), node("Sigmoid", "x", "s"), node("Mean", "x r s", "m"),
                      node("Mean", "m", "y")], {}, x)
    case("reduce_max", 18, [node("ReduceMax", "x axes", "m", keepdims=0), node("Mean", "m m", "y")],
         {"axes": ints(3, 2)}, x)
    case("reduce_max_kept", 13, [node("ReduceMax", "x", "y", axes=[2, 3])], {}, x)


def main():
    for name in os.listdir(HERE):
        if name.startswith("case_"):
            shutil.rmtree(os.path.join(HERE, name))
    windows()
    flat()
    units()
    sequences()
    elsewhere()
    pads()
    state_units()
    reset_units()
    directions()
    losses()
    transposed_windows()
    versions()
    recurrent_loss()
    steps_first()
    means()


if __name__ == "__main__":
    main()
