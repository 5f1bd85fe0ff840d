/* The system's record of this process: its threads, the time each was on a processor, and page
 * faults. */
#ifndef PL_REAL_CENSUS_H
#define PL_REAL_CENSUS_H

#include <stdint.h>

enum { CENSUS_THREADS_MAX = 64 };

struct census {
    int threads; /* all that there are; those below: at most CENSUS_THREADS_MAX */
    struct {
        int64_t id;
        int64_t ns; /* on a processor, since its start */
    } thread[CENSUS_THREADS_MAX];
    uint64_t faults; /* pages that were touched for the first time */
    int64_t now;     /* real_now */
};

/* Allocates nothing that lasts. A system without /proc shows no threads. */
void census_take(struct census *out);

/* Nanoseconds that a thread of `end` was on a processor since `start`. */
int64_t census_busy(const struct census *start, const struct census *end, int thread);

/* Nanoseconds for which the living threads of this process were ready to run without a processor. 0
 * where the system does not report it. */
int64_t census_delay(void);

#endif
