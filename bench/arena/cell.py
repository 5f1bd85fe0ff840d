"""A cell of the arena: a net, an optimizer, a group of workers and a link. Its name says all four, as
fc.adam.even.w2.46 does.

w is the number of steps that a whole model takes to cross a link. A step takes STEP_S of virtual time
in each cell, so that only the ratio of the link to the step counts. The latency is as short beside a
step as on gigabit Ethernet beside a step of ResNet-152, which is the case w = 2.46: 100 us of 0.78 s;
a minute of that case is MINUTE_STEPS steps.
"""
import json
import os
import re
import subprocess
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
STEP_S = 0.004
LATENCY_US = STEP_S / 0.78 * 100
MINUTE_STEPS = 60 / 0.78
ABSENT_STEPS = 10  # from the death of a worker to the start of the next one
WORKERS = 8
WIRE_TRIES = 5
# Of DSSP's slower GPU, in steps of the faster one. In the time in which ASP makes 1 + 1/r pushes, BSP
# makes 2/r; with as many pushes to the target, their times have the ratio (r + 1) / 2.
DSSP_BSP_S, DSSP_ASP_S = 6159.2, 2993.1  # Table I, to 0.67
SLOW_STEPS = 2 * DSSP_BSP_S / DSSP_ASP_S - 1
# Of an iteration of Elastic's Table 6.3, by its batch: computing, all-reduce, and the wait for the
# slowest; with all-reduce in the background; iterations, and the seconds of both.
ELASTIC_S = {64: (16.1, 2.4, 1.6, 16.4, 2200, 44220, 36080), 128: (32.6, 2.4, 4.2, 34.2, 1700, 66504, 58140)}


def waiting_jitter(batch):
    """With which the longest of eight steps, each 1 ± jitter, is as much longer than the mean."""
    compute, _, wait = ELASTIC_S[batch][:3]
    return wait / compute * (WORKERS + 1) / (WORKERS - 1)


@dataclass(frozen=True)
class Net:
    """A job, the number of its parameters, and the rate at which `single` is known to train."""
    job: str
    parameters: int
    rates: dict  # by optimizer
    fixed: tuple = ("solver.lr_policy=fixed",)
    data: str = ""  # a folder of CIFAR-10's binary version is needed
    tau: int = 50  # of the job, where a strategy has no default


NETS = {
    "fc": Net("fashion-fc.job", 455_370, {"adam": 0.001, "sgd": 0.02}),
    # An eighth of fc's work, for a first look.
    "small": Net("fashion-fc.job", 50_890, {"adam": 0.001, "sgd": 0.02},
                 fixed=("solver.lr_policy=fixed", f"net={{file:'{HERE}/small.prototxt'}}", "collective.chunk_kb=4")),
    # Convolutions alone, but for the scores.
    "conv": Net("fashion-cnn-6-12-12.job", 4_414, {"sgd": 0.05}, fixed=("solver.lr_policy=fixed", "batch=64")),
    "lenet": Net("fashion-lenet.job", 431_080, {"adam": 0.001, "sgd": 0.01}),
    "quick": Net("cifar10-quick.job", 145_578, {"adam": 0.0003, "sgd": 0.001}, data="cifar10"),
    # Its rate falls at two of its twelve epochs.
    "resnet20": Net("cifar10-resnet20.job", 272_474, {"adam": 0.001, "sgd": 0.1}, fixed=(), data="cifar10"),
}
OPTIMIZERS = {
    "adam": ("solver.type=Adam", "solver.momentum=0.9", "solver.momentum2=0.999", "solver.weight_decay=0"),
    "sgd": ("solver.type=SGD", "solver.momentum=0.9"),
}
GROUPS = {
    "even": f"node {{ count: {WORKERS} }}\n",
    "uneven": "node { count: 5 jitter: 0.1 }\nnode { count: 2 speed: 0.5 jitter: 0.1 }\n"
              "node { speed: 0.25 jitter: 0.1 }\n",
    "flaky": f"node {{ count: {WORKERS} }}\n",
    "six": "node { count: 5 }\nnode { speed: 0.45 }\n",
    # Three nodes have other work to do (MPCA, Fig. 10c).
    "contested": "node { count: 5 }\nnode { count: 3 speed: 0.5 }\n",
    # Two kinds of GPUs, with the ratio that DSSP's Table I implies (figures.py).
    "mixed": f"node {{ }}\nnode {{ speed: {1 / SLOW_STEPS:.6f} }}\n",
    "jittery": "node { count: 4 jitter: 0.1 }\n",
    # Workers of almost the same speed, so that they do not visit a server all at the same time for ever.
    "spread": "".join(f"node {{ speed: {1 + 0.02 * (i - (WORKERS - 1) / 2):.2f} }}\n" for i in range(WORKERS)),
    # Their waits for the slowest are those of Elastic's Table 6.3.
    **{f"waiting{b}": f"node {{ count: {WORKERS} jitter: {waiting_jitter(b):.4f} }}\n" for b in ELASTIC_S},
    **{f"k{k}": f"node {{ count: {k} }}\n" for k in range(1, WORKERS + 1)},
}


@dataclass(frozen=True)
class Cell:
    net: str
    optimizer: str
    group: str
    w: float

    @staticmethod
    def of(name):
        words = name.split(".", 3)
        if len(words) == 4 and words[0] in NETS and words[1] in OPTIMIZERS and words[2] in GROUPS and \
                words[3].startswith("w"):
            try:
                return Cell(words[0], words[1], words[2], float(words[3][1:]))
            except ValueError:
                pass
        raise SystemExit(f"{name}: a cell is NET.OPTIMIZER.GROUP.wW: {', '.join(NETS)}; "
                         f"{', '.join(OPTIMIZERS)}; {', '.join(GROUPS)}; W such as 2.46")

    @property
    def name(self):
        return f"{self.net}.{self.optimizer}.{self.group}.w{self.w:g}"

    def overrides(self, data):
        """FIELD=VALUE for all runs of the cell but the rate."""
        net = NETS[self.net]
        folders = [f"{s}.cifar10.path={data}" for s in ("train_data", "test_data")] if net.data else []
        return [*OPTIMIZERS[self.optimizer], *folders, "validation=5000", "collective.chunk_kb=16", *net.fixed]

    def workers(self):
        nodes = re.findall(r"node \{([^}]*)\}", GROUPS[self.group])
        return sum(int(count[1]) if (count := re.search(r"count: (\d+)", node)) else 1 for node in nodes)

    def rate(self):
        return NETS[self.net].rates[self.optimizer]

    def job(self):
        return os.path.join(ROOT, "examples", NETS[self.net].job)

    def cluster(self, wire, steps):
        """The text of its cluster file. `wire`: ns that a byte costs a core, as measured here."""
        mbit = NETS[self.net].parameters * 32 / (self.w * STEP_S) / 1e6
        return (f"{GROUPS[self.group]}{self.deaths(steps)}driver {{ cores: 4 }}\nstep_seconds: {STEP_S}\n"
                f"link {{ mbit: {mbit:.6g} latency_us: {LATENCY_US:.3g} }}\n"
                f"costs {{ copy_gb_s: {1 / wire['copy_ns_per_byte']:.2f} "
                f"reduce_gb_s: {1 / wire['reduce_ns_per_byte']:.2f} }}\n")

    def deaths(self, steps):
        """In a flaky group a worker dies each minute, the oldest first, and another starts soon."""
        if self.group != "flaky":
            return ""
        count = int(steps / MINUTE_STEPS)
        faults = "".join(
            f"fault {{ at: {(i + 1) * MINUTE_STEPS * STEP_S:.4f} kill: {i} }}\n"
            f"fault {{ at: {((i + 1) * MINUTE_STEPS + ABSENT_STEPS) * STEP_S:.4f} join: {WORKERS + i} }}\n"
            for i in range(count))
        return f"node {{ count: {count} }}\n{faults}" if count else ""


def measure_wire(build):
    """What a byte costs a core of this machine: the least of several, as other processes only add to it."""
    command = [os.path.join(build, "paceline"), "bench", "wire", "--json"]
    all_of = [json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        check=True).stdout) for _ in range(WIRE_TRIES)]
    return {k: min(one[k] for one in all_of) for k in ("copy_ns_per_byte", "reduce_ns_per_byte")}
