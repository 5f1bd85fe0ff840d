/* The donor's side of a join. At a commit point the donor admits the joiner (group/roster.h) and
 * sends it the join state and a copy of the model, while all train. This costs the donor a copy of
 * the model and a round trip to the driver.
 *
 * The publisher keeps the copy's memory for later use, since allocating 100 MB again would delay a
 * step by a quarter of a second. Evaluations wait until the copy is sent. */
#ifndef PL_TRAIN_JOIN_DONOR_H
#define PL_TRAIN_JOIN_DONOR_H

#include "train/model.h"

/* Called at a commit point, or between two steps in asynchronous strategies. If the driver has
 * named a joiner, admit it with `progress` and `model`. While the publisher is busy, no joiner is
 * admitted. OK, ERR_NOMEM, ERR_DRIVER, ERR_CANCELLED */
int join_donor_admit(const struct strategy_ops *strategy, const struct strategy_traits *traits,
                     struct publisher *publisher, const struct member *m,
                     const struct progress *progress, const struct global_model *model);

#endif
