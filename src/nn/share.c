#include "nn/share.h"

#include <string.h>

struct share *shares_find(const struct shares *shares, const char *name)
{
    for (size_t i = 0; i < shares->count; i++)
        if (strcmp(shares->at[i].name, name) == 0)
            return &shares->at[i];
    return NULL;
}

/* Room for one more; the old array stays in the arena, so growth doubles. */
static bool reserve_entry(struct shares *shares, struct arena *arena)
{
    if (shares->count < shares->cap)
        return true;
    size_t cap = shares->cap ? 2 * shares->cap : 8;
    struct share *at = arena_array(arena, cap, struct share);
    if (!at)
        return false;
    if (shares->count)
        memcpy(at, shares->at, shares->count * sizeof *at);
    shares->at = at;
    shares->cap = cap;
    return true;
}

int shares_add(struct shares *shares, struct arena *arena, const Caffe__ParamSpec *spec,
               const char *owner, size_t segment, struct err *err)
{
    char *name = arena_strdup(arena, spec->name), *layer = arena_strdup(arena, owner);
    if (!name || !layer || !reserve_entry(shares, arena))
        return err_set(err, ERR_NOMEM, "out of memory");
    shares->at[shares->count++] = (struct share){
        .name = name,
        .owner = layer,
        .segment = segment,
        .has_lr = spec->has_lr_mult,
        .has_decay = spec->has_decay_mult,
    };
    return OK;
}

static int check_shape(const struct share *share, const struct segment *segment,
                       const Caffe__ParamSpec *spec, const struct shape *shape, struct err *err)
{
    bool loose = spec->share_mode == CAFFE__PARAM_SPEC__DIM_CHECK_MODE__PERMISSIVE;
    if (loose ? shape_count(shape) == segment->len : shape_equal(shape, &segment->shape))
        return OK;
    char a[128], b[128];
    return err_set(err, ERR_INPUT,
                   "param.name: \"%.64s\" is %s in layer \"%s\", and cannot be %s here%s",
                   share->name, shape_text(&segment->shape, a, sizeof a), share->owner,
                   shape_text(shape, b, sizeof b), loose ? "" : " (share_mode: STRICT)");
}

/* Set here and by another: equal; set here first: taken. */
static int check_agreement(const struct share *share, const char *field, bool here, float value,
                           bool *there, float *mult, struct err *err)
{
    if (!here)
        return OK;
    if (*there && *mult != value)
        return err_set(err, ERR_INPUT, "param.%s: %g, but \"%.64s\" of layer \"%s\" has %g", field,
                       (double)value, share->name, share->owner, (double)*mult);
    *there = true;
    *mult = value;
    return OK;
}

int shares_join(struct share *share, struct segment *segment, const Caffe__ParamSpec *spec,
                const struct shape *shape, struct err *err)
{
    int rc = check_shape(share, segment, spec, shape, err);
    if (rc == OK)
        rc = check_agreement(share, "lr_mult", spec->has_lr_mult, spec->lr_mult, &share->has_lr,
                             &segment->lr_mult, err);
    if (rc == OK)
        rc = check_agreement(share, "decay_mult", spec->has_decay_mult, spec->decay_mult,
                             &share->has_decay, &segment->decay_mult, err);
    return rc;
}
