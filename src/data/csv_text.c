#include "data/csv_text.h"

#include "job/text_number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 20 };

/* ---- a row ---- */

/* Where a row is being divided. */
struct cut {
    char *text;
    size_t n, at;
    bool last;
    char delimiter;
    struct csv_row *row;
};

static bool is_break(char c)
{
    return c == '\n' || c == '\r';
}

/* Behind the line break at `at`; false: a CR is the last byte that there is. */
static bool pass_break(struct cut *cut)
{
    bool cr = cut->text[cut->at] == '\r';
    if (cr && cut->at + 1 == cut->n && !cut->last)
        return false;
    cut->at += cr && cut->at + 1 < cut->n && cut->text[cut->at + 1] == '\n' ? 2 : 1;
    cut->row->breaks++;
    return true;
}

/* To the closing quote of the field whose opening quote is at `at`. */
static bool pass_quoted(struct cut *cut)
{
    for (cut->at++; cut->at < cut->n;) {
        char c = cut->text[cut->at];
        if (is_break(c)) {
            if (!pass_break(cut))
                return false;
        } else if (c != '"') {
            cut->at++;
        } else if (cut->at + 1 < cut->n && cut->text[cut->at + 1] == '"') {
            cut->at += 2;
        } else {
            cut->at++;
            return cut->last || cut->at < cut->n;
        }
    }
    cut->row->wrong = "a quote is opened and not closed";
    return cut->last;
}

/* A field with its quotes, up to the delimiter, the line break or the end. */
static bool pass_field(struct cut *cut)
{
    size_t begin = cut->at;
    if (cut->at < cut->n && cut->text[cut->at] == '"' && !pass_quoted(cut))
        return false;
    if (cut->at > begin && cut->at < cut->n && !is_break(cut->text[cut->at]) &&
        cut->text[cut->at] != cut->delimiter)
        cut->row->wrong = "there is text behind a closing quote";
    while (cut->at < cut->n && !is_break(cut->text[cut->at]) &&
           cut->text[cut->at] != cut->delimiter)
        cut->at++;
    if (cut->row->fields < cut->row->room)
        cut->row->field[cut->row->fields] = (struct csv_field){cut->text + begin, cut->at - begin};
    cut->row->fields++;
    return cut->last || cut->at < cut->n;
}

static void take_quotes_away(struct csv_field *field)
{
    char *text = (char *)(uintptr_t)field->text;
    size_t to = 0;
    for (size_t i = 1; i + 1 < field->n; i++) {
        text[to++] = text[i];
        i += text[i] == '"'; /* the second of two */
    }
    field->n = to;
}

bool csv_divide(char *text, size_t n, bool last, char delimiter, struct csv_row *row)
{
    struct cut cut = {text, n, 0, last, delimiter, row};
    row->fields = row->breaks = 0;
    row->wrong = NULL;
    bool more = true;
    while (more) {
        if (!pass_field(&cut))
            return false;
        more = cut.at < n && text[cut.at] == delimiter;
        cut.at += more;
    }
    if (cut.at < n && !pass_break(&cut))
        return false;
    row->bytes = cut.at;
    if (memchr(text, 0, row->bytes))
        row->wrong = "a byte of it is zero: this is no text";
    for (size_t i = 0; !row->wrong && i < row->fields && i < row->room; i++)
        if (row->field[i].n > 0 && row->field[i].text[0] == '"')
            take_quotes_away(&row->field[i]);
    return true;
}

/* ---- numbers ---- */

/* With up to 15 digits and a power of ten that is exact itself, product and quotient are rounded
 * once, as the C library rounds. */
static bool read_short(const char *s, size_t n, double *out)
{
    static const double power[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    uint64_t digits = 0;
    size_t count = 0, fraction = 0;
    bool point = false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (s[i] < '0' || s[i] > '9' || ++count > 15)
            return false;
        digits = digits * 10 + (uint64_t)(s[i] - '0');
        fraction += point;
    }
    *out = (double)digits / power[fraction];
    return count > 0;
}

bool csv_number(struct csv_field field, float *out)
{
    const char *s = field.text;
    size_t n = field.n;
    while (n > 0 && s[0] == ' ') {
        s++;
        n--;
    }
    while (n > 0 && s[n - 1] == ' ')
        n--;
    bool negative = n > 0 && s[0] == '-';
    if (n > 0 && (negative || s[0] == '+')) {
        s++;
        n--;
    }
    while (n > 1 && s[0] == '0' && s[1] >= '0' && s[1] <= '9') { /* not octal */
        s++;
        n--;
    }
    double v;
    if (n == 0 || (s[n - 1] | 0x20) == 'f' ||
        (!read_short(s, n, &v) && !text_number_double(s, n, &v)))
        return false;
    *out = (float)(negative ? -v : v);
    return isfinite(*out);
}

/* ---- a file ---- */

int csv_reader_begin(struct csv_reader *reader, struct err *err)
{
    size_t most = reader->file.len < BLOCK ? (size_t)reader->file.len + 1 : BLOCK;
    reader->row.room = most < CSV_COLUMNS_MAX ? most : CSV_COLUMNS_MAX;
    reader->row.field = malloc(reader->row.room * sizeof *reader->row.field);
    reader->room = most;
    reader->block = malloc(most);
    reader->next_line = 1;
    return reader->block && reader->row.field
               ? OK
               : err_set(err, ERR_NOMEM, "%s: out of memory", reader->path);
}

void csv_reader_end(struct csv_reader *reader)
{
    free(reader->block);
    free(reader->row.field);
}

static int refuse_length(const struct csv_reader *reader, struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "%s: line %llu: a row of more than %d bytes; a quote may be missing",
                   reader->path, (unsigned long long)reader->next_line, CSV_ROW_MAX);
}

/* The next bytes of the file behind those that are not divided yet, in a block twice as large where
 * they fill it. */
static int fill_block(struct csv_reader *reader, struct err *err)
{
    size_t kept = reader->end - reader->begin;
    if (kept > CSV_ROW_MAX)
        return refuse_length(reader, err);
    memmove(reader->block, reader->block + reader->begin, kept);
    reader->begin = 0;
    reader->end = kept;
    if (kept > reader->room / 2) {
        char *larger = realloc(reader->block, reader->room * 2);
        if (!larger)
            return err_set(err, ERR_NOMEM, "%s: out of memory for a row", reader->path);
        reader->block = larger;
        reader->room *= 2;
    }
    uint64_t left = reader->file.len - reader->taken;
    size_t n = reader->room - kept < left ? reader->room - kept : (size_t)left;
    int rc = file_part(&reader->file, reader->taken, reader->block + kept, n);
    if (rc != OK)
        return err_set(err, rc, "%s: cannot be read", reader->path);
    if (reader->hash)
        hash_stream_add(reader->hash, reader->block + kept, n);
    if (reader->taken == 0 && n >= 3 && memcmp(reader->block, "\xef\xbb\xbf", 3) == 0)
        reader->begin = 3;
    reader->end += n;
    reader->taken += n;
    return open_watch_report(reader->watch, "bytes", reader->taken, reader->file.len, err);
}

int csv_reader_next(struct csv_reader *reader, bool *more, struct err *err)
{
    struct csv_row *row = &reader->row;
    int rc = OK;
    *more = reader->again;
    reader->again = false;
    if (*more)
        return OK;
    for (;;) {
        bool last = reader->taken == reader->file.len;
        size_t n = reader->end - reader->begin;
        *more = n > 0 || !last;
        if (!*more)
            return OK;
        if (n == 0 || !csv_divide(reader->block + reader->begin, n, last, reader->delimiter, row)) {
            rc = fill_block(reader, err);
            if (rc != OK)
                return rc;
            continue;
        }
        if (row->bytes > CSV_ROW_MAX)
            return refuse_length(reader, err);
        reader->offset = reader->taken - n;
        reader->begin += row->bytes;
        reader->line = reader->next_line;
        reader->next_line += row->breaks;
        if (row->fields == 1 && row->field[0].n == 0 && !row->wrong)
            continue;
        reader->rows++;
        return OK;
    }
}
