#include "cli/page_metrics.h"

#include "cli/json_value.h"

#include <inttypes.h>
#include <math.h>

static void put_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP paceline_%s %s\n# TYPE paceline_%s %s\n", name, help, name, type);
}

static void put_value(FILE *out, double value)
{
    if (isnan(value))
        fputs("NaN\n", out);
    else if (isinf(value))
        fputs(value > 0 ? "+Inf\n" : "-Inf\n", out);
    else
        fprintf(out, "%.15g\n", value);
}

static void put_gauge(FILE *out, const char *name, const char *help, double value)
{
    put_head(out, name, "gauge", help);
    fprintf(out, "paceline_%s ", name);
    put_value(out, value);
}

static void put_counter(FILE *out, const char *name, const char *help, double value)
{
    put_head(out, name, "counter", help);
    fprintf(out, "paceline_%s ", name);
    put_value(out, value);
}

static void put_label(FILE *out, const char *name, const char *value, const char *after)
{
    fprintf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\n')
            fputs("\\n", out);
        else
            fprintf(out, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    }
    fprintf(out, "\"%s", after);
}

static void put_info(FILE *out, const cJSON *start)
{
    put_head(out, "run_info", "gauge", "The run; its value is 1.");
    fputs("paceline_run_info{", out);
    put_label(out, "job", json_text(start, "job"), ",");
    put_label(out, "net", json_text(start, "net"), ",");
    put_label(out, "strategy", json_text(start, "strategy"), "} 1\n");
}

/* The newest value of a curve. */
static bool find_newest(const struct run_summary *s, enum run_curve curve, double *value)
{
    const struct run_series *series = &s->curve[curve];
    if (series->count > 0)
        *value = series->point[series->count - 1].value;
    return series->count > 0;
}

static void put_newest(FILE *out, const struct run_summary *s, enum run_curve curve,
                       const char *name, const char *help)
{
    double value = 0;
    if (find_newest(s, curve, &value))
        put_gauge(out, name, help, value);
}

static void put_sets(FILE *out, const struct run_summary *s, enum run_curve validation,
                     enum run_curve test, const char *name, const char *help)
{
    const enum run_curve of[] = {validation, test};
    static const char *const sets[] = {"validation", "test"};
    bool first = true;
    for (int i = 0; i < 2; i++) {
        double value = 0;
        if (!find_newest(s, of[i], &value))
            continue;
        if (first)
            put_head(out, name, "gauge", help);
        first = false;
        fprintf(out, "paceline_%s{set=\"%s\"} ", name, sets[i]);
        put_value(out, value);
    }
}

static void put_waited(FILE *out, const struct run_summary *s)
{
    put_head(out, "waited_seconds_total", "counter",
             "The longest wait of each exchange, by the node that was waited for.");
    for (uint32_t i = 0; i <= s->nodes; i++) {
        if (s->waited[i].count == 0)
            continue;
        if (i == 0)
            fputs("paceline_waited_seconds_total{node=\"driver\"} ", out);
        else
            fprintf(out, "paceline_waited_seconds_total{node=\"%" PRIu32 "\"} ", i - 1);
        put_value(out, s->waited[i].seconds);
    }
}

static void put_progress(FILE *out, const pl_progress *p)
{
    put_gauge(out, "run_seconds", "Seconds since the run began.", p->t);
    put_gauge(out, "epoch", "Epochs trained.", p->epoch);
    put_gauge(out, "steps", "Steps of each worker.", (double)p->steps);
    put_gauge(out, "workers", "Workers in the view.", p->workers);
    put_gauge(out, "samples_per_second", "Samples a second of all workers.", p->samples_per_s);
    if (p->epochs > 0)
        put_gauge(out, "epochs_wanted", "Epochs at which the run ends.", p->epochs);
    if (p->eta_s >= 0)
        put_gauge(out, "remaining_seconds", "Seconds to the end by epochs.", p->eta_s);
}

void page_metrics_put(FILE *out, const struct run_summary *s, const pl_progress *progress)
{
    put_info(out, s->start);
    if (progress)
        put_progress(out, progress);
    put_newest(out, s, CURVE_TRAIN_LOSS, "train_loss", "Mean training loss of the last second.");
    put_newest(out, s, CURVE_RATE, "learning_rate", "Learning rate.");
    put_newest(out, s, CURVE_BATCH, "batch_samples", "Samples of a step of all workers.");
    put_sets(out, s, CURVE_VALIDATION_ERROR, CURVE_TEST_ERROR, "error",
             "Share of wrong answers at the last evaluation.");
    put_sets(out, s, CURVE_VALIDATION_LOSS, CURVE_TEST_LOSS, "loss",
             "Mean loss at the last evaluation.");
    put_counter(out, "exchanges_total", "Committed exchanges.", (double)s->exchanges);
    put_counter(out, "exchange_seconds_total", "Sum of their durations.", s->exchange_s);
    put_counter(out, "exchange_bytes_total", "Bytes that they sent and received.",
                s->exchange_bytes);
    put_waited(out, s);
    put_counter(out, "rejected_total", "Contributions that were not finite.", (double)s->rejected);
    put_counter(out, "bad_records_total", "Records that were left out.", (double)s->bad_records);
    put_counter(out, "faults_total", "Workers lost, and other faults.", (double)s->faults);
    put_counter(out, "recoveries_total", "Workers replaced, and other recoveries.",
                (double)s->recoveries);
    put_counter(out, "checkpoints_total", "Checkpoints written.", (double)s->checkpoints);
    put_gauge(out, "ended", "1 after the end of the run.", s->end ? 1 : 0);
}
