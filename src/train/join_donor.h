/* How a worker comes to a run under way, as members see it: at a commit point one of them, the
 * donor, lets it in (group/roster.h) and sends it what it needs to resume from there, from a copy,
 * while all train. It costs the donor a copy of the model and the way to the driver and back. The
 * copy is the publisher's, whose memory is there from the second one on: taking 100 MB again holds
 * a step up by a quarter of a second. Evaluations wait meanwhile. */
#ifndef PL_TRAIN_JOIN_DONOR_H
#define PL_TRAIN_JOIN_DONOR_H

#include "train/model.h"

/* At a commit point, or in asynchronous strategies between two steps: if the driver has asked for
 * it, let one in. It begins with `course` and `joint`. While the publisher is busy nobody is let
 * in. OK, ERR_NOMEM, ERR_DRIVER, ERR_CANCELLED */
int join_donor_admit(const struct strategy_ops *strategy, struct publisher *publisher,
                     const struct member *m, const struct progress *progress,
                     const struct global_model *model);

#endif
