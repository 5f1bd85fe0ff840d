#!/usr/bin/env python3
"""What part of the words that a trained net of characters draws occurs in its text.

    bench/text_words.py RUN --text FILE [--length 3000] [--seed 1] [--least 80] [--paceline FILE]

RUN is the directory of a run, which `paceline sample` reads. A word is letters and apostrophes, with
capitals as they are; the last one, which the end may cut, does not count. Fails when fewer than
--least percent of the words occur.
"""
import argparse
import re
import subprocess
import sys


def words_of(text):
    return re.findall(r"[A-Za-z']+", text)


def share_of_words(paceline, run, text, length, seed):
    """Of the words that are drawn; and how many they are."""
    command = [paceline, "sample", run, "--length", str(length), "--seed", str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}")
    known, words = set(words_of(text)), words_of(done.stdout.decode())[:-1]
    if not words:
        sys.exit(f"{' '.join(command)}: no word in what it drew")
    return sum(word in known for word in words) / len(words), len(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("run", help="the directory of a run")
    parser.add_argument("--text", default="data/tinyshakespeare.txt")
    parser.add_argument("--length", type=int, default=3000, help="characters that are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=float, default=80, metavar="PERCENT")
    parser.add_argument("--paceline", default="build/paceline")
    args = parser.parse_args()
    with open(args.text, encoding="utf-8", newline="") as f:
        text = f.read()
    share, words = share_of_words(args.paceline, args.run, text, args.length, args.seed)
    print(f"{100 * share:.1f} % of {words} words in {args.length} drawn characters occur in the text")
    return 0 if 100 * share >= args.least else 1


if __name__ == "__main__":
    sys.exit(main())
