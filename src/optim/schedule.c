#include "optim/schedule.h"

#include "base/fault.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Fields a policy needs, besides base_lr. */
enum {
    NEEDS_GAMMA = 1,
    NEEDS_POWER = 2,
    NEEDS_STEPSIZE = 4,
    NEEDS_STEPVALUE = 8,
    NEEDS_MAX_ITER = 16,
    NEEDS_END_LR = 64,
    GAMMA_SIGNED = 32, /* a gamma below 0 makes the rate fall */
};

static double rate_fixed(const Caffe__SolverParameter *s, double t)
{
    (void)t;
    return s->base_lr;
}

static double rate_step(const Caffe__SolverParameter *s, double t)
{
    return s->base_lr * pow(s->gamma, floor(t / s->stepsize));
}

static double rate_exp(const Caffe__SolverParameter *s, double t)
{
    return s->base_lr * pow(s->gamma, t);
}

static double rate_inv(const Caffe__SolverParameter *s, double t)
{
    return s->base_lr * pow(1 + s->gamma * t, -(double)s->power);
}

static double rate_multistep(const Caffe__SolverParameter *s, double t)
{
    size_t steps = 0;
    while (steps < s->n_stepvalue && s->stepvalue[steps] <= t)
        steps++;
    return s->base_lr * pow(s->gamma, (double)steps);
}

static double rate_poly(const Caffe__SolverParameter *s, double t)
{
    if (t >= s->max_iter)
        return 0;
    return s->base_lr * pow(1 - t / s->max_iter, s->power);
}

static double rate_polygrow(const Caffe__SolverParameter *s, double t)
{
    double part = t < s->max_iter ? pow(t / s->max_iter, s->power) : 1;
    return s->base_lr + ((double)s->end_lr - (double)s->base_lr) * part;
}

static double rate_sigmoid(const Caffe__SolverParameter *s, double t)
{
    return s->base_lr / (1 + exp(-s->gamma * (t - s->stepsize)));
}

struct policy {
    const char *name;
    double (*rate)(const Caffe__SolverParameter *s, double t);
    unsigned needs;
};

static const struct policy policies[] = {
    {"fixed", rate_fixed, 0},
    {"step", rate_step, NEEDS_GAMMA | NEEDS_STEPSIZE},
    {"exp", rate_exp, NEEDS_GAMMA},
    {"inv", rate_inv, NEEDS_GAMMA | NEEDS_POWER},
    {"multistep", rate_multistep, NEEDS_GAMMA | NEEDS_STEPVALUE},
    {"poly", rate_poly, NEEDS_POWER | NEEDS_MAX_ITER},
    {"polygrow", rate_polygrow, NEEDS_POWER | NEEDS_MAX_ITER | NEEDS_END_LR},
    {"sigmoid", rate_sigmoid, NEEDS_GAMMA | GAMMA_SIGNED | NEEDS_STEPSIZE},
};

enum { POLICIES = sizeof policies / sizeof *policies };

static const struct policy *policy_find(const char *name)
{
    for (size_t i = 0; name && i < POLICIES; i++)
        if (strcmp(policies[i].name, name) == 0)
            return &policies[i];
    return NULL;
}

static int unknown_policy(const char *name, struct err *err)
{
    char known[128] = "";
    for (size_t i = 0, used = 0; i < POLICIES; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 policies[i].name);
    if (!name || !*name)
        return err_set(err, ERR_INPUT, "solver.lr_policy is not set; there are: %s", known);
    return err_set(err, ERR_INPUT, "solver.lr_policy: no policy \"%s\"; there are: %s", name,
                   known);
}

/* A number that must be set, finite and not negative. */
static int check_number(const char *field, const char *policy, bool has, float value,
                        struct err *err)
{
    if (!has)
        return err_set(err, ERR_INPUT,
                       "solver.%s: is missing, and lr_policy \"%s\" needs it; set it", field,
                       policy);
    if (!isfinite(value) || value < 0)
        return err_set(err, ERR_INPUT, "solver.%s: %g, expected a finite number of 0 or more",
                       field, (double)value);
    return OK;
}

static int check_gamma(const struct policy *policy, const Caffe__SolverParameter *s,
                       struct err *err)
{
    if (!(policy->needs & GAMMA_SIGNED) || !s->has_gamma || !(s->gamma < 0))
        return check_number("gamma", policy->name, s->has_gamma, s->gamma, err);
    return isfinite(s->gamma)
               ? OK
               : err_set(err, ERR_INPUT, "solver.gamma: %g, expected a finite number",
                         (double)s->gamma);
}

static int check_count(const char *field, const char *policy, bool has, int32_t value,
                       struct err *err)
{
    if (!has)
        return err_set(err, ERR_INPUT,
                       "solver.%s: is missing, and lr_policy \"%s\" needs it; set it", field,
                       policy);
    if (value < 1)
        return err_set(err, ERR_INPUT, "solver.%s: %d, expected 1 or more", field, (int)value);
    return OK;
}

static int check_stepvalues(const Caffe__SolverParameter *s, const char *policy, struct err *err)
{
    if (s->n_stepvalue == 0)
        return err_set(err, ERR_INPUT,
                       "solver.stepvalue: is missing, and lr_policy \"%s\" needs it; set it",
                       policy);
    for (size_t i = 0; i < s->n_stepvalue; i++) {
        if (s->stepvalue[i] < 0)
            return err_set(err, ERR_INPUT, "solver.stepvalue: %d, expected 0 or more",
                           (int)s->stepvalue[i]);
        if (i && s->stepvalue[i] <= s->stepvalue[i - 1])
            return err_set(err, ERR_INPUT,
                           "solver.stepvalue: %d after %d, expected values that rise",
                           (int)s->stepvalue[i], (int)s->stepvalue[i - 1]);
    }
    return OK;
}

static int check_warmup(const Caffe__SolverParameter *s, struct err *err)
{
    if (!(isfinite(s->warmup) && s->warmup >= 0))
        return err_set(err, ERR_INPUT, "solver.warmup: %g, expected a finite number of 0 or more",
                       (double)s->warmup);
    if (!(isfinite(s->warmup_lr) && s->warmup_lr >= 0))
        return err_set(err, ERR_INPUT,
                       "solver.warmup_lr: %g, expected a finite number of 0 or more",
                       (double)s->warmup_lr);
    if (s->warmup_lr > 0 && s->warmup == 0)
        return err_set(
            err, ERR_INPUT,
            "solver.warmup: is missing, and warmup_lr is where a warm-up begins; set it");
    return OK;
}

int schedule_check(const Caffe__SolverParameter *solver, struct err *err)
{
    const struct policy *policy = policy_find(solver->lr_policy);
    if (!policy)
        return unknown_policy(solver->lr_policy, err);
    const char *name = policy->name;
    int status = check_number("base_lr", name, solver->has_base_lr, solver->base_lr, err);
    if (!status && (policy->needs & NEEDS_GAMMA))
        status = check_gamma(policy, solver, err);
    if (!status && (policy->needs & NEEDS_POWER))
        status = check_number("power", name, solver->has_power, solver->power, err);
    if (!status && (policy->needs & NEEDS_STEPSIZE))
        status = check_count("stepsize", name, solver->has_stepsize, solver->stepsize, err);
    if (!status && (policy->needs & NEEDS_STEPVALUE))
        status = check_stepvalues(solver, name, err);
    if (!status && (policy->needs & NEEDS_MAX_ITER))
        status = check_count("max_iter", name, solver->has_max_iter, solver->max_iter, err);
    if (!status && (policy->needs & NEEDS_END_LR))
        status = check_number("end_lr", name, solver->has_end_lr, solver->end_lr, err);
    return status ? status : check_warmup(solver, err);
}

float schedule_rate(const Caffe__SolverParameter *solver, double t)
{
    const struct policy *policy = policy_find(solver->lr_policy);
    PL_ASSERT(policy && t >= 0);
    double rate = policy->rate(solver, t), begin = solver->warmup_lr, length = solver->warmup;
    return (float)(t < length ? begin + (rate - begin) * (t / length) : rate);
}
