/* EuclideanLoss: 1/(2N) Σ (a − b)² over two bottoms of N records of the same size; each is given a
 * gradient where it needs one. One may be the data layer's label, as the number that it is. */
#include "nn/layers.h"
#include "nn/loss.h"

struct layer_euclidean_loss {
    struct layer layer;
    struct rows side[2]; /* a, b */
    float *g;            /* a − b */
    size_t used;         /* rows of the last batch, and what a record has of them */
    size_t per;
};

static const char *const types[] = {"EuclideanLoss", NULL};
static const char *const messages[] = {NULL};

static int check_sides(const struct layer *layer, size_t N, struct err *err)
{
    const struct shape *a = &layer->bottom[0].blob->shape, *b = &layer->bottom[1].blob->shape;
    char x[128], y[128];
    if (a->n == 0 || b->n == 0 || a->dim[0] != b->dim[0] || a->dim[0] % N != 0 ||
        shape_count(a) != shape_count(b))
        return err_set(err, ERR_INPUT,
                       "bottoms \"%.64s\", %s, and \"%.64s\", %s, are not records of one size",
                       layer->bottom[0].blob->name, shape_text(a, x, sizeof x),
                       layer->bottom[1].blob->name, shape_text(b, y, sizeof y));
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_euclidean_loss *self = (struct layer_euclidean_loss *)layer;
    const struct shape scalar = {0};
    size_t N = setup->options->batch;
    int rc = layer_links(layer, 2, 1, err);
    if (rc == OK)
        rc = check_sides(layer, N, err);
    for (size_t k = 0; k < 2 && rc == OK; k++)
        rc = rows_init_records(&self->side[k], layer->bottom[k].blob, setup->arena,
                               &layer->buffer_bytes, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &scalar, LAYOUT_PLAIN, err);
    if (rc != OK)
        return rc;
    size_t count = layer->bottom[0].blob->count;
    self->per = self->side[0].outer / N;
    self->g = arena_array(setup->arena, count, float);
    if (!self->g)
        return err_set(err, ERR_NOMEM, "out of memory for %zu differences", count);
    layer->buffer_bytes += count * sizeof(float);
    return OK;
}

static void forward(struct layer *layer, const struct pass *pass)
{
    struct layer_euclidean_loss *self = (struct layer_euclidean_loss *)layer;
    const float *a = rows_read(&self->side[0]), *b = rows_read(&self->side[1]);
    size_t records = pass->batch->count;
    double sum = 0.0;
    self->used = records * self->per;
    for (size_t i = 0; i < self->used * self->side[0].C; i++) {
        self->g[i] = a[i] - b[i];
        sum += (double)self->g[i] * (double)self->g[i];
    }
    layer_loss(layer, pass, sum / 2.0 / (double)self->per);
}

/* da = weight/N · (a − b) = −db */
static void backward(struct layer *layer, const struct pass *pass)
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
    .forward = forward,
    .backward = backward,
};
