/* The state that a learner's recurrent layers carry from a record to the one that continues it, as
 * truncated back-propagation through time does: the gradient ends between the two. Besides x and s
 * it is a third kind of vector: the learner's own, in no exchange, mean or model. Checkpoints have
 * that of a lone worker, of several whose shares are fixed (train/stream_parts.h), and of slices
 * (strategy/slice_group.h).
 *
 * Where records are streams (sampler.h), record r + 1 continues record r. A stream has the state
 * that its last record here ended with. A record that does not continue that one begins with 0: the
 * first one of an epoch, of another worker's share, or of a lease, but where the lease continues
 * the worker's last one.
 *
 * A slice of a model computes a part of each row, and knows which: its own units, and the
 * data-parallel layers of its own records (nn/net.h). */
#ifndef PL_LEARNER_CARRIED_STATE_H
#define PL_LEARNER_CARRIED_STATE_H

#include "data/batch.h"

struct carried_state {
    size_t streams, row; /* floats of a stream; 0 streams: nothing is carried */
    float *at;           /* of each stream, */
    uint64_t *next;      /* and the number of the record that it belongs to */
    bool *is_own;        /* was that one of the slice's own? */
    float *batch;        /* of the batch that is computed */
};

/* For batches of up to `most` records. ERR_NOMEM */
int carried_state_init(struct carried_state *c, struct arena *arena, size_t streams, size_t row,
                       size_t most);

/* The state that each record of a batch begins with; the batch's places in the endless stream of
 * epochs begin at `start`. NULL: nothing is carried. */
float *carried_state_begin(const struct carried_state *c, const struct sampler *sampler,
                           uint64_t start, const struct batch *records);

/* Keep the state that each has ended with. `own`: the slice's own records of the batch; else all.
 */
void carried_state_end(struct carried_state *c, const struct sampler *sampler, uint64_t start,
                       const struct batch *records, struct range own);

/* Each stream begins with 0. */
void carried_state_reset(struct carried_state *c);

/* The states as floats: those of each stream, `row` a stream, then two for each stream, which are
 * the upper part and the lower 16 bits of the number of the record that it belongs to. A learner
 * that takes them continues a stream where its next record is that one. */
enum { CARRIED_STATE_MARKS = 2 };
size_t carried_state_floats(size_t streams, size_t row);

/* Of several learners: the streams whose next record behind the place `from` continues the
 * learner's state, and is its own. Each stream is one learner's at most. */
struct carried_selection {
    const struct sampler *sampler;
    uint64_t from;
    bool (*takes)(const void *user, uint64_t place); /* does the learner take the record there? */
    const void *user;
};

/* `only` NULL: all streams. The others are 0, and belong to no record. `are_own`: states that were
 * computed elsewhere count as those of this slice's own records. */
void carried_state_export(const struct carried_state *c, const struct carried_selection *only,
                          float *out);
void carried_state_import(struct carried_state *c, const float *in, bool are_own);

/* Tables of such floats: one in which no stream has a state; another's states put into it; and the
 * number of streams that have one. */
void carried_table_clear(float *table, size_t streams, size_t row);
void carried_table_merge(float *table, const float *other, size_t streams, size_t row);
size_t carried_table_count(const float *table, size_t streams, size_t row);

/* Tables that are to be added up, in each place of which one at most is not 0: `counts` for one
 * summand of those with states of the same streams. The sum becomes a table by its end. */
void carried_table_begin_sum(float *table, size_t streams, size_t row, bool counts);
void carried_table_end_sum(float *sum, size_t streams, size_t row);

#endif
