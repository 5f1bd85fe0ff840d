#!/usr/bin/env python3
"""Strangers say hello to the driver of a run with a key, in every way but the right one, while two workers train.

    bench/faults/hellos.py [--rounds 7] [--seconds 4] [--build build]

Stretches without strangers and with them take turns in one run on loopback whose steps are paced. Strangers are
processes of lowest priority: 1,000 connections that say nothing, 200 that say a byte a second (half a hello, a whole
one of an old version, garbage), and loops of noise of 10 MB, HTTP requests and TLS handshakes with another key. Each
that is closed connects again.

rate      exchanges a second, without and with strangers
quotient  with over without, of each round
"""
import argparse
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import time

import silent
import stage

OLD = 3  # a version of the protocol before TLS


def send_and_close(address, pieces):
    with socket.create_connection(address, 5) as s:
        s.settimeout(5)
        try:
            for piece in pieces:
                s.sendall(piece)
            s.recv(64)
        except OSError:
            pass


def shake_hands(address):
    """TLS 1.3 with a pre-shared key that is not the run's."""
    subprocess.run(["openssl", "s_client", "-connect", "%s:%d" % address, "-tls1_3", "-psk", "ab" * 32,
                    "-psk_identity", "Client_identity"],
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10)


def repeat(attack, pause):
    while True:
        try:
            attack()
        except (OSError, subprocess.TimeoutExpired):
            pass
        time.sleep(pause)


def start(attack):
    child = os.fork()
    if child == 0:
        os.nice(19)
        attack()
        os._exit(0)
    return child


def begin_siege(address):
    noise = [os.urandom(65536)] * 160
    return [start(attack) for attack in (
        lambda: silent.besiege(address, 1000, 200, OLD),
        lambda: repeat(lambda: send_and_close(address, noise), 0.1),
        lambda: repeat(lambda: send_and_close(address, [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"]), 0.05),
        lambda: repeat(lambda: shake_hands(address), 0.2))]


def end_siege(children):
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class Siege(silent.Siege):
    strategy = "allreduce={}"  # an exchange a step


def rate(run, seconds):
    before, begun = run.exchanges(), time.monotonic()
    time.sleep(seconds)
    return (run.exchanges() - before) / (time.monotonic() - begun)


def check(run):
    """No step is lost or repeated, and nobody but the two workers was ever a member."""
    numbers = [e["n"] for e in run.events if e["kind"] == "exchange"]
    assert numbers == list(range(1, len(numbers) + 1)), "an exchange is missing"
    members = [e["what"] for e in run.events if e["kind"] == "member" and e["what"] != "refused"]
    assert members == ["join"] * 2, members
    with open(run.out + ".log", encoding="utf-8", errors="replace") as log:
        closed = sum("is closed: " in line for line in log)
    assert closed > 0, "the log names no stranger"
    return closed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(stage.HERE, "..", "..", "build"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paceline-hellos-") as folder:
        stage.write_data(folder)
        with Siege(args, folder) as run:
            run.join()
            host, port = run.at.split(":")
            time.sleep(1)
            rates = []
            for _ in range(args.rounds):
                calm = rate(run, args.seconds)
                strangers = begin_siege((host, int(port)))
                time.sleep(0.5)
                rates.append((calm, rate(run, args.seconds)))
                end_siege(strangers)
            named = check(run)
    quotients = [attacked / calm for calm, attacked in rates]
    print("rate: " + ", ".join("%.1f %.1f" % pair for pair in rates))
    print("quotient: median %.4f, from %.4f to %.4f; %d lines of the log name strangers" % (
        statistics.median(quotients), min(quotients), max(quotients), named))


if __name__ == "__main__":
    main()
