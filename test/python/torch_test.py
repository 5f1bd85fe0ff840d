"""Records of PyTorch's own Dataset and DataLoader."""
import os

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import scene
from scene import TRAINS, FolderTest, draw_points, make_net, paceline


class Squares(Dataset):
    """Record i is 3 x 4 numbers from i on; its label is i modulo 5. It has no end by itself."""

    def __len__(self):
        return 61

    def __getitem__(self, i):
        return torch.arange(i, i + 12, dtype=torch.float32).reshape(1, 3, 4), i % 5


class Stream(IterableDataset):
    """The same records one after the other; each of a loader's workers has a part."""

    def __len__(self):
        return len(Squares())

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return (Squares()[i] for i in range(first, len(self), step))


class TorchTest(FolderTest):
    def expect_squares(self, data, order=None, **settings):
        records = paceline.Records(data, **settings)
        self.assertEqual((records.shape, records.classes, len(records)), ((1, 3, 4), 5, 61))
        first = records.values[:, 0, 0, 0].astype(int)
        self.assertEqual(sorted(first), list(range(61)))
        if order is not None:
            self.assertEqual(list(first), list(order))
        np.testing.assert_array_equal(records.values.reshape(61, 12), first[:, None] + np.arange(12))
        np.testing.assert_array_equal(records.labels, first % 5)
        return first

    def test_datasets(self):
        self.expect_squares(Squares(), range(61))
        self.expect_squares(Stream(), range(61))
        x = torch.stack([Squares()[i][0] for i in range(61)]).requires_grad_()
        y = torch.arange(61) % 5
        self.expect_squares(TensorDataset(x, y), range(61))
        self.expect_squares((x, y), range(61))
        self.expect_squares(torch.utils.data.Subset(Squares(), list(range(60, -1, -1))),
                            range(60, -1, -1))

    def test_loaders(self):
        self.expect_squares(DataLoader(Squares(), batch_size=8), range(61))
        self.expect_squares(DataLoader(Squares(), batch_size=8, num_workers=2), range(61))
        self.expect_squares(DataLoader(Squares(), batch_size=None), range(61))
        self.expect_squares(DataLoader(Stream(), batch_size=8, num_workers=2))
        self.expect_squares(DataLoader(Squares(), batch_size=8, num_workers=2), range(61),
                            spool=self.folder)

    def test_a_loader_that_shuffles(self):
        def shuffled(seed):
            return DataLoader(Squares(), batch_size=8, shuffle=True, num_workers=2,
                              generator=torch.Generator().manual_seed(seed))
        order = torch.cat([y for _, y in shuffled(3)]).tolist()
        found = self.expect_squares(shuffled(3))
        self.assertEqual(list(found % 5), order)
        self.assertNotEqual(list(found), list(range(61)))

    def test_training_on_a_loader(self):
        x, y = draw_points(800)
        data = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2,
                            generator=torch.Generator().manual_seed(1))
        run = paceline.train(net=make_net(), data=loader, test=data, strategy={"sync": {"tau": 4}},
                             workers=2, epochs=30, out=self.out, **TRAINS)
        self.assertGreaterEqual(run.report.used, 30 * 800)
        self.assertLess(run.report.test_error, 0.2)  # chance has 0.44
        wrong = np.mean(paceline.predict(run, torch.from_numpy(x)).argmax(axis=1) != y)
        self.assertAlmostEqual(run.report.test_error, wrong, places=6)
        self.assertEqual(os.listdir(self.folder), ["run"])


if __name__ == "__main__":
    scene.main()
