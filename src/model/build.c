#include "model/build.h"

#include "model/build_message.h"

#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

void *build_message(struct build *b, const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *msg = b->failed ? NULL : malloc(type->sizeof_message);
    if (!msg) {
        b->failed = true;
        return NULL;
    }
    protobuf_c_message_init(type, msg);
    return msg;
}

void build_set_string(struct build *b, char **field, const char *text)
{
    char *copy = b->failed ? NULL : strdup(text);
    if (copy)
        *field = copy;
    else
        b->failed = true;
}

void *build_grown(struct build *b, void *list, size_t n)
{
    void *more = b->failed ? NULL : realloc(list, (n + 1) * sizeof(void *));
    if (!more)
        b->failed = true;
    return more;
}

void build_add_string(struct build *b, char ***list, size_t *n, const char *text)
{
    char **more = build_grown(b, *list, *n);
    if (!more)
        return;
    *list = more;
    build_set_string(b, &more[*n], text);
    if (!b->failed)
        ++*n;
}

void build_layer(struct build *b, Caffe__LayerParameter *layer)
{
    Caffe__LayerParameter **more =
        b->failed ? NULL : build_grown(b, b->net->layer, b->net->n_layer);
    if (!more) {
        caffe__layer_parameter__free_unpacked(layer, NULL);
        return;
    }
    b->net->layer = more;
    more[b->net->n_layer++] = layer;
}

Caffe__LayerParameter *build_add_layer(struct build *b, const char *type, const char *name,
                                       const char *bottom, const char *top)
{
    Caffe__LayerParameter *layer = build_message(b, &caffe__layer_parameter__descriptor);
    if (!layer)
        return NULL;
    build_layer(b, layer);
    if (b->failed)
        return NULL;
    build_set_string(b, &layer->name, name);
    build_set_string(b, &layer->type, type);
    if (bottom)
        build_add_string(b, &layer->bottom, &layer->n_bottom, bottom);
    build_add_string(b, &layer->top, &layer->n_top, top);
    return b->failed ? NULL : layer;
}

/* ---- the net ---- */

void build_begin(struct build *b, const char *name)
{
    *b = (struct build){0};
    b->net = build_message(b, &caffe__net_parameter__descriptor);
    if (b->net)
        build_set_string(b, &b->net->name, name);
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
    Caffe__LayerParameter *layer = build_add_layer(b, "Input", data, NULL, data);
    if (layer)
        build_add_string(b, &layer->top, &layer->n_top, label);
}

static Caffe__BlobShape *add_shape(struct build *b, Caffe__InputParameter *input)
{
    Caffe__BlobShape *shape = build_message(b, &caffe__blob_shape__descriptor);
    Caffe__BlobShape **more = shape ? build_grown(b, input->shape, input->n_shape) : NULL;
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
    Caffe__InputParameter *input = build_message(b, &caffe__input_parameter__descriptor);
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

/* ---- one blob to another ---- */

static Caffe__PoolingParameter *add_pool(struct build *b, const char *top, const char *bottom,
                                         Caffe__PoolingParameter__PoolMethod method)
{
    Caffe__LayerParameter *layer = build_add_layer(b, "Pooling", top, bottom, top);
    Caffe__PoolingParameter *pool = build_message(b, &caffe__pooling_parameter__descriptor);
    if (!pool)
        return NULL;
    layer->pooling_param = pool;
    BUILD_SET(pool, pool, method);
    return pool;
}

void build_pool(struct build *b, const char *top, const char *bottom,
                Caffe__PoolingParameter__PoolMethod method, const struct build_window *window)
{
    Caffe__PoolingParameter *pool = add_pool(b, top, bottom, method);
    if (!pool)
        return;
    BUILD_SET(pool, kernel_size, window->kernel);
    BUILD_SET(pool, stride, window->stride);
    if (window->pad != 0)
        BUILD_SET(pool, pad, window->pad);
}

void build_pool_global(struct build *b, const char *top, const char *bottom,
                       Caffe__PoolingParameter__PoolMethod method)
{
    Caffe__PoolingParameter *pool = add_pool(b, top, bottom, method);
    if (pool)
        BUILD_SET(pool, global_pooling, true);
}

void build_pool_max(struct build *b, const char *top, const char *bottom, uint32_t kernel,
                    uint32_t stride)
{
    const struct build_window window = {.kernel = kernel, .stride = stride};
    build_pool(b, top, bottom, CAFFE__POOLING_PARAMETER__POOL_METHOD__MAX, &window);
}

void build_pool_average(struct build *b, const char *top, const char *bottom, uint32_t kernel,
                        uint32_t stride)
{
    const struct build_window window = {.kernel = kernel, .stride = stride};
    build_pool(b, top, bottom, CAFFE__POOLING_PARAMETER__POOL_METHOD__AVE, &window);
}

void build_lrn(struct build *b, const char *top, const char *bottom, const struct build_lrn *lrn)
{
    Caffe__LayerParameter *layer = build_add_layer(b, "LRN", top, bottom, top);
    Caffe__LRNParameter *param = build_message(b, &caffe__lrnparameter__descriptor);
    if (!param)
        return;
    layer->lrn_param = param;
    BUILD_SET(param, local_size, lrn->size);
    BUILD_SET(param, alpha, lrn->alpha);
    BUILD_SET(param, beta, lrn->beta);
    if (lrn->k != 1.0f)
        BUILD_SET(param, k, lrn->k);
    if (lrn->within_channel)
        BUILD_SET(param, norm_region, CAFFE__LRNPARAMETER__NORM_REGION__WITHIN_CHANNEL);
}

void build_relu(struct build *b, const char *name, const char *blob)
{
    build_add_layer(b, "ReLU", name, blob, blob);
}

void build_relu_separate(struct build *b, const char *top, const char *bottom)
{
    build_add_layer(b, "ReLU", top, bottom, top);
}

void build_sigmoid(struct build *b, const char *name, const char *blob)
{
    build_add_layer(b, "Sigmoid", name, blob, blob);
}

void build_sigmoid_separate(struct build *b, const char *top, const char *bottom)
{
    build_add_layer(b, "Sigmoid", top, bottom, top);
}

static void add_dropout(struct build *b, const char *name, const char *bottom, const char *top,
                        float ratio)
{
    Caffe__LayerParameter *layer = build_add_layer(b, "Dropout", name, bottom, top);
    Caffe__DropoutParameter *dropout = build_message(b, &caffe__dropout_parameter__descriptor);
    if (!dropout)
        return;
    layer->dropout_param = dropout;
    BUILD_SET(dropout, dropout_ratio, ratio);
}

void build_dropout(struct build *b, const char *name, const char *blob, float ratio)
{
    add_dropout(b, name, blob, blob, ratio);
}

void build_dropout_separate(struct build *b, const char *top, const char *bottom, float ratio)
{
    add_dropout(b, top, bottom, top, ratio);
}

/* ---- several blobs to one ---- */

static Caffe__LayerParameter *add_joint(struct build *b, const char *type, const char *top,
                                        const char *const *bottom, size_t n)
{
    Caffe__LayerParameter *layer = build_add_layer(b, type, top, NULL, top);
    for (size_t i = 0; layer && i < n; i++)
        build_add_string(b, &layer->bottom, &layer->n_bottom, bottom[i]);
    return b->failed ? NULL : layer;
}

void build_concat(struct build *b, const char *top, const char *const *bottom, size_t n)
{
    add_joint(b, "Concat", top, bottom, n);
}

void build_eltwise(struct build *b, const char *top, Caffe__EltwiseParameter__EltwiseOp operation,
                   const char *const *bottom, size_t n, const float *coeff)
{
    Caffe__LayerParameter *layer = add_joint(b, "Eltwise", top, bottom, n);
    Caffe__EltwiseParameter *eltwise = build_message(b, &caffe__eltwise_parameter__descriptor);
    if (!eltwise)
        return;
    layer->eltwise_param = eltwise;
    BUILD_SET(eltwise, operation, operation);
    if (!coeff || n == 0)
        return;
    eltwise->coeff = malloc(n * sizeof *coeff);
    if (!eltwise->coeff) {
        b->failed = true;
        return;
    }
    memcpy(eltwise->coeff, coeff, n * sizeof *coeff);
    eltwise->n_coeff = n;
}

void build_softmax_loss(struct build *b, const char *top, const char *scores, const char *label)
{
    add_joint(b, "SoftmaxWithLoss", top, (const char *const[]){scores, label}, 2);
}

void build_loss_weight(struct build *b, float weight)
{
    float *weights = b->failed ? NULL : malloc(sizeof *weights);
    if (!weights) {
        b->failed = true;
        return;
    }
    Caffe__LayerParameter *layer = b->net->layer[b->net->n_layer - 1];
    *weights = weight;
    free(layer->loss_weight);
    layer->loss_weight = weights;
    layer->n_loss_weight = 1;
}

static void test_only(struct build *b, Caffe__LayerParameter *layer)
{
    Caffe__NetStateRule *rule = build_message(b, &caffe__net_state_rule__descriptor);
    Caffe__NetStateRule **list = rule ? build_grown(b, NULL, 0) : NULL;
    if (!list) {
        free(rule);
        return;
    }
    BUILD_SET(rule, phase, CAFFE__PHASE__TEST);
    list[0] = rule;
    layer->include = list;
    layer->n_include = 1;
}

void build_accuracy(struct build *b, const char *top, const char *scores, const char *label,
                    uint32_t top_k)
{
    Caffe__LayerParameter *layer =
        add_joint(b, "Accuracy", top, (const char *const[]){scores, label}, 2);
    if (!layer)
        return;
    test_only(b, layer);
    if (top_k == 1)
        return;
    Caffe__AccuracyParameter *accuracy = build_message(b, &caffe__accuracy_parameter__descriptor);
    if (!accuracy)
        return;
    layer->accuracy_param = accuracy;
    BUILD_SET(accuracy, top_k, top_k);
}
