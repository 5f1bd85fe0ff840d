"""Paceline trains neural networks on clusters of machines of different speed, joined by gigabit
Ethernet. This package calls its library, libpaceline.

    import paceline

    net = paceline.Spec().input(2).inner_product(64).relu().inner_product(3).softmax_loss()
    run = paceline.train(net=net, data=(x, y), test=(tx, ty), strategy="mpca", workers=4, epochs=20)
    print(run.report.test_error)
    scores = paceline.predict(run, tx)

`train` returns when the run has ended, `start` at once. `simulate` runs the same job on machines
that a file describes, `plan` predicts its speed without a run. `Net` is one net under the program's
control, `Team` a group of processes that sum arrays. Errors are exceptions, subclasses of `Error`,
with the library's message.

Names are loaded when they are first used: `paceline.spark` needs neither numpy nor the library.
"""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._data import Records
    from ._errors import (BugError, DivergedError, Error, InputError, LostPeerError, MissingError,
                          NoMemoryError, RefusedError, ReplicaError, RoomError, StorageError,
                          StoppedError, TooLateError, UsageError)
    from ._library import library_version
    from ._net import Net, TestResult, predict
    from ._plan import Plan, PlanRow, plan
    from ._run import Report, Run, simulate, start, train
    from ._spec import Spec, zoo
    from ._team import Team

_PLACES = {
    "_data": ("Records",),
    "_errors": ("BugError", "DivergedError", "Error", "InputError", "LostPeerError",
                "MissingError", "NoMemoryError", "RefusedError", "ReplicaError", "RoomError",
                "StorageError", "StoppedError", "TooLateError", "UsageError"),
    "_library": ("library_version",),
    "_net": ("Net", "TestResult", "predict"),
    "_plan": ("Plan", "PlanRow", "plan"),
    "_run": ("Report", "Run", "simulate", "start", "train"),
    "_spec": ("Spec", "zoo"),
    "_team": ("Team",),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}
__version__ = "0.1.0"
__all__ = sorted(_PLACE_OF)


def __getattr__(name):
    if name not in _PLACE_OF:
        raise AttributeError("module 'paceline' has no attribute '%s'" % name)
    from importlib import import_module
    value = getattr(import_module("." + _PLACE_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))
