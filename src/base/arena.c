#define _DEFAULT_SOURCE /* madvise */
#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { BLOCK_BYTES = 64 * 1024, HUGE_PAGE = 2 << 20, LARGE_BYTES = 2 * HUGE_PAGE };

struct arena_block {
    struct arena_block *next;
    size_t used, size; /* of the bytes that follow the header's line */
    size_t touched;    /* bytes used before; those behind are zero, and a large block has no pages
                          there yet */
    void *memory;
};

void arena_init(struct arena *arena)
{
    *arena = (struct arena){0};
}

struct arena_mark arena_mark(const struct arena *arena)
{
    return (struct arena_mark){arena->head, arena->head ? arena->head->used : 0, arena->bytes};
}

void arena_rewind(struct arena *arena, const struct arena_mark *mark)
{
    while (arena->head != mark->head) {
        struct arena_block *next = arena->head->next;
        free(arena->head->memory);
        arena->head = next;
    }
    if (arena->head)
        arena->head->used = mark->used;
    arena->bytes = mark->bytes;
}

void arena_release(struct arena *arena)
{
    arena_rewind(arena, &(struct arena_mark){0});
    arena_init(arena);
}

void arena_limit(struct arena *arena, size_t bytes)
{
    arena->limit = bytes;
}

static bool within_limit(const struct arena *arena, size_t bytes)
{
    return arena->limit == 0 ||
           (arena->bytes <= arena->limit && bytes <= arena->limit - arena->bytes);
}

/* Are addresses limited, which the alignment of a huge page would waste? */
static bool few_addresses(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/* A large block's memory begins where a huge page may, its header before it: what nobody writes to
 * takes none. A walk over rows of some KiB looks up a page for each row otherwise. */
static struct arena_block *block_new(size_t size)
{
    size_t align = size >= LARGE_BYTES && !few_addresses() ? HUGE_PAGE : ARENA_ALIGN;
    if (size > SIZE_MAX - ARENA_ALIGN - align)
        return NULL;
    char *memory = calloc(1, ARENA_ALIGN + align + size);
    if (!memory)
        return NULL;
    size_t over = ((uintptr_t)memory + ARENA_ALIGN) % align;
    struct arena_block *block = (void *)(memory + (over > 0 ? align - over : 0));
    if (align == HUGE_PAGE)
        (void)madvise((char *)block + ARENA_ALIGN, size, MADV_HUGEPAGE); /* a wish */
    block->size = size;
    block->memory = memory;
    return block;
}

void *arena_alloc(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - 3 * ARENA_ALIGN)
        return NULL;
    bytes = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (!within_limit(arena, bytes))
        return NULL;
    struct arena_block *block = arena->head;
    if (!block || block->size - block->used < bytes) {
        block = block_new(bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES);
        if (!block)
            return NULL;
        block->next = arena->head;
        arena->head = block;
    }
    char *piece = (char *)block + ARENA_ALIGN + block->used;
    if (block->touched > block->used) {
        size_t again = block->touched - block->used;
        memset(piece, 0, again < bytes ? again : bytes);
    }
    block->used += bytes;
    if (block->touched < block->used)
        block->touched = block->used;
    arena->bytes += bytes;
    return piece;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = arena_alloc(arena, n, 1);
    return copy ? memcpy(copy, text, n) : NULL;
}
