"""A mistake, and what its answer must name."""
import dataclasses
from typing import Callable, Optional


@dataclasses.dataclass
class Case:
    name: str
    prepare: Optional[Callable]  # (scene) → the command's words
    thing: str  # patterns that the answer must hold: what is wrong,
    place: str  # where: file and line, field, option, path, host,
    remedy: str  # and what to do
    code: tuple = (2,)  # exit codes that fit
    env: dict = dataclasses.field(default_factory=dict)
    act: Optional[Callable] = None  # (scene, paceline, env) → (text, exit code), instead of prepare


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
