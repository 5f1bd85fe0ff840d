#!/usr/bin/env bash
# Hostile input for the readers: builds the fuzzers of test/fuzz under ASan and UBSan and runs them.
#
#   scripts/fuzz.sh TARGET…|all [--runs N] [--seconds N] [--max-len BYTES] [--seed N]
#
# A target is caffemodel, prototxt, png, …: test/fuzz/fuzz_TARGET.c. Without --runs and --seconds,
# 100,000 runs, of as many targets at a time as there are cores. Memory is bounded: 1 GiB for each,
# 256 MiB in one piece. Inputs that reach new code stay in build-fuzz/corpus, inputs that break a
# target in build-fuzz/broken; to repeat one: build-fuzz/fuzz_TARGET FILE. Prints a line for each
# target when it has ended; fails if any target broke.
#
# Needs clang, libclang-rt-dev and libomp-dev, besides what ./run check installs.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=-1 seconds=0 max_len=4096 seed=1 targets=()
while [ $# -gt 0 ]; do
    case $1 in
    --runs) runs=$2 && shift ;;
    --seconds) seconds=$2 && shift ;;
    --max-len) max_len=$2 && shift ;;
    --seed) seed=$2 && shift ;;
    all) for file in test/fuzz/fuzz_*.c; do targets+=("$(basename "${file#*fuzz_}" .c)"); done ;;
    -*) echo "scripts/fuzz.sh: no option $1" >&2 && exit 2 ;;
    *) [ -f "test/fuzz/fuzz_$1.c" ] && targets+=("$1") || {
        echo "scripts/fuzz.sh: no target $1" >&2
        exit 2
    } ;;
    esac
    shift
done
[ ${#targets[@]} -gt 0 ] || {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
[ "$runs" != -1 ] || [ "$seconds" != 0 ] || runs=100000

[ -f build-fuzz/build.ninja ] ||
    CC=clang cmake -G Ninja -S . -B build-fuzz -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DPACELINE_FUZZ=ON -DPACELINE_SANITIZE=address,undefined >/dev/null
ninja -C build-fuzz "${targets[@]/#/fuzz_}" >build-fuzz/build.log || {
    cat build-fuzz/build.log
    exit 1
}

export OMP_NUM_THREADS=1 UBSAN_OPTIONS=print_stacktrace=1
export ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=8:malloc_context_size=8

stat_of() { # LOG NAME
    sed -n "s/^stat::$2: *//p" "$1"
}

fuzz_one() { # TARGET
    local target=$1 log=build-fuzz/fuzz_$1.log dict=() broken=0
    mkdir -p "build-fuzz/corpus/$target"
    [ ! -f "test/fuzz/dict/$target.dict" ] || dict=("-dict=test/fuzz/dict/$target.dict")
    "build-fuzz/fuzz_$target" -runs="$runs" -max_total_time="$seconds" -max_len="$max_len" \
        -seed="$seed" -timeout=60 -rss_limit_mb=1024 -malloc_limit_mb=256 -print_final_stats=1 \
        -artifact_prefix="build-fuzz/broken/$target-" ${dict[@]+"${dict[@]}"} \
        "build-fuzz/corpus/$target" "test/fuzz/corpus/$target" >"$log" 2>&1 || broken=1
    printf '| %s | %s | %s | %s MB | %s | %s |\n' "$target" \
        "$(stat_of "$log" number_of_executed_units)" "$(stat_of "$log" average_exec_per_sec)" \
        "$(stat_of "$log" peak_rss_mb)" "$seed" "$broken"
    [ "$broken" = 0 ] || grep -aE 'ERROR|SUMMARY|Test unit|where "' "$log" >&2 || true
    return "$broken"
}

status=0 running=0
mkdir -p build-fuzz/broken
echo '| target | executions | executions/s | peak memory | seed | broken |'
echo '|---|---|---|---|---|---|'
for target in "${targets[@]}"; do
    [ "$running" -lt "$(nproc)" ] || { wait -n || status=1; running=$((running - 1)); }
    fuzz_one "$target" &
    running=$((running + 1))
done
for ((; running > 0; running--)); do wait -n || status=1; done
exit "$status"
