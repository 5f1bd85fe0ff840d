#include "tensor/segment.h"

#include "base/hash.h"

#include <stdint.h>
#include <string.h>

/* Room for one more; the old array stays in the arena, so growth doubles. */
static bool reserve_segment(struct segments *table, struct arena *arena)
{
    if (table->count < table->cap)
        return true;
    size_t cap = table->cap ? 2 * table->cap : 16;
    struct segment *at = arena_array(arena, cap, struct segment);
    if (!at)
        return false;
    if (table->count)
        memcpy(at, table->at, table->count * sizeof *at);
    table->at = at;
    table->cap = cap;
    return true;
}

struct segment *segments_add(struct segments *table, struct arena *arena, const char *name,
                             const struct shape *shape, float lr_mult, float decay_mult)
{
    size_t len = shape_count(shape), name_len = strlen(name), end;
    if (len == 0 || name_len >= SEGMENT_NAME_MAX)
        return NULL;
    if (__builtin_add_overflow(table->total, len, &end) ||
        end > SIZE_MAX / sizeof(float) - SEGMENT_ALIGN)
        return NULL;
    if (!reserve_segment(table, arena))
        return NULL;
    struct segment *segment = &table->at[table->count++];
    *segment = (struct segment){
        .offset = table->total,
        .len = len,
        .lr_mult = lr_mult,
        .decay_mult = decay_mult,
        .shape = *shape,
    };
    memcpy(segment->name, name, name_len + 1);
    table->total = (end + SEGMENT_ALIGN - 1) / SEGMENT_ALIGN * SEGMENT_ALIGN;
    return segment;
}

const struct segment *segments_find(const struct segments *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->at[i].name, name) == 0)
            return &table->at[i];
    return NULL;
}

bool segments_match(const struct segments *a, const struct segments *b)
{
    if (a->count != b->count || a->total != b->total)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct segment *p = &a->at[i], *q = &b->at[i];
        if (p->offset != q->offset || p->len != q->len || strcmp(p->name, q->name) != 0)
            return false;
    }
    return true;
}

uint64_t segments_hash(const struct segments *table)
{
    uint64_t hash = hash_mix(0, table->count);
    for (size_t i = 0; i < table->count; i++) {
        const struct segment *segment = &table->at[i];
        hash = hash_mix(hash, hash_bytes(segment->name, strlen(segment->name)));
        hash = hash_mix(hash, segment->offset);
        hash = hash_mix(hash, segment->len);
    }
    return hash_mix(hash, table->total);
}
