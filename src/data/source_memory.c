#include "data/source_memory.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

struct source_memory {
    struct source source; /* first */
    struct memory_records records;
    char name[64];
};

/* ---- checks ---- */

size_t memory_record_bytes(const struct memory_records *records)
{
    size_t each = records->form == RAW_FLOATS ? sizeof(float) : 1;
    return shape_count(&records->shape) * each;
}

int memory_check(const struct memory_records *records, struct err *err)
{
    const char *name = records->name;
    size_t values = 1;
    if (records->classes == 0 || records->classes > LABEL_MAX)
        return err_set(err, ERR_INPUT, "memory %s: %u classes; 1 to %u may be given", name,
                       records->classes, LABEL_MAX);
    for (size_t i = 0; i < records->shape.n; i++) {
        size_t dim = records->shape.dim[i];
        if (dim == 0 || (i > 0 && dim > SIDE_MAX) || __builtin_mul_overflow(values, dim, &values) ||
            values > RECORD_VALUES_MAX)
            return err_set(err, ERR_INPUT,
                           "memory %s: dimension %zu of a record is %zu; a record has 1 to %zu "
                           "values, and a side at most %d",
                           name, i, dim, RECORD_VALUES_MAX, SIDE_MAX);
    }
    return OK;
}

static int check_records(const struct memory_records *records, struct err *err)
{
    const char *name = records->name;
    if (records->count == 0 || records->count > UINT32_MAX)
        return err_set(err, ERR_INPUT, "memory %s: %zu records; 1 to %u may be given", name,
                       records->count, UINT32_MAX);
    if (!records->labels || (!records->values && !records->read))
        return err_set(err, ERR_INPUT, "memory %s: there are no %s", name,
                       records->labels ? "values, and no function that makes them" : "labels");
    if (!records->values && records->hash == 0)
        return err_set(err, ERR_INPUT,
                       "memory %s: records that a function makes need a hash, by which nodes see "
                       "that theirs are the same",
                       name);
    for (size_t i = 0; i < records->count; i++)
        if (records->labels[i] >= records->classes)
            return err_set(err, ERR_INPUT, "memory %s: record %zu has label %u of %u classes", name,
                           i, records->labels[i], records->classes);
    size_t all;
    if (records->values &&
        __builtin_mul_overflow(memory_record_bytes(records), records->count, &all))
        return err_set(err, ERR_INPUT, "memory %s: %zu records are more than a machine has bytes",
                       name, records->count);
    return OK;
}

/* ---- the source ---- */

static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct source_memory *self = (const struct source_memory *)source;
    const struct memory_records *records = &self->records;
    const size_t *dim = source->shape.dim, bytes = memory_record_bytes(records);
    const void *at = records->values ? (const char *)records->values + i * bytes : NULL;
    if (!at) {
        void *made = scratch_get(scratch, SCRATCH_PIXELS, bytes);
        if (!made)
            return err_set(err, ERR_NOMEM, "record %zu: out of memory for %zu bytes", i, bytes);
        int rc = records->read(records->user, i, made);
        if (rc != OK)
            return err_set(err, rc == ERR_INPUT || rc == ERR_NOMEM ? rc : ERR_IO,
                           "memory %s: record %zu cannot be made: %s", self->name, i,
                           status_text(rc));
        at = made;
    }
    *raw = (struct raw){at, records->form, dim[0], dim[1], dim[2]};
    return OK;
}

static uint32_t label_of(const struct source *source, size_t i)
{
    return ((const struct source_memory *)source)->records.labels[i];
}

static void close_memory(struct source *source)
{
    struct source_memory *self = (struct source_memory *)source;
    if (self->records.release)
        self->records.release(self->records.user);
    free(self);
}

void source_memory_disown(struct source *source)
{
    ((struct source_memory *)source)->records.release = NULL;
}

static const struct source_ops ops = {
    .kind = "memory",
    .read = read_record,
    .label = label_of,
    .close = close_memory,
};

static int hash_records(const struct memory_records *records, uint64_t *out, struct err *err)
{
    uint64_t labels = hash_bytes(records->labels, records->count * sizeof *records->labels);
    uint64_t values = records->hash;
    int rc = values
                 ? OK
                 : source_hash_bytes(records->values, records->count * memory_record_bytes(records),
                                     NULL, &values, err);
    *out = hash_mix(values, labels);
    return rc;
}

int source_memory(const struct memory_records *records, struct source **out, struct err *err)
{
    uint64_t hash = 0;
    int rc = memory_check(records, err);
    if (rc == OK)
        rc = check_records(records, err);
    if (rc == OK)
        rc = hash_records(records, &hash, err);
    if (rc != OK)
        return rc;
    struct source_memory *self = calloc(1, sizeof *self);
    if (!self)
        return err_set(err, ERR_NOMEM, "memory %s: out of memory", records->name);
    strncpy(self->name, records->name, sizeof self->name - 1);
    self->records = *records;
    self->records.name = self->name;
    self->source = (struct source){.ops = &ops,
                                   .count = records->count,
                                   .shape = records->shape,
                                   .classes = records->classes,
                                   .hash = hash};
    *out = &self->source;
    return OK;
}
