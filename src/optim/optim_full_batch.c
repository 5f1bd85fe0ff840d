/* The types of the strategy `full_batch`. Its steps take the loss and the gradient of all records,
 * and several of these for one change of x, so they are not updates of x from dx (descent.h). */
#include "optim/optim_list.h"

const struct optim_ops optim_cg = {.type = "CG", .whole = true};
const struct optim_ops optim_lbfgs = {.type = "LBFGS", .whole = true};
