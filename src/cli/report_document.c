#include "cli/report_document.h"

#include "cli/json_value.h"
#include "cli/json_write.h"
#include "cli/report_facts.h"
#include "cli/trace_window.h"
#include "paceline/engine.h"

#include <inttypes.h>
#include <string.h>

enum { COLUMNS = 1500 };

/* ---- curves, marks, waits ---- */

static void put_column(FILE *out, const char *key, const struct run_point *point, size_t n,
                       size_t offset)
{
    json_put_key(out, key);
    for (size_t i = 0; i < n; i++) {
        double value;
        memcpy(&value, (const char *)&point[i] + offset, sizeof value);
        fputc(i > 0 ? ',' : '[', out);
        json_put_number(out, value);
    }
    fputs(n > 0 ? "]" : "[]", out);
}

static void put_points(FILE *out, const char *key, const struct run_point *point, size_t n)
{
    json_put_key(out, key);
    fputc('{', out);
    put_column(out, "t", point, n, offsetof(struct run_point, t));
    fputc(',', out);
    put_column(out, "epoch", point, n, offsetof(struct run_point, epoch));
    fputc(',', out);
    put_column(out, "samples", point, n, offsetof(struct run_point, samples));
    fputc(',', out);
    put_column(out, "value", point, n, offsetof(struct run_point, value));
    fputc('}', out);
}

/* The points from `from` on, that are placed; all of them once the run has ended. Returns how many
 * points the reader then has. */
static size_t put_new_points(FILE *out, const struct run_summary *s, enum run_curve curve,
                             size_t from)
{
    const struct run_series *series = &s->curve[curve];
    size_t to = s->end ? series->count : series->placed;
    from = from < to ? from : to;
    const struct run_point *first = from < to ? series->point + from : NULL;
    put_points(out, run_curve_keys[curve], first, to - from);
    return to;
}

static bool put_reduced(FILE *out, const struct run_summary *s, enum run_curve curve)
{
    struct run_series copy;
    if (!run_series_copy(&s->curve[curve], &copy))
        return false;
    run_series_reduce(&copy, COLUMNS);
    put_points(out, run_curve_keys[curve], copy.point, copy.count);
    run_series_release(&copy);
    return true;
}

static void put_marks(FILE *out, const struct run_summary *s)
{
    struct json_list list = {out, true};
    fputs("\"marks\":[", out);
    for (size_t i = 0; i < s->marks; i++) {
        const struct run_mark *m = &s->mark[i];
        const double number[] = {m->at.t, m->at.epoch, m->at.samples, m->at.value};
        json_next(&list);
        fputc('[', out);
        for (size_t k = 0; k < sizeof number / sizeof *number; k++) {
            json_put_number(out, number[k]);
            fputc(',', out);
        }
        fprintf(out, "\"%s\",", run_mark_names[m->kind]);
        json_put_text(out, m->text);
        fputc(']', out);
    }
    fputc(']', out);
}

/* [node, exchanges, seconds, exchanges of each cause...]; the driver is node -1. */
static void put_waited(FILE *out, const struct run_summary *s)
{
    struct json_list list = {out, true};
    fputs("\"waited\":[", out);
    for (uint32_t i = 0; i <= s->nodes; i++) {
        if (s->waited[i].count == 0)
            continue;
        json_next(&list);
        fprintf(out, "[%d,%" PRIu64 ",", (int)i - 1, s->waited[i].count);
        json_put_number(out, s->waited[i].seconds);
        for (int k = 0; k < CAUSES; k++)
            fprintf(out, ",%" PRIu64, s->waited[i].by[k]);
        fputc(']', out);
    }
    fputc(']', out);
}

/* [seconds of the run, exchange, sentence], the longest wait first. */
static void put_waits(FILE *out, const struct run_summary *s)
{
    struct json_list list = {out, true};
    fputs("\"waits\":[", out);
    for (size_t i = 0; i < s->waits; i++) {
        json_next(&list);
        fputc('[', out);
        json_put_number(out, s->wait[i].t);
        fprintf(out, ",%" PRIu64 ",", s->wait[i].exchange);
        json_put_text(out, s->wait[i].text);
        fputc(']', out);
    }
    fputc(']', out);
}

/* ---- the trace ---- */

static const char *label_of(int purpose)
{
    return trace_purpose_labels[purpose];
}

/* Is it the first purpose with its label? */
static bool is_first(int purpose)
{
    for (int i = 0; i < purpose; i++)
        if (strcmp(label_of(i), label_of(purpose)) == 0)
            return false;
    return true;
}

static double seconds_of(const struct trace_summary *trace, size_t node, int purpose)
{
    double sum = 0;
    for (int i = 0; i < PURPOSES; i++)
        if (strcmp(label_of(i), label_of(purpose)) == 0)
            sum += trace->seconds[node][i];
    return sum;
}

static void put_purposes(FILE *out, const struct trace_summary *trace)
{
    struct json_list list = {out, true};
    fputs("\"purposes\":[", out);
    for (int i = 0; i < PURPOSES; i++) {
        if (!is_first(i))
            continue;
        json_next(&list);
        json_put_text(out, label_of(i));
    }
    fputs("],\"nodes\":[", out);
    list.first = true;
    for (size_t node = 0; node < trace->nodes; node++) {
        if (!trace->there[node])
            continue;
        json_next(&list);
        fprintf(out, "[%d", (int)node - 1);
        for (int i = 0; i < PURPOSES; i++) {
            if (!is_first(i))
                continue;
            fputc(',', out);
            json_put_number(out, seconds_of(trace, node, i));
        }
        fputc(']', out);
    }
    fputc(']', out);
}

static void put_matrix(FILE *out, const char *key, const struct trace_summary *trace,
                       const double *seconds)
{
    json_put_key(out, key);
    for (size_t i = 0; i < trace->nodes; i++) {
        fputs(i > 0 ? ",[" : "[[", out);
        for (size_t k = 0; k < trace->nodes; k++) {
            fputs(k > 0 ? "," : "", out);
            json_put_number(out, seconds[i * trace->nodes + k]);
        }
        fputc(']', out);
    }
    fputc(']', out);
}

/* [node, row, label, start, end] */
static bool put_window(FILE *out, const struct trace_summary *trace)
{
    struct json_list list = {out, true};
    struct trace_window window;
    if (!trace_window_choose(trace, &window))
        return false;
    fputs("\"window\":[", out);
    json_put_number(out, window.begin);
    fputc(',', out);
    json_put_number(out, window.end);
    fputs("],\"spans\":[", out);
    for (const struct trace_bar *b = window.bar; b < window.bar + window.bars; b++) {
        json_next(&list);
        fprintf(out, "[%d,%u,\"%s\",", (int)b->node - 1, b->row, trace_purpose_drawn[b->purpose]);
        json_put_number(out, b->start);
        fputc(',', out);
        json_put_number(out, b->end);
        fputc(']', out);
    }
    fputs("],\"rows\":[", out);
    list.first = true;
    for (size_t i = 0; i < window.bars; i++) {
        char name[TRACE_ROW_BYTES];
        if (!trace_window_begins_row(&window, i))
            continue;
        trace_window_row(trace, &window.bar[i], name);
        json_next(&list);
        fprintf(out, "[%d,%u,", (int)window.bar[i].node - 1, window.bar[i].row);
        json_put_text(out, name);
        fputc(']', out);
    }
    fputc(']', out);
    trace_window_release(&window);
    return true;
}

/* false: out of memory. */
static bool put_trace(FILE *out, const struct trace_summary *trace)
{
    fputs("\"trace\":", out);
    if (!trace) {
        fputs("null", out);
        return true;
    }
    fputc('{', out);
    put_purposes(out, trace);
    fputc(',', out);
    put_matrix(out, "waits", trace, trace->waited);
    fputc(',', out);
    put_matrix(out, "stood", trace, trace->stood);
    fputc(',', out);
    bool good = put_window(out, trace);
    fputc('}', out);
    return good;
}

/* ---- runs ---- */

/* The parts that a change has whole, since they are small. */
static void put_small(FILE *out, const struct report_run *run)
{
    const struct run_summary *s = run->summary;
    report_facts_put(out, s);
    fputc(',', out);
    run_hosts_put(out, &s->hosts);
    fputc(',', out);
    put_marks(out, s);
    fputc(',', out);
    put_waited(out, s);
    fputc(',', out);
    put_waits(out, s);
    fputs(",\"texts\":[", out);
    for (int i = 0; i < RUN_SAMPLES_MAX && s->sample[i]; i++) {
        fputs(i > 0 ? "," : "", out);
        json_put_text(out, s->sample[i]);
    }
    fprintf(out, "],\"simulated\":%s,\"ended\":%s",
            cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(s->start, "simulated")) ? "true"
                                                                                  : "false",
            s->end ? "true" : "false");
}

static bool put_run(FILE *out, const struct report_run *run, struct report_cursor *cursor)
{
    const struct run_summary *s = run->summary;
    bool good = true;
    fputs("{\"name\":", out);
    json_put_text(out, run->name);
    fputs(",\"directory\":", out);
    json_put_text(out, run->directory);
    fputs(",\"curves\":{", out);
    for (int i = 0; i < CURVES; i++) {
        fputs(i > 0 ? "," : "", out);
        if (cursor)
            cursor->seen[i] = put_new_points(out, s, (enum run_curve)i, 0);
        else
            good = put_reduced(out, s, (enum run_curve)i) && good;
    }
    fputs("},", out);
    put_small(out, run);
    fputs(",\"machines\":", out);
    json_put_item(out, s->machines);
    fputs(",\"sets\":", out);
    json_put_item(out, s->sets);
    fputc(',', out);
    good = put_trace(out, run->trace) && good;
    fputs(",\"job\":", out);
    if (run->job)
        json_put_text(out, run->job->text);
    else
        fputs("null", out);
    fputc('}', out);
    return good;
}

/* ---- fields that differ ---- */

/* Is the run the first of those that have the field? */
static bool names_first(const struct report_run *run, size_t at, const char *path)
{
    for (size_t i = 0; i < at; i++)
        if (run[i].job && job_fields_find(run[i].job, path))
            return false;
    return true;
}

static bool field_differs(const struct report_run *run, size_t count, const char *path)
{
    const char *first = job_fields_find(run[0].job, path);
    for (size_t i = 1; i < count; i++) {
        const char *value = job_fields_find(run[i].job, path);
        if (!value != !first || (value && strcmp(value, first) != 0))
            return true;
    }
    return false;
}

static void put_differences(FILE *out, const struct report_run *run, size_t count)
{
    struct json_list list = {out, true};
    bool all = true;
    for (size_t i = 0; i < count; i++)
        all = all && run[i].job;
    fputs("\"differences\":[", out);
    for (size_t i = 0; all && i < count; i++) {
        for (size_t k = 0; k < run[i].job->count; k++) {
            const char *path = run[i].job->field[k].path;
            if (!names_first(run, i, path) || !field_differs(run, count, path))
                continue;
            json_next(&list);
            fputc('[', out);
            json_put_text(out, path);
            for (size_t r = 0; r < count; r++) {
                const char *value = job_fields_find(run[r].job, path);
                fputc(',', out);
                json_put_text(out, value ? value : "");
            }
            fputc(']', out);
        }
    }
    fputc(']', out);
}

/* ---- the document ---- */

static void set_cursor(const struct run_summary *s, struct report_cursor *cursor)
{
    cursor->reductions = s->reductions;
    cursor->sessions = s->sessions;
}

bool report_document_write(FILE *out, const struct report_run *run, size_t count,
                           struct report_cursor *cursor)
{
    bool good = true;
    fputs("{\"version\":", out);
    json_put_text(out, pl_version());
    fputs(",\"curves\":[", out);
    for (int i = 0; i < CURVES; i++) {
        fputs(i > 0 ? ",[" : "[", out);
        json_put_text(out, run_curve_keys[i]);
        fputc(',', out);
        json_put_text(out, run_curve_labels[i]);
        fputc(',', out);
        json_put_text(out, run_curve_units[i]);
        fputc(']', out);
    }
    fputs("],\"runs\":[", out);
    for (size_t i = 0; i < count; i++) {
        fputs(i > 0 ? "," : "", out);
        good = put_run(out, &run[i], cursor) && good;
    }
    fputs("],", out);
    put_differences(out, run, count);
    fputc('}', out);
    if (cursor)
        set_cursor(run[0].summary, cursor);
    return good;
}

bool report_document_change(FILE *out, const struct report_run *run, struct report_cursor *cursor)
{
    const struct run_summary *s = run->summary;
    if (cursor->reductions != s->reductions || cursor->sessions != s->sessions)
        return false;
    fputs("{\"curves\":{", out);
    for (int i = 0; i < CURVES; i++) {
        fputs(i > 0 ? "," : "", out);
        cursor->seen[i] = put_new_points(out, s, (enum run_curve)i, cursor->seen[i]);
    }
    fputs("},", out);
    put_small(out, run);
    fputc('}', out);
    return true;
}
