#include "job/job_solver.h"

#include "base/fault.h"
#include "job/check.h"
#include "job/job.h"
#include "job/job_solver_data.h"
#include "job/job_solver_net.h"
#include "job/text.h"
#include "job/text_field.h"
#include "job/text_lex.h"
#include "job/text_number.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which of the two a file is ---- */

static bool has_field(const ProtobufCMessageDescriptor *type, const struct text_lex *name)
{
    return text_field_find(type, name->text + name->at, name->end - name->at) != NULL;
}

/* `net` is a message in a job and a path in a solver. */
static bool is_path(struct text_lex lex)
{
    text_lex_next(&lex);
    if (text_lex_is(&lex, ':'))
        text_lex_next(&lex);
    return lex.kind == TEXT_STRING;
}

bool job_is_solver(const char *text, size_t len)
{
    struct text_lex lex;
    int depth = 0;
    bool value = false; /* after a colon */
    for (text_lex_init(&lex, text, len); lex.kind != TEXT_END && lex.kind != TEXT_BAD;
         text_lex_next(&lex)) {
        if (text_lex_is(&lex, '{') || text_lex_is(&lex, '<') || text_lex_is(&lex, '['))
            depth++;
        if (text_lex_is(&lex, '}') || text_lex_is(&lex, '>') || text_lex_is(&lex, ']'))
            depth--;
        bool is_name = lex.kind == TEXT_WORD && depth == 0 && !value;
        value = text_lex_is(&lex, ':');
        if (!is_name)
            continue;
        bool in_job = has_field(&paceline__job__descriptor, &lex);
        bool in_solver = has_field(&caffe__solver_parameter__descriptor, &lex);
        bool is_net = lex.end - lex.at == 3 && memcmp(lex.text + lex.at, "net", 3) == 0;
        if (is_net)
            return is_path(lex);
        if (in_job != in_solver)
            return in_solver;
    }
    return false;
}

int job_solver_parse(const char *name, const char *text, size_t len, Caffe__SolverParameter **out,
                     struct err *err)
{
    ProtobufCMessage *msg = NULL;
    int rc = text_parse(&caffe__solver_parameter__descriptor, name, text, len, &msg, err);
    if (rc == OK)
        *out = (Caffe__SolverParameter *)msg;
    return rc;
}

/* ---- which nets there are ---- */

static bool is_filled(const char *text)
{
    return text && *text;
}

/* Caffe's rule: one field names the training net; others name testing nets, and if test_iter has
 * more entries, the common net serves for the rest. Paceline has one testing net. */
int job_solver_nets(const Caffe__SolverParameter *s, struct job_solver_net *train,
                    struct job_solver_net *test, struct err *err)
{
    int train_nets = is_filled(s->net) + (s->net_param != NULL) + is_filled(s->train_net) +
                     (s->train_net_param != NULL);
    if (train_nets != 1)
        return err_set(err, ERR_INPUT,
                       "%s: give the trained net as net, net_param, train_net or train_net_param",
                       train_nets == 0 ? "net" : "train_net");
    bool both = is_filled(s->net) || s->net_param;
    size_t tests = s->n_test_net + s->n_test_net_param;
    if (s->n_test_iter < tests || (!both && s->n_test_iter > tests))
        return err_set(err, ERR_INPUT, "test_iter: %zu given, for %zu testing nets", s->n_test_iter,
                       tests);
    if (s->n_test_iter > 1)
        return err_set(err, ERR_UNSUPPORTED, "test_iter: %zu testing nets, one is supported",
                       s->n_test_iter);
    if (s->n_test_iter == 1 && s->test_interval <= 0)
        return err_set(err, ERR_INPUT, "test_interval: must be > 0 where there is a test_iter");
    if (s->n_test_state > 0 && s->n_test_state != s->n_test_iter)
        return err_set(err, ERR_INPUT, "test_state: %zu given, for %zu testing nets",
                       s->n_test_state, s->n_test_iter);
    *train = (struct job_solver_net){is_filled(s->net) ? s->net : s->train_net,
                                     s->net_param ? s->net_param : s->train_net_param};
    *test = (struct job_solver_net){0};
    if (s->n_test_net > 0)
        test->file = s->test_net[0];
    else if (s->n_test_net_param > 0)
        test->given = s->test_net_param[0];
    else if (s->n_test_iter > 0)
        *test = *train;
    return OK;
}

/* ---- the job ---- */

struct project {
    const Caffe__SolverParameter *solver;
    Paceline__Job *job;
    const struct logger *log;
    struct job_solver_wants *wants;
    struct err *err;
};

static int no_memory(const struct project *p)
{
    return err_set(p->err, ERR_NOMEM, "job: out of memory");
}

static int set_number(const struct project *p, const char *path, double value)
{
    struct buf text = {0};
    text_number_put_double(&text, value);
    buf_put_u8(&text, 0);
    int rc =
        text.failed ? no_memory(p) : text_set(&p->job->base, path, (const char *)text.data, p->err);
    buf_release(&text);
    return rc;
}

/* The solver of the job, without the fields that a job states elsewhere. */
static int copy_solver(const struct project *p)
{
    static const char *const left_out[] = {
        "net",         "train_net",         "test_net",        "net_param",
        "train_state", "train_net_param",   "test_iter",       "test_net_param",
        "test_state",  "test_interval",     "weights",         "test_initialization",
        "random_seed", "solver_mode",       "device_id",       "debug_info",
        "iter_size",   "test_compute_loss", "snapshot_format", "layer_wise_reduce"};
    struct buf text = {0};
    text_write(&p->solver->base, &text);
    int rc = text.failed
                 ? no_memory(p)
                 : job_solver_parse("solver", (char *)text.data, text.len, &p->job->solver, p->err);
    buf_release(&text);
    for (size_t i = 0; rc == OK && i < sizeof left_out / sizeof *left_out; i++) {
        ProtobufCMessage *copy = &p->job->solver->base;
        text_field_clear(copy, text_field_find(copy->descriptor, left_out[i], strlen(left_out[i])));
    }
    return rc;
}

/* Logs, once, the fields that have no meaning here. */
static int log_differences(const struct project *p)
{
    const Caffe__SolverParameter *s = p->solver;
    if (s->debug_info)
        return err_set(p->err, ERR_UNSUPPORTED, "debug_info: is not supported");
    if (s->snapshot_diff)
        return err_set(p->err, ERR_UNSUPPORTED, "snapshot_diff: is not supported");
    if (s->has_solver_mode && s->solver_mode == CAFFE__SOLVER_PARAMETER__SOLVER_MODE__GPU)
        log_info(p->log, "solver_mode: GPU: trains on the CPU");
    if (s->has_device_id)
        log_info(p->log, "device_id: ignored: trains on the CPU");
    if (s->has_layer_wise_reduce)
        log_info(p->log, "layer_wise_reduce: ignored: strategy.allreduce.bucket_kb is for that");
    if (s->snapshot_format == CAFFE__SOLVER_PARAMETER__SNAPSHOT_FORMAT__HDF5)
        log_warn(p->log, "snapshot_format: HDF5 cannot be written; snapshots are BINARYPROTO");
    return OK;
}

static int map_weights(const struct project *p)
{
    struct buf list = {0};
    for (size_t i = 0; i < p->solver->n_weights; i++)
        buf_printf(&list, "%s%s", i ? "," : "", p->solver->weights[i]);
    buf_put_u8(&list, 0);
    int rc = list.failed ? no_memory(p) : OK;
    if (rc == OK && p->solver->n_weights > 0)
        rc = text_set(&p->job->base, "weights", (const char *)list.data, p->err);
    buf_release(&list);
    return rc;
}

/* Set the run's directory and its end. */
static int map_run(const struct project *p, const char *name)
{
    const Caffe__SolverParameter *s = p->solver;
    int rc = check_given("max_iter", s->has_max_iter, p->err);
    if (rc == OK)
        rc = check_positive("max_iter", s->max_iter, p->err);
    if (rc == OK)
        rc = check_positive("iter_size", s->iter_size, p->err);
    if (rc == OK)
        rc = text_set(&p->job->base, "name", name, p->err);
    if (rc == OK)
        rc = set_number(p, "stop.steps", s->max_iter);
    if (rc == OK && s->random_seed >= 0) {
        p->job->seed = (uint64_t)s->random_seed;
        p->job->has_seed = true;
    }
    if (rc == OK)
        rc = set_number(p, "iter_size", s->iter_size);
    if (rc == OK && !is_filled(s->snapshot_prefix))
        rc = text_set(&p->job->base, "solver.snapshot_prefix", name, p->err);
    return rc == OK ? map_weights(p) : rc;
}

/* Test at every test_interval steps, and before the first. */
static int map_tests(const struct project *p, uint32_t batch)
{
    const Caffe__SolverParameter *s = p->solver;
    int rc = check_positive("test_iter", s->test_iter[0], p->err);
    if (rc == OK)
        rc = set_number(p, "evaluate.every_steps", s->test_interval);
    if (rc == OK && s->test_initialization)
        rc = text_set(&p->job->base, "evaluate.at_start", "true", p->err);
    double records = (double)s->test_iter[0] * batch;
    if (rc == OK && batch > 0 && records <= UINT32_MAX)
        rc = set_number(p, "evaluate.test_records", records);
    return rc;
}

static int map_train_layer(const struct project *p, const Caffe__LayerParameter *layer)
{
    struct job_data_layer mapped;
    if (!layer) {
        snprintf(p->wants->train, sizeof p->wants->train,
                 "net: has no data layer in phase TRAIN; give the records with --data KIND:PATH");
        return OK;
    }
    int rc = job_data_layer_map(layer, "--data", true, p->log, &mapped, p->err);
    if (rc != OK)
        return rc;
    p->job->train_data = mapped.data;
    memcpy(p->wants->train, mapped.wants, sizeof mapped.wants);
    return mapped.batch > 0 ? set_number(p, "batch", mapped.batch) : OK;
}

static int map_test_layer(const struct project *p, const Caffe__LayerParameter *layer)
{
    struct job_data_layer mapped = {0};
    if (p->solver->n_test_iter == 0)
        return OK;
    if (!layer) {
        snprintf(p->wants->test, sizeof p->wants->test,
                 "net: has no data layer in phase TEST; give the records with --test-data "
                 "KIND:PATH");
        return map_tests(p, 0);
    }
    int rc = job_data_layer_map(layer, "--test-data", false, p->log, &mapped, p->err);
    if (rc != OK)
        return rc;
    p->job->test_data = mapped.data;
    memcpy(p->wants->test, mapped.wants, sizeof mapped.wants);
    return map_tests(p, mapped.batch);
}

static int map_nets(const struct project *p, const Caffe__NetParameter *train,
                    const Caffe__NetParameter *test)
{
    const struct job_solver_merge mapping = {
        .train = train,
        .test = test,
        .train_state = p->solver->train_state,
        .test_state = p->solver->n_test_state > 0 ? p->solver->test_state[0] : NULL,
    };
    Caffe__LayerParameter *train_data = NULL, *test_data = NULL;
    Caffe__NetParameter *net;
    int rc = job_merge_nets(&mapping, &net, &train_data, &test_data, p->err);
    if (rc != OK)
        return rc;
    p->job->net = (Paceline__Net *)text_message_new(&paceline__net__descriptor);
    if (p->job->net) {
        p->job->net->source_case = PACELINE__NET__SOURCE_DEFINE;
        p->job->net->define = net;
        rc = map_train_layer(p, train_data);
    } else {
        caffe__net_parameter__free_unpacked(net, NULL);
        rc = no_memory(p);
    }
    if (rc == OK)
        rc = map_test_layer(p, test_data);
    if (train_data)
        caffe__layer_parameter__free_unpacked(train_data, NULL);
    if (test_data)
        caffe__layer_parameter__free_unpacked(test_data, NULL);
    return rc;
}

int job_from_solver(const Caffe__SolverParameter *solver, const Caffe__NetParameter *train,
                    const Caffe__NetParameter *test, const char *name, const struct logger *log,
                    Paceline__Job **out, struct job_solver_wants *wants, struct err *err)
{
    PL_ASSERT(solver && train && name);
    struct project p = {
        .solver = solver,
        .job = (Paceline__Job *)text_message_new(&paceline__job__descriptor),
        .log = log,
        .wants = wants,
        .err = err,
    };
    *wants = (struct job_solver_wants){0};
    int rc = p.job ? copy_solver(&p) : no_memory(&p);
    if (rc == OK)
        rc = log_differences(&p);
    if (rc == OK)
        rc = map_run(&p, name);
    if (rc == OK)
        rc = map_nets(&p, train, test);
    if (rc == OK)
        *out = p.job;
    else
        job_free(p.job);
    return rc;
}
