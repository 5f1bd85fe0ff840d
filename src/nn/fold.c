#include "nn/fold.h"

#include "nn/fuse.h"
#include "nn/layer_batch_norm.h"

/* y = a·x + c by channel, of `norm` and then `scale`, of which one may be NULL. */
struct fold {
    struct layer_batch_norm *norm;
    const struct layer *scale;
    size_t rows, each; /* channels, and weights of each */
    double *a, *c;
};

/* ---- finding ---- */

/* The layer that alone reads the blob, which may then be left out; or NULL. */
static struct layer *only_user(const struct net *net, const struct net_options *options,
                               const struct blob *blob)
{
    if (!fuse_may_leave_out(net, options, blob))
        return NULL;
    for (size_t i = 0; i < net->file.n_layers; i++)
        if (net->file.layer[i]->n_bottom > 0 && net->file.layer[i]->bottom[0].blob == blob)
            return net->file.layer[i];
    return NULL;
}

/* Have `next` done by `layer`, which writes its top from now on. */
static void take_over(struct net *net, struct layer *layer, struct layer *next)
{
    struct blob *between = layer->top[0];
    layer->top[0] = next->top[0];
    layer->top[0]->maker = layer;
    layer->top[0]->over = NULL;
    net->layer[next->nth] = NULL;
    for (size_t i = 0; i < net->n_blobs; i++)
        if (net->blob[i] == between)
            net->blob[i] = NULL;
}

static int fold_after(struct net *net, const struct net_options *options, struct layer *layer,
                      struct err *err)
{
    struct fold found = {0};
    struct layer *next;
    while ((next = only_user(net, options, layer->top[0]))) {
        bool norm = next->part == CHAIN_NORM && !found.norm && !found.scale;
        if (norm && !((struct layer_batch_norm *)next)->global)
            break;
        if (!norm && (next->part != CHAIN_SCALE || found.scale))
            break;
        if (norm)
            found.norm = (struct layer_batch_norm *)next;
        else
            found.scale = next;
        take_over(net, layer, next);
    }
    if (!found.norm && !found.scale)
        return OK;
    const struct segment *w = &net->segments.at[layer->at[0].index];
    found.rows = layer->top[0]->shape.dim[1];
    found.each = w->len / found.rows;
    found.a = arena_array(&net->arena, 2 * found.rows, double);
    layer->fold = arena_new(&net->arena, struct fold);
    if (!found.a || !layer->fold)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    found.c = found.a + found.rows;
    *layer->fold = found;
    return OK;
}

int fold_layers(struct net *net, const struct net_options *options, struct err *err)
{
    int rc = OK;
    for (size_t i = 0; i < net->n_layers && rc == OK; i++)
        if (net->layer[i] && net->layer[i]->folds)
            rc = fold_after(net, options, net->layer[i], err);
    return rc;
}

/* ---- folding ---- */

size_t fold_floats(const struct layer *layer)
{
    return layer->fold ? layer->fold->rows * (layer->fold->each + 1) : 0;
}

/* r·(x − μ), and then w·x + b. */
static void find_terms(const struct fold *fold, const struct pass *pass)
{
    struct layer_batch_norm *norm = fold->norm;
    const struct layer *scale = fold->scale;
    if (norm)
        batch_norm_measure(norm, &norm->norm, NULL, pass);
    for (size_t o = 0; o < fold->rows; o++) {
        double r = norm ? norm->r[o] : 1.0;
        double w = scale ? (double)pass->x[scale->at[0].offset + o] : 1.0;
        double b = scale && scale->n_at > 1 ? (double)pass->x[scale->at[1].offset + o] : 0.0;
        fold->a[o] = w * r;
        fold->c[o] = b - (norm ? w * r * norm->norm.sum[o] : 0.0);
    }
}

void fold_make(const struct layer *layer, const struct pass *pass, float *to, struct op_args *args)
{
    const struct fold *fold = layer->fold;
    float *bias = to + fold->rows * fold->each;
    find_terms(fold, pass);
    for (size_t o = 0; o < fold->rows; o++) {
        const float *w = args->w + o * fold->each;
        float a = (float)fold->a[o], *row = to + o * fold->each;
        for (size_t i = 0; i < fold->each; i++)
            row[i] = a * w[i];
        bias[o] = (float)(fold->a[o] * (double)args->b[o] + fold->c[o]);
    }
    args->w = to;
    args->b = bias;
}
