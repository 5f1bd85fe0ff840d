#!/usr/bin/env bash
# The built command and library have what cmake/hardening.cmake asks for.
#
#   test/hardening.sh BUILD        judge its command and its shared library
#   test/hardening.sh --self-test  show, on a program built without it, that each check can fail
#
# A build for debugging has no checked functions, and is not judged.
set -euo pipefail
failed=0
complain() {
    echo "$1: $2" >&2
    failed=1
}

judge() { # FILE
    local file=$1 head dynamic symbols
    head=$(readelf -W -h -l "$file")
    dynamic=$(readelf -W -d "$file")
    symbols=$(readelf -W --dyn-syms "$file")
    case "$head" in *"DYN ("*) ;; *) complain "$file" "is not position independent" ;; esac
    case "$head" in *GNU_RELRO*) ;; *) complain "$file" "has no GNU_RELRO" ;; esac
    case "$dynamic" in *BIND_NOW* | *"Flags: NOW"*) ;; *) complain "$file" "binds late: no -z now" ;; esac
    grep -q 'GNU_STACK .* RW ' <<<"$head" || complain "$file" "has an executable stack"
    case "$symbols" in *__stack_chk_fail*) ;; *) complain "$file" "has no stack protector" ;; esac
    case "$symbols" in *__snprintf_chk* | *__memcpy_chk* | *__printf_chk*) ;;
    *) complain "$file" "calls no checked function: no _FORTIFY_SOURCE" ;; esac
    case "$head" in *X86-64*) # one function in a hundred may be reached by direct calls alone
        local marked
        marked=$(objdump -d --no-show-raw-insn "$file" | grep -c endbr64 || true)
        [ "$marked" -ge 100 ] || complain "$file" "has $marked marks of indirect branches: no -fcf-protection"
        ;;
    esac
}

self_test() {
    local work
    work=$(mktemp -d)
    trap 'rm -rf "$work"' RETURN
    cat >"$work/a.c" <<'C'
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    char text[8];
    strcpy(text, argv[argc - 1]);
    puts(text);
    return 0;
}
C
    cc -O2 -no-pie -fno-stack-protector -U_FORTIFY_SOURCE -fcf-protection=none -Wl,-z,norelro,-z,lazy \
        -Wl,-z,execstack "$work/a.c" -o "$work/a" 2>/dev/null ||
        cc -O2 -no-pie -fno-stack-protector -U_FORTIFY_SOURCE -Wl,-z,norelro,-z,lazy,-z,execstack "$work/a.c" -o "$work/a"
    said=$(judge "$work/a" 2>&1; exit 0)
    for text in "position independent" GNU_RELRO "binds late" "executable stack" "no stack protector" _FORTIFY_SOURCE; do
        case "$said" in *"$text"*) ;; *) complain "self-test" "does not complain of $text" ;; esac
    done
}

build=${1:-build}
if [ "$build" = --self-test ]; then
    self_test
elif grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=Debug' "$build/CMakeCache.txt"; then
    echo "[  SKIPPED ] hardening"
else
    judge "$build/paceline"
    judge "$(readlink -f "$build"/libpaceline.so)"
    self_test
fi
exit $failed
