"""A mistake, and the required contents of its message."""
import dataclasses
from typing import Callable, Optional


NO_FILE = "in /.*; correct the path"  # the remedy where a relative path leads to no file


class Skip(Exception):
    """This mistake cannot be made here, for the reason given."""


@dataclasses.dataclass
class Case:
    name: str
    prepare: Optional[Callable]  # (scene) → the command's words
    # Patterns that one line of the answer must hold, the remedy apart from the other two:
    thing: str  # the error,
    place: str = ""  # where: file and line, field, option, path, host,
    remedy: Optional[str] = ""  # and the remedy. None: the message has no remedy, which is grade B
    code: tuple = (2,)  # exit codes that fit
    env: dict = dataclasses.field(default_factory=dict)
    act: Optional[Callable] = None  # (scene, env) → (text, exit code), instead of prepare
    apart: bool = False  # the remedy stands on a line of its own
    # Of other people, who are not the driver's to correct: it must continue, as `thing` shows.
    harmless: bool = False


def words(*given):
    return lambda scene: list(given)


def train(*changes, more=(), name="x.job"):
    """`paceline train` with the tiny job, changed so."""
    def prepare(scene):
        scene.job(name, *changes)
        return ["train", name, "--out", "run", *more]
    return prepare


def sets(*fields):
    """`paceline train` with the tiny job and --set for each."""
    return train(more=[word for field in fields for word in ("--set", field)])
