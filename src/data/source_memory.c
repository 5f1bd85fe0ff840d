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
    return shape_count(&records->shape) * value_bytes(records->type);
}

int memory_check(const struct memory_records *records, struct err *err)
{
    const char *name = records->name;
    size_t values = 1;
    if (records->classes > LABEL_MAX)
        return err_set(err, ERR_INPUT, "memory %s: %u classes, at most %u", name, records->classes,
                       LABEL_MAX);
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

static int check_labels(const struct memory_records *records, struct err *err)
{
    const char *name = records->name;
    if ((records->classes > 0) != (records->labels || records->label))
        return err_set(err, ERR_INPUT, "memory %s: %u classes, and there are %s", name,
                       records->classes,
                       records->labels || records->label ? "labels" : "no labels");
    for (size_t i = 0; records->labels && i < records->count; i++)
        if (records->labels[i] >= records->classes)
            return err_set(err, ERR_INPUT, "memory %s: record %zu has label %u of %u classes", name,
                           i, records->labels[i], records->classes);
    return OK;
}

/* All values: of records of equal or of different lengths. */
static int check_values(const struct memory_records *records, struct err *err)
{
    const char *name = records->name;
    size_t each = shape_count(&records->shape), all;
    const uint64_t *begin = records->begin;
    if (!records->values && records->hash == 0)
        return err_set(err, ERR_INPUT,
                       "memory %s: records that a function makes need a hash, by which nodes see "
                       "that theirs are the same",
                       name);
    if (begin && !records->values)
        return err_set(err, ERR_INPUT, "memory %s: lengths are of values in memory", name);
    for (size_t i = 0; begin && i < records->count; i++)
        if (begin[i + 1] < begin[i] || begin[i + 1] - begin[i] > each)
            return err_set(err, ERR_INPUT,
                           "memory %s: record %zu has the values %llu to %llu, and at most %zu",
                           name, i, (unsigned long long)begin[i], (unsigned long long)begin[i + 1],
                           each);
    if (records->values &&
        __builtin_mul_overflow(memory_record_bytes(records), records->count, &all))
        return err_set(err, ERR_INPUT, "memory %s: %zu records are more than a machine has bytes",
                       name, records->count);
    return OK;
}

static int check_records(const struct memory_records *records, struct err *err)
{
    const char *name = records->name;
    if (records->count == 0 || records->count > UINT32_MAX)
        return err_set(err, ERR_INPUT, "memory %s: %zu records; 1 to %u may be given", name,
                       records->count, UINT32_MAX);
    if (!records->values && !records->read)
        return err_set(err, ERR_INPUT,
                       "memory %s: there are no values, and no function that makes them", name);
    int rc = check_values(records, err);
    return rc == OK ? check_labels(records, err) : rc;
}

/* ---- the source ---- */

/* The values of record i as they are stored, and how many; NULL: the error says why. */
static const void *find_values(const struct source_memory *self, size_t i, size_t *n,
                               struct scratch *scratch, struct err *err)
{
    const struct memory_records *records = &self->records;
    size_t each = value_bytes(records->type), bytes = memory_record_bytes(records);
    const char *values = records->values;
    *n = bytes / each;
    if (records->begin) {
        *n = (size_t)(records->begin[i + 1] - records->begin[i]);
        return values + records->begin[i] * each;
    }
    if (values)
        return values + i * bytes;
    void *made = scratch_get(scratch, SCRATCH_FILE, bytes);
    if (!made) {
        err_set(err, ERR_NOMEM, "record %zu: out of memory for %zu bytes", i, bytes);
        return NULL;
    }
    int rc = records->read(records->user, i, made);
    if (rc == OK)
        return made;
    err_set(err, rc == ERR_INPUT || rc == ERR_NOMEM ? rc : ERR_IO,
            "memory %s: record %zu cannot be made: %s", self->name, i, status_text(rc));
    return NULL;
}

/* As floats, with the fill behind them. */
static int convert_values(const struct source_memory *self, size_t i, const void *at, size_t n,
                          float *x, struct err *err)
{
    const struct memory_records *records = &self->records;
    size_t all = shape_count(&records->shape);
    size_t done = values_to_floats(records->type, at, n, x);
    if (done < n)
        return err_set(err, ERR_INPUT, "memory %s: record %zu: value %zu is beyond +-%d",
                       self->name, i, done, INTEGER_MAX);
    for (size_t k = n; k < all; k++)
        x[k] = records->fill;
    return OK;
}

static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct source_memory *self = (const struct source_memory *)source;
    const struct memory_records *records = &self->records;
    const size_t *dim = source->shape.dim;
    size_t n;
    const void *at = find_values(self, i, &n, scratch, err);
    if (!at)
        return err->status;
    bool plain = !records->begin && value_is_plain(records->type);
    *raw = (struct raw){
        at, records->type == VALUE_U8 ? RAW_PLANES : RAW_FLOATS, dim[0], dim[1], dim[2], 0};
    if (plain)
        return OK;
    float *x = scratch_get(scratch, SCRATCH_PIXELS, shape_count(&source->shape) * sizeof *x);
    if (!x)
        return err_set(err, ERR_NOMEM, "record %zu: out of memory", i);
    raw->at = x;
    raw->form = RAW_FLOATS;
    return convert_values(self, i, at, n, x, err);
}

static uint32_t label_of(const struct source *source, size_t i)
{
    const struct memory_records *records = &((const struct source_memory *)source)->records;
    return records->labels  ? records->labels[i]
           : records->label ? records->label(records->user, i)
                            : 0;
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

static size_t count_arrived(const struct source *source, bool *more)
{
    const struct memory_records *records = &((const struct source_memory *)source)->records;
    *more = false;
    return records->arrived ? records->arrived(records->user, more) : source->count;
}

static size_t list_parts(const struct source *source, struct source_part *out, size_t most)
{
    const struct memory_records *records = &((const struct source_memory *)source)->records;
    return records->parts ? records->parts(records->user, out, most) : 0;
}

static const struct source_ops ops = {
    .kind = "memory",
    .read = read_record,
    .arrived = count_arrived,
    .parts = list_parts,
    .label = label_of,
    .close = close_memory,
};

static int hash_records(const struct memory_records *records, uint64_t *out, struct err *err)
{
    size_t count = records->count, bytes = count * memory_record_bytes(records);
    uint64_t hash = records->hash;
    if (records->begin)
        bytes = (size_t)records->begin[count] * value_bytes(records->type);
    int rc = hash ? OK : source_hash_bytes(records->values, bytes, NULL, &hash, err);
    if (records->begin)
        hash = hash_mix(hash, hash_bytes(records->begin, (count + 1) * sizeof *records->begin));
    *out = hash_mix(
        hash, hash_bytes(records->labels, records->labels ? count * sizeof *records->labels : 0));
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
    self->source = (struct source){
        .ops = &ops,
        .reading = records->read && !records->in_memory ? SOURCE_READS : SOURCE_IN_MEMORY,
        .count = records->count,
        .shape = records->shape,
        .classes = records->classes,
        .unshared = records->unshared,
        .in_parts = records->parts != NULL,
        .is_integer = value_is_integer(records->type),
        .is_bf16 = records->type == VALUE_BF16 && !records->begin, /* the fill may be any float */
        .hash = hash};
    *out = &self->source;
    return OK;
}
