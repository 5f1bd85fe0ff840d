#!/usr/bin/env bash
# Which tests of the last ctest run in a build folder were skipped, and which of them should not
# have been.
#
#   scripts/skips.sh DIR               every skipped test, one a line: PROGRAM TEST
#   scripts/skips.sh --unexpected DIR  those that test/skips.txt does not allow here
#   scripts/skips.sh --self-test       show that an unexpected skip is found
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

# ctest's log has a heading before the output of each program; cmocka names what it skipped.
skipped() { # DIR
    awk '
        /^[0-9]+\/[0-9]+ Testing: / { program = $3 }
        /^\[  SKIPPED \] [A-Za-z_]/ && !seen[program, $4]++ { print program, $4 }
    ' "$1/Testing/Temporary/LastTest.log"
}

# Does CONDITION of test/skips.txt hold here?
holds() { # CONDITION DIR
    case $1 in
    data) [ ! -d "${PACELINE_DATA:-/nowhere}" ] ;;
    root) [ "$(id -u)" = 0 ] ;;
    cgroup) ! [ -w /sys/fs/cgroup/memory ] && ! [ -w /sys/fs/cgroup/cgroup.procs ] ;;
    isa) [ -n "${PACELINE_ISA:-}" ] || ! grep -qw avx512_bf16 /proc/cpuinfo ;;
    locale) ! command -v localedef >/dev/null || [ ! -e /usr/share/i18n/locales/de_DE ] ;;
    opencv) ! python3 -c 'import cv2' 2>/dev/null ;;
    sanitizer) [ "$(basename "$2")" != build ] ;;
    *) echo "test/skips.txt: there is no condition $1" >&2 && return 1 ;;
    esac
}

unexpected() { # DIR
    local program test allowed pattern condition
    while read -r program test; do
        allowed=0
        while read -r _ pattern condition; do
            # shellcheck disable=SC2053 # the list's second column is a pattern
            if [[ $test == $pattern ]] && holds "$condition" "$1"; then allowed=1; fi
        done < <(awk -v program="$program" '$1 == program' "$here/test/skips.txt")
        [ "$allowed" = 1 ] || echo "$program $test"
    done < <(skipped "$1")
}

self_test() {
    local found
    dir=$(mktemp -d) # for the trap, which outlives this function
    trap 'rm -rf "$dir"' EXIT
    mkdir -p "$dir/build/Testing/Temporary"
    cat >"$dir/build/Testing/Temporary/LastTest.log" <<'LOG'
1/3 Testing: real/real_memory_test
[  SKIPPED ] test_floods_are_refused
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] test_floods_are_refused
2/3 Testing: process/solver_test
[  SKIPPED ] published_solvers_are_jobs
3/3 Testing: group/view_test
[       OK ] test_a_view
LOG
    found=$(PACELINE_DATA='' unexpected "$dir/build")
    [ "$found" = "real/real_memory_test test_floods_are_refused" ] ||
        { echo "self-test: without data the unexpected skips are '$found'" && return 1; }
    found=$(PACELINE_DATA=$dir unexpected "$dir/build" | wc -l)
    [ "$found" = 2 ] || { echo "self-test: with data $found skips are unexpected" && return 1; }
}

case ${1:-} in
--unexpected) unexpected "$2" ;;
--self-test) self_test ;;
"" | -*) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
*) skipped "$1" ;;
esac
