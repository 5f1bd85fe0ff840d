#include "learner/workspace.h"

#include "base/fault.h"
#include "base/memory.h"
#include "data/source_text.h"
#include "job/job.h"
#include "model/judge_net.h"
#include "model/load.h"
#include "tensor/kernels.h"
#include "tensor/tuner.h"

#include <stdlib.h>

/* The job's net. One that is trained is judged while it is, as `paceline test` judges it. */
static int load_net(const Paceline__Job *job, bool only_tests, Caffe__NetParameter **out,
                    struct err *err)
{
    bool lossless;
    int rc = model_load_net(job->net, out, err);
    if (rc != OK || only_tests || !model_has_loss(*out, PHASE_TEST))
        return rc;
    rc = model_judge(*out, &lossless, err);
    if (rc != OK) {
        caffe__net_parameter__free_unpacked(*out, NULL);
        *out = NULL;
    }
    return rc;
}

/* The limit is the rest of the job's budget, if that is less. */
static void limit_memory(const struct workspace *ws, struct net_options *options)
{
    size_t used = memory_used();
    uint64_t left = ws->memory_budget > used ? ws->memory_budget - used : MEMORY_LEAST;
    options->budgeted = ws->memory_budget > 0 && left < options->memory_limit;
    if (options->budgeted) {
        options->memory_limit = (size_t)left;
        options->memory_by = NULL;
    }
}

/* The limit is the memory that is free now, which includes memory that the previous net has not
 * touched yet. */
static int make_net(struct workspace *ws, const Caffe__NetParameter *param,
                    struct net_options *options, struct net **out, struct err *err)
{
    options->memory_limit = memory_available(&options->memory_by);
    limit_memory(ws, options);
    if (ws->tuner)
        tuner_set_watch(ws->tuner, ws->watch);
    int rc = net_create(param, options, out, err);
    if (ws->tuner)
        tuner_set_watch(ws->tuner, NULL);
    int watched = open_watch_report(ws->watch, "nets planned", ++ws->planned, 0, err);
    if (watched != OK && rc == OK) {
        net_free(*out);
        *out = NULL;
    }
    return watched != OK ? watched : rc;
}

static struct net_options options_of(const struct workspace *ws, enum phase phase, size_t batch,
                                     const struct shape *record)
{
    return (struct net_options){
        .phase = phase,
        .batch = batch,
        .input = *record,
        .fields = &ws->fields,
        .kernels = ws->kernels,
        .tuner = ws->tuner,
        .keep = phase == PHASE_TEST ? ws->keep : NULL,
        .brings_room = true,
        .slice = ws->slice,
        .slices_from = ws->slices_from,
        .slices_to = ws->slices_to,
    };
}

/* Let the net lie where the others do, which never are at work at the same moment; the room grows
 * where it is too small for it. */
static int finish_net(struct workspace *ws, struct net *net, struct err *err)
{
    size_t floats = net_room(net);
    float *room = floats > ws->room_floats ? arena_array(&ws->arena, floats, float) : ws->room;
    if (!room)
        return err_set(err, ERR_NOMEM, "net: out of memory for activations");
    if (floats > ws->room_floats) {
        ws->room = room;
        ws->room_floats = floats;
    }
    net_take_room(net, room);
    return OK;
}

/* Both lie in the larger one's. */
static int finish_both(struct workspace *ws, struct err *err)
{
    bool train_first = ws->train && net_room(ws->train) > net_room(ws->test);
    int rc = finish_net(ws, train_first ? ws->train : ws->test, err);
    if (rc == OK && ws->train)
        rc = finish_net(ws, train_first ? ws->test : ws->train, err);
    return rc;
}

static int check_training(const struct workspace *ws, const Paceline__Job *job, struct err *err)
{
    if (!segments_match(net_segments(ws->train), net_segments(ws->test)) ||
        !segments_match(net_state_segments(ws->train), net_state_segments(ws->test)))
        return err_set(err, ERR_INPUT, "net: training and test phase differ in their parameters");
    if (net_classes(ws->train) == 0)
        return err_set(err, ERR_INPUT, "net: there is no loss to train on");
    if (job->train_data && job->train_data->streams > 0 && net_carried(ws->train) == 0)
        return err_set(err, ERR_INPUT,
                       "train_data.streams: the net has no recurrent layer that carries a state");
    const Paceline__Stop *stop = job->stop;
    if (stop && (stop->has_validation_error || stop->has_test_error) && !net_judges(ws->test))
        return err_set(err, ERR_INPUT,
                       "stop.%s: the net has no error rate, only a loss: there is neither an "
                       "Accuracy nor a SoftmaxWithLoss in phase TEST",
                       stop->has_validation_error ? "validation_error" : "test_error");
    return OK;
}

static struct net_options training_options(const struct workspace *ws, const Paceline__Job *job,
                                           const struct shape *record)
{
    struct net_options train = options_of(ws, PHASE_TRAIN, ws->batch / job->local, record);
    bool is_bf16 = job->precision == PACELINE__JOB__PRECISION__bf16;
    train.dtype = is_bf16 ? DTYPE_BF16 : DTYPE_F32;
    return train;
}

static int plan_net(struct workspace *ws, const Caffe__NetParameter *param,
                    const Paceline__Job *job, const struct shape *record, struct err *err)
{
    struct net_options train = training_options(ws, job, record);
    ws->threads = kernels_threads();
    struct net_options test = options_of(ws, PHASE_TEST, ws->batch, record);
    int rc = ws->only_tests ? OK : make_net(ws, param, &train, &ws->train, err);
    if (rc == OK)
        rc = make_net(ws, param, &test, &ws->test, err);
    if (rc == OK && ws->train)
        rc = check_training(ws, job, err);
    train.brings_room = false; /* these are at work at the same moment */
    for (size_t i = 0; rc == OK && ws->train && i < ws->others; i++)
        rc = make_net(ws, param, &train, &ws->other[i].train, err);
    return rc;
}

static void free_plan(struct workspace *ws)
{
    net_free(ws->train);
    net_free(ws->test);
    net_free(ws->separate);
    net_free(ws->fewer);
    ws->train = ws->test = ws->separate = ws->fewer = NULL;
    for (size_t i = 0; i < ws->others; i++) {
        net_free(ws->other[i].train);
        ws->other[i].train = NULL;
    }
}

/* `auto` falls back from oneDNN to plain C as a whole: a net never mixes the two. Plain C has no
 * bf16. */
static int plan_auto(struct workspace *ws, const Caffe__NetParameter *param,
                     const Paceline__Job *job, const struct shape *record, const struct logger *log,
                     struct err *err)
{
    ws->kernels = job->kernels == PACELINE__JOB__KERNELS__ref ? &kernels_ref : &kernels_dnnl;
    int rc = plan_net(ws, param, job, record, err);
    if (rc != ERR_UNSUPPORTED || job->kernels != PACELINE__JOB__KERNELS__auto ||
        job->precision != PACELINE__JOB__PRECISION__f32)
        return rc;
    struct err why = *err;
    free_plan(ws);
    ws->kernels = &kernels_ref;
    rc = plan_net(ws, param, job, record, err);
    if (rc == OK)
        log_warn(log, "using the slow reference kernels: %s", why.text);
    return rc;
}

static int accept_all(const struct workspace *ws, const struct corpus *corpus, struct err *err)
{
    const struct dataset *test = &corpus->set[SET_TEST];
    int rc = workspace_accepts(ws, &corpus->set[SET_TRAIN], "train_data", err);
    if (rc == OK && test->count > 0 && shape_equal(&test->shape, &corpus->set[SET_TRAIN].shape))
        rc = workspace_accepts(ws, test, "test_data", err);
    return rc;
}

/* A net that does not fit, in memory or in its records, is refused before kernels are timed for it:
 * the nets are planned with known choices, and again if some kernel is to be timed. */
static int plan_checked(struct workspace *ws, const Caffe__NetParameter *param,
                        const Paceline__Job *job, const struct shape *record,
                        const struct corpus *corpus, const struct logger *log, struct err *err)
{
    if (ws->tuner)
        tuner_hold(ws->tuner);
    int rc = plan_auto(ws, param, job, record, log, err);
    size_t untimed = ws->tuner ? tuner_continue(ws->tuner) : 0;
    if (rc == OK && corpus)
        rc = accept_all(ws, corpus, err);
    if (rc == OK && untimed > 0 && ws->kernels != &kernels_ref) {
        free_plan(ws);
        rc = plan_auto(ws, param, job, record, log, err);
    }
    return rc == OK ? finish_both(ws, err) : rc;
}

/* A share of a batch of all that has no room in memory is computed in parts: the nets are planned
 * for half of it, and so on. */
static int plan_parts(struct workspace *ws, const Caffe__NetParameter *param,
                      const Paceline__Job *job, const struct shape *record,
                      const struct corpus *corpus, const struct logger *log, struct err *err)
{
    int rc = plan_checked(ws, param, job, record, corpus, log, err);
    while (rc == ERR_NOMEM && job_shares_batch(job) && ws->batch >= 2 * job->local) {
        free_plan(ws);
        ws->batch = ws->batch / 2 / job->local * job->local;
        rc = plan_checked(ws, param, job, record, corpus, log, err);
    }
    if (rc == OK && ws->batch < job->batch)
        log_info(log,
                 "a worker's share of a step, up to %u records, is computed in parts of %zu: "
                 "memory has no room for more",
                 job->batch, ws->batch);
    return rc;
}

/* The purpose and the owner of a workspace. */
struct making {
    const struct shape *record;
    const struct fields *fields;
    const struct corpus *corpus; /* of which the records are, or NULL */
    const struct logger *log;
    struct tuner *tuner;
    const struct open_watch *watch;
    uint64_t memory_budget;
    bool only_tests;
    const char *keep;
    bool is_slice;
    size_t slice; /* which */
};

/* false: out of memory */
static bool copy_name(struct workspace *ws, const char *name, const char **out)
{
    *out = name ? arena_strdup(&ws->arena, name) : NULL;
    return *out || !name;
}

static int make_workspace(const Paceline__Job *job, const struct making *options,
                          struct workspace **out, struct err *err)
{
    Caffe__NetParameter *param;
    int rc = load_net(job, options->only_tests, &param, err);
    if (rc != OK)
        return rc;
    struct workspace *ws = calloc(1, sizeof *ws);
    if (!ws) {
        rc = err_set(err, ERR_NOMEM, "net: out of memory");
        goto done;
    }
    arena_init(&ws->arena);
    ws->tuner = job->deterministic ? NULL : options->tuner;
    ws->watch = options->watch;
    ws->memory_budget = options->memory_budget;
    ws->batch = job->batch;
    ws->record = *options->record;
    if (options->fields)
        ws->fields = *options->fields;
    ws->record_floats = shape_count(options->record);
    ws->only_tests = options->only_tests;
    ws->slice = (struct model_slice){options->is_slice ? options->slice : SLICE_ALL, job->slices};
    bool copied = copy_name(ws, options->keep, &ws->keep) &&
                  copy_name(ws, job->slices_from, &ws->slices_from) &&
                  copy_name(ws, job->slices_to, &ws->slices_to);
    PL_ASSERT(job->local > 0 && job->batch % job->local == 0);
    ws->other = arena_array(&ws->arena, job->local - 1, struct inner_space);
    ws->others = ws->other ? job->local - 1 : 0;
    rc = ws->other && copied
             ? plan_parts(ws, param, job, options->record, options->corpus, options->log, err)
             : err_set(err, ERR_NOMEM, "net: out of memory");
done:
    caffe__net_parameter__free_unpacked(param, NULL);
    if (options->tuner)
        tuner_finish(options->tuner);
    if (rc == OK)
        *out = ws;
    else
        workspace_free(ws);
    return rc;
}

int workspace_plan(const Paceline__Job *job, const struct shape *record,
                   const struct fields *fields, const struct logger *log, struct tuner *tuner,
                   struct workspace **out, struct err *err)
{
    const struct making options = {.record = record, .fields = fields, .log = log, .tuner = tuner};
    return make_workspace(job, &options, out, err);
}

int workspace_plan_tests(size_t slice, const Paceline__Job *job, const struct shape *record,
                         const struct fields *fields, const struct logger *log, struct tuner *tuner,
                         const char *keep, struct workspace **out, struct err *err)
{
    const struct making options = {.record = record,
                                   .fields = fields,
                                   .log = log,
                                   .tuner = tuner,
                                   .only_tests = true,
                                   .keep = keep,
                                   .is_slice = slice != SLICE_ALL,
                                   .slice = slice};
    return make_workspace(job, &options, out, err);
}

int workspace_keep(struct workspace *ws, const Paceline__Job *job, const char *blob,
                   struct err *err)
{
    if (net_keeps(ws->test, blob))
        return OK;
    Caffe__NetParameter *param;
    struct net *net = NULL;
    int rc = load_net(job, ws->only_tests, &param, err);
    if (rc != OK)
        return rc;
    struct net_options options = options_of(ws, PHASE_TEST, ws->batch, &ws->record);
    options.keep = blob;
    options.keep_all = ws->requested; /* a second requested blob may be followed by more */
    rc = make_net(ws, param, &options, &net, err);
    caffe__net_parameter__free_unpacked(param, NULL);
    if (ws->tuner)
        tuner_finish(ws->tuner);
    if (rc == OK)
        rc = finish_net(ws, net, err);
    if (rc != OK) {
        net_free(net);
        return rc;
    }
    net_free(ws->test);
    ws->test = net;
    ws->requested = true;
    return OK;
}

static int plan_fewer(struct workspace *ws, const Paceline__Job *job, int threads, struct err *err)
{
    struct net_options options = training_options(ws, job, &ws->record);
    Caffe__NetParameter *param;
    struct net *net = NULL;
    int before = kernels_threads(), rc = load_net(job, false, &param, err);
    if (rc != OK)
        return rc;
    if (ws->tuner)
        tuner_stop(ws->tuner);
    kernels_set_threads(threads);
    rc = make_net(ws, param, &options, &net, err);
    kernels_set_threads(before);
    caffe__net_parameter__free_unpacked(param, NULL);
    if (rc == OK)
        rc = finish_net(ws, net, err);
    if (rc != OK) {
        net_free(net);
        return rc;
    }
    PL_ASSERT(segments_match(net_segments(ws->train), net_segments(net)));
    net_free(ws->fewer);
    ws->fewer = net;
    ws->fewer_threads = threads;
    return OK;
}

int workspace_net_for(struct workspace *ws, const Paceline__Job *job, int threads, struct net **out,
                      struct err *err)
{
    PL_ASSERT(ws->train && threads > 0 && threads <= ws->threads);
    bool all = threads == ws->threads, is_made = ws->fewer && ws->fewer_threads == threads;
    int rc = all || is_made ? OK : plan_fewer(ws, job, threads, err);
    if (rc != OK)
        return rc;
    kernels_set_threads(threads);
    *out = all ? ws->train : ws->fewer;
    return OK;
}

const struct net *workspace_net(const struct workspace *ws)
{
    return ws->train ? ws->train : ws->test;
}

/* A net without a loss has no number of classes: an Accuracy accepts any label. One whose loss
 * reads no label has SIZE_MAX. */
static int labels_fit(const struct net *net, const char *what, const struct dataset *set,
                      const char *field, struct err *err)
{
    size_t classes = net_classes(net);
    if (classes > 0 && classes < SIZE_MAX && set->source->classes == 0)
        return err_set(err, ERR_INPUT, "%s: the records have no labels, which %s reads", field,
                       what);
    if (classes == 0 || set->source->classes <= classes)
        return OK;
    return err_set(err, ERR_INPUT,
                   "%s: label %u is out of range: %s has %zu classes; set num_output of its last "
                   "layer to %u",
                   field, set->source->classes - 1, what, classes, set->source->classes);
}

/* The numbers of a text's units have rows and scores; too many of these do no harm. */
static int text_fits(const struct net *net, const struct dataset *set, const char *field,
                     struct err *err)
{
    struct net_shortage short_of;
    const Paceline__Data__Text *text = source_text_settled(set->source);
    uint32_t units = source_text_rows(set->source);
    if (!text || !net_lacks(net, units, &short_of))
        return OK;
    bool bytes = text->unit == PACELINE__DATA__TEXT__UNIT__byte;
    return err_set(
        err, ERR_INPUT,
        "%s: the text has %u %s, and the net's layer \"%.64s\" has %s for %zu: set %s to "
        "%u, or give %s",
        field, units, bytes ? "values of bytes, from 0 to its highest" : "characters",
        short_of.layer, short_of.is_loss ? "scores" : "rows", short_of.has,
        short_of.is_loss ? "num_output of the layer that makes the scores"
                         : "its embed_param.input_dim",
        units,
        bytes ? "the text's `unit: character`"
              : "the `vocabulary` of the text that the net was made for");
}

int workspace_accepts(const struct workspace *ws, const struct dataset *set, const char *field,
                      struct err *err)
{
    char text[64];
    if (shape_count(&set->shape) != ws->record_floats)
        return err_set(err, ERR_INPUT, "%s: records are %s, the net is made for %zu numbers each",
                       field, shape_text(&set->shape, text, sizeof text), ws->record_floats);
    if (!fields_equal(&set->source->fields, &ws->fields))
        return err_set(err, ERR_INPUT, "%s: records have other fields than the net was made for",
                       field);
    int rc = ws->train ? labels_fit(ws->train, "the net", set, field, err) : OK;
    if (rc == OK)
        rc = labels_fit(ws->test, "the net in phase TEST", set, field, err);
    if (rc == OK && ws->train)
        rc = text_fits(ws->train, set, field, err);
    return rc == OK ? text_fits(ws->test, set, field, err) : rc;
}

int workspace_feed(struct workspace *ws, const Paceline__Job *job, const struct dataset *set,
                   struct err *err)
{
    struct loader *loader = &ws->loader;
    if (loader->set) {
        PL_ASSERT(!loader->world);
        loader->set = set;
        loader->sampler = dataset_sampler(set, job->seed);
        return OK;
    }
    int rc = loader_init(loader, &ws->arena, set, job->seed, ws->batch);
    if (rc != OK)
        err_set(err, rc, "net: out of memory for a batch of %zu records", ws->batch);
    return rc;
}

static int refuse_difference(const struct corpus *corpus, const char *why, struct err *err)
{
    char a[64], b[64];
    return err_set(err, ERR_INPUT, "test_data: records are %s, those of train_data %s; %s",
                   shape_text(&corpus->set[SET_TEST].shape, a, sizeof a),
                   shape_text(&corpus->set[SET_TRAIN].shape, b, sizeof b), why);
}

/* A fully convolutional net can be tested on records of another size than its training records, as
 * crops often are: its parameters are the same. */
static int plan_separate(struct workspace *ws, const Paceline__Job *job,
                         const struct corpus *corpus, struct err *err)
{
    const struct dataset *test = &corpus->set[SET_TEST];
    if (test->count == 0)
        return OK;
    if (shape_equal(&test->shape, &corpus->set[SET_TRAIN].shape))
        return workspace_accepts(ws, test, "test_data", err);
    struct net_options options = options_of(ws, PHASE_TEST, ws->batch, &test->shape);
    Caffe__NetParameter *param;
    struct err why = {0};
    int rc = load_net(job, false, &param, err);
    if (rc != OK)
        return rc;
    rc = make_net(ws, param, &options, &ws->separate, &why);
    if (rc == OK)
        rc = finish_net(ws, ws->separate, &why);
    caffe__net_parameter__free_unpacked(param, NULL);
    if (ws->tuner)
        tuner_finish(ws->tuner);
    if (rc == ERR_NOMEM)
        return err_set(err, rc, "%s", why.text);
    if (rc != OK)
        return refuse_difference(corpus, why.text, err);
    if (!segments_match(net_segments(ws->train), net_segments(ws->separate)) ||
        !segments_match(net_state_segments(ws->train), net_state_segments(ws->separate)))
        return refuse_difference(corpus, "the net would have other parameters", err);
    if ((rc = labels_fit(ws->separate, "the net for records of their size", test, "test_data",
                         err)) != OK)
        return rc;
    ws->separate_shape = test->shape;
    rc = batch_init(&ws->separate_records, &ws->arena, ws->batch, shape_count(&test->shape));
    return rc == OK ? OK : err_set(err, rc, "net: out of memory for a batch of test records");
}

int workspace_create(const Paceline__Job *job, const struct corpus *corpus,
                     const struct logger *log, struct tuner *tuner, const struct open_watch *watch,
                     struct workspace **out, struct err *err)
{
    return workspace_create_within(0, job, corpus, log, tuner, watch, out, err);
}

int workspace_create_within(uint64_t memory_budget, const Paceline__Job *job,
                            const struct corpus *corpus, const struct logger *log,
                            struct tuner *tuner, const struct open_watch *watch,
                            struct workspace **out, struct err *err)
{
    return workspace_create_slice(SLICE_ALL, memory_budget, job, corpus, log, tuner, watch, out,
                                  err);
}

int workspace_create_slice(size_t slice, uint64_t memory_budget, const Paceline__Job *job,
                           const struct corpus *corpus, const struct logger *log,
                           struct tuner *tuner, const struct open_watch *watch,
                           struct workspace **out, struct err *err)
{
    const struct dataset *set = &corpus->set[SET_TRAIN];
    const struct making options = {.record = &set->shape,
                                   .fields = &set->source->fields,
                                   .corpus = corpus,
                                   .log = log,
                                   .tuner = tuner,
                                   .watch = watch,
                                   .memory_budget = memory_budget,
                                   .is_slice = slice != SLICE_ALL,
                                   .slice = slice};
    struct workspace *ws = NULL;
    int rc = make_workspace(job, &options, &ws, err);
    if (rc == OK)
        rc = workspace_feed(ws, job, set, err);
    if (rc == OK)
        rc = plan_separate(ws, job, corpus, err);
    if (rc != OK) {
        workspace_free(ws);
        return rc;
    }
    ws->watch = NULL;
    *out = ws;
    return OK;
}

int workspace_fill(struct workspace *ws)
{
    for (size_t i = 0; i < ws->others; i++) {
        struct inner_space *space = &ws->other[i];
        if (!space->dx.at && vec_init(&space->dx, &ws->arena, net_segments(ws->train)->total) != OK)
            return ERR_NOMEM;
        if (!space->s.at &&
            vec_init(&space->s, &ws->arena, net_state_segments(ws->train)->total) != OK)
            return ERR_NOMEM;
    }
    return OK;
}

int workspace_load_ahead(struct workspace *ws, struct world *world, int threads, struct err *err)
{
    enum { SHARE = 8 }; /* of a budget the batches ahead take an eighth */
    if (ws->memory_budget > 0 && ws->memory_budget / SHARE < LOADER_AHEAD_BYTES)
        ws->loader.ahead_bytes = (size_t)(ws->memory_budget / SHARE) + 1;
    int rc = loader_start(&ws->loader, &ws->arena, world, threads);
    if (rc != OK)
        err_set(err, rc, "net: no batches prepared ahead: %s", status_text(rc));
    return rc;
}

void workspace_free(struct workspace *ws)
{
    if (!ws)
        return;
    loader_stop(&ws->loader);
    loader_release(&ws->loader);
    batch_release(&ws->separate_records);
    free_plan(ws);
    arena_release(&ws->arena);
    free(ws);
}

struct net_memory workspace_memory(const struct workspace *ws)
{
    struct net_memory memory = net_memory(ws->train);
    memory.activations *= ws->others + 1;
    memory.gradients *= ws->others + 1;
    memory.scratch *= ws->others + 1;
    for (size_t i = 0; i < ws->others; i++)
        memory.gradients += (ws->other[i].dx.n + ws->other[i].s.n) * sizeof(float);
    return memory;
}

static size_t all_of(const struct net *net)
{
    const struct net_memory memory = net_memory(net);
    return memory.activations + memory.gradients + memory.scratch;
}

size_t workspace_testing(const struct workspace *ws)
{
    size_t size = sizeof(float), room = ws->room_floats - (ws->train ? net_room(ws->train) : 0);
    return room * size + all_of(ws->test) - net_room(ws->test) * size;
}

double workspace_flops(const struct workspace *ws)
{
    return net_flops(ws->train) * (double)(ws->others + 1);
}

size_t workspace_points(const struct workspace *ws)
{
    return (ws->train ? net_points(ws->train) : 0) + net_points(ws->test) +
           (ws->separate ? net_points(ws->separate) : 0);
}

int slice_meeting_forward(const struct slice_meeting *meeting, size_t before, struct net *net,
                          const struct vec *x, struct vec *s, const struct net_batch *batch,
                          struct net_result *result)
{
    const struct net_point *point = NULL;
    if (!meeting) {
        net_forward(net, x, s, batch, result);
        return OK;
    }
    net_begin_forward(net, x, s, batch);
    int rc = net_continue(net, &point);
    while (rc == OK && point) {
        struct net_point numbered = *point;
        numbered.number += before;
        rc = meeting->meet(meeting->user, &numbered);
        if (rc == OK)
            rc = net_continue(net, &point);
    }
    *result = *net_last_result(net);
    return rc;
}

static int pass_slice(struct workspace *ws, struct net *net, const struct vec *x, struct vec *s,
                      const struct net_batch *batch, const struct slice_meeting *meeting,
                      struct net_result *result)
{
    size_t before = ws->train ? net_points(ws->train) : 0;
    before += net == ws->separate ? net_points(ws->test) : 0;
    return slice_meeting_forward(meeting, before, net, x, s, batch, result);
}

int workspace_pass(struct workspace *ws, const struct vec *x, struct vec *s,
                   const struct net_batch *batch, const struct slice_meeting *meeting,
                   struct net_result *result)
{
    return pass_slice(ws, ws->test, x, s, batch, meeting, result);
}

int workspace_evaluate(struct workspace *ws, const struct dataset *set, size_t first, size_t count,
                       const struct vec *x, struct vec *s, struct net_result *sum, struct err *err)
{
    return workspace_evaluate_slice(ws, set, first, count, x, s, NULL, sum, err);
}

static int fill_batch(const struct workspace *ws, struct batch *batch, const struct dataset *set,
                      size_t first, size_t n, const struct slice_meeting *meeting, struct err *err)
{
    if (!meeting || !meeting->gathers_records || !batch_may_fill_own(set))
        return batch_fill_plain(batch, set, first, n, err);
    const struct net_point records = {.meeting = NET_GATHER,
                                      .values = batch->data,
                                      .rows = 1,
                                      .outputs = n,
                                      .each = batch->record_floats};
    int rc = batch_fill_own(batch, set, first, n, slice_units(&ws->slice, n), err);
    return rc == OK ? meeting->meet(meeting->user, &records) : rc;
}

int workspace_evaluate_slice(struct workspace *ws, const struct dataset *set, size_t first,
                             size_t count, const struct vec *x, struct vec *s,
                             const struct slice_meeting *meeting, struct net_result *sum,
                             struct err *err)
{
    PL_ASSERT(first + count <= set->count);
    bool separate = ws->separate && shape_equal(&set->shape, &ws->separate_shape);
    PL_ASSERT(separate || shape_count(&set->shape) == ws->record_floats);
    struct batch *records = separate ? &ws->separate_records : loader_spare(&ws->loader);
    struct net *net = separate ? ws->separate : ws->test;
    while (count > 0) {
        size_t n = count < records->cap ? count : records->cap;
        int rc = fill_batch(ws, records, set, first, n, meeting, err);
        if (rc != OK)
            return rc;
        struct net_batch batch = {
            .data = records->data,
            .labels = records->labels,
            .records = records->records,
            .count = n,
        };
        struct net_result piece;
        if (meeting)
            rc = pass_slice(ws, net, x, s, &batch, meeting, &piece);
        else
            net_forward(net, x, s, &batch, &piece);
        if (rc != OK)
            return rc;
        sum->loss += piece.loss;
        sum->right += piece.right;
        sum->has_right = piece.has_right;
        sum->count += n;
        first += n;
        count -= n;
    }
    return OK;
}

struct evaluation evaluation_of(const struct net_result *sum)
{
    double n = sum->count ? (double)sum->count : 1.0;
    return (struct evaluation){
        .error = sum->has_right ? 1.0 - (double)sum->right / n : -1.0,
        .loss = sum->loss / n,
        .count = sum->count,
    };
}
