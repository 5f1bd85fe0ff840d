"""Exceptions, one for each status of the library. Each also is Python's own of its kind."""
from . import _interface as c

__all__ = ["Error"]


class Error(Exception):
    """A call of the library failed. Its text is the library's message; `status` is its number."""

    status = 0


class TooLateError(Error, TimeoutError):
    """A deadline passed."""

    status = c.PL_ERR_TIMEOUT


class RoomError(Error):
    """There is no room for it, in memory of a fixed size or on disk."""

    status = c.PL_ERR_FULL


class StoppedError(Error):
    """It ended on request, before it had a result."""

    status = c.PL_ERR_STOP


class LostPeerError(Error, ConnectionError):
    """A worker, a member or the driver was lost."""

    status = c.PL_ERR_PEER


class ReplicaError(Error):
    """Copies that must be equal are not."""

    status = c.PL_ERR_REPLICAS


class InputError(Error, ValueError):
    """A file, a job or a value is bad. The message has the place."""

    status = c.PL_ERR_INPUT


class UsageError(Error, ValueError):
    """A call, an option or an assignment is wrong."""

    status = c.PL_ERR_USAGE


class MissingError(Error, LookupError):
    """There is no such thing."""

    status = c.PL_ERR_NOT_FOUND


class RefusedError(Error, NotImplementedError):
    """The library does not support it, by name."""

    status = c.PL_ERR_UNSUPPORTED


class NoMemoryError(Error, MemoryError):
    """There is not enough memory."""

    status = c.PL_ERR_NOMEM


class StorageError(Error, OSError):
    """A file cannot be read or written."""

    status = c.PL_ERR_IO


class DivergedError(Error, ArithmeticError):
    """The loss is not finite any more."""

    status = c.PL_ERR_DIVERGED


class BugError(Error, RuntimeError):
    """A mistake of the library's own."""

    status = c.PL_ERR_BUG


_BY_STATUS = {kind.status: kind for kind in Error.__subclasses__()}


def error_of(status: int, message: str) -> Error:
    """The exception for a status."""
    error = _BY_STATUS.get(status, Error)(message or "status %d" % status)
    error.status = status
    return error
