#include "nn/axes.h"

#include <string.h>

int axes_in_record(const struct layer *layer, const char *field, int32_t axis, size_t *at,
                   struct err *err)
{
    int rc = layer_axis_at(layer, field, axis, at, err);
    if (rc != OK || *at > 0)
        return rc;
    return err_set(err, ERR_UNSUPPORTED, "%s: %d is the records' axis, which is not supported",
                   field, (int)axis);
}

int axes_in_record_either(const struct layer *layer, const struct axes_either *field, size_t *at,
                          struct err *err)
{
    if (field->has_axis && field->has_old)
        return err_set(err, ERR_INPUT, "%s and %s cannot both be given", field->axis_field,
                       field->old_field);
    if (!field->has_old)
        return axes_in_record(layer, field->axis_field, field->axis, at, err);
    if (field->old >= SHAPE_DIMS_MAX)
        return err_set(err, ERR_INPUT, "%s: %u is out of range, below %d", field->old_field,
                       (unsigned)field->old, SHAPE_DIMS_MAX);
    return axes_in_record(layer, field->old_field, (int32_t)field->old, at, err);
}

enum layout axes_layout(const struct setup *setup, const struct shape *shape)
{
    if (shape->n != 4)
        return LAYOUT_PLAIN;
    return setup->blocks ? layout_in_blocks(shape) : setup->options->kernels->image_layout;
}

size_t axes_live(const struct blob *blob, size_t records)
{
    bool by_record = blob->shape.n > 0 && !blob->is_whole;
    return by_record ? blob->count / blob->shape.dim[0] * records : blob->count;
}

void axes_clear_rest(const struct blob *blob, size_t records, void *at)
{
    size_t live = axes_live(blob, records);
    memset(dtype_at(blob->dtype, at, live), 0, (blob->count - live) * dtype_size(blob->dtype));
}
