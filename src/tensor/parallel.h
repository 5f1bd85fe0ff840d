/* Loops by all threads, or by one. */
#ifndef PL_TENSOR_PARALLEL_H
#define PL_TENSOR_PARALLEL_H

#include <omp.h>
#include <stddef.h>

/* `for (size_t i = from; i < end; i += step)` and a statement: by all threads where `many` holds.
 * Else by this one alone, outside of any parallel region: libgomp allocates a team and calls the
 * kernel for a region of one thread, too, which costs more than a short loop. */
/* clang-format off */
#define PARALLEL_EACH(i, from, end, step, many, ...)             \
    do {                                                         \
        if ((many) && omp_get_max_threads() > 1) {               \
            _Pragma("omp parallel for schedule(static)")         \
            for (size_t i = (from); i < (end); i += (step))      \
                __VA_ARGS__;                                     \
        } else {                                                 \
            for (size_t i = (from); i < (end); i += (step))      \
                __VA_ARGS__;                                     \
        }                                                        \
    } while (0)
/* clang-format on */

#endif
