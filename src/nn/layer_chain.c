/* BatchNorm, Scale, Eltwise SUM and ReLU in one pass over memory (layer_chain.h). With x' = x − k,
 * r = 1 / sqrt(σ² + eps) and d = μ − k, the normalised value is x̂ = r·(x' − d), and
 *
 *     y = max(0, a·x' + c + z)    a = w·r,   c = b − a·d
 *
 * Backward, with g = dy where y > 0, else 0 (Ioffe & Szegedy 2015, section 3, with the sums over
 * the m values of a channel computed once):
 *
 *     dz = g,   db = Σ g,   dw = Σ g·x̂ = r·(Σ g·x' − d·Σ g)
 *     dx = w·r·(g − 1/m Σ g − x̂ · 1/m Σ g·x̂)
 *
 * Without a BatchNorm, or with one that uses running sums, dx = w·r·g; without one, r is 1 and d is
 * 0. The first of two passes computes the sums and writes dz; the second computes x̂ from x again,
 * which is cheaper than keeping it. */
#include "nn/layer_chain.h"

#include "nn/axes.h"
#include "nn/layer_batch_norm.h"
#include "tensor/slices.h"

#include <stdio.h>
#include <string.h>

enum { Z, X };

struct layer_chain {
    struct layer layer;
    struct link link[2];
    struct blob *tops[1];
    struct layer_batch_norm *batch;
    const struct layer *scale;
    bool relu, centred; /* centred: μ and σ depend on x */
    const struct link *x, *z;
    struct norm *norm, own;
    struct slices slices; /* dw, db; where records do not depend on one another */
    double *part;         /* of a slice */
    size_t count;         /* records of the last forward */
};

/* ---- forward ---- */

static double r_of(const struct layer_chain *self, size_t c)
{
    return self->batch ? self->batch->r[c] : 1.0;
}

static double second_grad_of(const struct layer_chain *self, size_t c)
{
    return self->batch ? self->batch->rest[c] : 0.0;
}

static double w_of(const struct layer_chain *self, const float *x, size_t c)
{
    return self->scale ? (double)x[self->scale->at[0].offset + c] : 1.0;
}

static double b_of(const struct layer_chain *self, const float *x, size_t c)
{
    return self->scale && self->scale->n_at > 1 ? (double)x[self->scale->at[1].offset + c] : 0.0;
}

/* From a, b and k, which are valid until the next forward. */
static void make_top(struct layer *layer)
{
    struct layer_chain *self = (struct layer_chain *)layer;
    const void *z = self->z ? self->z->blob->at : NULL;
    norm_apply(self->norm, self->x->blob->at, z, self->relu, layer->top[0]->at);
}

static void chain_forward(struct layer *layer, const struct pass *pass)
{
    struct layer_chain *self = (struct layer_chain *)layer;
    struct norm *norm = self->norm;
    self->count = pass->batch->count;
    if (self->batch)
        batch_norm_measure(self->batch, norm, self->x->blob->at, pass);
    for (size_t c = 0; c < norm->C; c++) {
        double a = w_of(self, pass->x, c) * r_of(self, c);
        norm->a[c] = (float)a;
        norm->b[c] = (float)(b_of(self, pass->x, c) - a * second_grad_of(self, c));
    }
    make_top(layer);
}

/* ---- backward ---- */

static double dw_of(const struct layer_chain *self, const double *sum, size_t c)
{
    return r_of(self, c) * (sum[self->norm->C + c] - second_grad_of(self, c) * sum[c]);
}

static void set_slice(void *user, size_t first, size_t count, float *sum)
{
    struct layer_chain *self = user;
    size_t C = self->norm->C;
    norm_sums_of(self->norm, self->count, first, count, self->part);
    for (size_t c = 0; c < C; c++) {
        sum[c] = (float)dw_of(self, self->part, c);
        sum[C + c] = (float)self->part[c];
    }
}

static void add_parameters(struct layer_chain *self, float *dx)
{
    const double *sum = self->norm->sum;
    size_t C = self->norm->C;
    const float *sliced = self->centred ? NULL : slices_sum(&self->slices, set_slice, self);
    float *dw = dx + self->scale->at[0].offset;
    float *db = self->scale->n_at > 1 ? dx + self->scale->at[1].offset : NULL;
    for (size_t c = 0; c < C; c++) {
        dw[c] += sliced ? sliced[c] : (float)dw_of(self, sum, c);
        if (db)
            db[c] += sliced ? sliced[C + c] : (float)sum[c];
    }
}

/* dx = p·g + q·x' + c, or p·g. */
static void set_slopes(const struct layer_chain *self, const float *x)
{
    struct norm *norm = self->norm;
    double m = (double)(self->count * norm->S);
    for (size_t c = 0; c < norm->C; c++) {
        double p = w_of(self, x, c) * r_of(self, c);
        norm->p[c] = (float)p;
        if (!self->centred)
            continue;
        double q = -p * r_of(self, c) * dw_of(self, norm->sum, c) / m;
        norm->q[c] = (float)q;
        norm->c[c] = (float)(-p * norm->sum[c] / m - q * second_grad_of(self, c));
    }
}

/* g to dz, on which the mask is then no longer needed. */
static void pass_on(struct layer_chain *self, struct norm_flow *flow, bool sums)
{
    struct norm *norm = self->norm;
    void *dz = self->z ? self->z->dx : NULL;
    size_t n = self->count;
    if (sums) {
        norm_sums(norm, n, flow, dz);
    } else if (dz) {
        for (size_t c = 0; c < norm->C; c++)
            norm->p[c] = 1;
        norm_slopes(norm, n, flow, false, dz);
    }
    if (!dz)
        return;
    axes_clear_rest(self->z->blob, n, dz);
    flow->dy = dz;
    flow->dy2 = NULL;
    flow->mask = NORM_MASK_NONE;
}

static void chain_backward(struct layer *layer, const struct pass *pass)
{
    struct layer_chain *self = (struct layer_chain *)layer;
    const struct blob *y = layer->top[0];
    struct norm_flow flow = {
        .mask = !self->relu ? NORM_MASK_NONE
                : self->z   ? NORM_MASK_TOP
                            : NORM_MASK_SELF,
        .x = self->x->blob->at,
        .y = y->at,
        .dy = y->d,
        .dy2 = y->second_grad ? y->second_grad->dx : NULL,
    };
    pass_on(self, &flow, self->scale || self->centred);
    if (self->scale)
        add_parameters(self, pass->dx);
    if (!self->x->dx)
        return;
    set_slopes(self, pass->x);
    norm_slopes(self->norm, self->count, &flow, self->centred, self->x->dx);
    axes_clear_rest(self->x->blob, self->count, self->x->dx);
}

static const struct layer_ops ops = {
    .size = sizeof(struct layer_chain),
    .in_place = true,
    .forward = chain_forward,
    .backward = chain_backward,
    .remake = make_top,
    .takes_second_grad = true,
};

/* ---- setting up ---- */

/* "BatchNorm+Scale+ReLU" */
static const char *type_of(const struct chain *chain, struct arena *arena)
{
    char text[64] = "";
    for (size_t i = 0, n = 0; i < CHAIN_PARTS; i++)
        if (chain->member[i])
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? "+" : "",
                                  chain->member[i]->type);
    return arena_strdup(arena, text);
}

static int make_room(struct layer_chain *self, bool training, struct arena *arena)
{
    const struct blob *x = self->x->blob;
    bool sums = training && self->scale && !self->centred;
    size_t C = x->shape.dim[1], bytes = 0;
    self->norm = self->centred ? &self->batch->norm : &self->own;
    if (self->centred)
        return OK;
    if (norm_init(&self->own, &x->shape, x->layout, x->dtype, sums, arena) != OK)
        return ERR_NOMEM;
    if (sums) {
        self->part = arena_array(arena, 2 * C, double);
        if (!self->part || slices_init(&self->slices, arena, x->shape.dim[0], 2 * C, &bytes) != OK)
            return ERR_NOMEM;
    }
    self->layer.buffer_bytes = self->own.bytes + bytes + (sums ? 2 * C * sizeof(double) : 0);
    return OK;
}

/* The sum is first: y may use the memory of z, whose values backward does not read, and dz that of
 * dy. */
static void tie_members(struct layer_chain *self, const struct chain *chain)
{
    struct layer *layer = &self->layer;
    size_t first = chain->z.blob ? Z : X;
    self->link[Z] = chain->z;
    self->link[Z].forward_only = true;
    self->link[X] = chain->x;
    self->x = &self->link[X];
    self->z = chain->z.blob ? &self->link[Z] : NULL;
    self->tops[0] = chain->last->top[0];
    self->tops[0]->maker = layer;
    self->tops[0]->over = NULL;
    layer->bottom = self->link + first;
    layer->n_bottom = 2 - first;
    layer->top = self->tops;
    layer->n_top = 1;
}

int layer_chain_make(const struct chain *chain, enum phase phase, struct arena *arena,
                     struct layer **out, struct err *err)
{
    struct layer_chain *self = arena_new(arena, struct layer_chain);
    const char *type = type_of(chain, arena);
    if (!self || !type)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    struct layer *layer = &self->layer;
    bool training = phase == PHASE_TRAIN;
    self->batch = (struct layer_batch_norm *)chain->member[CHAIN_NORM];
    self->scale = chain->member[CHAIN_SCALE];
    self->relu = chain->member[CHAIN_RELU] != NULL;
    self->centred = self->batch && !self->batch->global;
    *layer = (struct layer){
        .ops = &ops,
        .name = chain->first->name,
        .type = type,
        .index = chain->last->index,
        .data_parallel = chain->last->data_parallel,
        .buffer_bytes = self->batch ? self->batch->layer.buffer_bytes : 0,
    };
    tie_members(self, chain);
    if (self->scale) {
        memcpy(layer->at, self->scale->at, sizeof layer->at);
        layer->n_at = self->scale->n_at;
    }
    layer->reads_bottom = self->batch || self->scale;
    layer->reads_top = self->relu && self->z;
    layer->in_place = true;
    layer->n_over = 2;
    layer->remakes = layer->reads_bottom && !self->z;
    if (make_room(self, training, arena) != OK)
        return err_set(err, ERR_NOMEM, "layer \"%s\": out of memory for its sums", layer->name);
    *out = layer;
    return OK;
}
