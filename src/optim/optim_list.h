/* The optimizers there are, a family a file; optim.c looks them up by type. */
#ifndef PL_OPTIM_OPTIM_LIST_H
#define PL_OPTIM_OPTIM_LIST_H

#include "optim/optim.h"

extern const struct optim_ops optim_sgd, optim_nesterov;
extern const struct optim_ops optim_adagrad, optim_rmsprop, optim_adadelta;
extern const struct optim_ops optim_adam, optim_adamw;
extern const struct optim_ops optim_lars;
extern const struct optim_ops optim_cg, optim_lbfgs;

#endif
