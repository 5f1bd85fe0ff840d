/* The part of lossy codecs in an exchange: inputs travel as their differences to a base, and values
 * that the codec has lost are sent later. Private to exchange.c and split.c. */
#ifndef PL_COLL_LOSSY_H
#define PL_COLL_LOSSY_H

#include "coll/exchange.h"

/* x ← x + times·base over r, but for the exact floats. With f32, or without a base, nothing. */
void exchange_add_base(const struct exchange *e, struct vec *x, float times, struct range r);

/* Error feedback of the attempt under way, in this residual. A member without a contribution keeps
 * what it owes to sums. */
struct coll_owed exchange_owed(const struct exchange *e, const struct vec *residual);

/* The codec of an attempt with these metadata: f32 in a flush. */
enum codec exchange_codec(const struct exchange *e, const struct exchange_meta *meta);

/* In a flush: x ← x + residual ← 0, also of a member without a contribution, unless nobody has one.
 * Both are of sums. */
void exchange_pay_owed(const struct exchange *e, const struct exchange_meta *meta, struct vec *x,
                       struct vec *residual);

/* x ← x + times·residual, residual ← 0 over a range, in a flush: of results, times is the weight by
 * which the sums will be divided. */
void exchange_pay_range(struct vec *x, float times, struct vec *residual, struct range r);

/* The exchange behind e->cost is completed: if it was a flush, note what it took. */
void exchange_note_flush(struct exchange *e);

#endif
