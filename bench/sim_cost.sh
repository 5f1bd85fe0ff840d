#!/usr/bin/env bash
# The cost of a simulation relative to its arithmetic: wall seconds of simulating 8 workers, over
# steps × the median of `bench step` with the same kernels and threads, plus the evaluation.
#   bench/sim_cost.sh [JOB] [KERNELS] [THREADS]
set -euo pipefail
cd "$(dirname "$0")/.."
job=${1:-examples/fashion-lenet.job} kernels=${2:-dnnl} threads=${3:-1}
paceline=build/paceline
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/calm.cluster" <<'TEXT'
node { count: 8 }
driver { speed: 1 }
step_seconds: 0.004
link { mbit: 1000 latency_us: 100 }
TEXT

number() { sed -n "s/.*\"$1\":\([-+.0-9eE]*\).*/\1/p"; }
how=(--kernels "$kernels" --threads "$threads")
step() { $paceline bench step "$job" "${how[@]}" --steps 300 --json | number median_ms; }

before=$(step)
from=$EPOCHREALTIME
# Nothing is evaluated but the final model, once.
result=$($paceline sim "$job" --cluster "$work/calm.cluster" --workers 8 "${how[@]}" --set stop.epochs=3 \
    --set evaluate.every_exchanges=1000000 --out "$work/run" --json 2>/dev/null)
to=$EPOCHREALTIME
after=$(step)

samples=$(number samples <<<"$result")
awk -v from="$from" -v to="$to" -v a="$before" -v b="$after" -v n="$samples" 'BEGIN {
    batch = 64; records = 15000                       # validation and test of the example job
    step = (a + b) / 2e3; steps = n / batch
    floor = steps * step + records / batch * step / 3 # forward only: a third of a step
    printf "simulation %.2f s; %d steps of %.3f ms and one evaluation %.2f s; ratio %.2f (bar 1.3)\n",
           to - from, steps, step * 1e3, floor, (to - from) / floor
}'
