"""Runs of the command with a driver and workers on hosts (hosts.py). `pace` in a job makes each step last
as long as on a machine of the worker's own."""
import os
import subprocess
import sys

from stage import make_key

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


class PacedWorkers:
    """The driver is on host 0, workers on the others."""

    def __init__(self, hosts, workers, folder, build, limit_s):
        self.hosts, self.workers, self.folder, self.limit_s = hosts, workers, folder, limit_s
        self.paceline = os.path.join(os.path.abspath(build), "paceline")
        self.join = f"{hosts.address(0)}:29500"
        self.key = make_key(os.path.abspath(build), folder)
        self.env = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}

    def start(self, host, *words):
        log = open(os.path.join(self.folder, f"host{host}.log"), "ab")
        return subprocess.Popen(self.hosts.enter(host) + list(words), env=self.env,
                                stdout=subprocess.PIPE if host == 0 else log, stderr=log, cwd=ROOT)

    def together(self, *words):
        """The command on host 0, workers on the others; its output."""
        driver = [self.paceline, *words, "--listen", self.join, "--key", self.key]
        worker = [self.paceline, "worker", "--join", self.join, "--key", self.key, "--data-root", "/", "--threads", "1"]
        return self.finish(driver, [worker] * self.workers)

    def finish(self, first, others):
        """Run `first` on host 0 and each of `others` on the next host to their ends; the output of `first`."""
        processes = [self.start(host, *command) for host, command in enumerate([first, *others])]
        try:
            out, _ = processes[0].communicate(timeout=self.limit_s)
            if processes[0].returncode != 0:
                with open(os.path.join(self.folder, "host0.log")) as f:
                    sys.exit(f"{' '.join(first)}: exit {processes[0].returncode}\n{f.read()}")
            for process in processes[1:]:
                process.wait(timeout=self.limit_s)
            return out.decode()
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
