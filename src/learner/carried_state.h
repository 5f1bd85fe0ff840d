/* The state of a learner's recurrent layers that goes from a record to the one that continues it
 * (truncated back-propagation through time: the state goes on, the gradient does not). It is a third
 * kind of vector beside x and s: the learner's own, in no exchange, mean, model or checkpoint.
 *
 * Where records are streams (sampler.h), record r of a stream is followed by r + 1. A stream's state
 * is what its last record here ended with. It is 0 for a record that does not follow that one: at
 * the beginning of an epoch, of a lease, or of another worker's share. */
#ifndef PL_LEARNER_CARRIED_STATE_H
#define PL_LEARNER_CARRIED_STATE_H

#include "data/batch.h"

struct carried_state {
    size_t streams, row; /* floats of a stream; 0 streams: nothing is carried */
    float *at;           /* of each stream, */
    uint64_t *next;      /* and the number of the record that it belongs to */
    float *batch;        /* of the batch that is computed */
};

/* For batches of up to `most` records. ERR_NOMEM */
int carried_state_init(struct carried_state *c, struct arena *arena, size_t streams, size_t row,
                       size_t most);

/* What the records of a batch begin with; its places in the stream of epochs begin at `start`. NULL:
 * nothing is carried. */
float *carried_state_begin(const struct carried_state *c, const struct sampler *sampler,
                           uint64_t start, const struct batch *records);

/* Keep what they have ended with. */
void carried_state_end(struct carried_state *c, const struct sampler *sampler, uint64_t start,
                       const struct batch *records);

#endif
