#!/usr/bin/env bash
# Training steps of all nets: each *.prototxt under FOLDER that holds layers (Caffe's own
# files, for instance), and the zoo. Prints a table for a record in bench/records; ends with 1 if a net
# failed.
#
#   bench/nets.sh [FOLDER] [OPTION...]    options are those of `paceline bench step`: --threads 2
#
# Batches are of 8 records, of VGG-A 16. Records are made up. Where a net leaves their shape to its
# data, it is what its crop_size says, or what data that the file's path names are like.
set -euo pipefail
paceline=${PACELINE:-$(dirname "$0")/../build/paceline}
folder=
case "${1:-}" in --* | '') ;; *) folder=${1%/} && shift ;; esac
failed=0

number() { sed -n "s/.*\"$1\":\([-+.0-9eE]*\).*/\1/p"; }

step() { # NAME as the table has it, ARGUMENTS for bench step
    local name=$1 batch=8 said
    shift
    case "$name" in *vgg_a* | *vgg-a*) batch=16 ;; esac
    if ! said=$("$paceline" bench step "$@" --batch "$batch" --steps 2 --json 2>"$errors"); then
        echo "| $name | failed: $(tail -1 "$errors") | | | | |"
        failed=1
        return
    fi
    sed "s|^|$name: |" "$errors" >&2 # such as the use of slow kernels
    said=${said%%\"bytes\"*}          # the net's own numbers stand before those of its memory
    printf '| %s | %s | %s | %s | %.1f | %.0f |\n' "$name" "$(number parameters <<<"$said")" \
        "$(number state <<<"$said")" "$batch" "$(number median_ms <<<"$said")" \
        "$(number peak_mb <<<"$said")"
}

# The shape that a prototxt leaves to its data, as --input CxHxW; nothing where it states one.
input_of() { # FILE
    grep -qE '^[[:space:]]*(input_param|input_dim|input_shape|memory_data_param)' "$1" && return
    local crop
    crop=$(sed -n 's/^[^#]*crop_size:[[:space:]]*\([0-9]*\).*/\1/p' "$1" | head -1)
    case "$crop:$1" in
    [0-9]*) echo "--input 3x${crop}x$crop" ;;
    *lenet* | *mnist*) echo "--input 1x28x28" ;;
    *cifar*) echo "--input 3x32x32" ;;
    *) echo "--input 3x224x224" ;;
    esac
}

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
echo '| net | parameters | state | batch | ms a step | peak MB |'
echo '|---|---|---|---|---|---|'
if [ -n "$folder" ]; then
    while IFS= read -r file; do
        grep -qE '^[[:space:]]*layers?[[:space:]]*\{' "$file" || continue # a solver
        read -ra input <<<"$(input_of "$file")"
        step "\`${file#"$folder"/}\`" --net "$file" "${input[@]}" "$@"
    done < <(find "$folder" -name '*.prototxt' | LC_ALL=C sort)
fi
while read -r name _; do
    step "\`$name\`" --net "$name" "$@"
done < <("$paceline" model | tail -n +2)
exit $failed
