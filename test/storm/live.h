/* How many allocations of the whole program are live. Not under sanitizers, which detect leaks
 * themselves: LIVE_COUNTS is 0 there. */
#ifndef PL_STORM_LIVE_H
#define PL_STORM_LIVE_H

#include <stdint.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LIVE_COUNTS 1
#else
#define LIVE_COUNTS 0
#endif

int64_t live_count(void);

#endif
