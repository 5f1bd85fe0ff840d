/* SigmoidCrossEntropyLoss: for scores x and targets t of the same size, each on its own
 *
 *     −t·log σ(x) − (1 − t)·log(1 − σ(x)) = max(x, 0) − x·t + log(1 + e^−|x|)
 *
 * summed and divided by d (loss.h), the records unless loss_param sets another. The gradient is
 * σ(x) − t. Targets whose integer part is ignore_label do not count. */
#include "nn/layers.h"
#include "nn/loss.h"

#include <math.h>

struct layer_sigmoid_loss {
    struct layer layer;
    struct rows scores, targets;
    loss_mode mode;
    bool ignores;
    int32_t ignored;
    float *g;    /* σ(x) − t, or 0 */
    size_t used; /* records of the last batch */
    double d;
};

static const char *const types[] = {"SigmoidCrossEntropyLoss", NULL};
static const char *const messages[] = {"loss_param", NULL};

static int plan_loss(struct layer_sigmoid_loss *self, const struct setup *setup, struct err *err)
{
    struct layer *layer = &self->layer;
    const struct blob *x = layer->bottom[0].blob, *t = layer->bottom[1].blob;
    int rc = rows_init_records(&self->scores, x, setup->arena, &layer->buffer_bytes, err);
    if (rc == OK)
        rc = rows_init_records(&self->targets, t, setup->arena, &layer->buffer_bytes, err);
    if (rc != OK)
        return rc;
    bool training = setup->options->phase == PHASE_TRAIN;
    layer->reorders = rows_reorders(&self->scores, training) + rows_reorders(&self->targets, false);
    self->g = arena_array(setup->arena, x->count, float);
    if (!self->g)
        return err_set(err, ERR_NOMEM, "out of memory for %zu scores", x->count);
    layer->buffer_bytes += x->count * sizeof(float);
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_sigmoid_loss *self = (struct layer_sigmoid_loss *)layer;
    const Caffe__LossParameter *p = layer->param->loss_param;
    const struct shape scalar = {0};
    int rc = layer_links(layer, 2, 1, err);
    if (rc == OK)
        rc = loss_check_pair(layer, err);
    if (rc == OK)
        rc = loss_read_mode(p, CAFFE__LOSS_PARAMETER__NORMALIZATION_MODE__BATCH_SIZE, &self->mode,
                            err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &scalar, LAYOUT_PLAIN, err);
    if (rc != OK)
        return rc;
    self->ignores = p && p->has_ignore_label;
    self->ignored = p ? p->ignore_label : 0;
    return plan_loss(self, setup, err);
}

/* Is the target's integer part ignore_label? */
static bool is_ignored(const struct layer_sigmoid_loss *self, float t)
{
    return self->ignores && truncf(t) == (float)self->ignored;
}

static void sigmoid_loss_forward(struct layer *layer, const struct pass *pass)
{
    struct layer_sigmoid_loss *self = (struct layer_sigmoid_loss *)layer;
    const float *scores = rows_read(&self->scores), *targets = rows_read(&self->targets);
    size_t valid = 0;
    self->used = pass->batch->count;
    size_t n = self->used * self->scores.C;
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        double x = (double)scores[i], t = (double)targets[i];
        self->g[i] = 0.0f;
        if (is_ignored(self, targets[i]))
            continue;
        valid++;
        sum += (x > 0.0 ? x : 0.0) - x * t + log1p(exp(-fabs(x)));
        self->g[i] = (float)(1.0 / (1.0 + exp(-x)) - t);
    }
    self->d = loss_divisor(self->mode, n, valid, self->used);
    layer_loss(layer, pass, sum * ((double)self->used / self->d));
}

static void sigmoid_loss_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct layer_sigmoid_loss *self = (const struct layer_sigmoid_loss *)layer;
    float scale = layer_loss_weight(layer) / (float)self->d;
    loss_spread(&self->scores, self->g, self->used, scale, layer->bottom[0].dx);
}

const struct layer_ops layer_sigmoid_loss = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_sigmoid_loss),
    .is_loss = true,
    .setup = setup,
    .forward = sigmoid_loss_forward,
    .backward = sigmoid_loss_backward,
    .first_only = true,
};
