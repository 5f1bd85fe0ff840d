/* Declarations that exchange.c (attempts at an exchange), exchange_meta.c (its metadata),
 * exchange_sync.c (a lane in a new view) and split.c have in common. */
#ifndef PL_COLL_EXCHANGE_INTERNAL_H
#define PL_COLL_EXCHANGE_INTERNAL_H

#include "coll/exchange.h"
#include "world/trace.h"

/* The collectives of the lane in this view. Ranks are the driver, if it takes part, then the
 * participants in ascending order: all derive the same ones from the view. */
struct coll exchange_coll(const struct exchange *e, const struct view *view, struct ranks *ranks,
                          struct coll_waits *waits);

/* Make the plan of a schedule, which is released; `rc` is the status of making the schedule. */
int exchange_make_plan(const struct exchange *e, struct coll_plan *plan, size_t chunk,
                       enum codec codec, struct schedule *schedule, int rc);

/* The lane has passed so many stages of its turn; 0: the turn begins again, for the next exchange
 * or for another attempt at this one. */
static inline void exchange_pass(const struct exchange *e, uint32_t stages)
{
    if (e->config.stages)
        stages_set(e->config.stages, e->lane, e->completed, stages);
}

static inline struct trace_span exchange_span(const struct exchange *e, enum span_kind kind,
                                              uint64_t amount)
{
    return (struct trace_span){.kind = (uint8_t)kind,
                               .row = (uint8_t)e->lane,
                               .peer = WORLD_DRIVER,
                               .n = e->completed + 1,
                               .amount = amount};
}

/* ---- metadata ---- */

/* Merge a member's metadata, as coll_meta_reduce does. */
void exchange_merge_meta(void *meta, const void *other);

/* Reduce and broadcast the metadata: the sum of the inputs' weights and counts, and the algorithm.
 * It goes ahead of the vector because it is short and completes only when all members take part, so
 * no vector is sent to a member that still computes. Links are measured here, where they are. */
int exchange_reduce_meta(struct exchange *e, struct coll *c, struct exchange_meta *meta);

/* Does the lane choose its algorithm from measured links? */
bool exchange_measures(const struct exchange *e);

/* Describe this member's input to the judge in e->claim: its norm and its cosine with the last
 * average; or, where inputs are models, those of its difference to the base, with the last change
 * of the average. */
int exchange_make_claim(struct exchange *e);

/* Was this member's contribution to the exchange of these metadata refused? */
bool exchange_is_refused(const struct exchange *e, const struct exchange_meta *meta);

/* ---- a new view ---- */

/* Bring the lane into line with a new view: report, await the driver's decision, and send or adopt
 * the result that counts. Only then may exchange completed + 1 begin: it is the same for all. */
int exchange_bring_into_line(struct exchange *e, struct coll *c);

#endif
