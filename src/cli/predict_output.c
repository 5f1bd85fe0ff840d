#include "cli/predict_output.h"

#include "cli/cli.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- keeping ---- */

/* Does the data know a name for each class, and for no more? */
static bool data_names(const pl_data *data, size_t classes)
{
    return classes <= UINT32_MAX && pl_data_class_name(data, (uint32_t)(classes - 1)) &&
           !pl_data_class_name(data, (uint32_t)classes);
}

static int find_names(struct predictions *p, pl_engine *engine, const char *file, const pl_job *job)
{
    size_t classes = p->classes.count;
    int rc = file  ? pl_names_load(engine, file, &p->names)
             : job ? pl_names_of_job(job, &p->names)
                   : PL_OK;
    if (rc != PL_OK)
        return rc;
    size_t count = p->names ? pl_names_count(p->names) : 0;
    if (file && count != classes) {
        fprintf(stderr, "paceline: %s: %zu names, and the net knows %zu classes\n", file, count,
                classes);
        return EXIT_BAD_INPUT;
    }
    if (count == 0 || count > classes) { /* of other classes than the net's */
        pl_names_free(p->names);
        p->names = NULL;
    }
    p->named = p->names || data_names(p->data, classes);
    return PL_OK;
}

int predictions_begin(struct predictions *p, pl_engine *engine, size_t top, const pl_data *data,
                      const char *names, const pl_job *job, bool targets)
{
    size_t rows = p->records * p->classes.steps;
    p->data = data;
    p->top = top < p->classes.count ? top : p->classes.count;
    p->at = calloc(rows, p->top * sizeof *p->at);
    p->score = calloc(rows, p->top * sizeof *p->score);
    p->known = targets ? calloc(rows, sizeof *p->known) : NULL;
    if (p->at && p->score && (p->known || !targets))
        return find_names(p, engine, names, job);
    fprintf(stderr, "paceline: out of memory for %zu predictions\n", p->records);
    return EXIT_FAILED;
}

void predictions_end(struct predictions *p)
{
    pl_names_free(p->names);
    free(p->at);
    free(p->score);
    free(p->known);
}

void predictions_take(struct predictions *p, size_t i, const float *score)
{
    uint32_t *at = p->at + i * p->top;
    float *best = p->score + i * p->top;
    size_t have = 0;
    for (size_t c = 0; c < p->classes.count; c++) {
        size_t k = have;
        while (k > 0 && (score[c] > best[k - 1] || isnan(best[k - 1])))
            k--;
        if (k == p->top)
            continue;
        have += have < p->top;
        memmove(at + k + 1, at + k, (have - 1 - k) * sizeof *at);
        memmove(best + k + 1, best + k, (have - 1 - k) * sizeof *best);
        at[k] = (uint32_t)c;
        best[k] = score[c];
    }
}

/* ---- printing ---- */

static const char *name_of(const struct predictions *p, uint32_t class)
{
    if (!p->named)
        return NULL;
    return p->names ? pl_names_at(p->names, class) : pl_data_class_name(p->data, class);
}

/* The name of a record: its file, or its number. */
static const char *record_text(const pl_data_record *record, size_t i, char number[24])
{
    snprintf(number, 24, "%zu", i);
    return record->name[0] ? record->name : number;
}

/* How wide columns have to be. */
static int measure_columns(const struct predictions *p, int *record_width, int *name_width)
{
    pl_data_record record;
    char number[24];
    *record_width = 6;
    *name_width = 4;
    for (size_t i = 0; i < p->records; i++) {
        int rc = pl_data_record_at(p->data, i, &record);
        if (rc != PL_OK)
            return rc;
        int length = (int)strlen(record_text(&record, i, number));
        *record_width = length > *record_width ? length : *record_width;
    }
    for (size_t k = 0; k < p->records * p->classes.steps * p->top && p->named; k++) {
        const char *name = name_of(p, p->at[k]);
        int length = name ? (int)strlen(name) : 0;
        *name_width = length > *name_width ? length : *name_width;
    }
    return PL_OK;
}

/* The class that the data has for a step, or for the whole record; false: none. */
static bool find_known(const struct predictions *p, const pl_data_record *record, size_t row,
                       uint32_t *known)
{
    *known = p->known ? p->known[row] : record->label;
    return p->known || record->has_label;
}

static bool has_steps(const struct predictions *p)
{
    return p->classes.steps > 1;
}

static void print_heading(const struct predictions *p, bool known, int wide, int named)
{
    printf("%-*s  %s%s%4s  %6s  %s%*s%s\n", wide, "record", has_steps(p) ? " step  " : "",
           known ? " label  " : "", "rank", "class", p->named ? "name" : "",
           p->named ? named - 2 : 0, "", p->classes.probabilities ? "probability" : "score");
}

/* The columns before the classes of a row: for the first one its record, step and label. */
static void print_place(const struct predictions *p, const pl_data_record *record, size_t row,
                        bool first, int wide)
{
    size_t i = row / p->classes.steps, step = row % p->classes.steps;
    char number[24];
    uint32_t known;
    bool is_known = find_known(p, record, row, &known);
    printf("%-*s  ", wide, first && step == 0 ? record_text(record, i, number) : "");
    if (has_steps(p) && first)
        printf("%5zu  ", step);
    else if (has_steps(p))
        printf("%5s  ", "");
    if (is_known && first)
        printf("%6" PRIu32 "  ", known);
    else if (is_known)
        printf("%6s  ", "");
}

static void print_row(const struct predictions *p, const pl_data_record *record, size_t row,
                      int wide, int named)
{
    for (size_t k = 0; k < p->top; k++) {
        uint32_t class = p->at[row * p->top + k];
        const char *name = name_of(p, class);
        print_place(p, record, row, k == 0, wide);
        printf("%4zu  %6" PRIu32 "  ", k + 1, class);
        if (p->named)
            printf("%-*s  ", named, name ? name : "");
        if (p->classes.probabilities)
            printf("%.2f %%\n", 100 * (double)p->score[row * p->top + k]);
        else
            printf("%g\n", (double)p->score[row * p->top + k]);
    }
}

int predictions_table(const struct predictions *p)
{
    pl_data_record record = {0};
    size_t steps = p->classes.steps;
    uint32_t known;
    int wide, named, rc = measure_columns(p, &wide, &named);
    if (rc == PL_OK)
        rc = pl_data_record_at(p->data, 0, &record);
    if (rc == PL_OK)
        print_heading(p, find_known(p, &record, 0, &known), wide, named);
    for (size_t i = 0; rc == PL_OK && i < p->records; i++) {
        rc = pl_data_record_at(p->data, i, &record);
        for (size_t step = 0; rc == PL_OK && step < steps; step++)
            print_row(p, &record, i * steps + step, wide, named);
    }
    return rc;
}

/* A float with all its digits. */
static void add_score(cJSON *object, const char *name, float score)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", (double)score);
    if (isfinite(score))
        cJSON_AddRawToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}

static void print_object(const struct predictions *p, size_t row, const pl_data_record *record)
{
    cJSON *object = cJSON_CreateObject();
    uint32_t known;
    cJSON_AddNumberToObject(object, "record", (double)(row / p->classes.steps));
    if (record->name[0])
        cJSON_AddStringToObject(object, "name", record->name);
    if (has_steps(p))
        cJSON_AddNumberToObject(object, "step", (double)(row % p->classes.steps));
    if (find_known(p, record, row, &known))
        cJSON_AddNumberToObject(object, "label", known);
    cJSON *list = cJSON_AddArrayToObject(object, "classes");
    for (size_t k = 0; k < p->top; k++) {
        uint32_t class = p->at[row * p->top + k];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "class", class);
        if (name_of(p, class))
            cJSON_AddStringToObject(item, "name", name_of(p, class));
        add_score(item, p->classes.probabilities ? "probability" : "score",
                  p->score[row * p->top + k]);
        cJSON_AddItemToArray(list, item);
    }
    char *text = cJSON_PrintUnformatted(object); /* NULL, as all above, where memory ran out */
    printf("%s\n", text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(object);
}

int predictions_json(const struct predictions *p)
{
    int rc = PL_OK;
    for (size_t i = 0; rc == PL_OK && i < p->records; i++) {
        pl_data_record record;
        rc = pl_data_record_at(p->data, i, &record);
        for (size_t step = 0; rc == PL_OK && step < p->classes.steps; step++)
            print_object(p, i * p->classes.steps + step, &record);
    }
    return rc;
}
