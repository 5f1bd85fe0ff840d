#include "nn/graph.h"

#include "nn/fields.h"

#include <stdio.h>
#include <string.h>

enum { LAYER_NAME_MAX = 100 };

static struct blob *newest(const struct net *net, const char *name)
{
    for (size_t i = net->n_blobs; i-- > 0;)
        if (strcmp(net->blob[i]->name, name) == 0)
            return net->blob[i];
    return NULL;
}

/* Caffe's rules about the net's state: here phase alone, with level 0 and no stages. */
static bool rule_holds(const Caffe__NetStateRule *rule, enum phase phase)
{
    if (rule->has_phase && (rule->phase == CAFFE__PHASE__TEST) != (phase == PHASE_TEST))
        return false;
    if ((rule->has_min_level && rule->min_level > 0) ||
        (rule->has_max_level && rule->max_level < 0))
        return false;
    return rule->n_stage == 0;
}

static bool included(const Caffe__LayerParameter *param, enum phase phase)
{
    for (size_t i = 0; i < param->n_exclude; i++)
        if (rule_holds(param->exclude[i], phase))
            return false;
    for (size_t i = 0; i < param->n_include; i++)
        if (rule_holds(param->include[i], phase))
            return true;
    return param->n_include == 0;
}

/* What all layers have in common; what is left is the type's. */
static int check_common(const Caffe__LayerParameter *param, const struct layer_ops *ops,
                        enum phase phase, struct err *err)
{
    static const char *const known[] = {"name",        "type",  "bottom", "top",
                                        "loss_weight", "param", "blobs",  "include",
                                        "exclude",     "phase", NULL};
    char number[32];
    const char *bad =
        fields_first_unknown(&param->base, known, ops->messages, number, sizeof number);
    if (bad)
        return err_set(err, ERR_UNSUPPORTED, "%s means nothing to type \"%s\"", bad, param->type);
    if (param->n_include > 0 && param->n_exclude > 0)
        return err_set(err, ERR_INPUT, "include and exclude cannot both be given");
    if (param->has_phase && (param->phase == CAFFE__PHASE__TEST) != (phase == PHASE_TEST))
        return err_set(err, ERR_UNSUPPORTED, "a phase other than the net's is not supported");
    if (param->n_loss_weight > param->n_top)
        return err_set(err, ERR_INPUT, "%zu loss_weight for %zu tops", param->n_loss_weight,
                       param->n_top);
    for (size_t i = 0; i < param->n_loss_weight && !ops->is_loss; i++)
        if (param->loss_weight[i] != 0.0f)
            return err_set(err, ERR_UNSUPPORTED, "type \"%s\" cannot be a loss", param->type);
    return OK;
}

static int connect_bottoms(struct net *net, struct layer *layer, struct err *err)
{
    const Caffe__LayerParameter *param = layer->param;
    layer->bottom = arena_array(&net->arena, param->n_bottom, struct link);
    if (!layer->bottom)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < param->n_bottom; i++) {
        struct blob *blob = newest(net, param->bottom[i]);
        if (!blob)
            return err_set(err, ERR_INPUT, "bottom \"%.64s\" is made by no layer before it",
                           param->bottom[i]);
        blob->users++;
        layer->bottom[layer->n_bottom++].blob = blob;
    }
    return OK;
}

/* The bottom of that name, which a top of the same name replaces. */
static struct blob *replaced(const struct layer *layer, const char *name)
{
    for (size_t i = 0; i < layer->n_bottom; i++)
        if (strcmp(layer->bottom[i].blob->name, name) == 0)
            return layer->bottom[i].blob;
    return NULL;
}

static int connect_tops(struct net *net, struct layer *layer, struct err *err)
{
    const Caffe__LayerParameter *param = layer->param;
    layer->top = arena_array(&net->arena, param->n_top, struct blob *);
    if (!layer->top)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < param->n_top; i++) {
        const char *name = param->top[i];
        struct blob *over = replaced(layer, name), *other = newest(net, name);
        if (over && !layer->ops->in_place)
            return err_set(err, ERR_INPUT,
                           "type \"%s\" cannot work in place: top \"%.64s\" is a bottom",
                           layer->type, name);
        if (other && other != over)
            return err_set(err, ERR_INPUT, "top \"%.64s\" is already made by layer \"%s\"", name,
                           other->maker->name);
        struct blob *blob = arena_new(&net->arena, struct blob);
        char *copy = arena_strdup(&net->arena, name);
        if (!blob || !copy)
            return err_set(err, ERR_NOMEM, "out of memory");
        *blob = (struct blob){.name = copy, .maker = layer, .over = over};
        net->blob[net->n_blobs++] = blob;
        layer->top[layer->n_top++] = blob;
    }
    return OK;
}

static int check_name(const struct net *net, const Caffe__LayerParameter *param, size_t index,
                      struct err *err)
{
    if (!param->name || !param->name[0])
        return err_set(err, ERR_INPUT, "net: layer %zu has no name", index + 1);
    if (strlen(param->name) > LAYER_NAME_MAX)
        return err_set(err, ERR_INPUT, "net: the name of layer %zu is longer than %d", index + 1,
                       LAYER_NAME_MAX);
    for (size_t i = 0; i < net->n_layers; i++)
        if (strcmp(net->layer[i]->name, param->name) == 0)
            return err_set(err, ERR_INPUT, "layer \"%s\": another layer has the same name",
                           param->name);
    return OK;
}

static int make_layer(struct net *net, const Caffe__LayerParameter *param, size_t index,
                      struct layer **out, struct err *err)
{
    if (!param->type || !param->type[0])
        return err_set(err, ERR_INPUT, "type is missing");
    const struct layer_ops *ops = layer_find(param->type);
    char text[256];
    if (!ops)
        return err_set(err, ERR_UNSUPPORTED, "type \"%.64s\" is not supported; supported: %s",
                       param->type, layer_types_text(text, sizeof text));
    int rc = check_common(param, ops, net->phase, err);
    if (rc != OK)
        return rc;
    struct layer *layer = arena_alloc(&net->arena, 1, ops->size);
    char *name = arena_strdup(&net->arena, param->name);
    char *type = arena_strdup(&net->arena, param->type);
    if (!layer || !name || !type)
        return err_set(err, ERR_NOMEM, "out of memory");
    layer->ops = ops;
    layer->param = param;
    layer->name = name;
    layer->type = type;
    layer->index = index;
    net->layer[net->n_layers++] = layer;
    *out = layer;
    return OK;
}

static int add_layer(struct net *net, const Caffe__LayerParameter *param, size_t index,
                     const struct setup *setup, struct err *err)
{
    struct layer *layer;
    int rc = check_name(net, param, index, err);
    if (rc != OK)
        return rc;
    if ((rc = make_layer(net, param, index, &layer, err)) == OK &&
        (rc = connect_bottoms(net, layer, err)) == OK && (rc = connect_tops(net, layer, err)) == OK)
        rc = layer->ops->setup(layer, setup, err);
    if (rc != OK) {
        err_prefix(err, "layer \"%s\"", param->name);
        return rc;
    }
    layer->param = NULL;
    return OK;
}

/* `input: ..` and `input_shape { .. }` of the net itself are an Input layer before all others. */
static int add_net_input(struct net *net, const Caffe__NetParameter *param,
                         const struct setup *setup, struct err *err)
{
    Caffe__LayerParameter layer = CAFFE__LAYER_PARAMETER__INIT;
    Caffe__InputParameter input = CAFFE__INPUT_PARAMETER__INIT;
    char name[] = "input", type[] = "Input";
    layer.name = name;
    layer.type = type;
    layer.n_top = param->n_input;
    layer.top = param->input;
    layer.input_param = &input;
    input.n_shape = param->n_input_shape;
    input.shape = param->input_shape;
    return add_layer(net, &layer, 0, setup, err);
}

static int check_net(const Caffe__NetParameter *param, struct err *err)
{
    static const char *const known[] = {"name", "input", "input_shape", "layer", NULL};
    char number[32];
    const char *bad = fields_first_unknown(&param->base, known, NULL, number, sizeof number);
    if (bad)
        return err_set(err, ERR_UNSUPPORTED, "net: %s is not supported%s", bad,
                       strcmp(bad, "input_dim") == 0 ? "; use input_shape" : "");
    if (param->n_input_shape > 0 && param->n_input == 0)
        return err_set(err, ERR_INPUT, "net: input_shape without input");
    return OK;
}

/* Exactly one layer brings the data: all tables of a batch have one home. */
static int check_data(const struct net *net, struct err *err)
{
    const struct layer *data = NULL;
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        if (layer->n_bottom > 0)
            continue;
        if (data)
            return err_set(err, ERR_UNSUPPORTED,
                           "layer \"%s\": a second data layer beside \"%s\" is not supported",
                           layer->name, data->name);
        data = layer;
    }
    if (!data)
        return err_set(err, ERR_INPUT, "net: no data layer in phase %s",
                       net->phase == PHASE_TRAIN ? "TRAIN" : "TEST");
    return OK;
}

int graph_build(struct net *net, const Caffe__NetParameter *param,
                const struct net_options *options, struct err *err)
{
    int rc = check_net(param, err);
    if (rc != OK)
        return rc;
    size_t tops = param->n_input;
    for (size_t i = 0; i < param->n_layer; i++)
        tops += param->layer[i]->n_top;
    net->layer = arena_array(&net->arena, param->n_layer + 1, struct layer *);
    net->blob = arena_array(&net->arena, tops, struct blob *);
    if (!net->layer || !net->blob)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    struct setup setup = {options, &net->arena, &net->segments, &net->states};
    if (param->n_input > 0)
        rc = add_net_input(net, param, &setup, err);
    for (size_t i = 0; i < param->n_layer && rc == OK; i++)
        if (included(param->layer[i], net->phase))
            rc = add_layer(net, param->layer[i], i, &setup, err);
    return rc == OK ? check_data(net, err) : rc;
}
