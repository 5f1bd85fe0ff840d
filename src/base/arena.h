/* An arena: memory that is taken piece by piece at set-up and given back all at once. Pieces are
 * zeroed and aligned to 64 bytes (a cache line, an AVX-512 register). Dropping a node's arena is
 * the node's death. A large piece takes no memory, nor the time to zero it, before it is written
 * to. */
#ifndef PL_BASE_ARENA_H
#define PL_BASE_ARENA_H

#include <stddef.h>

enum { ARENA_ALIGN = 64 };

struct arena_block;

struct arena {
    struct arena_block *head;
    size_t bytes; /* allocated, padding included */
    size_t limit; /* of these; 0: as many as there are */
};

void arena_init(struct arena *arena);
void arena_release(struct arena *arena);

/* Limit the allocated bytes in all, present ones included; 0: no limit. */
void arena_limit(struct arena *arena, size_t bytes);

/* `count` × `size` zeroed bytes, valid until arena_release. NULL when memory or the limit runs out,
 * or the product overflows. A zero count gives a valid pointer. */
void *arena_alloc(struct arena *arena, size_t count, size_t size);

/* arena_rewind releases all that was allocated since the mark; later marks become invalid. */
struct arena_mark {
    struct arena_block *head;
    size_t used, bytes;
};
struct arena_mark arena_mark(const struct arena *arena);
void arena_rewind(struct arena *arena, const struct arena_mark *mark);

/* A copy of the string, or NULL when memory runs out. */
char *arena_strdup(struct arena *arena, const char *text);

#define arena_new(arena, type)          ((type *)arena_alloc(arena, 1, sizeof(type)))
#define arena_array(arena, count, type) ((type *)arena_alloc(arena, count, sizeof(type)))

#endif
