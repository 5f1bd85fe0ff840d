#!/usr/bin/env python3
"""Mistakes that people make, one by one, and how well the command answers each.

    test/mistakes/mistakes.py [--build DIR] [--only WORD] [--jobs 2] [--verbose]

Every mistake is really made: a process of the command is started as a person would start it. An
answer is graded by whether it names the thing, the place and the remedy:

    A  all three        B  thing and place        C  it fails, and says something else
    D  it crashes, hangs, or ends with another exit code than it should        F  silence

A mistake that is not fatal must be answered by a warning. Fails when an answer is D or F, or fewer
than LEAST_A of them are A.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import data_mistakes  # noqa: E402
import job_mistakes  # noqa: E402
import run_mistakes  # noqa: E402
from scene import Scene  # noqa: E402

LEAST_A = 75 / 82
LIMIT_S = 60


class Answer:
    def __init__(self, case, text, code):
        self.case, self.text, self.code = case, text, code
        self.grade = self.judge()

    def names(self, what):
        return re.search(getattr(self.case, what), self.text, re.S | re.I) is not None

    def judge(self):
        if self.code not in self.case.code:
            return "F" if self.code == 0 and not re.search("warning|error", self.text) else "D"
        if self.code == 0 and not self.names("thing"):
            return "F"
        if not self.text.strip():
            return "F"
        named = [self.names(what) for what in ("thing", "place", "remedy")]
        return "A" if all(named) else "B" if named[0] and named[1] else "C"


def make(case, paceline, folder):
    """Makes one mistake in a scene of its own; its answer."""
    scene = Scene(os.path.join(folder, case.name.replace(" ", "-").replace("/", "-")))
    env = {**os.environ, "OMP_WAIT_POLICY": "passive", "PACELINE_TUNER": "off",
           "HOME": scene.folder, **case.env}
    try:
        if case.act:
            text, code = case.act(scene, paceline, env)
        else:
            words = [paceline] + case.prepare(scene)
            done = subprocess.run(words, cwd=scene.folder, env=env, timeout=LIMIT_S,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, errors="replace", check=False)
            text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as e:
        text, code = (e.stdout or b"").decode(errors="replace") + f"\n[not over in {LIMIT_S} s]", None
    shutil.rmtree(scene.folder, ignore_errors=True)
    return Answer(case, text, code)


def show(answer):
    case = answer.case
    last = [line for line in answer.text.strip().splitlines() if line.strip()][-4:]
    codes = " or ".join(map(str, case.code))
    print(f"{answer.grade}  {case.name}: exit {answer.code}, expected {codes}")
    for what in ("thing", "place", "remedy"):
        if not answer.names(what):
            print(f"     does not name the {what}: /{getattr(case, what)}/")
    for line in last:
        print(f"     | {line[:300]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default="", help="those whose name has this word")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true", help="show every answer")
    args = parser.parse_args()
    paceline = os.path.abspath(os.path.join(args.build, "paceline"))
    every = job_mistakes.CASES + data_mistakes.CASES + run_mistakes.CASES
    names = [case.name for case in every]
    assert len(set(names)) == len(names), [n for n in names if names.count(n) > 1]
    cases = [case for case in every if args.only in case.name]
    folder = tempfile.mkdtemp(prefix="mistakes-")
    try:
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            answers = list(pool.map(lambda case: make(case, paceline, folder), cases))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    grades = collections.Counter(answer.grade for answer in answers)
    for answer in answers:
        if args.verbose or answer.grade != "A":
            show(answer)
    print(f"{len(answers)} mistakes: " + ", ".join(f"{n} {g}" for g, n in sorted(grades.items())))
    bad = grades["D"] + grades["F"] > 0
    few = not args.only and grades["A"] < LEAST_A * len(answers)
    if few:
        print(f"fewer than {100 * LEAST_A:.0f} % are A")
    return 1 if bad or few else 0


if __name__ == "__main__":
    sys.exit(main())
