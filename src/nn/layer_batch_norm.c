/* BatchNorm (Ioffe & Szegedy 2015, Algorithm 1, without γ and β, which are a Scale layer's): for
 * each channel, over the m values that a batch has of it,
 *
 *     μ = 1/m Σ x,   σ² = 1/m Σ (x − μ)²,   y = r·(x − μ)   with r = 1 / sqrt(σ² + eps)
 *     dx = r·(dy − 1/m Σ dy − y · 1/m Σ dy·y)
 *
 * State are Caffe's three blobs, two sums and what they are to be divided by, with
 * f = moving_average_fraction:
 *
 *     s_0 ← f·s_0 + μ,   s_1 ← f·s_1 + m/(m−1)·σ²,   s_2 ← f·s_2 + 1
 *
 * With use_global_stats, which is the default in phase TEST, μ = s_0/s_2 and σ² = s_1/s_2 (0 as
 * long as s_2 is), s stays as it is, and dx = r·dy. Phase TEST never changes s: evaluating is no
 * training. A batch that is not full has the statistics of the records there are. */
#include "nn/layers.h"
#include "tensor/channels.h"

#include <math.h>
#include <string.h>

enum { SUM_MEAN, SUM_VARIANCE, COUNT, BLOBS };

struct layer_batch_norm {
    struct layer layer;
    struct channels ch;
    bool global, learns; /* μ and σ² are those of s; s follows those of the batch */
    double f, eps;
    size_t at[BLOBS];   /* in s */
    size_t count;       /* records of the last batch */
    double *part, *sum; /* channels_sum's */
    float *r, *q, *b;   /* one a channel: r, and what channels_combine takes beside it */
};

static const char *const types[] = {"BatchNorm", NULL};
static const char *const messages[] = {"batch_norm_param", NULL};

/* ---- setting up ---- */

/* In Caffe the state's blobs count as parameters, which no optimizer may move. */
static int check_params(const Caffe__LayerParameter *param, struct err *err)
{
    if (param->n_param > BLOBS)
        return err_set(err, ERR_INPUT, "%zu param entries, but %d blobs of state", param->n_param,
                       BLOBS);
    for (size_t i = 0; i < param->n_param; i++) {
        const Caffe__ParamSpec *spec = param->param[i];
        if (spec->lr_mult != 0.0f)
            return err_set(err, ERR_INPUT, "param.lr_mult: %g must be 0: statistics are not learnt",
                           (double)spec->lr_mult);
        if (spec->name && spec->name[0])
            return err_set(err, ERR_UNSUPPORTED,
                           "param.name: \"%.64s\": shared parameters are not supported",
                           spec->name);
    }
    return OK;
}

static int read_fields(struct layer_batch_norm *self, const struct setup *setup, struct err *err)
{
    Caffe__BatchNormParameter none;
    const Caffe__BatchNormParameter *p = self->layer.param->batch_norm_param;
    bool training = setup->options->phase == PHASE_TRAIN;
    caffe__batch_norm_parameter__init(&none);
    p = p ? p : &none;
    self->f = (double)p->moving_average_fraction;
    self->eps = (double)p->eps;
    if (!(self->f >= 0.0 && self->f <= 1.0))
        return err_set(err, ERR_INPUT,
                       "batch_norm_param.moving_average_fraction: %g is out of range, 0 to 1",
                       self->f);
    if (!(self->eps > 0.0 && isfinite(self->eps)))
        return err_set(err, ERR_INPUT, "batch_norm_param.eps: %g is out of range, above 0",
                       self->eps);
    self->global = p->has_use_global_stats ? p->use_global_stats : !training;
    self->learns = training && !self->global;
    return check_params(self->layer.param, err);
}

static int make_room(struct layer_batch_norm *self, const struct setup *setup, struct err *err)
{
    struct layer *layer = &self->layer;
    size_t C = self->ch.C, N = layer->bottom[0].blob->shape.dim[0];
    const struct shape each = {1, {C}}, one = {1, {1}};
    for (size_t k = 0; k < BLOBS; k++) {
        int rc = layer_state(layer, setup, k, k == COUNT ? &one : &each, &self->at[k], err);
        if (rc != OK)
            return rc;
    }
    size_t parts = self->global ? 0 : 2 * N * C;
    self->part = arena_array(setup->arena, parts, double);
    self->sum = arena_array(setup->arena, 2 * C, double);
    self->r = arena_array(setup->arena, 3 * C, float);
    if (!self->part || !self->sum || !self->r)
        return err_set(err, ERR_NOMEM, "out of memory for statistics of %zu channels", C);
    self->q = self->r + C;
    self->b = self->q + C;
    layer->buffer_bytes = (parts + 2 * C) * sizeof(double) + 3 * C * sizeof(float);
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_batch_norm *self = (struct layer_batch_norm *)layer;
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK)
        rc = read_fields(self, setup, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    char text[128];
    if (x->shape.n < 2)
        return err_set(err, ERR_INPUT,
                       "bottom \"%.64s\" is %s; a normalisation takes NxC or NxCxHxW", x->name,
                       shape_text(&x->shape, text, sizeof text));
    self->ch = channels_of(&x->shape, x->layout);
    rc = layer_top(layer, 0, &x->shape, x->layout, err);
    return rc == OK ? make_room(self, setup, err) : rc;
}

/* ---- forward ---- */

/* μ and σ² of each channel go to sum[c] and sum[C + c]. */
static void of_state(struct layer_batch_norm *self, const float *s)
{
    size_t C = self->ch.C;
    double count = (double)s[self->at[COUNT]], scale = count != 0.0 ? 1.0 / count : 0.0;
    for (size_t c = 0; c < C; c++) {
        self->sum[c] = scale * (double)s[self->at[SUM_MEAN] + c];
        self->sum[C + c] = scale * (double)s[self->at[SUM_VARIANCE] + c];
    }
}

/* The sums are in double: what Σx² − (Σx)²/m loses is less than x lost when it became a float. */
static void of_batch(struct layer_batch_norm *self, const float *x, size_t n)
{
    size_t C = self->ch.C;
    double m = (double)(n * self->ch.S);
    channels_sum(&self->ch, n, x, x, self->part, self->sum);
    for (size_t c = 0; c < C; c++) {
        double mean = self->sum[c] / m, variance = self->sum[C + c] / m - mean * mean;
        self->sum[c] = mean;
        self->sum[C + c] = variance < 0.0 ? 0.0 : variance; /* what is no number stays so */
    }
}

static void follow(const struct layer_batch_norm *self, size_t n, float *s)
{
    size_t C = self->ch.C;
    double m = (double)(n * self->ch.S), unbiased = m > 1.0 ? m / (m - 1.0) : 1.0;
    float *mean = s + self->at[SUM_MEAN], *variance = s + self->at[SUM_VARIANCE];
    float *count = s + self->at[COUNT];
    for (size_t c = 0; c < C; c++) {
        mean[c] = (float)(self->f * (double)mean[c] + self->sum[c]);
        variance[c] = (float)(self->f * (double)variance[c] + unbiased * self->sum[C + c]);
    }
    *count = (float)(self->f * (double)*count + 1.0);
}

static void forward(struct layer *layer, const struct pass *pass)
{
    struct layer_batch_norm *self = (struct layer_batch_norm *)layer;
    const struct blob *x = layer->bottom[0].blob;
    size_t C = self->ch.C, n = pass->batch->count;
    self->count = n;
    if (self->global)
        of_state(self, pass->s);
    else
        of_batch(self, x->at, n);
    if (self->learns)
        follow(self, n, pass->s);
    for (size_t c = 0; c < C; c++) {
        double r = 1.0 / sqrt(self->sum[C + c] + self->eps);
        self->r[c] = (float)r;
        self->b[c] = (float)(-r * self->sum[c]);
    }
    const struct channels_terms terms = {.p = self->r, .x = x->at, .b = self->b};
    channels_combine(&self->ch, x->shape.dim[0], &terms, layer->top[0]->at);
}

/* ---- backward ---- */

static void backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    struct layer_batch_norm *self = (struct layer_batch_norm *)layer;
    const struct blob *y = layer->top[0];
    float *dx = layer->bottom[0].dx;
    size_t C = self->ch.C, n = self->count, floats = C * self->ch.S;
    double m = (double)(n * self->ch.S);
    struct channels_terms terms = {.p = self->r, .x = y->d};
    if (!self->global) {
        channels_sum(&self->ch, n, y->d, y->at, self->part, self->sum);
        for (size_t c = 0; c < C; c++) {
            self->q[c] = (float)(-(double)self->r[c] * self->sum[C + c] / m);
            self->b[c] = (float)(-(double)self->r[c] * self->sum[c] / m);
        }
        terms.q = self->q;
        terms.z = y->at;
        terms.b = self->b;
    }
    channels_combine(&self->ch, n, &terms, dx);
    memset(dx + n * floats, 0, (y->count - n * floats) * sizeof *dx); /* no records there */
}

const struct layer_ops layer_batch_norm = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_batch_norm),
    .in_place = true,
    .reads_top = true,
    .setup = setup,
    .forward = forward,
    .backward = backward,
};
