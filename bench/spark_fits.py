#!/usr/bin/env python3
"""Many fits in one application on a standalone cluster of three workers on this machine: do threads,
descriptors and resident memory stay level?

  bench/spark_fits.py [--fits 100] [--every 10]

Spark's driver and the executors are looked at after each --every fits. Their heaps are resident from the
start and keep their size, so that what comes on top is not the heap. Printed are the sums over
processes, and how the last one compares with the first. Spark's own pools of threads fill up to a
hundred each in the first fits, so fewer than ten before the first look say nothing of threads. Its
pool for the results of queries has a thread for each query of the last minute; a look comes when these
have ended.
"""
import argparse
import os
import sys
import time

from spark_cluster import Cluster

WORKERS = 3
PAUSE_S = 70  # Spark's pools keep idle threads for 60 s; the counts are taken then
WAIT_S = 65
LEVEL = 0.05
DRIVER_MIB, EXECUTOR_MIB = 512, 512
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+AlwaysPreTouch"


def look(pid):
    """Threads, those of the library among them, descriptors, and resident MiB."""
    tasks = os.listdir(f"/proc/{pid}/task")
    ours = 0
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8") as f:
                ours += f.read().startswith("paceline")
        except OSError:
            pass  # it has ended
    with open(f"/proc/{pid}/statm", encoding="utf-8") as f:
        pages = int(f.read().split()[1])
    return len(tasks), ours, len(os.listdir(f"/proc/{pid}/fd")), pages * os.sysconf("SC_PAGESIZE") / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--every", type=int, default=10)
    options = parser.parse_args()
    looks = []
    with Cluster(WORKERS, JAVA) as cluster:
        log = cluster.given["spark_log"]
        application = cluster.submit(
            "ManyFits", options.fits, options.every, PAUSE_S, WORKERS,
            conf=(f"spark.driver.memory={DRIVER_MIB}m", f"spark.executor.memory={EXECUTOR_MIB}m",
                  f"spark.driver.extraJavaOptions={log} {JAVA} -Xms{DRIVER_MIB}m",
                  f"spark.executor.extraJavaOptions={log} {JAVA} -Xms{EXECUTOR_MIB}m"))
        executors = None
        for line in application.stdout:
            if not line.startswith("fit "):
                continue
            fit = int(line.split()[1])
            if fit % options.every != 0 and fit != options.fits:
                continue
            time.sleep(WAIT_S)
            now = cluster.executors()
            executors = executors or now
            if now != executors:
                sys.exit(f"after fit {fit}: an executor has ended")
            total = [sum(each) for each in zip(*map(look, [application.pid] + now))]
            looks.append(total)
            print(f"after {fit} fits: {total[0]} threads, {total[1]} of them the library's, {total[2]} descriptors, "
                  f"{total[3]:.0f} MiB", flush=True)
        if application.wait() != 0:
            sys.exit("the application has failed")
    if len(looks) < 2:
        sys.exit("there is nothing to compare: --fits is to be more than --every")
    grown = [last / first - 1 if first else float(last > 0) for first, last in zip(looks[0], looks[-1])]
    level = all(each <= LEVEL for each in grown)
    print(f"since the first: threads {grown[0]:+.1%}, the library's {grown[1]:+.1%}, descriptors {grown[2]:+.1%}, "
          f"memory {grown[3]:+.1%}: {'level' if level else 'NOT level'} within {LEVEL:.0%}")
    return 0 if level else 1


if __name__ == "__main__":
    sys.exit(main())
