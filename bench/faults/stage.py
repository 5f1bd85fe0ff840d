"""Real runs whose members are started, killed and watched one by one: shared by the scripts here."""
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
STRATEGIES = {
    "sync": "sync={tau: 4}",
    "allreduce": "allreduce={}",
    "async_allreduce": "async_allreduce={}",
    "diloco": "diloco={tau: 4}",
    "easgd": "easgd={tau: 4}",
    "easgd-sync": "easgd={tau: 4 mode: sync}",
    "mpca": "mpca={}",
    "mpca-symmetric": "mpca={coordination: symmetric}",
    "pace": "pace={}",
    "pace-symmetric": "pace={coordination: symmetric}",
    "ps": "ps={}",
    "ps-bsp": "ps={consistency: bsp}",
    "downpour": "downpour={}",
    "gossip": "gossip={p: 1}",
}
MORE = {"downpour": ["solver.momentum=0"]}
TRAIN, TEST, SIDE, CLASSES = 600, 120, 12, 3
NET = """name: 'tiny'
layer { name: 'data' type: 'Data' top: 'data' top: 'label' }
layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'
  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: 'relu' type: 'ReLU' bottom: 'pool' top: 'pool' }
layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'
  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
"""
JOB = """name: 'tiny'
net { file: 'net.prototxt' }
train_data { idx { images: 'train-images' labels: 'train-labels' } scale: 0.00390625 }
test_data { idx { images: 'test-images' labels: 'test-labels' } scale: 0.00390625 }
batch: 16
solver { base_lr: 0.01 momentum: 0.9 lr_policy: 'fixed' }
strategy { sync { tau: 4 } }
threads: 1
kernels: ref
checkpoint { every_seconds: 0 }
evaluate { every_exchanges: 1000000 }
stop { epochs: 1000000 }
"""


def strategy_settings(name):
    return [f"strategy.{STRATEGIES[name]}"] + MORE.get(name, [])


def arguments(parser):
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "build"),
                        help="the build folder: paceline, paceline_stage and paceline_proxy")
    parser.add_argument("--preset", choices=["automatic", "lan", "busy"], default="lan",
                        help="of heartbeats: 250 ms / 1 s, or 1 s / 5 s")


def write_data(folder, seed=1):
    """A few hundred images of three classes: a bright bar on noise."""
    draw = random.Random(seed)
    for name, count in (("train", TRAIN), ("test", TEST)):
        pixels, labels = bytearray(), bytearray()
        for i in range(count):
            label, at = i % CLASSES, 3 + draw.randrange(6)
            labels.append(label)
            for row in range(SIDE):
                for col in range(SIDE):
                    on = (row == at, col == at, row + col == 2 * at)[label]
                    pixels.append(draw.randrange(100) + 150 * on)
        with open(os.path.join(folder, f"{name}-images"), "wb") as f:
            f.write(struct.pack(">4I", 0x803, count, SIDE, SIDE) + pixels)
        with open(os.path.join(folder, f"{name}-labels"), "wb") as f:
            f.write(struct.pack(">2I", 0x801, count) + labels)
    for name, text in (("net.prototxt", NET), ("tiny.job", JOB)):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)


def make_key(build, folder):
    """A file with a new key, for hosts beyond loopback."""
    key = os.path.join(folder, "run.key")
    subprocess.run([os.path.join(build, "paceline"), "keygen", key], check=True,
                   stdout=subprocess.DEVNULL)
    return key


def free_port(host="127.0.0.1"):
    with socket.socket() as s:
        s.bind((host, 0))
        return f"{host}:{s.getsockname()[1]}"


class Failure(Exception):
    """A violated expectation."""


class Proxy:
    """test/proxy: a route for each target; `address` has where to connect to for each."""

    def __init__(self, build, routes):
        self.process = subprocess.Popen([os.path.join(build, "paceline_proxy")] + routes,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        bufsize=1)
        self.address = [self.process.stdout.readline().split()[2] for _ in routes]

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer != "ok":
            raise Failure(f"the proxy, told '{line}', says: {answer}")

    def end(self):
        self.process.kill()
        self.process.wait()


class Stage:
    """A folder with the tiny job, in which runs follow each other."""

    def __init__(self, args):
        self.build = os.path.abspath(args.build)
        for name in ("paceline", "paceline_stage", "paceline_proxy"):
            if not os.path.exists(os.path.join(self.build, name)):
                sys.exit(f"{name} is not in {self.build}: build it, or say --build DIR")
        self.preset = args.preset
        self.folder = tempfile.mkdtemp(prefix="paceline-stage-")
        self.count = 0
        write_data(self.folder)
        self.key = make_key(self.build, self.folder)
        self.preset_set = self.find_preset()

    def find_preset(self):
        if self.preset == "automatic":
            return []
        job = os.path.join(self.folder, "tiny.job")
        asked = subprocess.run([os.path.join(self.build, "paceline_stage"), job,
                                os.path.join(self.folder, "no"), "nowhere",
                                f"heartbeat={self.preset}"], capture_output=True, text=True,
                               check=False)
        if "heartbeat" in asked.stderr:
            print("this build knows no job field `heartbeat`: its own choice is taken",
                  file=sys.stderr)
            return []
        return [f"heartbeat={self.preset}"]

    def run(self, workers, settings, **how):
        self.count += 1
        return Run(self, os.path.join(self.folder, f"run-{self.count}"), workers, settings, **how)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)


def wait_until(run, condition, limit, what):
    """Wait until the condition holds for the run's events; a Failure if the run ends before."""
    until = time.monotonic() + limit
    while True:
        gone = run.driver.poll() is not None
        run.poll()
        if condition():
            return
        if gone or time.monotonic() > until:
            why = f"the driver has ended with {run.driver.returncode}" if gone \
                else f"not within {limit} s"
            raise Failure(f"{what}: {why}; they said:\n{run.said()[-4000:]}")
        time.sleep(0.002)


class Run:
    """A driver and its workers, each a process; node N is worker[N]. `wrap(node)` is put before a
    worker's command, `wrap(None)` before the driver's; `address(node)` is where it listens. A
    removed worker tries to rejoin for `retry` seconds (None: a worker's default)."""

    def __init__(self, stage, out, workers, settings, proxied=(), wrap=None, address=None,
                 retry=None):
        self.stage, self.out, self.retry = stage, out, retry
        self.wrap = wrap or (lambda node: [])
        self.address = address or (lambda node: "127.0.0.1:0")
        self.worker, self.proxy = [], {}
        self.read_to, self.rest, self.events = 0, "", []
        self.err = open(out + ".log", "wb")
        self.driver = subprocess.Popen(
            self.wrap(None) + [self.program("paceline_stage"), "--key", stage.key, "tiny.job", out, self.address(None),
                               f"workers={workers}"] + stage.preset_set + settings,
            cwd=stage.folder, stdout=subprocess.PIPE, stderr=self.err, text=True)
        self.at = self.driver.stdout.readline().strip()
        self.driver.stdout.close() # the events are in the file
        if not self.at:
            self.end()
            raise Failure(f"no driver: {self.said()}")
        for node in range(workers):
            self.start_worker(node, node in proxied)
            self.wait(lambda n=node: self.members("join") == n + 1, 60, "a worker's join")

    def program(self, name):
        return os.path.join(self.stage.build, name)

    def start_worker(self, node, proxied):
        listen, more, join = self.address(node), ["--key", self.stage.key], self.at
        if proxied:
            listen = free_port()
            self.proxy[node] = Proxy(self.stage.build, [self.at, listen])
            join = self.proxy[node].address[0]
            more += ["--advertise", self.proxy[node].address[1]]
        if self.retry is not None:
            more += ["--retry", str(self.retry)]
        self.worker.append(subprocess.Popen(
            self.wrap(node) + [self.program("paceline"), "worker", "--join", join, "--listen",
                               listen] + more,
            cwd=self.stage.folder, stdout=subprocess.DEVNULL, stderr=self.err,
            env=dict(os.environ, OMP_WAIT_POLICY="passive")))

    def said(self):
        with open(self.out + ".log") as f:
            return f.read()

    def poll(self):
        """Read the events written so far."""
        try:
            with open(os.path.join(self.out, "events.jsonl")) as f:
                f.seek(self.read_to)
                text = f.read()
                self.read_to = f.tell()
        except FileNotFoundError:
            return
        lines = (self.rest + text).split("\n")
        self.rest = lines.pop()
        self.events += [json.loads(line) for line in lines]

    def members(self, what=None):
        self.poll()
        return sum(1 for e in self.events if e["kind"] == "member" and
                   (e["what"] == what if what else e["what"] != "join"))

    def exchanges(self):
        self.poll()
        return sum(1 for e in self.events if e["kind"] == "exchange")

    def series(self):
        """How many exchanges there are of each worker that has its own, and of each lane."""
        self.poll()
        count = {}
        for e in self.events:
            if e["kind"] == "exchange":
                key = e.get("node"), e["lane"]
                count[key] = count.get(key, 0) + 1
        return count

    wait = wait_until

    def finish(self, limit=60):
        """Request its end, and wait for it. Returns its last event."""
        if self.driver.poll() is None:
            self.driver.send_signal(signal.SIGINT)
        try:
            self.driver.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failure(f"it does not end; they said:\n{self.said()}") from None
        self.poll()
        if self.driver.returncode != 0:
            raise Failure(f"the driver ended with {self.driver.returncode}; they said:\n"
                          f"{self.said()}")
        return self.events[-1]

    def end(self):
        for process in [self.driver] + self.worker:
            if process.poll() is None:
                process.kill()
            process.wait()
        for proxy in self.proxy.values():
            proxy.end()
        self.err.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def spread(values, unit=1e3):
    """p50, p99 and max, in ms."""
    return " ".join(f"{unit * quantile(values, q):8.1f}" for q in (0.5, 0.99, 1.0))
