/* A bound on the allocations of our own code: the linker redirects its calls here (--wrap). */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>

static size_t left = SIZE_MAX;

void fuzz_budget(size_t bytes)
{
    left = bytes;
}

static bool may_allocate(size_t n)
{
    if (left == SIZE_MAX)
        return true;
    if (n > left)
        return false;
    left -= n;
    return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

void *__wrap_malloc(size_t n)
{
    return may_allocate(n) ? __real_malloc(n) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    size_t bytes;
    return !__builtin_mul_overflow(n, size, &bytes) && may_allocate(bytes) ? __real_calloc(n, size)
                                                                           : NULL;
}

void *__wrap_realloc(void *p, size_t n)
{
    return may_allocate(n) ? __real_realloc(p, n) : NULL;
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return may_allocate(n) ? __real_aligned_alloc(align, n) : NULL;
}
