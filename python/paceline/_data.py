"""Records of the program: arrays and iterators, as `memory:NAME` of the library."""
import ctypes
import itertools
import os
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Optional, Tuple, Union

import numpy as np

from . import _interface as c
from ._errors import error_of
from ._library import Engine, lib, options

# The types that the library reads, and those that become one of them.
_TYPES = {np.dtype(np.uint8): c.PL_U8, np.dtype(np.float32): c.PL_F32,
          np.dtype(np.int32): c.PL_I32, np.dtype(np.int64): c.PL_I64}
_BECOMES = {"b": np.uint8, "i": np.int32, "u": np.int64, "f": np.float32}
_BLOCK = 1 << 24  # bytes that are copied at a time


def _refuse(message: str):
    return error_of(c.PL_ERR_INPUT, message)


def to_array(value: Any) -> np.ndarray:
    """A NumPy array of anything like one: a tensor of PyTorch's, also of another device, a list."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.asarray(value)


def _stored_type(kind: np.dtype, where: str) -> np.dtype:
    if kind in _TYPES:
        return kind
    if kind.kind not in _BECOMES:
        raise _refuse("%s: values of type %s; expected numbers" % (where, kind))
    return np.dtype(_BECOMES[kind.kind])


def _record_shape(shape: Tuple[int, ...]) -> Tuple[int, int, int]:
    """Channels, height and width of a record of this shape."""
    if len(shape) == 3:
        if shape[2] in (1, 3) and shape[0] > 4:
            warnings.warn("records of %d channels, %d rows and %d columns: if channels are last, "
                          "give x.transpose(0, 3, 1, 2)" % shape, stacklevel=3)
        return shape
    if len(shape) == 2:
        return (1,) + shape
    return (int(np.prod(shape, dtype=np.int64)) if shape else 1, 1, 1)


def _labels_of(labels: Any, count: int) -> np.ndarray:
    found = to_array(labels)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1 or len(found) != count:
        raise _refuse("labels: expected one for each of %d records, found an array of shape %s"
                      % (count, found.shape))
    if found.dtype.kind not in "iub":
        raise _refuse("labels: expected integers, the numbers of classes, found %s" % found.dtype)
    if len(found) and (found.min() < 0 or found.max() >= 1 << 20):
        raise _refuse("labels: expected numbers of classes from 0, found %s"
                      % (found.min() if found.min() < 0 else found.max()))
    return np.ascontiguousarray(found, np.uint32)


class Records:
    """Records and, where there are any, their labels.

    `data` is a pair of arrays (x, y), an array without labels, or an iterable: a generator, a
    Dataset or a DataLoader of PyTorch's. An item of an iterable is a pair of a record and its
    label, or of a batch and its labels; without a pair it is a record. An iterable is read once, to
    its end, into memory, or with `spool` into a file without a name in that folder.

    x has a record in each x[i]: numbers, a vector, rows and columns, or channels, rows and columns.
    Numbers of uint8, float32, int32 and int64 are read where they lie; others become one of these.
    Labels are integers from 0; `classes` is how many there are, by default the highest plus one.
    """

    def __init__(self, data: Any, classes: Optional[int] = None, spool: Optional[str] = None):
        self.values: np.ndarray
        self.labels: Optional[np.ndarray]
        self._files: Optional[Tuple[Any, Any]] = None
        self._shared_by: Optional["Records"] = None  # which has the files
        if isinstance(data, Records):
            self.values, self.labels = data.values, data.labels
            self._shared_by = data
        elif isinstance(data, tuple) and len(data) == 2:
            self._take_arrays(data[0], data[1])
        elif isinstance(data, np.ndarray) or hasattr(data, "__array__"):
            self._take_arrays(data, None)
        elif isinstance(data, Iterable) or hasattr(data, "__getitem__"):
            self._take_items(data, spool)
        else:
            raise TypeError("data: expected (x, y), an array or an iterable, found %s"
                            % type(data).__name__)
        if len(self.values) == 0:
            raise _refuse("data: it has no record")
        self.shape = _record_shape(self.values.shape[1:])
        highest = 0 if self.labels is None else int(self.labels.max()) + 1
        self.classes = int(classes or highest)
        if highest > self.classes:
            raise _refuse("labels: there is a label %d, and there are %d classes"
                          % (highest - 1, self.classes))

    def __len__(self) -> int:
        return len(self.values)

    def __del__(self):
        for file in getattr(self, "_files", None) or ():
            if file:
                file.close()

    def _take_arrays(self, x: Any, y: Any) -> None:
        values = to_array(x)
        if values.ndim == 0:
            raise _refuse("data: expected an array with a record in each x[i], found one number")
        self.values = np.ascontiguousarray(values, _stored_type(values.dtype, "data"))
        self.labels = None if y is None else _labels_of(y, len(values))

    def _take_items(self, items: Any, spool: Optional[str]) -> None:
        if not hasattr(items, "__iter__"):  # a Dataset, which may not know its end by itself
            items = map(items.__getitem__, range(len(items)))
        file = _open_file(spool)
        self._files = (file, None)
        labels = []
        shape: Optional[Tuple[int, ...]] = None
        kind = np.dtype(np.float32)
        for number, item in enumerate(items):
            x, y = item if isinstance(item, (tuple, list)) and len(item) == 2 else (item, None)
            x = to_array(x)
            y = None if y is None else to_array(y)
            if y is None or y.ndim == 0:
                x, y = x[np.newaxis], None if y is None else y[np.newaxis]
            if shape is None:
                shape, kind, labelled = x.shape[1:], _stored_type(x.dtype, "data"), y is not None
            if x.shape[1:] != shape or (y is not None) != labelled:
                raise _refuse("data: item %d has records of shape %s%s, others of shape %s%s" % (
                    number, x.shape[1:], "" if y is not None else " without labels", shape,
                    "" if labelled else " without labels"))
            file.write(np.ascontiguousarray(x, kind).data)
            if y is not None:
                labels.append(_labels_of(y, len(x)))
        if shape is None:
            raise _refuse("data: it has no record")
        file.flush()
        count = file.tell() // (kind.itemsize * max(1, int(np.prod(shape, dtype=np.int64))))
        self.values = np.memmap(file, kind, "r+", shape=(count,) + shape)
        self.labels = np.concatenate(labels) if labelled else None

    def struct(self) -> c.pl_records:
        """As pl_data_bind takes them; it points into this object."""
        return options(
            c.pl_records, count=len(self), channels=self.shape[0], height=self.shape[1],
            width=self.shape[2], classes=self.classes, type=_TYPES[self.values.dtype],
            values=self.values.ctypes.data,
            labels=None if self.labels is None else self.labels.ctypes.data)

    def bind(self, engine: Engine, name: str) -> None:
        """Give them a name in an engine, which keeps them."""
        struct = self.struct()
        engine.check(lib.pl_data_bind(engine, name.encode(), ctypes.byref(struct)))
        engine.bound[name] = self

    def share(self, spool: Optional[str] = None) -> dict:
        """What another process of this machine needs to bind them, which inherits the files: arrays
        are copied once, into memory that all such processes share."""
        if self._shared_by:
            return {**self._shared_by.share(spool), "classes": self.classes}
        if self._files is None or (self._files[1] is None and self.labels is not None):
            values = self._files[0] if self._files else _copy_of(self.values, spool)
            labels = None if self.labels is None else _copy_of(self.labels, spool)
            self._files = (values, labels)
        values, labels = self._files
        return {"count": len(self), "shape": self.shape, "classes": self.classes,
                "type": _TYPES[self.values.dtype], "values": values.fileno(),
                "labels": None if labels is None else labels.fileno()}


def _open_file(spool: Optional[str]):
    """A file without a name: in memory, or in a folder."""
    if spool is not None:
        return tempfile.TemporaryFile(dir=spool)
    return os.fdopen(os.memfd_create("paceline", os.MFD_CLOEXEC), "w+b")


def _copy_of(array: np.ndarray, spool: Optional[str]):
    file = _open_file(spool)
    flat = array.reshape(-1)
    step = _BLOCK // array.itemsize
    for begin in range(0, len(flat), step):
        file.write(flat[begin:begin + step].data)
    file.flush()
    return file


def maps_text(maps: Union[None, str, Mapping]) -> str:
    """The part of a SPEC after its name: "scale=0.5&mirror=true"."""
    if not maps:
        return ""
    if isinstance(maps, str):
        return "?" + maps.lstrip("?")
    words = []
    for name, value in maps.items():
        if isinstance(value, (list, tuple)):
            value = ",".join(repr(float(v)) for v in value)
        words.append("%s=%s" % (name, str(value).lower() if isinstance(value, bool) else value))
    return "?" + "&".join(words)


_numbers = itertools.count()


def new_name() -> str:
    """A name that nothing else has."""
    return "data-%d" % next(_numbers)
