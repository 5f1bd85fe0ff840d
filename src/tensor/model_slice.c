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

size_t slice_total(const struct model_slice *slice, const struct segments *whole)
{
    size_t at = 0;
    for (size_t i = 0; i < whole->count; i++) {
        const struct segment *segment = &whole->at[i];
        at = next_segment(at, slice_blocks(segment) * slice_of_block(slice, segment, 0).len);
    }
    return at;
}

/* Between the slice's vector and one of the whole model. */
static void copy_parts(const struct model_slice *slice, const struct segments *whole, float *part,
                       float *all, bool into_all)
{
    size_t at = 0;
    for (size_t i = 0; i < whole->count; i++) {
        const struct segment *segment = &whole->at[i];
        size_t len = 0;
        for (size_t block = 0; block < slice_blocks(segment); block++) {
            struct range range = slice_of_block(slice, segment, block);
            float *own = part + at + len, *of_all = all + segment->offset + range.from;
            memcpy(into_all ? of_all : own, into_all ? own : of_all, range.len * sizeof *own);
            len += range.len;
        }
        at = next_segment(at, len);
    }
}

void slice_take(const struct model_slice *slice, const struct segments *whole, const float *all,
                float *part)
{
    copy_parts(slice, whole, part, (float *)(uintptr_t)all, false);
}

void slice_put(const struct model_slice *slice, const struct segments *whole, const float *part,
               float *all)
{
    copy_parts(slice, whole, (float *)(uintptr_t)part, all, true);
}
