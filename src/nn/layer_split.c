/* Split: every top is the bottom. Nets need none, since any number of layers may read a blob; but
 * Caffe writes them out. */
#include "nn/cast.h"
#include "nn/layers.h"

#include <string.h>

static const char *const types[] = {"Split", NULL};
static const char *const messages[] = {NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    (void)setup;
    int rc = layer_links_between(layer, 1, 1, 1, 0, err);
    for (size_t i = 0; i < layer->n_top && rc == OK; i++) {
        const struct blob *x = layer->bottom[0].blob;
        rc = layer_top(layer, i, &x->shape, x->layout, err);
        layer->top[i]->is_labels = x->is_labels;
        layer->top[i]->is_numbers = x->is_numbers;
        layer->top[i]->is_whole = x->is_whole;
    }
    return rc == OK ? layer_params_done(layer, err) : rc;
}

static void split_forward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct blob *x = layer->bottom[0].blob;
    for (size_t i = 0; i < layer->n_top; i++)
        memcpy(layer->top[i]->at, x->at, x->count * dtype_size(x->dtype));
}

/* The sum, over tops that lead to a loss. */
static void split_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct blob *x = layer->bottom[0].blob;
    void *dx = layer->bottom[0].dx;
    size_t done = 0;
    for (size_t i = 0; i < layer->n_top; i++) {
        const void *dy = layer->top[i]->d;
        if (dy && done++ == 0)
            memcpy(dx, dy, x->count * dtype_size(x->dtype));
        else if (dy)
            cast_add(x->dtype, x->count, dy, dx);
    }
}

const struct layer_ops layer_split = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .takes = TAKES_EITHER,
    .takes_blocks = true,
    .setup = setup,
    .forward = split_forward,
    .backward = split_backward,
    .takes_whole = true,
};
