#include "model/judge_net.h"

#include "base/bytes.h"
#include "model/build_message.h"
#include "nn/rules.h"

#include <stdlib.h>
#include <string.h>

/* The blobs of the test phase, and their makers. */
struct blobs {
    const char **name;
    size_t *maker; /* number of the layer; SIZE_MAX: the net's own input */
    bool *read;    /* by some layer after */
    size_t n;
};

static bool is_for_testing(const Caffe__NetParameter *net, size_t i)
{
    return rules_include(net->layer[i], net->state, PHASE_TEST);
}

static bool is_type(const Caffe__LayerParameter *layer, const char *type)
{
    return layer->type && strcmp(layer->type, type) == 0;
}

/* "SoftmaxWithLoss", "EuclideanLoss" */
static bool is_loss(const Caffe__LayerParameter *layer)
{
    size_t n = layer->type ? strlen(layer->type) : 0;
    return n >= 4 && strcmp(layer->type + n - 4, "Loss") == 0;
}

static void read_blob(struct blobs *b, const char *name)
{
    for (size_t i = b->n; i-- > 0;)
        if (strcmp(b->name[i], name) == 0) {
            b->read[i] = true;
            return;
        }
}

static void make_blob(struct blobs *b, const char *name, size_t maker)
{
    b->name[b->n] = name;
    b->maker[b->n] = maker;
    b->read[b->n++] = false;
}

static int list_blobs(const Caffe__NetParameter *net, struct blobs *b, struct err *err)
{
    size_t most = net->n_input;
    for (size_t i = 0; i < net->n_layer; i++)
        most += net->layer[i]->n_top;
    b->name = calloc(most + 1, sizeof *b->name);
    b->maker = calloc(most + 1, sizeof *b->maker);
    b->read = calloc(most + 1, sizeof *b->read);
    if (!b->name || !b->maker || !b->read)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    for (size_t i = 0; i < net->n_input; i++)
        make_blob(b, net->input[i], SIZE_MAX);
    for (size_t i = 0; i < net->n_layer; i++) {
        const Caffe__LayerParameter *layer = net->layer[i];
        for (size_t k = 0; k < layer->n_bottom && is_for_testing(net, i); k++)
            read_blob(b, layer->bottom[k]);
        for (size_t k = 0; k < layer->n_top && is_for_testing(net, i); k++)
            make_blob(b, layer->top[k], i);
    }
    return OK;
}

static bool is_input(const Caffe__NetParameter *net, const struct blobs *b, size_t i)
{
    return b->maker[i] == SIZE_MAX || net->layer[b->maker[i]]->n_bottom == 0;
}

/* The only blob that no layer reads and that is not data. */
static int find_scores(const Caffe__NetParameter *net, const struct blobs *b, size_t *out,
                       struct err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        if (!b->read[i] && !is_input(net, b, i)) {
            if (n++ > 0)
                return err_set(err, ERR_INPUT,
                               "net: has neither loss nor accuracy, and of its results \"%.100s\" "
                               "and \"%.100s\" it is not known which to judge",
                               b->name[*out], b->name[i]);
            *out = i;
        }
    return n == 1 ? OK : err_set(err, ERR_INPUT, "net: has neither loss nor accuracy, nor scores");
}

/* "label", or with lines after it until no blob has the name. */
static const char *free_name(const struct blobs *b, char out[64])
{
    bool taken = true;
    for (strcpy(out, "label"); taken && strlen(out) < 60;) {
        taken = false;
        for (size_t i = 0; i < b->n && !taken; i++)
            taken = strcmp(b->name[i], out) == 0;
        if (taken)
            strcat(out, "_");
    }
    return out;
}

/* One number a record, where shapes are stated: a single one would be that of all blobs. */
static void add_label_shape(struct build *build, Caffe__BlobShape ***list, size_t *n)
{
    Caffe__BlobShape *shape = build_message(build, &caffe__blob_shape__descriptor);
    Caffe__BlobShape **more = build_grown(build, *list, *n);
    int64_t *dim = malloc(sizeof *dim);
    *list = more ? more : *list;
    if (!shape || !more || !dim) {
        build->failed = true;
        free(shape);
        free(dim);
        return;
    }
    *dim = 1;
    shape->n_dim = 1;
    shape->dim = dim;
    more[(*n)++] = shape;
}

/* Labels with the net's own input, one a record. */
static void add_net_label(struct build *build, const char *label)
{
    Caffe__NetParameter *net = build->net;
    build_add_string(build, &net->input, &net->n_input, label);
    if (net->n_input_dim > 0) {
        int32_t *dim = realloc(net->input_dim, (net->n_input_dim + 4) * sizeof *dim);
        build->failed |= !dim;
        for (size_t i = 0; dim && i < 4; i++)
            dim[net->n_input_dim++] = 1;
        net->input_dim = dim ? dim : net->input_dim;
    } else if (net->n_input_shape > 0) {
        add_label_shape(build, &net->input_shape, &net->n_input_shape);
    }
}

/* Or with a data layer's. */
static void add_layer_label(struct build *build, Caffe__LayerParameter *layer, const char *label)
{
    Caffe__InputParameter *input = layer->input_param;
    build_add_string(build, &layer->top, &layer->n_top, label);
    if (input && input->n_shape > 0)
        add_label_shape(build, &input->shape, &input->n_shape);
}

/* The labels' blob, made if it is not there. `name` has room for a new one. */
static const char *add_label(struct build *build, const struct blobs *b, char name[64],
                             struct err *err)
{
    Caffe__NetParameter *net = build->net;
    const char *data = NULL;
    size_t maker = 0;
    for (size_t i = 0; i < b->n; i++) {
        if (!is_input(net, b, i))
            continue;
        if (data)
            return b->name[i]; /* the second of the data's blobs */
        data = b->name[i];
        maker = b->maker[i];
    }
    if (!data) {
        err_set(err, ERR_INPUT, "net: no data layer in phase TEST");
        return NULL;
    }
    const char *label = free_name(b, name);
    if (maker == SIZE_MAX)
        add_net_label(build, label);
    else
        add_layer_label(build, net->layer[maker], label);
    return label;
}

static void add_accuracy(struct build *build, const char *scores, const char *label,
                         const Caffe__SoftmaxParameter *like)
{
    build_accuracy(build, "judged_accuracy", scores, label, 1);
    if (!like || build->failed)
        return;
    Caffe__AccuracyParameter *param = build->net->layer[build->net->n_layer - 1]->accuracy_param;
    if (!param && !(param = build_message(build, &caffe__accuracy_parameter__descriptor)))
        return;
    BUILD_SET(param, axis, like->axis);
    build->net->layer[build->net->n_layer - 1]->accuracy_param = param;
}

static void add_loss(struct build *build, const char *scores, const char *label,
                     const Caffe__SoftmaxParameter *like)
{
    build_softmax_loss(build, JUDGE_LOSS, scores, label);
    Caffe__SoftmaxParameter *param =
        like ? build_message(build, &caffe__softmax_parameter__descriptor) : NULL;
    if (!param || build->failed) {
        free(param);
        return;
    }
    BUILD_SET(param, axis, like->axis);
    build->net->layer[build->net->n_layer - 1]->softmax_param = param;
}

/* Layers are appended, so that the layers before them do not change. */
static int add_both(Caffe__NetParameter *net, const struct blobs *b, size_t scores, bool *lossless,
                    struct err *err)
{
    struct build build = {.net = net};
    const Caffe__LayerParameter *last = net->layer[b->maker[scores]];
    const char *from = b->name[scores];
    char name[64];
    const char *label = add_label(&build, b, name, err);
    if (!label)
        return ERR_INPUT;
    bool softmax =
        is_type(last, "Softmax") && last->n_bottom == 1 && strcmp(last->bottom[0], from) != 0;
    const Caffe__SoftmaxParameter *like = softmax ? last->softmax_param : NULL;
    from = softmax ? last->bottom[0] : from;
    add_loss(&build, from, label, like);
    add_accuracy(&build, from, label, like);
    *lossless = !softmax;
    return build.failed ? err_set(err, ERR_NOMEM, "net: out of memory") : OK;
}

/* The last loss that has scores and labels. */
static int add_to_loss(Caffe__NetParameter *net, struct err *err)
{
    struct build build = {.net = net};
    for (size_t i = net->n_layer; i-- > 0;) {
        const Caffe__LayerParameter *layer = net->layer[i];
        if (!is_for_testing(net, i) || !is_type(layer, "SoftmaxWithLoss") || layer->n_bottom != 2 ||
            (layer->loss_param && layer->loss_param->has_ignore_label))
            continue;
        add_accuracy(&build, layer->bottom[0], layer->bottom[1], layer->softmax_param);
        break;
    }
    return build.failed ? err_set(err, ERR_NOMEM, "net: out of memory") : OK;
}

bool model_has_loss(const Caffe__NetParameter *net, enum phase phase)
{
    for (size_t i = 0; i < net->n_layer; i++)
        if (is_loss(net->layer[i]) && rules_include(net->layer[i], net->state, phase))
            return true;
    return false;
}

int model_judge(Caffe__NetParameter *net, bool *lossless, struct err *err)
{
    struct blobs b = {0};
    size_t scores = 0, accuracies = 0;
    for (size_t i = 0; i < net->n_layer; i++)
        accuracies += is_for_testing(net, i) && is_type(net->layer[i], "Accuracy");
    *lossless = !model_has_loss(net, PHASE_TEST);
    if (accuracies > 0)
        return OK;
    if (!*lossless)
        return add_to_loss(net, err);
    int rc = list_blobs(net, &b, err);
    if (rc == OK)
        rc = find_scores(net, &b, &scores, err);
    if (rc == OK)
        rc = add_both(net, &b, scores, lossless, err);
    free(b.name);
    free(b.maker);
    free(b.read);
    return rc;
}
