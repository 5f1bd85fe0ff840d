"""Shared by the tests of the Python package: points of two classes, a net for them, a folder."""
import os
import shutil
import sys
import tempfile
import unittest

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))

import paceline  # noqa: E402

CLUSTER = "node { count: 3 } node { speed: 0.5 } link { mbit: 100 } step_seconds: 0.004"
TRAINS = {"lr": 0.1, "batch": 16, "threads": 1, "kernels": "ref"}


def draw_points(count, seed=1):
    """Points on either side of a circle: no straight line parts them."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (count, 2)).astype(np.float32)
    return x, (np.hypot(x[:, 0], x[:, 1]) < 0.75).astype(np.int64)


def make_net():
    return paceline.Spec().input(2).inner_product(24).relu().inner_product(2).softmax_loss()


class FolderTest(unittest.TestCase):
    """A folder for each test."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = os.path.join(self.folder, "run")


def main():
    unittest.main(verbosity=1)
