/* A long line for a terminal: broken at words, not amid them as the terminal would. */
#ifndef PL_CLI_WRAP_LINE_H
#define PL_CLI_WRAP_LINE_H

#include <stddef.h>

/* Into `out`, of `size` bytes: the line as lines of at most `columns`, where its words allow; a
 * path is not broken. Further lines are indented: by four, or, where the line begins with a label
 * and two spaces or more, to the text after them. A command to copy, `paceline ...`, stays
 * whole. */
void wrap_line(const char *line, size_t columns, char *out, size_t size);

#endif
