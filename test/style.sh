#!/bin/sh
# The part of docs/STYLE.md that a script can read: widths, guards, white space, the length of
# functions, links between documents, the length of documents, and the words of docs/GLOSSARY.md (language.py). Formatting
# proper is clang-format's business.
#
#   test/style.sh [ROOT]       judge ROOT (default: this repository)
#   test/style.sh --self-test  show, on a small bad tree, that each rule can fail
set -eu
here=$(cd "$(dirname "$0")" && pwd)
function_lines=60
page_bytes=200000

judge() (
    cd "$1" || exit 1
    failed=0
    find src include test examples proto scripts run .ci -type f 2>/dev/null |
        grep -E '(\.[ch]|\.proto|\.job|\.cluster|\.sh|\.awk|run)$' | LC_ALL=C sort |
        LC_ALL=C xargs -r awk -v limit="$function_lines" -f "$here/style.awk" || failed=1
    find . -name '*.md' -not -path './build*' -not -path './.git/*' -not -path './runs/*' |
        LC_ALL=C sort | while read -r page; do dead_links "$page" && no_flood "$page" || exit 1; done || failed=1
    python3 "$here/language.py" "$PWD" || failed=1
    exit "$failed"
)

# Every relative link of a page leads to a file.
dead_links() { # PAGE
    found=0
    for target in $(grep -oE '\]\([^)]*\)' "$1" | sed 's/^](//; s/[)#].*//' | grep -v :); do
        [ -e "$(dirname "$1")/$target" ] && continue
        echo "${1#./}: a link to $target, which is not there"
        found=1
    done
    return "$found"
}

# A page that a script has written over itself is large.
no_flood() { # PAGE
    [ "$(wc -c <"$1")" -le "$page_bytes" ] && return
    echo "${1#./}: more than $page_bytes bytes"
    return 1
}

# Puts TEXT into FILE of an otherwise empty tree and expects the complaint SAYS about it;
# "clean": none.
expect() { # FILE SAYS TEXT
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/$(dirname "$1")"
    printf '%s\n' "$3" >"$tree/$1"
    said=$(judge "$tree") && verdict=passes || verdict=fails
    case "$2:$verdict:$said" in
    clean:passes:) ;;
    *:fails:"$1:"*"$2"*) ;;
    *) echo "self-test: $1: expected '$2', but it $verdict: $said" && wrong=1 ;;
    esac
}

repeat() { # COUNT TEXT
    awk -v n="$1" -v text="$2" 'BEGIN { while (i++ < n) printf "%s", text }'
}

self_test() {
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    wrong=0
    good='/* A vec. */
#ifndef PL_TENSOR_VEC_H
#define PL_TENSOR_VEC_H
#endif'
    expect src/tensor/vec.h clean "$good"
    expect include/paceline/run.h "the guard of this header is PACELINE_RUN_H" "$good"
    expect src/tensor/vector.h "the guard of this header is PL_TENSOR_VECTOR_H" "$good"
    expect src/tensor/vec.h "a header opens with" "${good#*/}"
    expect src/nn/a.c "white space" 'int x; '
    expect src/nn/a.c "a tab" "$(printf '\tint x;')"
    expect src/nn/a.c "a carriage return" "$(printf 'int x;\r;')"
    expect src/nn/a.c "more than 100 columns" "$(repeat 101 x)"
    expect src/nn/a.c clean "$(repeat 100 ·)"
    expect src/nn/a.c "a function of $((function_lines + 1)) lines" \
        "$(printf 'int f(void)\n{\n%s}' "$(repeat $((function_lines + 1)) ';
')
")"
    expect src/nn/a.c "two reads of a byte reader" 'x = (struct a){.b = read_u8(in), .c = read_u8(in)};'
    expect src/nn/a.c "two reads of a byte reader" 'x = (struct a){.b = read_u8(in),
    .c = read_u32(in)};'
    expect src/nn/a.c clean 'x = (struct a){.b = read_u8(in)};
x.c = read_u8(in);
y = (struct a){.b = read_u8(in)};'
    expect docs/A.md "a link to B.md" 'see [b](B.md)'
    expect docs/A.md clean 'see [a](A.md#top), [up](..), [out](https://example.org)'
    expect docs/A.md "more than $page_bytes bytes" "$(repeat $((page_bytes / 2 + 1)) "a ")"
    python3 "$here/language.py" --self-test || wrong=1
    [ "$wrong" = 0 ]
}

case ${1:-} in
--self-test) self_test ;;
-*) echo "usage: test/style.sh [--self-test | ROOT]" >&2 && exit 2 ;;
*) judge "${1:-$here/..}" ;;
esac
