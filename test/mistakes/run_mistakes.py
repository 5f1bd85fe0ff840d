"""Mistakes with runs, models, machines and the network."""
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from case import Case, train, words

GO_S = 40


def command(scene, paceline, env, *given):
    return subprocess.Popen([paceline, *given], cwd=scene.folder, env=env, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def finish(process):
    text, _ = process.communicate(timeout=GO_S)
    return text, process.returncode


def ran(scene, paceline, env, *given):
    return finish(command(scene, paceline, env, *given))


def after_a_run(*then, change=None):
    """A run of the tiny job in the folder `run`; then another command."""
    def act(scene, paceline, env):
        text, code = ran(scene, paceline, env, "train", "x.job", "--out", "run")
        assert code == 0, text
        if change:
            change(scene)
        return ran(scene, paceline, env, *then)
    return act


def break_checkpoints(scene):
    folder = scene.path("run/checkpoint")
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "r+b") as f:
            f.seek(200)
            f.write(b"\0\1\2\3" * 16)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def with_a_run(bad_worker, late=False):
    """A driver for two workers and one good worker; a bad one comes, then another good one. Those
    three must end well, but for the last one where it may be `late`. The answer is the driver's."""
    def act(scene, paceline, env):
        driver = command(scene, paceline, env, "driver", "x.job", "--out", "run", "--set", "workers=2",
                         "--strategy", "sync", "--wait", "30")
        said, join = [], None
        while join is None:
            line = driver.stdout.readline()
            if not line:
                driver.wait()
                return "".join(said), driver.returncode
            said.append(line)
            found = re.search(r"paceline worker (--join \S+.*)", line)
            join = found.group(1).split("#")[0].split() if found else None
        reader = threading.Thread(target=lambda: said.extend(driver.stdout))
        reader.start()
        good = [command(scene, paceline, env, "worker", *join)]
        bad_worker(scene, paceline, env, join)
        time.sleep(0.5)
        good.append(command(scene, paceline, env, "worker", *join, "--retry", "2"))
        codes = [finish(worker)[1] for worker in good]
        try:
            code = driver.wait(GO_S)
        except subprocess.TimeoutExpired:
            driver.kill()
            code = None
        reader.join()
        if any(codes[:1] if late else codes):
            said.append(f"[the good workers ended with {codes}]\n")
            code = None
        return "".join(said), code
    return act


def wrong_root(scene, paceline, env, join):
    os.mkdir(scene.path("empty"))
    ran(scene, paceline, env, "worker", *join, "--data-root", "empty")


def other_data(scene, paceline, env, join):
    shutil.copytree(scene.folder, scene.path("../" + os.path.basename(scene.folder) + "-other"))
    other = type(scene)(scene.folder + "-other")
    with open(other.path("train-labels"), "r+b") as f:
        f.seek(100)
        f.write(b"\2\2\2\2")
    worker = subprocess.Popen([paceline, "worker", *join, "--data-root", "."], cwd=other.folder, env=env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    worker.wait(GO_S)
    shutil.rmtree(other.folder, ignore_errors=True)


def address_of(join):
    host, port = join[join.index("--join") + 1].split(",")[0].rsplit(":", 1)
    return host, int(port)


def web_browser(scene, paceline, env, join):
    with socket.create_connection(address_of(join)) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: driver\r\n\r\n")
        s.settimeout(5)
        try:
            s.recv(100)
        except OSError:
            pass


def silent_callers(scene, paceline, env, join):
    for _ in range(200):
        try:
            scene.silent = getattr(scene, "silent", []) + [socket.create_connection(address_of(join), 2)]
        except OSError:
            break


def stopped_at_once(scene, paceline, env, join):
    worker = command(scene, paceline, env, "worker", *join)
    time.sleep(0.15)
    worker.send_signal(signal.SIGKILL)
    worker.communicate()


def busy_port(scene, paceline, env):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        return ran(scene, paceline, env, "driver", "x.job", "--listen", f"127.0.0.1:{s.getsockname()[1]}")


def no_paceline_there(scene, paceline, env):
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
        answer = ran(scene, paceline, env, "worker", "--join", f"127.0.0.1:{s.getsockname()[1]}", "--retry", "1")
        s.shutdown(socket.SHUT_RDWR)
        return answer


def two_at_once(scene, paceline, env):
    """--resume while the driver lives."""
    first = command(scene, paceline, env, "train", "x.job", "--out", "run", "--set", "stop.steps=100000",
                    "--set", "pace=0.01", "--set", "checkpoint.every_seconds=1")
    time.sleep(4)
    answer = ran(scene, paceline, env, "resume", "run")
    first.send_signal(signal.SIGINT)
    first.communicate()
    return answer


def a_full_disk(scene, paceline, env):
    """As little room as a model needs is not there."""
    disk = scene.path("disk")
    os.mkdir(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", disk], check=False,
                      stderr=subprocess.DEVNULL).returncode != 0:
        return "16384 bytes: disk/run: free (not tried: nothing can be mounted here)", 2
    try:
        return ran(scene, paceline, env, "train", "x.job", "--out", "disk/run", "--set", "net={zoo:\"fc-480-160\"}",
                   "--set", "stop.steps=2")
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def interrupted(scene, paceline, env):
    process = command(scene, paceline, env, "train", "x.job", "--out", "run", "--set", "stop.steps=100000",
                      "--set", "pace=0.01", "--set", "workers=2")
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    return finish(process)


CASES = [
    # ---- run directories and resuming ----
    Case("--out is a file", lambda s: [s.write("run", "x"), "train", "x.job", "--out", "run"][1:], "run",
         "run", "directory|folder|another"),
    Case("--out holds other things",
         lambda s: [s.write("run/notes.txt", "x"), "train", "x.job", "--out", "run"][1:], "not empty", "run",
         "resume|another|empty"),
    Case("--out where nobody may write", lambda s: ["train", "x.job", "--out", "/proc/run"], "directory|write|create",
         "/proc/run", "permi|No such file|cannot|another"),
    Case("a trace where no folder is", train(more=["--trace", "no/such/trace.json"]), "trace", "no/such",
         "No such file|folder|directory"),
    Case("resume where no run is", words("resume", "nowhere"), "no run|not a run|there is no", "nowhere",
         "train|directory|job.prototxt"),
    Case("resume a run that is complete", None, "complete", "run", r"stop\.|--set|epochs", code=(0,),
         act=after_a_run("resume", "run")),
    Case("resume with another strategy", None, "strategy", "run|strategy", "--force-change",
         act=after_a_run("resume", "run", "--set", "stop.steps=40", "--strategy", "mpca", "--workers", "2")),
    Case("resume with another net", None, "net", "run|net", "--force-change",
         act=after_a_run("train", "x.job", "--resume", "--out", "run", "--set", "stop.steps=40", "--set",
                         "net={zoo:\"lenet\"}")),
    Case("resume with another rate", None, r"base_lr", "0.05", r"0\.01", code=(0,),
         act=after_a_run("resume", "run", "--set", "stop.steps=40", "--set", "solver.base_lr=0.01")),
    Case("resume while the driver lives", None, "alive|lives|running|is driven", "run", "--take-over",
         act=two_at_once),
    Case("resume from broken checkpoints", None, "checkpoint", r"run/checkpoint",
         "checksum|damaged|sum|fresh|remove|valid|whole", act=after_a_run("resume", "run", "--set", "stop.steps=40",
                                                        change=break_checkpoints)),
    # ---- models ----
    Case("weights of another net", None, "conv|shape", r"final\.safetensors", "6|7|taken", code=(0,),
         act=after_a_run("train", "x.job", "--out", "two", "--set", "net.file=wide.prototxt", "--weights",
                         "run/final.safetensors",
                         change=lambda s: s.net("wide.prototxt", ("num_output: 6", "num_output: 7")))),
    Case("weights that are not there", train(more=["--weights", "nowhere.caffemodel"]), "nowhere",
         r"nowhere\.caffemodel", "No such file"),
    Case("text as weights",
         lambda s: [s.write("w.safetensors", "these are no weights"), "train", "x.job", "--out", "run", "--weights",
                    "w.safetensors"][1:], "safetensors|header", r"w\.safetensors", "safetensors|expected|is no"),
    Case("predict with no run", words("predict", "nowhere", "a.png"), "nowhere", "nowhere", "No such file|run|net"),
    Case("predict what is no picture", None, "PNG|JPEG", r"a\.png", "PNG|JPEG",
         act=after_a_run("predict", "run", "a.png", change=lambda s: s.write("a.png", "no picture"))),
    Case("convert onto itself", None, r"final\.safetensors|same", r"final\.safetensors", "force|another",
         act=after_a_run("convert", "run/final.safetensors", "run/final.safetensors")),
    Case("convert to something unknown", None, r"\.onnx|onnx", r"a\.onnx|OUT", "caffemodel|safetensors",
         act=after_a_run("convert", "run/final.safetensors", "a.onnx")),
    # ---- addresses ----
    Case("listen to all without --insecure", words("driver", "x.job", "--listen", "0.0.0.0:0"), "insecure|authenticated",
         "0.0.0.0", "--insecure"),
    Case("listen at a host that is elsewhere", words("driver", "x.job", "--listen", "192.0.2.7:0", "--insecure"),
         "192.0.2.7", "192.0.2.7", "address|interface|host"),
    Case("listen where another listens", None, "in use", r"127\.0\.0\.1:\d+", "another|--listen",
         act=busy_port),
    Case("a worker without a driver to join", words("worker"), "join", "worker", "--join"),
    Case("join a port beyond all ports", words("worker", "--join", "127.0.0.1:99999"), "99999", "join|127.0.0.1",
         "HOST:PORT|65,?535|port"),
    Case("join a host without a name", words("worker", "--join", "no.such.host.invalid:29500", "--retry", "0.2"),
         "no.such.host", "join|no.such.host", "address|name|known|spell"),
    Case("join where nobody listens", words("worker", "--join", f"127.0.0.1:{free_port()}", "--retry", "0.2"),
         "refused", r"127\.0\.0\.1:\d+", "driver|start|paceline driver", code=(1,)),
    Case("join a web server", None, "not.*Paceline|no paceline|driver", r"127\.0\.0\.1:\d+",
         "address|port|Paceline|release", code=(1,), act=no_paceline_there),
    Case("join beyond loopback without --insecure", words("worker", "--join", "192.0.2.7:29500", "--retry", "0.2"),
         "insecure|authenticated", "192.0.2.7", "--insecure"),
    Case("a niceness out of range", words("worker", "--join", "127.0.0.1:1", "--nice", "50"), "50", "nice", "0 to 19|19"),
    Case("a time that is below 0", words("worker", "--join", "127.0.0.1:1", "--retry", "-5"), "-5", "retry", "0"),
    # ---- other people in the run: the other two train on to the end ----
    Case("a worker with the wrong folder", None, "data root|outside|cannot open|No such file", "worker [0-9]|127.0.0.1",
         "data-root|mount|there", code=(0,), act=with_a_run(wrong_root)),
    Case("a worker with other data", None, "data", "worker [0-9]|127.0.0.1", "same|differ|other", code=(0,),
         act=with_a_run(other_data)),
    Case("a web browser at the driver's port", None, "epoch|ended|directory", "worker|directory", "directory|ended", code=(0,),
         act=with_a_run(web_browser)),
    Case("two hundred silent callers", None, "epoch|ended|directory", "worker|directory", "directory|ended", code=(0,),
         act=with_a_run(silent_callers)),
    Case("a worker killed as it comes", None, "epoch|ended|directory", "worker|directory", "directory|ended", code=(0,),
         act=with_a_run(stopped_at_once, late=True)),
    # ---- the machine ----
    Case("a disk without room for the model", None, "bytes|room|space", "disk/run", "free|another|--out",
         code=(1, 2), act=a_full_disk),
    Case("Ctrl-C", None, "stopping|interrupt", "directory|run", "again|resume", code=(130,), act=interrupted),
    Case("more memory than there is",
         train(("batch: 20", "batch: 600"),
               more=["--set", 'net={zoo:"vgg-16"}', "--set", "train_data.resize_height=224", "--set",
                     "train_data.resize_width=224", "--set", "test_data.resize_height=224", "--set",
                     "test_data.resize_width=224"]),
         "memory", "GiB|layer", "batch", code=(1, 2)),
    Case("an unknown instruction set", words("bench", "step", "x.job", "--steps", "1"), "foo", "PACELINE_ISA", "avx2",
         env={"PACELINE_ISA": "foo"}),
]
