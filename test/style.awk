# The rules of test/style.sh on C files, headers and scripts; reads the files named on the command
# line, as paths below the root.

function bad(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text
    failures++
}

# PL_TENSOR_VEC_H for src/tensor/vec.h, PACELINE_RUN_H for include/paceline/run.h
function guard_of(path) {
    if (!sub(/^include\//, "", path)) sub(/^(src|test)\//, "PL/", path)
    gsub(/[\/.]/, "_", path)
    return toupper(path)
}

FNR == 1 {
    is_header = FILENAME ~ /\.h$/
    is_c = FILENAME ~ /\.[ch]$/
    is_test = FILENAME ~ /(^test\/|_test\.c$)/
    guard = is_header ? guard_of(FILENAME) : ""
    opens = 0
    if (is_header && $0 !~ /^\/\*/) bad("a header opens with what the thing is, in a comment")
}

/[ \t]+$/ { bad("white space at the end of the line") }
/\r/ { bad("a carriage return") }
is_c && /\t/ { bad("a tab") }
is_c {
    wide = $0
    gsub(/[\200-\277]/, "", wide) # count characters, not bytes of UTF-8
    if (length(wide) > 100) bad("more than 100 columns")
}

# Initialisers of one list are evaluated in any order (C17 6.7.9): statements read from a byte reader.
is_c && /\.[a-z_]+ = read_(u8|u32|u64|f64|text)\(/ {
    if (cursor == FILENAME || gsub(/= read_(u8|u32|u64|f64|text)\(/, "&") > 1)
        bad("two reads of a byte reader in one initialiser list, which has no order")
    cursor = FILENAME
}
/;[ \t]*$/ { cursor = "" }

is_header && !done[FILENAME] && /^#ifndef/ {
    done[FILENAME] = 1
    if ($2 != guard) bad("the guard of this header is " guard)
}

# A function's body lies between braces in the first column.
is_c && /^\{/ { opens = FNR }
is_c && /^\}/ && opens {
    lines = FNR - opens - 1
    if (lines > limit && !is_test) bad("a function of " lines " lines")
    opens = 0
}

END { exit failures > 0 }
