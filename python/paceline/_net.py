"""One net under the program's control, and predictions."""
import ctypes
import os
import time
from collections.abc import Mapping
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple, Union

import numpy as np

from . import _interface as c
from ._data import Records, maps_text, new_name, to_array
from ._errors import UsageError, error_of
from ._library import Engine, Owned, encoded, lib, options
from ._run import Run
from ._spec import Spec

_SLICE_S = 0.1  # of training between two looks for Ctrl-C


class TestResult(NamedTuple):
    """Of a test: the share of wrong answers, None for a net without classes; the mean loss; and of
    how many records."""

    error: Optional[float]
    loss: float
    count: int  # type: ignore[assignment]  # a tuple has a method of this name


class _View:
    """Memory of a net, which an array on it keeps."""

    def __init__(self, net: "Net", address: int, shape: Tuple[int, ...]):
        self.net = net
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": shape,
                                    "typestr": "<f4"}


class Weights(Mapping):
    """The weights of a net by name, "conv1.0" for those of a layer and "conv1.1" for its biases, as
    views: no copy, free to be read and written, and always what the net computes with next."""

    def __init__(self, net: "Net"):
        self._net = net
        self._at: Dict[str, np.ndarray] = {}
        with net.engine.lock:
            for i in range(lib.pl_net_weights_count(net)):
                found = c.pl_weights()
                net.engine.check(lib.pl_net_weights_at(net, i, ctypes.byref(found)))
                name = "%s.%d" % (found.layer.decode(), found.index)
                self._at[name] = net._view(found.at, tuple(found.shape[:found.dims]))

    def __getitem__(self, name: Union[str, Tuple[str, int]]) -> np.ndarray:
        return self._at["%s.%d" % name if isinstance(name, tuple) else name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)


class Net(Owned):
    """A net with its weights, its optimizer's state and its data.

        net = paceline.Net("lenet", solver={"base_lr": 0.01, "momentum": 0.9})
        net.set_training_data((x, y))
        net.train(100)
        net.weights["ip2.0"] *= 0.5

    net      a Spec, the name of a net of the zoo, a path of a prototxt, or its text
    batch    records of a step
    solver   a dictionary of the fields of a Caffe solver, or its text
    shape    channels, height and width of a record, where the net leaves them to its data
    threads  that compute; 0: the machine's cores. kernels: "auto", "dnnl", "ref". precision: "f32",
             "bf16". inference: it will not be trained

    A net leaves its form to its data where neither it nor `shape` states the records' shape. It has
    weights once it has a form.
    """

    def __init__(self, net: Any, *, batch: int = 64, solver: Any = None, seed: int = 1,
                 threads: int = 0, kernels: Optional[str] = None, precision: Optional[str] = None,
                 inference: bool = False, shape: Optional[Tuple[int, int, int]] = None):
        super().__init__(Engine(), lib.pl_net_free)
        self._job: Any = None
        self._unloaded: Optional[str] = None
        spec = Spec.of(self.engine, net)
        self._make(spec, batch, solver, seed, threads, kernels, precision, inference)
        if shape:
            self.engine.check(lib.pl_net_form(self, *shape))

    def _make(self, spec: Spec, batch: int, solver: Any, seed: int, threads: int,
              kernels: Optional[str], precision: Optional[str], inference: bool) -> None:
        from ._job import field_text
        if isinstance(solver, Mapping):
            solver = " ".join("%s: %s" % (k, field_text(v, True)) for k, v in
                              {"lr_policy": "fixed", **solver}.items())
        lossless = ctypes.c_bool()
        self.engine.check(lib.pl_net_spec_judge(spec, ctypes.byref(lossless)))
        made = options(c.pl_net_options, batch=batch, solver=solver, seed=seed, threads=threads,
                       kernels=kernels, precision=precision, inference=inference)
        self.engine.check(lib.pl_net_create(self.engine, spec, ctypes.byref(made),
                                            ctypes.byref(self.handle)))

    @classmethod
    def of_run(cls, directory: Union[str, os.PathLike], model: Optional[str] = None, *,
               records: Optional[Dict[str, Records]] = None, batch: int = 64, threads: int = 0,
               kernels: Optional[str] = None) -> "Net":
        """The newest model of a run's directory, for predictions: records go through the maps that
        the run trained with. `model`: another file of weights. `records`: those of the program that
        the job names, where the net leaves its form to them."""
        from ._job import Job
        self = cls.__new__(cls)
        Owned.__init__(self, Engine(), lib.pl_net_free)
        path = os.path.join(os.fspath(directory), "job.prototxt")
        self._job = Job.__new__(Job)
        Owned.__init__(self._job, self.engine, lib.pl_job_free)
        self.engine.check(lib.pl_job_load_run(self.engine, encoded(path),
                                              ctypes.byref(self._job.handle)))
        spec = Spec.__new__(Spec)
        Owned.__init__(spec, self.engine, lib.pl_net_spec_free)
        self.engine.check(lib.pl_net_spec_job(self._job, ctypes.byref(spec.handle)))
        self._make(spec, batch, None, 1, threads, kernels, None, True)
        self._unloaded = model or os.path.join(os.fspath(directory), "final.safetensors")
        for name, bound in (records or {}).items():
            bound.bind(self.engine, name)
        shape = (ctypes.c_uint32 * 3)()
        if not self.has_form and \
                lib.pl_net_spec_record(spec, self._job, ctypes.byref(shape)) == c.PL_OK:
            self.engine.check(lib.pl_net_form(self, *shape))
        self._load_late()
        return self

    def _load_late(self) -> None:
        if self._unloaded and self.has_form:
            path, self._unloaded = self._unloaded, None
            self.load(path)

    @property
    def has_form(self) -> bool:
        """Is the shape of its records known?"""
        return lib.pl_net_weights_count(self) > 0

    # ---- data ----

    def _set_data(self, call: Any, data: Any, part: Tuple[int, int], maps: Any,
                  classes: Optional[int]) -> None:
        if isinstance(data, (str, os.PathLike)):
            spec = os.fspath(data)
        else:
            name = new_name()
            Records(data, classes).bind(self.engine, name)
            spec = "memory:" + name
        with self.engine.lock:
            self.engine.check(call(self, encoded(spec + maps_text(maps)), *part))

    def set_training_data(self, data: Any, *, part: Tuple[int, int] = (0, 1), maps: Any = None,
                          classes: Optional[int] = None) -> None:
        """Train on (x, y), an iterable, or a SPEC; on part i of n of it with part=(i, n). Arrays of
        types that the library reads are not copied."""
        self._set_data(lib.pl_net_set_training_data, data, part, maps, classes)

    def set_test_data(self, data: Any, *, part: Tuple[int, int] = (0, 1), maps: Any = None,
                      classes: Optional[int] = None) -> None:
        """Test with it, likewise."""
        self._set_data(lib.pl_net_set_validation_data, data, part, maps, classes)

    # ---- computing ----

    def train(self, steps: int) -> float:
        """Take so many steps, from where the last call ended; returns their mean loss. Ctrl-C ends
        it between two steps."""
        loss, total, at, size = ctypes.c_double(), 0.0, 0, 1
        while at < steps:
            size = min(size, steps - at)
            begun = time.monotonic()
            with self.engine.lock:
                self.engine.check(lib.pl_net_train(self, size, ctypes.byref(loss)))
            total += loss.value * size
            at += size
            if time.monotonic() - begun < _SLICE_S / 2:
                size *= 2
        return total / steps if steps else 0.0

    def test(self, steps: int = 0) -> TestResult:
        """Test on the first `steps` batches of the test data; 0: on all of it."""
        result = c.pl_test_result()
        with self.engine.lock:
            self.engine.check(lib.pl_net_test(self, steps, ctypes.byref(result)))
        return TestResult(result.error if result.error >= 0 else None, result.loss, result.count)

    @staticmethod
    def _floats(x: Any) -> np.ndarray:
        values = np.ascontiguousarray(to_array(x), np.float32)
        if values.ndim == 0:
            raise error_of(c.PL_ERR_INPUT, "records: expected an array with a record in each x[i]")
        return values

    def forward(self, x: Any, blob: str) -> np.ndarray:
        """The value of a blob for each record of x, after a forward pass in the test phase. Records
        are as the net takes them: no map is applied."""
        values, each = self._floats(x), ctypes.c_size_t()
        with self.engine.lock:
            call = (self, values.ctypes.data, len(values), blob.encode())
            status = lib.pl_net_forward(*call, None, 0, ctypes.byref(each))
            if status == c.PL_ERR_USAGE and each.value:
                out = np.empty((len(values), each.value), np.float32)
                status = lib.pl_net_forward(*call, out.ctypes.data, out.size, ctypes.byref(each))
            self.engine.check(status)
        return out

    def _through_maps(self, x: Any) -> np.ndarray:
        """Records as the run's net takes them."""
        name, data, shape = new_name(), ctypes.c_void_p(), (ctypes.c_uint32 * 3)()
        Records(x if not isinstance(x, tuple) else x[0]).bind(self.engine, name)
        check = self.engine.check
        check(lib.pl_data_open(self.engine, ("memory:" + name).encode(), False,
                               ctypes.byref(data)))
        try:
            check(lib.pl_data_take_maps(data, self._job))
            if not self.has_form:
                check(lib.pl_net_form_data(self, self._job, data))
                self._load_late()
            check(lib.pl_data_shape(data, ctypes.byref(shape)))
            count = len(self.engine.bound[name])
            out = np.empty((count,) + tuple(shape), np.float32)
            check(lib.pl_data_read(data, 0, count, out.ctypes.data, out.size))
        finally:
            lib.pl_data_close(data)
            lib.pl_data_unbind(self.engine, name.encode())
            self.engine.bound.pop(name, None)
        return out

    def predict(self, x: Any) -> np.ndarray:
        """The probability of each class, or the predicted values, for each record of x. A net of a
        run applies the run's maps; any other takes records as it was trained on them."""
        with self.engine.lock:
            values = self._through_maps(x) if self._job else self._floats(x)
            found = c.pl_net_classes()
            self.engine.check(lib.pl_net_classes_of(self, ctypes.byref(found)))
            out = np.empty((len(values), found.count), np.float32)
            self.engine.check(lib.pl_net_predict(self, values.ctypes.data, len(values),
                                                 out.ctypes.data, out.size))
        return out

    # ---- weights ----

    def _view(self, address: int, shape: Tuple[int, ...]) -> np.ndarray:
        return np.asarray(_View(self, address, shape))

    def _vector(self, call: Any) -> np.ndarray:
        at, n = ctypes.c_void_p(), ctypes.c_size_t()
        with self.engine.lock:
            self.engine.check(call(self, ctypes.byref(at), ctypes.byref(n)))
        return self._view(at.value, (n.value,)) if at.value and n.value else np.empty(0, np.float32)

    @property
    def weights(self) -> Weights:
        """Its weights by name, as views. A net without a form has none: UsageError."""
        if not self.has_form:
            raise UsageError("the net has no form yet: give it data, or `shape`")
        return Weights(self)

    @property
    def vector(self) -> np.ndarray:
        """All weights as one vector, a view, the same in each net of one specification: to be
        averaged, sent, kept. What lies between the layers' is zero and must stay so."""
        return self._vector(lib.pl_net_all_weights)

    @property
    def state(self) -> np.ndarray:
        """What it learns without a gradient, such as running means, as one vector, a view."""
        return self._vector(lib.pl_net_all_state)

    def load(self, path: Union[str, os.PathLike], *, some: bool = False) -> None:
        """Take weights from a .safetensors or .caffemodel; with `some`, those that fit."""
        call = lib.pl_net_load_some_weights if some else lib.pl_net_load_weights
        with self.engine.lock:
            self.engine.check(call(self, encoded(path)))

    def save(self, path: Union[str, os.PathLike]) -> None:
        """Write a .caffemodel if the name ends so, else a .safetensors."""
        with self.engine.lock:
            self.engine.check(lib.pl_net_save_weights(self, encoded(path)))


def predict(model: Any, x: Any) -> np.ndarray:
    """The probability of each class, or the predicted values, for each record of x. `model`: a Run,
    a run's directory, or a Net."""
    if isinstance(model, Net):
        return model.predict(x)
    net = model.net() if isinstance(model, Run) else Net.of_run(model)
    return net.predict(x)
