#include "model/build.h"

#include <stdlib.h>
#include <string.h>

/* All memory is malloc's, since protobuf-c frees the message piece by piece. */
static void *new_message(struct build *b, const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *msg = b->failed ? NULL : malloc(type->sizeof_message);
    if (!msg) {
        b->failed = true;
        return NULL;
    }
    protobuf_c_message_init(type, msg);
    return msg;
}

static void set_string(struct build *b, char **field, const char *text)
{
    char *copy = b->failed ? NULL : strdup(text);
    if (copy)
        *field = copy;
    else
        b->failed = true;
}

/* Room for one more pointer in a repeated field; NULL when memory runs out. */
static void *grown(struct build *b, void *list, size_t n)
{
    void *more = b->failed ? NULL : realloc(list, (n + 1) * sizeof(void *));
    if (!more)
        b->failed = true;
    return more;
}

static void add_string(struct build *b, char ***list, size_t *n, const char *text)
{
    char **more = grown(b, *list, *n);
    if (!more)
        return;
    *list = more;
    set_string(b, &more[*n], text);
    if (!b->failed)
        ++*n;
}

void build_layer(struct build *b, Caffe__LayerParameter *layer)
{
    Caffe__LayerParameter **more = b->failed ? NULL : grown(b, b->net->layer, b->net->n_layer);
    if (!more) {
        caffe__layer_parameter__free_unpacked(layer, NULL);
        return;
    }
    b->net->layer = more;
    more[b->net->n_layer++] = layer;
}

static Caffe__LayerParameter *add_layer(struct build *b, const char *type, const char *name,
                                        const char *bottom, const char *top)
{
    Caffe__LayerParameter *layer = new_message(b, &caffe__layer_parameter__descriptor);
    if (!layer)
        return NULL;
    build_layer(b, layer);
    if (b->failed)
        return NULL;
    set_string(b, &layer->name, name);
    set_string(b, &layer->type, type);
    if (bottom)
        add_string(b, &layer->bottom, &layer->n_bottom, bottom);
    add_string(b, &layer->top, &layer->n_top, top);
    return b->failed ? NULL : layer;
}

const struct build_weights build_weights_default = {
    .filler = "xavier",
    .bias = true,
    .rate = 1.0f,
    .bias_rate = 2.0f,
    .decay = 1.0f,
    .bias_decay = 1.0f,
};

static Caffe__FillerParameter *weight_filler(struct build *b, const struct build_weights *weights)
{
    Caffe__FillerParameter *filler = new_message(b, &caffe__filler_parameter__descriptor);
    if (!filler)
        return NULL;
    set_string(b, &filler->type, weights->filler);
    filler->has_std = weights->std != 0.0f;
    if (filler->has_std)
        filler->std = weights->std;
    filler->has_value = weights->value != 0.0f;
    filler->value = weights->value;
    return filler;
}

/* NULL, Caffe's zero, unless something else is asked for. */
static Caffe__FillerParameter *bias_filler(struct build *b, const struct build_weights *weights)
{
    if (!weights->bias || weights->bias_value == 0.0f)
        return NULL;
    Caffe__FillerParameter *filler = new_message(b, &caffe__filler_parameter__descriptor);
    if (!filler)
        return NULL;
    set_string(b, &filler->type, "constant");
    filler->has_value = true;
    filler->value = weights->bias_value;
    return filler;
}

static void add_param(struct build *b, Caffe__LayerParameter *layer, float rate, float decay)
{
    Caffe__ParamSpec *spec = new_message(b, &caffe__param_spec__descriptor);
    Caffe__ParamSpec **more = spec ? grown(b, layer->param, layer->n_param) : NULL;
    if (!more) {
        free(spec);
        return;
    }
    spec->has_lr_mult = true;
    spec->lr_mult = rate;
    spec->has_decay_mult = decay != 1.0f;
    spec->decay_mult = decay;
    layer->param = more;
    more[layer->n_param++] = spec;
}

static void add_params(struct build *b, Caffe__LayerParameter *layer,
                       const struct build_weights *weights)
{
    add_param(b, layer, weights->rate, weights->decay);
    if (weights->bias)
        add_param(b, layer, weights->bias_rate, weights->bias_decay);
}

static void set_one(struct build *b, uint32_t **list, size_t *n, uint32_t value)
{
    *list = b->failed ? NULL : malloc(sizeof **list);
    if (!*list) {
        b->failed = true;
        return;
    }
    **list = value;
    *n = 1;
}

void build_begin(struct build *b, const char *name)
{
    *b = (struct build){0};
    b->net = new_message(b, &caffe__net_parameter__descriptor);
    if (b->net)
        set_string(b, &b->net->name, name);
}

int build_end(struct build *b, Caffe__NetParameter **out, struct err *err)
{
    if (b->failed) {
        if (b->net)
            caffe__net_parameter__free_unpacked(b->net, NULL);
        b->net = NULL;
        return err_set(err, ERR_NOMEM, "net: out of memory");
    }
    *out = b->net;
    b->net = NULL;
    return OK;
}

void build_input(struct build *b, const char *data, const char *label)
{
    Caffe__LayerParameter *layer = add_layer(b, "Input", data, NULL, data);
    if (layer)
        add_string(b, &layer->top, &layer->n_top, label);
}

static Caffe__BlobShape *add_shape(struct build *b, Caffe__InputParameter *input)
{
    Caffe__BlobShape *shape = new_message(b, &caffe__blob_shape__descriptor);
    Caffe__BlobShape **more = shape ? grown(b, input->shape, input->n_shape) : NULL;
    int64_t *dims = more ? calloc(4, sizeof *dims) : NULL;
    if (more)
        input->shape = more;
    if (!dims) {
        b->failed = true;
        free(shape);
        return NULL;
    }
    shape->dim = dims;
    more[input->n_shape++] = shape;
    return shape;
}

/* One shape a top, as Caffe wants it. The first number is that of records a batch: here it is the
 * job's, and 1 stands for it. */
void build_images(struct build *b, const char *data, const char *label, uint32_t C, uint32_t H,
                  uint32_t W)
{
    build_input(b, data, label);
    Caffe__InputParameter *input = new_message(b, &caffe__input_parameter__descriptor);
    if (!input)
        return;
    b->net->layer[b->net->n_layer - 1]->input_param = input;
    const int64_t dims[4] = {1, C, H, W};
    Caffe__BlobShape *images = add_shape(b, input);
    if (images)
        memcpy(images->dim, dims, (images->n_dim = 4) * sizeof *dims);
    Caffe__BlobShape *labels = add_shape(b, input);
    if (labels)
        memcpy(labels->dim, dims, (labels->n_dim = 1) * sizeof *dims);
}

void build_convolution(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                       const struct build_window *window, const struct build_weights *weights)
{
    Caffe__LayerParameter *layer = add_layer(b, "Convolution", top, bottom, top);
    Caffe__ConvolutionParameter *conv = new_message(b, &caffe__convolution_parameter__descriptor);
    if (!conv)
        return;
    layer->convolution_param = conv;
    conv->has_num_output = true;
    conv->num_output = outputs;
    set_one(b, &conv->kernel_size, &conv->n_kernel_size, window->kernel);
    if (window->stride != 1)
        set_one(b, &conv->stride, &conv->n_stride, window->stride);
    if (window->pad != 0)
        set_one(b, &conv->pad, &conv->n_pad, window->pad);
    conv->has_bias_term = !weights->bias;
    conv->bias_term = weights->bias;
    conv->weight_filler = weight_filler(b, weights);
    conv->bias_filler = bias_filler(b, weights);
    add_params(b, layer, weights);
}

void build_inner_product(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                         const struct build_weights *weights)
{
    Caffe__LayerParameter *layer = add_layer(b, "InnerProduct", top, bottom, top);
    Caffe__InnerProductParameter *inner =
        new_message(b, &caffe__inner_product_parameter__descriptor);
    if (!inner)
        return;
    layer->inner_product_param = inner;
    inner->has_num_output = true;
    inner->num_output = outputs;
    inner->has_bias_term = !weights->bias;
    inner->bias_term = weights->bias;
    inner->weight_filler = weight_filler(b, weights);
    inner->bias_filler = bias_filler(b, weights);
    add_params(b, layer, weights);
}

void build_pool(struct build *b, const char *top, const char *bottom,
                Caffe__PoolingParameter__PoolMethod method, const struct build_window *window)
{
    Caffe__LayerParameter *layer = add_layer(b, "Pooling", top, bottom, top);
    Caffe__PoolingParameter *pool = new_message(b, &caffe__pooling_parameter__descriptor);
    if (!pool)
        return;
    layer->pooling_param = pool;
    pool->has_pool = true;
    pool->pool = method;
    pool->has_kernel_size = true;
    pool->kernel_size = window->kernel;
    pool->has_stride = true;
    pool->stride = window->stride;
    pool->has_pad = window->pad != 0;
    pool->pad = window->pad;
}

void build_conv(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                uint32_t kernel, uint32_t stride, uint32_t pad)
{
    const struct build_window window = {kernel, stride, pad};
    build_convolution(b, top, bottom, outputs, &window, &build_weights_default);
}

void build_inner(struct build *b, const char *top, const char *bottom, uint32_t outputs)
{
    build_inner_product(b, top, bottom, outputs, &build_weights_default);
}

void build_pool_max(struct build *b, const char *top, const char *bottom, uint32_t kernel,
                    uint32_t stride)
{
    const struct build_window window = {kernel, stride, 0};
    build_pool(b, top, bottom, CAFFE__POOLING_PARAMETER__POOL_METHOD__MAX, &window);
}

void build_pool_average(struct build *b, const char *top, const char *bottom, uint32_t kernel,
                        uint32_t stride)
{
    const struct build_window window = {kernel, stride, 0};
    build_pool(b, top, bottom, CAFFE__POOLING_PARAMETER__POOL_METHOD__AVE, &window);
}

void build_relu(struct build *b, const char *name, const char *blob)
{
    add_layer(b, "ReLU", name, blob, blob);
}

void build_relu_apart(struct build *b, const char *top, const char *bottom)
{
    add_layer(b, "ReLU", top, bottom, top);
}

static void add_dropout(struct build *b, const char *name, const char *bottom, const char *top,
                        float ratio)
{
    Caffe__LayerParameter *layer = add_layer(b, "Dropout", name, bottom, top);
    Caffe__DropoutParameter *dropout = new_message(b, &caffe__dropout_parameter__descriptor);
    if (!dropout)
        return;
    layer->dropout_param = dropout;
    dropout->has_dropout_ratio = true;
    dropout->dropout_ratio = ratio;
}

void build_dropout(struct build *b, const char *name, const char *blob, float ratio)
{
    add_dropout(b, name, blob, blob, ratio);
}

void build_dropout_apart(struct build *b, const char *top, const char *bottom, float ratio)
{
    add_dropout(b, top, bottom, top, ratio);
}

void build_softmax_loss(struct build *b, const char *top, const char *scores, const char *label)
{
    Caffe__LayerParameter *layer = add_layer(b, "SoftmaxWithLoss", top, scores, top);
    if (layer)
        add_string(b, &layer->bottom, &layer->n_bottom, label);
}

void build_accuracy(struct build *b, const char *top, const char *scores, const char *label)
{
    Caffe__LayerParameter *layer = add_layer(b, "Accuracy", top, scores, top);
    if (!layer)
        return;
    add_string(b, &layer->bottom, &layer->n_bottom, label);
    Caffe__NetStateRule *rule = new_message(b, &caffe__net_state_rule__descriptor);
    Caffe__NetStateRule **list = rule ? grown(b, NULL, 0) : NULL;
    if (!list) {
        free(rule);
        return;
    }
    rule->has_phase = true;
    rule->phase = CAFFE__PHASE__TEST;
    list[0] = rule;
    layer->include = list;
    layer->n_include = 1;
}
