#!/usr/bin/env bash
# Two builds, in turns on one machine: the all-reduce of 10^7 floats on four hosts of 1 GbE
# (bench/netns.sh), and a step of ResNet-20. Prints the median, the least and the most of each, and the
# ratio of the medians.
#
#   bench/against.sh OTHER [ROUNDS]     OTHER: the build folder of another tree; this tree's is build/
#
# Needs root, for network namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."
other=$(cd "${1:?usage: bench/against.sh OTHER [ROUNDS]}" && pwd)
rounds=${2:-5}
figures=$(mktemp)
trap 'rm -f "$figures"' EXIT

# Milliseconds of an all-reduce, and of a step, as the JSON of the command has them.
allreduce() { # BUILD
    bench/netns.sh --rate 1gbit 4 "$1/paceline" bench allreduce --ranks 4 --floats 1e7 --reps 5 --json |
        python3 -c 'import json, sys
lines = [json.loads(l) for l in sys.stdin if l.startswith("{")]
print(lines[-1]["median_ms"])'
}

step() { # BUILD
    PACELINE_TUNER=off OMP_WAIT_POLICY=passive "$1/paceline" bench step --net resnet-20 --input 3x32x32 \
        --batch 64 --steps 20 --threads 1 --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["median_ms"])'
}

for _ in $(seq "$rounds"); do
    for build in "$other" build; do
        echo "allreduce $build $(allreduce "$build")"
        echo "step $build $(step "$build")"
    done
done | tee "$figures"

python3 - "$figures" "$other" <<'PY'
import statistics
import sys
figures = {}
for line in open(sys.argv[1]):
    what, build, value = line.split()
    figures.setdefault((what, build), []).append(float(value))
for what, unit in (("allreduce", "ms"), ('step', 'ms')):
    medians = []
    for build in (sys.argv[2], 'build'):
        values = figures[what, build]
        medians.append(statistics.median(values))
        print('%-10s %-10s median %.4g %s, %.4g to %.4g' % (what, 'other' if build != 'build' else 'this',
                                                           medians[-1], unit, min(values), max(values)))
    print('%-10s ratio      %.3f' % (what, medians[1] / medians[0]))
PY
