#include "nn/loss.h"

#include <string.h>

#define MODE(name) CAFFE__LOSS_PARAMETER__NORMALIZATION_MODE__##name

int loss_read_mode(const Caffe__LossParameter *param, loss_mode fallback, loss_mode *out,
                   struct err *err)
{
    loss_mode mode = fallback;
    if (param && param->has_normalization)
        mode = param->normalization;
    else if (param && param->has_normalize)
        mode = param->normalize ? MODE(VALID) : MODE(BATCH_SIZE);
    if (mode != MODE(FULL) && mode != MODE(VALID) && mode != MODE(BATCH_SIZE) && mode != MODE(NONE))
        return err_set(err, ERR_INPUT, "loss_param.normalization: %d is none", (int)mode);
    *out = mode;
    return OK;
}

double loss_divisor(loss_mode mode, size_t positions, size_t valid, size_t outer)
{
    size_t d = mode == MODE(FULL)         ? positions
               : mode == MODE(VALID)      ? valid
               : mode == MODE(BATCH_SIZE) ? outer
                                          : 1;
    return d > 0 ? (double)d : 1.0;
}

int loss_check_pair(const struct layer *layer, struct err *err)
{
    const struct blob *a = layer->bottom[0].blob, *b = layer->bottom[1].blob;
    char x[128], y[128];
    if (a->shape.n == 0 || b->shape.n == 0 || a->count != b->count)
        return err_set(err, ERR_INPUT,
                       "bottoms \"%.64s\", %s, and \"%.64s\", %s, are not records of one size",
                       a->name, shape_text(&a->shape, x, sizeof x), b->name,
                       shape_text(&b->shape, y, sizeof y));
    return OK;
}

void loss_spread(const struct rows *rows, const float *g, size_t used, float scale, float *dx)
{
    float *to = rows_room(rows, dx);
    size_t n = used * rows->C;
    for (size_t i = 0; i < n; i++)
        to[i] = scale * g[i];
    memset(to + n, 0, (rows->blob->count - n) * sizeof *to);
    rows_done(rows, dx);
}
