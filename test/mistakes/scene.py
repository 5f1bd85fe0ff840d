"""A folder of small real things to make mistakes with: data, nets, jobs, pictures, clusters."""
import os
import random
import shutil
import signal
import struct
import subprocess
import threading
import zlib

SIDE, CLASSES = 12, 3

NET = """name: 'tiny'
layer { name: 'data' type: 'Data' top: 'data' top: 'label' }
layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'
  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: 'relu' type: 'ReLU' bottom: 'pool' top: 'pool' }
layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'
  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy'
  include { phase: TEST } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
"""

JOB = """name: "tiny"
net { file: "tiny.prototxt" }
train_data {
  idx { images: "train-images" labels: "train-labels" }
  scale: 0.00390625
}
test_data {
  idx { images: "test-images" labels: "test-labels" }
  scale: 0.00390625
}
batch: 20
solver { type: "SGD" base_lr: 0.05 momentum: 0.9 lr_policy: "fixed" }
threads: 1
stop { steps: 20 }
seed: 7
"""

CLUSTER = """node { count: 2 }
step_seconds: 0.01
link { mbit: 1000 latency_us: 100 }
"""


LIMIT_S = 60  # for a process, and for an awaited condition


class Scene:
    def __init__(self, folder, paceline="paceline"):
        self.folder = folder
        self.paceline = paceline
        self.processes = []
        self.ended = False
        self.lock = threading.Lock()
        os.makedirs(folder, exist_ok=True)
        self.write("tiny.prototxt", NET)
        self.write("x.job", JOB)
        self.write("two.cluster", CLUSTER)
        self.idx("train", 600)
        self.idx("test", 120)

    def start(self, *given, env, under=(), cwd=None):
        """The command, in a group of its own, of which nothing outlives the scene."""
        with self.lock:
            if self.ended:
                raise TimeoutError("the scene is over")
            process = subprocess.Popen(
                [*under, self.paceline, *given], cwd=cwd or self.folder, env=env,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace", start_new_session=True)
            self.processes.append(process)
            return process

    def kill_all(self):
        """Whoever waits for one of them resumes, too."""
        with self.lock:
            self.ended = True
            for process in self.processes:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def end(self):
        self.kill_all()
        for process in self.processes:
            process.wait()
            process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        """A file of text or bytes; its name."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())
        return name

    def key(self):
        """A file with the key of a run; its name."""
        name = self.write("run.key", "6b6579206f66206120746573742c206e6f74206120736563726574206174206c")
        os.chmod(self.path(name), 0o600)
        return name

    def job(self, name, *changes, base=JOB):
        """The tiny job with (old, new) replaced; each must occur."""
        text = base
        for what, by in changes:
            assert what in text, what
            text = text.replace(what, by, 1)
        return self.write(name, text)

    def net(self, name, *changes):
        return self.job(name, *changes, base=NET)

    def idx(self, name, count, classes=CLASSES, side=SIDE, labels=None):
        """Bars that lie, stand or slant, in noise."""
        draw = random.Random(f"{name} {count}")
        pixels, marks = bytearray(), bytearray()
        for i in range(count):
            c, at = i % classes, 3 + draw.randrange(6)
            marks.append(c)
            for row in range(side):
                for col in range(side):
                    on = row == at if c == 0 else col == at if c == 1 else row + col == 2 * at
                    pixels.append(draw.randrange(100) + (150 if on else 0))
        self.write(f"{name}-images", struct.pack(">4I", 0x803, count, side, side) + pixels)
        self.write(f"{name}-labels", struct.pack(">2I", 0x801, labels or count) + marks)

    def picture(self, name, width=16, height=16, grey=120):
        """A PNG of one grey, with some noise."""
        draw = random.Random(name)
        rows = b"".join(b"\0" + bytes(min(255, grey + draw.randrange(80)) for _ in range(3 * width))
                        for _ in range(height))

        def chunk(kind, data):
            return (struct.pack(">I", len(data)) + kind + data
                    + struct.pack(">I", zlib.crc32(kind + data)))

        head = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
        return self.write(name, b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
                          + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

    def pictures(self, folder, classes=("cat", "dog"), each=12, **size):
        for c, name in enumerate(classes):
            for i in range(each):
                self.picture(f"{folder}/{name}/{i:02}.png", grey=40 + 60 * c, **size)
        return folder
