#include "data/csv_columns.h"

#include "data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

int csv_compare(struct csv_field field, const char *text)
{
    size_t n = strlen(text);
    int order = memcmp(field.text, text, field.n < n ? field.n : n);
    return order ? order : field.n < n ? -1 : field.n > n;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct csv_name *)a)->text, ((const struct csv_name *)b)->text);
}

static int compare_field(const void *field, const void *name)
{
    return csv_compare(*(const struct csv_field *)field, ((const struct csv_name *)name)->text);
}

static const struct csv_name *find_name(const struct csv_names *names, struct csv_field field)
{
    return names->n > 0 ? bsearch(&field, names->at, names->n, sizeof *names->at, compare_field)
                        : NULL;
}

/* Room for `n` names, which the caller adds and sorts. */
static bool make_names(struct csv_names *names, size_t n)
{
    names->at = calloc(n > 0 ? n : 1, sizeof *names->at);
    return names->at;
}

static void add_name(struct csv_names *names, const char *text)
{
    names->at[names->n] = (struct csv_name){text ? text : "", names->n};
    names->n++;
}

/* The first name that is there twice; NULL: none is. */
static const char *sort_names(struct csv_names *names)
{
    qsort(names->at, names->n, sizeof *names->at, compare_names);
    for (size_t i = 1; i < names->n; i++)
        if (strcmp(names->at[i - 1].text, names->at[i].text) == 0)
            return names->at[i].text;
    return NULL;
}

/* ---- columns ---- */

bool csv_is_number(const Paceline__Data__Column *of)
{
    return of->has_kind ? of->kind == PACELINE__DATA__COLUMN__KIND__number : of->n_categories == 0;
}

bool csv_label(struct csv_field field, uint32_t *label)
{
    float v;
    bool is = csv_number(field, &v) && v >= 0 && v < (float)LABEL_MAX && v == (float)(uint32_t)v;
    *label = is ? (uint32_t)v : 0;
    return is;
}

bool csv_is_label(const Paceline__Data__Csv *spec, const char *name)
{
    return spec->label && strcmp(spec->label, name) == 0;
}

bool csv_is_target(const Paceline__Data__Csv *spec, const char *name)
{
    for (size_t i = 0; i < spec->n_target; i++)
        if (strcmp(spec->target[i], name) == 0)
            return true;
    return false;
}

static int refuse_name(const struct csv_columns *columns, const char *name, const char *why,
                       struct err *err)
{
    char quoted[80];
    return err_set(err, ERR_INPUT, "%s: %s `%s`", columns->path, why,
                   source_quote(name, quoted, sizeof quoted));
}

static int refuse_memory(const struct csv_columns *columns, struct err *err)
{
    return err_set(err, ERR_NOMEM, "%s: out of memory for its columns", columns->path);
}

/* The name of column k: as the first row has it, or its number. */
static struct csv_field name_of(const struct csv_columns *columns, const struct csv_row *first,
                                size_t k, char number[24])
{
    if (columns->spec->header && first->field[k].n > 0)
        return first->field[k];
    int n = snprintf(number, 24, "%zu", k + 1);
    return (struct csv_field){number, (size_t)n};
}

/* "there is no column `x`; they are a, b, c" */
static int refuse_missing(const struct csv_columns *columns, const char *name,
                          const struct csv_row *first, struct err *err)
{
    char names[160], quoted[160], number[24];
    size_t used = 0;
    for (size_t k = 0; k < columns->n && used + 1 < sizeof names; k++) {
        struct csv_field field = name_of(columns, first, k, number);
        int n = snprintf(names + used, sizeof names - used, "%s%.*s", k > 0 ? ", " : "",
                         field.n < sizeof names ? (int)field.n : (int)sizeof names, field.text);
        used += (size_t)n;
    }
    refuse_name(columns, name, "there is no column", err);
    char columns_are[200];
    snprintf(columns_are, sizeof columns_are, "they are %s",
             source_quote(names, quoted, sizeof quoted));
    err_remedy(err, columns_are);
    return ERR_INPUT;
}

static int sort_categories(const struct csv_columns *columns, struct csv_column *column,
                           struct err *err)
{
    const Paceline__Data__Column *of = column->of;
    if (!make_names(&column->categories, of->n_categories))
        return refuse_memory(columns, err);
    for (size_t i = 0; i < of->n_categories; i++)
        add_name(&column->categories, of->categories[i]);
    const char *twice = sort_names(&column->categories);
    return twice ? refuse_name(columns, twice, "there are two categories", err) : OK;
}

/* Find the columns of the file in the list. */
static int match_columns(struct csv_columns *columns, const struct csv_row *first,
                         const struct csv_names *listed, struct err *err)
{
    int rc = OK;
    for (size_t k = 0; rc == OK && k < columns->n; k++) {
        char number[24];
        struct csv_column *column = &columns->at[k];
        const struct csv_name *name = find_name(listed, name_of(columns, first, k, number));
        if (!name)
            continue;
        column->of = columns->spec->column[name->place];
        column->input = name->place;
        if (csv_is_label(columns->spec, name->text))
            columns->label = k;
        rc = sort_categories(columns, column, err);
    }
    return rc;
}

/* From places in the list to places among the inputs; each name of the list is in the file once. */
static int place_inputs(struct csv_columns *columns, const struct csv_row *first, struct err *err)
{
    const Paceline__Data__Csv *spec = columns->spec;
    struct csv_column **by_place = calloc(spec->n_column + 1, sizeof(struct csv_column *));
    int rc = by_place ? OK : refuse_memory(columns, err);
    for (size_t k = 0; rc == OK && k < columns->n; k++) {
        struct csv_column *column = &columns->at[k];
        if (column->of && by_place[column->input])
            rc = refuse_name(columns, column->of->name, "there are two columns", err);
        else if (column->of)
            by_place[column->input] = column;
    }
    for (size_t i = 0; rc == OK && i < spec->n_column; i++) {
        if (!by_place[i]) {
            rc = refuse_missing(columns, spec->column[i]->name, first, err);
        } else if (by_place[i] != &columns->at[columns->label] &&
                   !csv_is_target(spec, spec->column[i]->name)) {
            by_place[i]->input = columns->inputs;
            columns->inputs += csv_is_number(spec->column[i]) ? 1 : spec->column[i]->n_categories;
        }
    }
    free(by_place);
    return rc;
}

/* Targets are in the order in which the job names them. */
static int place_targets(struct csv_columns *columns, const struct csv_row *first, struct err *err)
{
    const Paceline__Data__Csv *spec = columns->spec;
    for (size_t i = 0; i < spec->n_target; i++) {
        struct csv_column *column = NULL;
        for (size_t k = 0; k < columns->n && !column; k++)
            if (columns->at[k].of && strcmp(columns->at[k].of->name, spec->target[i]) == 0)
                column = &columns->at[k];
        if (!column)
            return refuse_missing(columns, spec->target[i], first, err);
        if (column == &columns->at[columns->label] || !csv_is_number(column->of))
            return refuse_name(columns, spec->target[i], "no number that could be a target is",
                               err);
        column->input = columns->inputs + columns->targets++;
    }
    return OK;
}

int csv_columns_init(struct csv_columns *columns, const char *path, const Paceline__Data__Csv *spec,
                     const struct csv_row *first, struct err *err)
{
    struct csv_names listed = {0};
    *columns = (struct csv_columns){.path = path, .spec = spec, .n = first->fields};
    columns->label = columns->n;
    if (first->fields > CSV_COLUMNS_MAX)
        return err_set(err, ERR_INPUT, "%s: %zu columns; %d can be read", path, first->fields,
                       CSV_COLUMNS_MAX);
    columns->at = calloc(columns->n + 1, sizeof *columns->at); /* one more, where no label is */
    if (!columns->at || !make_names(&listed, spec->n_column)) {
        free(listed.at);
        return refuse_memory(columns, err);
    }
    for (size_t i = 0; i < spec->n_column; i++)
        add_name(&listed, spec->column[i]->name);
    const char *twice = sort_names(&listed);
    int rc = twice ? refuse_name(columns, twice, "there are two columns", err)
                   : match_columns(columns, first, &listed, err);
    free(listed.at);
    if (rc == OK && columns->label == columns->n && spec->label && *spec->label)
        rc = refuse_missing(columns, spec->label, first, err);
    if (rc == OK)
        rc = place_inputs(columns, first, err);
    if (rc == OK)
        rc = place_targets(columns, first, err);
    if (rc == OK && columns->inputs == 0)
        rc =
            err_set(err, ERR_INPUT,
                    "%s: there is no column but the label's; another delimiter may be right", path);
    return rc;
}

void csv_columns_release(struct csv_columns *columns)
{
    for (size_t k = 0; columns->at && k < columns->n; k++)
        free(columns->at[k].categories.at);
    free(columns->at);
    columns->at = NULL;
}

/* ---- rows ---- */

static int refuse_value(const struct csv_columns *columns, const struct csv_row *row, size_t k,
                        uint64_t line, const char *why, struct err *err)
{
    char text[48], value[64], name[64];
    struct csv_field field = row->field[k];
    snprintf(text, sizeof text, "%.*s", field.n < sizeof text ? (int)field.n : (int)sizeof text - 1,
             field.text);
    return err_set(err, ERR_INPUT, "%s: line %llu, column %zu (%s): `%s` %s", columns->path,
                   (unsigned long long)line, k + 1,
                   source_quote(columns->at[k].of->name, name, sizeof name),
                   source_quote(text, value, sizeof value), why);
}

static int refuse_empty(const struct csv_columns *columns, size_t k, uint64_t line, struct err *err)
{
    char name[64];
    return err_set(err, ERR_INPUT,
                   "%s: line %llu, column %zu (%s): is empty; `missing: 0` would take 0 for it",
                   columns->path, (unsigned long long)line, k + 1,
                   source_quote(columns->at[k].of->name, name, sizeof name));
}

static int take_label(const struct csv_columns *columns, const struct csv_row *row, uint64_t line,
                      uint32_t *label, struct err *err)
{
    size_t k = columns->label;
    *label = 0;
    if (k == columns->n)
        return OK;
    const struct csv_column *column = &columns->at[k];
    if (csv_is_number(column->of))
        return csv_label(row->field[k], label)
                   ? OK
                   : refuse_value(columns, row, k, line, "is no class, a whole number from 0", err);
    const struct csv_name *name = find_name(&column->categories, row->field[k]);
    if (!name)
        return refuse_value(columns, row, k, line, "is none of its categories", err);
    *label = (uint32_t)name->place;
    return OK;
}

static int take_number(const struct csv_columns *columns, const struct csv_row *row, size_t k,
                       uint64_t line, float *x, struct err *err)
{
    const struct csv_column *column = &columns->at[k];
    float v = columns->spec->missing;
    bool empty = row->field[k].n == 0;
    if (empty && !columns->spec->has_missing)
        return refuse_empty(columns, k, line, err);
    if (!empty && !csv_number(row->field[k], &v))
        return refuse_value(columns, row, k, line, "is not a number", err);
    if (x)
        x[column->input] = (v - column->of->mean) * (column->of->has_scale ? column->of->scale : 1);
    return OK;
}

static int take_category(const struct csv_columns *columns, const struct csv_row *row, size_t k,
                         uint64_t line, float *x, struct err *err)
{
    const struct csv_column *column = &columns->at[k];
    const struct csv_name *name = find_name(&column->categories, row->field[k]);
    bool empty = row->field[k].n == 0;
    if (!name && empty && !columns->spec->has_missing)
        return refuse_empty(columns, k, line, err);
    if (!name && !empty)
        return refuse_value(columns, row, k, line, "is none of its categories", err);
    for (size_t i = 0; x && i < column->categories.n; i++)
        x[column->input + i] = name && name->place == i ? 1 : 0;
    return OK;
}

int csv_columns_take(const struct csv_columns *columns, const struct csv_row *row, uint64_t line,
                     float *x, uint32_t *label, struct err *err)
{
    if (row->wrong)
        return err_set(err, ERR_INPUT, "%s: line %llu: %s", columns->path, (unsigned long long)line,
                       row->wrong);
    if (row->fields != columns->n)
        return err_set(err, ERR_INPUT, "%s: line %llu: %zu fields, and the first row has %zu",
                       columns->path, (unsigned long long)line, row->fields, columns->n);
    int rc = take_label(columns, row, line, label, err);
    for (size_t k = 0; rc == OK && k < columns->n; k++) {
        const Paceline__Data__Column *of = columns->at[k].of;
        if (of && k != columns->label)
            rc = csv_is_number(of) ? take_number(columns, row, k, line, x, err)
                                   : take_category(columns, row, k, line, x, err);
    }
    return rc;
}
