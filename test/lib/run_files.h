/* The files of a run's directory, as tests read them: events, and models. */
#ifndef PL_LIB_RUN_FILES_H
#define PL_LIB_RUN_FILES_H

#include "base/file.h"
#include "model/safetensors.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Counts the events of a kind, among those with `key` = `value` if a key is given, in the complete
 * lines of the file, which may still grow. Stops at the nth (from 0), and hands it over. */
static inline int run_scan(const char *dir, const char *kind, const char *key, const char *value,
                           int nth, cJSON **found)
{
    char path[512], line[4096];
    int n = 0;
    snprintf(path, sizeof path, "%s/events.jsonl", dir);
    FILE *f = fopen(path, "r");
    *found = NULL;
    while (f && !*found && fgets(line, sizeof line, f) && strchr(line, '\n')) {
        if (!strstr(line, kind))
            continue;
        cJSON *event = cJSON_Parse(line);
        const char *k = cJSON_GetStringValue(cJSON_GetObjectItem(event, "kind"));
        const char *v = key ? cJSON_GetStringValue(cJSON_GetObjectItem(event, key)) : NULL;
        bool fits = k && strcmp(k, kind) == 0 && (!key || (v && strcmp(v, value) == 0));
        if (fits && n++ == nth)
            *found = event;
        else
            cJSON_Delete(event);
    }
    if (f)
        fclose(f);
    return n;
}

/* The nth event; NULL: there are fewer. */
static inline cJSON *run_event(const char *dir, const char *kind, const char *key,
                               const char *value, int nth)
{
    cJSON *found;
    run_scan(dir, kind, key, value, nth, &found);
    return found;
}

static inline int run_count(const char *dir, const char *kind, const char *key, const char *value)
{
    cJSON *none;
    return run_scan(dir, kind, key, value, INT_MAX, &none);
}

/* Member events of changes of the membership: all but those of leaves, which depend on the speed of
 * the machine. */
static inline int run_changes(const char *dir)
{
    return run_count(dir, "member", NULL, NULL) - run_count(dir, "member", "what", "leaf") -
           run_count(dir, "member", "what", "participates");
}

/* A number of the nth event of a kind; NAN when there is none. */
static inline double run_number(const char *dir, const char *kind, int nth, const char *key)
{
    cJSON *event = run_event(dir, kind, NULL, NULL, nth);
    const cJSON *item = cJSON_GetObjectItem(event, key);
    double value = cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
    cJSON_Delete(event);
    return value;
}

/* How many checkpoints the directory holds; the paths of the newest three, oldest first. */
static inline int run_checkpoints(const char *dir, char path[3][512])
{
    char command[512];
    int n = 0;
    snprintf(command, sizeof command, "ls '%s/checkpoint' 2>/dev/null | grep 'rs$' | sort", dir);
    FILE *list = popen(command, "r");
    assert_non_null(list);
    for (char name[128]; fgets(name, sizeof name, list); n++) {
        name[strcspn(name, "\n")] = '\0';
        if (n >= 3)
            memmove(path[0], path[1], 2 * sizeof path[0]);
        snprintf(path[n < 3 ? n : 2], sizeof path[0], "%s/checkpoint/%s", dir, name);
    }
    pclose(list);
    return n;
}

static inline void run_model(const char *dir, const char *name, struct safetensors *out)
{
    char path[512];
    struct file_bytes bytes;
    struct err err = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (file_read(path, (size_t)1 << 30, &bytes, &err) != OK ||
        safetensors_parse(path, bytes.data, bytes.len, true, out, &err) != OK)
        fail_msg("%s", err.text);
    file_release(&bytes);
    assert_true(out->n > 0);
}

/* Is every number of that model finite? */
static inline bool run_is_finite(const char *dir, const char *name)
{
    struct safetensors model;
    bool finite = true;
    run_model(dir, name, &model);
    for (size_t i = 0; i < model.n; i++)
        for (size_t k = 0; k < model.item[i].count; k++)
            finite &= isfinite(model.item[i].data[k]) != 0;
    safetensors_release(&model);
    return finite;
}

/* max |a − b| / max |b| over all tensors of the two runs' final models, which have the same. */
static inline double run_difference(const char *dir_a, const char *dir_b)
{
    struct safetensors a, b;
    double apart = 0, largest = 0;
    run_model(dir_a, "final.safetensors", &a);
    run_model(dir_b, "final.safetensors", &b);
    assert_int_equal(a.n, b.n);
    for (size_t i = 0; i < b.n; i++) {
        struct shape shape;
        const float *x = safetensors_find(&a, b.item[i].name, &shape);
        assert_non_null(x);
        assert_true(shape_equal(&shape, &b.item[i].shape));
        for (size_t k = 0; k < b.item[i].count; k++) {
            double value = (double)b.item[i].data[k];
            apart = fmax(apart, fabs((double)x[k] - value));
            largest = fmax(largest, fabs(value));
        }
    }
    safetensors_release(&a);
    safetensors_release(&b);
    assert_true(largest > 0);
    return apart / largest;
}

/* Every tensor of the two runs' `name` has the same bits. */
static inline bool run_same_bits(const char *dir_a, const char *dir_b, const char *name)
{
    struct safetensors a, b;
    run_model(dir_a, name, &a);
    run_model(dir_b, name, &b);
    bool same = a.n == b.n;
    for (size_t i = 0; same && i < b.n; i++) {
        struct shape shape;
        const float *x = safetensors_find(&a, b.item[i].name, &shape);
        same = x && shape_equal(&shape, &b.item[i].shape) &&
               memcmp(x, b.item[i].data, b.item[i].count * sizeof(float)) == 0;
    }
    safetensors_release(&a);
    safetensors_release(&b);
    return same;
}

#endif
