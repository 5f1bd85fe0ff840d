#!/usr/bin/python3
"""Writes mpca.golden: MPCA SGD on two weights, a and b, from the paper's equations alone.

    /usr/bin/python3 mpca.py > mpca.golden

mpca_golden_test.c describes the case and takes the same steps. A line is the end of one tick:

    form tick shard  c alpha beta gamma  tau of each worker  joint v star  a and b of each worker

where c, the schedules, joint, v and star are those of the shard that is reduced in this tick, and
form says how workers are pulled: Eq. 7 (displace) or Eq. 6 (gradient).

Each operation is rounded to a float of 32 bits, in the order in which the paper writes it; the
schedules are worked out to 50 digits and rounded once. Before anything is written, the same story
in floats of 64 bits must say the same.
"""
import decimal
import struct
import sys

decimal.getcontext().prec = 50
CYCLES, PHASES = 25, 2

SPEED = (3, 2, 1)  # steps that each worker takes in a tick
MINIMUM = ((1, 1), (0, 2), (-1, 0))  # of each worker's loss
CURVATURE = ((1, 0.5), (0.5, 1))
RATE, START = 0.25, (4, -2)


class Single(float):
    """A float of 32 bits: a double holds the exact result, or enough of it to round again."""
    def __new__(cls, v):
        return super().__new__(cls, struct.unpack("f", struct.pack("f", v))[0])

    def __add__(self, other):
        return Single(float(self) + float(other))

    def __sub__(self, other):
        return Single(float(self) - float(other))

    def __rsub__(self, other):
        return Single(float(other) - float(self))

    def __mul__(self, other):
        return Single(float(self) * float(other))

    def __rtruediv__(self, other):
        return Single(float(other) / float(self))

    __radd__, __rmul__ = __add__, __mul__


def setting(v):
    """Settings are floats of 32 bits."""
    return decimal.Decimal(float(Single(v)))


def beta(c):
    return setting(0.9)**(decimal.Decimal(min(c, 20)) / 20)


def gamma(c):
    return setting(0.7) * min(c, 20) / 20


def alpha(c):
    if c < 2:
        return 0
    return setting(0.05) + (setting(0.5) - setting(0.05)) * setting(0.8)**(c - 2)


def steps(worker, tick):
    """Worker 0 rests in ticks 10 and 11, all workers in 16 and 17."""
    rests = tick in (16, 17) or (worker == 0 and tick in (10, 11))
    return 0 if rests else SPEED[worker]


def gradient(x, worker):
    d = [w - m for w, m in zip(x, MINIMUM[worker])]
    return [row[0] * d[0] + row[1] * d[1] for row in CURVATURE]


def story(number, form):
    """The state at the end of each tick; `number` is the kind of float."""
    workers, shards, delta = range(len(SPEED)), range(PHASES), number(setting(0.8))
    x = [[number(w) for w in START] for _ in workers]
    tau = [[0] * PHASES for _ in workers]
    c = [0] * PHASES
    joint, star = [[number(w) for w in START] for _ in range(2)]
    v, prepared = [number(0)] * PHASES, [None] * PHASES
    for tick in range(PHASES * CYCLES):
        pull = [number(alpha(c[s])) for s in shards]
        for i in workers:
            for _ in range(steps(i, tick)):
                if form == "displace":  # Eq. 7
                    x[i] = [x[i][s] - pull[s] * (x[i][s] - star[s]) for s in shards]
                g = gradient(x[i], i)
                if form == "gradient":  # Eq. 6
                    g = [g[s] + pull[s] * (x[i][s] - star[s]) for s in shards]
                x[i] = [x[i][s] - RATE * g[s] for s in shards]
                tau[i] = [t + 1 for t in tau[i]]

        s = tick % PHASES
        taus = [tau[i][s] for i in workers]
        b, y = number(beta(c[s])), number(gamma(c[s]))
        prepared[s] = star[s]
        if sum(taus) > 0:
            total = number(0)
            for i in workers:
                total = total + number(taus[i]) * x[i][s]
            R = (1 / number(sum(taus))) * total  # Eq. 9
            before = joint[s]
            joint[s] = (1 - b) * before + b * R  # Eq. 8
            v[s] = delta * v[s] + (1 - delta) * (joint[s] - before)  # Eq. 4
            prepared[s] = joint[s] + y * v[s]  # Eq. 5
        yield [form, tick, s, c[s], pull[s], b, y, *taus, joint[s], v[s], prepared[s], *sum(x, [])]
        for i in workers:
            tau[i][s] = 0

        other = (s + 1) % PHASES  # was broadcast meanwhile
        if prepared[other] is not None:
            star[other] = prepared[other]
            c[other] += 1


for form in "displace", "gradient":
    for row, check in zip(story(Single, form), story(float, form)):
        if not all(a == b if isinstance(a, str) else abs(a - b) < 2e-6 for a, b in zip(row, check)):
            sys.exit(f"rounding shows: {row} is not {check}")
        print(*[v if isinstance(v, str) else "%.9g" % v for v in row])
