#!/usr/bin/env bash
# Plants each bug of test/storm/bugs in a copy of the tree, builds only the storm there, and runs
# it until an invariant is violated. All must be found.
#
#   test/storm/bugs.sh [BUILD] [PATCH...]    BUILD: a configured build, whose options are taken over
#
# STORM_SEEDS (6400): how many seeds a bug may take. The unpatched tree is ./run check's.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
build=${1:-build}
[ $# -gt 0 ] && shift
patches=("$@")
[ ${#patches[@]} -gt 0 ] || patches=(test/storm/bugs/*.patch)
seeds=${STORM_SEEDS:-6400}
copy=$(mktemp -d "${TMPDIR:-/tmp}/paceline-bugs-XXXXXX")
trap 'rm -rf "$copy"' EXIT

launcher=$(sed -n 's/^CMAKE_C_COMPILER_LAUNCHER:[A-Z]*=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
mkdir "$copy/tree"
git ls-files -z --cached --others --exclude-standard | tar --ignore-failed-read --null -T - -cf - 2>/dev/null |
    tar -xf - -C "$copy/tree"
cd "$copy/tree"
export CCACHE_BASEDIR=$PWD # a launcher that is ccache has what $build compiled
cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release ${launcher:+-DCMAKE_C_COMPILER_LAUNCHER="$launcher"} \
    >"$copy/log" || { tail "$copy/log"; exit 1; }
ninja -C build storm >"$copy/log" || { tail -30 "$copy/log"; exit 1; }

missed=0
for patch in "${patches[@]}"; do
    name=$(basename "$patch" .patch)
    if ! patch -p1 --fuzz=0 -s <"$root/$patch"; then
        echo "$name: the patch does not apply any more"
        exit 1
    fi
    ninja -C build storm >"$copy/log" || { tail -30 "$copy/log"; exit 1; }
    if build/storm --seeds "$seeds" --twice 0 --least 0 >"$copy/found"; then
        echo "$name: NOT FOUND by $seeds seeds"
        missed=$((missed + 1))
    else
        grep -m 1 -E '^seed [0-9]+:' "$copy/found" | sed "s/^/$name: /" ||
            { echo "$name: the storm fails, and names no seed"; missed=$((missed + 1)); }
    fi
    patch -p1 -R --fuzz=0 -s <"$root/$patch"
done
[ "$missed" = 0 ]
