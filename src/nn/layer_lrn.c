/* LRN, local response normalisation: each value is divided by a power of the squares around it, in
 * the channels next to its own or in the pixels of its own (equations: struct lrn_spec). */
#include "nn/layers.h"

#include <math.h>

static const char *const types[] = {"LRN", NULL};
static const char *const messages[] = {"lrn_param", NULL};

enum { SIZE_MAX_OF_LRN = 9999 };

/* `engine` selects one of Caffe's implementations, all of which give the same values. */
static int read_fields(const struct layer *layer, struct lrn_spec *spec, struct err *err)
{
    Caffe__LRNParameter none = CAFFE__LRNPARAMETER__INIT;
    const Caffe__LRNParameter *p = layer->param->lrn_param ? layer->param->lrn_param : &none;
    bool within = p->norm_region == CAFFE__LRNPARAMETER__NORM_REGION__WITHIN_CHANNEL;
    if (p->local_size % 2 == 0 || p->local_size > SIZE_MAX_OF_LRN)
        return err_set(err, ERR_INPUT, "lrn_param.local_size: %u must be odd, and at most %d",
                       (unsigned)p->local_size, SIZE_MAX_OF_LRN);
    if (!isfinite(p->alpha) || !isfinite(p->beta) || !isfinite(p->k))
        return err_set(err, ERR_INPUT, "lrn_param: alpha, beta and k must be finite");
    if (within && p->k != 1.0f)
        return err_set(err, ERR_UNSUPPORTED,
                       "lrn_param.k: %g has no effect with WITHIN_CHANNEL, where it is 1",
                       (double)p->k);
    *spec = (struct lrn_spec){
        .x = layer->bottom[0].blob->shape,
        .region = within ? LRN_WITHIN : LRN_ACROSS,
        .size = p->local_size,
        .alpha = p->alpha,
        .beta = p->beta,
        .k = p->k,
    };
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct net_options *options = setup->options;
    struct lrn_spec spec;
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK)
        rc = layer_image(layer, "LRN", err);
    if (rc == OK)
        rc = read_fields(layer, &spec, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &spec.x, options->kernels->image_layout, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    return options->kernels->lrn(&spec, options->phase == PHASE_TRAIN, setup->arena, &layer->op,
                                 err);
}

const struct layer_ops layer_lrn = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .reads_bottom = true,
    .setup = setup,
    .forward = layer_op_forward,
    .backward = layer_op_backward,
};
