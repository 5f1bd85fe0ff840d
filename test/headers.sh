#!/usr/bin/env bash
# Each public header compiles by itself, as C99, C11 and C17 and as C++11, C++17 and C++20, without a
# warning. With --self-test: a header with a name that C++ lacks is detected.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v g++ >/dev/null || { echo "skipped: there is no g++ here" && exit 77; }

compiles() { # COMPILER STANDARD LANGUAGE HEADER
    "$1" "-std=$2" -fsyntax-only -Wall -Wextra -Wpedantic -Werror -Iinclude -x "$3" "$4"
}

all_compile() { # HEADER…
    local header standard failed=0
    for header in "$@"; do
        for standard in c99 c11 c17; do
            compiles gcc "$standard" c "$header" || failed=1
        done
        for standard in c++11 c++17 c++20; do
            compiles g++ "$standard" c++ "$header" || failed=1
        done
    done
    return "$failed"
}

if [ "${1:-}" = --self-test ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    printf '#include <stdatomic.h>\nextern atomic_bool stop;\n' >"$work/bad.h"
    ! all_compile "$work/bad.h" 2>/dev/null
else
    all_compile include/paceline/*.h
fi
