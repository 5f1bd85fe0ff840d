/* ONNX's operators with windows: convolutions and poolings.
 *
 * A layer pads both sides alike. A convolution that pads one side more is one with a larger window,
 * whose new weights are 0. A maximum does not see its padding, so only the number of windows counts
 * there. */
#include "model/build_message.h"
#include "model/onnx_graph.h"

#include <stdlib.h>
#include <string.h>

enum { SIDES = 2, WINDOW_LIMIT = 1 << 15 };

/* Down, then across. */
struct window {
    int64_t kernel[SIDES], stride[SIDES], dilation[SIDES];
    int64_t before[SIDES], after[SIDES]; /* padding */
    int64_t size[SIDES];                 /* of the image */
    bool up;                             /* a last window may stick out */
};

static int64_t extent_of(const struct window *w, size_t k)
{
    return (w->kernel[k] - 1) * w->dilation[k] + 1;
}

/* Windows, in ONNX's count. */
static int64_t count_windows(const struct window *w, size_t k)
{
    int64_t room = w->size[k] + w->before[k] + w->after[k] - extent_of(w, k);
    if (room < 0)
        return 0;
    int64_t n = (w->up ? (room + w->stride[k] - 1) / w->stride[k] : room / w->stride[k]) + 1;
    /* No window begins in the padding behind the image. */
    return w->up && (n - 1) * w->stride[k] >= w->size[k] + w->before[k] ? n - 1 : n;
}

static int pad_same(const struct onnx_node *node, struct window *w)
{
    bool upper = onnx_text_is(node, "auto_pad", "SAME_UPPER", "");
    for (size_t k = 0; k < SIDES; k++) {
        int64_t n = (w->size[k] + w->stride[k] - 1) / w->stride[k];
        int64_t pad = (n - 1) * w->stride[k] + extent_of(w, k) - w->size[k];
        pad = pad > 0 ? pad : 0;
        w->before[k] = upper ? pad / 2 : pad - pad / 2;
        w->after[k] = pad - w->before[k];
    }
    return OK;
}

static int read_pads(struct onnx_graph *g, const struct onnx_node *node, struct window *w,
                     struct err *err)
{
    int64_t pads[2 * SIDES] = {0};
    bool none = onnx_text_is(node, "auto_pad", "NOTSET", "NOTSET");
    if (!onnx_ints(node, "pads", 2 * SIDES, pads))
        return onnx_refuse(g, node, err, "pads: others than 4, of images");
    if (onnx_text_is(node, "auto_pad", "VALID", ""))
        memset(pads, 0, sizeof pads);
    else if (onnx_text_is(node, "auto_pad", "SAME_UPPER", "") ||
             onnx_text_is(node, "auto_pad", "SAME_LOWER", ""))
        return pad_same(node, w);
    else if (!none)
        return onnx_broken(g, node, err, "auto_pad: none of NOTSET, VALID, SAME_UPPER, SAME_LOWER");
    for (size_t k = 0; k < SIDES; k++) {
        w->before[k] = pads[k];
        w->after[k] = pads[SIDES + k];
        if (pads[k] < 0 || pads[SIDES + k] < 0 || pads[k] > WINDOW_LIMIT ||
            pads[SIDES + k] > WINDOW_LIMIT)
            return onnx_refuse(g, node, err, "pads: %lld and %lld, not 0 to %d", (long long)pads[k],
                               (long long)pads[SIDES + k], WINDOW_LIMIT);
    }
    return OK;
}

/* `kernel`: of the weights, or NULL: the attribute's. */
static int read_window(struct onnx_graph *g, const struct onnx_node *node,
                       const struct onnx_value *x, const size_t *kernel, struct window *w,
                       struct err *err)
{
    *w = (struct window){.stride = {1, 1}, .dilation = {1, 1}};
    char text[128];
    if (x->shape.n != 4)
        return onnx_refuse(g, node, err, "input 0 is %s, not a batch of images, NxCxHxW",
                           shape_text(&x->shape, text, sizeof text));
    for (size_t k = 0; k < SIDES; k++) {
        w->size[k] = (int64_t)x->shape.dim[2 + k];
        w->kernel[k] = kernel ? (int64_t)kernel[k] : 0;
    }
    const int64_t given[SIDES] = {w->kernel[0], w->kernel[1]};
    if (!onnx_ints(node, "kernel_shape", SIDES, w->kernel) ||
        !onnx_ints(node, "strides", SIDES, w->stride) ||
        !onnx_ints(node, "dilations", SIDES, w->dilation))
        return onnx_broken(g, node, err, "kernel_shape, strides and dilations need 2 numbers each");
    if (kernel && memcmp(given, w->kernel, sizeof given) != 0)
        return onnx_broken(g, node, err, "kernel_shape is not that of the weights");
    w->up = onnx_int(node, "ceil_mode", 0) != 0;
    for (size_t k = 0; k < SIDES; k++)
        if (w->kernel[k] < 1 || w->stride[k] < 1 || w->dilation[k] < 1 ||
            w->kernel[k] > WINDOW_LIMIT || w->stride[k] > WINDOW_LIMIT ||
            w->dilation[k] > WINDOW_LIMIT)
            return onnx_broken(g, node, err, "a window, stride or dilation is not 1 to %d",
                               WINDOW_LIMIT);
    return read_pads(g, node, w, err);
}

/* ---- convolutions ---- */

static uint32_t *make_pair(struct build *b, size_t *n, const int64_t value[SIDES])
{
    uint32_t *list = malloc(SIDES * sizeof *list);
    if (!list) {
        b->failed = true;
        return NULL;
    }
    for (size_t k = 0; k < SIDES; k++)
        list[k] = (uint32_t)value[k];
    *n = value[0] == value[1] ? 1 : SIDES;
    return list;
}

static bool is_all(const int64_t value[SIDES], int64_t number)
{
    return value[0] == number && value[1] == number;
}

/* The layer's message; `pad` is alike on both sides. */
static void fill_convolution(struct onnx_graph *g, Caffe__LayerParameter *layer,
                             const struct window *w, size_t outputs, size_t group, bool bias)
{
    struct build *b = &g->build;
    Caffe__ConvolutionParameter *conv =
        layer ? build_message(b, &caffe__convolution_parameter__descriptor) : NULL;
    if (!conv)
        return;
    layer->convolution_param = conv;
    BUILD_SET(conv, num_output, (uint32_t)outputs);
    conv->kernel_size = make_pair(b, &conv->n_kernel_size, w->kernel);
    if (!is_all(w->before, 0))
        conv->pad = make_pair(b, &conv->n_pad, w->before);
    if (!is_all(w->stride, 1))
        conv->stride = make_pair(b, &conv->n_stride, w->stride);
    if (!is_all(w->dilation, 1))
        conv->dilation = make_pair(b, &conv->n_dilation, w->dilation);
    if (group > 1)
        BUILD_SET(conv, group, (uint32_t)group);
    if (!bias)
        BUILD_SET(conv, bias_term, false);
    conv->weight_filler = build_message(b, &caffe__filler_parameter__descriptor);
    if (conv->weight_filler)
        build_set_string(b, &conv->weight_filler->type, "msra");
}

/* Weights in a larger window, `lead` pixels from its upper left corner. */
static int enlarge_weights(struct onnx_graph *g, const struct onnx_value *w,
                           const size_t lead[SIDES], const int64_t kernel[SIDES],
                           struct shape *shape, const float **out, struct err *err)
{
    size_t H = w->shape.dim[2], W = w->shape.dim[3];
    *shape = w->shape;
    shape->dim[2] = (size_t)kernel[0];
    shape->dim[3] = (size_t)kernel[1];
    size_t count = shape_count(shape);
    float *at = count ? arena_array(&g->arena, count, float) : NULL;
    if (!at)
        return onnx_no_memory(g, err);
    for (size_t i = 0; i < w->shape.dim[0] * w->shape.dim[1]; i++)
        for (size_t h = 0; h < H; h++)
            memcpy(at + (i * shape->dim[2] + h + lead[0]) * shape->dim[3] + lead[1],
                   w->f + (i * H + h) * W, W * sizeof *at);
    *out = at;
    return OK;
}

/* Make the padding alike on both sides. */
static int even_pads(struct onnx_graph *g, const struct onnx_node *node, struct window *w,
                     const struct onnx_value *weights, struct shape *shape, const float **at,
                     struct err *err)
{
    size_t lead[SIDES] = {0};
    bool even = true;
    for (size_t k = 0; k < SIDES; k++) {
        int64_t more = w->after[k] - w->before[k], taps = more < 0 ? -more : more;
        if (more == 0)
            continue;
        if (taps % w->dilation[k] != 0)
            return onnx_refuse(g, node, err, "pads that differ by %lld with dilation %lld",
                               (long long)taps, (long long)w->dilation[k]);
        taps /= w->dilation[k];
        even = false;
        w->kernel[k] += taps;
        lead[k] = more > 0 ? (size_t)taps : 0;
        w->before[k] = w->after[k] = more > 0 ? w->after[k] : w->before[k];
    }
    *shape = weights->shape;
    *at = weights->f;
    return even ? OK : enlarge_weights(g, weights, lead, w->kernel, shape, at, err);
}

static int read_bias(struct onnx_graph *g, const struct onnx_node *node, size_t outputs,
                     struct onnx_value **bias, struct err *err)
{
    *bias = NULL;
    if (!onnx_has(node, 2))
        return OK;
    int rc = onnx_floats(g, node, 2, bias, err);
    if (rc == OK && shape_count(&(*bias)->shape) != outputs)
        return onnx_broken(g, node, err, "%zu biases for %zu outputs", shape_count(&(*bias)->shape),
                           outputs);
    return rc;
}

static int check_channels(struct onnx_graph *g, const struct onnx_node *node,
                          const struct onnx_value *x, const struct onnx_value *w, int64_t group,
                          bool transposed, struct err *err)
{
    if (w->shape.n != 4 || x->shape.n != 4)
        return onnx_refuse(g, node, err, "only convolutions of images, NxCxHxW");
    size_t C = x->shape.dim[1], outer = w->shape.dim[0], inner = w->shape.dim[1];
    if (group < 1 || group > (int64_t)C || shape_count(&w->shape) == 0 || C % (size_t)group != 0 ||
        outer % (size_t)group != 0 || (transposed ? outer != C : inner * (size_t)group != C) ||
        outer > INT32_MAX)
        return onnx_broken(g, node, err, "weights of %zux%zu in %lld groups, for %zu channels",
                           outer, inner, (long long)group, C);
    return OK;
}

int onnx_conv(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x, *weights, *bias;
    struct window w;
    struct shape shape, y = {4, {0}};
    const float *at = NULL;
    int64_t group = onnx_int(node, "group", 1);
    int rc = onnx_blob(g, node, 0, &x, err);
    if (rc == OK)
        rc = onnx_floats(g, node, 1, &weights, err);
    if (rc == OK)
        rc = check_channels(g, node, x, weights, group, false, err);
    if (rc == OK)
        rc = read_window(g, node, x, weights->shape.dim + 2, &w, err);
    if (rc == OK)
        rc = read_bias(g, node, weights->shape.dim[0], &bias, err);
    if (rc != OK)
        return rc;
    y.dim[0] = x->shape.dim[0];
    y.dim[1] = weights->shape.dim[0];
    for (size_t k = 0; k < SIDES; k++)
        if ((y.dim[2 + k] = (size_t)count_windows(&w, k)) == 0)
            return onnx_broken(g, node, err, "the window is larger than the padded image");
    rc = even_pads(g, node, &w, weights, &shape, &at, err);
    if (rc != OK)
        return rc;
    fill_convolution(g, onnx_layer(g, node, "Convolution", x), &w, y.dim[1], (size_t)group, bias);
    onnx_weights(g, &shape, at);
    if (bias)
        onnx_weights(g, &(struct shape){1, {y.dim[1]}}, bias->f);
    return onnx_result(g, node, 0, &y, err);
}

/* A layer pads an image by less, on both sides alike, and of its output a part is cut out: `part`
 * of `whole` pixels. A larger window, whose new weights are 0, reaches the output padding. */
struct transposed {
    struct range part[SIDES];
    size_t whole[SIDES];
    bool larger;
};

static int plan_transposed(struct onnx_graph *g, const struct onnx_node *node, struct window *w,
                           struct transposed *t, struct err *err)
{
    int64_t more[SIDES] = {0};
    if (!onnx_ints(node, "output_padding", SIDES, more))
        return onnx_broken(g, node, err, "output_padding needs 2 numbers");
    if (!onnx_text_is(node, "auto_pad", "NOTSET", "NOTSET") || onnx_attribute(node, "output_shape"))
        return onnx_refuse(g, node, err, "auto_pad and output_shape: give pads");
    for (size_t k = 0; k < SIDES; k++) {
        if (more[k] < 0 || more[k] > WINDOW_LIMIT)
            return onnx_broken(g, node, err, "output_padding: %lld", (long long)more[k]);
        int64_t whole = (w->size[k] - 1) * w->stride[k] + extent_of(w, k);
        int64_t end = whole + more[k] - w->after[k], n = end - w->before[k];
        if (n < 1 || n > INT32_MAX)
            return onnx_broken(g, node, err, "an image of %lld pixels", (long long)n);
        int64_t taps = end > whole ? (end - whole + w->dilation[k] - 1) / w->dilation[k] : 0;
        t->larger = t->larger || taps > 0;
        w->kernel[k] += taps;
        whole += taps * w->dilation[k];
        int64_t pad = w->before[k] < whole - end ? w->before[k] : whole - end;
        t->part[k] = (struct range){(size_t)(w->before[k] - pad), (size_t)n};
        t->whole[k] = (size_t)(whole - 2 * pad);
        w->before[k] = w->after[k] = pad;
    }
    return OK;
}

/* The parts of the layer's output `from`, side by side, to output 0. */
static int cut_transposed(struct onnx_graph *g, const struct onnx_node *node, const char *from,
                          const struct shape *y, const struct transposed *t, struct err *err)
{
    static const char *const names[SIDES] = {"rows", "columns"};
    struct onnx_value at = {
        .blob = from,
        .blob_shape = {4, {y->dim[0], y->dim[1], t->whole[0], t->whole[1]}},
    };
    int rc = OK;
    for (size_t k = 0; k < SIDES && rc == OK; k++) {
        bool last = k == SIDES - 1 || t->part[1].len == t->whole[1];
        const char *name = onnx_name(g, node, names[k]);
        const char *top = last ? node->proto->output[0] : name;
        if (t->part[k].len == t->whole[k])
            continue;
        rc = onnx_take_part(g, name, top, &at, 2 + k, t->part[k], err);
        at.blob = top;
        at.blob_shape.dim[2 + k] = t->part[k].len;
    }
    return rc;
}

static int add_transposed(struct onnx_graph *g, const struct onnx_node *node,
                          const struct onnx_value *x, const struct onnx_value *weights,
                          struct window *w, struct shape *y, struct err *err)
{
    struct transposed t = {.larger = false};
    struct onnx_value *bias;
    struct shape shape = weights->shape;
    const float *at = weights->f;
    size_t group = weights->shape.dim[1] ? y->dim[1] / weights->shape.dim[1] : 0;
    int rc = plan_transposed(g, node, w, &t, err);
    if (rc == OK)
        rc = read_bias(g, node, y->dim[1], &bias, err);
    if (rc == OK && t.larger)
        rc = enlarge_weights(g, weights, (const size_t[SIDES]){0}, w->kernel, &shape, &at, err);
    if (rc != OK)
        return rc;
    bool cut = t.part[0].len != t.whole[0] || t.part[1].len != t.whole[1];
    const char *top = cut ? onnx_name(g, node, "whole") : node->proto->output[0];
    fill_convolution(g, onnx_inner_layer(g, "Deconvolution", node->name, x->blob, top), w,
                     y->dim[1], group, bias);
    onnx_weights(g, &shape, at);
    if (bias)
        onnx_weights(g, &(struct shape){1, {y->dim[1]}}, bias->f);
    for (size_t k = 0; k < SIDES; k++)
        y->dim[2 + k] = t.part[k].len;
    return cut ? cut_transposed(g, node, top, y, &t, err) : OK;
}

int onnx_conv_transpose(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x, *weights;
    struct window w;
    struct shape y = {4, {0}};
    int64_t group = onnx_int(node, "group", 1);
    int rc = onnx_blob(g, node, 0, &x, err);
    if (rc == OK)
        rc = onnx_floats(g, node, 1, &weights, err);
    if (rc == OK)
        rc = check_channels(g, node, x, weights, group, true, err);
    if (rc == OK)
        rc = read_window(g, node, x, weights->shape.dim + 2, &w, err);
    if (rc != OK)
        return rc;
    y.dim[0] = x->shape.dim[0];
    y.dim[1] = weights->shape.dim[1] * (size_t)group;
    rc = add_transposed(g, node, x, weights, &w, &y, err);
    return rc == OK ? onnx_result(g, node, 0, &y, err) : rc;
}

/* ---- poolings ---- */

static Caffe__PoolingParameter *add_pooling(struct onnx_graph *g, const char *name,
                                            const struct onnx_value *x, bool average,
                                            const char *top)
{
    Caffe__LayerParameter *layer = onnx_inner_layer(g, "Pooling", name, x->blob, top);
    Caffe__PoolingParameter *pool =
        layer ? build_message(&g->build, &caffe__pooling_parameter__descriptor) : NULL;
    if (!pool)
        return NULL;
    layer->pooling_param = pool;
    BUILD_SET(pool, pool,
              average ? CAFFE__POOLING_PARAMETER__POOL_METHOD__AVE
                      : CAFFE__POOLING_PARAMETER__POOL_METHOD__MAX);
    return pool;
}

/* The layer's number of windows with round_mode CEIL or FLOOR (layer_pool.c). */
static int64_t count_layers_windows(const struct window *w, size_t k, bool up)
{
    int64_t room = w->size[k] + 2 * w->before[k] - w->kernel[k];
    int64_t n =
        room < 0 ? 0 : (up ? (room + w->stride[k] - 1) / w->stride[k] : room / w->stride[k]) + 1;
    bool clip = w->before[0] > 0 || w->before[1] > 0;
    return clip && n > 0 && (n - 1) * w->stride[k] >= w->size[k] + w->before[k] ? n - 1 : n;
}

static int fill_pooling(struct onnx_graph *g, const struct onnx_node *node,
                        const struct onnx_value *x, const struct window *given, bool average,
                        const char *top, struct err *err)
{
    struct window own_window = *given, *w = &own_window;
    for (size_t k = 0; k < SIDES; k++) /* a single window that sticks out behind the image */
        if (w->before[k] == 0 && w->kernel[k] > w->size[k] && count_windows(w, k) == 1) {
            w->kernel[k] = w->size[k];
            w->after[k] = 0;
        }
    struct shape y = {4, {x->shape.dim[0], x->shape.dim[1]}};
    bool fits[2] = {true, true};
    for (size_t k = 0; k < SIDES; k++) {
        int64_t n = count_windows(w, k);
        y.dim[2 + k] = (size_t)n;
        for (size_t up = 0; up < 2; up++)
            fits[up] = fits[up] && n > 0 && count_layers_windows(w, k, up) == n;
        if (w->before[k] >= w->kernel[k])
            return onnx_refuse(g, node, err, "pads as large as the window");
    }
    if (!fits[0] && !fits[1])
        return onnx_refuse(g, node, err, "pads that are not alike on both sides");
    if (!onnx_has_output(node, 0))
        return onnx_broken(g, node, err, "output 0 is missing");
    bool own = strcmp(top, node->proto->output[0]) == 0;
    Caffe__PoolingParameter *pool = add_pooling(g, own ? node->name : top, x, average, top);
    if (!pool)
        return onnx_no_memory(g, err);
    BUILD_SET(pool, kernel_h, (uint32_t)w->kernel[0]);
    BUILD_SET(pool, kernel_w, (uint32_t)w->kernel[1]);
    BUILD_SET(pool, stride_h, (uint32_t)w->stride[0]);
    BUILD_SET(pool, stride_w, (uint32_t)w->stride[1]);
    if (!is_all(w->before, 0)) {
        BUILD_SET(pool, pad_h, (uint32_t)w->before[0]);
        BUILD_SET(pool, pad_w, (uint32_t)w->before[1]);
    }
    if (!fits[1])
        BUILD_SET(pool, round_mode, CAFFE__POOLING_PARAMETER__ROUND_MODE__FLOOR);
    return onnx_result(g, node, 0, &y, err);
}

int onnx_max_pool(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    struct window w;
    int rc = onnx_blob(g, node, 0, &x, err);
    if (rc == OK)
        rc = read_window(g, node, x, NULL, &w, err);
    if (rc != OK)
        return rc;
    if (onnx_has_output(node, 1))
        return onnx_refuse(g, node, err, "output 1, where each maximum was");
    if (!is_all(w.dilation, 1))
        return onnx_refuse(g, node, err, "dilations");
    return fill_pooling(g, node, x, &w, false,
                        onnx_has_output(node, 0) ? node->proto->output[0] : node->name, err);
}

/* A layer divides by the pixels of a window that lie in the padded image. ONNX does so where it
 * counts padding and no window sticks out; where it does not count it, that is so without padding
 * before the image. */
static bool divides_alike(const struct window *w, bool counts)
{
    for (size_t k = 0; k < SIDES; k++) {
        int64_t end = (count_windows(w, k) - 1) * w->stride[k] + w->kernel[k];
        if (!counts && (w->before[0] > 0 || w->before[1] > 0))
            return false;
        if (counts && end > w->size[k] + 2 * w->before[k])
            return false;
    }
    return true;
}

/* Pixels of window i along side k: of the layer's, which counts padding before the image and as
 * much behind it, over ONNX's, which are those of the image. */
static float excess_of(const struct window *w, size_t k, size_t i)
{
    int64_t from = (int64_t)i * w->stride[k] - w->before[k], to = from + w->kernel[k];
    int64_t layers = (to < w->size[k] + w->before[k] ? to : w->size[k] + w->before[k]) - from;
    int64_t pixels = (to < w->size[k] ? to : w->size[k]) - (from > 0 ? from : 0);
    return (float)layers / (float)pixels;
}

/* An average of the image's pixels: that of padded windows, times a factor for each pixel of the
 * result, which is not learnt. */
static int average_pixels(struct onnx_graph *g, const struct onnx_node *node,
                          const struct onnx_value *x, const struct window *w, struct err *err)
{
    const char *inner = onnx_name(g, node, "padded");
    for (size_t k = 0; k < SIDES; k++)
        if ((count_windows(w, k) - 1) * w->stride[k] - w->before[k] >= w->size[k])
            return onnx_refuse(g, node, err, "a window without a pixel of the image");
    int rc = fill_pooling(g, node, x, w, true, inner, err);
    if (rc != OK)
        return rc;
    const struct onnx_value *y = onnx_find(g, node->proto->output[0]);
    size_t H = y->shape.dim[2], W = y->shape.dim[3];
    float *at = arena_array(&g->arena, H * W, float);
    Caffe__LayerParameter *layer =
        at ? onnx_inner_layer(g, "Scale", node->name, inner, node->proto->output[0]) : NULL;
    Caffe__ScaleParameter *scale =
        layer ? build_message(&g->build, &caffe__scale_parameter__descriptor) : NULL;
    if (!scale)
        return onnx_no_memory(g, err);
    layer->scale_param = scale;
    BUILD_SET(scale, axis, 2);
    BUILD_SET(scale, num_axes, 2);
    for (size_t i = 0; i < H * W; i++)
        at[i] = excess_of(w, 0, i / W) * excess_of(w, 1, i % W);
    onnx_state(g, &(struct shape){2, {H, W}}, at);
    return g->build.failed ? onnx_no_memory(g, err) : OK;
}

int onnx_average_pool(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    struct window w;
    int rc = onnx_blob(g, node, 0, &x, err);
    if (rc == OK)
        rc = read_window(g, node, x, NULL, &w, err);
    if (rc != OK)
        return rc;
    bool counts = onnx_int(node, "count_include_pad", 0) != 0;
    if (!onnx_has_output(node, 0))
        return onnx_broken(g, node, err, "output 0 is missing");
    if (!is_all(w.dilation, 1))
        return onnx_refuse(g, node, err, "dilations");
    if (divides_alike(&w, counts) || (counts && is_all(w.before, 0) && is_all(w.after, 0)))
        return fill_pooling(g, node, x, &w, true, node->proto->output[0], err);
    if (counts)
        return onnx_refuse(g, node, err, "pads behind the image with count_include_pad");
    return average_pixels(g, node, x, &w, err);
}

static int pool_globally(struct onnx_graph *g, const struct onnx_node *node, bool average,
                         struct err *err)
{
    struct onnx_value *x;
    char text[128];
    int rc = onnx_blob(g, node, 0, &x, err);
    if (rc != OK)
        return rc;
    if (x->shape.n != 4)
        return onnx_refuse(g, node, err, "input 0 is %s, not a batch of images, NxCxHxW",
                           shape_text(&x->shape, text, sizeof text));
    const struct shape y = {4, {x->shape.dim[0], x->shape.dim[1], 1, 1}};
    if (!onnx_has_output(node, 0))
        return onnx_broken(g, node, err, "output 0 is missing");
    Caffe__PoolingParameter *pool = add_pooling(g, node->name, x, average, node->proto->output[0]);
    if (!pool)
        return onnx_no_memory(g, err);
    BUILD_SET(pool, global_pooling, true);
    return onnx_result(g, node, 0, &y, err);
}

int onnx_global_average(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return pool_globally(g, node, true, err);
}

int onnx_global_max(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return pool_globally(g, node, false, err);
}

/* The axes are an attribute, and from opset 18 on an input. */
static bool is_over_pixels(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, "axes");
    const int64_t *axes = a ? a->ints : NULL;
    size_t n = a ? a->n_ints : 0;
    struct onnx_value *input;
    if (!a && onnx_has(node, 1) && onnx_integers(g, node, 1, &input, err) == OK) {
        axes = input->i;
        n = shape_count(&input->shape);
    }
    bool seen[SIDES] = {false};
    for (size_t k = 0; k < n; k++) {
        int64_t axis = axes[k] < 0 ? axes[k] + 4 : axes[k];
        if (axis != 2 && axis != 3)
            return false;
        seen[axis - 2] = true;
    }
    return seen[0] && seen[1];
}

static int reduce_pixels(struct onnx_graph *g, const struct onnx_node *node, bool average,
                         struct err *err)
{
    if (!is_over_pixels(g, node, err))
        return onnx_refuse(g, node, err, "axes: only those of an image, 2 and 3");
    int rc = pool_globally(g, node, average, err);
    if (rc != OK || onnx_int(node, "keepdims", 1) != 0)
        return rc;
    struct onnx_value *y = onnx_find(g, node->proto->output[0]);
    y->shape.n = 2; /* a Reshape is due */
    return OK;
}

int onnx_reduce_mean(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return reduce_pixels(g, node, true, err);
}

int onnx_reduce_max(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return reduce_pixels(g, node, false, err);
}
