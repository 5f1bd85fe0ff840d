/* Dropout: in training each element is zero with probability r, and the others grow by 1/(1-r); in
 * test the identity. Whether an element stays is a pure function of (seed, epoch, record, layer,
 * element in NCHW order): the same wherever in a batch, and on whatever machine, a record is. */
#include "base/rng.h"
#include "nn/layers.h"

#include <math.h>
#include <string.h>

struct layer_dropout {
    struct layer layer;
    bool training;
    uint64_t drop_below; /* r · 2^32 */
    float scale;
    uint8_t *keep; /* in the memory order of the blob; NULL in test */
};

static const char *const types[] = {"Dropout", NULL};
static const char *const messages[] = {"dropout_param", NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_dropout *self = (struct layer_dropout *)layer;
    const Caffe__DropoutParameter *p = layer->param->dropout_param;
    int rc = layer_links(layer, 1, 1, err);
    if (rc != OK)
        return rc;
    double r = p ? (double)p->dropout_ratio : 0.5;
    if (!(r >= 0.0 && r < 1.0))
        return err_set(err, ERR_INPUT,
                       "dropout_param.dropout_ratio: %g is out of range, 0 up to but not 1", r);
    const struct blob *x = layer->bottom[0].blob;
    if ((rc = layer_top(layer, 0, &x->shape, x->layout, err)) != OK ||
        (rc = layer_params_done(layer, err)) != OK)
        return rc;
    self->training = setup->options->phase == PHASE_TRAIN;
    self->drop_below = (uint64_t)(r * 0x1p32);
    self->scale = (float)(1.0 / (1.0 - r));
    if (!self->training)
        return OK;
    self->keep = arena_array(setup->arena, x->count, uint8_t);
    if (!self->keep)
        return err_set(err, ERR_NOMEM, "out of memory for a mask of %zu elements", x->count);
    layer->buffer_bytes = x->count;
    return OK;
}

static size_t place_in(enum layout layout, size_t C, size_t S, size_t c, size_t s)
{
    switch (layout) {
    case LAYOUT_PLAIN: return c * S + s;
    case LAYOUT_NHWC: return s * C + c;
    case LAYOUT_BLOCKS: return (c / BLOCK_CHANNELS * S + s) * BLOCK_CHANNELS + c % BLOCK_CHANNELS;
    }
    return 0;
}

/* The mask of one record: C channels of S pixels, drawn in canonical order, kept in `layout`. */
static void draw_mask(const struct layer_dropout *self, const struct net_batch *batch,
                      uint64_t record, size_t C, size_t S, enum layout layout, uint8_t *keep)
{
    uint64_t key = rng_u64(batch->seed, RNG_DROPOUT, batch->epoch);
    key = rng_u64(key, RNG_DROPOUT, record);
    key = rng_u64(key, RNG_DROPOUT, self->layer.index);
    uint32_t word[4] = {0};
    size_t c = 0, s = 0;
    for (size_t i = 0; i < C * S; i++) {
        if (i % 4 == 0)
            rng_block(key, RNG_DROPOUT, i / 4, word);
        keep[place_in(layout, C, S, c, s)] = word[i % 4] >= self->drop_below;
        if (++s == S) {
            s = 0;
            c++;
        }
    }
}

/* By masks: which elements stay no processor can guess. `to` may be `from`. */
static void apply_mask(const struct layer_dropout *self, size_t n, const float *from, float *to)
{
    for (size_t i = 0; i < n; i++) {
        float grown = from[i] * self->scale;
        uint32_t bits;
        memcpy(&bits, &grown, sizeof bits);
        bits &= 0u - self->keep[i];
        memcpy(to + i, &bits, sizeof bits);
    }
}

static void dropout_forward(struct layer *layer, const struct pass *pass)
{
    struct layer_dropout *self = (struct layer_dropout *)layer;
    const struct net_batch *batch = pass->batch;
    const struct blob *x = layer->bottom[0].blob;
    struct blob *y = layer->top[0];
    if (!self->training) {
        if (y->at != x->at)
            memcpy(y->at, x->at, x->count * sizeof(float));
        return;
    }
    size_t N = x->shape.n > 0 ? x->shape.dim[0] : 1, floats = x->count / N;
    size_t C = x->shape.n > 1 ? x->shape.dim[1] : 1;
    for (size_t n = 0; n < N; n++) {
        /* Positions without a record (in a batch that is not full) may get any mask. */
        uint64_t record = n < batch->count && batch->records ? batch->records[n] : n;
        draw_mask(self, batch, record, C, floats / C, x->layout, self->keep + n * floats);
    }
    apply_mask(self, x->count, x->at, y->at);
}

static void dropout_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct layer_dropout *self = (const struct layer_dropout *)layer;
    apply_mask(self, layer->top[0]->count, layer->top[0]->d, layer->bottom[0].dx);
}

const struct layer_ops layer_dropout = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_dropout),
    .in_place = true,
    .takes_blocks = true,
    .setup = setup,
    .forward = dropout_forward,
    .backward = dropout_backward,
};
