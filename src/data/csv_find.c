/* The kinds and categories of a training table's columns, as its rows show them. */
#include "data/csv_columns.h"

#include "data/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CATEGORY_MAX = 256,        /* bytes of a category */
    COLUMNS_TEXT = 3 * 1 << 19 /* bytes of the text of all columns: twice this fits a message */
};

struct found {
    Paceline__Data__Column *of; /* in the list; NULL: the column is ignored */
    bool open;                  /* the job says neither its kind nor its categories */
    bool finds;                 /* its categories */
    uint64_t first_text;        /* line of the first value that is not a number */
    uint64_t count;             /* of its values */
    double mean, squares;       /* of them; the sum of squared differences from it */
};

struct finding {
    struct csv_reader *reader;
    Paceline__Data__Csv *spec;
    struct found *at;
    size_t n;
    size_t text; /* bytes that the columns take in a job */
};

static int refuse_memory(const struct finding *f, struct err *err)
{
    return err_set(err, ERR_NOMEM, "%s: out of memory for its columns", f->reader->path);
}

/* ---- the list ---- */

/* Bytes that a name takes in the text of a job, at most. */
static size_t text_bytes(struct csv_field name)
{
    size_t bytes = 0;
    for (size_t i = 0; i < name.n; i++)
        bytes += name.text[i] >= ' ' && name.text[i] <= '~' ? 2 : 4;
    return bytes;
}

/* Among the first `n` of the list. */
static Paceline__Data__Column *find_listed(const Paceline__Data__Csv *spec, size_t n,
                                           struct csv_field name)
{
    for (size_t i = 0; i < n; i++)
        if (csv_compare(name, spec->column[i]->name) == 0)
            return spec->column[i];
    return NULL;
}

static bool is_ignored(const Paceline__Data__Csv *spec, struct csv_field name)
{
    for (size_t i = 0; i < spec->n_ignore; i++)
        if (csv_compare(name, spec->ignore[i]) == 0)
            return true;
    return false;
}

/* A column at the end of the list, which has room. */
static Paceline__Data__Column *list_column(struct finding *f, struct csv_field name)
{
    Paceline__Data__Column *column = malloc(sizeof *column);
    char *copy = strndup(name.text, name.n);
    if (!column || !copy) {
        free(column);
        free(copy);
        return NULL;
    }
    paceline__data__column__init(column);
    column->name = copy;
    f->spec->column[f->spec->n_column++] = column;
    f->text += text_bytes(name) + 120; /* with its other fields */
    return column;
}

static bool is_open(const Paceline__Data__Column *column)
{
    return !column->has_kind && column->n_categories == 0;
}

/* Every name of `ignore` is a column's, since a misspelt one would be an input. */
static int check_ignored(const struct finding *f, const struct csv_row *first, struct err *err)
{
    for (size_t i = 0; f->spec->header && i < f->spec->n_ignore; i++) {
        bool there = false;
        for (size_t k = 0; k < f->n && !there; k++)
            there = csv_compare(first->field[k], f->spec->ignore[i]) == 0;
        if (!there)
            return err_set(err, ERR_INPUT, "%s: there is no column `%.60s` that could be ignored",
                           f->reader->path, f->spec->ignore[i]);
    }
    return OK;
}

static int begin_columns(struct finding *f, const struct csv_row *first, struct err *err)
{
    size_t listed = f->spec->n_column;
    if (first->wrong)
        return err_set(err, ERR_INPUT, "%s: line %llu: %s", f->reader->path,
                       (unsigned long long)f->reader->line, first->wrong);
    if (first->fields > CSV_COLUMNS_MAX)
        return err_set(err, ERR_INPUT, "%s: %zu columns; %d can be read", f->reader->path,
                       first->fields, CSV_COLUMNS_MAX);
    f->n = first->fields;
    f->at = calloc(f->n, sizeof *f->at);
    Paceline__Data__Column **longer =
        realloc(f->spec->column, (listed + f->n) * sizeof(Paceline__Data__Column *));
    if (longer)
        f->spec->column = longer;
    if (!f->at || !longer)
        return refuse_memory(f, err);
    int rc = check_ignored(f, first, err);
    for (size_t k = 0; rc == OK && k < f->n; k++) {
        char number[24];
        struct csv_field name = first->field[k];
        if (!f->spec->header || name.n == 0)
            name =
                (struct csv_field){number, (size_t)snprintf(number, sizeof number, "%zu", k + 1)};
        if (is_ignored(f->spec, name))
            continue;
        Paceline__Data__Column *of = find_listed(f->spec, listed, name);
        if (!of)
            of = list_column(f, name); /* a name that is there twice is refused later */
        if (!of)
            return refuse_memory(f, err);
        if (f->text > COLUMNS_TEXT)
            return err_set(err, ERR_INPUT, "%s: the names of its columns are longer than %d bytes",
                           f->reader->path, COLUMNS_TEXT);
        f->at[k].of = of;
        f->at[k].open = is_open(of);
        f->at[k].finds = of->has_kind && of->kind == PACELINE__DATA__COLUMN__KIND__category &&
                         of->n_categories == 0;
    }
    return rc;
}

/* ---- values ---- */

static int add_category(struct finding *f, size_t k, struct csv_field value, struct err *err)
{
    Paceline__Data__Column *of = f->at[k].of;
    size_t low = 0, high = of->n_categories;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = csv_compare(value, of->categories[middle]);
        if (order == 0)
            return OK;
        *(order < 0 ? &high : &low) = order < 0 ? middle : middle + 1;
    }
    f->text += text_bytes(value) + 24;
    if (of->n_categories == CSV_CATEGORIES_MAX || value.n > CATEGORY_MAX ||
        f->text > COLUMNS_TEXT) {
        char name[64];
        return err_set(err, ERR_INPUT,
                       "%s: column %zu (%s) is no column of numbers (see line %llu), and its "
                       "categories are more than %d or too long; ignore it, or list it with `kind: "
                       "number`",
                       f->reader->path, k + 1, source_quote(of->name, name, sizeof name),
                       (unsigned long long)f->at[k].first_text, CSV_CATEGORIES_MAX);
    }
    size_t n = of->n_categories;
    if ((n & (n - 1)) == 0) { /* it is full */
        char **larger = realloc(of->categories, (n > 0 ? 2 * n : 1) * sizeof(char *));
        if (!larger)
            return refuse_memory(f, err);
        of->categories = larger;
    }
    char *copy = strndup(value.text, value.n);
    if (!copy)
        return refuse_memory(f, err);
    memmove(of->categories + low + 1, of->categories + low, (n - low) * sizeof *of->categories);
    of->categories[low] = copy;
    of->n_categories++;
    return OK;
}

/* Welford's mean and squares. */
static void add_number(struct found *found, float value)
{
    double difference = (double)value - found->mean;
    found->mean += difference / (double)++found->count;
    found->squares += difference * ((double)value - found->mean);
}

static int look_at_value(struct finding *f, size_t k, struct csv_field value, bool *again,
                         struct err *err)
{
    struct found *found = &f->at[k];
    float v = 0;
    uint32_t label;
    if (!found->of || value.n == 0)
        return OK;
    bool number =
        csv_is_label(f->spec, found->of->name) ? csv_label(value, &label) : csv_number(value, &v);
    if (number && !found->finds)
        add_number(found, v);
    if (!number && found->open) {
        *again = *again || found->count > 0; /* earlier values are categories, too */
        found->first_text = f->reader->line;
        found->finds = true;
        found->open = false;
    }
    return found->finds ? add_category(f, k, value, err) : OK;
}

static int look_at_rows(struct finding *f, bool *again, struct err *err)
{
    bool more = true;
    int rc = csv_reader_begin(f->reader, err);
    if (rc == OK)
        rc = csv_reader_next(f->reader, &more, err);
    if (rc == OK && !more)
        rc = err_set(err, ERR_INPUT, "%s: is empty", f->reader->path);
    if (rc == OK && !f->at)
        rc = begin_columns(f, &f->reader->row, err);
    f->reader->again = !f->spec->header;
    for (size_t k = 0; rc == OK && k < f->n; k++)
        f->at[k].count = 0, f->at[k].mean = f->at[k].squares = 0;
    while (rc == OK) {
        const struct csv_row *row = &f->reader->row;
        rc = csv_reader_next(f->reader, &more, err);
        if (rc != OK || !more)
            break;
        for (size_t k = 0; rc == OK && !row->wrong && row->fields == f->n && k < f->n; k++)
            rc = look_at_value(f, k, row->field[k], again, err);
    }
    csv_reader_end(f->reader);
    return rc;
}

/* ---- the outcome ---- */

static void settle_column(const struct finding *f, const struct found *found)
{
    Paceline__Data__Column *of = found->of;
    bool category = of->n_categories > 0 || found->finds;
    bool input = !csv_is_label(f->spec, of->name) && !csv_is_target(f->spec, of->name);
    if (!of->has_kind)
        of->kind = category ? PACELINE__DATA__COLUMN__KIND__category
                            : PACELINE__DATA__COLUMN__KIND__number;
    of->has_kind = true;
    bool given = of->has_mean || of->has_scale;
    if (!f->spec->standardize || !input || given || found->count == 0 ||
        of->kind != PACELINE__DATA__COLUMN__KIND__number)
        return;
    double spread = sqrt(found->squares / (double)found->count);
    of->mean = (float)found->mean;
    of->scale = spread > 0 && isfinite((float)(1 / spread)) ? (float)(1 / spread) : 1;
    of->has_mean = of->has_scale = true;
}

int csv_columns_find(struct csv_reader *reader, Paceline__Data__Csv *spec, struct err *err)
{
    const struct csv_reader fresh = *reader;
    struct finding f = {.reader = reader, .spec = spec};
    bool again = false;
    int rc = look_at_rows(&f, &again, err);
    if (rc == OK && again) { /* a column of numbers at first, and of categories in the end */
        *reader = fresh;
        rc = look_at_rows(&f, &again, err);
    }
    for (size_t k = 0; rc == OK && k < f.n; k++)
        if (f.at[k].of)
            settle_column(&f, &f.at[k]);
    spec->all_listed = spec->has_all_listed = rc == OK;
    *reader = fresh;
    free(f.at);
    return rc;
}
