#include "tensor/model_slice.h"

#include <string.h>

struct range slice_units(const struct model_slice *slice, size_t units)
{
    return slice_is_part(slice) ? range_cut(units, slice->count, slice->index, 1)
                                : (struct range){0, units};
}

struct range slice_of_block(const struct model_slice *slice, const struct segment *whole,
                            size_t block)
{
    size_t len = whole->len / slice_blocks(whole);
    if (whole->units == 0)
        return (struct range){0, whole->len};
    size_t each = len / whole->units;
    struct range units = slice_units(slice, whole->units);
    return (struct range){block * len + units.from * each, units.len * each};
}

/* Where the segment behind one of so many floats at `at` begins, as segments_add has it. */
static size_t next_segment(size_t at, size_t len)
{
    return (at + len + SEGMENT_ALIGN - 1) / SEGMENT_ALIGN * SEGMENT_ALIGN;
}

size_t slice_next_segment(const struct model_slice *slice, const struct segment *whole, size_t at)
{
    return next_segment(at, slice_blocks(whole) * slice_of_block(slice, whole, 0).len);
}

struct slice_place slice_find(size_t count, const struct segment *whole, size_t at)
{
    size_t block = at / (whole->len / slice_blocks(whole)), f = 0;
    struct range own = slice_of_block(&(struct model_slice){f, count}, whole, block);
    while (at >= own.from + own.len)
        own = slice_of_block(&(struct model_slice){++f, count}, whole, block);
    return (struct slice_place){
        .slice = f,
        .at = block * own.len + at - own.from,
        .run = own.from + own.len - at,
    };
}

size_t slice_total(const struct model_slice *slice, const struct segments *whole)
{
    size_t at = 0;
    for (size_t i = 0; i < whole->count; i++)
        at = slice_next_segment(slice, &whole->at[i], at);
    return at;
}

void slice_put(const struct model_slice *slice, const struct segments *whole, const float *part,
               float *all)
{
    size_t begin = 0;
    for (size_t i = 0; i < whole->count; i++) {
        const struct segment *segment = &whole->at[i];
        const float *own = part + begin;
        for (size_t block = 0; block < slice_blocks(segment); block++) {
            struct range range = slice_of_block(slice, segment, block);
            memcpy(all + segment->offset + range.from, own, range.len * sizeof *own);
            own += range.len;
        }
        begin = slice_next_segment(slice, segment, begin);
    }
}
