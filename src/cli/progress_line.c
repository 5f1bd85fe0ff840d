#include "cli/progress_line.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct layout {
    bool out[PROGRESS_FIELDS_MAX]; /* left out */
    bool brief;
    const char *gap;
};

static const char *text_of(const struct progress_field *field, bool brief)
{
    return brief && field->brief[0] ? field->brief : field->text;
}

static size_t measure_width(const struct layout *l, const struct progress_field *field,
                            size_t count)
{
    size_t width = 0, kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (l->out[i])
            continue;
        width += strlen(text_of(&field[i], l->brief));
        kept++;
    }
    return width + (kept > 1 ? (kept - 1) * strlen(l->gap) : 0);
}

/* false: only fields that stay are left. */
static bool leave_one_out(struct layout *l, const struct progress_field *field, size_t count)
{
    size_t worst = count;
    for (size_t i = 0; i < count; i++) {
        if (!l->out[i] && field[i].rank > 0 &&
            (worst == count || field[i].rank > field[worst].rank))
            worst = i;
    }
    if (worst < count)
        l->out[worst] = true;
    return worst < count;
}

void progress_line_fit(const struct progress_field *field, size_t count, size_t columns, char *out)
{
    struct layout l = {.gap = "  "};
    size_t at = 0;
    count = count < PROGRESS_FIELDS_MAX ? count : PROGRESS_FIELDS_MAX;
    while (measure_width(&l, field, count) > columns && leave_one_out(&l, field, count))
        ;
    l.brief = measure_width(&l, field, count) > columns;
    if (measure_width(&l, field, count) > columns)
        l.gap = " ";
    out[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        if (l.out[i])
            continue;
        int n = snprintf(out + at, PROGRESS_LINE_MAX - at, "%s%s", at > 0 ? l.gap : "",
                         text_of(&field[i], l.brief));
        at += n > 0 ? (size_t)n : 0;
        at = at < PROGRESS_LINE_MAX ? at : PROGRESS_LINE_MAX - 1;
    }
    if (at > columns)
        out[columns] = '\0';
}
