#!/usr/bin/env bash
# A net of 1.2 GB of weights, and as much optimizer state, where each process has 1.1 GB of addresses
# (RLIMIT_AS), the driver too. Four slices train, evaluate and write a checkpoint; five resume from
# it, predict and test; one slice is refused before the start, and does not predict. Prints the most
# addresses and memory of any process.
#
#   bench/sliced_memory.sh [WIDTH [LIMIT_KB]]     (12288 1074218; needs 9 GB of disk, 5 GB of memory)
set -euo pipefail
cd "$(dirname "$0")/.."
width=${1:-12288}
limit=${2:-1074218}
paceline=$(realpath "${PACELINE:-build/paceline}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 - "$dir" <<'PY'
import random, struct, sys
random.seed(1)
for name, count in ("train", 600), ("test", 120):
    with open(f"{sys.argv[1]}/{name}-images", "wb") as f:
        f.write(struct.pack(">4I", 0x803, count, 12, 12))
        f.write(bytes(random.randrange(256) for _ in range(count * 144)))
    with open(f"{sys.argv[1]}/{name}-labels", "wb") as f:
        f.write(struct.pack(">2I", 0x801, count) + bytes(i % 5 for i in range(count)))
PY

inner() { # NAME BOTTOM OUTPUTS
    echo "layer { name: '$1' type: 'InnerProduct' bottom: '$2' top: '$1'" \
        "inner_product_param { num_output: $3 weight_filler { type: 'xavier' } } }"
}
{
    echo "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }"
    inner a data "$width"
    inner b a "$width"
    inner c b "$width"
    inner ip c 5
    echo "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }"
} > "$dir/net.prototxt"
cat > "$dir/job" <<'JOB'
name: "wide"
net { file: "net.prototxt" }
train_data { idx { images: "train-images" labels: "train-labels" } scale: 0.0039 }
test_data { idx { images: "test-images" labels: "test-labels" } scale: 0.0039 }
batch: 16
solver { base_lr: 0.001 lr_policy: "fixed" type: "SGD" momentum: 0.9 }
JOB

# The most addresses and memory, in kB, of the command's processes.
watch() {
    local at most=0 used=0
    while sleep 0.2; do
        for at in $(pgrep -x paceline | sed 's,^,/proc/,'); do
            [ "$(readlink "$at/cwd" 2>/dev/null)" = "$dir" ] || continue
            while read -r key kb _; do
                case $key in
                VmPeak:) [ "$kb" -gt "$most" ] && most=$kb ;;
                VmHWM:) [ "$kb" -gt "$used" ] && used=$kb ;;
                esac
            done < "$at/status" 2>/dev/null || true
        done
        echo "$most $used" > "$dir/peak"
    done
}

limited() { # ARGUMENT...
    (cd "$dir" && ulimit -v "$limit" && exec "$paceline" "$@")
}

run() { # TITLE ARGUMENT...
    local title=$1 begun=$SECONDS watcher
    shift
    echo "0 0" > "$dir/peak"
    watch &
    watcher=$!
    limited "$@" --threads 1 > "$dir/log" 2>&1 || { cat "$dir/log"; kill $watcher; exit 1; }
    kill $watcher
    wait $watcher 2>/dev/null || true
    read -r most used < "$dir/peak"
    echo "$title: $((SECONDS - begun)) s; at most $most kB of addresses, $used kB of memory"
    grep -E '^(test|loss)' "$dir/log" || true
}

run "4 slices" train job --out run --workers 4 --set slices=4 --strategy allreduce --steps 3 --quiet
run "resumed with 5" train job --out run --resume --workers 5 --set slices=5 --strategy allreduce --steps 5 --quiet
ls -l "$dir/run/final.safetensors" "$dir/run/checkpoint" | awk 'NF > 5 { print $5, $NF }'
records=idx:train-images,train-labels?scale=0.0039
run "predicted by 5" predict run "$records" --batch 4 --json
run "predicted by 4" predict run "$records" --batch 4 --json --slices 4
run "tested by 5" test run
if limited predict run --first 40 --slices 1 > "$dir/log" 2>&1; then
    echo "the whole model has predicted" && exit 1
fi
echo "predicted whole: $(tail -1 "$dir/log")"
for slices in 1 2; do
    if limited train job --out refused --workers $slices --set slices=$slices --strategy allreduce --steps 1 \
        --threads 1 > "$dir/log" 2>&1; then
        echo "$slices slices were not refused" && exit 1
    fi
    echo "$slices slices: $(tail -1 "$dir/log")"
done
