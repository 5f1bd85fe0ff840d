/* The step of long sweeps over moments, messages and seeds: 1, and more where each case takes ten
 * times as long. With the thread sanitizer each simulated task is a thread; a sweep of builds
 * without sanitizers has tried every case. */
#ifndef PL_LIB_SWEEP_STRIDE_H
#define PL_LIB_SWEEP_STRIDE_H

#include <stddef.h>

#if defined(__SANITIZE_THREAD__)
#define SWEEP_STRIDE(thread, address) (thread)
#elif defined(__SANITIZE_ADDRESS__)
#define SWEEP_STRIDE(thread, address) (address)
#else
#define SWEEP_STRIDE(thread, address) 1
#endif

/* Where a sweep of `count` cases begins within the outer case `outer`: at another one in each, so
 * that larger steps leave out no case everywhere. */
static inline size_t sweep_first(size_t outer, size_t stride, size_t count)
{
    return outer % (stride < count ? stride : count);
}

#endif
