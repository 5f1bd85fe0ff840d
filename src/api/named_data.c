#include "api/data.h"
#include "api/guard.h"
#include "api/option_size.h"
#include "data/source_combined.h"
#include "data/source_field.h"
#include "data/source_mapped.h"
#include "data/source_memory.h"
#include "data/source_zip.h"

#include <stdlib.h>

_Static_assert(sizeof(float) == 4, "PL_F32 is float");

/* ---- records of the caller's ---- */

int api_bind_records(pl_engine *engine, const char *name, const struct memory_records *records)
{
    struct err *err = &engine->error;
    struct source *source = NULL;
    struct memory_records named = *records;
    named.name = name;
    int rc = bindings_check(&engine->bindings, name, err);
    if (rc == OK)
        rc = source_memory(&named, &source, err);
    if (rc != OK)
        return rc;
    rc = bindings_add(&engine->bindings, name, source, err);
    if (rc != OK) {
        source_memory_disown(source);
        source_close(source);
    }
    return rc;
}

int api_value_type(pl_value_type type, enum value_type *out, struct err *err)
{
    switch (type) {
    case PL_U8: *out = VALUE_U8; return OK;
    case PL_F32: *out = VALUE_F32; return OK;
    case PL_I32: *out = VALUE_I32; return OK;
    case PL_I64: *out = VALUE_I64; return OK;
    case PL_BF16: *out = VALUE_BF16; return OK;
    }
    return err_set(err, ERR_USAGE, "memory: %d is no type of values", (int)type);
}

static int bind_records(pl_engine *engine, const char *name, const pl_records *records_given)
{
    enum value_type type;
    pl_records own, *given = &own;
    int rc = OPTIONS_TAKE(pl_records, &own, records_given, &engine->error);
    if (rc == OK)
        rc = api_value_type(given->type, &type, &engine->error);
    if (rc != OK)
        return rc;
    const struct memory_records records = {
        .count = given->count,
        .shape = {3, {given->channels, given->height, given->width}},
        .classes = given->classes,
        .type = type,
        .values = given->values,
        .begin = given->begin,
        .fill = given->fill,
        .labels = given->labels,
        .hash = given->hash,
        .read = given->read,
        .release = given->release,
        .user = given->user,
    };
    return api_bind_records(engine, name, &records);
}

int pl_data_bind(pl_engine *engine, const char *name, const pl_records *records)
{
    RETURN_GUARDED(engine, bind_records(engine, name, records));
}

int pl_data_unbind(pl_engine *engine, const char *name)
{
    RETURN_GUARDED(engine, bindings_remove(&engine->bindings, name, &engine->error));
}

/* ---- sets made of others ---- */

/* The records of a SPEC: as a field of a zip, through its maps; else it has none. */
static int open_part(pl_engine *engine, const char *spec, bool field, struct source **out)
{
    struct err *err = &engine->error;
    const struct source_config config = {
        .role = SOURCE_TRAIN, .bindings = &engine->bindings, .remote = engine->remote};
    Paceline__Data *data = NULL;
    int rc = job_set_data(&data, spec, err);
    if (rc == OK)
        rc = job_check_data(data, "data", err);
    if (rc == OK && !field && api_data_has_maps(data))
        rc = err_set(err, ERR_USAGE,
                     "%.200s: maps belong to the SPEC that uses the new name: memory:NAME?...",
                     spec);
    if (rc == OK)
        rc = field ? source_field_open(&config, data, out, err)
                   : source_open_with(&config, data, out, err);
    paceline__data__free_unpacked(data, NULL);
    return rc;
}

/* Bind what was made of the parts, or close these. */
static int bind_combined(pl_engine *engine, const char *name, int rc, struct source *combined,
                         struct source **part, size_t n)
{
    if (rc == OK && (rc = bindings_add(&engine->bindings, name, combined, &engine->error)) == OK)
        return OK;
    if (combined)
        source_close(combined);
    for (size_t i = 0; !combined && i < n; i++)
        source_close(part[i]);
    return rc;
}

static int bind_zip(pl_engine *engine, const char *name, const pl_field *fields, size_t n)
{
    struct err *err = &engine->error;
    struct source *part[FIELDS_MAX], *combined = NULL;
    struct zip_field field[FIELDS_MAX];
    size_t opened = 0;
    int rc = bindings_check(&engine->bindings, name, err);
    if (rc == OK && (n == 0 || n > FIELDS_MAX))
        rc = err_set(err, ERR_USAGE, "memory %s: %zu fields; 1 to %d may be given", name, n,
                     FIELDS_MAX);
    for (; rc == OK && opened < n; opened += rc == OK) {
        const pl_field *from = &fields[opened];
        struct zip_field *to = &field[opened];
        if (from->rank > sizeof from->dims / sizeof *from->dims)
            rc = err_set(err, ERR_USAGE, "memory %s: a field of %u dimensions", name, from->rank);
        if (rc == OK)
            rc = open_part(engine, from->spec, true, &part[opened]);
        if (rc != OK)
            break;
        *to = (struct zip_field){part[opened], from->name, {.n = from->rank}};
        for (size_t k = 0; k < from->rank; k++)
            to->shape.dim[k] = from->dims[k];
    }
    if (rc == OK)
        rc = source_zip(field, n, &combined, err);
    return bind_combined(engine, name, rc, combined, part, opened);
}

int pl_data_zip(pl_engine *engine, const char *name, const pl_field *fields, size_t n)
{
    RETURN_GUARDED(engine, bind_zip(engine, name, fields, n));
}

static int apply_map(void *user, size_t i, const float *in, const struct dataset_draw *draw,
                     float *out)
{
    const pl_map *map = user;
    const pl_draw given = {
        .training = draw != NULL, .seed = draw ? draw->seed : 0, .epoch = draw ? draw->epoch : 0};
    return map->apply(map->user, i, in, &given, out);
}

static void release_map(void *user)
{
    pl_map *map = user;
    if (map->release)
        map->release(map->user);
    free(map);
}

static int bind_map(pl_engine *engine, const char *name, const char *spec, const pl_map *given)
{
    struct err *err = &engine->error;
    struct source *part = NULL, *mapped = NULL;
    pl_map own;
    int rc = OPTIONS_TAKE(pl_map, &own, given, err);
    if (rc == OK)
        rc = bindings_check(&engine->bindings, name, err);
    if (rc == OK)
        rc = open_part(engine, spec, false, &part);
    if (rc != OK)
        return rc;
    pl_map *map = malloc(sizeof *map);
    if (!map) {
        source_close(part);
        return err_set(err, ERR_NOMEM, "memory %s: out of memory", name);
    }
    *map = own;
    const struct record_map with = {
        .name = name,
        .shape = {map->channels > 0 ? 3 : 0, {map->channels, map->height, map->width}},
        .apply = map->apply ? apply_map : NULL,
        .constant = map->constant,
        .hash = map->hash,
        .release = release_map,
        .user = map,
    };
    rc = source_mapped(part, &with, &mapped, err);
    if (rc == OK && (rc = bindings_add(&engine->bindings, name, mapped, err)) == OK)
        return OK;
    if (mapped)
        source_mapped_disown(mapped);
    source_close(mapped ? mapped : part);
    free(map);
    return rc;
}

int pl_data_map(pl_engine *engine, const char *name, const char *spec, const pl_map *map)
{
    RETURN_GUARDED(engine, bind_map(engine, name, spec, map));
}

static int bind_concat(pl_engine *engine, const char *name, const char *const *specs, size_t n)
{
    struct err *err = &engine->error;
    struct source *combined = NULL;
    int rc = bindings_check(&engine->bindings, name, err);
    if (rc == OK && n == 0)
        rc = err_set(err, ERR_USAGE, "memory %s: no SPEC", name);
    if (rc != OK)
        return rc;
    struct source **part = calloc(n, sizeof(struct source *));
    if (!part)
        return err_set(err, ERR_NOMEM, "memory %s: out of memory", name);
    size_t opened = 0;
    for (; rc == OK && opened < n; opened += rc == OK)
        rc = open_part(engine, specs[opened], false, &part[opened]);
    if (rc == OK)
        rc = source_concat(part, n, &combined, err);
    rc = bind_combined(engine, name, rc, combined, part, opened);
    free(part);
    return rc;
}

/* A set that is made of one other. */
struct making {
    int (*make)(struct source *of, const struct making *with, struct source **out, struct err *err);
    const uint32_t *records;
    size_t count;
    uint32_t number, of;
    const pl_sample_options *sample;
};

static int bind_made(pl_engine *engine, const char *name, const char *spec,
                     const struct making *with)
{
    struct source *part = NULL, *made = NULL;
    int rc = bindings_check(&engine->bindings, name, &engine->error);
    if (rc == OK)
        rc = open_part(engine, spec, false, &part);
    if (rc != OK)
        return rc;
    rc = with->make(part, with, &made, &engine->error);
    return bind_combined(engine, name, rc, made, &part, 1);
}

static int make_subset(struct source *of, const struct making *with, struct source **out,
                       struct err *err)
{
    return source_subset(of, with->records, with->count, out, err);
}

static int make_shard(struct source *of, const struct making *with, struct source **out,
                      struct err *err)
{
    return source_shard(of, with->number, with->of, out, err);
}

static int make_repetition(struct source *of, const struct making *with, struct source **out,
                           struct err *err)
{
    return source_repeat(of, with->number, out, err);
}

static int make_sample(struct source *of, const struct making *with, struct source **out,
                       struct err *err)
{
    pl_sample_options options;
    int rc = OPTIONS_TAKE(pl_sample_options, &options, with->sample, err);
    const struct sample_config config = {
        .count = options.count,
        .seed = options.seed,
        .replacement = options.replacement,
        .stratified = options.stratified,
        .weights = options.weights,
    };
    return rc != OK ? rc : source_sample(of, &config, out, err);
}

int pl_data_concat(pl_engine *engine, const char *name, const char *const *specs, size_t n)
{
    RETURN_GUARDED(engine, bind_concat(engine, name, specs, n));
}

int pl_data_subset(pl_engine *engine, const char *name, const char *spec, const uint32_t *records,
                   size_t count)
{
    const struct making with = {.make = make_subset, .records = records, .count = count};
    RETURN_GUARDED(engine, bind_made(engine, name, spec, &with));
}

int pl_data_shard(pl_engine *engine, const char *name, const char *spec, uint32_t part,
                  uint32_t parts)
{
    const struct making with = {.make = make_shard, .number = part, .of = parts};
    RETURN_GUARDED(engine, bind_made(engine, name, spec, &with));
}

int pl_data_repeat(pl_engine *engine, const char *name, const char *spec, uint32_t times)
{
    const struct making with = {.make = make_repetition, .number = times};
    RETURN_GUARDED(engine, bind_made(engine, name, spec, &with));
}

int pl_data_sample(pl_engine *engine, const char *name, const char *spec,
                   const pl_sample_options *options)
{
    const struct making with = {.make = make_sample, .sample = options};
    RETURN_GUARDED(engine, bind_made(engine, name, spec, &with));
}
