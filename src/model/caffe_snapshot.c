#include "model/caffe_snapshot.h"

#include <stdlib.h>
#include <string.h>

/* A Split's top: its readers read the Split's bottom instead. */
struct copy {
    const char *name;
    size_t split; /* number of the layer */
};

struct copies {
    struct copy *at; /* by name */
    size_t n;
    bool *stays; /* of each layer: a Split that is needed */
};

static bool is_split(const Caffe__LayerParameter *layer)
{
    return layer->type && strcmp(layer->type, "Split") == 0 && layer->n_bottom == 1;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct copy *)a)->name, ((const struct copy *)b)->name);
}

static const struct copy *find_copy(const struct copies *copies, const char *name)
{
    const struct copy key = {.name = name};
    return copies->n ? bsearch(&key, copies->at, copies->n, sizeof key, compare_names) : NULL;
}

static bool list_copies(const Caffe__NetParameter *net, struct copies *out)
{
    size_t most = 0;
    for (size_t i = 0; i < net->n_layer; i++)
        most += is_split(net->layer[i]) ? net->layer[i]->n_top : 0;
    out->at = calloc(most + 1, sizeof *out->at);
    out->stays = calloc(net->n_layer + 1, sizeof *out->stays);
    if (!out->at || !out->stays)
        return false;
    for (size_t i = 0; i < net->n_layer; i++)
        for (size_t k = 0; is_split(net->layer[i]) && k < net->layer[i]->n_top; k++)
            out->at[out->n++] = (struct copy){net->layer[i]->top[k], i};
    qsort(out->at, out->n, sizeof *out->at, compare_names);
    return true;
}

/* Where someone writes over a Split's result, or two have one name, it is a copy that is needed. */
static void keep_needed(const Caffe__NetParameter *net, struct copies *copies)
{
    for (size_t i = 1; i < copies->n; i++)
        if (strcmp(copies->at[i - 1].name, copies->at[i].name) == 0)
            copies->stays[copies->at[i - 1].split] = copies->stays[copies->at[i].split] = true;
    for (size_t i = 0; i < net->n_layer; i++)
        for (size_t k = 0; !is_split(net->layer[i]) && k < net->layer[i]->n_top; k++) {
            const struct copy *copy = find_copy(copies, net->layer[i]->top[k]);
            if (copy)
                copies->stays[copy->split] = true;
        }
}

/* In order, so that a Split of a Split's result has its bottom by then. */
static bool read_past(Caffe__NetParameter *net, const struct copies *copies)
{
    for (size_t i = 0; i < net->n_layer; i++)
        for (size_t k = 0; k < net->layer[i]->n_bottom; k++) {
            char **bottom = &net->layer[i]->bottom[k];
            const struct copy *copy = find_copy(copies, *bottom);
            if (!copy || copy->split >= i || copies->stays[copy->split])
                continue;
            char *from = strdup(net->layer[copy->split]->bottom[0]);
            if (!from)
                return false;
            free(*bottom);
            *bottom = from;
        }
    return true;
}

static void remove_splits(Caffe__NetParameter *net, const struct copies *copies)
{
    size_t left = 0;
    for (size_t i = 0; i < net->n_layer; i++)
        if (is_split(net->layer[i]) && !copies->stays[i])
            caffe__layer_parameter__free_unpacked(net->layer[i], NULL);
        else
            net->layer[left++] = net->layer[i];
    net->n_layer = left;
}

static void drop_rules(Caffe__LayerParameter *layer)
{
    while (layer->n_include > 0)
        caffe__net_state_rule__free_unpacked(layer->include[--layer->n_include], NULL);
    while (layer->n_exclude > 0)
        caffe__net_state_rule__free_unpacked(layer->exclude[--layer->n_exclude], NULL);
    layer->has_phase = false;
}

int caffe_snapshot_finish(Caffe__NetParameter *net, bool spent, struct err *err)
{
    struct copies copies = {0};
    size_t phases = 0;
    for (size_t i = 0; i < net->n_layer; i++)
        phases += net->layer[i]->has_phase ? 1 : 0;
    if (!spent && phases < net->n_layer)
        return OK;
    for (size_t i = 0; i < net->n_layer; i++)
        drop_rules(net->layer[i]);
    bool fits = list_copies(net, &copies);
    if (fits) {
        keep_needed(net, &copies);
        fits = read_past(net, &copies);
    }
    if (fits)
        remove_splits(net, &copies);
    free(copies.at);
    free(copies.stays);
    return fits ? OK : err_set(err, ERR_NOMEM, "net: out of memory");
}
