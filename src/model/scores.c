#include "model/scores.h"

#include "model/judge_net.h"
#include "nn/rules.h"

#include <stdbool.h>
#include <string.h>

static bool is_type(const Caffe__LayerParameter *layer, const char *type)
{
    return layer->type && strcmp(layer->type, type) == 0;
}

static bool is_for_testing(const Caffe__NetParameter *net, const Caffe__LayerParameter *layer)
{
    return rules_include(layer, net->state, PHASE_TEST);
}

static float weight_of(const Caffe__LayerParameter *loss)
{
    return loss->n_loss_weight > 0 ? loss->loss_weight[0] : 1;
}

/* Does the layer stand there so that the net can be tested? */
static bool is_added(const Caffe__LayerParameter *layer)
{
    return is_type(layer, "SoftmaxWithLoss") && layer->name && strcmp(layer->name, JUDGE_LOSS) == 0;
}

/* The layer of that type that counts: the heaviest, of equals the last. A loss need not have a top.
 */
static const Caffe__LayerParameter *find_layer(const Caffe__NetParameter *net, const char *type)
{
    const Caffe__LayerParameter *found = NULL;
    size_t tops = strcmp(type, "Softmax") == 0 ? 1 : 0;
    for (size_t i = 0; i < net->n_layer; i++) {
        const Caffe__LayerParameter *layer = net->layer[i];
        if (is_type(layer, type) && !is_added(layer) && layer->n_bottom > 0 &&
            layer->n_top >= tops && is_for_testing(net, layer) &&
            (!found || weight_of(layer) >= weight_of(found)))
            found = layer;
    }
    return found;
}

static int axis_of(const Caffe__LayerParameter *layer)
{
    return layer->softmax_param ? layer->softmax_param->axis : 1;
}

/* Is it a top of the data that is neither an input nor the class? */
static bool is_target(const Caffe__NetParameter *net, const char *blob)
{
    if (strcmp(blob, "label") == 0) /* no field of records has this name */
        return false;
    for (size_t i = 0; i < net->n_layer; i++)
        for (size_t k = 1; k < net->layer[i]->n_top && net->layer[i]->n_bottom == 0; k++)
            if (is_for_testing(net, net->layer[i]) && strcmp(net->layer[i]->top[k], blob) == 0)
                return true;
    return false;
}

/* Of the two bottoms the one that is compared with a target. */
static bool find_values(const Caffe__NetParameter *net, struct scores *out)
{
    const Caffe__LayerParameter *layer = find_layer(net, "EuclideanLoss");
    if (!layer || layer->n_bottom != 2)
        return false;
    for (size_t i = 0; i < 2; i++) {
        *out = (struct scores){layer->bottom[i], SCORES_VALUES, 1, layer->bottom[1 - i]};
        if (is_target(net, out->target) && !is_target(net, out->blob))
            return true;
    }
    return false;
}

/* Does a layer from number `from` on read the blob? */
static bool is_read(const Caffe__NetParameter *net, size_t from, const char *blob)
{
    for (size_t i = from; i < net->n_layer; i++)
        for (size_t k = 0; k < net->layer[i]->n_bottom && is_for_testing(net, net->layer[i]); k++)
            if (strcmp(net->layer[i]->bottom[k], blob) == 0)
                return true;
    return false;
}

/* The one result of the net's. */
static int find_result(const Caffe__NetParameter *net, struct scores *out, struct err *err)
{
    const char *found = NULL;
    for (size_t i = 0; i < net->n_layer; i++) {
        const Caffe__LayerParameter *layer = net->layer[i];
        size_t len = layer->type ? strlen(layer->type) : 0;
        if (!is_for_testing(net, layer) || layer->n_bottom == 0)
            continue;
        if (len > 4 && strcmp(layer->type + len - 4, "Loss") == 0)
            return err_set(err, ERR_INPUT, "net: layer \"%.100s\": the input of %s has no classes",
                           layer->name ? layer->name : "", layer->type);
        for (size_t k = 0; k < layer->n_top; k++) {
            if (is_read(net, i + 1, layer->top[k]) || (found && !strcmp(found, layer->top[k])))
                continue;
            if (found)
                return err_set(err, ERR_INPUT,
                               "net: of its results \"%.100s\" and \"%.100s\" it is not known "
                               "which are the scores of classes",
                               found, layer->top[k]);
            found = layer->top[k];
        }
    }
    if (!found)
        return err_set(err, ERR_INPUT, "net: has no scores of classes");
    *out = (struct scores){found, SCORES_PLAIN, 1, NULL};
    return OK;
}

int model_scores(const Caffe__NetParameter *net, struct scores *out, struct err *err)
{
    const Caffe__LayerParameter *layer;
    if ((layer = find_layer(net, "SoftmaxWithLoss")))
        *out = (struct scores){layer->bottom[0], SCORES_SOFTMAX, axis_of(layer), NULL};
    else if ((layer = find_layer(net, "Softmax")))
        *out = (struct scores){layer->top[0], SCORES_PROBABILITIES, axis_of(layer), NULL};
    else if ((layer = find_layer(net, "HingeLoss")) || (layer = find_layer(net, "Accuracy")))
        *out = (struct scores){layer->bottom[0], SCORES_PLAIN, 1, NULL};
    else if (!find_values(net, out))
        return find_result(net, out, err);
    return OK;
}
