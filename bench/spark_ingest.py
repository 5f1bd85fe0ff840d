#!/usr/bin/env python3
"""Rows of 3,073 bytes into the one executor of a standalone cluster on this machine: the ingest of a fit,
against a job of Spark's that only reads them, in turns of one application.

  bench/spark_ingest.py [--turns 5] [--rows 50000]

Printed are both rates, their ratio, and the executor's resident memory after the last turn. Beyond
spark.paceline.rowsMemory, rows are in a file.
"""
import argparse
import os
import re
import statistics
import sys

from spark_cluster import Cluster

EXECUTOR_MIB, ROWS_MIB = 1024, 192
JAVA = "-XX:+UseSerialGC"  # both compilers: what is compared is warm


def resident_mib(pid):
    with open(f"/proc/{pid}/statm", encoding="utf-8") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rows", type=int, default=50_000)
    options = parser.parse_args()
    reads, ingests, memory = [], [], 0
    with Cluster(1, JAVA) as cluster:
        application = cluster.submit(
            "IngestRate", cluster.path("rows"), options.turns, options.rows,
            conf=(f"spark.executor.memory={EXECUTOR_MIB}m", f"spark.paceline.rowsMemory={ROWS_MIB}m"))
        for line in application.stdout:
            found = re.match(r"turn (\d+): read ([\d.]+) s, ingest ([\d.]+) s", line)
            if not found:
                continue
            print(line.strip(), flush=True)
            memory = sum(map(resident_mib, cluster.executors())) or memory
            if int(found[1]) > 0:
                reads.append(float(found[2]))
                ingests.append(float(found[3]))
        if application.wait() != 0 or not reads:
            sys.exit("the application has failed")
    ratios = [read / ingest for read, ingest in zip(reads, ingests)]
    print(f"rows/s, median: read {options.rows / statistics.median(reads):.0f}, "
          f"ingest {options.rows / statistics.median(ingests):.0f}; ratio {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f}); the executor's resident memory {memory:.0f} MiB, "
          f"of which heap {EXECUTOR_MIB} at most, rows {ROWS_MIB} at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
