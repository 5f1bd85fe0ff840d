/* Embed: each number of the bottom, below input_dim, becomes its row of the weights (input_dim,
 * num_output), plus a bias; the values of a row are the top's last axis. A number is truncated to
 * an integer, as Caffe has it. One out of range makes its row NaN, and so the loss. A slice of a
 * model has a part of each row. */
#include "nn/axes.h"
#include "nn/layers.h"

#include <math.h>
#include <string.h>

enum { NUMBERS_MAX = 1 << 24 }; /* exact in a float */

struct layer_embed {
    struct layer layer;
    size_t K, O; /* input_dim, num_output: in a slice its part of it */
    bool bias;
};

static const char *const types[] = {"Embed", NULL};
static const char *const messages[] = {"embed_param", NULL};

static int check_sizes(const Caffe__EmbedParameter *p, struct err *err)
{
    if (!p || p->num_output == 0)
        return err_set(err, ERR_INPUT, "embed_param.num_output must be positive");
    if (p->input_dim == 0 || p->input_dim > NUMBERS_MAX)
        return err_set(err, ERR_INPUT, "embed_param.input_dim: %u is out of range, 1 to %d",
                       p->input_dim, NUMBERS_MAX);
    return OK;
}

static int set_top(struct layer *layer, const struct setup *setup, size_t K, size_t O,
                   struct err *err)
{
    const struct blob *x = layer->bottom[0].blob;
    struct shape y = x->shape;
    char text[128];
    if (y.n == 0 || y.n > 2)
        return err_set(err, ERR_UNSUPPORTED,
                       "bottom \"%.64s\" is %s; numbers of N records, or of NxT steps, are "
                       "supported",
                       x->name, shape_text(&x->shape, text, sizeof text));
    y.dim[y.n++] = O;
    int rc = layer_top(layer, 0, &y, LAYOUT_PLAIN, err);
    layer->top[0]->numbers = x;
    layer->top[0]->kinds = K;
    layer->by_column = true;
    return rc == OK ? layer_share_out(layer, setup, y.n - 1, O, "outputs", err) : rc;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_embed *self = (struct layer_embed *)layer;
    const Caffe__EmbedParameter *p = layer->param->embed_param;
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK)
        rc = check_sizes(p, err);
    if (rc != OK)
        return rc;
    self->K = p->input_dim;
    self->O = p->num_output;
    self->bias = p->bias_term;
    layer->bottom[0].no_gradient = true;
    layer->numbers = layer->bottom[0].blob->is_numbers ? self->K : 0;
    const struct shape w = {2, {self->K, self->O}}, b = {1, {self->O}};
    rc = set_top(layer, setup, self->K, self->O, err);
    self->O = layer_own_of(layer, self->O);
    if (rc == OK)
        rc = layer_param(layer, setup, &w, "embed_param.weight_filler", p->weight_filler, err);
    if (rc == OK && self->bias)
        rc = layer_param(layer, setup, &b, "embed_param.bias_filler", p->bias_filler, err);
    return rc == OK ? layer_params_done(layer, err) : rc;
}

/* The offset of a number's row in w; false: it has none. */
static bool find_row(const struct layer_embed *self, float number, size_t *offset)
{
    if (!(number > -1.0f && number < (float)self->K))
        return false;
    *offset = (size_t)number * self->O;
    return true;
}

static void embed_forward(struct layer *layer, const struct pass *pass)
{
    const struct layer_embed *self = (const struct layer_embed *)layer;
    const struct blob *x = layer->bottom[0].blob;
    const float *number = x->at, *w = pass->x + layer->at[0].offset;
    const float *b = self->bias ? pass->x + layer->at[1].offset : NULL;
    float *y = layer->top[0]->at;
    for (size_t i = 0; i < x->count; i++, y += self->O) {
        size_t row;
        bool found = find_row(self, number[i], &row);
        for (size_t o = 0; o < self->O; o++)
            y[o] = found ? w[row + o] + (b ? b[o] : 0.0f) : NAN;
    }
}

static void embed_backward(struct layer *layer, const struct pass *pass)
{
    const struct layer_embed *self = (const struct layer_embed *)layer;
    const struct blob *x = layer->bottom[0].blob;
    const float *number = x->at, *dy = layer->top[0]->d;
    float *dw = pass->dx + layer->at[0].offset;
    float *db = self->bias ? pass->dx + layer->at[1].offset : NULL;
    for (size_t i = 0; i < x->count; i++, dy += self->O) {
        size_t row;
        if (!find_row(self, number[i], &row))
            continue;
        for (size_t o = 0; o < self->O; o++) {
            dw[row + o] += dy[o];
            if (db)
                db[o] += dy[o];
        }
    }
}

const struct layer_ops layer_embed = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_embed),
    .reads_bottom = true,
    .setup = setup,
    .forward = embed_forward,
    .backward = embed_backward,
};
