"""One simulation of the arena, in a folder of its own that keeps its job and its events."""
import hashlib
import json
import math
import os
import signal
import statistics
import subprocess
import time

from cell import STEP_S

LAST = 5  # validation errors that a median is taken of
EVALUATE_STEPS = 100  # from one evaluation to the next; `single` trains longer by its factor
SINGLE_FACTOR = 4

# The strategy that a competitor uses, by its name, and fields of it.
COMPETITORS = {
    "single": ("single", {}),
    "sync": ("sync", {}),
    "sync seconds": ("sync", {}),
    "allreduce": ("allreduce", {}),
    "async_allreduce": ("async_allreduce", {"strategy.async_allreduce.method": 2}),
    "ps bsp": ("ps", {"strategy.ps.consistency": "bsp", "strategy.ps.colocated": True}),
    "ps asp": ("ps", {"strategy.ps.consistency": "asp", "strategy.ps.colocated": True}),
    "ps ssp": ("ps", {"strategy.ps.consistency": "ssp", "strategy.ps.staleness": 3,
                      "strategy.ps.colocated": True}),
    "ps dssp": ("ps", {"strategy.ps.consistency": "dssp", "strategy.ps.colocated": True}),
    "ps": ("ps", {}),
    "downpour": ("downpour", {"strategy.downpour.colocated": True}),
    "easgd": ("easgd", {"strategy.easgd.tau_auto": True}),
    "mpca": ("mpca", {}),
    "mpca symmetric": ("mpca", {"strategy.mpca.coordination": "symmetric"}),
    "pace": ("pace", {}),
    "pace symmetric": ("pace", {"strategy.pace.coordination": "symmetric"}),
    "gossip": ("gossip", {}),
    "diloco": ("diloco", {}),
    "diloco streaming": ("diloco", {"strategy.diloco.fragments": 4, "strategy.diloco.overlap": 5}),
}


def shown(value):
    """As protobuf text has it."""
    return str(value).lower() if isinstance(value, bool) else value


class Run:
    """A competitor with settings, one seed, and so many steps of virtual time at most. `settings` has
    fields of the job, and `rate`, a factor of the cell's rate. With a target it ends there."""

    def __init__(self, arena, cell, name, settings, seed, steps, target=None):
        self.arena, self.cell, self.name = arena, cell, name
        self.settings, self.seed, self.steps, self.target = dict(settings), seed, steps, target
        key = json.dumps([cell.name, name, sorted(settings.items()), seed, steps])
        self.dir = os.path.join(arena.out, "runs", hashlib.sha1(key.encode()).hexdigest()[:16])
        self.forget()

    def forget(self):
        """Nothing of the events has been read yet."""
        self.place, self.errors, self.tests, self.end = 0, [], [], None
        self.exchanges, self.exchanged_at = 0, 0  # the time of the last

    def command(self):
        strategy, fields = COMPETITORS[self.name]
        settings = {k: v for k, v in self.settings.items() if k != "rate"}
        alone = strategy == "single"
        fields = {"workers": 1 if alone else self.cell.workers(),
                  "evaluate.every_steps": EVALUATE_STEPS * (SINGLE_FACTOR if alone else 1),
                  "stop.seconds": self.steps * STEP_S, "stop.epochs": 100000, "seed": self.seed,
                  "solver.base_lr": self.cell.rate() * self.settings.get("rate", 1), **fields, **settings}
        words = [f"{k}={shown(v)}" for k, v in fields.items()]
        sets = [w for word in [*self.cell.overrides(self.arena.data), *words] for w in ("--set", word)]
        return [os.path.join(self.arena.build, "paceline"), "sim", self.cell.job(),
                "--cluster", self.dir + ".cluster", "--strategy", strategy, *sets, "--out", self.dir]

    def read(self):
        """Validation errors and test errors over virtual time, exchanges, and how it ended; None while
        it has not. Only what has been added since the last call is read."""
        try:
            with open(os.path.join(self.dir, "events.jsonl"), "rb") as f:
                f.seek(self.place)
                for line in f:
                    if not line.endswith(b"\n"):
                        break
                    self.place += len(line)
                    self.note(json.loads(line))
        except FileNotFoundError:
            pass
        return self.errors, self.tests, self.exchanges, self.end

    def note(self, event):
        if event["kind"] == "eval":
            errors = self.errors if event["set"] == "validation" else self.tests
            errors.append((event["t"], event["error"]))
        elif event["kind"] == "exchange":
            self.exchanges += 1
            self.exchanged_at = event["t"]
        elif event["kind"] == "end":
            self.end = event

    def until_target(self):
        """Validation medians and test errors until the target, or until the end. How far a run continues
        before it is stopped differs from one call to another."""
        until = self.passed(self.target)
        return [(t, e) for t, e in self.curve() if t <= until], [(t, e) for t, e in self.read()[1] if t <= until]

    def curve(self):
        """Medians of five evaluations over virtual time."""
        errors = self.read()[0]
        return [(errors[i - 1][0], statistics.median(e for _, e in errors[i - LAST:i]))
                for i in range(LAST, len(errors) + 1)]

    def passed(self, target):
        """When the median of the last five was first at the target or below; infinity: never."""
        return next((t for t, e in self.curve() if target is not None and e <= target), math.inf)

    def score(self):
        """The median of the last five; 1 where there is none, as after a divergence."""
        errors = [e for _, e in self.read()[0][-LAST:] if math.isfinite(e)]
        return statistics.median(errors) if errors else 1.0

    def is_done(self):
        end = self.read()[3]
        if not end:
            return False
        return end["reason"] != "interrupted" or self.passed(self.target) < math.inf

    def go(self):
        if not self.is_done():
            subprocess.run(["rm", "-rf", self.dir], check=True)
            self.forget()
            os.makedirs(os.path.dirname(self.dir), exist_ok=True)
            alone = COMPETITORS[self.name][0] == "single"
            with open(self.dir + ".cluster", "w") as f:
                f.write(self.cell.cluster(self.arena.wire, 0 if alone else self.steps))
            self.execute()
            if self.read()[3] and not self.is_done():
                raise SystemExit(f"{self.dir}: another process stopped the run; call again")
            self.arena.note(self)
        return self

    def execute(self):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        with open(self.dir + ".log", "w") as log:
            process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=env)
            try:
                while process.poll() is None:
                    time.sleep(0.5)
                    if self.passed(self.target) < math.inf:
                        process.send_signal(signal.SIGTERM)  # SIGINT is ignored behind `nohup … &`
                        process.wait()
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if process.returncode not in (0, 130):
            print(f"  {self.cell.name} {self.name} {self.settings}: exit {process.returncode}, "
                  f"see {self.dir}.log", flush=True)
