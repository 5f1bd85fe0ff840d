/* The smaller and the larger of two numbers. */
#ifndef PL_BASE_MINMAX_H
#define PL_BASE_MINMAX_H

#include <stddef.h>

static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline double min_double(double a, double b)
{
    return a < b ? a : b;
}

static inline double max_double(double a, double b)
{
    return a > b ? a : b;
}

#endif
