/* Softmax over the channels: y_c = exp(x_c) / Σ exp(x). */
#include "nn/layers.h"

static const char *const types[] = {"Softmax", NULL};
static const char *const messages[] = {"softmax_param", NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    const Caffe__SoftmaxParameter *p = layer->param->softmax_param;
    struct shape matrix;
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK)
        rc = layer_matrix(layer, &matrix, err);
    if (rc == OK && p)
        rc = layer_axis(layer, "softmax_param.axis", p->axis, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    if ((rc = layer_top(layer, 0, &x->shape, x->layout, err)) != OK ||
        (rc = layer_params_done(layer, err)) != OK)
        return rc;
    return setup->options->kernels->softmax(&matrix, setup->arena, &layer->op, err);
}

/* dx_c = y_c · (dy_c − Σ_k dy_k·y_k) */
static void backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct blob *top = layer->top[0];
    size_t N = top->shape.dim[0], C = top->shape.dim[1];
    for (size_t n = 0; n < N; n++) {
        const float *y = top->at + n * C, *dy = top->d + n * C;
        float *dx = layer->bottom[0].dx + n * C;
        double dot = 0.0;
        for (size_t c = 0; c < C; c++)
            dot += (double)dy[c] * (double)y[c];
        for (size_t c = 0; c < C; c++)
            dx[c] = (float)((double)y[c] * ((double)dy[c] - dot));
    }
}

const struct layer_ops layer_softmax = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .reads_top = true,
    .setup = setup,
    .forward = layer_op_forward,
    .backward = backward,
};
