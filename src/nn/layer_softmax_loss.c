/* SoftmaxWithLoss: at each position of the scores (a record, or a pixel of one) −log of the softmax
 * of its label's score, except for labels that loss_param ignores; summed and divided by d
 * (loss.h), which is the number of labels that count unless loss_param sets another. A second top
 * is the softmax; no gradient flows through it, as in Caffe. A label that is not a class makes the
 * loss NaN. */
#include "nn/axes.h"
#include "nn/labels.h"
#include "nn/layers.h"
#include "nn/loss.h"

#include <math.h>
#include <string.h>

struct layer_softmax_loss {
    struct layer layer;
    struct labels labels;
    loss_mode mode;
    float *y;       /* softmax of the scores, as rows */
    size_t records; /* of the last batch */
    double d;
};

static const char *const types[] = {"SoftmaxWithLoss", NULL};
static const char *const messages[] = {"loss_param", "softmax_param", NULL};

static int read_fields(struct layer_softmax_loss *self, const struct setup *setup, struct err *err)
{
    struct layer *layer = &self->layer;
    const Caffe__LossParameter *p = layer->param->loss_param;
    const Caffe__SoftmaxParameter *softmax = layer->param->softmax_param;
    const int32_t *ignored = p && p->has_ignore_label ? &p->ignore_label : NULL;
    size_t axis;
    int rc = axes_in_record(layer, "softmax_param.axis", softmax ? softmax->axis : 1, &axis, err);
    if (rc == OK)
        rc = loss_read_mode(p, CAFFE__LOSS_PARAMETER__NORMALIZATION_MODE__VALID, &self->mode, err);
    return rc == OK ? labels_init(&self->labels, layer, setup, axis, ignored, err) : rc;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_softmax_loss *self = (struct layer_softmax_loss *)layer;
    const struct shape scalar = {0};
    int rc = layer_links_between(layer, 2, 2, 1, 2, err);
    if (rc == OK)
        rc = read_fields(self, setup, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &scalar, LAYOUT_PLAIN, err);
    const struct blob *x = layer->bottom[0].blob;
    if (rc == OK && layer->n_top > 1)
        rc = layer_top(layer, 1, &x->shape, x->layout, err);
    if (rc != OK)
        return rc;
    const struct rows *rows = &self->labels.scores;
    const struct shape matrix = {2, {rows->outer * rows->inner, rows->C}};
    self->y = arena_array(setup->arena, x->count, float);
    if (!self->y)
        return err_set(err, ERR_NOMEM, "out of memory for %zu scores", x->count);
    layer->buffer_bytes += x->count * sizeof(float);
    return setup->options->kernels->softmax(&matrix, setup->arena, &layer->op, err);
}

/* −log y_label without loss of small y: the largest score's y is 1/Σ exp(x − max), at least 1/C. */
static double position_loss(const float *x, const float *y, size_t C, size_t label)
{
    size_t top = 0;
    for (size_t c = 1; c < C; c++)
        if (x[c] > x[top])
            top = c;
    return (double)x[top] - (double)x[label] - log((double)y[top]);
}

static double sum_positions(const struct layer_softmax_loss *self, const float *x)
{
    const struct labels *labels = &self->labels;
    size_t C = labels->scores.C;
    double sum = 0.0;
    for (size_t p = 0; p < self->records * labels->per; p++) {
        int32_t label = labels->at[p];
        if (label == LABEL_BAD)
            return NAN;
        if (label != LABEL_IGNORED)
            sum += position_loss(x + p * C, self->y + p * C, C, (size_t)label);
    }
    return sum;
}

static void softmax_loss_forward(struct layer *layer, const struct pass *pass)
{
    struct layer_softmax_loss *self = (struct layer_softmax_loss *)layer;
    struct labels *labels = &self->labels;
    const struct rows *rows = &labels->scores;
    struct op_args args = {.x = rows_read(rows), .y = self->y};
    layer->op->ops->forward(layer->op, &args);
    self->records = pass->batch->count;
    labels_read(labels, self->records);
    self->d = loss_divisor(self->mode, self->records * labels->per, labels->valid,
                           self->records * labels->outer);
    layer_loss(layer, pass, sum_positions(self, args.x) * ((double)self->records / self->d));
    if (layer->n_top > 1) {
        float *to = layer->top[1]->at;
        memcpy(rows_room(rows, to), self->y, layer->top[1]->count * sizeof *to);
        rows_done(rows, to);
    }
}

/* dx = weight/d · (y − [c = label]); zero where nothing counts, and where there is no record. */
static void softmax_loss_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct layer_softmax_loss *self = (const struct layer_softmax_loss *)layer;
    const struct labels *labels = &self->labels;
    const struct rows *rows = &labels->scores;
    size_t C = rows->C, positions = rows->outer * rows->inner, used = self->records * labels->per;
    float scale = layer_loss_weight(layer) / (float)self->d;
    float *dx = rows_room(rows, layer->bottom[0].dx);
    for (size_t p = 0; p < positions; p++) {
        int32_t label = p < used ? labels->at[p] : LABEL_IGNORED;
        const float *y = self->y + p * C;
        float *d = dx + p * C;
        if (label < 0) {
            memset(d, 0, C * sizeof *d);
            continue;
        }
        for (size_t c = 0; c < C; c++)
            d[c] = scale * y[c];
        d[label] = scale * (y[label] - 1.0f);
    }
    rows_done(rows, layer->bottom[0].dx);
}

const struct layer_ops layer_softmax_loss = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_softmax_loss),
    .is_loss = true,
    .setup = setup,
    .forward = softmax_loss_forward,
    .backward = softmax_loss_backward,
    .first_only = true,
};
