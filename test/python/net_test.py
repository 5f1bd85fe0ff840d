"""Nets, records and teams in Python, and the declarations of the library."""
import ctypes
import gc
import os
import socket
import subprocess
import sys
import unittest

import numpy as np

import scene
from scene import ROOT, FolderTest, draw_points, make_net, paceline

from paceline import _interface


def made_net(**settings):
    return paceline.Net(make_net(), batch=16, threads=1, kernels="ref",
                        solver={"base_lr": 0.1, "momentum": 0.9}, **settings)


class NetTest(FolderTest):
    def test_weights_are_views(self):
        net = made_net()
        x = draw_points(5)[0]
        w = net.weights
        self.assertEqual(list(w), ["ip1.0", "ip1.1", "ip2.0", "ip2.1"])
        w["ip1.1"][:] = 0.25
        w["ip2", 1][:] = [1, -1]
        # By hand, in double precision.
        hidden = np.maximum(x.astype(float) @ w["ip1.0"].T + 0.25, 0)
        expected = hidden @ w["ip2.0"].T.astype(float) + [1, -1]
        np.testing.assert_allclose(net.forward(x, "ip2"), expected, rtol=1e-5, atol=1e-5)
        shares = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(net.predict(x), shares, rtol=1e-4, atol=1e-5)
        net.vector[:] = 0
        self.assertEqual(float(np.abs(w["ip1.0"]).max()), 0)
        np.testing.assert_allclose(net.predict(x), 0.5)

    def test_a_view_keeps_its_net(self):
        weights = made_net().weights["ip1.0"]
        before = weights.copy()
        gc.collect()
        made_net(seed=2)  # whose memory could be that of the first
        np.testing.assert_array_equal(weights, before)

    def test_a_net_trains_on_arrays_where_they_are(self):
        x, y = draw_points(800)
        self.assertTrue(np.shares_memory(paceline.Records((x, y)).values, x))
        net = made_net()
        net.set_training_data((x[200:], y[200:]))
        net.set_test_data((x[:200], y[:200]))
        before = net.test()
        net.train(1000)
        after = net.test()
        self.assertEqual(after.count, 200)
        self.assertLess(after.error, 0.15)
        self.assertLess(after.loss, before.loss / 2)
        wrong = net.predict(x[:200]).argmax(axis=1) != y[:200]
        self.assertAlmostEqual(after.error, wrong.mean(), places=6)

    def test_weights_are_saved_and_loaded(self):
        net, other = made_net(), made_net(seed=2)
        path = os.path.join(self.folder, "a.safetensors")
        net.save(path)
        self.assertFalse(np.array_equal(net.vector, other.vector))
        other.load(path)
        np.testing.assert_array_equal(net.vector, other.vector)
        with self.assertRaises(paceline.InputError) as caught:
            other.load(path + ".not")
        self.assertIn(path + ".not", str(caught.exception))

    def test_a_net_without_a_form_has_no_weights(self):
        net = paceline.Net(paceline.Spec().input().inner_product(2).softmax_loss())
        with self.assertRaises(paceline.UsageError):
            net.weights
        net.set_training_data(draw_points(64))
        self.assertEqual(net.weights["ip1.0"].shape, (2, 2))
        self.assertIn("lenet", paceline.zoo())
        with self.assertRaises(paceline.InputError) as caught:
            paceline.Net(paceline.Spec().input(3, 8, 8).convolution(4, 9).softmax_loss())
        self.assertIn("conv1", str(caught.exception))


class Tensor:
    """As PyTorch's tensors are: they become arrays by detach().cpu().numpy()."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return self.array


class Dataset:
    """As PyTorch's: it does not know its end by __getitem__."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return Tensor(self.x[i]), int(self.y[i])


class Loader:
    """As a DataLoader: batches of tensors, the last one shorter."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return (len(self.y) + 6) // 7

    def __iter__(self):
        for at in range(0, len(self.y), 7):
            yield [Tensor(self.x[at:at + 7]), Tensor(self.y[at:at + 7])]


class RecordsTest(FolderTest):
    def expect(self, records, x, y, shape):
        np.testing.assert_array_equal(records.values, x)
        np.testing.assert_array_equal(records.labels, y)
        self.assertEqual((records.shape, len(records)), (shape, len(x)))

    def test_iterators_give_the_records_of_arrays(self):
        random = np.random.default_rng(3)
        x = random.integers(0, 255, (30, 1, 4, 5)).astype(np.uint8)
        y = random.integers(0, 3, 30)
        for data in (iter(list(zip(x, y))), (pair for pair in zip(x, y)), Dataset(x, y),
                     Loader(x, y)):
            self.expect(paceline.Records(data), x, y, (1, 4, 5))
        self.expect(paceline.Records(Loader(x, y), spool=self.folder), x, y, (1, 4, 5))
        self.assertEqual(os.listdir(self.folder), [])
        self.assertIsNone(paceline.Records(iter(x)).labels)

    def test_shapes_and_types(self):
        for shape, record in (((4,), (1, 1, 1)), ((4, 7), (7, 1, 1)), ((4, 3, 5), (1, 3, 5)),
                              ((4, 2, 3, 5), (2, 3, 5)), ((4, 2, 2, 3, 5), (60, 1, 1))):
            self.assertEqual(paceline.Records(np.zeros(shape)).shape, record)
        for given, kept in ((np.float64, np.float32), (np.float16, np.float32), (bool, np.uint8),
                            (np.uint8, np.uint8), (np.int16, np.int32), (np.int64, np.int64)):
            self.assertEqual(paceline.Records(np.zeros((2, 3), given)).values.dtype, kept)
        with self.assertWarns(UserWarning):
            paceline.Records(np.zeros((2, 32, 32, 3)))
        self.assertEqual(paceline.Records((np.zeros((3, 2)), [0, 1, 0]), classes=5).classes, 5)

    def test_items_that_differ_are_refused(self):
        for items, phrase in (([(np.zeros(2), 0), (np.zeros(3), 0)], "item 1"),
                              ([(np.zeros(2), 0), np.zeros(2)], "without labels"),
                              ([(np.zeros(2), -1)], "-1")):
            with self.assertRaises(paceline.InputError) as caught:
                paceline.Records(iter(items))
            self.assertIn(phrase, str(caught.exception))


MEMBER = """
import sys
sys.path[:0] = %r
import numpy as np
from scene import paceline
with paceline.Team(sys.argv[1]) as team:
    x = np.full(1000, 10.0 + team.rank, np.float32)
    team.allreduce(x)
    team.allreduce(np.full(3, float(team.rank), np.float32), "mean", weight=team.rank)
    team.broadcast(np.zeros(5, np.float32))
    try:
        team.allreduce(x)  # whose result nobody needs: then a member may leave
    except paceline.LostPeerError:
        pass
"""


JOINER = """
import sys
sys.path[:0] = %r
import numpy as np
from scene import paceline
with paceline.Team(sys.argv[1]) as team:
    team.allreduce(np.full(3, 5.0, np.float32))
    team.allreduce(np.zeros(1, np.float32))
"""


def free_address():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % found.getsockname()[1]


def start_member(program, address):
    return subprocess.Popen([sys.executable, "-c", program % [os.path.dirname(
        os.path.abspath(__file__))], address])


class TeamTest(unittest.TestCase):
    def test_a_member_joins(self):
        address = free_address()
        with paceline.Team(address, members=1, members_max=2, timeout_s=30) as team:
            joiner = start_member(JOINER, address)
            try:
                with self.assertRaises(paceline.LostPeerError) as caught:
                    while joiner.poll() is None:
                        team.allreduce(np.ones(3, np.float32))
                self.assertIn("joined", str(caught.exception))
                self.assertEqual((team.size, team.rank), (2, 0))
                np.testing.assert_array_equal(team.allreduce(np.ones(3, np.float32)), 6)
                try:
                    team.allreduce(np.zeros(1, np.float32))
                except paceline.LostPeerError:  # it may have left
                    pass
            finally:
                joiner.wait(30)

    def test_arrays_of_a_team_are_summed(self):
        address = free_address()
        others = [start_member(MEMBER, address) for _ in range(2)]
        try:
            with paceline.Team(address, members=3, timeout_s=30) as team:
                self.assertEqual((team.size, team.rank), (3, 0))
                x = np.full(1000, 10.0, np.float32)
                self.assertIs(team.allreduce(x), x)
                np.testing.assert_array_equal(x, 33)  # 10 + 11 + 12
                mean = team.allreduce(np.zeros(3, np.float32), "mean", weight=0)
                np.testing.assert_allclose(mean, (1 * 1 + 2 * 2) / 3, rtol=1e-6)
                team.broadcast(np.arange(5, dtype=np.float32))
                for wrong in (np.zeros(3), np.zeros((4, 4), np.float32).T[1:]):
                    with self.assertRaises(paceline.InputError):
                        team.allreduce(wrong)
                with self.assertRaises(paceline.UsageError):
                    team.allreduce(x, "product")
                with self.assertRaises(paceline.LostPeerError):
                    for _ in range(1000):
                        team.allreduce(x)
                for other in others:
                    self.assertEqual(other.wait(30), 0)
        finally:
            for other in others:
                if other.poll() is None:
                    other.kill()
                other.wait()
        with self.assertRaises(paceline.UsageError):
            team.allreduce(x)


class InterfaceTest(unittest.TestCase):
    def test_structs_are_those_of_the_compiler(self):
        structs = fields = 0
        with open(os.path.join(ROOT, "test/abi.txt"), encoding="utf-8") as file:
            for line in file:
                words = line.split()
                if words[0] == "struct":
                    structs += 1
                    self.assertEqual(ctypes.sizeof(getattr(_interface, words[1])), int(words[2]),
                                     line)
                elif words[0] == "field":
                    fields += 1
                    struct, name = words[1].split(".")
                    field = getattr(getattr(_interface, struct), name)
                    self.assertEqual((field.offset, field.size), (int(words[2]), int(words[3])),
                                     line)
        self.assertGreater(structs, 50)
        self.assertGreater(fields, 400)

    def test_the_package_is_of_the_library(self):
        self.assertEqual(paceline.__version__, paceline.library_version())

    def test_every_name_says_what_it_is(self):
        for name in paceline.__all__:
            self.assertTrue(getattr(paceline, name).__doc__, name)

    def test_workers_and_the_wrapper_for_spark_need_no_numpy(self):
        program = ("import sys; sys.path.insert(0, %r); sys.modules['numpy'] = None; "
                   "import paceline, paceline._worker; "
                   "assert 'pyspark' not in sys.modules; print(paceline.__version__)"
                   % os.path.join(ROOT, "python"))
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              check=True)
        self.assertEqual(said.stdout.strip(), paceline.__version__)


if __name__ == "__main__":
    scene.main()
