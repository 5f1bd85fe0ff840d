#!/usr/bin/env bash
# Steps of LeNet with three workers on this machine: in executors of a standalone cluster
# against the command's own workers, in turns.
#
#   bench/spark_steps.sh [TURNS [EPOCHS]]
#
# SPARK_HOME names a Spark, or ./run spark has installed one; build/ has paceline and paceline_spark.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/spark.sh
. scripts/spark.sh
find_spark || { echo "$0: needs a Spark: ./run spark installs one" >&2 && exit 2; }
turns=${1:-3} epochs=${2:-5}
trap stop_cluster EXIT
trap 'exit 130' INT TERM

# rate DIRECTORY: exchanges a minute, each after so many steps, from the run's first one to its last.
rate() {
    awk '/"kind":"exchange"/ {
            match($0, /"t":[0-9.]+/)
            t = substr($0, RSTART + 4, RLENGTH - 4)
            if (!n++)
                first = t
        }
        END { printf "%.1f\n", 60 * (n - 1) / (t - first) }' "$1/events.jsonl"
}

of_command() {
    OMP_WAIT_POLICY=passive build/paceline train examples/fashion-lenet.job --quiet --out "$1" \
        --set solver.lr_policy=fixed --set workers="$spark_workers" --set threads=1 --set validation=0 \
        --set stop.epochs="$epochs" >"$1.log" 2>&1 || {
        cat "$1.log" >&2
        return 1
    }
    rate "$1"
}

of_executors() {
    submit --class FashionLenet build/paceline-spark-examples.jar "$spark_dir/fashion" "$epochs" "$spark_workers" "$1" >"$1.log"
    wait "${spark_pids[-1]}" || return 1
    unset 'spark_pids[-1]'
    rate "$1/run" # in the fit's folder of checkpoints
}

start_cluster
of_executors "$spark_dir/first" >/dev/null # writes the pictures
echo 'turn  command  executors  ratio    (exchanges a minute, each after 50 steps)'
for ((turn = 1; turn <= turns; turn++)); do
    command=$(of_command "$spark_dir/command-$turn")
    executors=$(of_executors "$spark_dir/fit-$turn")
    awk -v n="$turn" -v a="$command" -v b="$executors" \
        'BEGIN { printf "%4d  %7.1f  %9.1f  %5.3f\n", n, a, b, b / a }'
done
