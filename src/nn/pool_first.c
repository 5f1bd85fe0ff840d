#include "nn/pool_first.h"

#include "nn/fuse.h"

/* The pooling that is the only reader of the ReLU's output, or NULL. */
static struct layer *pooling_of(const struct net *net, const struct net_options *options,
                                const struct layer *relu)
{
    if (relu->part != CHAIN_RELU || !fuse_may_leave_out(net, options, relu->top[0]))
        return NULL;
    for (size_t i = relu->nth + 1; i < net->n_layers; i++) {
        struct layer *layer = net->layer[i];
        if (layer->takes_largest && layer->bottom[0].blob == relu->top[0])
            return layer->bottom[0].stops || relu->bottom[0].stops ? NULL : layer;
    }
    return NULL;
}

static int plan_relu(struct net *net, const struct net_options *options, struct layer *relu,
                     const struct blob *x, struct err *err)
{
    const struct relu_spec spec = {.x = x->shape, .dtype = x->dtype};
    bool training = net->phase == PHASE_TRAIN;
    op_release(relu->op);
    relu->op = NULL;
    return options->kernels->relu(&spec, x->layout, training, &net->arena, &relu->op, err);
}

static void replace_blob(struct net *net, const struct blob *old, struct blob *blob)
{
    for (size_t i = 0; i < net->n_blobs; i++)
        if (net->blob[i] == old)
            net->blob[i] = blob;
}

/* x, relu, between, pool, y becomes x, pool, between, relu, y. */
static int swap_layers(struct net *net, const struct net_options *options, struct layer *relu,
                       struct layer *pool, struct err *err)
{
    struct blob *y = pool->top[0], *between = arena_new(&net->arena, struct blob);
    if (!between)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    *between = (struct blob){
        .name = y->name,
        .shape = y->shape,
        .layout = y->layout,
        .dtype = y->dtype,
        .count = y->count,
        .maker = pool,
        .users = 1,
    };
    replace_blob(net, relu->top[0], between);
    pool->bottom[0].blob = relu->bottom[0].blob;
    pool->top[0] = between;
    relu->bottom[0].blob = between;
    relu->top[0] = y;
    y->maker = relu;
    size_t last = pool->nth;
    for (size_t i = relu->nth; i < last; i++) {
        net->layer[i] = net->layer[i + 1];
        net->layer[i]->nth = i;
    }
    net->layer[last] = relu;
    relu->nth = last;
    return plan_relu(net, options, relu, between, err);
}

int pool_first(struct net *net, const struct net_options *options, struct err *err)
{
    int rc = OK;
    for (size_t i = net->n_layers; i-- > 0 && rc == OK;) {
        struct layer *relu = net->layer[i], *pool = pooling_of(net, options, relu);
        if (pool)
            rc = swap_layers(net, options, relu, pool, err);
    }
    return rc;
}
