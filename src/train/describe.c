#include "train/describe.h"

#include "base/plural.h"
#include "job/job_strategy.h"
#include "model/zoo.h"
#include "tensor/kernels.h"
#include "train/driver.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 512, LOOKED_AT = 8 };

/* ---- what it is ---- */

static const char *net_title(const Paceline__Net *net)
{
    const char *slash;
    switch (net->source_case) {
    case PACELINE__NET__SOURCE_ZOO: return net->zoo;
    case PACELINE__NET__SOURCE_FILE:
        slash = strrchr(net->file, '/');
        return slash ? slash + 1 : net->file;
    case PACELINE__NET__SOURCE_DEFINE:
        return net->define->name && net->define->name[0] ? net->define->name : "net";
    default: return "net";
    }
}

/* Parameters without the padding of segments. */
static size_t count_parameters(const struct segments *x)
{
    size_t n = 0;
    for (size_t i = 0; i < x->count; i++)
        n += x->at[i].len;
    return n;
}

/* Of the net's outputs; 0: no loss takes labels as classes. */
static size_t count_classes(const struct driver *d)
{
    size_t n = net_classes(d->data.ws->train);
    return n == SIZE_MAX ? 0 : n;
}

static uint64_t step_records(const struct driver *d)
{
    if (job_shares_batch(d->job) || job_takes_all(d->job))
        return strategy_step_samples(d->job, &d->start.resumed.progress, d->data.epoch_records);
    return (uint64_t)job_step_records(d->job) * job_replicas(d->job);
}

static void add_records(const struct driver *d, cJSON *start)
{
    char shape[64];
    cJSON *records = cJSON_AddObjectToObject(start, "records");
    for (int set = 0; set < SET_COUNT; set++)
        if (d->data.corpus->set[set].count > 0)
            cJSON_AddNumberToObject(records, corpus_set_name((enum corpus_set)set),
                                    (double)d->data.corpus->set[set].count);
    cJSON_AddStringToObject(start, "record", shape_text(&d->data.ws->record, shape, sizeof shape));
}

/* Of a batch of all that the workers share out: the largest share at the start. */
static void add_batch(const struct driver *d, cJSON *start)
{
    const Paceline__BatchGrowth *g = d->job->batch_growth;
    uint64_t step = step_records(d);
    char text[TEXT_MAX];
    if (!job_shares_batch(d->job) && !job_takes_all(d->job)) {
        cJSON_AddNumberToObject(start, "batch", job_step_records(d->job));
        return;
    }
    cJSON_AddNumberToObject(start, "batch",
                            (double)((step + d->job->workers - 1) / d->job->workers));
    cJSON_AddNumberToObject(start, "global_batch", (double)step);
    if (!g)
        return;
    snprintf(text, sizeof text, "%u to %u over %g epochs, power %g", g->first, g->last, g->epochs,
             g->power);
    cJSON_AddStringToObject(start, "batch_growth", text);
}

static void add_solver(const struct driver *d, cJSON *start)
{
    const Caffe__SolverParameter *solver = d->job->solver;
    cJSON_AddStringToObject(start, "optimizer", solver->type);
    if (job_takes_all(d->job))
        return;
    cJSON_AddNumberToObject(start, "base_lr", events_decimal(solver->base_lr));
    cJSON_AddStringToObject(start, "lr_policy", solver->lr_policy ? solver->lr_policy : "fixed");
    if (solver->momentum > 0)
        cJSON_AddNumberToObject(start, "momentum", events_decimal(solver->momentum));
}

static void add_end(const struct driver *d, cJSON *start)
{
    const Paceline__Stop *stop = d->job->stop;
    cJSON *ends = cJSON_AddObjectToObject(start, "ends");
    if (stop->has_epochs)
        cJSON_AddNumberToObject(ends, "epochs", stop->epochs);
    if (stop->has_steps)
        cJSON_AddNumberToObject(ends, "steps", (double)stop->steps);
    if (stop->has_seconds)
        cJSON_AddNumberToObject(ends, "seconds", stop->seconds);
    if (stop->has_validation_error)
        cJSON_AddNumberToObject(ends, "validation_error", stop->validation_error);
    if (stop->has_test_error)
        cJSON_AddNumberToObject(ends, "test_error", stop->test_error);
}

void describe_run(const struct driver *d, cJSON *start)
{
    char settings[TEXT_MAX];
    uint64_t step = step_records(d), records = d->data.epoch_records;
    cJSON_AddStringToObject(start, "net", net_title(d->job->net));
    cJSON_AddNumberToObject(start, "parameters", (double)count_parameters(d->layout.x));
    if (count_classes(d) > 0)
        cJSON_AddNumberToObject(start, "classes", (double)count_classes(d));
    add_records(d, start);
    add_batch(d, start);
    cJSON_AddNumberToObject(start, "steps_an_epoch", (double)((records + step - 1) / step));
    if (d->job->slices > 1)
        cJSON_AddNumberToObject(start, "slices", d->job->slices);
    job_strategy_settings(d->job, settings, sizeof settings);
    cJSON_AddStringToObject(start, "settings", settings);
    if (d->options->chosen)
        cJSON_AddStringToObject(start, "chosen", d->options->chosen);
    add_solver(d, start);
    add_end(d, start);
    if (!d->options->open_threads)
        cJSON_AddNumberToObject(start, "threads", d->job->threads);
}

/* ---- what is seldom meant ---- */

__attribute__((format(printf, 3, 4))) static void warn_if(const struct events *events,
                                                          const char *what, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cJSON *event = events_new(events, "warning");
    cJSON_AddStringToObject(event, "what", what);
    cJSON_AddStringToObject(event, "text", text);
    events_emit(events, event);
}

static void suspect_classes(struct driver *d)
{
    size_t outputs = count_classes(d);
    uint32_t classes = d->data.corpus->set[SET_TRAIN].source->classes;
    bool zoo = d->job->net->source_case == PACELINE__NET__SOURCE_ZOO;
    char remedy[160];
    if (outputs == 0 || classes >= outputs)
        return;
    if (zoo)
        snprintf(remedy, sizeof remedy, "write --set 'net.zoo=%.*s?classes=%u'",
                 (int)strcspn(d->job->net->zoo, "?"), d->job->net->zoo, classes);
    else
        snprintf(remedy, sizeof remedy, "set num_output of its last layer to %u", classes);
    warn_if(&d->events, "classes", "the net has %zu outputs, and the records have %u class%s: %s",
            outputs, classes, plural(classes, "es"), remedy);
}

/* The range of a few records as training sees them. false: they cannot be read now. */
static bool find_range(const struct dataset *set, float *least, float *most)
{
    struct scratch scratch = {0};
    size_t n = shape_count(&set->shape), count = set->count < LOOKED_AT ? set->count : LOOKED_AT;
    float *x = malloc(n * sizeof *x);
    bool read = x != NULL && n > 0;
    *least = FLT_MAX;
    *most = -FLT_MAX;
    for (size_t i = 0; read && i < count; i++) {
        uint32_t label;
        uint64_t record;
        struct err err;
        read = dataset_read(set, i * (set->count / count), NULL, &scratch, x, &label, &record,
                            &err) == OK;
        for (size_t k = 0; read && k < n; k++) {
            *least = x[k] < *least ? x[k] : *least;
            *most = x[k] > *most ? x[k] : *most;
        }
    }
    free(x);
    scratch_release(&scratch);
    return read;
}

/* Whole bytes go into a net that expects something near 0. */
static void suspect_pixels(struct driver *d)
{
    enum { FAR = 100 };
    const Paceline__Data *data = d->job->train_data;
    bool mapped = data->scale != 1 || data->n_mean > 0 || (data->mean_file && data->mean_file[0]);
    float least, most;
    if (mapped || source_is_numbers(d->data.corpus->set[SET_TRAIN].source) ||
        net_normalises(d->data.ws->train) ||
        !find_range(&d->data.corpus->set[SET_TRAIN], &least, &most) || most < FAR)
        return;
    warn_if(&d->events, "pixels",
            "values of records go from %g to %g into a net that does not normalise them: "
            "write --set train_data.scale=0.00390625, and the same for test_data; "
            "`paceline data stats` finds mean and scale",
            (double)least, (double)most);
}

static void suspect_batch(struct driver *d)
{
    uint64_t step = step_records(d), records = d->data.epoch_records;
    if (step > records)
        warn_if(&d->events, "batch",
                "a step takes %llu records (batch %llu, workers %u), and there are %llu to train "
                "on, so "
                "that it sees some twice: write a smaller --batch",
                (unsigned long long)step, (unsigned long long)(step / job_replicas(d->job)),
                d->job->workers, (unsigned long long)records);
}

/* A worker's steps continue the streams of its steps before, where each step of all workers takes
 * as many streams; and always, where a worker takes its records one behind the other. */
static void suspect_streams(struct driver *d)
{
    bool alone = d->job->workers == 1 || d->traits.takes_leases || d->job->local_data;
    uint64_t step = alone ? d->job->batch : step_records(d);
    uint32_t streams = d->job->train_data->streams;
    if (streams > 0 && streams % step != 0 && !job_takes_all(d->job))
        warn_if(&d->events, "streams",
                "a step takes %llu records, and there are %u streams, so that most records begin "
                "with a state of 0: write --set train_data.streams=%llu",
                (unsigned long long)step, streams, (unsigned long long)step);
}

static void suspect_threads(struct driver *d)
{
    enum { FAR = 8 }; /* times this machine's cores, as other machines may have more */
    uint32_t cores = d->host->cores, workers = d->job->workers, threads = d->job->threads;
    bool elsewhere = d->options->elsewhere, chosen = d->options->open_threads;
    if (cores > 0 && elsewhere && !chosen && threads > FAR * cores)
        warn_if(
            &d->events, "threads",
            "%u threads compute in each worker, and this machine has %u core%s: leave the number "
            "to each worker (--unset threads)",
            threads, cores, plural(cores, "s"));
    else if (cores > 0 && !elsewhere && threads > 1 && threads * workers > cores)
        warn_if(
            &d->events, "threads",
            "%u threads compute on %u core%s (threads %u, workers %u), which is slower than fewer: "
            "write --threads %u",
            threads * workers, cores, plural(cores, "s"), threads, workers,
            cores > workers ? cores / workers : 1);
}

static bool is_far(size_t a, size_t b)
{
    return 2 * a > 3 * b || 2 * b > 3 * a;
}

static void suspect_size(struct driver *d)
{
    const struct shape *is = &d->data.ws->record;
    struct shape expected = {0};
    if (d->job->net->source_case == PACELINE__NET__SOURCE_ZOO)
        expected = zoo_record(d->job->net->zoo);
    if (expected.n != 3 || is->n != 3 ||
        (!is_far(is->dim[1], expected.dim[1]) && !is_far(is->dim[2], expected.dim[2])))
        return;
    warn_if(&d->events, "size",
            "%s was made for records of %zu x %zu, and these are %zu x %zu: resize them "
            "(train_data.resize_height and resize_width, and those of test_data), or "
            "take another net",
            d->job->net->zoo, expected.dim[1], expected.dim[2], is->dim[1], is->dim[2]);
}

static void suspect_rate(struct driver *d)
{
    const Caffe__SolverParameter *solver = d->job->solver;
    bool adam = strncmp(solver->type, "Adam", 4) == 0;
    if (adam && events_decimal(solver->base_lr) >= 0.1)
        warn_if(&d->events, "rate", "a learning rate of %g is very high for %s: write --lr 0.001",
                events_decimal(solver->base_lr), solver->type);
}

static void suspect_end(struct driver *d)
{
    if (d->options->open_end)
        warn_if(&d->events, "end",
                "the job has no stop rule, and ends after 1 epoch: write --epochs E");
}

void describe_suspicions(struct driver *d)
{
    suspect_end(d);
    suspect_classes(d);
    suspect_pixels(d);
    suspect_batch(d);
    suspect_streams(d);
    suspect_threads(d);
    suspect_size(d);
    suspect_rate(d);
}

void describe_chance_begin(struct driver *d)
{
    chance_init(&d->reports.chance, count_classes(d), d->data.epoch_records, step_records(d));
    d->reports.chance_offset = d->ledger.last.progress.sample_offset;
}

static void warn_stuck(struct driver *d)
{
    const Caffe__SolverParameter *solver = d->job->solver;
    double rate = events_decimal(solver->base_lr),
           low = strncmp(solver->type, "Adam", 4) == 0 ? 1e-6 : 1e-5;
    char remedy[160];
    if (rate < low)
        snprintf(remedy, sizeof remedy, "raise the learning rate, now %g (--lr %g)", rate,
                 100 * rate);
    else
        snprintf(remedy, sizeof remedy,
                 "the learning rate, now %g, may be too high or too low (--lr %g, or --lr %g)",
                 rate, rate / 10, 10 * rate);
    warn_if(&d->events, "chance",
            "the loss stays at %.4f, which is guessing among %zu classes: %s; or look at scale and "
            "labels (`paceline data stats`, `data head`)",
            d->ledger.loss, count_classes(d), remedy);
}

static void warn_high(struct driver *d)
{
    double rate = events_decimal(d->job->solver->base_lr);
    warn_if(
        &d->events, "loss",
        "the loss is %.4g, and guessing among %zu classes has %.4g: the model is diverging; lower "
        "the learning rate, now %g (--lr %g), or bring the input near 0 (scale, mean)",
        d->ledger.loss, count_classes(d), d->reports.chance.guess, rate, rate / 10);
}

/* The remedies are rates. */
static void warn_chance(struct driver *d, enum chance_news news)
{
    if (job_takes_all(d->job))
        return;
    if (news == CHANCE_STUCK)
        warn_stuck(d);
    else if (news == CHANCE_HIGH)
        warn_high(d);
}

void describe_chance(struct driver *d)
{
    uint64_t offset = d->ledger.last.progress.sample_offset, before = d->reports.chance_offset;
    if (offset <= before)
        return;
    d->reports.chance_offset = offset;
    warn_chance(d, chance_add(&d->reports.chance, offset - before, d->ledger.loss));
}

void describe_chance_end(struct driver *d)
{
    warn_chance(d, chance_end(&d->reports.chance));
}
