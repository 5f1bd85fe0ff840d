/* The machine's own limit, to hold kernels against. */
#ifndef PL_TENSOR_PEAK_H
#define PL_TENSOR_PEAK_H

#include <stdint.h>

/* Run `rounds` rounds of independent fused multiply-adds on each of the calling thread's compute
 * threads, at the widest vectors the machine has. Returns the floating-point operations done; the
 * caller holds the clock. */
double peak_run(uint64_t rounds);

#endif
