#!/usr/bin/env python3
"""Mistakes that people make, one by one, and how well the command answers each.

    test/mistakes/mistakes.py [--build DIR] [--only WORD] [--jobs 2] [--verbose]
    test/mistakes/mistakes.py --self-test    show that it can fail, and that nothing outlives it

Every mistake is really made: a process of the command is started as a person would start it. An
answer is graded by whether one line of it names the thing, the place and the remedy:

    A  all three        B  thing and place        C  it fails, and says something else
    D  it crashes, hangs, or ends with another exit code than it should        F  silence
    -  a stranger's mistake, which has disturbed nobody        S  cannot be made here

A mistake that is not fatal must be answered by a warning. Fails when an answer is D or F, fewer than
LEAST_A are A, or fewer than LEAST_SHARE of those that are graded.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import data_mistakes  # noqa: E402
import job_mistakes  # noqa: E402
import run_mistakes  # noqa: E402
from case import Case, Skip, words  # noqa: E402
from scene import LIMIT_S, Scene  # noqa: E402

LEAST_A, LEAST_SHARE = 75, 75 / 82


class Answer:
    def __init__(self, case, text, code, skipped=False):
        self.case, self.text, self.code = case, text, code
        self.lines = text.strip().splitlines()
        self.grade = "S" if skipped else self.judge()

    def names(self, *what):
        """Does one line hold all of these patterns, of which none is None?"""
        patterns = [getattr(self.case, w) for w in what]
        if None in patterns:
            return False
        return any(all(re.search(p, line) for p in patterns) and self.apart(what, line)
                   for line in self.lines)

    def apart(self, what, line):
        """A remedy is more than the words that name the thing or the place."""
        if "remedy" not in what:
            return True
        taken = [m.span() for w in what if w != "remedy" for m in [re.search(getattr(self.case, w), line)]]
        return any(all(m.end() <= begin or m.start() >= end for begin, end in taken)
                   for m in re.finditer(self.case.remedy, line))

    def judge(self):
        if self.code not in self.case.code:
            return "F" if self.code == 0 and not re.search("warning|error", self.text) else "D"
        if self.case.harmless:
            return "-" if self.names("thing") else "D"
        if not self.lines or (self.code == 0 and not self.names("thing")):
            return "F"
        if not self.names("thing", "place"):
            return "C"
        whole = self.names("remedy") if self.case.apart else self.names("thing", "place", "remedy")
        return "A" if whole else "B"


def act(case, scene, env):
    """Makes the mistake; what was printed, and the exit code."""
    if case.act:
        return case.act(scene, env)
    process = scene.start(*case.prepare(scene), env=env)
    text, _ = process.communicate()
    return text, process.returncode


def make(case, paceline, folder, limit_s=2 * LIMIT_S):
    """Makes one mistake in a scene of its own; its answer. Whatever happens is that answer's."""
    scene = Scene(os.path.join(folder, case.name.replace(" ", "-").replace("/", "-")), paceline)
    env = {**os.environ, "OMP_WAIT_POLICY": "passive", "PACELINE_TUNER": "off",
           "HOME": scene.folder, **case.env}
    watchdog = threading.Timer(limit_s, scene.kill_all)
    watchdog.daemon = True
    watchdog.start()
    try:
        text, code = act(case, scene, env)
        if scene.ended:
            text, code = text + f"\n[not over in {limit_s} s]", None
        return Answer(case, text, code)
    except Skip as why:
        return Answer(case, str(why), None, skipped=True)
    except Exception:  # pylint: disable=broad-except
        return Answer(case, traceback.format_exc(), None)
    finally:
        watchdog.cancel()
        scene.end()


def show(answer):
    case = answer.case
    last = [line for line in answer.text.strip().splitlines() if line.strip()][-4:]
    codes = " or ".join(map(str, case.code))
    print(f"{answer.grade}  {case.name}: exit {answer.code}, expected {codes}")
    for what in ("thing", "place", "remedy") if answer.grade not in "AS-" else ():
        if getattr(case, what) is not None and not answer.names(what):
            print(f"     does not name the {what}: /{getattr(case, what)}/")
    for line in last:
        print(f"     | {line[:300]}")


FAKE = """#!/bin/sh
case $1 in
hang) sleep 1000 & echo $! >child; sleep 1000 ;;
twice) echo "paceline: batch: given twice"; exit 2 ;;
*) echo "paceline: batch: given twice; keep one"; exit 2 ;;
esac
"""


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def self_test():
    def fail(scene, env):
        raise ValueError(scene.folder)

    def skip(scene, env):
        raise Skip("no reason")

    def hang(scene, env):
        process = scene.start("hang", env=env)
        while not os.path.exists(scene.path("child")) or not os.path.getsize(scene.path("child")):
            time.sleep(0.01)
        with open(scene.path("child")) as f:
            children.append(int(f.read()))
        return process.stdout.read(), process.wait()

    children = []
    answer = {"thing": "twice", "place": "batch", "remedy": "twice|keep one"}
    expected = [("A", Case("whole", words("whole"), **answer)), ("B", Case("twice", words("twice"), **answer)),
                ("D", Case("code", words("whole"), code=(0,), **answer)), ("D", Case("fail", None, "x", act=fail)),
                ("S", Case("skip", None, "x", act=skip)), ("D", Case("hang", None, "x", act=hang))]
    with tempfile.TemporaryDirectory(prefix="mistakes-") as folder:
        fake = os.path.join(folder, "paceline")
        with open(fake, "w") as f:
            f.write(FAKE)
        os.chmod(fake, 0o755)
        for grade, case in expected:
            found = make(case, fake, folder, limit_s=3)
            assert found.grade == grade, f"{case.name}: {found.grade}, not {grade}: {found.text}"
    assert len(children) == 1 and not is_alive(children[0]), f"process {children} outlived its case"
    print("self-test: grades, exceptions, skips and processes that hang are told apart")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default="", help="those whose name has this word")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true", help="show every answer")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
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
    for answer in sorted(answers, key=lambda a: a.grade in "DF"):  # the bad ones last, as CI shows the end
        if args.verbose or answer.grade not in "A-":
            show(answer)
    print(f"{len(answers)} mistakes: " + ", ".join(f"{n} {g}" for g, n in sorted(grades.items())))
    bad = grades["D"] + grades["F"] > 0
    graded = len(answers) - grades["S"] - grades["-"]
    few = not args.only and (grades["A"] < LEAST_A or grades["A"] < LEAST_SHARE * graded)
    if few:
        print(f"fewer than {LEAST_A}, or than {100 * LEAST_SHARE:.0f} %, are A")
    return 1 if bad or few else 0


if __name__ == "__main__":
    sys.exit(main())
