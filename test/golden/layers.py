#!/usr/bin/python3
"""Writes layers_*.golden: other programs' results for every type of layer and every field of it.

    /usr/bin/python3 layers.py      (Debian: python3-torch, python3-opencv)

Each file holds cases of a family; a line has a keyword, a name, and numbers:

    case NAME by WHOM              torch: PyTorch's own function; definition: written from Caffe's
                                   definition in double; opencv: its reader of Caffe's files agrees
    net PHASE BATCH RECORD SCALE OFFSET CLASSES TOLERANCE
    target FLOATS SCALE OFFSET whole|real     the last floats of each record, rounded down if whole
    given SHAPE VALUES             or these values
    carries FLOATS                 what a record's state carries from window to window, 0 at first
    layer { .. }                   of the net, in order
    init NAME SHAPE VALUES         what a filler makes of a segment of x
    param NAME SHAPE STREAM SCALE OFFSET      each segment of x, in order
    state NAME SHAPE STREAM SCALE OFFSET      each segment of s, in order, before the pass
    window STREAM                  one more pass over other data: all lines below once more
    top NAME SHAPE VALUES          what goes forward; nan: any value
    after NAME SHAPE VALUES        s after it
    carried - SHAPE VALUES         what the records carry after it
    loss - scalar VALUE            the whole loss, the batch's mean
    dx NAME SHAPE VALUES           the loss by a bottom
    dw NAME SHAPE VALUES           the loss by a blob of parameters
"""
import importlib
import os
import sys

sys.dont_write_bytecode = True
import layers_common

for family in sys.argv[1:] or ["window", "unit", "shape", "loss", "sequence"]:
    importlib.import_module("layers_" + family)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                           "layers_%s.golden" % family), "w") as out:
        mine = [case for case in layers_common.cases if case.family == "layers_" + family]
        for case in mine:
            case.write(out)
    print("layers_%s.golden: %d cases" % (family, len(mine)))
