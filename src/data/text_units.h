/* The units of a text, which are bytes or characters of UTF-8, and their numbers (source_text.h):
 * in memory, without the text's file. */
#ifndef PL_DATA_TEXT_UNITS_H
#define PL_DATA_TEXT_UNITS_H

#include "base/bytes.h"
#include "base/err.h"
#include "job/job.pb-c.h"

struct text_units;

/* The units of a text whose vocabulary is known, as source_text_settled has it (bytes need none).
 * *out is released by text_units_free. ERR_INPUT: there is no vocabulary, or a wrong one; ERR_NOMEM
 */
int text_units_create(const Paceline__Data__Text *spec, struct text_units **out, struct err *err);
void text_units_free(struct text_units *units);

/* Their numbers are below it. */
uint32_t text_units_count(const struct text_units *units);

/* "bytes" or "characters", for messages. */
const char *text_units_name(const struct text_units *units);

/* The number of the first unit of `n` > 0 bytes, and its length. ERR_INPUT: the bytes are no UTF-8,
 * or the vocabulary lacks the character; the message has neither place nor remedy */
int text_units_take(const struct text_units *units, const char *text, size_t n, uint32_t *id,
                    size_t *length, struct err *err);

/* Append unit `id` (below the count) to a text. */
void text_units_put(const struct text_units *units, uint32_t id, struct buf *text);

#endif
