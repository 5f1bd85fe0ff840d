/* InnerProduct: y = x·wᵀ + b with x flattened to (N, I), in NCHW order, and w (O, I). */
#include "nn/layers.h"

static const char *const types[] = {"InnerProduct", NULL};
static const char *const messages[] = {"inner_product_param", NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct net_options *options = setup->options;
    const Caffe__InnerProductParameter *p = layer->param->inner_product_param;
    int rc = layer_links(layer, 1, 1, err);
    if (rc != OK)
        return rc;
    if (!p || p->num_output == 0)
        return err_set(err, ERR_INPUT, "inner_product_param.num_output must be positive");
    if (p->transpose)
        return err_set(err, ERR_UNSUPPORTED, "inner_product_param.transpose is not supported");
    const struct blob *x = layer->bottom[0].blob;
    char text[128];
    if (x->shape.n < 2)
        return err_set(err, ERR_INPUT, "bottom \"%.64s\" is %s; an inner product takes NxI",
                       x->name, shape_text(&x->shape, text, sizeof text));
    rc = layer_axis(layer, "inner_product_param.axis", p->axis, err);
    if (rc != OK)
        return rc;
    size_t N = x->shape.dim[0], I = shape_count_from(&x->shape, 1), O = p->num_output;
    struct inner_spec spec = {.x = x->shape, .y = {2, {N, O}}, .bias = p->bias_term};
    struct shape w = {2, {O, I}}, b = {1, {O}};
    rc = layer_top(layer, 0, &spec.y, LAYOUT_PLAIN, err);
    if (rc == OK)
        rc = layer_param(layer, setup, &w, "weight_filler", p->weight_filler, err);
    if (rc == OK && p->bias_term)
        rc = layer_param(layer, setup, &b, "bias_filler", p->bias_filler, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    layer->products = (double)N * (double)I * (double)O;
    return options->kernels->inner(&spec, x->layout, options->phase == PHASE_TRAIN, setup->arena,
                                   &layer->op, err);
}

const struct layer_ops layer_inner = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .setup = setup,
    .forward = layer_op_forward,
    .backward = layer_op_backward,
};
