"""Settings of each competitor by successive halving on the validation set."""
import itertools
import json
import os

from run import COMPETITORS, SINGLE_FACTOR, Run

# Rungs: steps of virtual time, and how many settings stay.
RUNGS = ((1_500, 2), (5_000, 1))

HERE = os.path.dirname(os.path.abspath(__file__))


def read_grid():
    with open(os.path.join(HERE, "grid.json")) as f:
        grid = {k: v for k, v in json.load(f).items() if k != "about"}
    assert grid.keys() <= COMPETITORS.keys(), "grid.json names a competitor that is none"
    return grid


def settings_of(axes):
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def steps_of(arena, name, steps):
    return max(1, round(steps * arena.scale)) * (SINGLE_FACTOR if name == "single" else 1)


def tune(arena, cell, grid):
    """All settings run for a while, each competitor's two best for longer. Returns the best of each."""
    alive = {name: settings_of(axes) for name, axes in grid.items()}
    for steps, kept in RUNGS:
        runs = arena.all_of([Run(arena, cell, name, s, 1, steps_of(arena, name, steps))
                             for name in alive for s in alive[name] if len(alive[name]) > 1])
        for name in alive:
            mine = sorted((r for r in runs if r.name == name), key=Run.score)
            for r in mine:
                mark = "*" if r in mine[:kept] else " "
                print(f" {mark} {r.steps:6d} steps  {r.score():.4f}  {name}  {r.settings}", flush=True)
            if mine:
                alive[name] = [r.settings for r in mine[:kept]]
    return {name: settings[0] for name, settings in alive.items()}


def at_edge(grid, best):
    """Axes of which a competitor's best setting is the least or the greatest: the grid is too narrow."""
    return [f"{name}: {axis} = {best[name][axis]}" for name, axes in grid.items() if name in best
            for axis, values in axes.items()
            if len(values) > 2 and best[name].get(axis) in (min(values), max(values))]
