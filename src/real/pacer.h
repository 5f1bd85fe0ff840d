/* Limits the rate of bytes in one direction, by a bucket of debt. Sent bytes are debt, the debt
 * drains at the rate, and no bulk frame begins while there is debt. A frame that has begun is sent
 * at the link's speed, so that an urgent frame never waits behind half of one. Urgent frames are
 * counted and never wait. The serving thread owns a pacer (real/role.h). */
#ifndef PL_REAL_PACER_H
#define PL_REAL_PACER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pacer {
    double rate;  /* bytes a nanosecond; 0: no limit */
    double debt;  /* bytes; below 0: overslept time, up to a limit */
    int64_t at;   /* when that was so */
    bool awaited; /* some peer waits for it */
};

/* `mbit` million bits a second, headers of TCP, IP and Ethernet counted in; 0: no limit. */
void pacer_init(struct pacer *pacer, double mbit, int64_t now);

bool pacer_is_open(struct pacer *pacer, int64_t now);
void pacer_take(struct pacer *pacer, size_t bytes, int64_t now);
/* When it is open again, if nothing more is taken. */
int64_t pacer_opens(const struct pacer *pacer);

#endif
