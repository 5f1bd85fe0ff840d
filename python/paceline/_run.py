"""Runs: training on workers of this machine or of others, and in simulation."""
import atexit
import ctypes
import dataclasses
import json
import os
import secrets
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Union

import numpy as np

from . import _interface as c
from ._data import Records, maps_text
from ._errors import Error
from ._job import job_of
from ._library import Engine, Owned, encoded, field_types, lib, options
from ._processes import Workers

_FIELDS = field_types(c.pl_run_options)
_live: "weakref.WeakSet[Run]" = weakref.WeakSet()


@dataclasses.dataclass(frozen=True)
class Report:
    """How a run ended. An error or a loss that was not measured is None."""

    reason: str                       # epochs, steps, seconds, error, interrupted
    directory: str                    # the run's
    model: str                        # the file of its newest model
    epochs: float
    test_error: Optional[float]       # a share of 1
    test_loss: Optional[float]
    validation_error: Optional[float]
    validation_loss: Optional[float]
    train_loss: Optional[float]
    samples: int                      # of this session
    used: int                         # of the whole run, each once; repeated; missed
    repeated: int
    missed: int
    wall_s: float                     # virtual in a simulation
    session_s: float
    seed: int
    strategy: str
    workers: int
    parameters: int
    simulated: bool
    net: str
    bad_records: int

    @property
    def samples_per_s(self) -> float:
        """Samples of this session a second."""
        return self.samples / self.session_s if self.session_s > 0 else 0.0


def _report_of(made: c.pl_run_report) -> Report:
    def measured(has: bool, value: float) -> Optional[float]:
        return value if has and value >= 0 else None
    fields: Dict[str, Any] = {}
    for field in dataclasses.fields(Report):
        value = getattr(made, field.name)
        fields[field.name] = os.fsdecode(value) if isinstance(value, bytes) else value
    for name in ("test", "validation"):
        has = getattr(made, "has_" + name)
        fields[name + "_error"] = measured(has, fields[name + "_error"])
        fields[name + "_loss"] = fields[name + "_loss"] if has else None
    fields["train_loss"] = made.train_loss if made.has_train else None
    return Report(**fields)


class Run:
    """A run. It iterates over its events, as they happen and to its end: dictionaries with `t`, the
    seconds since it began, `kind`, and the keys of docs/EVENTS.md.

        run = paceline.start(...)
        for event in run:
            if event["kind"] == "eval":
                print(event["epoch"], event["error"])
        run.wait()

    `Run.open(directory)` has the events of a run that has ended.
    """

    def __init__(self):
        self.directory: str = ""              # once the run has one
        self.address: str = ""                # where workers of other machines reach its driver
        self._lines: List[bytes] = []
        self._news = threading.Condition()
        self._done = False
        self._failure: Optional[BaseException] = None
        self._report: Optional[Report] = None
        self._stop, self._workers = c.pl_flag(), c.pl_flag()
        self._progress: Optional[Dict[str, Any]] = None
        self._thread: Optional[threading.Thread] = None
        self._seen = 0                        # events that on_event has had
        self._records: Dict[str, Records] = {}
        self.on_event: Optional[Callable[[dict], None]] = None

    @classmethod
    def open(cls, directory: Union[str, os.PathLike]) -> "Run":
        """The run of a directory, with the events that it has until now, and no report."""
        self = cls()
        self.directory = os.fspath(directory)
        with open(os.path.join(self.directory, "events.jsonl"), "rb") as file:
            self._lines = file.read().splitlines()
        self._done = True
        return self

    # ---- what there is ----

    @property
    def done(self) -> bool:
        """Has it ended?"""
        return self._done

    @property
    def report(self) -> Report:
        """How it ended. RuntimeError before that; the run's error where it has failed."""
        if self._failure:
            raise self._failure
        if not self._report:
            raise RuntimeError("the run has no report: it has not ended, or was opened by "
                               "directory")
        return self._report

    @property
    def progress(self) -> Optional[Dict[str, Any]]:
        """How it stands: the fields of pl_progress; None before the first."""
        return self._progress

    @property
    def events(self) -> List[dict]:
        """The events until now."""
        return [json.loads(line) for line in list(self._lines)]

    def __iter__(self) -> Iterator[dict]:
        at = 0
        while True:
            with self._news:
                while at == len(self._lines) and not self._done:
                    self._news.wait(0.5)
                if at == len(self._lines):
                    return
                line = self._lines[at]
            at += 1
            yield json.loads(line)

    def curve(self, kind: str, **where: Any) -> Dict[str, np.ndarray]:
        """The events of a kind as arrays: each key with a number, in their order; NaN where an
        event lacks it. `where` chooses among them: curve("eval", set="test")["error"]."""
        chosen = [e for e in self.events
                  if e["kind"] == kind and all(e.get(k) == v for k, v in where.items())]
        keys = sorted({k for e in chosen for k, v in e.items()
                       if isinstance(v, (int, float)) and not isinstance(v, bool)})
        return {k: np.array([e.get(k, np.nan) for e in chosen], np.float64) for k in keys}

    def net(self, **settings: Any) -> Any:
        """The newest model, as a Net for predictions."""
        from ._net import Net
        model = self._report.model if self._report else None
        return Net.of_run(self.directory, model, records=self._records, **settings)

    # ---- what may be asked of it ----

    def stop(self, now: bool = False) -> None:
        """Let it end at its next commit point, with a final model; or `now`, with its newest state.
        It does not wait."""
        lib.pl_flag_set(ctypes.byref(self._stop), 2 if now else 1)

    def set_workers(self, count: int) -> None:
        """Change the number of workers, of a job with workers_min and workers_max; 0: as many as it
        allows."""
        lib.pl_flag_set(ctypes.byref(self._workers), count)

    def _dispatch(self) -> None:
        while self.on_event and self._seen < len(self._lines):
            self._seen += 1
            self.on_event(json.loads(self._lines[self._seen - 1]))

    def wait(self) -> "Run":
        """Wait for its end; raise its error, if it has failed. Ctrl-C lets it end as `stop` does,
        and a second one at once; KeyboardInterrupt is raised when it has ended. Events are given to
        `on_event` by this thread; an exception of that stops the run, and is raised when it has
        ended."""
        raised: Optional[BaseException] = None
        while True:
            try:  # a signal may raise between any two lines
                while not self._done:
                    with self._news:
                        if self._seen == len(self._lines) or not self.on_event:
                            self._news.wait(0.2)
                    self._dispatch()
                if self._thread:
                    self._thread.join()
                break
            except BaseException as why:  # the run ends in good order first
                self.stop(now=raised is not None)
                self.on_event = None if not isinstance(why, KeyboardInterrupt) else self.on_event
                raised = raised or why
        if raised:
            raise raised
        self._dispatch()
        if self._failure:
            raise self._failure
        return self

    # ---- the thread that drives it ----

    def _on_event(self, _user, line: bytes) -> None:
        with self._news:
            self._lines.append(line)
            self._news.notify_all()

    def _on_begin(self, _user, directory: bytes) -> None:
        self.directory = os.fsdecode(directory)

    def _on_listen(self, _user, address: bytes) -> None:
        self.address = os.fsdecode(address)

    def _on_progress(self, _user, at: int) -> None:
        made = c.pl_progress.from_address(at)
        self._progress = {name: getattr(made, name) for name in field_types(made)}

    def _begin(self, engine: Engine, call: Callable[[Any, Any], int], given: c.pl_run_options,
               callbacks: Dict[str, Callable], workers: Optional[Workers]) -> None:
        """Call the library on a thread, which holds no lock of Python's meanwhile."""
        callbacks.update(event=self._on_event, begins=self._on_begin, progress=self._on_progress)
        for name, function in callbacks.items():
            setattr(given, name, _FIELDS[name](function))
        given.stop = ctypes.addressof(self._stop)
        given.workers = ctypes.addressof(self._workers)
        report = c.pl_run_report()

        def drive():
            try:
                engine.check(call(given, report))
                self._report = _report_of(report)
            except BaseException as why:
                self._failure = why
            finally:
                if workers:
                    workers.end()
                with self._news:
                    self._done = True
                    self._news.notify_all()
        self._thread = threading.Thread(target=drive, name="paceline-run", daemon=True)
        _live.add(self)
        self._thread.start()


@atexit.register
def _end_all() -> None:
    """A program that ends lets its runs end at once; their threads call into Python until then."""
    for run in list(_live):
        if not run.done:
            run.stop(now=True)
    for run in list(_live):
        if run._thread:
            run._thread.join(10)


def _given(out: Any, resume: bool, trace: Any, **more: Any) -> c.pl_run_options:
    return options(c.pl_run_options, out=out, resume=resume, trace=trace, **more)


def _bind(engine: Engine, job: Any, data: Any, training: bool, classes: Optional[int],
          spool: Optional[str], maps: Any) -> Dict[str, Records]:
    """Records of the program become the job's; a SPEC is one already."""
    if data is None:
        return {}
    if isinstance(data, (str, os.PathLike)):
        job.set_data(os.fspath(data) + maps_text(maps), training)
        return {}
    # The names are those of an earlier session of the run, too.
    records, name = Records(data, classes, spool), "train" if training else "test"
    if maps is None and job.is_new and records.values.dtype == np.uint8:
        maps = {"scale": 1 / 256}
    records.bind(engine, name)
    job.set_data("memory:" + name + maps_text(maps), training)
    return {name: records}


def start(job: Any = None, *, data: Any = None, test: Any = None, net: Any = None,
          strategy: Any = None, workers: Optional[int] = None, out: Any = None,
          resume: bool = False, maps: Any = None, classes: Optional[int] = None,
          spool: Optional[str] = None, trace: Any = None, listen: Optional[str] = None,
          insecure: bool = False, key: Optional[str] = None, own_workers: bool = True,
          patience_s: float = 0.0, force_change: bool = False, **fields: Any) -> Run:
    """Begin a run, as `train` does, and return at once."""
    engine = Engine()
    made = job_of(engine, job, net, strategy, dict(workers=workers, **fields))
    bound = _bind(engine, made, data, True, classes, spool, maps)
    known = next(iter(bound.values())).classes if bound else classes
    bound.update(_bind(engine, made, test, False, known, spool, maps))
    run = Run()
    run._records = bound
    processes = None
    callbacks: Dict[str, Callable] = {"listens": run._on_listen}
    if own_workers:
        key = key or secrets.token_hex(32)
        processes = Workers({name: r.share(spool) for name, r in bound.items()}, key)
        callbacks = {"start_workers": lambda _u, n, at: processes.start(n, os.fsdecode(at)),
                     "workers_lost": lambda _u: processes.lost()}
    given = _given(out, resume, trace, listen=listen, insecure=insecure, key=key,
                   patience_s=patience_s, force_change=force_change)

    def call(given, report):
        return lib.pl_run(engine, made, ctypes.byref(given), ctypes.byref(report))
    run._begin(engine, call, given, callbacks, processes)
    return run


def train(job: Any = None, *, data: Any = None, test: Any = None, net: Any = None,
          strategy: Any = None, workers: Optional[int] = None,
          on_event: Optional[Callable[[dict], None]] = None, **settings: Any) -> Run:
    """Train, and return the run when it has ended.

    job       a path of a job file, its text (with whole paths), a dictionary of its fields, a run's
              directory, or None: all is given by keywords
    data      records to train on: (x, y), an iterable (see Records), or a SPEC such as "idx:a,b"
    test      likewise, to measure the test error on
    net       a Spec, the name of a net of the zoo, a path of a prototxt, or its text
    strategy  a name, such as "mpca", or {name: {field: value}}
    workers   processes on this machine that train; each begins with the records in memory that all
              of them share
    on_event  is called with each event, by this thread
    maps      of all records: {"scale": 1 / 256, "mirror": True}, or as a SPEC has them. Bytes
              become 0 to 1 where neither this nor a job is given
    classes   how many there are: the highest label plus one
    out       the run's directory; runs/NAME-NNN
    resume    continue the run of that directory
    spool     a folder for a file of records, in place of memory
    epochs, steps, seconds, lr, batch, validation, seed, threads, and any other field of a job, also
              as a dictionary: solver={"momentum": 0}
    listen    with own_workers=False: where workers of other machines reach this driver, which start
              with `paceline worker`, and have the files of the data; insecure, key as the
              command's

    Errors are those of the library. Ctrl-C ends the run at its next commit point, a second one at
    once, and raises KeyboardInterrupt then.
    """
    run = start(job, data=data, test=test, net=net, strategy=strategy, workers=workers, **settings)
    run.on_event = on_event
    return run.wait()


class Cluster(Owned):
    """The machines of a cluster file, or of its text."""

    def __init__(self, engine: Engine, source: Any):
        super().__init__(engine, lib.pl_cluster_free)
        out = ctypes.byref(self.handle)
        text = os.fspath(source)
        if "{" not in text:
            engine.check(lib.pl_cluster_load(engine, encoded(text), out))
            return
        import tempfile
        with tempfile.NamedTemporaryFile("w", suffix=".cluster", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            engine.check(lib.pl_cluster_load(engine, encoded(file.name), out))


def simulate(job: Any = None, cluster: Any = None, *, data: Any = None, test: Any = None,
             net: Any = None, strategy: Any = None, workers: Optional[int] = None, out: Any = None,
             files: bool = True, limit_s: float = 0.0, maps: Any = None,
             classes: Optional[int] = None, trace: Any = None, resume: bool = False,
             on_event: Optional[Callable[[dict], None]] = None, **fields: Any) -> Run:
    """Simulate a run on the machines of a cluster file, or of its text, and return it when it has
    ended. The arithmetic is real, and time is virtual: the same seed gives the same run.

    files    False: keep nothing; the report then has no directory and no model
    limit_s  virtual seconds after which the run is given up; 0: a year
    Everything else as for `train`.
    """
    if cluster is None:
        raise TypeError("simulate: cluster: a path of a cluster file, or its text, is needed")
    engine = Engine()
    machines = Cluster(engine, cluster)
    made = job_of(engine, job, net, strategy, dict(workers=workers, **fields))
    bound = _bind(engine, made, data, True, classes, None, maps)
    known = next(iter(bound.values())).classes if bound else classes
    bound.update(_bind(engine, made, test, False, known, None, maps))
    run = Run()
    run._records = bound
    run.on_event = on_event
    given = _given(out, resume, trace)

    def call(given, report):
        sim = options(c.pl_sim_options, run=ctypes.addressof(given), limit_s=limit_s,
                      no_files=not files)
        return lib.pl_sim(engine, made, machines, ctypes.byref(sim), ctypes.byref(report))
    run._begin(engine, call, given, {}, None)
    return run.wait()
