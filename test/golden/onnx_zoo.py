"""Runs the models NET.onnx of a folder in onnxruntime, on NET.in, and compares with NET.out: what
golden/onnx_zoo_test has left there."""
import os
import sys

import numpy as np
import onnxruntime


def main(folder):
    worst = 0.0
    names = sorted(name[:-5] for name in os.listdir(folder) if name.endswith(".onnx"))
    for name in names:
        path = os.path.join(folder, name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path + ".onnx", options,
                                               providers=["CPUExecutionProvider"])
        entry = session.get_inputs()[0]
        data = np.fromfile(path + ".in", np.float32).reshape([-1] + entry.shape[1:])
        result, = session.run(None, {entry.name: data})
        want = np.fromfile(path + ".out", np.float32).reshape(result.shape)
        off = float(np.max(np.abs(result - want) / (1e-4 + np.abs(want))))
        worst = max(worst, off)
        print("%-14s %d outputs, largest relative difference %.2g" % (name, want.size, off))
    if not names or not worst < 1e-4:
        sys.exit("onnx_zoo.py: %d models, largest relative difference %g" % (len(names), worst))


main(sys.argv[1])
