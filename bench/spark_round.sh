#!/usr/bin/env bash
# A round of averaging 100 MB of weights between three executors of a standalone cluster on this
# machine: Paceline's exchange against SparkNet's Listing 3 through Spark, in turns.
#
#   bench/spark_round.sh [ROUNDS [TURNS]]
#
# SPARK_HOME names a Spark, or ./run spark has installed one; build/ has the target paceline_spark.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/spark.sh
. scripts/spark.sh
find_spark || { echo "$0: needs a Spark: ./run spark installs one" >&2 && exit 2; }
spark_memory=2g
spark_java=-XX:+UseParallelGC # with both compilers of Java
trap stop_cluster EXIT
trap 'exit 130' INT TERM
start_cluster
submit --driver-memory 3g --class AveragingRound build/paceline-spark-examples.jar "${1:-10}" "${2:-3}" "$spark_workers"
wait "${spark_pids[-1]}"
