/* Learning-rate policies as pure functions of a clock value: Caffe's, and Elastic's poly-growth
 * (§6.2, experiment 5), whose poly-decay is poly with twice the power of the batch. Any policy may
 * begin with a warm-up. */
#ifndef PL_OPTIM_SCHEDULE_H
#define PL_OPTIM_SCHEDULE_H

#include "base/err.h"
#include "job/caffe.pb-c.h"

/* Check that the solver names a policy and sets the fields that the policy needs. ERR_INPUT by
 * name. */
int schedule_check(const Caffe__SolverParameter *solver, struct err *err);

/* The rate at `t`, in the unit of the solver's clock (steps, or fractional epochs); computed in
 * double and rounded to float (D8).
 *   fixed      base_lr
 *   step       base_lr · gamma^floor(t / stepsize)
 *   exp        base_lr · gamma^t
 *   inv        base_lr · (1 + gamma·t)^(−power)
 *   multistep  base_lr · gamma^(number of stepvalues ≤ t)
 *   poly       base_lr · (1 − t / max_iter)^power, 0 past max_iter
 *   polygrow   base_lr + (end_lr − base_lr) · (t / max_iter)^power, end_lr past max_iter
 *   sigmoid    base_lr / (1 + exp(−gamma·(t − stepsize)))
 * With a warm-up (Goyal et al. 2017, §2.2), while t < warmup:
 *              warmup_lr + (rate − warmup_lr) · t / warmup */
float schedule_rate(const Caffe__SolverParameter *solver, double t);

#endif
