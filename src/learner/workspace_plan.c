/* The nets of a workspace: how they are planned, and where their activations lie. */
#include "learner/workspace.h"

#include "base/fault.h"
#include "base/memory.h"
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

/* One more net of the job, which lies where the others do. */
static int plan_another(struct workspace *ws, const Paceline__Job *job, struct net_options *options,
                        struct net **out, struct err *err)
{
    Caffe__NetParameter *param;
    struct net *net = NULL;
    int rc = load_net(job, ws->only_tests, &param, err);
    if (rc != OK)
        return rc;
    rc = make_net(ws, param, options, &net, err);
    caffe__net_parameter__free_unpacked(param, NULL);
    if (rc == OK)
        rc = finish_net(ws, net, err);
    if (rc == OK)
        *out = net;
    else
        net_free(net);
    return rc;
}

int workspace_keep(struct workspace *ws, const Paceline__Job *job, const char *blob,
                   struct err *err)
{
    struct net *net;
    if (net_keeps(ws->test, blob))
        return OK;
    struct net_options options = options_of(ws, PHASE_TEST, ws->batch, &ws->record);
    options.keep = blob;
    options.keep_all = ws->requested; /* a second requested blob may be followed by more */
    int rc = plan_another(ws, job, &options, &net, err);
    if (ws->tuner)
        tuner_finish(ws->tuner);
    if (rc != OK)
        return rc;
    net_free(ws->test);
    ws->test = net;
    ws->requested = true;
    return OK;
}

static int plan_fewer(struct workspace *ws, const Paceline__Job *job, int threads, struct err *err)
{
    struct net_options options = training_options(ws, job, &ws->record);
    struct net *net;
    int before = kernels_threads();
    if (ws->tuner)
        tuner_stop(ws->tuner);
    kernels_set_threads(threads);
    int rc = plan_another(ws, job, &options, &net, err);
    kernels_set_threads(before);
    if (rc != OK)
        return rc;
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
    struct err why = {0};
    int rc = plan_another(ws, job, &options, &ws->separate, &why);
    if (ws->tuner)
        tuner_finish(ws->tuner);
    if (rc == ERR_INPUT || rc == ERR_UNSUPPORTED)
        return refuse_difference(corpus, why.text, err);
    if (rc != OK)
        return err_set(err, rc, "%s", why.text);
    if (!segments_match(net_segments(ws->train), net_segments(ws->separate)) ||
        !segments_match(net_state_segments(ws->train), net_state_segments(ws->separate)))
        return refuse_difference(corpus, "the net would have other parameters", err);
    ws->separate_shape = test->shape;
    if ((rc = workspace_accepts(ws, test, "test_data", err)) != OK)
        return rc;
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
