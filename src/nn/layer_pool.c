/* Pooling: the largest value, or the mean, of each window. The output's size rounds up as in Caffe,
 * unless round_mode is FLOOR; a window that would begin in the far padding is left out. */
#include "nn/axes.h"
#include "nn/layers.h"
#include "nn/window.h"

static const char *const types[] = {"Pooling", NULL};
static const char *const messages[] = {"pooling_param", NULL};

static int read_size(const Caffe__PoolingParameter *p, struct pool_spec *spec, struct err *err)
{
    const struct window_field kernel = {.name = "kernel_size",
                                        .n = p->has_kernel_size ? 1 : 0,
                                        .both = &p->kernel_size,
                                        .has_h = p->has_kernel_h,
                                        .has_w = p->has_kernel_w,
                                        .h = p->kernel_h,
                                        .w = p->kernel_w,
                                        .min = 1};
    if (!p->global_pooling)
        return window_read(&kernel, &spec->kernel_h, &spec->kernel_w, err);
    if (p->has_kernel_size || p->has_kernel_h || p->has_kernel_w)
        return err_set(err, ERR_INPUT, "global_pooling takes no kernel size");
    spec->kernel_h = spec->x.dim[2];
    spec->kernel_w = spec->x.dim[3];
    return OK;
}

static int read_window(const Caffe__PoolingParameter *p, struct pool_spec *spec, struct err *err)
{
    const struct window_field stride = {.name = "stride",
                                        .n = p->has_stride ? 1 : 0,
                                        .both = &p->stride,
                                        .has_h = p->has_stride_h,
                                        .has_w = p->has_stride_w,
                                        .h = p->stride_h,
                                        .w = p->stride_w,
                                        .fallback = 1,
                                        .min = 1};
    const struct window_field pad = {.name = "pad",
                                     .n = p->has_pad ? 1 : 0,
                                     .both = &p->pad,
                                     .has_h = p->has_pad_h,
                                     .has_w = p->has_pad_w,
                                     .h = p->pad_h,
                                     .w = p->pad_w};
    int rc = read_size(p, spec, err);
    if (rc == OK)
        rc = window_read(&stride, &spec->stride_h, &spec->stride_w, err);
    if (rc == OK)
        rc = window_read(&pad, &spec->pad_h, &spec->pad_w, err);
    if (rc != OK)
        return rc;
    if (p->global_pooling &&
        (spec->stride_h != 1 || spec->stride_w != 1 || spec->pad_h != 0 || spec->pad_w != 0))
        return err_set(err, ERR_INPUT, "global_pooling takes no stride and no pad");
    if (spec->pad_h >= spec->kernel_h || spec->pad_w >= spec->kernel_w)
        return err_set(err, ERR_INPUT, "pad, %zux%zu, must be smaller than the window, %zux%zu",
                       spec->pad_h, spec->pad_w, spec->kernel_h, spec->kernel_w);
    return OK;
}

/* Windows along one dimension of `size` pixels; `clip`: without one that would begin past the
 * image. */
static size_t count_windows(size_t size, size_t kernel, size_t stride, size_t pad, bool round_up,
                            bool clip)
{
    size_t room = size + 2 * pad - kernel;
    size_t n = (round_up ? (room + stride - 1) / stride : room / stride) + 1;
    return clip && (n - 1) * stride >= size + pad ? n - 1 : n;
}

static int infer_shape(const struct layer *layer, const Caffe__PoolingParameter *p,
                       struct pool_spec *spec, struct err *err)
{
    size_t H = spec->x.dim[2], W = spec->x.dim[3];
    char text[128];
    if (spec->kernel_h > H + 2 * spec->pad_h || spec->kernel_w > W + 2 * spec->pad_w)
        return err_set(err, ERR_INPUT,
                       "the window, %zux%zu, is larger than the padded image, %zux%zu (bottom "
                       "\"%.64s\" is %s); give larger records (resize), or a smaller window",
                       spec->kernel_h, spec->kernel_w, H + 2 * spec->pad_h, W + 2 * spec->pad_w,
                       layer->bottom[0].blob->name, shape_text(&spec->x, text, sizeof text));
    bool up = p->round_mode == CAFFE__POOLING_PARAMETER__ROUND_MODE__CEIL;
    bool clip = spec->pad_h > 0 || spec->pad_w > 0; /* without padding Caffe does not look */
    spec->y =
        (struct shape){4,
                       {spec->x.dim[0], spec->x.dim[1],
                        count_windows(H, spec->kernel_h, spec->stride_h, spec->pad_h, up, clip),
                        count_windows(W, spec->kernel_w, spec->stride_w, spec->pad_w, up, clip)}};
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct net_options *options = setup->options;
    const Caffe__PoolingParameter *p = layer->param->pooling_param;
    if (layer->n_top == 2)
        return err_set(err, ERR_UNSUPPORTED,
                       "top \"%.64s\": a second top, where each maximum was, is not supported",
                       layer->top[1]->name);
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK)
        rc = layer_image(layer, "pooling", err);
    if (rc != OK)
        return rc;
    if (!p)
        return err_set(err, ERR_INPUT, "pooling_param is missing");
    struct pool_spec spec = {
        .kind = POOL_MAX, .x = layer->bottom[0].blob->shape, .dtype = layer->dtype};
    if (p->pool == CAFFE__POOLING_PARAMETER__POOL_METHOD__AVE)
        spec.kind = POOL_AVERAGE;
    else if (p->pool != CAFFE__POOLING_PARAMETER__POOL_METHOD__MAX)
        return err_set(err, ERR_UNSUPPORTED,
                       "pooling_param.pool: STOCHASTIC is not supported; supported: MAX, AVE");
    if ((rc = read_window(p, &spec, err)) != OK || (rc = infer_shape(layer, p, &spec, err)) != OK ||
        (rc = layer_top(layer, 0, &spec.y, axes_layout(setup, &spec.y), err)) != OK ||
        (rc = layer_params_done(layer, err)) != OK)
        return rc;
    layer->takes_largest = spec.kind == POOL_MAX;
    bool blocks = layer->bottom[0].blob->layout == LAYOUT_BLOCKS;
    if (blocks || layer->top[0]->layout == LAYOUT_BLOCKS) { /* of one pixel it is as good as NHWC */
        spec.x = shape_of_blocks(&spec.x);
        spec.y = shape_of_blocks(&spec.y);
    }
    return options->kernels->pool(&spec, options->phase == PHASE_TRAIN, setup->arena, &layer->op,
                                  err);
}

const struct layer_ops layer_pool = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .takes = TAKES_EITHER,
    .by_channel = true,
    .takes_blocks = true,
    .setup = setup,
    .forward = layer_op_forward,
    .backward = layer_op_backward,
};
