/* BatchNorm (Ioffe & Szegedy 2015, Algorithm 1, without γ and β, which are a Scale layer's): for
 * each channel, over its m values in the batch,
 *
 *     μ = 1/m Σ x,   σ² = 1/m Σ (x − μ)²,   y = r·(x − μ)   with r = 1 / sqrt(σ² + eps)
 *     dx = r·(dy − 1/m Σ dy − y · 1/m Σ dy·y)
 *
 * The state is Caffe's three blobs, two sums and their common divisor, with f =
 * moving_average_fraction:
 *
 *     s_0 ← f·s_0 + μ,   s_1 ← f·s_1 + m/(m−1)·σ²,   s_2 ← f·s_2 + 1
 *
 * With use_global_stats, which is the default in phase TEST, μ = s_0/s_2 and σ² = s_1/s_2 (0 as
 * long as s_2 is), s stays as it is, and dx = r·dy. Phase TEST never changes s: an evaluation does
 * not train. A batch that is not full has the statistics of its records. */
#include "nn/layer_batch_norm.h"

#include "nn/axes.h"
#include "nn/layers.h"

#include <math.h>
#include <string.h>

static const char *const types[] = {"BatchNorm", NULL};
static const char *const messages[] = {"batch_norm_param", NULL};

/* ---- setting up ---- */

/* In Caffe the state's blobs count as parameters, which no optimizer may move. */
static int check_params(const Caffe__LayerParameter *param, struct err *err)
{
    if (param->n_param > BATCH_NORM_BLOBS)
        return err_set(err, ERR_INPUT, "%zu param entries, but %d blobs of state", param->n_param,
                       BATCH_NORM_BLOBS);
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
    const struct blob *x = layer->bottom[0].blob;
    size_t C = x->shape.dim[1];
    const struct shape each = {1, {C}}, one = {1, {1}};
    for (size_t k = 0; k < BATCH_NORM_BLOBS; k++) {
        bool is_count = k == BATCH_NORM_COUNT;
        int rc =
            layer_state(layer, setup, k, is_count ? &one : &each, !is_count, &self->at[k], err);
        if (rc != OK)
            return rc;
    }
    self->r = arena_array(setup->arena, 2 * C, double);
    if (!self->r ||
        norm_init(&self->norm, &x->shape, x->layout, x->dtype, !self->global, setup->arena) != OK)
        return err_set(err, ERR_NOMEM, "out of memory for statistics of %zu channels", C);
    self->rest = self->r + C;
    layer->buffer_bytes = self->norm.bytes + 2 * C * sizeof(double);
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
    layer->part = CHAIN_NORM;
    rc = layer_top(layer, 0, &x->shape, x->layout, err);
    return rc == OK ? make_room(self, setup, err) : rc;
}

/* ---- forward ---- */

/* μ and σ² of each channel go to norm->sum[c] and norm->sum[C + c]. */
static void of_state(const struct layer_batch_norm *self, struct norm *norm, const float *s)
{
    size_t C = norm->C;
    const float *means = s + self->at[BATCH_NORM_MEANS];
    const float *variances = s + self->at[BATCH_NORM_VARIANCES];
    double count = (double)s[self->at[BATCH_NORM_COUNT]], scale = count != 0.0 ? 1.0 / count : 0.0;
    for (size_t c = 0; c < C; c++) {
        norm->sum[c] = scale * (double)means[c];
        norm->sum[C + c] = scale * (double)variances[c];
        norm->k[c] = (float)norm->sum[c];
    }
}

static void update_statistics(const struct layer_batch_norm *self, const struct norm *norm,
                              size_t n, float *s)
{
    size_t C = norm->C;
    double m = (double)(n * norm->S), unbiased = m > 1.0 ? m / (m - 1.0) : 1.0;
    float *mean = s + self->at[BATCH_NORM_MEANS], *variance = s + self->at[BATCH_NORM_VARIANCES];
    float *count = s + self->at[BATCH_NORM_COUNT];
    for (size_t c = 0; c < C; c++) {
        mean[c] = (float)(self->f * (double)mean[c] + norm->sum[c]);
        variance[c] = (float)(self->f * (double)variance[c] + unbiased * norm->sum[C + c]);
    }
    *count = (float)(self->f * (double)*count + 1.0);
}

void batch_norm_measure(struct layer_batch_norm *self, struct norm *norm, const void *x,
                        const struct pass *pass)
{
    size_t C = norm->C, n = pass->batch->count;
    self->count = n;
    if (self->global)
        of_state(self, norm, pass->s);
    else
        norm_moments(norm, n, x);
    if (self->learns)
        update_statistics(self, norm, n, pass->s);
    for (size_t c = 0; c < C; c++) {
        self->r[c] = 1.0 / sqrt(norm->sum[C + c] + self->eps);
        self->rest[c] = norm->sum[c] - (double)norm->k[c];
    }
}

static void batch_norm_forward(struct layer *layer, const struct pass *pass)
{
    struct layer_batch_norm *self = (struct layer_batch_norm *)layer;
    struct norm *norm = &self->norm;
    const void *x = layer->bottom[0].blob->at;
    batch_norm_measure(self, norm, x, pass);
    for (size_t c = 0; c < norm->C; c++) {
        norm->a[c] = (float)self->r[c];
        norm->b[c] = (float)(-self->r[c] * self->rest[c]);
    }
    norm_apply(norm, x, NULL, false, layer->top[0]->at);
}

/* ---- backward ---- */

/* The normalised values are y, so that no layer has to keep x. */
static void batch_norm_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    struct layer_batch_norm *self = (struct layer_batch_norm *)layer;
    struct norm *norm = &self->norm;
    const struct blob *y = layer->top[0];
    const struct norm_flow flow = {.x = y->at, .dy = y->d};
    size_t C = norm->C, n = self->count;
    double m = (double)(n * norm->S);
    if (!self->global) {
        memset(norm->k, 0, C * sizeof *norm->k);
        norm_sums(norm, n, &flow, NULL);
    }
    for (size_t c = 0; c < C; c++) {
        norm->p[c] = (float)self->r[c];
        norm->q[c] = (float)(-self->r[c] * norm->sum[C + c] / m);
        norm->c[c] = (float)(-self->r[c] * norm->sum[c] / m);
    }
    norm_slopes(norm, n, &flow, !self->global, layer->bottom[0].dx);
    axes_clear_rest(layer->bottom[0].blob, n, layer->bottom[0].dx);
}

const struct layer_ops layer_batch_norm = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_batch_norm),
    .in_place = true,
    .small_params = true,
    .by_channel = true,
    .takes = TAKES_EITHER,
    .reads_top = true,
    .takes_blocks = true,
    .setup = setup,
    .forward = batch_norm_forward,
    .backward = batch_norm_backward,
};
