/* EuclideanLoss: 1/(2N) Σ (a − b)² over two bottoms of N records of the same size; each is given a
 * gradient where it needs one. One may be the data layer's label, as the number that it is. */
#include "nn/layers.h"
#include "nn/loss.h"

struct layer_euclidean_loss {
    struct layer layer;
    struct rows side[2]; /* a, b */
    float *g;            /* a − b */
    size_t used;         /* records of the last batch */
};

static const char *const types[] = {"EuclideanLoss", NULL};
static const char *const messages[] = {NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_euclidean_loss *self = (struct layer_euclidean_loss *)layer;
    const struct shape scalar = {0};
    int rc = layer_links(layer, 2, 1, err);
    if (rc == OK)
        rc = loss_check_pair(layer, err);
    for (size_t k = 0; k < 2 && rc == OK; k++)
        rc = rows_init_records(&self->side[k], layer->bottom[k].blob, setup->arena,
                               &layer->buffer_bytes, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &scalar, LAYOUT_PLAIN, err);
    if (rc != OK)
        return rc;
    bool training = setup->options->phase == PHASE_TRAIN;
    for (size_t k = 0; k < 2; k++)
        layer->reorders += rows_reorders(&self->side[k], training);
    size_t count = layer->bottom[0].blob->count;
    self->g = arena_array(setup->arena, count, float);
    if (!self->g)
        return err_set(err, ERR_NOMEM, "out of memory for %zu differences", count);
    layer->buffer_bytes += count * sizeof(float);
    return OK;
}

static void euclidean_loss_forward(struct layer *layer, const struct pass *pass)
{
    struct layer_euclidean_loss *self = (struct layer_euclidean_loss *)layer;
    const float *a = rows_read(&self->side[0]), *b = rows_read(&self->side[1]);
    double sum = 0.0;
    self->used = pass->batch->count;
    for (size_t i = 0; i < self->used * self->side[0].C; i++) {
        self->g[i] = a[i] - b[i];
        sum += (double)self->g[i] * (double)self->g[i];
    }
    layer_loss(layer, pass, sum / 2.0);
}

/* da = weight/N · (a − b) = −db */
static void euclidean_loss_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct layer_euclidean_loss *self = (const struct layer_euclidean_loss *)layer;
    float scale = layer_loss_weight(layer) / (float)self->used;
    for (size_t k = 0; k < 2; k++)
        if (layer->bottom[k].dx)
            loss_spread(&self->side[k], self->g, self->used, k == 0 ? scale : -scale,
                        layer->bottom[k].dx);
}

const struct layer_ops layer_euclidean_loss = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_euclidean_loss),
    .is_loss = true,
    .setup = setup,
    .forward = euclidean_loss_forward,
    .backward = euclidean_loss_backward,
};
