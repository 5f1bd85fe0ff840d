#!/usr/bin/env bash
# One of four hosts' links carries half from some moment on, while all-reduces continue: the reaction of
# `auto`, and every fixed choice on links that are halved from the start.
#
#   bench/halved.sh [FLOATS]        (1e7; needs root for network namespaces)
set -euo pipefail
cd "$(dirname "$0")/.."
floats=${1:-1e7}
paceline=${PACELINE:-build/paceline}
reps=14

one() { # ALGORITHM halved-from-second
    # shellcheck disable=SC2016
    bench/netns.sh 4 bash -c '
        if [ "$PACELINE_RANK" = 0 ]; then
            (sleep "$2"; bench/netns.sh --set-rate "$PACELINE_NETNS" 2 500mbit) &
        fi
        exec "$0" bench allreduce --floats "$3" --algorithm "$1" --reps "$4" --warmup 1 --each' \
        "$paceline" "$1" "$2" "$floats" "$reps" 2>/dev/null
}

echo "auto, host 2 at half its rate from about second 4 on:"
one auto 4
for algorithm in chunked_ring halving_doubling scatter_gather butterfly tree; do
    printf '%-18s at half its rate from the start: ' "$algorithm"
    one "$algorithm" 0 | tail -1
done
