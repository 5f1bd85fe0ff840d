/* InnerProduct: y = x·wᵀ + b. The axes of x from `axis` on, in canonical order, are a row of I
 * values, and those before it count the rows, M; w is (O, I), or (I, O) with `transpose`. In a
 * slice of a model O is its own part of the outputs, and y has these columns. */
#include "nn/axes.h"
#include "nn/layers.h"
#include "nn/recast.h"

#include <string.h>

struct layer_inner {
    struct layer layer;
    size_t I, O;
    struct recast in, out;         /* between x and rows, rows and y; of no use for axis 1 */
    float *x, *dx, *y;             /* rows, where x and y (and dy) are in another order, or NULL */
    float *w, *dw, *transposed_dw; /* with `transpose`: w and dw as (O, I), dw as (I, O) */
};

static const char *const types[] = {"InnerProduct", NULL};
static const char *const messages[] = {"inner_product_param", NULL};

/* ---- setting up ---- */

static int reserve_room(struct layer *layer, const struct setup *setup, size_t floats, float **at,
                        struct err *err)
{
    *at = arena_array(setup->arena, floats, float);
    if (!*at)
        return err_set(err, ERR_NOMEM, "out of memory for %zu floats of scratch", floats);
    layer->buffer_bytes += floats * sizeof(float);
    return OK;
}

/* Rows of their own, where those of x and y are not rows in memory. */
static int make_rows(struct layer_inner *self, const struct setup *setup, const struct shape *x,
                     const struct shape *y, struct err *err)
{
    struct layer *layer = &self->layer;
    const struct blob *bottom = layer->bottom[0].blob, *top = layer->top[0];
    const struct recast_end in = {bottom->shape, bottom->layout, false};
    const struct recast_end x_rows = {*x, LAYOUT_PLAIN, false}, y_rows = {*y, LAYOUT_PLAIN, false};
    const struct recast_end out = {top->shape, top->layout, false};
    int rc = recast_init(&self->in, layer, setup, &in, &x_rows, err);
    if (rc == OK)
        rc = recast_init(&self->out, layer, setup, &y_rows, &out, err);
    if (rc == OK && !recast_is_copy(&self->in))
        rc = reserve_room(layer, setup, shape_count(x), &self->x, err);
    if (rc == OK && self->x && setup->options->phase == PHASE_TRAIN)
        rc = reserve_room(layer, setup, shape_count(x), &self->dx, err);
    if (rc == OK && !recast_is_copy(&self->out))
        rc = reserve_room(layer, setup, shape_count(y), &self->y, err);
    return rc;
}

static int make_turned(struct layer_inner *self, const struct setup *setup, struct err *err)
{
    size_t count = self->I * self->O;
    bool training = setup->options->phase == PHASE_TRAIN;
    int rc = reserve_room(&self->layer, setup, count, &self->w, err);
    if (rc == OK && training)
        rc = reserve_room(&self->layer, setup, count, &self->dw, err);
    if (rc == OK && training)
        rc = reserve_room(&self->layer, setup, count, &self->transposed_dw, err);
    return rc;
}

/* O becomes the slice's part of it. */
static int take_part(struct layer_inner *self, const struct setup *setup,
                     const Caffe__InnerProductParameter *p, size_t axis, struct err *err)
{
    bool image = axis > 1 && self->layer.top[0]->shape.n == 4;
    if (setup->slice.count > 1 && image)
        return err_set(err, ERR_UNSUPPORTED,
                       "slices: inner_product_param.axis: 3 is not supported");
    self->layer.by_column = p->transpose;
    int rc = layer_share_out(&self->layer, setup, axis, p->num_output, "outputs", err);
    self->O = layer_own_of(&self->layer, self->O);
    return rc;
}

/* Parameters are declared whole, and come cut. */
static int make_params(struct layer_inner *self, const struct setup *setup,
                       const Caffe__InnerProductParameter *p, struct err *err)
{
    struct layer *layer = &self->layer;
    const struct shape w = {2, {p->num_output, self->I}}, turned = {2, {self->I, p->num_output}};
    const struct shape b = {1, {p->num_output}};
    int rc = layer_param(layer, setup, p->transpose ? &turned : &w, "weight_filler",
                         p->weight_filler, err);
    if (rc == OK && p->bias_term)
        rc = layer_param(layer, setup, &b, "bias_filler", p->bias_filler, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    return rc == OK && p->transpose ? make_turned(self, setup, err) : rc;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_inner *self = (struct layer_inner *)layer;
    const struct net_options *options = setup->options;
    const Caffe__InnerProductParameter *p = layer->param->inner_product_param;
    size_t axis;
    int rc = layer_links(layer, 1, 1, err);
    if (rc != OK)
        return rc;
    if (!p || p->num_output == 0)
        return err_set(err, ERR_INPUT, "inner_product_param.num_output must be positive");
    if ((rc = axes_in_record(layer, "inner_product_param.axis", p->axis, &axis, err)) != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    struct shape top = {.n = axis + 1};
    memcpy(top.dim, x->shape.dim, axis * sizeof top.dim[0]);
    top.dim[axis] = self->O = p->num_output;
    self->I = shape_count_from(&x->shape, axis);
    size_t M = x->count / self->I;
    rc = layer_top(layer, 0, &top, axes_layout(setup, &top), err);
    if (rc == OK)
        rc = take_part(self, setup, p, axis, err);
    if (rc != OK)
        return rc;
    const struct shape x_rows = {2, {M, self->I}}, y_rows = {2, {M, self->O}};
    if (axis > 1)
        rc = make_rows(self, setup, &x_rows, &y_rows, err);
    if (rc == OK)
        rc = make_params(self, setup, p, err);
    bool bias = p->bias_term;
    if (rc == OK && axis == 1 && !p->transpose)
        rc = layer_folds(layer, setup, self->O, &bias, err);
    if (rc != OK)
        return rc;
    layer->products = (double)M * (double)self->I * (double)self->O;
    const struct inner_spec spec = {.x = axis > 1 ? x_rows : x->shape, .y = y_rows, .bias = bias};
    return options->kernels->inner(&spec, axis > 1 ? LAYOUT_PLAIN : x->layout,
                                   options->phase == PHASE_TRAIN, setup->arena, &layer->op, err);
}

/* ---- running ---- */

/* A matrix is treated as an image of one row, with its rows as channels: its transpose has the
 * channels last. */
static void turn_layout(const struct layer_inner *self, enum layout from, const float *x, float *y)
{
    const struct shape image = {4, {1, self->I, 1, self->O}};
    kernels_reorder(&image, from, x, from == LAYOUT_PLAIN ? LAYOUT_NHWC : LAYOUT_PLAIN, y);
}

/* Parameters may have changed since they were last turned: nothing of x is kept. */
static struct op_args args_of(const struct layer_inner *self, const struct pass *pass)
{
    const struct layer *layer = &self->layer;
    struct op_args args = {
        .x = self->x ? self->x : layer->bottom[0].blob->at,
        .y = self->y ? self->y : layer->top[0]->at,
    };
    layer_params(layer, pass, &args);
    if (!self->w)
        return args;
    turn_layout(self, LAYOUT_PLAIN, args.w, self->w);
    args.w = self->w;
    return args;
}

static void inner_forward(struct layer *layer, const struct pass *pass)
{
    const struct layer_inner *self = (const struct layer_inner *)layer;
    const struct op_args args = args_of(self, pass);
    if (self->x)
        recast_forth(&self->in, layer->bottom[0].blob->at, self->x);
    layer->op->ops->forward(layer->op, &args);
    if (self->y)
        recast_forth(&self->out, self->y, layer->top[0]->at);
}

static void inner_backward(struct layer *layer, const struct pass *pass)
{
    const struct layer_inner *self = (const struct layer_inner *)layer;
    struct op_args args = args_of(self, pass);
    float *dx = layer->bottom[0].dx, *dw = pass->dx + layer->at[0].offset;
    size_t count = self->I * self->O;
    args.dy = self->y ? self->y : layer->top[0]->d;
    args.dx = dx && self->dx ? self->dx : dx;
    args.dw = self->dw ? self->dw : dw;
    args.db = layer->n_at > 1 ? pass->dx + layer->at[1].offset : NULL;
    layer_pick_gradients(pass, &args);
    if (self->y)
        recast_back(&self->out, layer->top[0]->d, self->y);
    if (self->dw)
        memset(self->dw, 0, count * sizeof *self->dw);
    layer->op->ops->backward(layer->op, &args);
    if (args.dx && self->dx)
        recast_back(&self->in, self->dx, dx);
    if (self->dw) {
        turn_layout(self, LAYOUT_NHWC, self->dw, self->transposed_dw);
        vec_host_add(dw, self->transposed_dw, count);
    }
}

const struct layer_ops layer_inner = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_inner),
    .reads_bottom = true,
    .takes_blocks = true,
    .setup = setup,
    .forward = inner_forward,
    .backward = inner_backward,
};
