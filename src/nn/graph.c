/* The fields of a NetParameter at its own level, and those that all LayerParameters have in common.
 * Each field is honoured or refused, except these, which have no effect here:
 *
 * - force_backward asks for gradients that no training uses, for observers.
 * - state.phase: a net is for the phase that its caller asks for.
 * - blobs of a layer are weights, which src/model loads into x.
 * - fields about the source of records: see layer_input.c. */
#include "nn/graph.h"

#include "base/fault.h"
#include "nn/cast.h"
#include "nn/fields.h"
#include "nn/layers.h"
#include "nn/partition.h"
#include "nn/rules.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { LAYER_NAME_MAX = 100 };

static struct blob *newest_blob(const struct net *net, const char *name)
{
    for (size_t i = net->n_blobs; i-- > 0 && name[0];)
        if (!net->blob[i]->inserted && strcmp(net->blob[i]->name, name) == 0)
            return net->blob[i];
    return NULL;
}

/* ---- a layer and its blobs ---- */

static int refuse_bottom(const struct net *net, const char *name, struct err *err)
{
    char made[200] = "";
    for (size_t i = 0; i < net->n_blobs; i++) {
        size_t used = strlen(made);
        snprintf(made + used, sizeof made - used, "%s%s", used > 0 ? ", " : "", net->blob[i]->name);
    }
    return err_set(err, ERR_INPUT, "bottom \"%.64s\" is made by no layer before it; made are: %s",
                   name, made);
}

static int check_loss_weights(const Caffe__LayerParameter *param, const struct layer_ops *ops,
                              struct err *err)
{
    size_t tops = param->n_top == 0 && ops->is_loss ? 1 : param->n_top;
    if (param->n_loss_weight > 0 && param->n_loss_weight != tops)
        return err_set(err, ERR_INPUT, "%zu loss_weight for %zu tops: one for each, or none",
                       param->n_loss_weight, tops);
    for (size_t i = 0; i < param->n_loss_weight; i++) {
        float weight = param->loss_weight[i];
        if (!isfinite(weight))
            return err_set(err, ERR_INPUT, "loss_weight: %g is out of range", (double)weight);
        if (weight != 0.0f && (!ops->backward || (ops->is_loss && i > 0)))
            return err_set(
                err, ERR_UNSUPPORTED,
                "loss_weight: top %zu of type \"%s\" has no gradient: it cannot be a loss", i + 1,
                param->type);
    }
    return OK;
}

/* The fields that all layers have in common; the type checks its own. */
static int check_common(const Caffe__LayerParameter *param, const struct layer_ops *ops,
                        enum phase phase, struct err *err)
{
    static const char *const known[] = {"name",        "type",  "bottom",         "top",
                                        "loss_weight", "param", "blobs",          "include",
                                        "exclude",     "phase", "propagate_down", NULL};
    char number[32];
    const char *bad =
        fields_first_unknown(&param->base, known, ops->messages, number, sizeof number);
    if (bad)
        return err_set(err, ERR_UNSUPPORTED, "%s means nothing to type \"%s\"", bad, param->type);
    if (param->has_phase && (param->phase == CAFFE__PHASE__TEST) != (phase == PHASE_TEST))
        return err_set(err, ERR_UNSUPPORTED, "a phase other than the net's is not supported");
    if (param->n_propagate_down > 0 && param->n_propagate_down != param->n_bottom)
        return err_set(err, ERR_INPUT, "%zu propagate_down for %zu bottoms: one for each, or none",
                       param->n_propagate_down, param->n_bottom);
    return check_loss_weights(param, ops, err);
}

static int connect_bottoms(struct net *net, struct layer *layer, struct err *err)
{
    const Caffe__LayerParameter *param = layer->param;
    layer->bottom = arena_array(&net->arena, param->n_bottom, struct link);
    if (!layer->bottom)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < param->n_bottom; i++) {
        struct blob *blob = newest_blob(net, param->bottom[i]);
        if (!blob)
            return refuse_bottom(net, param->bottom[i], err);
        if (blob->is_whole && !layer->ops->takes_whole)
            return err_set(err, ERR_UNSUPPORTED,
                           "bottom \"%.64s\" does not go by records, as an Accuracy's second top "
                           "does not: type \"%s\" cannot read it",
                           blob->name, layer->type);
        blob->users++;
        struct link *link = &layer->bottom[layer->n_bottom++];
        link->blob = blob;
        link->stops = param->n_propagate_down > 0 && !param->propagate_down[i];
    }
    return OK;
}

static int add_top(struct net *net, struct layer *layer, const char *name, struct blob *over,
                   struct err *err)
{
    const Caffe__LayerParameter *param = layer->param;
    size_t i = layer->n_top;
    struct blob *blob = arena_new(&net->arena, struct blob);
    char *copy = arena_strdup(&net->arena, name);
    if (!blob || !copy)
        return err_set(err, ERR_NOMEM, "out of memory");
    *blob = (struct blob){.name = copy, .maker = layer, .over = over};
    if (i < param->n_loss_weight)
        blob->weight = param->loss_weight[i];
    else if (i == 0 && layer->ops->is_loss)
        blob->weight = 1.0f;
    net->blob[net->n_blobs++] = blob;
    layer->top[layer->n_top++] = blob;
    return OK;
}

/* A top with the name of a bottom is that blob's next version. A loss may omit its top. */
static int connect_tops(struct net *net, struct layer *layer, struct err *err)
{
    const Caffe__LayerParameter *param = layer->param;
    layer->top = arena_array(&net->arena, param->n_top + 1, struct blob *);
    if (!layer->top)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < param->n_top; i++) {
        const char *name = param->top[i];
        bool same = i < layer->n_bottom && strcmp(layer->bottom[i].blob->name, name) == 0;
        struct blob *over = same ? layer->bottom[i].blob : NULL;
        struct blob *other = same ? NULL : newest_blob(net, name);
        if (!name[0])
            return err_set(err, ERR_INPUT, "top %zu has no name", i + 1);
        if (over && !layer->ops->in_place)
            return err_set(err, ERR_INPUT,
                           "type \"%s\" cannot work in place: top \"%.64s\" is a bottom",
                           layer->type, name);
        if (other)
            return err_set(err, ERR_INPUT, "top \"%.64s\" is already made by layer \"%s\"", name,
                           other->maker->name);
        int rc = add_top(net, layer, name, over, err);
        if (rc != OK)
            return rc;
    }
    return layer->n_top == 0 && layer->ops->is_loss ? add_top(net, layer, "", NULL, err) : OK;
}

static int check_name(const struct net *net, const Caffe__LayerParameter *param, size_t index,
                      struct err *err)
{
    if (!param->name || !param->name[0])
        return err_set(err, ERR_INPUT, "net: layer %zu has no name", index + 1);
    if (strlen(param->name) > LAYER_NAME_MAX)
        return err_set(err, ERR_INPUT, "net: the name of layer %zu is longer than %d", index + 1,
                       LAYER_NAME_MAX);
    for (size_t i = net->n_own; i < net->n_layers; i++)
        if (!net->layer[i]->inserted && strcmp(net->layer[i]->name, param->name) == 0)
            return err_set(err, ERR_INPUT, "layer \"%s\": another layer has the same name",
                           param->name);
    return OK;
}

static const struct layer *find_data(const struct net *net)
{
    for (size_t i = 0; i < net->n_layers; i++)
        if (net->layer[i]->ops == &layer_input)
            return net->layer[i];
    return NULL;
}

static int make_layer(struct net *net, const Caffe__LayerParameter *param, size_t index,
                      struct layer **out, struct err *err)
{
    if (!param->type || !param->type[0])
        return err_set(err, ERR_INPUT, "type is missing");
    const struct layer_ops *ops = layer_find(param->type);
    char text[ERR_TEXT_MAX];
    if (!ops)
        return err_set(err, ERR_UNSUPPORTED, "type \"%.64s\" is not supported; supported: %s",
                       param->type, layer_types_text(text, sizeof text));
    int rc = check_common(param, ops, net->phase, err);
    if (rc != OK)
        return rc;
    /* One layer brings the data: all tables of a batch have one home. */
    const struct layer *data = ops == &layer_input ? find_data(net) : NULL;
    if (data && param->n_bottom == 0)
        return err_set(err, ERR_UNSUPPORTED, "a second data layer next to \"%s\" is not supported",
                       data->name);
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
    layer->nth = net->n_layers;
    layer->in_place = ops->in_place;
    layer->n_over = 1;
    layer->takes_blocks = ops->takes_blocks;
    layer->reads_bottom = ops->reads_bottom;
    layer->reads_top = ops->reads_top;
    net->layer[net->n_layers++] = layer;
    *out = layer;
    return OK;
}

/* The property that all loops over records rely on. */
static void check_tops(const struct net *net, const struct layer *layer)
{
    for (size_t i = 0; i < layer->n_top; i++) {
        const struct blob *top = layer->top[i];
        size_t records = top->data_parallel ? net->records.len : net->N;
        PL_ASSERT(top->is_whole || top->shape.n == 0 || top->shape.dim[0] == records);
    }
}

static int add_layer(struct net *net, const Caffe__LayerParameter *param, size_t index,
                     const struct setup *setup, struct err *err)
{
    struct layer *layer;
    int rc = check_name(net, param, index, err);
    if (rc != OK)
        return rc;
    net->scratch.bytes = 0;
    if ((rc = make_layer(net, param, index, &layer, err)) == OK &&
        (rc = connect_bottoms(net, layer, err)) == OK &&
        (rc = cast_bottoms(net, layer, setup, err)) == OK &&
        (rc = partition_bottoms(net, layer, setup, err)) == OK &&
        (rc = connect_tops(net, layer, err)) == OK)
        rc = layer->ops->setup(layer, setup, err);
    if (rc == OK)
        rc = partition_finish_layer(net, layer, setup, err);
    if (rc != OK) {
        err_prefix(err, "layer \"%s\"", param->name);
        return rc;
    }
    check_tops(net, layer);
    layer->scratch_bytes = net->scratch.bytes;
    if (layer->op && !layer->op->in_place)
        layer->in_place = false;
    layer->param = NULL;
    return OK;
}

static bool has_name(char *const *names, size_t n, const char *name)
{
    for (size_t k = 0; k < n; k++)
        if (strcmp(names[k], name) == 0)
            return true;
    return false;
}

static bool normalises_batch(const Caffe__LayerParameter *layer)
{
    const Caffe__BatchNormParameter *p = layer->batch_norm_param;
    return layer->type && strcmp(layer->type, "BatchNorm") == 0 &&
           !(p && p->has_use_global_stats && p->use_global_stats);
}

/* Does exactly one such layer read the i-th one's top? Invalid rules are reported at their own
 * layer. */
static bool is_normalised(const struct net *net, const Caffe__NetParameter *param, size_t i)
{
    const Caffe__LayerParameter *maker = param->layer[i];
    size_t readers = 0;
    if (net->phase != PHASE_TRAIN || !maker->convolution_param || maker->n_top != 1 ||
        maker->n_loss_weight > 0)
        return false; /* or it is not requested */
    for (size_t k = i + 1; k < param->n_layer; k++) {
        const Caffe__LayerParameter *layer = param->layer[k];
        struct err ignored;
        if (net_rules_check(layer, &ignored) != OK ||
            !rules_include(layer, param->state, net->phase))
            continue;
        bool reads = has_name(layer->bottom, layer->n_bottom, maker->top[0]);
        if (reads && (readers++ > 0 || !normalises_batch(layer)))
            return false;
        if (has_name(layer->top, layer->n_top, maker->top[0]))
            break; /* later layers read another version */
    }
    return readers == 1;
}

/* The net's ith layer, if it takes part. */
static int add_included(struct net *net, const Caffe__NetParameter *param, size_t i,
                        const struct setup *setup, struct err *err)
{
    const Caffe__LayerParameter *layer = param->layer[i];
    struct setup own = *setup;
    int rc = net_rules_check(layer, err);
    if (rc != OK) {
        err_prefix(err, "layer \"%.64s\"", layer->name ? layer->name : "");
        return rc;
    }
    if (!rules_include(layer, param->state, net->phase))
        return OK;
    own.normalised = is_normalised(net, param, i);
    partition_place_layer(net, i, &own);
    return add_layer(net, layer, i, &own, err);
}

/* ---- the net's own fields ---- */

enum { INPUT_DIMS = 4 };

/* Where an Input layer made of the net's own fields finds its shapes. */
struct net_input {
    Caffe__InputParameter input;
    Caffe__BlobShape *list, **shape; /* of the older form, input_dim */
};

/* `input_dim` as the shapes it stands for. */
static int read_input_dims(struct net *net, const Caffe__NetParameter *param, struct net_input *in,
                           struct err *err)
{
    size_t n = param->n_input;
    in->list = arena_array(&net->arena, n, Caffe__BlobShape);
    in->shape = arena_array(&net->arena, n, Caffe__BlobShape *);
    int64_t *dim = arena_array(&net->arena, n * INPUT_DIMS, int64_t);
    if (!in->list || !in->shape || !dim)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    for (size_t i = 0; i < n * INPUT_DIMS; i++)
        dim[i] = param->input_dim[i];
    for (size_t i = 0; i < n; i++) {
        caffe__blob_shape__init(&in->list[i]);
        in->list[i].n_dim = INPUT_DIMS;
        in->list[i].dim = dim + i * INPUT_DIMS;
        in->shape[i] = &in->list[i];
    }
    in->input.n_shape = n;
    in->input.shape = in->shape;
    return OK;
}

/* `input: ..` with `input_shape { .. }` or `input_dim: ..` of the net itself are an Input layer
 * before all others. */
static int add_net_input(struct net *net, const Caffe__NetParameter *param,
                         const struct setup *setup, struct err *err)
{
    Caffe__LayerParameter layer = CAFFE__LAYER_PARAMETER__INIT;
    struct net_input in = {.input = CAFFE__INPUT_PARAMETER__INIT};
    char name[] = "input", type[] = "Input";
    layer.name = name;
    layer.type = type;
    layer.n_top = param->n_input;
    layer.top = param->input;
    layer.input_param = &in.input;
    in.input.n_shape = param->n_input_shape;
    in.input.shape = param->input_shape;
    int rc = param->n_input_dim > 0 ? read_input_dims(net, param, &in, err) : OK;
    if (rc == OK)
        rc = add_layer(net, &layer, 0, setup, err);
    net->n_own = net->n_layers;
    return rc;
}

static int check_net(const Caffe__NetParameter *param, struct err *err)
{
    static const char *const known[] = {"name",        "input",          "input_dim",
                                        "input_shape", "force_backward", "state",
                                        "debug_info",  "layer",          NULL};
    char number[32];
    if (param->n_layers > 0)
        return err_set(
            err, ERR_UNSUPPORTED,
            "net: `layers` is the older form (V1) of `layer`: read such a net from a file, "
            "where it is brought up to date");
    const char *bad = fields_first_unknown(&param->base, known, NULL, number, sizeof number);
    if (bad)
        return err_set(err, ERR_UNSUPPORTED, "net: %s is not supported", bad);
    if (param->debug_info)
        return err_set(err, ERR_UNSUPPORTED,
                       "net: debug_info: true is not supported: nothing is "
                       "printed of each layer");
    if ((param->n_input_shape > 0 || param->n_input_dim > 0) && param->n_input == 0)
        return err_set(err, ERR_INPUT, "net: input_shape without input");
    if (param->n_input_shape > 0 && param->n_input_dim > 0)
        return err_set(err, ERR_INPUT, "net: input_shape and input_dim cannot both be given");
    if (param->n_input_dim % INPUT_DIMS != 0 ||
        (param->n_input_dim > 0 && param->n_input_dim != INPUT_DIMS * param->n_input))
        return err_set(err, ERR_INPUT, "net: %zu input_dim for %zu input: four for each",
                       param->n_input_dim, param->n_input);
    return OK;
}

/* ---- what the net's result is about ---- */

static float weight_of(const struct layer *layer)
{
    return fabsf(layer->top[0]->weight);
}

/* The loss over classes that weighs most, the last of equals; NULL: none. */
static const struct layer *main_loss(const struct net *net)
{
    const struct layer *best = NULL;
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        if (layer->ops->is_loss && layer->classes > 0 &&
            (!best || weight_of(layer) >= weight_of(best)))
            best = layer;
    }
    return best;
}

/* Is accuracy a to be reported before b (net_result.right)? */
static bool judges_before(const struct layer *a, const struct layer *b, const struct layer *loss)
{
    const struct blob *scores = loss ? loss->bottom[0].blob : NULL;
    bool a_reads = a->bottom[0].blob == scores, b_reads = b->bottom[0].blob == scores;
    return a_reads != b_reads ? a_reads : a->top_k < b->top_k;
}

static void choose_judge(struct net *net)
{
    const struct layer *loss = main_loss(net);
    struct layer *best = NULL;
    for (size_t i = 0; i < net->n_layers; i++) {
        struct layer *layer = net->layer[i];
        if (layer->top_k > 0 && (!best || judges_before(layer, best, loss)))
            best = layer;
    }
    if (best)
        best->judges = true;
}

static void count_classes(struct net *net)
{
    bool loss = false;
    size_t classes = SIZE_MAX;
    for (size_t i = 0; i < net->n_blobs; i++)
        loss = loss || net->blob[i]->weight != 0.0f;
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        if (layer->ops->is_loss && layer->classes > 0 && layer->classes < classes)
            classes = layer->classes;
    }
    net->classes = loss ? classes : 0;
}

int graph_build(struct net *net, const Caffe__NetParameter *param,
                const struct net_options *options, struct err *err)
{
    int rc = check_net(param, err);
    if (rc == OK)
        rc = partition_find_range(net, param, options, err);
    if (rc != OK)
        return rc;
    size_t tops = param->n_input, inserted = 0;
    bool inserts = options->dtype == DTYPE_BF16 || slice_is_part(&options->slice);
    for (size_t i = 0; i < param->n_layer; i++) {
        tops += param->layer[i]->n_top + 1;
        inserted += inserts ? param->layer[i]->n_bottom : 0;
    }
    net->layer = arena_array(&net->arena, param->n_layer + inserted + 1, struct layer *);
    net->blob = arena_array(&net->arena, tops + inserted, struct blob *);
    if (!net->layer || !net->blob)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    struct setup setup = {
        .options = options,
        .arena = &net->arena,
        .scratch = &net->scratch,
        .slice = {SLICE_ALL, 1},
        .segments = &net->segments,
        .states = &net->states,
        .whole = slice_is_part(&options->slice) ? &net->whole : NULL,
        .shares = &net->shares,
        .carried = &net->carried,
        .blocks = net->blocks,
    };
    if (param->n_input > 0)
        rc = add_net_input(net, param, &setup, err);
    for (size_t i = 0; i < param->n_layer && rc == OK; i++)
        rc = add_included(net, param, i, &setup, err);
    if (rc == OK && !find_data(net))
        rc = err_set(err, ERR_INPUT, "net: no data layer in phase %s",
                     net->phase == PHASE_TRAIN ? "TRAIN" : "TEST");
    if (rc != OK)
        return rc;
    partition_name_copies(net);
    choose_judge(net);
    count_classes(net);
    return OK;
}
