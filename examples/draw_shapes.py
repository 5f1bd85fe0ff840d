#!/usr/bin/env python3
"""Draws labelled pictures to train on, when you have none at hand: light circles, squares
and triangles of any place and size on dark, noisy grounds, as PNG files of 40 by 40 pixels.

    examples/draw_shapes.py FOLDER [COUNT]

writes COUNT pictures (100) of each class: FOLDER/circle/000.png, FOLDER/square/000.png and so on.
The same COUNT gives the same pictures. Python 3 alone is needed."""
import os
import random
import struct
import sys
import zlib

SIDE = 40


def is_inside(shape, x, y):
    """Whether (x, y), relative to the centre and radius 1, lies in the shape."""
    if shape == "circle":
        return x * x + y * y <= 1
    if shape == "square":
        return max(abs(x), abs(y)) <= 0.85
    return -0.9 <= y <= 0.9 and abs(x) <= (y + 0.9) / 1.8


def two_colours(rng):
    """A light colour for the shape and a dark one for the ground."""
    return [rng.randrange(150, 236) for _ in range(3)], [rng.randrange(20, 80) for _ in range(3)]


def draw(shape, rng):
    """The rows of one picture, RGB."""
    inside, outside = two_colours(rng)
    radius = rng.uniform(8, 15)
    cx, cy = (rng.uniform(radius, SIDE - radius) for _ in range(2))
    rows = []
    for y in range(SIDE):
        row = bytearray()
        for x in range(SIDE):
            colour = inside if is_inside(shape, (x - cx) / radius, (y - cy) / radius) else outside
            row += bytes(max(0, min(255, c + rng.randrange(-15, 16))) for c in colour)
        rows.append(bytes(row))
    return rows


def write_png(path, rows):
    def chunk(kind, body):
        crc = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels)
                + chunk(b"IEND", b""))


def main():
    if len(sys.argv) not in (2, 3) or not (len(sys.argv) == 2 or sys.argv[2].isdigit()):
        sys.exit("usage: draw_shapes.py FOLDER [COUNT]")
    folder, count = sys.argv[1], int((sys.argv + ["100"])[2])
    rng = random.Random(1)
    for shape in ("circle", "square", "triangle"):
        os.makedirs(os.path.join(folder, shape), exist_ok=True)
        for i in range(count):
            write_png(os.path.join(folder, shape, "%03d.png" % i), draw(shape, rng))
    print("%d pictures in %s" % (3 * count, folder))


main()
