#include "model/weights.h"

#include "base/fault.h"

#include <stdio.h>
#include <string.h>

enum { TENSOR_NAME_MAX = SEGMENT_NAME_MAX + 64 };

static const char *tensor_name(char *out, const char *prefix, const struct segment *segment)
{
    snprintf(out, TENSOR_NAME_MAX, "%s/%s", prefix, segment->name);
    return out;
}

void weights_put(struct safetensors_writer *w, const char *prefix, const struct segments *table,
                 const float *at)
{
    char name[TENSOR_NAME_MAX];
    for (size_t i = 0; i < table->count; i++) {
        const struct segment *segment = &table->at[i];
        safetensors_tensor(w, tensor_name(name, prefix, segment), &segment->shape,
                           at ? at + segment->offset : NULL);
    }
}

int weights_check(const struct safetensors *st, const char *path, const char *prefix,
                  const struct segments *table, struct err *err)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct segment *segment = &table->at[i];
        char name[TENSOR_NAME_MAX], a[64], b[64];
        const struct safetensors_item *item =
            safetensors_item(st, tensor_name(name, prefix, segment));
        if (!item)
            return err_set(err, ERR_INPUT, "%s: has no tensor %s: it is of another net", path,
                           name);
        if (!shape_equal(&item->shape, &segment->shape))
            return err_set(err, ERR_INPUT, "%s: tensor %s is %s, the net has %s", path, name,
                           shape_text(&item->shape, a, sizeof a),
                           shape_text(&segment->shape, b, sizeof b));
    }
    return OK;
}

void weights_take(const struct safetensors *st, const char *prefix, const struct segments *table,
                  float *into)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct segment *segment = &table->at[i];
        char name[TENSOR_NAME_MAX];
        const float *from = safetensors_find(st, tensor_name(name, prefix, segment), NULL);
        PL_ASSERT(from);
        memcpy(into + segment->offset, from, segment->len * sizeof *into);
    }
}

const struct safetensors_item *weights_item(const struct safetensors *st, const char *prefix,
                                            const struct segment *segment)
{
    char name[TENSOR_NAME_MAX];
    return safetensors_item(st, tensor_name(name, prefix, segment));
}
