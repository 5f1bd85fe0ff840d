#include "data/source_field.h"

#include "base/hash.h"
#include "data/maps.h"
#include "data/record_cache.h"

#include <stdio.h>
#include <stdlib.h>

struct source_field {
    struct source source;  /* first */
    struct source *of;     /* owned */
    struct source *cached; /* the same behind the cache, owned; NULL: there is none */
    bool mapped;
    struct maps maps; /* if it is mapped */
};

static const struct source *front_of(const struct source_field *self)
{
    return self->cached ? self->cached : self->of;
}

/* The record behind the maps is in the memory of this depth. */
static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct source_field *self = (const struct source_field *)source;
    const size_t *dim = source->shape.dim;
    struct maps_draw drawn, *draw = scratch->draw ? &drawn : NULL;
    if (!self->mapped)
        return front_of(self)->ops->read(front_of(self), i, scratch, raw, err);
    if (draw)
        drawn = (struct maps_draw){scratch->draw->seed, scratch->draw->epoch, i};
    int rc = maps_read(&self->maps, front_of(self), i, draw, scratch, raw, err);
    if (rc != OK)
        return rc;
    float *x = scratch_get(scratch, SCRATCH_MADE + source->depth - 1,
                           shape_count(&source->shape) * sizeof *x);
    if (!x || maps_apply(&self->maps, raw, draw, scratch, x) != OK)
        return err_set(err, ERR_NOMEM, "record %zu: out of memory", i);
    *raw = (struct raw){x, RAW_FLOATS, dim[0], dim[1], dim[2], 0};
    return OK;
}

static void prefetch_record(const struct source *source, size_t i)
{
    source_prefetch(front_of((const struct source_field *)source), i);
}

static uint32_t label_of(const struct source *source, size_t i)
{
    const struct source *of = ((const struct source_field *)source)->of;
    return of->ops->label(of, i);
}

static void name_of(const struct source *source, size_t i, char *out, size_t room)
{
    char name[SOURCE_NAME_MAX];
    snprintf(out, room, "%s", source_name(((const struct source_field *)source)->of, i, name));
}

static void close_field(struct source *source)
{
    struct source_field *self = (struct source_field *)source;
    maps_release(&self->maps);
    source_close(self->cached);
    source_close(self->of);
    free(self);
}

static const struct source_ops ops = {
    .kind = "field",
    .read = read_record,
    .prefetch = prefetch_record,
    .label = label_of,
    .name = name_of,
    .close = close_field,
};

const struct source *source_field_base(const struct source *source)
{
    return source->ops == &ops ? ((const struct source_field *)source)->of : source;
}

/* See the records through the maps. Crops and mirrors depend on the epoch. */
static int add_maps(struct source_field *self, const Paceline__Data *spec, struct err *err)
{
    struct source *source = &self->source;
    if (++source->depth > DEPTH_MAX)
        return source_refuse_depth(err);
    int rc = maps_init(&self->maps, spec, self->of, &source->shape, err);
    if (rc != OK)
        return rc;
    self->mapped = true;
    source->is_integer = source->is_bf16 = false;
    if (self->maps.mirror || self->maps.crop > 0)
        source->reading = SOURCE_DRAWS;
    if (self->maps.mean_hash)
        source->hash = hash_mix(source->hash, self->maps.mean_hash);
    return OK;
}

/* A cache of the whole record would keep these values a second time. */
static int add_cache(struct source_field *self, struct record_cache *cache, struct err *err)
{
    int rc = source_cached(self->of, cache, &self->cached, err);
    if (rc == OK)
        self->source.reading = SOURCE_IN_MEMORY;
    return rc;
}

int source_field_open(const struct source_config *config, const Paceline__Data *spec,
                      struct source **out, struct err *err)
{
    struct source_config own = *config;
    struct source *of;
    own.bad = NULL;
    int rc = source_open_with(&own, spec, &of, err);
    if (rc != OK)
        return rc;
    bool maps = maps_are_given(spec), caches = config->cache && record_cache_serves(of);
    if (!maps && !caches) {
        *out = of;
        return OK;
    }
    struct source_field *self = calloc(1, sizeof *self);
    if (!self) {
        source_close(of);
        return err_set(err, ERR_NOMEM, "data: out of memory for a field");
    }
    self->of = of;
    self->source = *of;
    self->source.ops = &ops;
    if (caches)
        rc = add_cache(self, config->cache, err);
    if (rc == OK && maps)
        rc = add_maps(self, spec, err);
    if (rc == OK)
        *out = &self->source;
    else
        close_field(&self->source);
    return rc;
}
