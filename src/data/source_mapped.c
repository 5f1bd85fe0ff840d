#include "data/source_mapped.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

struct source_mapped {
    struct source source; /* first */
    struct source *of;    /* owned */
    struct record_map map;
    char name[64];
};

/* The record before and behind the map, one after the other in the memory of this depth. */
static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct source_mapped *self = (const struct source_mapped *)source;
    const struct source *of = self->of;
    const size_t *dim = source->shape.dim, before = shape_count(&of->shape);
    float *in = scratch_get(scratch, SCRATCH_MADE + source->depth - 1,
                            (before + shape_count(&source->shape)) * sizeof *in);
    if (!in)
        return err_set(err, ERR_NOMEM, "record %zu: out of memory", i);
    scratch->want = NULL;
    int rc = of->ops->read(of, i, scratch, raw, err);
    if (rc != OK)
        return rc;
    raw_floats(raw, in);
    float *out = in + before;
    rc = self->map.apply(self->map.user, i, in, scratch->draw, out);
    if (rc != OK)
        return err_set(err, rc == ERR_INPUT || rc == ERR_NOMEM ? rc : ERR_IO,
                       "map %s: record %zu: %s", self->name, i, status_text(rc));
    *raw = (struct raw){out, RAW_FLOATS, dim[0], dim[1], dim[2], 0};
    return OK;
}

static void prefetch_record(const struct source *source, size_t i)
{
    source_prefetch(((const struct source_mapped *)source)->of, i);
}

static uint32_t label_of(const struct source *source, size_t i)
{
    const struct source *of = ((const struct source_mapped *)source)->of;
    return of->ops->label(of, i);
}

static void name_of(const struct source *source, size_t i, char *out, size_t room)
{
    char name[SOURCE_NAME_MAX];
    snprintf(out, room, "%s", source_name(((const struct source_mapped *)source)->of, i, name));
}

static void close_mapped(struct source *source)
{
    struct source_mapped *self = (struct source_mapped *)source;
    if (self->map.release)
        self->map.release(self->map.user);
    source_close(self->of);
    free(self);
}

static const struct source_ops ops = {
    .kind = "map",
    .read = read_record,
    .prefetch = prefetch_record,
    .label = label_of,
    .name = name_of,
    .close = close_mapped,
};

static int check_map(const struct source *of, const struct record_map *map, struct err *err)
{
    const size_t *dim = map->shape.dim;
    if (of->depth == DEPTH_MAX)
        return source_refuse_depth(err);
    if (of->shape.dim[1] == 0)
        return err_set(err, ERR_INPUT, "map %s: its records are of several sizes", map->name);
    if (map->hash == 0 || !map->apply)
        return err_set(err, ERR_INPUT, "map %s: it needs a function, and a hash that names it",
                       map->name);
    if (map->shape.n > 0 &&
        (shape_count(&map->shape) == 0 || shape_count(&map->shape) > RECORD_VALUES_MAX ||
         dim[1] > SIDE_MAX || dim[2] > SIDE_MAX))
        return err_set(err, ERR_INPUT, "map %s: it cannot make records of %zu x %zu x %zu",
                       map->name, dim[0], dim[1], dim[2]);
    return OK;
}

int source_mapped(struct source *of, const struct record_map *map, struct source **out,
                  struct err *err)
{
    int rc = check_map(of, map, err);
    if (rc != OK)
        return rc;
    struct source_mapped *self = calloc(1, sizeof *self);
    if (!self)
        return err_set(err, ERR_NOMEM, "map %s: out of memory", map->name);
    snprintf(self->name, sizeof self->name, "%s", map->name);
    self->of = of;
    self->map = *map;
    self->map.name = self->name;
    self->source = *of;
    self->source.ops = &ops;
    self->source.is_bf16 = false;
    self->source.depth = of->depth + 1;
    self->source.hash = hash_mix(of->hash, map->hash);
    self->source.reading =
        map->constant && of->reading != SOURCE_DRAWS ? SOURCE_READS : SOURCE_DRAWS;
    if (map->shape.n > 0) {
        self->source.shape = map->shape;
        self->source.fields.n = 0;
        self->source.is_integer = false;
        for (size_t k = 0; k < map->shape.n; k++)
            self->source.hash = hash_mix(self->source.hash, map->shape.dim[k]);
    }
    *out = &self->source;
    return OK;
}

void source_mapped_disown(struct source *source)
{
    ((struct source_mapped *)source)->map.release = NULL;
}
