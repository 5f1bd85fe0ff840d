"""Loads libpaceline and declares its functions; engines, which hold everything that is made."""
import ctypes
import logging
import os
import threading
from typing import Any, Dict

from . import _interface as c
from ._errors import error_of

_SONAME = "libpaceline.so.1"
_log = logging.getLogger("paceline")
_LEVELS = {c.PL_LOG_DEBUG: logging.DEBUG, c.PL_LOG_INFO: logging.INFO,
           c.PL_LOG_WARN: logging.WARNING, c.PL_LOG_ERROR: logging.ERROR}


def library_path() -> str:
    """Where the library is: $PACELINE_LIBRARY, the file in this package, or wherever the system
    finds it."""
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), _SONAME)
    return os.environ.get("PACELINE_LIBRARY") or (bundled if os.path.exists(bundled) else _SONAME)


def _load():
    path = library_path()
    try:
        library = ctypes.CDLL(path)
    except OSError as why:
        raise ImportError(
            "paceline: the library %s cannot be loaded: %s. Install libpaceline1, or let "
            "PACELINE_LIBRARY name the file" % (path, why)) from None
    for name, (result, arguments) in c.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError("paceline: %s has no %s: it is older than this package"
                              % (path, name)) from None
        function.restype, function.argtypes = result, arguments
    return library


lib = _load()
libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]
libc.free.restype = None


def library_version() -> str:
    """The version of the library, such as "0.1.0"."""
    return lib.pl_version().decode()


def field_types(kind) -> Dict[str, Any]:
    """The type of each field of a struct."""
    return dict(kind._fields_)


def options(kind, **fields):
    """A struct of options with its size; texts become bytes, and None leaves a field zero."""
    made = kind(size=ctypes.sizeof(kind))
    for name, value in fields.items():
        if value is not None:
            setattr(made, name, encoded(value) if isinstance(value, (str, os.PathLike)) else value)
    return made


def encoded(text) -> bytes:
    """A text or a path as the library takes it."""
    return os.fsencode(text)


class Engine:
    """An engine of the library. One thread at a time may use it: `lock` is for objects that
    several threads may reach."""

    def __init__(self, level: int = c.PL_LOG_INFO):
        self.lock = threading.RLock()
        self.bound: Dict[str, Any] = {}  # what bound names point to
        self._callback = field_types(c.pl_engine_options)["log"](_on_log)
        self.handle = ctypes.c_void_p()
        status = lib.pl_engine_create(
            ctypes.byref(options(c.pl_engine_options, log=self._callback, log_level=level)),
            ctypes.byref(self.handle))
        if status != c.PL_OK:
            raise error_of(status, "an engine cannot be made; PACELINE_ISA may be sse2, avx2 or "
                                   "avx512")

    @property
    def _as_parameter_(self):
        return self.handle

    def check(self, status: int) -> None:
        """Raise the exception for the status of the call before."""
        if status != c.PL_OK:
            raise error_of(status, os.fsdecode(lib.pl_engine_error(self.handle)))

    def close(self) -> None:
        """Everything made from it must have been freed."""
        if self.handle:
            lib.pl_engine_destroy(self.handle)
            self.handle = ctypes.c_void_p()
            self.bound.clear()

    def __del__(self):
        if getattr(self, "handle", None):
            self.close()


def _on_log(_user, level, line):
    _log.log(_LEVELS.get(level, logging.INFO), "%s", os.fsdecode(line or b""))


class Owned:
    """An object of the library, freed with its last reference; it keeps its engine."""

    def __init__(self, engine: Engine, free):
        self.engine, self._free = engine, free
        self.handle = ctypes.c_void_p()

    @property
    def _as_parameter_(self):
        return self.handle

    def close(self) -> None:
        if self.handle:
            self._free(self.handle)
            self.handle = ctypes.c_void_p()

    def __del__(self):
        self.close()
