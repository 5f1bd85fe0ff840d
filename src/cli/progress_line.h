/* A progress line out of fields, as wide as there is room. */
#ifndef PL_CLI_PROGRESS_LINE_H
#define PL_CLI_PROGRESS_LINE_H

#include <stddef.h>

enum { PROGRESS_FIELDS_MAX = 16, PROGRESS_LINE_MAX = 512 };

struct progress_field {
    char text[64];
    char brief[32]; /* where `text` does not fit; "": the same */
    unsigned rank;  /* 0: stays; of the others the highest is left out first */
};

/* Into `out`, of PROGRESS_LINE_MAX bytes: the fields in their order, at most `columns` wide. Fields
 * are left out by rank until the rest fits; those that stay become brief, then stand closer, and
 * are cut in the end. ASCII alone is as wide as it is long. */
void progress_line_fit(const struct progress_field *field, size_t count, size_t columns, char *out);

#endif
