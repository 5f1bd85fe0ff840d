"""Plans: what a run would take, for each strategy and number of workers, without a run."""
import ctypes
import dataclasses
import threading
from typing import Any, Dict, List, Optional, Tuple, Union

from . import _interface as c
from ._job import job_of
from ._library import Engine, lib, options
from ._run import Cluster, _bind


@dataclasses.dataclass(frozen=True)
class PlanRow:
    """A strategy on the first so many machines. `simulated_*` are None unless it was simulated."""

    strategy: str
    workers: int
    batch: int
    step_s: float
    round_steps: float
    round_s: float
    exchange_s: float
    samples_per_s: float
    utilisation: float
    worker_bytes: int
    driver_bytes: int
    worker_memory: int
    epoch_s: float
    epoch_cost: float
    simulated_samples_per_s: Optional[float]
    simulated_error: Optional[float]
    simulated_loss: Optional[float]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Rows by number of workers and strategy; the best, and the best of several workers, or None;
    and lines on what is not in the rows."""

    rows: List[PlanRow]
    best: Optional[PlanRow]
    single: Optional[PlanRow]
    several: Optional[PlanRow]
    records: int
    notes: List[str]


def _row_of(made: c.pl_plan_row) -> PlanRow:
    fields: Dict[str, Any] = {}
    for field in dataclasses.fields(PlanRow):
        if not field.name.startswith("simulated_"):
            value = getattr(made, field.name)
            fields[field.name] = value.decode() if isinstance(value, bytes) else value
    trial = made.trial if made.trial.done else None
    return PlanRow(**fields,
                   simulated_samples_per_s=trial.samples_per_s if trial else None,
                   simulated_error=trial.error if trial and trial.error >= 0 else None,
                   simulated_loss=trial.loss if trial else None)


def _plan_of(made: c.pl_plan_report) -> Plan:
    rows = [_row_of(row) for row in (c.pl_plan_row * made.rows).from_address(made.row)] \
        if made.rows else []
    notes = [note.text.decode() for note in (c.pl_plan_note * made.notes).from_address(made.note)] \
        if made.notes else []

    def at(i: int) -> Optional[PlanRow]:
        return rows[i] if i < len(rows) else None
    return Plan(rows, at(made.best), at(made.single), at(made.several), made.records, notes)


def plan(job: Any = None, cluster: Any = None, *, data: Any = None, net: Any = None,
         strategy: Any = None, workers: Union[None, int, Tuple[int, int]] = None,
         price: float = 0.0, simulate_s: float = 0.0, simulate_limit_s: float = 0.0,
         maps: Any = None, classes: Optional[int] = None, **fields: Any) -> Plan:
    """Predict a job on the machines of a cluster file, or of its text, for each strategy and number
    of workers.

    workers           a number, or the least and the most; 1 to as many as there are machines
    price             of a machine for an hour, for epoch_cost
    simulate_s        virtual seconds for which the best rows are simulated; simulate_limit_s: how
                      long that may take here, 60
    Everything else as for `train`. Steps are timed here where the cluster file has no step_seconds.
    Ctrl-C ends the simulations, and raises KeyboardInterrupt.
    """
    if cluster is None:
        raise TypeError("plan: cluster: a path of a cluster file, or its text, is needed")
    engine = Engine()
    machines = Cluster(engine, cluster)
    made = job_of(engine, job, net, strategy, fields)
    _bind(engine, made, data, True, classes, None, maps)
    least, most = (workers, workers) if isinstance(workers, int) else workers or (0, 0)
    stop, report, failure = c.pl_flag(), c.pl_plan_report(), []
    given = options(c.pl_plan_options, workers_min=least, workers_max=most, price=price,
                    simulate_s=simulate_s, simulate_limit_s=simulate_limit_s,
                    stop=ctypes.addressof(stop))

    def compute():
        try:
            engine.check(lib.pl_plan(engine, made, machines, ctypes.byref(given),
                                     ctypes.byref(report)))
        except BaseException as why:
            failure.append(why)
    thread = threading.Thread(target=compute, name="paceline-plan", daemon=True)
    thread.start()
    interrupted = None
    while thread.is_alive():
        try:
            thread.join(0.2)
        except KeyboardInterrupt as why:
            lib.pl_flag_set(ctypes.byref(stop), 1)
            interrupted = why
    try:
        if interrupted or failure:
            raise interrupted or failure[0]
        return _plan_of(report)
    finally:
        if not failure:
            lib.pl_plan_release(ctypes.byref(report))
