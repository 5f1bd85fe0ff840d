#define _GNU_SOURCE
#include "real/secret.h"

#include <stdalign.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The size of the mapping, at its beginning. */
enum { HEAD = alignof(max_align_t) };

void *secret_alloc(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (n + HEAD + page - 1) / page * page;
    char *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    (void)madvise(pages, size, MADV_DONTDUMP);
    (void)mlock(pages, size);
    memcpy(pages, &size, sizeof size);
    return pages + HEAD;
}

void secret_free(void *secret)
{
    size_t size;
    if (!secret)
        return;
    char *pages = (char *)secret - HEAD;
    memcpy(&size, pages, sizeof size);
    explicit_bzero(pages, size);
    munmap(pages, size);
}
