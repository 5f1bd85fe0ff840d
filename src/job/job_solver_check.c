/* Checks the solver of a job: the ranges of its numbers, and the fields of Caffe that a job states
 * elsewhere. */
#include "job/check.h"
#include "job/job.h"
#include "job/job_solver.h"
#include "job/text.h"
#include "job/text_field.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>

enum { ITER_SIZE_MAX = 4096, AVERAGE_LOSS_MAX = 10000, PREFIX_MAX = 1024 };

static bool is_filled(const char *text)
{
    return text && *text;
}

/* Fields that have a meaning in a Caffe project alone, and the job's fields for the same. */
static const struct elsewhere {
    const char *name, *instead;
} elsewhere[] = {
    {"net", "name the net in `net { file: ... }` of the job instead"},
    {"train_net", "name the net in `net { file: ... }` of the job instead"},
    {"test_net", "name the net in `net { file: ... }` of the job instead"},
    {"net_param", "give the net in `net { define { ... } }` of the job instead"},
    {"train_net_param", "give the net in `net { define { ... } }` of the job instead"},
    {"test_net_param", "give the net in `net { define { ... } }` of the job instead"},
    {"train_state", "is for a solver file of its own"},
    {"test_state", "is for a solver file of its own"},
    {"test_iter", "use `evaluate { test_records: ... }` of the job instead"},
    {"test_interval", "use `evaluate { every_steps: ... }` of the job instead"},
    {"test_initialization", "use `evaluate { at_start: ... }` of the job instead"},
    {"random_seed", "use `seed` of the job instead"},
    {"weights", "use `weights` of the job instead"},
    {"solver_mode", "is for a solver file of its own"},
    {"device_id", "is for a solver file of its own"},
    {"test_compute_loss", "is always done"},
    {"layer_wise_reduce", "use `strategy { allreduce { bucket_kb: ... } }` of the job instead"},
    {"debug_info", "is not supported"},
    {"snapshot_diff", "is not supported"},
    {"snapshot_format", "HDF5 is not supported"},
};

/* Is it set, and not to its default? */
static bool is_given(const ProtobufCMessage *msg, const char *name)
{
    const ProtobufCFieldDescriptor *field = text_field_find(msg->descriptor, name, strlen(name));
    if (!text_field_is_set(msg, field))
        return false;
    if (text_field_repeated(field) || !field->default_value)
        return true;
    const void *slot = text_field_slot(msg, field);
    return memcmp(slot, field->default_value, text_field_size(field)) != 0;
}

static int check_elsewhere(const Caffe__SolverParameter *solver, struct err *err)
{
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (is_given(&solver->base, elsewhere[i].name))
            return err_set(err, ERR_INPUT, "solver.%s: %s", elsewhere[i].name,
                           elsewhere[i].instead);
    return OK;
}

static int check_numbers(const Caffe__SolverParameter *s, struct err *err)
{
    const struct {
        const char *field;
        double value;
        int (*check)(const char *field, double value, struct err *err);
        bool set;
    } numbers[] = {
        {"solver.base_lr", (double)s->base_lr, check_positive, s->has_base_lr},
        {"solver.momentum", (double)s->momentum, check_fraction, true},
        {"solver.momentum2", (double)s->momentum2, check_fraction, true},
        {"solver.rms_decay", (double)s->rms_decay, check_fraction, true},
        {"solver.delta", (double)s->delta, check_positive, true},
        {"solver.trust", (double)s->trust, check_positive, true},
        {"solver.weight_decay", (double)s->weight_decay, check_not_negative, true},
        {"solver.clip_gradients", (double)s->clip_gradients, check_finite, true},
        {"solver.gamma", (double)s->gamma, check_finite, true},
        {"solver.power", (double)s->power, check_finite, true},
        {"solver.end_lr", (double)s->end_lr, check_not_negative, s->has_end_lr},
        {"solver.warmup", (double)s->warmup, check_not_negative, true},
        {"solver.warmup_lr", (double)s->warmup_lr, check_not_negative, true},
        {"solver.lr_batch", s->lr_batch, check_positive, s->has_lr_batch},
        {"solver.max_iter", s->max_iter, check_positive, s->has_max_iter},
        {"solver.stepsize", s->stepsize, check_not_negative, s->has_stepsize},
        {"solver.display", s->display, check_not_negative, s->has_display},
        {"solver.snapshot", s->snapshot, check_not_negative, true},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int rc = numbers[i].set ? numbers[i].check(numbers[i].field, numbers[i].value, err) : OK;
        if (rc != OK)
            return rc;
    }
    return check_range("solver.average_loss", s->average_loss, 1, AVERAGE_LOSS_MAX, err);
}

/* The types of the strategy `full_batch` take a step from the loss of all records, along a line
 * that they search: a rate, a momentum or a batch would have no effect. Other types have no line
 * search. */
static int check_full_batch(const Paceline__Job *job, struct err *err)
{
    static const char *const rates[] = {
        "base_lr",   "lr_policy", "gamma",     "power",    "stepsize",  "stepvalue",
        "end_lr",    "warmup",    "warmup_lr", "lr_batch", "momentum",  "momentum2",
        "rms_decay", "delta",     "trust",     "clock",    "iter_size", "clip_gradients"};
    const Caffe__SolverParameter *solver = job->solver;
    bool all = strcmp(solver->type, "CG") == 0 || strcmp(solver->type, "LBFGS") == 0;
    if (!job_takes_all(job))
        return all ? err_set(err, ERR_INPUT,
                             "solver.type: \"%s\" takes a step from all records at once; write "
                             "--strategy full_batch",
                             solver->type)
                   : OK;
    if (!all)
        return err_set(err, ERR_INPUT,
                       "solver.type: strategy full_batch needs \"CG\" or \"LBFGS\", is \"%s\"; "
                       "write --set solver.type=LBFGS",
                       solver->type);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (is_given(&solver->base, rates[i]))
            return err_set(err, ERR_INPUT,
                           "solver.%s: has no effect with strategy full_batch, whose line search "
                           "finds the length of each step; --unset solver.%s",
                           rates[i], rates[i]);
    return OK;
}

/* `solver_type` is the old name of `type`. */
static int finish_type(Paceline__Job *job, struct err *err)
{
    static const char *const types[] = {"SGD",     "Nesterov", "AdaGrad",
                                        "RMSProp", "AdaDelta", "Adam"};
    Caffe__SolverParameter *solver = job->solver;
    if (!is_given(&solver->base, "solver_type"))
        return check_given("solver.type", is_filled(solver->type), err);
    const ProtobufCFieldDescriptor *field = text_field_find(solver->base.descriptor, "type", 4);
    if (text_field_is_set(&solver->base, field))
        return err_set(err, ERR_INPUT,
                       "solver.solver_type: `type` is set, and one of the two may be");
    solver->has_solver_type = false;
    unsigned type = (unsigned)solver->solver_type;
    solver->solver_type = CAFFE__SOLVER_PARAMETER__SOLVER_TYPE__SGD;
    return text_set(&job->base, "solver.type", types[type], err);
}

/* One number in two places; a finished job has it in both. */
static int finish_iter_size(Paceline__Job *job, struct err *err)
{
    Caffe__SolverParameter *solver = job->solver;
    bool in_solver = solver->has_iter_size && solver->iter_size != 1;
    if (in_solver && job->has_iter_size && (int64_t)job->iter_size != solver->iter_size)
        return err_set(err, ERR_INPUT,
                       "solver.iter_size: `iter_size` of the job is %" PRIu32 ", and this is %d",
                       job->iter_size, (int)solver->iter_size);
    int rc = in_solver ? check_range("solver.iter_size", solver->iter_size, 1, ITER_SIZE_MAX, err)
                       : check_range("iter_size", job->iter_size, 1, ITER_SIZE_MAX, err);
    if (rc != OK)
        return rc;
    if (in_solver)
        job->iter_size = (uint32_t)solver->iter_size;
    solver->iter_size = (int32_t)job->iter_size;
    job->has_iter_size = solver->has_iter_size = true;
    return OK;
}

void job_leave_out_elsewhere(Caffe__SolverParameter *solver)
{
    ProtobufCMessage *msg = &solver->base;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        const char *name = elsewhere[i].name;
        text_field_clear(msg, text_field_find(msg->descriptor, name, strlen(name)));
    }
    text_field_clear(msg, text_field_find(msg->descriptor, "solver_type", strlen("solver_type")));
}

int job_finish_solver(Paceline__Job *job, struct err *err)
{
    const Caffe__SolverParameter *solver = job->solver;
    if (!solver)
        return err_set(err, ERR_INPUT, "solver: is missing; give at least `solver { base_lr: R }`");
    int rc = check_elsewhere(solver, err);
    if (rc == OK)
        rc = check_full_batch(job, err);
    if (rc == OK && !job_takes_all(job))
        rc = check_remedied(check_given("solver.base_lr", solver->has_base_lr, err),
                            "; give the learning rate: `base_lr: 0.01` in the job, or --lr 0.01",
                            err);
    if (rc == OK)
        rc = check_numbers(solver, err);
    if (rc == OK && is_filled(solver->snapshot_prefix) &&
        strlen(solver->snapshot_prefix) > PREFIX_MAX)
        rc = err_set(err, ERR_INPUT, "solver.snapshot_prefix: is longer than %d bytes", PREFIX_MAX);
    if (rc == OK && solver->snapshot > 0)
        rc = check_given("solver.snapshot_prefix", is_filled(solver->snapshot_prefix), err);
    if (rc == OK)
        rc = finish_type(job, err);
    return rc == OK ? finish_iter_size(job, err) : rc;
}
