/* HingeLoss: one against the others. With s = −1 for the label's score and 1 for all others, of
 * each record's scores x
 *
 *     m = max(0, 1 + s·x),   1/N Σ m (norm L1) or 1/N Σ m² (L2),   dx = s·[m > 0] or 2·s·m, over N
 *
 * A label that is no class makes the loss no number. */
#include "nn/labels.h"
#include "nn/layers.h"
#include "nn/loss.h"

#include <math.h>

struct layer_hinge_loss {
    struct layer layer;
    struct labels labels;
    bool squares; /* L2 */
    float *g;     /* N·dx */
    size_t used;  /* rows of the last batch */
};

static const char *const types[] = {"HingeLoss", NULL};
static const char *const messages[] = {"hinge_loss_param", NULL};

static int read_norm(struct layer_hinge_loss *self, struct err *err)
{
    const Caffe__HingeLossParameter *p = self->layer.param->hinge_loss_param;
    if (p && p->norm != CAFFE__HINGE_LOSS_PARAMETER__NORM__L1 &&
        p->norm != CAFFE__HINGE_LOSS_PARAMETER__NORM__L2)
        return err_set(err, ERR_INPUT, "hinge_loss_param.norm: %d is none", (int)p->norm);
    self->squares = p && p->norm == CAFFE__HINGE_LOSS_PARAMETER__NORM__L2;
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_hinge_loss *self = (struct layer_hinge_loss *)layer;
    const struct shape scalar = {0};
    int rc = layer_links(layer, 2, 1, err);
    const struct blob *x = rc == OK ? layer->bottom[0].blob : NULL;
    if (rc == OK && x->shape.n == 0)
        rc = err_set(err, ERR_INPUT, "bottom \"%.64s\" is one number, no scores", x->name);
    if (rc == OK)
        rc = read_norm(self, err);
    if (rc == OK)
        rc = labels_init(&self->labels, layer, setup, LABELS_RECORD, NULL, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &scalar, LAYOUT_PLAIN, err);
    if (rc != OK)
        return rc;
    self->g = arena_array(setup->arena, x->count, float);
    if (!self->g)
        return err_set(err, ERR_NOMEM, "out of memory for %zu scores", x->count);
    layer->buffer_bytes += x->count * sizeof(float);
    return OK;
}

/* One row's loss, and its gradient into g. */
static double row_loss(const struct layer_hinge_loss *self, const float *x, int32_t label, float *g)
{
    double sum = 0.0;
    for (size_t c = 0; c < self->labels.scores.C; c++) {
        float s = (int32_t)c == label ? -1.0f : 1.0f, m = 1.0f + s * x[c];
        m = m < 0.0f ? 0.0f : m; /* keeps NaN and infinity */
        sum += self->squares ? (double)m * (double)m : (double)m;
        g[c] = self->squares ? 2.0f * s * m : m > 0.0f ? s : 0.0f;
    }
    return label >= 0 ? sum : NAN;
}

static void hinge_loss_forward(struct layer *layer, const struct pass *pass)
{
    struct layer_hinge_loss *self = (struct layer_hinge_loss *)layer;
    struct labels *labels = &self->labels;
    const float *x = rows_read(&labels->scores);
    size_t C = labels->scores.C;
    double sum = 0.0;
    self->used = pass->batch->count * labels->per;
    labels_read(labels, pass->batch->count);
    for (size_t i = 0; i < self->used; i++)
        sum += row_loss(self, x + i * C, labels->at[i], self->g + i * C);
    layer_loss(layer, pass, sum / (double)labels->per);
}

static void hinge_loss_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct layer_hinge_loss *self = (const struct layer_hinge_loss *)layer;
    float scale = layer_loss_weight(layer) / (float)self->used;
    loss_spread(&self->labels.scores, self->g, self->used, scale, layer->bottom[0].dx);
}

const struct layer_ops layer_hinge_loss = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_hinge_loss),
    .is_loss = true,
    .setup = setup,
    .forward = hinge_loss_forward,
    .backward = hinge_loss_backward,
    .first_only = true,
};
