/* How a worker comes to a run under way, as members see it: at a commit point one of them, the
 * sponsor, lets it in (group/roster.h) and sends it what it needs to go on from there, from a copy,
 * while all train. It costs the sponsor a copy of the model and the way to the driver and back. */
#ifndef PL_TRAIN_SPONSOR_H
#define PL_TRAIN_SPONSOR_H

#include "train/model.h"

struct sponsor {
    const struct strategy_ops *strategy;
    size_t floats;              /* of a model that brings all that it may */
    struct publisher publisher; /* made when it is first needed */
    bool ready;
};

/* At a commit point, or where workers run free between two steps: if the driver has asked for it,
 * let one in. It begins with `course` and `joint`.
 * OK, ERR_NOMEM, ERR_DRIVER, ERR_CANCELLED */
int sponsor_if_asked(struct sponsor *sponsor, const struct member *m, const struct course *course,
                     const struct joint *joint);

void sponsor_release(struct sponsor *sponsor); /* zeroed: nothing to do */

#endif
