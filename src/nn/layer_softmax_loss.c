/* SoftmaxWithLoss: −log of the label's softmax, the mean over the batch's records, times
 * loss_weight. */
#include "base/fault.h"
#include "nn/labels.h"
#include "nn/layers.h"

#include <math.h>

struct layer_softmax_loss {
    struct layer layer;
    struct shape matrix; /* (N, C) */
    float *y;            /* softmax of the scores */
    size_t count;        /* records of the last batch */
    float weight;
};

static const char *const types[] = {"SoftmaxWithLoss", NULL};
static const char *const messages[] = {"loss_param", "softmax_param", NULL};

static int check_fields(const struct layer *layer, struct err *err)
{
    const Caffe__LossParameter *p = layer->param->loss_param;
    if (layer->param->softmax_param) {
        int rc = layer_axis(layer, "softmax_param.axis", layer->param->softmax_param->axis, err);
        if (rc != OK)
            return rc;
    }
    if (!p)
        return OK;
    if (p->has_ignore_label)
        return err_set(err, ERR_UNSUPPORTED, "loss_param.ignore_label is not supported");
    /* One label a record and none ignored: all other modes, and `normalize`, are the same mean. */
    if (p->normalization == CAFFE__LOSS_PARAMETER__NORMALIZATION_MODE__NONE)
        return err_set(err, ERR_UNSUPPORTED, "loss_param.normalization: NONE is not supported");
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_softmax_loss *self = (struct layer_softmax_loss *)layer;
    struct shape scalar = {0};
    int rc = layer_links(layer, 2, 1, err);
    if (rc == OK)
        rc = layer_matrix(layer, &self->matrix, err);
    if (rc == OK)
        rc = labels_check(layer, err);
    if (rc == OK)
        rc = check_fields(layer, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &scalar, LAYOUT_PLAIN, err);
    if (rc != OK)
        return rc;
    self->weight = layer->param->n_loss_weight ? layer->param->loss_weight[0] : 1.0f;
    if (!isfinite(self->weight))
        return err_set(err, ERR_INPUT, "loss_weight: %g is out of range", (double)self->weight);
    size_t n = shape_count(&self->matrix);
    self->y = arena_array(setup->arena, n, float);
    if (!self->y)
        return err_set(err, ERR_NOMEM, "out of memory for %zu scores", n);
    layer->buffer_bytes = n * sizeof(float);
    return setup->options->kernels->softmax(&self->matrix, setup->arena, &layer->op, err);
}

/* −log y_label without loss of small y: the largest score's y is 1/Σ exp(x − max), at least 1/C. */
static double record_loss(const float *x, const float *y, size_t C, size_t label)
{
    size_t top = 0;
    for (size_t c = 1; c < C; c++)
        if (x[c] > x[top])
            top = c;
    return (double)x[top] - (double)x[label] - log((double)y[top]);
}

static void forward(struct layer *layer, const struct pass *pass)
{
    struct layer_softmax_loss *self = (struct layer_softmax_loss *)layer;
    const float *x = layer->bottom[0].blob->at;
    size_t C = self->matrix.dim[1];
    struct op_args args = {.x = x, .y = self->y};
    layer->op->ops->forward(layer->op, &args);
    self->count = pass->batch->count;
    double sum = 0.0;
    for (size_t n = 0; n < self->count; n++) {
        size_t label = labels_at(layer, n);
        PL_ASSERT(label < C);
        sum += record_loss(x + n * C, self->y + n * C, C, label);
    }
    layer->top[0]->at[0] = (float)(sum / (double)self->count);
    pass->result->loss += (double)self->weight * sum;
}

/* dx = weight / count · (y − [c = label]); zero where there is no record. */
static void backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct layer_softmax_loss *self = (const struct layer_softmax_loss *)layer;
    size_t N = self->matrix.dim[0], C = self->matrix.dim[1];
    float scale = self->weight / (float)self->count;
    float *dx = layer->bottom[0].dx;
    for (size_t n = 0; n < N; n++) {
        size_t label = labels_at(layer, n);
        for (size_t c = 0; c < C; c++) {
            float one = c == label ? 1.0f : 0.0f;
            dx[n * C + c] = n < self->count ? scale * (self->y[n * C + c] - one) : 0.0f;
        }
    }
}

const struct layer_ops layer_softmax_loss = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_softmax_loss),
    .is_loss = true,
    .setup = setup,
    .forward = forward,
    .backward = backward,
};
