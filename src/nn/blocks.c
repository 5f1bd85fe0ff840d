#include "nn/blocks.h"

#include "nn/layers.h"

static bool would_lie_in_blocks(const struct blob *blob)
{
    return blob->shape.n == 4 && layout_in_blocks(&blob->shape) == LAYOUT_BLOCKS;
}

static bool layer_fits(const struct layer *layer)
{
    bool any = false;
    for (size_t k = 0; k < layer->n_bottom; k++)
        any = any || would_lie_in_blocks(layer->bottom[k].blob);
    for (size_t k = 0; k < layer->n_top; k++)
        any = any || would_lie_in_blocks(layer->top[k]);
    return layer->takes_blocks || !any;
}

static bool copies_images(const struct layer *layer)
{
    return layer->ops == &layer_conv && layer->op->forward.images + layer->op->backward.images > 0;
}

bool blocks_may_help(const struct net *net, const struct net_options *options)
{
    bool copies = false, fits = options->tuner && options->kernels->has_blocks &&
                                options->dtype == DTYPE_F32 && net->phase == PHASE_TRAIN &&
                                !options->keep_all && options->slice.count <= 1;
    for (size_t i = 0; i < net->file.n_layers && fits; i++) {
        copies = copies || copies_images(net->file.layer[i]);
        fits = layer_fits(net->file.layer[i]);
    }
    return copies && fits;
}

/* The time of the net's convolutions, as the tuner measured it; 0: not all of them were timed. */
static double convolution_work(const struct net *net)
{
    double sum = 0;
    for (size_t i = 0; i < net->file.n_layers; i++) {
        const struct layer *layer = net->file.layer[i];
        if (layer->ops == &layer_conv && layer->op->seconds <= 0)
            return 0;
        sum += layer->ops == &layer_conv ? layer->op->seconds : 0;
    }
    return sum;
}

bool blocks_win(const struct net *nhwc, const struct net *blocks)
{
    double a = convolution_work(nhwc), b = convolution_work(blocks);
    return a > 0 && b > 0 && b < a - a / 50;
}
