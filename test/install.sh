#!/usr/bin/env bash
# Installs a build into a folder, and looks at the files, or builds programs against it as other people
# do, in C17, C++17 and C++20, shared and static, and runs them.
#
#   test/install.sh BUILD files        names, exports, manual, completions, a program of older headers
#   test/install.sh BUILD pkg_config   programs by pkg-config
#   test/install.sh BUILD cmake        programs by CMake's find_package
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
for tool in g++ nm readelf pkg-config; do
    command -v "$tool" >/dev/null || { echo "install: $tool is missing" >&2 && exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() {
    echo "install: $*" >&2
    exit 1
}

# The files, whatever the folder of libraries is called here.
installs() {
    cmake --install "$build" --prefix "$prefix" >"$work/log" || { cat "$work/log" && exit 1; }
    lib=$(dirname "$(find "$prefix" -name libpaceline.a)")
    local file
    for file in "$lib/libpaceline.so" "$lib/libpaceline.so.1" "$lib/pkgconfig/paceline.pc" \
        "$lib/cmake/paceline/paceline-config.cmake" "$prefix/include/paceline/run.h" \
        "$prefix/share/bash-completion/completions/paceline" \
        "$prefix/share/doc/paceline/examples/fashion-lenet.job"; do
        [ -s "$file" ] || fail "there is no ${file#"$prefix/"}"
    done
    readelf -d "$lib/libpaceline.so" | grep -q 'soname: \[libpaceline.so.1\]' || fail "no soname"
    readelf -d "$prefix/bin/paceline" | grep -q 'NEEDED.*\[libpaceline.so.1\]' ||
        fail "the command does not use the shared library"
    [ "$(env -u LD_LIBRARY_PATH "$prefix/bin/paceline" version)" = "$("$build/paceline" version)" ] ||
        fail "the command does not run from its folder"
}

# The libraries have the functions of the headers, and no other name.
exports() {
    scripts/headers.py --functions >"$work/declared"
    nm -D --defined-only "$lib/libpaceline.so" | awk '{ print $3 }' | LC_ALL=C sort >"$work/shared"
    nm -g --defined-only "$lib/libpaceline.a" | awk 'NF == 3 { print $3 }' | LC_ALL=C sort \
        >"$work/static"
    for kind in shared static; do
        diff "$work/declared" "$work/$kind" || fail "the $kind library has other names (above)"
    done
}

# A page for each command that the help lists, and for each part of bench, as man wants them.
manual() {
    local page said
    for page in paceline $("$build/paceline" help | awk '/^  [a-z]/ && !/^  (help|version)/ {
            print "paceline-" $1 }') \
        $("$build/paceline" bench --help | awk '/^  bench/ { print "paceline-bench-" $2 }'); do
        [ -s "$prefix/share/man/man1/$page.1.gz" ] || fail "there is no page $page"
        command -v groff >/dev/null || continue
        said=$(gzip -dc "$prefix/share/man/man1/$page.1.gz" |
            groff -man -ww -z -Kutf8 -Tutf8 2>&1)
        [ -z "$said" ] || fail "$page: $said"
    done
    gzip -dc "$prefix/share/man/man1/paceline-train.1.gz" | grep -q '^.fB.-.-strategy' ||
        fail "the page of train does not list its options"
}

# Print the words that the shell offers after these, the last of which is under way.
offered() {
    bash -c '. "$0" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) && _paceline &&
        echo "${COMPREPLY[*]}"' "$prefix/share/bash-completion/completions/paceline" "$@"
}

completions() {
    [ "$(offered paceline tr)" = train ] || fail "bash offers no train"
    [ "$(offered paceline train --strat)" = --strategy ] || fail "bash offers no --strategy"
    [ "$(offered paceline bench all)" = allreduce ] || fail "bash offers no bench allreduce"
    [ "$(offered paceline bench wire --spi)" = --spin ] || fail "bash offers no --spin"
    [ "$(offered paceline train --out "$prefix/bi")" = "$prefix/bin" ] || fail "bash offers no file"
    [ -z "$(offered paceline train --epochs '')" ] || fail "bash offers files for a number"
    command -v zsh >/dev/null && { zsh -n "$(find "$prefix" -name _paceline)" || fail "zsh"; }
    [ -s "$(find "$prefix" -name _paceline)" ] || fail "there is no completion for zsh"
}

# `spirals` has learnt more than it can guess: of three classes 67 % would be wrong.
learns() { # COMMAND…
    local said
    said=$("$@" 300) || fail "$1 ended with $?"
    [[ $said =~ error\ ([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -lt 50 ] || fail "$1: $said"
}

# `arrays` trains by a worker process of its own.
trains() { # PROGRAM
    (cd "$work" && OMP_NUM_THREADS=1 LD_LIBRARY_PATH=$lib "$1" 1 "$work/run") |
        grep -q '^test error' || fail "$1 has trained nothing"
    rm -r "$work/run"
}

by_pkg_config() {
    local cflags libs static standard warnings=(-Wall -Wextra -Wpedantic -Werror)
    local c17=(gcc -std=c17 "${warnings[@]}" -D_POSIX_C_SOURCE=200809L)
    export PKG_CONFIG_PATH=$lib/pkgconfig
    read -ra cflags <<<"$(pkg-config --cflags paceline)"
    read -ra libs <<<"$(pkg-config --libs paceline)"
    read -ra static <<<"$(pkg-config --static --libs-only-l paceline)"
    "${c17[@]}" "${cflags[@]}" examples/arrays.c -o "$work/arrays" "${libs[@]}" -lm
    trains "$work/arrays"
    "${c17[@]}" "${cflags[@]}" examples/arrays.c -o "$work/arrays_static" "$lib/libpaceline.a" \
        "${static[@]:1}"
    trains "$work/arrays_static"
    for standard in 17 20; do
        g++ "-std=c++$standard" "${warnings[@]}" "${cflags[@]}" examples/spirals.cpp \
            -o "$work/spirals$standard" "${libs[@]}"
        learns env LD_LIBRARY_PATH="$lib" "$work/spirals$standard"
    done
}

by_cmake() {
    cmake -S test/install -B "$work/users" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE= \
        >"$work/log" && cmake --build "$work/users" >>"$work/log" || { cat "$work/log" && exit 1; }
    learns "$work/users/spirals17"
    learns "$work/users/spirals20"
    trains "$work/users/arrays_static"
    [ -x "$work/users/arrays" ] || fail "find_package has made no arrays"
}

# A program of older headers, in which pl_run_options had one field less.
by_older_headers() {
    mkdir "$work/older"
    cp -r include/paceline "$work/older"
    sed -i '/^    double max_mbit;$/{N;/pl_run_options;/s/.*\n//}' "$work/older/paceline/run.h"
    ! cmp -s include/paceline/run.h "$work/older/paceline/run.h" || fail "no field was removed"
    gcc -std=c17 -D_POSIX_C_SOURCE=200809L "-I$work/older" examples/arrays.c -o "$work/older/arrays" \
        "-L$lib" -lpaceline -lm
    trains "$work/older/arrays"
}

installs
case $2 in
files)
    exports
    manual
    completions
    by_older_headers
    ;;
pkg_config) by_pkg_config ;;
cmake) by_cmake ;;
*) fail "there is no part $2" ;;
esac
