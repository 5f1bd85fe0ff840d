/* How fast bytes may go one way, for a node that is a worker on its network: a bucket of debt. Sent
 * bytes are a debt, the debt drains at the rate, and nothing bulky begins while there is some. A
 * frame that has begun continues at the link's own speed, so that what is urgent never waits behind
 * half of one; it is counted, and waits for nothing itself. A pacer belongs to who serves
 * (real/role.h). */
#ifndef PL_REAL_PACER_H
#define PL_REAL_PACER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pacer {
    double rate;  /* bytes a nanosecond; 0: as fast as it goes */
    double debt;  /* bytes; below 0 what was slept through, up to a little */
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
