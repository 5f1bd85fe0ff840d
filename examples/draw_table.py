#!/usr/bin/env python3
"""Draws a table to train on, when you have none at hand: fruits with a colour, a weight and a length,
of which some weights are missing.

    examples/draw_table.py FILE [COUNT] [SEED]

writes COUNT rows (600) as CSV, or with tabs if FILE ends in .tsv. The same COUNT and SEED (1) give the
same rows. Python 3 alone is needed."""
import csv
import random
import sys

# Colours, and mean and spread of grams and of centimetres.
FRUITS = {
    "apple": (("red", "green", "yellow"), (180, 25), (8, 0.7)),
    "banana": (("yellow", "green"), (120, 15), (19, 1.5)),
    "cherry": (("red", "dark red"), (8, 1.5), (2, 0.3)),
    "lemon": (("yellow",), (90, 12), (8, 0.8)),
}


def main():
    path, count, seed = (sys.argv[1:] + ["600", "1"][len(sys.argv) - 2:])[:3]
    rng = random.Random(int(seed))
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, delimiter="\t" if path.endswith(".tsv") else ",")
        rows.writerow(["number", "color", "grams", "cm", "fruit"])
        for i in range(int(count)):
            fruit = rng.choice(sorted(FRUITS))
            colors, grams, cm = FRUITS[fruit]
            weight = "" if rng.random() < 0.02 else f"{rng.gauss(*grams):.1f}"
            rows.writerow([i, rng.choice(colors), weight, f"{rng.gauss(*cm):.2f}", fruit])


if len(sys.argv) < 2:
    sys.exit(__doc__)
main()
