#!/usr/bin/env python3
"""Runs every command of README.md and docs/TUTORIAL.md, in order, and checks that the shown output appears.

    test/tutorial.py [BUILD]       the command is BUILD/paceline (default: build)
    test/tutorial.py --self-test   shows that planted mistakes are found; needs no build

A page runs in an empty folder that has links to all that the repository has. Blocks of code are

    sh       a script without output
    console  commands after `$ ` (a line that ends with \\ continues), and output shown after each

Words after `console`: `exit=N`, the exit status of each command (0); `terminal=1`, `terminal=2+3`:
adjacent blocks of this kind run at the same time, one process a terminal; `skip=REASON`: not run,
where REASON is listed below. Other kinds of blocks must say `text`. In output shown, … stands for
anything, a line … for any lines, a number for any number. Addresses become a free port of
loopback, so that two hosts are two processes."""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGES = ("README.md", "docs/TUTORIAL.md")
SKIPS = {"installs-packages": "installs packages by apt-get, and trains for a minute"}
LIMIT_S = 180  # of one command: far more than any needs on a quiet machine


class Mistake(Exception):
    pass


class Block:
    def __init__(self, kind, words, where):
        self.kind, self.where, self.lines = kind, where, []
        self.options = {}
        for word in words:
            key, _, value = word.partition("=")
            if kind != "console" or key not in ("exit", "terminal", "skip") or not value:
                raise Mistake("%s: a block cannot have '%s'" % (where, word))
            self.options[key] = value
        if self.options.get("skip", "installs-packages") not in SKIPS:
            raise Mistake("%s: no such reason: %s" % (where, self.options["skip"]))

    def commands(self):
        """Pairs of a command and the lines of output shown after it."""
        if self.kind == "sh":
            return [("set -e\n" + "\n".join(self.lines), [])]
        pairs, continues = [], False
        for line in self.lines:
            if continues:
                pairs[-1][0] += "\n" + line
            elif line.startswith("$ "):
                pairs.append([line[2:], []])
            elif not pairs:
                raise Mistake("%s: output before the first command" % self.where)
            else:
                pairs[-1][1].append(line)
            continues = line.endswith("\\") and (continues or line.startswith("$ "))
        if not pairs:
            raise Mistake("%s: a block without a command" % self.where)
        return pairs


def blocks_of(page, text):
    """Blocks that run. Code that could hide a command is a mistake."""
    blocks, block, after_blank = [], None, True
    for number, line in enumerate(text.splitlines(), 1):
        where = "%s:%d" % (page, number)
        if line.startswith("```"):
            if block is None:
                kind, *words = line[3:].split() or [""]
                if kind not in ("sh", "console", "text"):
                    raise Mistake("%s: a block says sh, console or text, not '%s'" % (where, kind))
                block = Block(kind, words, where)
            else:
                blocks += [block] if block.kind != "text" else []
                block = None
        elif block is not None:
            block.lines.append(line)
        elif after_blank and line.startswith("    ") and line.strip():
            raise Mistake("%s: indented code is not run; use a block" % where)
        after_blank = not line.strip()
    if block is not None:
        raise Mistake("%s: a block does not end" % block.where)
    return blocks


def pattern(line):
    parts = re.split(r"(…|\d+|\s+)", line.strip())
    as_regex = {"…": ".*"}
    return "".join(as_regex.get(p) or (r"\d+" if p.isdigit() else r"\s+" if p.isspace() else
                                       re.escape(p)) for p in parts if p)


def first_missing(shown, output):
    """The first shown line that does not follow the previous ones; None: all are there."""
    lines = iter(output.replace("\r", "\n").splitlines())
    for line in shown:
        if line.strip() in ("", "…"):
            continue
        wanted = re.compile(pattern(line))
        if not any(wanted.fullmatch(have.strip()) for have in lines):
            return line
    return None


class Shell:
    """Bash with a working directory and exported variables that outlive each command."""

    def __init__(self, folder, port):
        self.folder, self.port = folder, port
        self.state = os.path.join(folder, ".state")
        with open(self.state, "w") as f:
            f.write("cd '%s'\n" % folder)
        home = os.path.join(folder, ".home")  # the user's token and measured choices stay untouched
        os.mkdir(home)
        self.environment = dict(os.environ, HOME=home, PACELINE_TUNER="off",
                                OMP_WAIT_POLICY="passive")

    def begin(self, command, keeps_state):
        command = re.sub(r"\b(10\.0\.0\.1|127\.0\.0\.1)\b(?!:)", "127.0.0.1:%d" % self.port, command)
        save = "trap 'echo \"cd \\\"$PWD\\\"\" >%s; declare -px >>%s' EXIT\n" % (
            self.state, self.state) if keeps_state else ""
        script = ". %s\n%s%s\n" % (self.state, save, command)
        out = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")
        process = subprocess.Popen(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   env=self.environment)
        return process, out


def end(process, out, deadline):
    """Its exit status (None: it was killed) and its output."""
    try:
        code = process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = None
    try:
        os.killpg(process.pid, signal.SIGKILL)  # nothing that it started outlives it
    except ProcessLookupError:
        pass
    process.wait()
    out.seek(0)
    return code, out.read()


def judge(block, command, shown, code, output):
    wanted = int(block.options.get("exit", "0"))
    missing = first_missing(shown, output)
    if code == wanted and missing is None:
        return
    why = ("it did not end in %d s" % LIMIT_S if code is None else
           "exit status %s instead of %d" % (code, wanted) if code != wanted else
           "its output lacks, or has elsewhere: %s" % missing)
    tail = "\n".join("    | " + line for line in output.splitlines()[-40:])
    raise Mistake("%s: %s\n    %s\n%s" % (block.where, why, command.replace("\n", "\n    "), tail))


def run_one(shell, block):
    for command, shown in block.commands():
        code, output = end(*shell.begin(command, True), time.monotonic() + LIMIT_S)
        judge(block, command, shown, code, output)


def run_together(shell, blocks):
    """One command a block; a block of terminals 2+3 runs twice."""
    begun = []
    for block in blocks:
        (command, shown), *more = block.commands()
        if more:
            raise Mistake("%s: a terminal has one command" % block.where)
        for _ in block.options["terminal"].split("+"):
            begun.append((block, command, shown, shell.begin(command, False)))
    deadline, found = time.monotonic() + LIMIT_S, None
    for block, command, shown, process in begun:
        code, output = end(*process, deadline)
        try:
            judge(block, command, shown, code, output)
        except Mistake as mistake:
            found = found or mistake
            deadline = min(deadline, time.monotonic() + 5)
    if found:
        raise found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_page(page, text, folder):
    """The number of commands that ran."""
    blocks, shell, count, i = blocks_of(page, text), Shell(folder, 0), 0, 0
    while i < len(blocks):
        block, begin = blocks[i], time.monotonic()
        shell.port = free_port()
        together = [block]
        if "skip" in block.options:
            print("%s: not run: it %s" % (block.where, SKIPS[block.options["skip"]]))
            i += 1
            continue
        if "terminal" in block.options:
            while i + len(together) < len(blocks):
                after = blocks[i + len(together)]
                if after.options.get("terminal", "1") == "1":  # terminal 1 begins a new scene
                    break
                together.append(after)
            run_together(shell, together)
        else:
            run_one(shell, block)
        count += sum(len(b.commands()) for b in together)
        print("%s: %.1f s" % (block.where, time.monotonic() - begin), flush=True)
        i += len(together)
    return count


def check_names(page, text, paceline):
    """Commands named within sentences exist."""
    known = re.findall(r"^  ([\w-]+) ", subprocess.run([paceline, "help"], capture_output=True,
                                                        text=True, check=True).stdout, re.M)
    for name in re.findall(r"`paceline ([\w-]+)[^`]*`", text):
        if name not in known:
            raise Mistake("%s: there is no command paceline %s" % (page, name))


def main(build):
    paceline = os.path.join(os.path.abspath(build), "paceline")
    if not os.access(paceline, os.X_OK):
        sys.exit("tutorial: there is no %s; build it first" % paceline)
    begin, count = time.monotonic(), 0
    for page in PAGES:
        folder = tempfile.mkdtemp(prefix="paceline-tutorial-")
        try:
            for name in os.listdir(ROOT):
                if not name.startswith((".", "build", "runs")):
                    os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
            os.symlink(os.path.abspath(build), os.path.join(folder, "build"))
            with open(os.path.join(ROOT, page), encoding="utf-8") as f:
                text = f.read()
            check_names(page, text, paceline)
            count += run_page(page, text, folder)
        except Mistake as mistake:
            print(mistake)
            return 1
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print("%d commands, %.0f s" % (count, time.monotonic() - begin))
    return 0


GOOD = """
```sh
export GREETING=hello
mkdir -p a
cd a
```
```console
$ echo $GREETING 12 3.5 x; echo between; basename \\
    $PWD
hello 7 1.25 …
…
a
```
```console exit=3
$ (exit 3)
```
```console terminal=1
$ for i in $(seq 60); do [ -e met ] && echo met && exit; sleep 0.05; done; false
met
```
```console terminal=2+3
$ echo 10.0.0.1 >>met
```
```console skip=installs-packages
$ false
```
```text
not run
```
"""
BAD = (  # the old text, the new text, and the expected message
    ("mkdir -p a", "mkdir /nowhere/a", "exit status 1 instead of 0"),
    ("exit=3", "exit=4", "exit status 3 instead of 4"),
    ("hello 7", "hallo 7", "lacks, or has elsewhere: hallo 7"),
    ("hello 7 1.25 …", "hello seven 1.25 …", "lacks, or has elsewhere"),
    ("…\na\n", "a\nbetween\n", "lacks, or has elsewhere: between"),
    (">>met", ">>lost", "exit status 1 instead of 0"),
    ("\nmet\n```", "\nnever\n```", "lacks, or has elsewhere: never"),
    ("installs-packages", "lazy", "no such reason: lazy"),
    ("```text", "```", "a block says sh, console or text"),
    ("```text\nnot run\n```", "\n    ./run demo", "indented code is not run"),
    ("$ (exit 3)", "nothing", "output before the first command"),
    ("not run\n```", "not run", "a block does not end"),
)


def self_test():
    for before, after, says in (("", "", None),) + BAD:
        text = GOOD.replace(before, after) if before else GOOD
        assert not before or text != GOOD, before
        with tempfile.TemporaryDirectory() as folder:
            try:
                run_page("page", text, folder)
                said = None
            except Mistake as mistake:
                said = str(mistake)
        if (said is None) != (says is None) or (says and says not in said):
            print("self-test: '%s' for '%s': expected '%s', got: %s" % (after, before, says, said))
            return 1
    return 0


if sys.argv[1:] == ["--self-test"]:
    sys.exit(self_test())
if len(sys.argv) > 2 or sys.argv[1:2] and sys.argv[1].startswith("-"):
    sys.exit("usage: tutorial.py [--self-test | BUILD]")
sys.exit(main((sys.argv + [os.path.join(ROOT, "build")])[1]))
