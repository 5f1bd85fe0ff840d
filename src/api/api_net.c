#include "api/net.h"

#include "api/guard.h"
#include "api/option_size.h"
#include "job/text.h"
#include "model/load.h"
#include "model/scores.h"
#include "real/real.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 65536, THREADS_MAX = 1024 };

static const char solver_default[] =
    "base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'fixed'";

/* ---- its life ---- */

static int read_solver(const char *text, Caffe__SolverParameter **out, struct err *err)
{
    ProtobufCMessage *msg = NULL;
    int rc =
        text_parse(&caffe__solver_parameter__descriptor, "solver", text, strlen(text), &msg, err);
    if (rc != OK)
        return rc;
    *out = (Caffe__SolverParameter *)msg;
    if ((*out)->net)
        return err_set(err, ERR_INPUT, "solver.net: the specification sets the net");
    return OK;
}

int api_set_word(Paceline__Job *job, const char *field, const char *word, struct err *err)
{
    char assignment[64];
    if (!word)
        return OK;
    snprintf(assignment, sizeof assignment, "%s=%s", field, word);
    return job_set(job, assignment, err);
}

int api_net_job(const pl_net_spec *spec, const pl_net_options *options, Paceline__Job **out,
                struct err *err)
{
    if (options->batch > BATCH_MAX)
        return err_set(err, ERR_INPUT, "batch: must be at most %d, is %u", BATCH_MAX,
                       options->batch);
    if (options->threads > THREADS_MAX)
        return err_set(err, ERR_INPUT, "threads: must be at most %d, is %u", THREADS_MAX,
                       options->threads);
    int rc = job_parse("net", "", 0, out, err);
    if (rc != OK)
        return rc;
    Paceline__Job *job = *out;
    if (options->batch)
        job->batch = options->batch;
    if (options->seed)
        job->seed = options->seed;
    job->threads = options->threads ? options->threads : (uint32_t)real_threads(1);
    rc = api_set_word(job, "kernels", options->kernels, err);
    if (rc == OK)
        rc = api_set_word(job, "precision", options->precision, err);
    if (rc == OK)
        rc = model_define_net(&job->net, spec->build.net, err);
    return rc != OK
               ? rc
               : read_solver(options->solver ? options->solver : solver_default, &job->solver, err);
}

/* "conv1.0" → "conv1" */
static int name_layers(pl_net *net)
{
    const struct segments *table = net_segments(workspace_net(net->ws));
    net->layer = arena_array(&net->arena, table->count, const char *);
    for (size_t i = 0; net->layer && i < table->count; i++) {
        char *name = arena_strdup(&net->arena, table->at[i].name);
        if (!name)
            return ERR_NOMEM;
        char *dot = strrchr(name, '.');
        if (dot)
            *dot = '\0';
        net->layer[i] = name;
    }
    return net->layer ? OK : ERR_NOMEM;
}

/* Make weights and state alone, without the rest of a learner and without initial values, which
 * take longer to draw in a large net than its weights take to load. */
static int make_still(pl_net *net, struct err *err)
{
    struct learner *l = &net->learner;
    const struct net *form = workspace_net(net->ws);
    *l = (struct learner){.table = net_segments(form)};
    if (vec_init(&l->x, &net->arena, l->table->total) != OK ||
        vec_init(&l->s, &net->arena, net_state_segments(form)->total) != OK)
        return err_set(err, ERR_NOMEM, "net: out of memory for %zu parameters", l->table->total);
    return OK;
}

/* The blob that pl_net_predict reads is kept from the beginning. */
static int plan_net(pl_net *net, const struct shape *record, const struct fields *fields,
                    struct err *err)
{
    const struct logger *log = &net->engine->log;
    struct tuner *tuner = api_tuner(&net->engine->tuning, log);
    struct scores scores;
    struct err none;
    if (!net->inference)
        return workspace_plan(net->job, record, fields, log, tuner, &net->ws, err);
    bool known = model_scores(net->job->net->define, &scores, &none) == OK;
    return workspace_plan_tests(net->slice.index, net->job, record, fields, log, tuner,
                                known ? scores.blob : NULL, &net->ws, err);
}

int api_net_form(pl_net *net, const struct shape *record, const struct fields *fields,
                 struct err *err)
{
    kernels_set_threads((int)net->job->threads); /* before planning, which depends on this number */
    int rc = plan_net(net, record, fields, err);
    if (rc != OK)
        return rc;
    rc = net->inference ? make_still(net, err)
                        : learner_init(&net->learner, NULL, net->job, &net->corpus, net->ws,
                                       &net->arena, NULL, err);
    net->record = *record;
    if (rc == OK && name_layers(net) != OK)
        rc = err_set(err, ERR_NOMEM, "net: out of memory");
    if (rc != OK) {
        workspace_free(net->ws);
        net->ws = NULL;
        arena_release(&net->arena);
        arena_init(&net->arena);
    }
    return rc;
}

int api_net_formed(const pl_net *net, struct err *err)
{
    if (net->ws)
        return OK;
    return err_set(err, ERR_USAGE,
                   "net: the shape of its records is unknown: state it in the net, or set data");
}

/* The specification's job says which layers the slices share out. */
static int cut_job(pl_net *net, const pl_net_spec *spec, struct err *err)
{
    net->job->slices = (uint32_t)net->slice.count;
    return api_copy_name(spec->slices_from, &net->job->slices_from) &&
                   api_copy_name(spec->slices_to, &net->job->slices_to)
               ? OK
               : err_set(err, ERR_NOMEM, "net: out of memory");
}

static int create_net(pl_engine *engine, const pl_net_spec *spec, const pl_net_options *options,
                      pl_net **out)
{
    struct err *err = &engine->error;
    pl_net_options own;
    int rc = OPTIONS_TAKE(pl_net_options, &own, options, err);
    if (rc == OK)
        rc = api_spec_check(spec, err);
    if (rc != OK)
        return rc;
    pl_net *net = calloc(1, sizeof *net);
    if (!net)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    net->engine = engine;
    net->inference = own.inference;
    arena_init(&net->arena);
    rc = api_net_join(net, own.team, err);
    if (rc == OK)
        rc = api_net_job(spec, &own, &net->job, err);
    if (rc == OK && net->team)
        rc = cut_job(net, spec, err);
    const struct shape record = model_record_shape(spec->build.net);
    if (rc == OK && record.n > 0)
        rc = api_net_form(net, &record, NULL, err);
    if (rc == OK)
        *out = net;
    else
        pl_net_free(net);
    return rc;
}

int pl_net_create(pl_engine *engine, const pl_net_spec *spec, const pl_net_options *options,
                  pl_net **out)
{
    RETURN_GUARDED(engine, create_net(engine, spec, options, out));
}

void pl_net_free(pl_net *net)
{
    if (!net)
        return;
    workspace_free(net->ws);
    api_net_release_data(net);
    api_net_release_text(net);
    if (net->text)
        protobuf_c_message_free_unpacked(&net->text->base, NULL);
    buf_release(&net->drawn);
    free(net->parts);
    arena_release(&net->arena);
    job_free(net->job);
    free(net);
}

/* ---- what it does ---- */

static int train_net(pl_net *net, uint64_t steps, double *mean_loss)
{
    struct err *err = &net->engine->error;
    double sum = 0;
    if (net->inference)
        return err_set(err, ERR_USAGE, "net: it was made for inference, not to be trained");
    if (net->corpus.set[SET_TRAIN].count == 0)
        return err_set(err, ERR_USAGE, "net: there is no training data; set it first");
    kernels_set_threads((int)net->job->threads);
    for (uint64_t i = 0; i < steps; i++) {
        int rc = learner_step(&net->learner, net->place, net->job->batch);
        if (rc == ERR_DIVERGED)
            return err_set(err, rc, "net: step %" PRIu64 " of %" PRIu64 ": the loss is not finite",
                           i + 1, steps);
        if (rc != OK)
            return err_set(err, rc, "net: %s",
                           rc == net->learner.err.status ? net->learner.err.text : status_text(rc));
        net->place += net->job->batch;
        sum += net->learner.loss;
    }
    if (mean_loss)
        *mean_loss = steps ? sum / (double)steps : 0;
    return OK;
}

int pl_net_train(pl_net *net, uint64_t steps, double *mean_loss)
{
    RETURN_GUARDED(net->engine, train_net(net, steps, mean_loss));
}

static int test_net(pl_net *net, uint64_t steps, pl_test_result *result)
{
    const struct dataset *set = &net->corpus.set[SET_TEST];
    size_t batch = net->job->batch, all = (set->count + batch - 1) / batch;
    struct net_result sum = {0};
    if (set->count == 0)
        return err_set(&net->engine->error, ERR_USAGE,
                       "net: there is no validation data; set it first");
    kernels_set_threads((int)net->job->threads);
    size_t count = steps == 0 || steps >= all ? set->count : (size_t)steps * batch;
    int rc = api_net_evaluate(net, set, count, &sum);
    if (rc != OK)
        return rc;
    struct evaluation e = evaluation_of(&sum);
    *result = (pl_test_result){sum.has_right ? e.error : -1, e.loss, e.count};
    return OK;
}

int pl_net_test(pl_net *net, uint64_t steps, pl_test_result *result)
{
    RETURN_GUARDED(net->engine, test_net(net, steps, result));
}

/* Does the blob exist, with a part for each record, and is there room for all parts? */
static int check_blob(const pl_net *net, size_t count, const char *blob, size_t room, size_t *each,
                      struct err *err)
{
    struct shape shape = {0};
    if (net_blob(net->ws->test, blob, NULL, 0, &shape) == 0)
        return err_set(err, ERR_USAGE, "net: no layer makes a blob \"%.100s\"", blob);
    if (!net_by_records(net->ws->test, blob))
        return err_set(err, ERR_USAGE,
                       "net: blob \"%.100s\" does not go by records: it is %s, not one a record",
                       blob, shape.n == 0 ? "one number" : "of the whole batch");
    if (net_blob_is_part(net->ws->test, blob))
        return err_set(err, ERR_UNSUPPORTED, "net: each slice has a part of blob \"%.100s\" alone",
                       blob);
    size_t floats = shape_count_from(&shape, 1);
    *each = floats;
    if (room / floats < count)
        return err_set(err, ERR_USAGE, "blob \"%.100s\": %zu records of %zu floats need more room",
                       blob, count, floats);
    return OK;
}

static int check_values(const float *x, size_t floats, size_t count, struct err *err)
{
    for (size_t i = 0; i < floats * count; i++)
        if (!isfinite(x[i]))
            return err_set(err, ERR_INPUT, "record %zu: value %zu is not a finite number",
                           i / floats, i % floats);
    return OK;
}

static int forward_net(pl_net *net, const float *records, size_t count, const char *blob,
                       float *out, size_t room, size_t *each)
{
    struct err *err = &net->engine->error;
    int rc = api_net_formed(net, err);
    if (rc == OK)
        rc = check_blob(net, count, blob, room, each, err);
    if (rc == OK)
        rc = check_values(records, net->ws->record_floats, count, err);
    if (rc != OK)
        return rc;
    size_t batch = net->job->batch;
    kernels_set_threads((int)net->job->threads);
    if ((rc = workspace_keep(net->ws, net->job, blob, err)) != OK)
        return rc;
    uint32_t *labels = calloc(batch, sizeof *labels); /* for a loss, which is ignored */
    if (!labels)
        return err_set(err, ERR_NOMEM, "net: out of memory for %zu labels", batch);
    for (size_t i = 0; rc == OK && i < count; i += batch) {
        size_t n = count - i < batch ? count - i : batch;
        struct net_batch piece = {
            .data = records + i * net->ws->record_floats,
            .labels = labels,
            .count = n,
        };
        rc = api_net_pass(net, &piece, err);
        if (rc == OK)
            net_blob(net->ws->test, blob, out + i * *each, n * *each, NULL);
    }
    free(labels);
    return rc;
}

int pl_net_forward(pl_net *net, const float *records, size_t count, const char *blob, float *out,
                   size_t room, size_t *each)
{
    RETURN_GUARDED(net->engine, forward_net(net, records, count, blob, out, room, each));
}
