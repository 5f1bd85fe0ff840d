"""Mistakes with runs, models, machines and the network."""
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from case import NO_FILE, Case, Skip, train, words

GO_S = 40


def finish(process):
    text, _ = process.communicate(timeout=GO_S)
    return text, process.returncode


def ran(scene, env, *given, **how):
    return finish(scene.start(*given, env=env, **how))


def after_a_run(*then, change=None):
    """A run of the tiny job in the folder `run`; then another command."""
    def act(scene, env):
        text, code = ran(scene, env, "train", "x.job", "--out", "run")
        assert code == 0, text
        if change:
            change(scene)
        return ran(scene, env, *then)
    return act


TEXT_NET = """layer { name: 'text' type: 'Data' top: 'data' top: 'target' }
layer { name: 'embed' type: 'Embed' bottom: 'data' top: 'embed' embed_param { input_dim: 9 num_output: 8
  weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }
layer { name: 'units' type: 'LSTM' bottom: 'embed' top: 'units' recurrent_param { num_output: 8
  weight_filler { type: 'uniform' min: -0.3 max: 0.3 } } }
layer { name: 'scores' type: 'InnerProduct' bottom: 'units' top: 'scores'
  inner_product_param { num_output: 9 axis: 2 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'target' softmax_param { axis: 2 } }
"""

TEXT_JOB = """name: "text"
net { file: "text.prototxt" }
train_data { text { path: "hello.txt" unit: character window: 6 } }
batch: 20
solver { type: "SGD" base_lr: 0.05 lr_policy: "fixed" }
threads: 1
stop { steps: 2 }
"""


def after_a_text(*then):
    """A run over a text of nine characters in the folder `text`; then another command."""
    def act(scene, env):
        scene.write("hello.txt", "hello world\n" * 40)
        scene.write("text.prototxt", TEXT_NET)
        scene.write("text.job", TEXT_JOB)
        text, code = ran(scene, env, "train", "text.job", "--out", "text")
        assert code == 0, text
        return ran(scene, env, *then)
    return act


def break_checkpoints(scene):
    folder = scene.path("run/checkpoint")
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "r+b") as f:
            f.seek(200)
            f.write(b"\0\1\2\3" * 16)


def model_of_no_run(scene, env):
    after_a_run("convert", "run/final.safetensors", "m.caffemodel", "--net", "tiny.prototxt")(scene, env)
    return ran(scene, env, "test", "m.caffemodel")


def model_of_no_run_sampled(scene, env):
    after_a_run("convert", "run/final.safetensors", "m.caffemodel", "--net", "tiny.prototxt")(scene, env)
    return ran(scene, env, "sample", "m.caffemodel")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- other people in the run ----


def with_a_run(bad_worker, late=False):
    """A driver for two workers and one good worker; a bad one joins, then another good one.
    These three must end well, except the last one if it may be `late`. The message is the
    driver's."""
    def act(scene, env):
        driver = scene.start("driver", "x.job", "--out", "run", "--set", "workers=2", "--strategy",
                             "sync", "--wait", "30", env=env)
        said, join = [], None
        while join is None:
            line = driver.stdout.readline()
            if not line:
                return "".join(said), driver.wait(GO_S)
            said.append(line)
            found = re.search(r"paceline worker (--join \S+.*)", line)
            join = found.group(1).split("#")[0].split() if found else None
        reader = threading.Thread(target=lambda: said.extend(driver.stdout), daemon=True)
        reader.start()
        good = [scene.start("worker", *join, env=env)]
        bad_worker(scene, env, join)
        good.append(scene.start("worker", *join, "--retry", "2", env=env))
        codes = [finish(worker)[1] for worker in good]
        code = driver.wait(GO_S)
        reader.join(GO_S)
        if any(codes[:1] if late else codes):
            said.append(f"[the good workers ended with {codes}]\n")
            code = None
        return "".join(said), code
    return act


def wrong_root(scene, env, join):
    os.mkdir(scene.path("empty"))
    ran(scene, env, "worker", *join, "--data-root", "empty")


def other_data(scene, env, join):
    other = scene.path("other")
    os.mkdir(other)
    for name in ("train-images", "train-labels", "test-images", "test-labels", "tiny.prototxt"):
        shutil.copy(scene.path(name), other)
    with open(os.path.join(other, "train-labels"), "r+b") as f:
        f.seek(100)
        f.write(b"\2\2\2\2")
    ran(scene, env, "worker", *join, "--data-root", ".", cwd=other)


def address_of(join):
    host, port = join[join.index("--join") + 1].split(",")[0].rsplit(":", 1)
    return host, int(port)


def web_browser(scene, env, join):
    with socket.create_connection(address_of(join)) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: driver\r\n\r\n")
        s.settimeout(5)
        try:
            s.recv(100)
        except OSError:
            pass


def silent_callers(scene, env, join):
    for _ in range(200):
        try:
            scene.silent = getattr(scene, "silent", []) + [socket.create_connection(address_of(join), 2)]
        except OSError:
            break


def stopped_at_once(scene, env, join):
    worker = scene.start("worker", *join, env=env)
    time.sleep(0.15)
    worker.send_signal(signal.SIGKILL)
    finish(worker)


# ---- the network ----


def busy_port(scene, env):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        return ran(scene, env, "driver", "x.job", "--listen", f"127.0.0.1:{s.getsockname()[1]}")


def no_paceline_there(scene, env):
    """A web server where the driver should be."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()

        def serve():
            try:
                while True:
                    caller, _ = s.accept()
                    caller.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" * 20)
                    caller.close()
            except OSError:
                pass

        threading.Thread(target=serve, daemon=True).start()
        try:
            return ran(scene, env, "worker", "--join", f"127.0.0.1:{s.getsockname()[1]}", "--retry", "1")
        finally:
            s.shutdown(socket.SHUT_RDWR)


# ---- the machine ----


def endless(scene, env, *more):
    """A run that resumes until it is stopped, once it has begun."""
    process = scene.start("train", "x.job", "--out", "run", "--set", "stop.steps=100000", "--set", "pace=0.01",
                          *more, env=env)
    deadline = time.monotonic() + GO_S
    while not os.path.exists(scene.path("run/events.jsonl")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise TimeoutError("the run has not begun: " + process.stdout.read())
        time.sleep(0.05)
    return process


def two_at_once(scene, env):
    """--resume while the driver lives."""
    first = endless(scene, env)
    answer = ran(scene, env, "resume", "run")
    first.send_signal(signal.SIGINT)
    finish(first)
    return answer


def interrupted(scene, env):
    """After the second commit point, at about one second: from then on the next one is known."""
    process = endless(scene, env, "--set", "workers=2")
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    return finish(process)


def a_full_disk(scene, env):
    """As little room as a model needs is not there."""
    disk = scene.path("disk")
    os.mkdir(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", disk], check=False,
                      stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("no file system can be mounted here")
    try:
        return ran(scene, env, "train", "x.job", "--out", "disk/run", "--set", "net={zoo:\"fc-480-160\"}",
                   "--set", "stop.steps=2")
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def unreadable_choices(scene, env):
    """Another user's file of the tuner's choices. Root reads all files, unless it drops the capability."""
    path = scene.path(scene.write("kernels.txt", "paceline kernels 1\n"))
    os.chmod(path, 0)
    under = ()
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            raise Skip("there is no setpriv here, without which root may read every file")
        os.chown(path, 65534, 65534)
        under = ("setpriv", "--bounding-set", "-all")
    return ran(scene, {**env, "PACELINE_TUNER": path}, "train", "x.job", "--out", "run", "--set", "stop.steps=2",
               under=under)


# Both good workers have trained on all there was.
WHOLE = r"^records +800 used, 0 repeated, 0 missed"
WHOLE_OR_HALF = WHOLE + "|^records +400 used, 0 repeated, 400 missed"  # its half of the one round

CASES = [
    # ---- run directories and resuming ----
    Case("--out is a file", lambda s: [s.write("run", "x"), "train", "x.job", "--out", "run"][1:],
         "cannot make the directory: File exists", "paceline: run:", r"give another directory \(--out\)"),
    Case("--out holds other things",
         lambda s: [s.write("run/notes.txt", "x"), "train", "x.job", "--out", "run"][1:], "is not empty",
         "paceline: run:", r"give another directory \(--out\)"),
    Case("--out holds a run", None, "is not empty", "paceline: run:", "--resume resumes the run in it",
         act=after_a_run("train", "x.job", "--out", "run")),
    Case("--out where nobody may write", lambda s: ["train", "x.job", "--out", "/proc/run"], "cannot make the directory",
         "/proc/run:", r"give another directory \(--out\)"),
    Case("a trace where no folder is", train(more=["--trace", "no/such/trace.json"]), "cannot open for writing",
         r"no/such/trace\.json:", "give --trace a new file, in an existing folder"),
    Case("resume where no run is", words("resume", "nowhere"), r"there is no run to resume \(no job\.prototxt\)",
         "paceline: nowhere:", "give the directory of one"),
    Case("resume a run that is complete", None, "the run is complete", r"run/final\.safetensors",
         r"write paceline resume run --set stop\.steps=40", code=(0,), act=after_a_run("resume", "run")),
    Case("resume with another strategy", None, "single → mpca", "paceline: strategy: ", "--force-change allows it",
         act=after_a_run("resume", "run", "--set", "stop.steps=40", "--strategy", "mpca", "--workers", "2")),
    Case("resume with another net", None, r'tiny\.prototxt" → zoo "lenet"', "paceline: net: ",
         "--force-change allows it",
         act=after_a_run("train", "x.job", "--resume", "--out", "run", "--set", "stop.steps=40", "--set",
                         "net={zoo:\"lenet\"}")),
    Case("resume with another rate", None, r"0\.05 → 0\.01", r"^warning: solver\.base_lr:", None, code=(0,),
         act=after_a_run("resume", "run", "--set", "stop.steps=40", "--set", "solver.base_lr=0.01")),
    Case("resume while the driver lives", None, r"its driver is alive \(process \d+", "paceline: run:",
         "end it first, or take the run over with --take-over", act=two_at_once),
    Case("resume from broken checkpoints", None, "damaged: the header does not match its checksum",
         r"run/checkpoint/00000020\.safetensors:", "remove those that are damaged to start over",
         act=after_a_run("resume", "run", "--set", "stop.steps=40", change=break_checkpoints)),
    # ---- models ----
    Case("weights of another net", None, "is 6x1x3x3, the net has 7x1x3x3", r"run/final\.safetensors: joint/conv\.0",
         "stays as it was", code=(0,),
         act=after_a_run("train", "x.job", "--out", "two", "--set", "net.file=wide.prototxt", "--weights",
                         "run/final.safetensors",
                         change=lambda s: s.net("wide.prototxt", ("num_output: 6", "num_output: 7")))),
    Case("weights that are not there", train(more=["--weights", "nowhere.caffemodel"]), "No such file",
         r"weights: nowhere\.caffemodel:", NO_FILE),
    Case("text as weights",
         lambda s: [s.write("w.safetensors", "these are no weights"), "train", "x.job", "--out", "run", "--weights",
                    "w.safetensors"][1:], "is no safetensors file.*begins with \"these are no wei\"",
         r"weights: w\.safetensors:", r"give a \.safetensors or a \.caffemodel"),
    Case("predict with no run", words("predict", "nowhere", "a.png"), "no such run or model", "nowhere:",
         r"give a run's directory, a \.safetensors"),
    Case("predict what is no picture", None, "neither JPEG nor PNG", r"a\.png:", "convert it to one of them",
         act=after_a_run("predict", "run", "a.png", change=lambda s: s.write("a.png", "no picture"))),
    Case("predict with a net and --model", words("predict", "--net", "lenet", "--weights", "w", "a.png", "--model", "best"),
         "--net is of none", "--model", "is for the directory of a run"),
    Case("sample from no run", words("sample", "nowhere"), "no such run or model", "paceline sample: nowhere:",
         r"give a run's directory, a \.safetensors"),
    Case("sample from pictures", None, "is not a text", "train_data:", r"give a model that was trained on one \(text:FILE\)",
         act=after_a_run("sample", "run")),
    Case("sample with a character that the text has not", None, r"character U\+00E9 is none of the 9 in the vocabulary",
         "prime: byte 1:", "leave it out", act=after_a_text("sample", "text", "--prime", "h\u00e9")),
    Case("sample a length of 0", words("sample", "run", "--length", "0"), "not 0$", "paceline sample: --length:",
         r"expected a number from 1 to 1e\+08"),
    Case("sample at a negative temperature", words("sample", "run", "--temperature", "-1"), "not -1$",
         "paceline sample: --temperature:", r"expected a number from 0 to 1e\+06"),
    Case("sample a model of no run without its text", None, "the model is of no run", "paceline sample:",
         "name the text that it was trained on, as in --data 'text:FILE", act=model_of_no_run_sampled),
    Case("test a model of no run", None, "belongs to no run with test data", "paceline test:", "give --data KIND:PATH",
         act=model_of_no_run),
    Case("test a run without test data", None, "is missing from the job", "test_data:", "name records with --data",
         act=after_a_run("test", "run", change=lambda s: s.job("run/job.prototxt", (
             'test_data {\n  idx { images: "test-images" labels: "test-labels" }\n  scale: 0.00390625\n}\n', ""),
             ('"tiny.prototxt"', f'"{s.path("tiny.prototxt")}"')))),
    Case("convert onto itself", None, ": exists", r"run/final\.safetensors:",
         "give another name, or replace it with --force",
         act=after_a_run("convert", "run/final.safetensors", "run/final.safetensors")),
    Case("convert over a file that is there", lambda s: ["convert", "tiny.prototxt", "x.job"], ": exists",
         r"x\.job:", "give another name, or replace it with --force"),
    Case("convert to something unknown", None, "ends in none of", r"a\.pt:",
         r"\.caffemodel, \.safetensors, \.onnx and \.prototxt", act=after_a_run("convert", "run/final.safetensors", "a.pt")),
    Case("snapshots over another run's",
         lambda s: [s.write("a_iter_20.caffemodel", "x"), "train", "x.job", "--out", "run", "--set",
                    f"solver.snapshot_prefix={s.path('a')}", "--set", "solver.snapshot=10"][1:],
         "is another run's snapshot", r"a_iter_20\.caffemodel:", r"set another solver\.snapshot_prefix"),
    # ---- addresses ----
    Case("listen to all without a key", words("driver", "x.job", "--listen", "0.0.0.0:0"),
         "a key is required", r"listen 0\.0\.0\.0:0:", "paceline keygen FILE"),
    Case("listen at a host that is elsewhere", lambda s: ["driver", "x.job", "--listen", "192.0.2.7:0", "--key",
                                                          s.key()],
         "that is no address of this host", r"listen 192\.0\.2\.7:0:", "give one of its own"),
    Case("listen where another listens", None, "Address already in use", r"listen 127\.0\.0\.1:\d+:",
         "give another port, or 0", act=busy_port),
    Case("a worker without a driver to join", words("worker"), "is missing", "paceline worker:", "--join ADDR"),
    Case("join a port beyond all ports", words("worker", "--join", "127.0.0.1:99999"), r"'127\.0\.0\.1:99999'",
         "driver: address", "expected HOST:PORT"),
    Case("join a host without a name", words("worker", "--join", "no.such.host.invalid:29500", "--retry", "0.2"),
         r"no address is known of host no\.such\.host\.invalid", "--join", "check its name"),
    Case("join where nobody listens", words("worker", "--join", f"127.0.0.1:{free_port()}", "--retry", "0.2"),
         "cannot connect: Connection refused", r"driver at 127\.0\.0\.1:\d+:", "check that a driver listens there",
         code=(1,)),
    Case("join a web server", None, "is not a Paceline driver", r"driver at 127\.0\.0\.1:\d+:", "check host and port",
         code=(1,), act=no_paceline_there),
    Case("join beyond loopback without a key", words("worker", "--join", "192.0.2.7:29500", "--retry", "0.2"),
         "a key is required", r"driver 192\.0\.2\.7:29500:", "paceline keygen FILE"),
    Case("a niceness out of range", words("worker", "--join", "127.0.0.1:1", "--nice", "50"), "not 50$",
         "paceline worker: --nice:", "expected a number from 0 to 19"),
    Case("a time that is below 0", words("worker", "--join", "127.0.0.1:1", "--retry", "-5"), "not -5$",
         "paceline worker: --retry:", "expected a number from 0 to"),
    # ---- other people in the run: the other two train on to the end ----
    Case("a worker with the wrong folder", None, "empty/train-images: cannot open: No such file",
         r"worker \d+ \(\S+, 127\.0\.0\.1:\d+\) left while opening",
         "mount the data there or start the worker with another --data-root", code=(0,), act=with_a_run(wrong_root)),
    Case("a worker with other data", None, "other data: train_data has as many records",
         r"worker \d+ \(\S+, 127\.0\.0\.1:\d+\) left while opening", "copy the driver's files there", code=(0,),
         act=with_a_run(other_data)),
    Case("a web browser at the driver's port", None, WHOLE, harmless=True, code=(0,), act=with_a_run(web_browser)),
    Case("two hundred silent callers", None, WHOLE, harmless=True, code=(0,), act=with_a_run(silent_callers)),
    Case("a worker killed as it comes", None, WHOLE_OR_HALF, harmless=True, code=(0,),
         act=with_a_run(stopped_at_once, late=True)),
    # ---- the machine ----
    Case("a disk without room for the model", None, r"\d+ bytes are left, and the final model alone needs \d+",
         "disk/run:", r"free \d+ bytes there, or give a directory on another disk", code=(1, 2), act=a_full_disk),
    Case("Ctrl-C", None, "stopping at the next commit point", "about", "again: stop now", code=(130,),
         act=interrupted),
    Case("more memory than there is",
         train(("batch: 20", "batch: 65536"),
               more=["--set", 'net={zoo:"vgg-16"}', "--set", "train_data.resize_height=224", "--set",
                     "train_data.resize_width=224", "--set", "test_data.resize_height=224", "--set",
                     "test_data.resize_width=224"]),
         r"(out of|no) memory for .*: there are \d", 'the largest layer is "conv1_2"', "lower batch", code=(1, 2)),
    Case("an unknown instruction set", words("bench", "step", "x.job", "--steps", "1"), "not foo", "PACELINE_ISA:",
         "expected sse2, avx2 or avx512", env={"PACELINE_ISA": "foo"}),
    Case("another user's file of choices", None, "kernels.txt: cannot open: Permission denied", "warning: tuned",
         "name another file with PACELINE_TUNER=PATH", code=(0,), act=unreadable_choices),
]
