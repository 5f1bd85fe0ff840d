/* The columns of a table: which inputs and which label a row gives. They belong to a run, not to a
 * file: those of the training data are the columns of every other table of the run. */
#ifndef PL_DATA_CSV_COLUMNS_H
#define PL_DATA_CSV_COLUMNS_H

#include "data/csv_text.h"
#include "job/job.pb-c.h"

enum { CSV_CATEGORIES_MAX = 1024 };

/* Sorted names, each with its place in the list that it is of. */
struct csv_names {
    struct csv_name {
        const char *text; /* borrowed */
        size_t place;
    } * at;
    size_t n;
};

/* A column of a file. */
struct csv_column {
    const Paceline__Data__Column *of; /* NULL: not used */
    size_t input;                     /* its first one; of the label: none */
    struct csv_names categories;
};

struct csv_columns {
    const char *path;                /* of the file, for messages */
    const Paceline__Data__Csv *spec; /* borrowed; all_listed */
    struct csv_column *at;           /* as in the file */
    size_t n, label;                 /* label == n: there is none */
    size_t inputs;                   /* floats of a record, */
    size_t targets;                  /* and behind them those of its targets */
};

/* Is a column of this name the label, or a target? */
bool csv_is_label(const Paceline__Data__Csv *spec, const char *name);
bool csv_is_target(const Paceline__Data__Csv *spec, const char *name);

/* The columns of a file whose first row is `first`. Released also after a failure. ERR_INPUT: a
 * column is missing, or there twice; there are too many, or none but the label. ERR_NOMEM */
int csv_columns_init(struct csv_columns *columns, const char *path, const Paceline__Data__Csv *spec,
                     const struct csv_row *first, struct err *err);
void csv_columns_release(struct csv_columns *columns);

/* The inputs and the targets (`x` NULL: they are checked alone) and the label of a row in this
 * line. ERR_INPUT: the row does not fit, by line and column */
int csv_columns_take(const struct csv_columns *columns, const struct csv_row *row, uint64_t line,
                     float *x, uint32_t *label, struct err *err);

/* Read all rows of a training table, and complete spec->column by what they hold; all_listed is
 * then set. Rows that fit no table are passed over. ERR_INPUT: values of a column are neither
 * numbers nor of a few categories. Others as csv_reader_next */
int csv_columns_find(struct csv_reader *reader, Paceline__Data__Csv *spec, struct err *err);

/* A column of numbers, and not of categories? */
bool csv_is_number(const Paceline__Data__Column *of);

/* Does the field hold a class, a whole number below LABEL_MAX? */
bool csv_label(struct csv_field field, uint32_t *label);

/* The order of csv_names: by bytes. */
int csv_compare(struct csv_field field, const char *text);

#endif
