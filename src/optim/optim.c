#include "optim/optim.h"

#include "base/fault.h"
#include "optim/optim_list.h"
#include "optim/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct optim_ops *const optims[] = {
    &optim_sgd,  &optim_nesterov, &optim_adagrad, &optim_rmsprop, &optim_adadelta,
    &optim_adam, &optim_adamw,    &optim_lars,    &optim_cg,      &optim_lbfgs,
};

enum { OPTIMS = sizeof optims / sizeof *optims };

static int find_ops(const char *type, const struct optim_ops **ops, struct err *err)
{
    char known[256] = "";
    for (size_t i = 0, used = 0; i < OPTIMS && used < sizeof known; i++) {
        if (strcmp(optims[i]->type, type) == 0) {
            *ops = optims[i];
            return OK;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s\"%s\"", i ? ", " : "",
                                 optims[i]->type);
    }
    return err_set(err, ERR_UNSUPPORTED, "solver.type: no optimizer \"%s\"; there are: %s", type,
                   known);
}

/* Momenta and decay rates of means: 0 or more, and less than 1, or new values would have no effect.
 */
static int check_share(const char *field, float value, struct err *err)
{
    if (value >= 0 && value < 1)
        return OK;
    return err_set(err, ERR_INPUT, "solver.%s: %g, expected 0 or more and less than 1", field,
                   (double)value);
}

/* A field that this optimizer does not read may only have its default. */
static int check_unread(const Caffe__SolverParameter *solver, const struct optim_ops *ops,
                        struct err *err)
{
    Caffe__SolverParameter unset;
    caffe__solver_parameter__init(&unset);
    const struct {
        unsigned bit;
        const char *name;
        float value, unset;
    } fields[] = {
        {OPTIM_MOMENTUM, "momentum", solver->momentum, 0},
        {OPTIM_MOMENTUM2, "momentum2", solver->momentum2, unset.momentum2},
        {OPTIM_RMS_DECAY, "rms_decay", solver->rms_decay, unset.rms_decay},
        {OPTIM_DELTA, "delta", solver->delta, unset.delta},
        {OPTIM_TRUST, "trust", solver->trust, unset.trust},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!(ops->reads & fields[i].bit) && fields[i].value != fields[i].unset)
            return err_set(err, ERR_UNSUPPORTED, "solver.%s: %g, but optimizer \"%s\" uses none",
                           fields[i].name, (double)fields[i].value, ops->type);
    return OK;
}

static bool is_l1(const Caffe__SolverParameter *solver)
{
    return strcmp(solver->regularization_type, "L1") == 0;
}

static int check_regularization(const Caffe__SolverParameter *solver, const struct optim_ops *ops,
                                struct err *err)
{
    if (!is_l1(solver) && strcmp(solver->regularization_type, "L2") != 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "solver.regularization_type: no \"%s\"; there are \"L2\" and \"L1\"",
                       solver->regularization_type);
    if (is_l1(solver) && (ops == &optim_adamw || ops == &optim_lars || !ops->update))
        return err_set(err, ERR_UNSUPPORTED,
                       "solver.regularization_type: the decay of optimizer \"%s\" is L2",
                       ops->type);
    if (isnan(solver->clip_gradients) || isinf(solver->clip_gradients))
        return err_set(err, ERR_INPUT, "solver.clip_gradients: %g, expected a finite number",
                       (double)solver->clip_gradients);
    return OK;
}

static int check_solver(const Caffe__SolverParameter *solver, const struct optim_ops *ops,
                        struct err *err)
{
    int status = ops->update ? schedule_check(solver, err) : OK;
    float decay = solver->weight_decay, delta = solver->delta, trust = solver->trust;
    if (!status)
        status = check_share("momentum", solver->momentum, err);
    if (!status)
        status = check_share("momentum2", solver->momentum2, err);
    if (!status)
        status = check_share("rms_decay", solver->rms_decay, err);
    if (status)
        return status;
    if (!(isfinite(decay) && decay >= 0))
        return err_set(err, ERR_INPUT,
                       "solver.weight_decay: %g, expected a finite number of 0 or more",
                       (double)decay);
    if (!(isfinite(delta) && delta > 0))
        return err_set(err, ERR_INPUT, "solver.delta: %g, expected a finite number above 0",
                       (double)delta);
    if (!(isfinite(trust) && trust > 0))
        return err_set(err, ERR_INPUT, "solver.trust: %g, expected a finite number above 0",
                       (double)trust);
    status = check_regularization(solver, ops, err);
    return status ? status : check_unread(solver, ops, err);
}

float optim_momentum(const Caffe__SolverParameter *solver)
{
    const struct optim_ops *ops = NULL;
    struct err err;
    if (find_ops(solver->type, &ops, &err) != OK || ops->no_momentum)
        return 0;
    return solver->has_momentum ? solver->momentum : ops->momentum;
}

int optim_init(struct optim *optim, const Caffe__SolverParameter *solver, size_t n,
               struct arena *arena, struct err *err)
{
    struct optim made = {.solver = solver, .scale = 1};
    int status = find_ops(solver->type, &made.ops, err);
    if (!status)
        status = check_solver(solver, made.ops, err);
    if (status)
        return status;
    PL_ASSERT(made.ops->states <= OPTIM_STATE_MAX);
    for (size_t i = 0; i < made.ops->states; i++)
        if (vec_init(&made.state[i], arena, n))
            return err_set(err, ERR_NOMEM, "no memory for %zu floats of %s", n,
                           made.ops->state_name[i]);
    *optim = made;
    return OK;
}

double optim_square(const struct segment *segment, const struct vec *dx)
{
    const struct range range = {segment->offset, segment->len};
    return segment->lr_mult != 0 ? vec_dot(dx, dx, range) : 0;
}

static double gradient_norm(const struct vec *dx, const struct segments *table)
{
    double sum = 0;
    for (size_t i = 0; i < table->count; i++)
        sum += optim_square(&table->at[i], dx);
    return sqrt(sum);
}

/* Pascanu et al. 2013, Algorithm 1: g ← g · c / ‖g‖ where ‖g‖ > c. With iter_size n Caffe measures
 * the sum of n gradients, before it is divided by n; dx is that mean. */
static void clip_gradient(struct optim *optim, struct vec *dx, const struct segments *table)
{
    const Caffe__SolverParameter *solver = optim->solver;
    double c = (double)solver->clip_gradients / (solver->iter_size > 1 ? solver->iter_size : 1);
    if (!optim_clips(optim))
        return;
    double norm = optim->has_norm ? optim->norm : gradient_norm(dx, table);
    optim->has_norm = false;
    if (norm > c)
        vec_scale(dx, (float)(c / norm), vec_all(dx));
}

bool optim_clips(const struct optim *optim)
{
    return optim->solver->clip_gradients >= 0;
}

bool optim_writes_gradient(const struct optim *optim)
{
    return optim_clips(optim) || is_l1(optim->solver);
}

bool optim_needs_whole(const struct optim *optim)
{
    return optim_clips(optim) || optim->ops->whole;
}

void optim_update(struct optim *optim, double t, struct vec *x, struct vec *dx,
                  const struct segments *table)
{
    const Caffe__SolverParameter *solver = optim->solver;
    PL_ASSERT(optim->ops->update);
    float decay = solver->has_weight_decay ? solver->weight_decay : 0;
    clip_gradient(optim, dx, table);
    if (is_l1(solver) && decay > 0)
        vec_decay_l1(dx, x, decay, table, vec_all(x));
    struct optim_step step = {
        .solver = optim->solver,
        .decay = is_l1(solver) ? 0 : decay,
        .rate = (float)(optim->scale * (double)schedule_rate(optim->solver, t)),
        .number = ++optim->updates,
    };
    optim->ops->update(&step, x, dx, optim->state, table, vec_all(x));
}

void optim_step_plainly(const struct optim *optim, double t, struct vec *x, const struct vec *dx,
                        struct vec *step, const struct segments *table)
{
    const Caffe__SolverParameter *solver = optim->solver;
    const struct vec_sgd rule = {
        .rate = (float)(optim->scale * (double)schedule_rate(solver, t)),
        .decay = solver->has_weight_decay && !is_l1(solver) ? solver->weight_decay : 0,
    };
    vec_sgd(x, dx, step, &rule, table, vec_all(x));
}

void optim_reset(struct optim *optim)
{
    for (size_t i = 0; i < optim->ops->states; i++)
        vec_fill(&optim->state[i], vec_all(&optim->state[i]), 0.0f);
    optim->updates = 0;
}
