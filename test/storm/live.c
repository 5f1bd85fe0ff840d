#include "live.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

static _Atomic int64_t live;

int64_t live_count(void)
{
    return atomic_load(&live);
}

#if LIVE_COUNTS
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *p);

void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t n);
void *memalign(size_t alignment, size_t n);
void *aligned_alloc(size_t alignment, size_t n);
int posix_memalign(void **out, size_t alignment, size_t n);
void free(void *p);

static void *count_allocation(void *p)
{
    if (p)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return p;
}

void *malloc(size_t n)
{
    return count_allocation(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
    return count_allocation(__libc_calloc(n, size));
}

void *realloc(void *p, size_t n)
{
    return p ? __libc_realloc(p, n) : count_allocation(__libc_realloc(p, n));
}

void *memalign(size_t alignment, size_t n)
{
    return count_allocation(__libc_memalign(alignment, n));
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return memalign(alignment, n);
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    void *p = memalign(alignment, n);
    if (p)
        *out = p;
    return p ? 0 : ENOMEM;
}

void free(void *p)
{
    if (p)
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    __libc_free(p);
}
#endif
