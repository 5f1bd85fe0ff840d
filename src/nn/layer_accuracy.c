/* Accuracy: the share of positions (records, or pixels of them) whose label is among the top_k
 * scores, of those whose label is not ignored. A score that ties with the label's counts as better,
 * so that a net with equal scores for all classes is never right. A second top has the share for
 * each class (0 for one that does not occur). */
#include "nn/axes.h"
#include "nn/labels.h"
#include "nn/layers.h"

#include <string.h>

struct layer_accuracy {
    struct layer layer;
    struct labels labels;
    size_t *seen, *hits; /* of each class; NULL without a second top */
};

static const char *const types[] = {"Accuracy", NULL};
static const char *const messages[] = {"accuracy_param", NULL};

static int read_fields(struct layer_accuracy *self, const struct setup *setup, struct err *err)
{
    struct layer *layer = &self->layer;
    const Caffe__AccuracyParameter *p = layer->param->accuracy_param;
    const int32_t *ignored = p && p->has_ignore_label ? &p->ignore_label : NULL;
    size_t axis;
    int rc = axes_in_record(layer, "accuracy_param.axis", p ? p->axis : 1, &axis, err);
    if (rc == OK)
        rc = labels_init(&self->labels, layer, setup, axis, ignored, err);
    if (rc != OK)
        return rc;
    size_t C = self->labels.scores.C;
    layer->top_k = p ? p->top_k : 1;
    if (layer->top_k < 1 || layer->top_k > C)
        return err_set(err, ERR_INPUT,
                       "accuracy_param.top_k: %zu is out of range, 1 to the %zu classes",
                       layer->top_k, C);
    return OK;
}

static int setup_classes(struct layer_accuracy *self, const struct setup *setup, struct err *err)
{
    const struct shape classes = {1, {self->labels.scores.C}};
    self->seen = arena_array(setup->arena, 2 * classes.dim[0], size_t);
    if (!self->seen)
        return err_set(err, ERR_NOMEM, "out of memory for %zu classes", classes.dim[0]);
    self->hits = self->seen + classes.dim[0];
    self->layer.buffer_bytes += 2 * classes.dim[0] * sizeof(size_t);
    self->layer.top[1]->is_whole = true;
    return layer_top(&self->layer, 1, &classes, LAYOUT_PLAIN, err);
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_accuracy *self = (struct layer_accuracy *)layer;
    const struct shape scalar = {0};
    int rc = layer_links_between(layer, 2, 2, 1, 2, err);
    if (rc == OK)
        rc = read_fields(self, setup, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &scalar, LAYOUT_PLAIN, err);
    return rc == OK && layer->n_top > 1 ? setup_classes(self, setup, err) : rc;
}

/* Written so that a score that is not a number never counts as right. */
static bool is_right(const float *x, size_t C, size_t label, size_t top_k)
{
    size_t worse = 0;
    for (size_t c = 0; c < C; c++)
        worse += x[c] < x[label];
    return C - 1 - worse < top_k && x[label] == x[label];
}

static size_t count_hits(struct layer_accuracy *self, size_t positions)
{
    const struct labels *labels = &self->labels;
    const float *x = rows_read(&labels->scores);
    size_t C = labels->scores.C, hits = 0;
    if (self->seen)
        memset(self->seen, 0, 2 * C * sizeof *self->seen);
    for (size_t p = 0; p < positions; p++) {
        int32_t label = labels->at[p];
        if (label < 0)
            continue;
        bool right = is_right(x + p * C, C, (size_t)label, self->layer.top_k);
        hits += right;
        if (self->seen) {
            self->seen[label]++;
            self->hits[label] += right;
        }
    }
    return hits;
}

static void accuracy_forward(struct layer *layer, const struct pass *pass)
{
    struct layer_accuracy *self = (struct layer_accuracy *)layer;
    size_t count = pass->batch->count;
    labels_read(&self->labels, count);
    double hits = (double)count_hits(self, count * self->labels.per);
    double valid = self->labels.valid > 0 ? (double)self->labels.valid : 1.0;
    *(float *)layer->top[0]->at = (float)(hits / valid);
    float *each = layer->n_top > 1 ? layer->top[1]->at : NULL;
    for (size_t c = 0; each && c < self->labels.scores.C; c++)
        each[c] = self->seen[c] > 0 ? (float)self->hits[c] / (float)self->seen[c] : 0.0f;
    if (layer->judges) {
        pass->result->has_right = true;
        pass->result->right = hits * ((double)count / valid);
    }
}

const struct layer_ops layer_accuracy = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_accuracy),
    .setup = setup,
    .forward = accuracy_forward,
};
