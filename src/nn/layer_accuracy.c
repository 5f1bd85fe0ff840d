/* Accuracy: the share of records whose label is among the top_k scores. A score that ties with the
 * label's counts as better, so that a net that gives all classes the same score has learnt nothing.
 */
#include "nn/labels.h"
#include "nn/layers.h"

struct layer_accuracy {
    struct layer layer;
    size_t C, top_k;
};

static const char *const types[] = {"Accuracy", NULL};
static const char *const messages[] = {"accuracy_param", NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    (void)setup;
    struct layer_accuracy *self = (struct layer_accuracy *)layer;
    const Caffe__AccuracyParameter *p = layer->param->accuracy_param;
    struct shape matrix, scalar = {0};
    int rc = layer_links(layer, 2, 1, err);
    if (rc == OK)
        rc = layer_matrix(layer, &matrix, err);
    if (rc == OK)
        rc = labels_check(layer, err);
    if (rc == OK && p)
        rc = layer_axis(layer, "accuracy_param.axis", p->axis, err);
    if (rc != OK)
        return rc;
    self->C = matrix.dim[1];
    self->top_k = p ? p->top_k : 1;
    if (p && p->has_ignore_label)
        return err_set(err, ERR_UNSUPPORTED, "accuracy_param.ignore_label is not supported");
    if (self->top_k < 1 || self->top_k > self->C)
        return err_set(err, ERR_INPUT,
                       "accuracy_param.top_k: %zu is out of range, 1 to the %zu classes",
                       self->top_k, self->C);
    rc = layer_params_done(layer, err);
    return rc == OK ? layer_top(layer, 0, &scalar, LAYOUT_PLAIN, err) : rc;
}

/* Written so that a score that is not a number never counts as right. */
static bool is_right(const float *x, size_t C, size_t label, size_t top_k)
{
    size_t worse = 0;
    for (size_t c = 0; c < C; c++)
        worse += x[c] < x[label];
    return C - 1 - worse < top_k && x[label] == x[label];
}

static void forward(struct layer *layer, const struct pass *pass)
{
    struct layer_accuracy *self = (struct layer_accuracy *)layer;
    const float *x = layer->bottom[0].blob->at;
    size_t count = pass->batch->count, right = 0;
    for (size_t n = 0; n < count; n++) {
        size_t label = labels_at(layer, n);
        right += label < self->C && is_right(x + n * self->C, self->C, label, self->top_k);
    }
    layer->top[0]->at[0] = (float)right / (float)count;
    if (!pass->result->has_right) {
        pass->result->has_right = true;
        pass->result->right = right;
    }
}

const struct layer_ops layer_accuracy = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_accuracy),
    .setup = setup,
    .forward = forward,
};
