/* The optimizers there are, one a file; optim.c looks them up by type. */
#ifndef PL_OPTIM_OPTIM_LIST_H
#define PL_OPTIM_OPTIM_LIST_H

#include "optim/optim.h"

extern const struct optim_ops optim_sgd;

#endif
