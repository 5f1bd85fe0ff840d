#include "cli/wrap_line.h"

#include <stdbool.h>
#include <string.h>

enum { INDENT = 4, LABEL_MAX = 16 };

/* Bytes of UTF-8 that continue with a character take no column. */
static size_t count_columns(const char *text, size_t bytes)
{
    size_t columns = 0;
    for (size_t i = 0; i < bytes; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

static size_t find_indent(const char *line)
{
    size_t label = strspn(line, " ");
    label += strcspn(line + label, " ");
    size_t gap = strspn(line + label, " ");
    while (gap == 1) { /* the label has two words */
        label += gap + strcspn(line + label + gap, " ");
        gap = strspn(line + label, " ");
    }
    return gap > 1 && label + gap <= LABEL_MAX ? label + gap : INDENT;
}

static bool is_command(const char *line)
{
    static const char name[] = "paceline ";
    return strncmp(line + strspn(line, " "), name, sizeof name - 1) == 0;
}

static size_t append_text(char *out, size_t size, size_t at, const char *text, size_t bytes)
{
    size_t room = size - 1 - at;
    bytes = bytes < room ? bytes : room;
    memcpy(out + at, text, bytes);
    return at + bytes;
}

void wrap_line(const char *line, size_t columns, char *out, size_t size)
{
    static const char blanks[] = "                ";
    size_t indent = find_indent(line), at = 0, column = 0;
    if (is_command(line) || count_columns(line, strlen(line)) <= columns || indent >= columns / 2) {
        out[append_text(out, size, 0, line, strlen(line))] = '\0';
        return;
    }
    while (*line) {
        size_t gap = strspn(line, " "), word = strcspn(line + gap, " ");
        size_t width = count_columns(line + gap, word);
        if (column > indent && column + gap + width > columns) {
            at = append_text(out, size, at, "\n", 1);
            at = append_text(out, size, at, blanks, indent);
            column = indent;
        } else {
            at = append_text(out, size, at, line, gap);
            column += gap;
        }
        at = append_text(out, size, at, line + gap, word);
        column += width;
        line += gap + word;
    }
    out[at] = '\0';
}
