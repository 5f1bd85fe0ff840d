"""Teams: processes that find each other and reduce arrays together."""
import ctypes
from typing import Any, Optional

import numpy as np

from . import _interface as c
from ._errors import error_of
from ._library import Engine, Owned, lib, options

_OPERATIONS = {"sum": c.PL_SUM, "mean": c.PL_MEAN, "max": c.PL_MAX, "min": c.PL_MIN}


class Team(Owned):
    """A member of a team. One process coordinates, with `members`, and every process is a member:

        team = paceline.Team("127.0.0.1:7000", members=3)     # in one process
        team = paceline.Team("127.0.0.1:7000")                # in two others
        team.allreduce(gradient)                              # in all: the sum, in place

    Members make the same calls in the same order on a channel; calls on other channels, by other
    threads, continue at the same time. A member that is lost, or that joins, is reported once a
    channel to each other by LostPeerError: `size` and `rank` are then the new ones.

    members_max  members that may join later. listen: where this member listens; key: the team's,
                 32 to 64 characters, needed beyond this host; insecure: do not encrypt, where the
                 other members do not either; timeout_s: for all to find each other, 60

    It is left at the end of a `with` block, by `close`, or with the last reference.
    """

    def __init__(self, rendezvous: str, members: int = 0, *, members_max: int = 0,
                 listen: Optional[str] = None, key: Optional[str] = None, insecure: bool = False,
                 timeout_s: float = 0.0, stripes: int = 0):
        super().__init__(Engine(), lib.pl_team_close)
        made = options(c.pl_team_options, rendezvous=rendezvous, members=members,
                       members_max=members_max, listen=listen, key=key, insecure=int(insecure),
                       timeout_s=timeout_s, stripes=stripes)
        self.engine.check(lib.pl_team_open(self.engine, ctypes.byref(made),
                                           ctypes.byref(self.handle)))

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_exception: Any) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Members at this moment; 0: the team is over."""
        return lib.pl_team_size(self) if self.handle else 0

    @property
    def rank(self) -> int:
        """The number of this member, from 0."""
        return lib.pl_team_rank(self)

    def _call(self, function: Any, array: np.ndarray, *before: Any, channel: int,
              algorithm: Optional[str], wire: Optional[str], residual: Optional[np.ndarray],
              reduction: Any = ()) -> np.ndarray:
        if not self.handle:
            raise error_of(c.PL_ERR_USAGE, "team: it is closed")
        for what in (array,) if residual is None else (array, residual):
            if not isinstance(what, np.ndarray) or what.dtype != np.float32 or \
                    not what.flags.c_contiguous or not what.flags.writeable:
                raise error_of(c.PL_ERR_INPUT, "team: expected a contiguous, writable array of "
                                               "float32, which holds the result")
        if residual is not None and residual.size != array.size:
            raise error_of(c.PL_ERR_INPUT, "team: the residual has %d numbers, the array %d"
                           % (residual.size, array.size))
        made = options(c.pl_call_options, channel=channel, algorithm=algorithm, wire=wire,
                       residual=None if residual is None else residual.ctypes.data)
        status = function(self, *before, array.ctypes.data, array.size, *reduction,
                          ctypes.byref(made))
        if status != c.PL_OK:
            raise error_of(status, lib.pl_team_error(self, channel).decode())
        return array

    @staticmethod
    def _reduction(op: str, weight: float):
        if op not in _OPERATIONS:
            raise error_of(c.PL_ERR_USAGE, "op: expected sum, mean, max or min, not %s" % op)
        return (ctypes.byref(options(c.pl_reduction, op=_OPERATIONS[op], weight=weight)),)

    def allreduce(self, array: np.ndarray, op: str = "sum", *, weight: float = 1.0,
                  channel: int = 0, algorithm: Optional[str] = None, wire: Optional[str] = None,
                  residual: Optional[np.ndarray] = None) -> np.ndarray:
        """The arrays of all members, reduced by "sum", "mean", "max" or "min", in place and
        returned. All end with the same bits. `weight`: of this member in a mean. `wire`: "f32",
        "bf16" or "int8"; `residual`: zeros at first, keeps what these have not delivered yet."""
        return self._call(lib.pl_team_allreduce, array, channel=channel, algorithm=algorithm,
                          wire=wire, residual=residual, reduction=self._reduction(op, weight))

    def broadcast(self, array: np.ndarray, root: int = 0, *, channel: int = 0,
                  algorithm: Optional[str] = None, wire: Optional[str] = None) -> np.ndarray:
        """The array of rank `root`, in place at all."""
        return self._call(lib.pl_team_broadcast, array, root, channel=channel, algorithm=algorithm,
                          wire=wire, residual=None)

    def reduce(self, array: np.ndarray, op: str = "sum", root: int = 0, *, weight: float = 1.0,
               channel: int = 0, algorithm: Optional[str] = None,
               wire: Optional[str] = None) -> np.ndarray:
        """The arrays of all members, reduced, in place at rank `root`; undefined elsewhere."""
        return self._call(lib.pl_team_reduce, array, root, channel=channel, algorithm=algorithm,
                          wire=wire, residual=None, reduction=self._reduction(op, weight))
