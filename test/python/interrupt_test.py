"""Ctrl-C in programs that train from Python."""
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import scene
from scene import FolderTest, draw_points, make_net, paceline

# A shell that starts a test with `&` lets it ignore the signal.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[:0] = %r
from scene import TRAINS, draw_points, make_net, paceline
x, y = draw_points(320)
try:
    paceline.train(net=make_net(), data=(x, y), epochs=1e6, out=%r, workers=2,
                   strategy={"sync": {"tau": %d}}, pace=%r,
                   on_event=lambda event: print(event.get("what", event["kind"]), flush=True), **TRAINS)
except KeyboardInterrupt:
    print("interrupted")
"""
LIMIT_S = 30


def all_children(pid):
    """Those that any thread of a process has started."""
    found = []
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/children" % (pid, task), encoding="ascii") as file:
            found += [int(word) for word in file.read().split()]
    return found


def is_alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class RunTest(FolderTest):
    """Two workers train for hours, in rounds of `tau` steps that last `pace` seconds each."""

    def begin(self, tau, pace):
        program = PROGRAM % ([os.path.dirname(os.path.abspath(__file__))], self.out, tau, pace)
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                                   text=True, start_new_session=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        watch = threading.Timer(LIMIT_S, process.kill)
        watch.start()
        self.addCleanup(watch.cancel)
        self.addCleanup(process.kill)
        return process

    def wait_for(self, process, event, count=1):
        for line in process.stdout:
            count -= line.strip() == event
            if count == 0:
                return
        self.fail("the program has ended without an event %r" % event)

    def expect_interrupted(self, process):
        rest = process.communicate(timeout=LIMIT_S)[0].split()
        self.assertEqual(rest[-1], "interrupted")
        self.assertEqual(process.returncode, 0)
        end = paceline.Run.open(self.out).events[-1]
        self.assertEqual((end["kind"], end["reason"]), ("end", "interrupted"))

    def test_ctrl_c_ends_the_run_in_good_order(self):
        process = self.begin(tau=2, pace=0.0)
        self.wait_for(process, "exchange")
        os.killpg(process.pid, signal.SIGINT)
        self.expect_interrupted(process)
        self.assertTrue(os.path.exists(os.path.join(self.out, "final.safetensors")))

    def test_a_second_ctrl_c_ends_the_run_at_once(self):
        process = self.begin(tau=100000, pace=0.01)  # a round of a quarter of an hour
        self.wait_for(process, "join", 2)
        workers = all_children(process.pid)
        self.assertEqual(len(workers), 2)
        time.sleep(1)  # until training has begun; before that the first one ends the run
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(1)
        self.assertIsNone(process.poll())  # the first one waits for the round
        self.assertTrue(all(is_alive(worker) for worker in workers))
        begun = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        self.expect_interrupted(process)
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual([worker for worker in workers if is_alive(worker)], [])


class NetTest(unittest.TestCase):
    def test_ctrl_c_ends_training_between_two_steps(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        net = paceline.Net(make_net(), batch=16, threads=1, kernels="ref",
                           solver={"base_lr": 0.1, "momentum": 0.9})
        x, y = draw_points(800)
        net.set_training_data((x, y))
        net.set_test_data((x, y))
        begun = time.monotonic()
        first = net.train(500)
        rate = 500 / (time.monotonic() - begun)
        threads = os.listdir("/proc/self/task")
        sent = []

        def interrupt():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        timer = threading.Timer(0.5, interrupt)
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            net.train(int(rate * LIMIT_S))
        self.assertLess(time.monotonic() - sent[0], 2)
        timer.join()
        self.assertEqual(os.listdir("/proc/self/task"), threads)
        # The net has kept the result of its steps, and training continues from there.
        kept = net.test()
        self.assertLess(net.train(500), first)
        self.assertEqual(kept.count, 800)
        self.assertEqual(net.predict(x[:3]).shape, (3, 2))


if __name__ == "__main__":
    scene.main()
