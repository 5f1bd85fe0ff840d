"""Jobs of the library, from files, texts and keywords."""
import ctypes
import os
import tempfile
from collections.abc import Mapping
from typing import Any, Iterator, Optional, Tuple

from ._library import Engine, Owned, encoded, lib, libc
from ._spec import Spec

# Where there is no job: as for the fits of paceline.spark.
_SOLVER = ("{type: 'SGD' base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'inv' "
           "gamma: 0.0001 power: 0.75}")
# Keywords that take back what contradicts them, as the options of the command do.
_OVERRIDES = {"workers": "workers", "epochs": "stop.epochs", "steps": "stop.steps",
              "seconds": "stop.seconds", "lr": "solver.base_lr", "batch": "batch"}


def quoted(text: str) -> str:
    """A string in protobuf text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def field_text(value: Any, nested: bool = False) -> str:
    """A value as job files have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + " ".join("%s: %s" % (k, field_text(v, True)) for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(field_text(v, True) for v in value) + "]"
    if isinstance(value, (str, os.PathLike)):
        return quoted(os.fspath(value)) if nested else os.fspath(value)
    if hasattr(value, "item"):  # a number of numpy's
        value = value.item()
    return repr(value)


def assignments(prefix: str, value: Any) -> Iterator[Tuple[str, str]]:
    """The fields that a value sets: {"tau": 8} of "strategy.sync" is strategy.sync.tau."""
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from assignments("%s.%s" % (prefix, name), part)
    else:
        yield prefix, field_text(value)


class Job(Owned):
    """A job: a path of a file, its text, a run's directory, or nothing, to be filled."""

    def __init__(self, engine: Engine, source: Any = None):
        super().__init__(engine, lib.pl_job_free)
        out = ctypes.byref(self.handle)
        self.is_new = source is None
        if source is None:
            engine.check(lib.pl_job_create(engine, out))
            self.set("solver", _SOLVER)
        elif isinstance(source, Mapping):
            self.is_new = "solver" not in source
            engine.check(lib.pl_job_create(engine, out))
            if self.is_new:
                self.set("solver", _SOLVER)
            for name, value in source.items():
                self.put(name, value)
        elif isinstance(source, str) and ("{" in source or "\n" in source):
            with tempfile.NamedTemporaryFile("w", suffix=".job", encoding="utf-8") as file:
                file.write(source)
                file.flush()
                engine.check(lib.pl_job_load(engine, encoded(file.name), out))
        elif os.path.isdir(source):
            engine.check(lib.pl_job_load_directory(engine, encoded(source), out))
        else:
            engine.check(lib.pl_job_load(engine, encoded(source), out))

    def set(self, field: str, text: str, override: bool = False) -> None:
        """Set a field, as `--set FIELD=VALUE` of the command."""
        call = lib.pl_job_override if override else lib.pl_job_set
        self.engine.check(call(self, encoded("%s=%s" % (field, text))))

    def put(self, name: str, value: Any) -> None:
        """Set what a keyword stands for."""
        if value is None:
            return
        if name == "net":
            self.set_net(value)
        elif name == "strategy":
            self.set_strategy(value)
        elif name in _OVERRIDES:
            self.set(_OVERRIDES[name], field_text(value), override=True)
        else:
            for field, text in assignments(name, value):
                self.set(field, text, override="." not in field)

    def set_net(self, net: Any) -> None:
        """A Spec, a net of the zoo, a path of a prototxt, or its text."""
        text = net.text() if isinstance(net, Spec) else os.fspath(net)
        if "{" in text:
            self.set("net", "{define {" + text + "}}")
        elif "/" in text or "." in text:
            self.set("net", "{file: %s}" % quoted(text))
        else:
            self.set("net", "{zoo: %s}" % quoted(text))

    def set_strategy(self, strategy: Any) -> None:
        """A name, or {name: {field: value}}."""
        if isinstance(strategy, str):
            self.engine.check(lib.pl_job_set_strategy(self, strategy.encode()))
            return
        (name, fields), = strategy.items()
        self.engine.check(lib.pl_job_set_strategy(self, name.encode()))
        for field, text in assignments("strategy." + name, fields) if fields else ():
            self.set(field, text)

    def set_data(self, spec: str, training: bool) -> None:
        """Records by a SPEC, KIND:PATH?scale=..."""
        call = lib.pl_job_set_train_data if training else lib.pl_job_set_test_data
        self.engine.check(call(self, encoded(spec)))

    def text(self) -> str:
        """The job with the default of each field."""
        out = ctypes.c_void_p()
        self.engine.check(lib.pl_job_text(self, ctypes.byref(out)))
        try:
            return ctypes.string_at(out).decode()
        finally:
            libc.free(out)


def job_of(engine: Engine, source: Any, net: Any, strategy: Any, fields: Mapping,
           order: Optional[Tuple[str, ...]] = None) -> Job:
    """A job with these on top. The number of workers is set before the strategy, which it may take
    back."""
    job = Job(engine, source)
    job.put("net", net)
    rest = dict(fields)
    for name in order or ("workers",):
        job.put(name, rest.pop(name, None))
    job.put("strategy", strategy)
    for name, value in rest.items():
        job.put(name, value)
    return job
