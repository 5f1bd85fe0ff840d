"""Runs from Python: training by worker processes, simulation, plans, and how they end."""
import os
import time
import unittest

import numpy as np

import scene
from scene import CLUSTER, TRAINS, FolderTest, draw_points, make_net, paceline


class TrainTest(FolderTest):
    def test_arrays_are_trained_on(self):
        x, y = draw_points(800)
        seen = []
        run = paceline.train(net=make_net(), data=(x[200:], y[200:]), test=(x[:200], y[:200]),
                             strategy={"sync": {"tau": 4}}, workers=2, epochs=30, out=self.out,
                             on_event=lambda event: seen.append(event["kind"]), **TRAINS)
        report = run.report
        self.assertEqual((report.reason, report.workers), ("epochs", 2))
        # It ends with the round, of four steps of two workers, in which it has all of them.
        self.assertGreaterEqual(report.used, 30 * 600)
        self.assertLess(report.used, 30 * 600 + 2 * 4 * 16)
        self.assertEqual(report.directory, self.out)
        self.assertEqual(seen, [event["kind"] for event in run])
        self.assertEqual((seen[0], seen[-1]), ("start", "end"))
        # The test error is that of the model, which another count finds, too: chance has 0.44.
        wrong = np.mean(paceline.predict(run, x[:200]).argmax(axis=1) != y[:200])
        self.assertAlmostEqual(report.test_error, wrong, places=6)
        self.assertLess(report.test_error, 0.2)
        self.assertAlmostEqual(wrong, np.mean(
            paceline.predict(self.out, x[:200]).argmax(axis=1) != y[:200]))

    def test_events_of_a_run_are_curves(self):
        x, y = draw_points(320)
        run = paceline.train(net=make_net(), data=(x, y), test=(x, y), epochs=3, out=self.out,
                             **TRAINS)
        curve = run.curve("eval", set="test")
        self.assertEqual(curve["error"].dtype, np.float64)
        self.assertEqual([e["error"] for e in run.events if e["kind"] == "eval"],
                         list(curve["error"]))
        self.assertTrue((np.diff(curve["t"]) >= 0).all())
        again = paceline.Run.open(self.out)
        self.assertEqual(again.events, run.events)
        with self.assertRaises(RuntimeError):
            again.report

    def test_a_run_is_continued(self):
        x, y = draw_points(320)
        common = dict(net=make_net(), data=(x, y), out=self.out, **TRAINS)
        paceline.train(epochs=1, **common)
        run = paceline.train(epochs=2, resume=True, **common)
        self.assertEqual(run.report.used, 2 * 320)
        self.assertEqual(run.report.samples, 320)

    def test_python_is_not_held_up(self):
        x, y = draw_points(320)
        run = paceline.start(net=make_net(), data=(x, y), epochs=1e6, out=self.out, **TRAINS)
        kinds = []
        for event in run:
            kinds.append(event["kind"])
            if event["kind"] == "loss":
                break
        turns = 0
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            turns += 1
        run.stop()
        run.wait()
        self.assertEqual((kinds[0], kinds[-1]), ("start", "loss"))
        self.assertGreater(turns, 1000)  # of a loop that a held lock would have stopped
        self.assertEqual(run.report.reason, "interrupted")
        self.assertTrue(os.path.exists(run.report.model))

    def test_an_exception_of_on_event_ends_the_run(self):
        x, y = draw_points(320)

        def complain(event):
            if event["kind"] == "loss":
                raise KeyError(event["kind"])
        with self.assertRaises(KeyError):
            paceline.train(net=make_net(), data=(x, y), epochs=1e6, out=self.out,
                           on_event=complain, **TRAINS)
        self.assertEqual(paceline.Run.open(self.out).events[-1]["reason"], "interrupted")


class ErrorTest(FolderTest):
    def refused(self, kind, phrase, **settings):
        x, y = draw_points(64)
        given = dict(net=make_net(), data=(x, y), epochs=1, out=self.out, **TRAINS)
        with self.assertRaises(kind) as caught:
            paceline.train(**{**given, **settings})
        self.assertIn(phrase, str(caught.exception))
        self.assertIsInstance(caught.exception, paceline.Error)

    def test_errors_are_exceptions_with_the_message(self):
        x, y = draw_points(64)
        self.refused(paceline.UsageError, "mpca", strategy="mcpa")
        self.refused(paceline.UsageError, "epoch", stop={"epoch": 1})
        self.refused(ValueError, "lenet", net="lenot")
        self.refused(paceline.InputError, "one for each of 64 records", data=(x, y[:63]))
        self.refused(paceline.InputError, "integers", data=(x, y + 0.5))
        self.refused(paceline.InputError, "there is a label 1", data=(x, y), classes=1)
        self.refused(paceline.InputError, "no record", data=iter(()))
        self.refused(paceline.InputError, "nowhere", data="idx:/nowhere,/nowhere")
        self.refused(paceline.InputError, "expected numbers", data=(np.full((64, 2), "a"), y))


class SimulationTest(FolderTest):
    def simulated(self, **settings):
        x, y = draw_points(480)
        return paceline.simulate(cluster=CLUSTER, net=make_net(), data=(x, y), test=(x, y),
                                 workers=4, strategy="mpca", epochs=4, **{**TRAINS, **settings})

    def test_a_seed_gives_the_same_simulation(self):
        first, second = (self.simulated(files=False, lr=0.02) for _ in range(2))
        self.assertEqual(first.events, second.events)
        self.assertTrue(first.report.simulated)
        self.assertEqual((first.report.directory, first.report.model), ("", ""))
        other = self.simulated(files=False, lr=0.02, seed=2)
        self.assertNotEqual(first.report.test_loss, other.report.test_loss)
        # Four workers of 16 records share out 4 x 480; the slow one takes a step in 8 ms.
        self.assertGreaterEqual(first.report.wall_s, 4 * 480 / 16 / 3.5 * 0.004 * 0.9)

    def test_a_plan_has_a_row_for_each_strategy(self):
        x, y = draw_points(480)
        plan = paceline.plan(cluster=CLUSTER, net=make_net(), data=(x, y), workers=(1, 4), **TRAINS)
        self.assertEqual(plan.records, 480)
        self.assertEqual((plan.single.strategy, plan.single.workers), ("single", 1))
        # One worker takes 16 records in 4 ms, by the cluster file.
        self.assertAlmostEqual(plan.single.samples_per_s, 4000, delta=1)
        self.assertEqual({row.workers for row in plan.rows}, {1, 2, 3, 4})
        self.assertIn("allreduce", {row.strategy for row in plan.rows})
        # Of rows within 2 % of the fastest it is one of the fewest workers.
        self.assertGreaterEqual(plan.best.samples_per_s,
                                0.98 * max(row.samples_per_s for row in plan.rows))

    def test_a_cluster_is_needed(self):
        with self.assertRaises(TypeError):
            paceline.plan(net=make_net())
        with self.assertRaises(paceline.InputError):
            paceline.plan(cluster="node { sped: 1 }", net=make_net(), data=draw_points(64))


if __name__ == "__main__":
    scene.main()
