#!/usr/bin/env bash
# Which tests of the last ctest run in a build folder were skipped, and which of them should not
# have been.
#
#   scripts/skips.sh DIR               every skipped test, one a line: PROGRAM TEST
#   scripts/skips.sh --unexpected DIR  those that test/skips.txt does not allow here
#   scripts/skips.sh --allowed PROGRAM TEST DIR   does test/skips.txt allow this one here?
#   scripts/skips.sh --self-test       show that an unexpected skip is found
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

# ctest's log has a heading before the output of each program; cmocka names the skipped tests.
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
    browser) ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null ;;
    cgroup) ! [ -w /sys/fs/cgroup/memory ] && ! [ -w /sys/fs/cgroup/cgroup.procs ] ;;
    isa) [ -n "${PACELINE_ISA:-}" ] || ! grep -qw avx512_bf16 /proc/cpuinfo ;;
    spark) [ -z "${SPARK_HOME:-}" ] && ! ls -d "$here"/.spark/lib/python3*/site-packages/pyspark >/dev/null 2>&1 ;;
    jdk) ! command -v javac >/dev/null ;;
    locale) ! command -v localedef >/dev/null || [ ! -e /usr/share/i18n/locales/de_DE ] ;;
    history) ! git -C "$here" log -1 >/dev/null 2>&1 ;;
    mount) ! can_mount ;;
    mypy) ! command -v "${PACELINE_MYPY:-mypy}" >/dev/null ;;
    network) ! can_unshare ;;
    numpy) ! "${PACELINE_PYTHON:-python3}" -c 'import numpy' 2>/dev/null ;;
    torch) ! "${PACELINE_PYTHON:-python3}" -c 'import torch' 2>/dev/null ;;
    onnxruntime) ! python3 -c 'import onnxruntime' 2>/dev/null ;;
    opencv) ! python3 -c 'import cv2' 2>/dev/null ;;
    users) ! setpriv --reuid 64002 --regid 64002 --clear-groups test -x "$2/paceline" 2>/dev/null ;;
    ptrace) [ "$(id -u)" != 0 ] && ! grep -qx 0 /proc/sys/kernel/yama/ptrace_scope 2>/dev/null ;;
    seccomp) ! grep -q "^Seccomp:" /proc/self/status ;;
    sanitizer) [ "$(basename "$2")" != build ] ;;
    *) echo "test/skips.txt: there is no condition $1" >&2 && return 1 ;;
    esac
}

can_unshare() {
    local user=()
    [ "$(id -u)" = 0 ] || user=(--user)
    unshare --net ${user[@]+"${user[@]}"} \
        sh -c 'echo 40000 40003 >/proc/sys/net/ipv4/ip_local_port_range' 2>/dev/null
}

can_mount() {
    local folder can=1
    folder=$(mktemp -d)
    mount -t tmpfs none "$folder" 2>/dev/null && umount "$folder" && can=0
    rmdir "$folder"
    return $can
}

allowed() { # PROGRAM TEST DIR
    local pattern condition
    while read -r _ pattern condition; do
        # shellcheck disable=SC2053 # the list's second column is a pattern
        if [[ $2 == $pattern ]] && holds "$condition" "$3"; then return 0; fi
    done < <(awk -v program="$1" '$1 == program' "$here/test/skips.txt")
    return 1
}

unexpected() { # DIR
    local program test
    while read -r program test; do
        allowed "$program" "$test" "$1" || echo "$program $test"
    done < <(skipped "$1")
}

# The counts of ./run after steps that end with these statuses.
counts_of() { # REFUSES_SKIPS STATUS…
    local status
    (
        # shellcheck source=scripts/steps.sh
        cd "$here" && . scripts/steps.sh
        # shellcheck disable=SC2034 # read by count
        refuses_skips=$1
        shift
        for status in "$@"; do count "a step" sh -c "exit $status" >/dev/null; done
        echo "$passed passed, $failed failed, $skipped skipped"
    )
}

self_test() {
    local found condition
    while read -r condition; do
        found=$(holds "$condition" build 2>&1 || true)
        [ -z "$found" ] || { echo "self-test: $found" && return 1; }
    done < <(awk '/^[a-z]/ { print $3 }' "$here/test/skips.txt" | sort -u)
    dir=$(mktemp -d) # for the trap, which outlives this function
    trap 'rm -rf "$dir"' EXIT
    mkdir -p "$dir/build/Testing/Temporary"
    cat >"$dir/build/Testing/Temporary/LastTest.log" <<'LOG'
1/3 Testing: real/real_memory_test
[  SKIPPED ] test_floods_are_refused
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] test_floods_are_refused
2/3 Testing: process/solver_test
[  SKIPPED ] test_published_solvers_are_jobs
3/3 Testing: group/view_test
[       OK ] test_a_view
LOG
    found=$(PACELINE_DATA='' unexpected "$dir/build")
    [ "$found" = "real/real_memory_test test_floods_are_refused" ] ||
        { echo "self-test: without data the unexpected skips are '$found'" && return 1; }
    found=$(PACELINE_DATA=$dir unexpected "$dir/build" | wc -l)
    [ "$found" = 2 ] || { echo "self-test: with data $found skips are unexpected" && return 1; }
    found=$(counts_of 0 0 77 1 0)
    [ "$found" = "2 passed, 1 failed, 1 skipped" ] || { echo "self-test: $found" && return 1; }
    found=$(counts_of 1 77)
    [ "$found" = "0 passed, 1 failed, 1 skipped" ] ||
        { echo "self-test: where skips are refused: $found" && return 1; }
}

case ${1:-} in
--unexpected) unexpected "$2" ;;
--allowed) allowed "$2" "$3" "$4" ;;
--self-test) self_test ;;
"" | -*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
*) skipped "$1" ;;
esac
