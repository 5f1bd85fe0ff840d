#include "nn/insert.h"

#include <stdio.h>

static struct blob *find_copy(const struct net *net, const struct blob *x,
                              const struct layer_ops *ops)
{
    for (size_t i = 0; i < net->n_blobs; i++) {
        const struct layer *maker = net->blob[i]->maker;
        if (net->blob[i]->inserted && maker->ops == ops && maker->bottom[0].blob == x)
            return net->blob[i];
    }
    return NULL;
}

/* Before the newest layer. */
static int make_copy(struct net *net, struct layer *reader, struct blob *x,
                     const struct insertion *insertion, struct blob **out, struct err *err)
{
    struct layer *layer = arena_alloc(&net->arena, 1, insertion->ops->size);
    struct blob *y = arena_new(&net->arena, struct blob);
    struct link *link = arena_array(&net->arena, 1, struct link);
    struct blob **tops = arena_array(&net->arena, 1, struct blob *);
    char text[160];
    snprintf(text, sizeof text, "%.100s as %s", x->name, insertion->copy);
    const char *name = arena_strdup(&net->arena, text);
    if (!layer || !y || !link || !tops || !name)
        return err_set(err, ERR_NOMEM, "out of memory");
    *link = (struct link){.blob = x};
    *y = (struct blob){
        .name = x->name,
        .shape = insertion->shape,
        .layout = x->layout,
        .dtype = insertion->dtype,
        .count = shape_count(&insertion->shape),
        .maker = layer,
        .inserted = true,
    };
    *tops = y;
    *layer = (struct layer){
        .ops = insertion->ops,
        .name = name,
        .type = insertion->type,
        .index = x->maker->index,
        .nth = reader->nth,
        .bottom = link,
        .n_bottom = 1,
        .top = tops,
        .n_top = 1,
        .dtype = y->dtype,
        .n_over = 1,
        .inserted = true,
    };
    net->layer[layer->nth] = layer;
    net->layer[++reader->nth] = reader;
    net->n_layers++;
    net->blob[net->n_blobs++] = y;
    *out = y;
    return OK;
}

int insert_layer(struct net *net, struct layer *reader, size_t k, const struct insertion *insertion,
                 struct err *err)
{
    struct link *link = &reader->bottom[k];
    struct blob *x = link->blob, *y = find_copy(net, x, insertion->ops);
    if (y)
        x->users--; /* of x the copy is one user, however many have the copy */
    else if (make_copy(net, reader, x, insertion, &y, err) != OK)
        return ERR_NOMEM;
    y->users++;
    link->blob = y;
    return OK;
}
