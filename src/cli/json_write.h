/* JSON text that may stand in a page: no `<`, `>` or `&` is in it, so that a text cannot end the
 * element that has it. Errors stay in the stream, for ferror. */
#ifndef PL_CLI_JSON_WRITE_H
#define PL_CLI_JSON_WRITE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

/* With as many digits as it needs; `null` where it is not finite. */
void json_put_number(FILE *out, double value);

/* In quotes; the text is taken as UTF-8, and bytes that are none stay. */
void json_put_text(FILE *out, const char *text);

/* The key in quotes, and a colon. */
void json_put_key(FILE *out, const char *key);

/* Any value; NULL: `null`. */
void json_put_item(FILE *out, const cJSON *item);

/* Items of an array, with commas between. */
struct json_list {
    FILE *out;
    bool first;
};

void json_next(struct json_list *list);

#endif
