/* Plain text: a record is a window of units, which are bytes or characters of UTF-8, and the unit
 * that follows each, as integers. Nothing of a text of bytes stays in memory; of a text of
 * characters, their vocabulary and the offset of every 1024th. */
#ifndef PL_DATA_SOURCE_TEXT_H
#define PL_DATA_SOURCE_TEXT_H

#include "data/source.h"

enum { TEXT_WINDOW = 64 }; /* where none is given */

/* As source_open_with. A character outside of the vocabulary is refused now; where config->bad is
 * there, when a record with it is read. The hash covers all bytes of the file, the window, the
 * stride and the vocabulary. */
int source_text_open(const struct source_config *config, const Paceline__Data__Text *spec,
                     struct source **out, struct err *err);

/* The spec with its unit, window and vocabulary, given or found. NULL: it is no text. */
const Paceline__Data__Text *source_text_settled(const struct source *source);

/* How many units it has, all together; 0: it is no text. */
uint64_t source_text_units(const struct source *source);

/* The numbers of units are below it; 0: it is no text. */
uint32_t source_text_values(const struct source *source);

/* The same of the units that the text has: a net needs as many rows and scores. */
uint32_t source_text_rows(const struct source *source);

#endif
