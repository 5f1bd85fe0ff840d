#!/usr/bin/env bash
# A trained model is kept when the disk is full: real runs in a small tmpfs that is full from
# the middle on, is freed, or stays full. Needs root, for mount, and the data of
# examples/fashion-lenet.job; without them it is skipped with a message.
#
#   test/disk_full.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/.."
paceline=$PWD/${1:-build}/paceline
job=$PWD/examples/fashion-lenet.job
work=$(mktemp -d)
pid=
cleanup() {
    [ -z "$pid" ] || { kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; } || true
    umount "$work/disk" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
mkdir "$work/disk" "$work/place"
[ -f /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] ||
    { echo "skipped: there is no Fashion-MNIST here" && exit 77; }
mount -t tmpfs -o size=8m tmpfs "$work/disk" 2>/dev/null ||
    { echo "skipped: no file system can be mounted here" && exit 77; }
export TMPDIR=$work/place PACELINE_TUNER=off OMP_WAIT_POLICY=passive

# While the run lives, and not for ever.
await() { # WHAT COMMAND…
    local what=$1 deadline=$((SECONDS + 120))
    shift
    until "$@"; do
        if ! kill -0 "$pid" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
            echo "in vain it was awaited that $what; it said:"
            cat "$work/err"
            exit 1
        fi
        sleep 0.1
    done
}
has_begun() { [ -f "$run/events.jsonl" ]; }
has_copy() { compgen -G "$work/place/*.safetensors" >/dev/null; }

start() { # RUN [ASSIGNMENT…]
    run=$work/disk/$1
    shift
    local set=()
    for assignment in "$@"; do set+=(--set "$assignment"); done
    "$paceline" train "$job" --workers 1 --set stop.steps=60 --set checkpoint.every_seconds=1 \
        ${set[@]+"${set[@]}"} --out "$run" >"$work/out" 2>"$work/err" &
    pid=$!
    await "the run begins" has_begun
}

fill() { dd if=/dev/zero of="$work/disk/junk" bs=4k 2>/dev/null || true; }

fill_more() { dd if=/dev/zero of="$work/disk/junk" bs=4k oflag=append conv=notrunc 2>/dev/null || true; }

# The run has ended with that code, and its model and events are whole.
expect() { # NAME CODE MODEL
    local code=0
    wait "$pid" || code=$?
    [ "$code" = "$2" ] || { echo "$1: ended with $code, not $2" && cat "$work/err" && exit 1; }
    "$paceline" test --job "$run/job.prototxt" --weights "$3" >/dev/null ||
        { echo "$1: $3 is no model" && exit 1; }
    [ "$2" = 3 ] || grep -q '"kind":"end"' "$run/events.jsonl" || { echo "$1: no end" && exit 1; }
    ! grep -qv '^{.*}$' "$run/events.jsonl" || { echo "$1: half a line" && exit 1; }
    echo "$1: the model is kept"
    rm -rf "$work/disk/"* "$work/place/"*
}

start middle
fill
await "the model is kept elsewhere" has_copy
sleep 20
rm "$work/disk/junk"
expect "full, freed after 20 s" 0 "$run/final.safetensors"

start limit checkpoint.wait_seconds=3
fill
expect "full for good" 3 "$work/place/limit-final-001.safetensors"

# There is a checkpoint when the disk fills up, and others take all that is freed: it stays.
start rest checkpoint.wait_seconds=3 pace=0.05
until ls "$run"/checkpoint/*.safetensors >/dev/null 2>&1; do sleep 0.1; done
fill
while kill -0 "$pid" 2>/dev/null; do fill_more; sleep 0.1; done
ls "$run"/checkpoint/*.safetensors >/dev/null || { echo "no checkpoint is left" && exit 1; }
cp -a "$run" "$work/kept"
expect "full for good, with a checkpoint" 3 "$work/place/rest-final-001.safetensors"
"$paceline" resume "$work/kept" >"$work/out" 2>"$work/err" || { cat "$work/err" && exit 1; }
! grep -q "starts over" "$work/err" || { echo "resumed from nothing" && exit 1; }
echo "resumed from what was left"

start stop
fill
await "the model is kept elsewhere" has_copy
kill -TERM "$pid"
expect "full, and stopped" 3 "$work/place/stop-final-001.safetensors"
