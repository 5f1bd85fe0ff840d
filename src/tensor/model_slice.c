#include "tensor/model_slice.h"

#include <string.h>

struct range slice_units(const struct model_slice *slice, size_t units)
{
    return slice_is_part(slice) ? range_cut(units, slice->count, slice->index, 1)
                                : (struct range){0, units};
}

struct range slice_of_segment(const struct model_slice *slice, const struct segment *whole)
{
    if (whole->units == 0)
        return (struct range){0, whole->len};
    size_t each = whole->len / whole->units;
    struct range units = slice_units(slice, whole->units);
    return (struct range){units.from * each, units.len * each};
}

/* Where the segment behind one of so many floats at `at` begins, as segments_add has it. */
static size_t next_segment(size_t at, size_t len)
{
    return (at + len + SEGMENT_ALIGN - 1) / SEGMENT_ALIGN * SEGMENT_ALIGN;
}

size_t slice_total(const struct model_slice *slice, const struct segments *whole)
{
    size_t at = 0;
    for (size_t i = 0; i < whole->count; i++)
        at = next_segment(at, slice_of_segment(slice, &whole->at[i]).len);
    return at;
}

void slice_take(const struct model_slice *slice, const struct segments *whole, const float *all,
                float *part)
{
    size_t at = 0;
    for (size_t i = 0; i < whole->count; i++) {
        struct range range = slice_of_segment(slice, &whole->at[i]);
        memcpy(part + at, all + whole->at[i].offset + range.from, range.len * sizeof *part);
        at = next_segment(at, range.len);
    }
}

void slice_put(const struct model_slice *slice, const struct segments *whole, const float *part,
               float *all)
{
    size_t at = 0;
    for (size_t i = 0; i < whole->count; i++) {
        struct range range = slice_of_segment(slice, &whole->at[i]);
        memcpy(all + whole->at[i].offset + range.from, part + at, range.len * sizeof *part);
        at = next_segment(at, range.len);
    }
}
