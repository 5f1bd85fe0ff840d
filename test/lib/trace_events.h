/* A trace file as tests of whole runs judge it. */
#ifndef PL_LIB_TRACE_EVENTS_H
#define PL_LIB_TRACE_EVENTS_H

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TRACE_DRIVER = 1, TRACE_WORKER = 2 }; /* process numbers; workers' go up from there */

/* A span, in ns: a trace has whole ones. */
struct trace_event {
    const char *name, *row; /* of the span, and of the row it stands in */
    int pid;
    int64_t start, end;
    const cJSON *args;
};

struct trace_events {
    char *text;
    size_t len;
    cJSON *all;
    struct trace_event *at;
    size_t count;
};

static inline int64_t trace_ns(const cJSON *event, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(event, key);
    assert_true(cJSON_IsNumber(item));
    double ns = item->valuedouble * 1e3;
    assert_true(ns >= 0 && ns < 9e15);
    return (int64_t)(ns + 0.5);
}

static inline int trace_int(const cJSON *event, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(event, key);
    assert_true(cJSON_IsNumber(item));
    return item->valueint;
}

/* The name that the trace gives to a process or to a row of it, before it uses it. */
static inline const char *trace_name(const cJSON *all, const cJSON *before, const char *what,
                                     int pid, int tid)
{
    for (const cJSON *e = all->child; e && e != before; e = e->next)
        if (strcmp(cJSON_GetObjectItem(e, "name")->valuestring, what) == 0 &&
            trace_int(e, "pid") == pid && trace_int(e, "tid") == tid)
            return cJSON_GetObjectItem(cJSON_GetObjectItem(e, "args"), "name")->valuestring;
    fail_msg("no %s for %d, %d", what, pid, tid);
    return NULL;
}

static inline void trace_read(const char *path, struct trace_events *t)
{
    *t = (struct trace_events){0};
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s: cannot be opened", path);
    FILE *copy = open_memstream(&t->text, &t->len);
    for (int c; (c = fgetc(f)) != EOF;)
        fputc(c, copy);
    fclose(f);
    fclose(copy);
    const char *end = NULL;
    t->all = cJSON_ParseWithOpts(t->text, &end, true);
    if (!t->all || !cJSON_IsArray(t->all))
        fail_msg("%s: not an array of JSON near %.40s", path, end ? end : "");
    t->at = calloc((size_t)cJSON_GetArraySize(t->all) + 1, sizeof *t->at);
    assert_non_null(t->at);
    for (const cJSON *e = t->all->child; e; e = e->next) {
        if (strcmp(cJSON_GetObjectItem(e, "ph")->valuestring, "X") != 0)
            continue;
        struct trace_event *s = &t->at[t->count++];
        s->name = cJSON_GetObjectItem(e, "name")->valuestring;
        s->pid = trace_int(e, "pid");
        s->row = trace_name(t->all, e, "thread_name", s->pid, trace_int(e, "tid"));
        s->start = trace_ns(e, "ts");
        s->end = s->start + trace_ns(e, "dur");
        s->args = cJSON_GetObjectItem(e, "args");
        assert_true(s->end > s->start);
    }
}

static inline void trace_release(struct trace_events *t)
{
    cJSON_Delete(t->all);
    free(t->at);
    free(t->text);
}

/* How many spans of that name a node has (pid 0: all nodes), and their length in all. */
static inline size_t trace_count(const struct trace_events *t, int pid, const char *name,
                                 int64_t *total)
{
    size_t n = 0;
    int64_t sum = 0;
    for (size_t i = 0; i < t->count; i++)
        if ((pid == 0 || t->at[i].pid == pid) && strcmp(t->at[i].name, name) == 0) {
            n++;
            sum += t->at[i].end - t->at[i].start;
        }
    if (total)
        *total = sum;
    return n;
}

static int trace_by_row(const void *a, const void *b)
{
    const struct trace_event *x = a, *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    int rows = strcmp(x->row, y->row);
    if (rows != 0)
        return rows;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->end > y->end ? -1 : x->end < y->end;
}

/* The viewers' condition: spans of one row lie inside one another or are disjoint. Sorts them. */
static inline void trace_nests(struct trace_events *t)
{
    enum { DEEP = 8 };
    const struct trace_event *open[DEEP];
    size_t depth = 0;
    qsort(t->at, t->count, sizeof *t->at, trace_by_row);
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *s = &t->at[i];
        while (depth > 0 &&
               (open[depth - 1]->pid != s->pid || strcmp(open[depth - 1]->row, s->row) != 0 ||
                open[depth - 1]->end <= s->start))
            depth--;
        if (depth > 0 && s->end > open[depth - 1]->end)
            fail_msg("node %d, %s: %s at %lld crosses the end of %s", s->pid, s->row, s->name,
                     (long long)s->start, open[depth - 1]->name);
        assert_true(depth < DEEP);
        open[depth++] = s;
    }
}

#endif
