#include "data/stats.h"

#include <math.h>
#include <stdlib.h>

/* Values seen so far: their number, mean, and the sum of squared distances from it. */
struct moments {
    double n, mean, spread, least, most;
};

static void join_moments(struct moments *a, const struct moments *b)
{
    double n = a->n + b->n, step = b->mean - a->mean;
    a->spread += b->spread + step * step * a->n * b->n / n;
    a->mean += step * b->n / n;
    a->n = n;
    a->least = fmin(a->least, b->least);
    a->most = fmax(a->most, b->most);
}

static struct moments moments_of(const float *x, size_t n)
{
    struct moments m = {.n = (double)n, .least = INFINITY, .most = -INFINITY};
    for (size_t k = 0; k < n; k++) {
        m.mean += (double)x[k];
        m.least = fmin(m.least, (double)x[k]);
        m.most = fmax(m.most, (double)x[k]);
    }
    m.mean /= m.n;
    for (size_t k = 0; k < n; k++)
        m.spread += ((double)x[k] - m.mean) * ((double)x[k] - m.mean);
    return m;
}

static void see_size(struct stats *stats, const struct raw *raw)
{
    stats->H_least = raw->H < stats->H_least ? raw->H : stats->H_least;
    stats->W_least = raw->W < stats->W_least ? raw->W : stats->W_least;
    stats->H_most = raw->H > stats->H_most ? raw->H : stats->H_most;
    stats->W_most = raw->W > stats->W_most ? raw->W : stats->W_most;
}

static int see_record(const struct source *source, size_t i, struct scratch *scratch,
                      struct moments *channel, struct stats *stats, struct err *err)
{
    struct raw raw;
    int rc = source->ops->read(source, i, scratch, &raw, err);
    if (rc != OK)
        return rc;
    size_t HW = raw.H * raw.W;
    float *x = scratch_get(scratch, SCRATCH_RESIZE, raw.C * HW * sizeof *x);
    if (!x)
        return err_set(err, ERR_NOMEM, "data: out of memory for record %zu", i);
    raw_floats(&raw, x);
    for (size_t c = 0; c < raw.C; c++) {
        struct moments here = moments_of(x + c * HW, HW);
        join_moments(&channel[c], &here);
    }
    if (stats->classes > 0)
        stats->of_class[source->ops->label(source, i)]++;
    see_size(stats, &raw);
    return OK;
}

int stats_of(const struct source *source, size_t most, const struct open_watch *watch,
             struct stats *out, struct err *err)
{
    size_t C = source->shape.dim[0];
    struct stats stats = {
        .records = most > 0 && most < source->count ? most : source->count,
        .classes = source->classes,
        .channels = (uint32_t)C,
        .of_class = calloc(source->classes + 1, sizeof *stats.of_class),
        .channel = calloc(C, sizeof *stats.channel),
        .H_least = SIZE_MAX,
        .W_least = SIZE_MAX,
    };
    struct moments *channel = calloc(C, sizeof *channel);
    struct scratch scratch = {0};
    int rc = stats.of_class && stats.channel && channel
                 ? OK
                 : err_set(err, ERR_NOMEM, "data: out of memory");
    for (size_t c = 0; rc == OK && c < C; c++)
        channel[c] = (struct moments){.least = INFINITY, .most = -INFINITY};
    for (size_t i = 0; rc == OK && i < stats.records; i++) {
        rc = see_record(source, i, &scratch, channel, &stats, err);
        if (rc == OK)
            rc = open_watch_report(watch, "records", i + 1, stats.records, err);
    }
    for (size_t c = 0; rc == OK && c < C; c++) {
        const struct moments *m = &channel[c];
        stats.channel[c] =
            (struct stats_channel){m->mean, sqrt(m->spread / m->n), m->least, m->most};
    }
    free(channel);
    scratch_release(&scratch);
    if (rc != OK) {
        stats_release(&stats);
        return rc;
    }
    *out = stats;
    return OK;
}

void stats_release(struct stats *stats)
{
    free(stats->of_class);
    free(stats->channel);
    *stats = (struct stats){0};
}
