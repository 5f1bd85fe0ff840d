#include "model/caffe_upgrade.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ---- */

const char *caffe_upgrade_type(uint64_t number)
{
    static const char *const name[] = {
        "",
        "Accuracy",
        "BNLL",
        "Concat",
        "Convolution",
        "Data",
        "Dropout",
        "EuclideanLoss",
        "Flatten",
        "HDF5Data",
        "HDF5Output",
        "Im2col",
        "ImageData",
        "InfogainLoss",
        "InnerProduct",
        "LRN",
        "MultinomialLogisticLoss",
        "Pooling",
        "ReLU",
        "Sigmoid",
        "Softmax",
        "SoftmaxWithLoss",
        "Split",
        "TanH",
        "WindowData",
        "Eltwise",
        "Power",
        "SigmoidCrossEntropyLoss",
        "HingeLoss",
        "MemoryData",
        "ArgMax",
        "Threshold",
        "DummyData",
        "Slice",
        "MVN",
        "AbsVal",
        "Silence",
        "ContrastiveLoss",
        "Exp",
        "Deconvolution",
    };
    return number < sizeof name / sizeof *name ? name[number] : NULL;
}

/* ---- what both syntaxes call alike ---- */

static size_t *count_of(void *msg, const ProtobufCFieldDescriptor *field)
{
    return (size_t *)(void *)((char *)msg + field->quantifier_offset);
}

/* A pointer: to a text, a message, or a list. */
static void **slot_of(void *msg, const ProtobufCFieldDescriptor *field)
{
    return (void **)(void *)((char *)msg + field->offset);
}

/* Move the texts, messages and lists that `from` and `to` have under one name and of one type.
 * Other scalars share no name. */
static void move_alike(ProtobufCMessage *from, ProtobufCMessage *to)
{
    const ProtobufCMessageDescriptor *type = from->descriptor;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *a = &type->fields[i];
        const ProtobufCFieldDescriptor *b =
            protobuf_c_message_descriptor_get_field_by_name(to->descriptor, a->name);
        if (!b || a->type != b->type || a->label != b->label || a->descriptor != b->descriptor)
            continue;
        *slot_of(to, b) = *slot_of(from, a);
        *slot_of(from, a) = NULL;
        if (a->label == PROTOBUF_C_LABEL_REPEATED) {
            *count_of(to, b) = *count_of(from, a);
            *count_of(from, a) = 0;
        }
    }
    to->n_unknown_fields = from->n_unknown_fields; /* for the code that refuses them */
    to->unknown_fields = from->unknown_fields;
    from->n_unknown_fields = 0;
    from->unknown_fields = NULL;
}

/* ---- how parameters learn ---- */

/* Entry i of the layer's `param`, which grows for it; NULL when memory is out. */
static Caffe__ParamSpec *param_of(Caffe__LayerParameter *layer, size_t i)
{
    while (layer->n_param <= i) {
        Caffe__ParamSpec **more =
            realloc(layer->param, (layer->n_param + 1) * sizeof *layer->param);
        Caffe__ParamSpec *spec = malloc(sizeof *spec);
        if (more)
            layer->param = more;
        if (!more || !spec) {
            free(spec);
            return NULL;
        }
        caffe__param_spec__init(spec);
        layer->param[layer->n_param++] = spec;
    }
    return layer->param[i];
}

static bool move_params(Caffe__V1LayerParameter *from, Caffe__LayerParameter *to)
{
    Caffe__ParamSpec *spec;
    for (size_t i = 0; i < from->n_param; i++) {
        if (!(spec = param_of(to, i)))
            return false;
        spec->name = from->param[i];
        from->param[i] = NULL;
    }
    for (size_t i = 0; i < from->n_blob_share_mode; i++) {
        if (!(spec = param_of(to, i)))
            return false;
        spec->has_share_mode = true;
        spec->share_mode =
            from->blob_share_mode[i] == CAFFE__V1_LAYER_PARAMETER__DIM_CHECK_MODE__STRICT
                ? CAFFE__PARAM_SPEC__DIM_CHECK_MODE__STRICT
                : CAFFE__PARAM_SPEC__DIM_CHECK_MODE__PERMISSIVE;
    }
    for (size_t i = 0; i < from->n_blobs_lr; i++) {
        if (!(spec = param_of(to, i)))
            return false;
        spec->has_lr_mult = true;
        spec->lr_mult = from->blobs_lr[i];
    }
    for (size_t i = 0; i < from->n_weight_decay; i++) {
        if (!(spec = param_of(to, i)))
            return false;
        spec->has_decay_mult = true;
        spec->decay_mult = from->weight_decay[i];
    }
    return true;
}

/* ---- what data layers do to values ---- */

/* Move those of the four that are set. They override fields of transform_param, as in Caffe. */
#define MOVE_VALUES(old, transform)                      \
    do {                                                 \
        if ((old)->has_scale) {                          \
            (transform)->has_scale = true;               \
            (transform)->scale = (old)->scale;           \
        }                                                \
        if ((old)->has_crop_size) {                      \
            (transform)->has_crop_size = true;           \
            (transform)->crop_size = (old)->crop_size;   \
        }                                                \
        if ((old)->has_mirror) {                         \
            (transform)->has_mirror = true;              \
            (transform)->mirror = (old)->mirror;         \
        }                                                \
        if ((old)->mean_file) {                          \
            free((transform)->mean_file);                \
            (transform)->mean_file = (old)->mean_file;   \
            (old)->mean_file = NULL;                     \
        }                                                \
        (old)->has_scale = (old)->has_crop_size = false; \
        (old)->has_mirror = false;                       \
    } while (0)

static bool has_old_values(const Caffe__LayerParameter *layer)
{
    const Caffe__DataParameter *d = layer->data_param;
    const Caffe__ImageDataParameter *p = layer->image_data_param;
    return (d && (d->has_scale || d->has_crop_size || d->has_mirror || d->mean_file)) ||
           (p && (p->has_scale || p->has_crop_size || p->has_mirror || p->mean_file));
}

static bool move_values(Caffe__LayerParameter *layer)
{
    if (!has_old_values(layer))
        return true;
    if (!layer->transform_param) {
        layer->transform_param = malloc(sizeof *layer->transform_param);
        if (!layer->transform_param)
            return false;
        caffe__transformation_parameter__init(layer->transform_param);
    }
    if (layer->data_param)
        MOVE_VALUES(layer->data_param, layer->transform_param);
    if (layer->image_data_param)
        MOVE_VALUES(layer->image_data_param, layer->transform_param);
    return true;
}

/* ---- layers and net ---- */

/* The new layer owns the fields that it received, also on failure. */
static bool upgrade_layer(Caffe__V1LayerParameter *from, Caffe__LayerParameter *to)
{
    move_alike(&from->base, &to->base);
    if (from->has_type) {
        const char *type = caffe_upgrade_type(from->type);
        to->type = type ? strdup(type) : NULL;
        if (!to->type)
            return false;
    }
    return move_params(from, to) && move_values(to);
}

static int check_net(const Caffe__NetParameter *net, struct err *err)
{
    for (size_t i = 0; i < net->n_layers; i++) {
        const Caffe__V1LayerParameter *layer = net->layers[i];
        if (layer->layer)
            return err_set(err, ERR_UNSUPPORTED,
                           "net: layers of the oldest syntax (V0LayerParameter) are not supported");
        if (layer->has_type && !caffe_upgrade_type((uint64_t)layer->type))
            return err_set(err, ERR_INPUT, "layer \"%.100s\": there is no type %d",
                           layer->name ? layer->name : "", (int)layer->type);
    }
    for (size_t i = 0; i < net->n_layer; i++)
        if (has_old_values(net->layer[i]))
            return err_set(err, ERR_INPUT,
                           "layer \"%.100s\": scale, mean_file, crop_size and mirror belong in "
                           "transform_param",
                           net->layer[i]->name ? net->layer[i]->name : "");
    if (net->n_layers > 0 && net->n_layer > 0)
        return err_set(err, ERR_INPUT, "net: both `layer` and `layers`, of two syntaxes");
    return OK;
}

int caffe_upgrade(Caffe__NetParameter *net, struct err *err)
{
    int rc = check_net(net, err);
    if (rc != OK || net->n_layers == 0)
        return rc;
    net->layer = calloc(net->n_layers, sizeof *net->layer);
    bool fits = net->layer != NULL;
    for (size_t i = 0; i < net->n_layers && fits; i++) {
        Caffe__LayerParameter *layer = malloc(sizeof *layer);
        if (layer) {
            caffe__layer_parameter__init(layer);
            net->layer[net->n_layer++] = layer;
        }
        fits = layer && upgrade_layer(net->layers[i], layer);
    }
    if (!fits)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    for (size_t i = 0; i < net->n_layers; i++)
        caffe__v1_layer_parameter__free_unpacked(net->layers[i], NULL);
    free(net->layers);
    net->layers = NULL;
    net->n_layers = 0;
    return OK;
}
