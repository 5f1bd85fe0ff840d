#include "cli/predict_values.h"

#include "cli/cli.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of all records, and of a batch of them. */
struct values {
    const struct predict_values *p;
    size_t each;       /* floats of a record as it is read */
    bool is_known;     /* a record has its targets, */
    size_t from;       /* from this float on */
    float *record, *y; /* a batch's: as they are read, and the predictions */
    double *squares;   /* of each target, the squared errors added up */
};

static void name_target(const struct predict_values *p, size_t k, char out[128])
{
    const char *name = pl_data_target(p->data, p->job, k);
    if (name)
        snprintf(out, 128, "%s", name);
    else
        snprintf(out, 128, "%s[%zu]", p->classes.target, k);
}

static int prepare_values(struct values *v)
{
    const struct predict_values *p = v->p;
    uint32_t shape[3];
    size_t count;
    int rc = pl_data_shape(p->data, shape);
    if (rc != PL_OK)
        return rc;
    v->each = (size_t)shape[0] * shape[1] * shape[2];
    v->is_known = pl_data_field(p->data, p->classes.target, &v->from, &count) == PL_OK &&
                  count == p->classes.count;
    v->record = malloc(p->batch * v->each * sizeof *v->record);
    v->y = malloc(p->batch * p->classes.count * sizeof *v->y);
    v->squares = calloc(p->classes.count, sizeof *v->squares);
    if (v->record && v->y && v->squares)
        return PL_OK;
    fprintf(stderr, "paceline: out of memory\n");
    return EXIT_FAILED;
}

/* ---- printing ---- */

static void add_number(cJSON *object, const char *name, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    if (isfinite(value))
        cJSON_AddRawToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}

static void print_object(cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object); /* NULL, as all before, where memory ran out */
    printf("%s\n", text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(object);
}

static void print_json(const struct values *v, size_t i, const pl_data_record *record,
                       const float *y, const float *targets)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "record", (double)i);
    if (record->name[0])
        cJSON_AddStringToObject(object, "name", record->name);
    if (record->has_label)
        cJSON_AddNumberToObject(object, "label", record->label);
    cJSON *list = cJSON_AddArrayToObject(object, "targets");
    for (size_t k = 0; k < v->p->classes.count; k++) {
        char name[128];
        name_target(v->p, k, name);
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", name);
        add_number(item, "predicted", (double)y[k]);
        if (targets)
            add_number(item, "known", (double)targets[k]);
        cJSON_AddItemToArray(list, item);
    }
    print_object(object);
}

static void print_head(const struct values *v)
{
    if (!v->p->json)
        printf("%-10s  %-20s  %12s%s\n", "record", "target", "predicted",
               v->is_known ? "         known" : "");
}

static void print_rows(const struct values *v, size_t i, const pl_data_record *record,
                       const float *y, const float *targets)
{
    char number[24], name[128];
    snprintf(number, sizeof number, "%zu", i);
    for (size_t k = 0; k < v->p->classes.count; k++) {
        name_target(v->p, k, name);
        printf("%-10s  %-20s  %12g",
               k > 0             ? ""
               : record->name[0] ? record->name
                                 : number,
               name, (double)y[k]);
        if (targets)
            printf("  %12g", (double)targets[k]);
        printf("\n");
    }
}

static void print_errors(const struct values *v)
{
    const struct predict_values *p = v->p;
    char name[128];
    cJSON *object = p->json ? cJSON_CreateObject() : NULL;
    cJSON_AddNumberToObject(object, "records", (double)p->records);
    cJSON *errors = cJSON_AddObjectToObject(object, "mean_squared_error");
    for (size_t k = 0; k < p->classes.count; k++) {
        double error = v->squares[k] / (double)p->records;
        name_target(p, k, name);
        if (p->json)
            add_number(errors, name, error);
        else
            printf("mean squared error of %s: %g\n", name, error);
    }
    if (p->json)
        print_object(object);
}

/* ---- predicting ---- */

static int take_record(struct values *v, size_t i, size_t k)
{
    const struct predict_values *p = v->p;
    const float *y = v->y + k * p->classes.count;
    const float *targets = v->is_known ? v->record + k * v->each + v->from : NULL;
    pl_data_record record;
    int rc = pl_data_record_at(p->data, i + k, &record);
    if (rc != PL_OK)
        return rc;
    for (size_t t = 0; targets && t < p->classes.count; t++)
        v->squares[t] += pow((double)y[t] - (double)targets[t], 2);
    if (p->json)
        print_json(v, i + k, &record, y, targets);
    else
        print_rows(v, i + k, &record, y, targets);
    return PL_OK;
}

int predict_values(const struct predict_values *p)
{
    struct values v = {.p = p};
    int rc = prepare_values(&v);
    if (rc == PL_OK)
        print_head(&v);
    for (size_t i = 0; rc == PL_OK && i < p->records; i += p->batch) {
        size_t n = p->records - i < p->batch ? p->records - i : p->batch;
        rc = pl_net_read(p->net, p->data, i, n, v.record, p->batch * v.each);
        if (rc == PL_OK)
            rc = pl_net_predict(p->net, v.record, n, v.y, p->batch * p->classes.count);
        for (size_t k = 0; rc == PL_OK && k < n; k++)
            rc = take_record(&v, i, k);
    }
    if (rc == PL_OK && v.is_known)
        print_errors(&v);
    free(v.record);
    free(v.y);
    free(v.squares);
    return rc;
}
