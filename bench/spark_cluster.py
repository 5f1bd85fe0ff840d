"""The standalone cluster of scripts/spark.sh on this machine, for measurements in Python.

    with Cluster(workers=3) as cluster:
        application = cluster.submit("FashionLenet", cluster.path("fashion"), "5")

SPARK_HOME names a Spark, or ./run spark has installed one; build/ has the target paceline_spark. The
cluster ends with this process, however that ends.
"""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP", "SPARK_SCALA_VERSION",
         "PYSPARK_PYTHON", "MALLOC_ARENA_MAX", "spark_master", "spark_dir", "spark_settings", "spark_log")
START = """set -euo pipefail
. scripts/spark.sh
find_spark || { echo "needs a Spark: ./run spark installs one" >&2 && exit 2; }
spark_workers=$1
[ -z "$2" ] || spark_java=$2
trap stop_cluster EXIT
trap 'exit 130' INT TERM
start_cluster
for name in """ + " ".join(NAMES) + """; do echo "$name=${!name}"; done
echo
cat >/dev/null # until this process's input ends
"""


class Cluster:
    def __init__(self, workers, java=""):
        """`java`: options of driver and executors in place of those of scripts/spark.sh."""
        self.workers = workers
        self.java = java
        self.applications = []

    def __enter__(self):
        self.shell = subprocess.Popen(
            ["bash", "-c", START, "cluster", str(self.workers), self.java], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.given = {}
        for line in iter(self.shell.stdout.readline, "\n"):
            if not line:
                sys.exit("the cluster has not started")
            name, value = line.rstrip("\n").split("=", 1)
            self.given[name] = value
        return self

    def __exit__(self, *_):
        for application in self.applications:
            application.terminate()
            application.wait()
        self.shell.stdin.close()
        self.shell.wait()

    def path(self, *names):
        """A path in the cluster's folder, which goes with it."""
        return os.path.join(self.given["spark_dir"], *names)

    def submit(self, name, *arguments, conf=()):
        """Start an example of examples/spark; its output can be read."""
        return self.start(["--class", name, os.path.join(ROOT, "build/paceline-spark-examples.jar"), *arguments], conf)

    def submit_python(self, program, *arguments, conf=()):
        """The same with a program in Python, by the interpreter of SPARK_HOME where it has one."""
        return self.start([program, *arguments], conf, PYTHONPATH=os.path.join(ROOT, "python"))

    def start(self, program, conf, **more):
        environment = dict(os.environ, **{k: v for k, v in self.given.items() if k.isupper()}, **more)
        settings = [part for setting in conf for part in ("--conf", setting)]
        application = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", os.path.join(self.given["SPARK_HOME"], "bin/spark-submit"),
             "--properties-file", self.given["spark_settings"], "--master", self.given["spark_master"], *settings, *map(str, program)],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.applications.append(application)
        return application

    def executors(self):
        """The processes of executors: they run in the folders of the cluster's workers."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                inside = os.readlink(f"/proc/{pid}/cwd").startswith(self.path("work-"))
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if inside and b"--executor-id" in f.read():
                        found.append(int(pid))
            except OSError:
                pass  # it has ended
        return sorted(found)
