#!/usr/bin/env python3
"""A small cell of the arena: each competitor trains while workers die and start, tables and plots name
all of them, and a second call repeats nothing. Likewise a figure.

    bench/arena/arena_test.py [BUILD]
"""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
CELL = "fc.adam.flaky.w2.46"
COMPETITORS = ["single", "sync", "pace"]
TUNED = {"single": {"rate": 1}, "sync": {"rate": 8, "strategy.sync.tau": 10}, "pace": {"rate": 4}}
ERROR_MAX = 0.3  # guessing has 0.9


def play(build, folder):
    tuned = os.path.join(folder, "known.json")
    with open(tuned, "w") as f:
        json.dump(TUNED, f)
    subprocess.run([sys.executable, os.path.join(HERE, "arena.py"), CELL, "--scale", "0.08", "--seeds", "1",
                    "--only", ",".join(COMPETITORS), "--tuned", tuned, "--out", folder, "--build", build],
                   check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, CELL + ".json")) as f:
        return json.load(f)


def check(holds, what):
    if not holds:
        sys.exit(f"{CELL}: {what}")


def lines_of(path):
    with open(path) as f:
        return f.read().splitlines()


def texts_of(path):
    return [e.text for e in xml.etree.ElementTree.parse(path).iter() if e.tag.endswith("text")]


# The lines of each figure, and the column of its table that has them.
FIGURES = {"mpca-10c": (0, ["no node contested", "weighted by τ", "equal weights"]),
           "elastic-6.3": (1, ["after", "in the background"] * 2)}


def draw(build, folder):
    """Two figures, short."""
    for _ in range(2):
        subprocess.run([sys.executable, os.path.join(HERE, "figures.py"), *FIGURES, "--scale", "0.06",
                        "--seeds", "1", "--out", folder, "--build", build], check=True, stdout=subprocess.DEVNULL)
        check(len(lines_of(os.path.join(folder, "ledger.jsonl"))) == 7, "figures.py repeats runs")
    tables = {}
    for name, (column, lines) in FIGURES.items():
        rows = [row.strip("| ").split(" | ") for row in lines_of(os.path.join(folder, name + ".md"))[2:]]
        check([row[column] for row in rows] == lines, f"{name} of {rows}")
        drawn = texts_of(os.path.join(folder, name + ".svg"))
        check(all(any(line.split()[-1] in text for text in drawn) for line in lines), f"{name} has {drawn}")
        tables[name] = rows
    errors = [float(row[-2].split()[0]) for row in tables["mpca-10c"]]
    check(max(errors) < 100 * ERROR_MAX, f"figure with errors {errors}")
    after, background = (float(row[2]) for row in tables["elastic-6.3"][:2])
    check(1 <= background < after < 1.6, f"iterations of {after} and {background} steps")


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
    with tempfile.TemporaryDirectory() as folder:
        first = play(build, folder)
        ledger = os.path.join(folder, "ledger.jsonl")
        with open(ledger) as f:
            runs = [json.loads(line) for line in f]
        check([r["competitor"] for r in first["results"]] == COMPETITORS, f"results: {first['results']}")
        check(first["targets"]["late"] < first["targets"]["early"] < ERROR_MAX, f"targets: {first['targets']}")
        for r in first["results"]:
            check(r["lowest"] < ERROR_MAX, f"{r['competitor']} ends at {r['lowest']}")
        check(sorted(r["competitor"] for r in runs) == sorted(COMPETITORS), f"runs: {runs}")
        joined = [os.path.join(folder, "runs", r["dir"], "events.jsonl") for r in runs if r["competitor"] != "single"]
        for path in joined:
            with open(path) as f:
                members = [json.loads(line)["what"] for line in f if '"kind":"member"' in line]
            check(members.count("dead") >= 2 and members.count("join") >= 10, f"{path}: members {members}")
        texts = texts_of(os.path.join(folder, CELL + ".svg"))
        check(all(name in texts for name in COMPETITORS), f"the plot has {texts}")
        check(play(build, folder) == first, "a second call has other results")
        with open(ledger) as f:
            check(sum(1 for _ in f) == len(runs), "a second call repeats runs")
        draw(build, os.path.join(folder, "figures"))


if __name__ == "__main__":
    main()
