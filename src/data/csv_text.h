/* The text of a table: rows and fields as RFC 4180 writes them, with any delimiter. Lines end in
 * LF, CRLF or CR, the last one may have no end, empty lines are skipped, and so is a byte order
 * mark of UTF-8. A quote within a field that does not begin with one is a character like others. */
#ifndef PL_DATA_CSV_TEXT_H
#define PL_DATA_CSV_TEXT_H

#include "base/file.h"
#include "base/hash.h"

enum {
    CSV_COLUMNS_MAX = 16384,
    CSV_ROW_MAX = 1 << 24, /* bytes; a longer row is taken for a quote that is not closed */
};

/* Without its quotes; not terminated. */
struct csv_field {
    const char *text;
    size_t n;
};

struct csv_row {
    struct csv_field *field; /* the caller's, with room for `room` */
    size_t room;
    size_t fields;     /* in the row; those beyond `room` are not in `field` */
    size_t bytes;      /* with its line break */
    uint64_t breaks;   /* line breaks among them */
    const char *wrong; /* why it is no row of a table; NULL: it is one */
};

/* Divide the first row of `n` bytes, and take the quotes away in place. `last`: no byte follows
 * these. false: it may not end here; nothing has been changed. */
bool csv_divide(char *text, size_t n, bool last, char delimiter, struct csv_row *row);

/* A decimal number, which may have a sign, blanks around it and an exponent; whatever the locale */
bool csv_number(struct csv_field field, float *out);

/* Reads all rows of a file in their order. */
struct csv_reader {
    const char *path; /* borrowed */
    char delimiter;
    const struct open_watch *watch; /* in stage "bytes"; may be NULL */
    struct hash_stream *hash;       /* receives all bytes; may be NULL */
    struct file_open file;          /* the caller's */

    struct csv_row row;
    uint64_t line, offset; /* where the row is, lines from 1 */
    uint64_t rows;         /* read so far */
    bool again;            /* set by the caller: the next row is this one */

    char *block;
    size_t room, begin, end; /* bytes of it that are not divided yet */
    uint64_t next_line, taken;
};

/* The first five members are set, others zero. ERR_NOMEM */
int csv_reader_begin(struct csv_reader *reader, struct err *err);
void csv_reader_end(struct csv_reader *reader);

/* The next row into reader->row, valid until the next call; *more false: there is none.
 * ERR_INPUT: a row is too long; ERR_IO, ERR_CANCELLED, ERR_NOMEM */
int csv_reader_next(struct csv_reader *reader, bool *more, struct err *err);

#endif
