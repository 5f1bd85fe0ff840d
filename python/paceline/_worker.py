"""A worker of a run, in a process of its own: the run starts it, and describes its order on stdin.
It needs no numpy."""
import ctypes
import json
import logging
import mmap
import sys

from . import _interface as c
from ._errors import Error
from ._library import Engine, lib, options


class SharedRecords:
    """Records that another process shares with this one: Records.share has described them."""

    def __init__(self, told: dict):
        self._told = told
        self._maps = [None if told[part] is None else
                      mmap.mmap(told[part], 0, mmap.MAP_PRIVATE) for part in ("values", "labels")]

    def bind(self, engine: Engine, name: str) -> None:
        told = self._told
        values, labels = (None if m is None else
                          ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in self._maps)
        channels, height, width = told["shape"]
        struct = options(c.pl_records, count=told["count"], channels=channels, height=height,
                         width=width, classes=told["classes"], type=told["type"], values=values,
                         labels=labels)
        engine.check(lib.pl_data_bind(engine, name.encode(), ctypes.byref(struct)))
        engine.bound[name] = self


def work(order: dict) -> None:
    """Work for a driver until the run is over."""
    engine = Engine()
    for name, told in order["records"].items():
        SharedRecords(told).bind(engine, name)
    given = options(c.pl_work_options, driver=order["driver"], key=order["key"], retry_s=1.0,
                    one_machine=True, cache_directory=order.get("cache"))
    engine.check(lib.pl_work(engine, ctypes.byref(given)))


def main() -> int:
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        work(json.load(sys.stdin))
    except Error as why:
        # The driver has the reason, and says what it means for the run.
        logging.getLogger("paceline").debug("worker: %s", why)
        return 1
    return 0
