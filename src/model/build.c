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

static Caffe__LayerParameter *add_layer(struct build *b, const char *type, const char *name,
                                        const char *bottom, const char *top)
{
    Caffe__LayerParameter *layer = new_message(b, &caffe__layer_parameter__descriptor);
    Caffe__LayerParameter **more = layer ? grown(b, b->net->layer, b->net->n_layer) : NULL;
    if (!more) {
        free(layer);
        return NULL;
    }
    b->net->layer = more;
    more[b->net->n_layer++] = layer;
    set_string(b, &layer->name, name);
    set_string(b, &layer->type, type);
    if (bottom)
        add_string(b, &layer->bottom, &layer->n_bottom, bottom);
    add_string(b, &layer->top, &layer->n_top, top);
    return b->failed ? NULL : layer;
}

static Caffe__FillerParameter *xavier(struct build *b)
{
    Caffe__FillerParameter *filler = new_message(b, &caffe__filler_parameter__descriptor);
    if (filler)
        set_string(b, &filler->type, "xavier");
    return filler;
}

static void add_param(struct build *b, Caffe__LayerParameter *layer, float lr_mult)
{
    Caffe__ParamSpec *spec = new_message(b, &caffe__param_spec__descriptor);
    Caffe__ParamSpec **more = spec ? grown(b, layer->param, layer->n_param) : NULL;
    if (!more) {
        free(spec);
        return;
    }
    spec->has_lr_mult = true;
    spec->lr_mult = lr_mult;
    layer->param = more;
    more[layer->n_param++] = spec;
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

void build_conv(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                uint32_t kernel, uint32_t stride, uint32_t pad)
{
    Caffe__LayerParameter *layer = add_layer(b, "Convolution", top, bottom, top);
    Caffe__ConvolutionParameter *conv = new_message(b, &caffe__convolution_parameter__descriptor);
    if (!conv)
        return;
    layer->convolution_param = conv;
    conv->has_num_output = true;
    conv->num_output = outputs;
    set_one(b, &conv->kernel_size, &conv->n_kernel_size, kernel);
    if (stride != 1)
        set_one(b, &conv->stride, &conv->n_stride, stride);
    if (pad != 0)
        set_one(b, &conv->pad, &conv->n_pad, pad);
    conv->weight_filler = xavier(b);
    add_param(b, layer, 1.0f);
    add_param(b, layer, 2.0f);
}

void build_inner(struct build *b, const char *top, const char *bottom, uint32_t outputs)
{
    Caffe__LayerParameter *layer = add_layer(b, "InnerProduct", top, bottom, top);
    Caffe__InnerProductParameter *inner =
        new_message(b, &caffe__inner_product_parameter__descriptor);
    if (!inner)
        return;
    layer->inner_product_param = inner;
    inner->has_num_output = true;
    inner->num_output = outputs;
    inner->weight_filler = xavier(b);
    add_param(b, layer, 1.0f);
    add_param(b, layer, 2.0f);
}

static void add_pool(struct build *b, const char *top, const char *bottom, uint32_t kernel,
                     uint32_t stride, Caffe__PoolingParameter__PoolMethod method)
{
    Caffe__LayerParameter *layer = add_layer(b, "Pooling", top, bottom, top);
    Caffe__PoolingParameter *pool = new_message(b, &caffe__pooling_parameter__descriptor);
    if (!pool)
        return;
    layer->pooling_param = pool;
    pool->has_pool = true;
    pool->pool = method;
    pool->has_kernel_size = true;
    pool->kernel_size = kernel;
    pool->has_stride = true;
    pool->stride = stride;
}

void build_pool_max(struct build *b, const char *top, const char *bottom, uint32_t kernel,
                    uint32_t stride)
{
    add_pool(b, top, bottom, kernel, stride, CAFFE__POOLING_PARAMETER__POOL_METHOD__MAX);
}

void build_pool_average(struct build *b, const char *top, const char *bottom, uint32_t kernel,
                        uint32_t stride)
{
    add_pool(b, top, bottom, kernel, stride, CAFFE__POOLING_PARAMETER__POOL_METHOD__AVE);
}

void build_relu(struct build *b, const char *name, const char *blob)
{
    add_layer(b, "ReLU", name, blob, blob);
}

void build_dropout(struct build *b, const char *name, const char *blob, float ratio)
{
    Caffe__LayerParameter *layer = add_layer(b, "Dropout", name, blob, blob);
    Caffe__DropoutParameter *dropout = new_message(b, &caffe__dropout_parameter__descriptor);
    if (!dropout)
        return;
    layer->dropout_param = dropout;
    dropout->has_dropout_ratio = true;
    dropout->dropout_ratio = ratio;
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
