/* Counts the allocations of the whole program, if one of its files includes this. Not under
 * sanitizers, which have allocators of their own: COUNTS is 0 there. */
#ifndef PL_LIB_COUNTED_MALLOC_H
#define PL_LIB_COUNTED_MALLOC_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS 1

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static _Atomic uint64_t allocations;

void *malloc(size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(p, n);
}
#else
#define COUNTS 0
static _Atomic uint64_t allocations;
#endif

#endif
