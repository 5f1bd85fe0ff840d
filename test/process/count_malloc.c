/* Preloaded into a process, counts its heap allocations, and prints them at its end. Counted
 * separately are those of oneDNN, its own or by C++'s `new`, which no other code here uses: its
 * calls make lists of their arguments, and its products pack their operands, in memory of its own;
 * and OpenMP's teams of one thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The C library's own, by the names under which it offers them to a library that replaces
 * malloc. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *at, size_t size);
void *__libc_memalign(size_t align, size_t size);

void *malloc(size_t size);
void *calloc(size_t n, size_t size);
void *realloc(void *at, size_t size);
void *memalign(size_t align, size_t size);
void *aligned_alloc(size_t align, size_t size);
int posix_memalign(void **out, size_t align, size_t size);

static atomic_long ours, foreign;

static void count_call(const void *caller)
{
    static const char *const libraries[] = {"/libdnnl", "/libstdc++", "/libgomp"};
    Dl_info info;
    bool known = dladdr(caller, &info) && info.dli_fname, apart = false;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        apart = apart || (known && strstr(info.dli_fname, libraries[i]));
    atomic_fetch_add(apart ? &foreign : &ours, 1);
}

void *malloc(size_t size)
{
    count_call(__builtin_return_address(0));
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    count_call(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *at, size_t size)
{
    count_call(__builtin_return_address(0));
    return __libc_realloc(at, size);
}

void *memalign(size_t align, size_t size)
{
    count_call(__builtin_return_address(0));
    return __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    count_call(__builtin_return_address(0));
    return __libc_memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    count_call(__builtin_return_address(0));
    void *at = __libc_memalign(align, size);
    if (!at)
        return ENOMEM;
    *out = at;
    return 0;
}

__attribute__((destructor)) static void report_count(void)
{
    fprintf(stderr, "allocations: %ld, and %ld of the libraries'\n", (long)ours, (long)foreign);
}
