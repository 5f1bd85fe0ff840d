/* The step of long sweeps over moments, messages and seeds: 1, and more where each case takes ten
 * times as long. With the thread sanitizer each simulated task is a thread; a sweep of builds
 * without sanitizers has tried every case. Of the longest sweeps these try a share, too, unless
 * PACELINE_SWEEP=all is in the environment. */
#ifndef PL_LIB_SWEEP_STRIDE_H
#define PL_LIB_SWEEP_STRIDE_H

#include "base/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__)
#define SWEEP_STRIDE(thread, address) (thread)
#elif defined(__SANITIZE_ADDRESS__)
#define SWEEP_STRIDE(thread, address) (address)
#else
#define SWEEP_STRIDE(thread, address) 1
#endif

/* 1 for each of many cases, `share` for one of so many; `stride` with a sanitizer. */
static inline size_t sweep_share(size_t stride, size_t share)
{
    const char *sweep = getenv("PACELINE_SWEEP");
    return stride > 1 ? stride : sweep && strcmp(sweep, "all") == 0 ? 1 : share;
}

/* Is this case of the outer case one of the half that is tried? Drawn, so that half of what the
 * cases do in turn is tried with each outer case. */
static inline bool sweep_takes(size_t stride, size_t outer, size_t i)
{
    return sweep_share(stride, 2) != 2 || rng_below(31, outer, i, 2) == 0;
}

/* Where a sweep of `count` cases begins within the outer case `outer`: at another one in each, so
 * that larger steps leave out no case everywhere. */
static inline size_t sweep_first(size_t outer, size_t stride, size_t count)
{
    return outer % (stride < count ? stride : count);
}

#endif
