#include "data/source_npy.h"

#include "base/hash.h"
#include "data/npy_array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HASHED_BYTES = 1 << 16 }; /* at each end of the values */

struct source_npy {
    struct source source; /* first */
    struct npy values;
    enum value_type type;
    uint32_t *labels; /* NULL: there are none */
};

/* ---- values ---- */

static int find_type(struct source_npy *self, struct err *err)
{
    static const struct {
        char kind;
        size_t bytes;
        enum value_type type;
    } types[] = {
        {'u', 1, VALUE_U8},  {'b', 1, VALUE_U8},  {'f', 4, VALUE_F32},
        {'i', 2, VALUE_I16}, {'u', 2, VALUE_U16}, {'i', 4, VALUE_I32},
        {'u', 4, VALUE_U32}, {'i', 8, VALUE_I64}, {'u', 8, VALUE_I64},
    };
    const struct npy *npy = &self->values;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].kind == npy->kind && types[i].bytes == npy->bytes) {
            self->type = types[i].type;
            self->source.is_integer = value_is_integer(self->type);
            return OK;
        }
    return err_set(err, ERR_INPUT,
                   "%s: values are uint8, float32, or integers of 16 to 64 bits; save it so: "
                   "x.astype('float32')",
                   npy->path);
}

/* (N, C, H, W), (N, H, W), (N, C) or (N), and with more dimensions one vector of all values. */
static struct shape record_shape(const struct npy *npy)
{
    const size_t *d = npy->dim + 1;
    switch (npy->dims) {
    case 1: return (struct shape){3, {1, 1, 1}};
    case 2: return (struct shape){3, {d[0], 1, 1}};
    case 3: return (struct shape){3, {1, d[0], d[1]}};
    case 4: return (struct shape){3, {d[0], d[1], d[2]}};
    default: break;
    }
    struct shape shape = {.n = npy->dims - 1};
    memcpy(shape.dim, d, shape.n * sizeof *d);
    return (struct shape){3, {shape_count(&shape), 1, 1}};
}

static int check_values(const struct npy *npy, struct source *source, struct err *err)
{
    struct shape shape = record_shape(npy);
    size_t values = shape_count(&shape);
    if (npy->dim[0] > UINT32_MAX)
        return err_set(err, ERR_INPUT, "%s: %zu records, at most %u", npy->path, npy->dim[0],
                       UINT32_MAX);
    if (values == 0 || values > RECORD_VALUES_MAX || shape.dim[1] > SIDE_MAX ||
        shape.dim[2] > SIDE_MAX)
        return err_set(err, ERR_INPUT,
                       "%s: records of %zu x %zu x %zu values; a side has at most %d, a record "
                       "%zu values",
                       npy->path, shape.dim[0], shape.dim[1], shape.dim[2], SIDE_MAX,
                       RECORD_VALUES_MAX);
    source->count = npy->dim[0];
    source->shape = shape;
    return OK;
}

/* Integers become floats. */
static int convert_values(const struct source_npy *self, size_t i, size_t n,
                          struct scratch *scratch, const void **at, struct err *err)
{
    float *x = scratch_get(scratch, SCRATCH_PIXELS, n * sizeof *x);
    if (!x)
        return err_set(err, ERR_NOMEM, "%s: record %zu: out of memory", self->values.path, i);
    size_t done = values_to_floats(self->type, *at, n, x);
    if (done < n)
        return err_set(err, ERR_INPUT, "%s: record %zu: value %zu is beyond +-%d",
                       self->values.path, i, done, INTEGER_MAX);
    *at = x;
    return OK;
}

static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct source_npy *self = (const struct source_npy *)source;
    const struct npy *npy = &self->values;
    const size_t *dim = source->shape.dim, n = dim[0] * dim[1] * dim[2], bytes = n * npy->bytes;
    void *read = scratch_get(scratch, SCRATCH_FILE, bytes);
    if (!read)
        return err_set(err, ERR_NOMEM, "%s: record %zu: out of memory", npy->path, i);
    int rc = npy_part(npy, npy->begin + (uint64_t)i * bytes, read, bytes);
    if (rc != OK)
        return err_set(err, rc, "%s: record %zu cannot be read; the file has changed", npy->path,
                       i);
    const void *at = read;
    if (value_is_integer(self->type))
        rc = convert_values(self, i, n, scratch, &at, err);
    *raw = (struct raw){
        at, self->type == VALUE_U8 ? RAW_PLANES : RAW_FLOATS, dim[0], dim[1], dim[2], 0};
    return rc;
}

/* Large files are not read whole. */
static int hash_values(const struct npy *npy, uint64_t *hash, struct err *err)
{
    static const size_t end = HASHED_BYTES;
    uint64_t len = npy->len - npy->begin;
    size_t n = len < end ? (size_t)len : end;
    uint8_t *bytes = malloc(end);
    if (!bytes)
        return err_set(err, ERR_NOMEM, "%s: out of memory", npy->path);
    int rc = npy_part(npy, npy->begin, bytes, n);
    *hash = hash_mix(hash_mix(npy->hash, npy->len), hash_bytes(bytes, n));
    if (rc == OK)
        rc = npy_part(npy, npy->len - n, bytes, n);
    *hash = hash_mix(*hash, hash_bytes(bytes, n));
    free(bytes);
    return rc == OK ? OK : err_set(err, rc, "%s: cannot be read", npy->path);
}

/* ---- labels ---- */

/* A number below LABEL_MAX, or a larger one for what is no label. */
static uint32_t label_at(const struct npy *npy, const uint8_t *at)
{
    uint64_t value = 0;
    int64_t sign = 0;
    for (size_t i = npy->bytes; i-- > 0;) {
        uint8_t byte = at[i];
        if (i == npy->bytes - 1 && npy->kind == 'i' && byte & 0x80)
            sign = -1;
        value = value << 8 | byte;
    }
    return sign < 0 || value >= LABEL_MAX ? UINT32_MAX : (uint32_t)value;
}

static int take_labels(struct source_npy *self, const struct npy *npy, const uint8_t *bytes,
                       struct err *err)
{
    uint32_t top = 0;
    for (size_t i = 0; i < self->source.count; i++) {
        uint32_t label = label_at(npy, bytes + i * npy->bytes);
        if (label == UINT32_MAX)
            return err_set(err, ERR_INPUT, "%s: label %zu is negative, or not below %u", npy->path,
                           i, LABEL_MAX);
        self->labels[i] = label;
        top = label > top ? label : top;
    }
    self->source.classes = top + 1;
    return OK;
}

/* "2 x 3" */
static const char *dims_text(const struct npy *npy, char text[128])
{
    int at = 0;
    text[0] = 0;
    for (size_t i = 0; i < npy->dims && at < 128; i++)
        at += snprintf(text + at, (size_t)(128 - at), i ? " x %zu" : "%zu", npy->dim[i]);
    return text;
}

static int read_labels(struct source_npy *self, const struct npy *npy, struct err *err)
{
    size_t count = self->source.count, n = count * npy->bytes;
    if (npy->kind == 'f')
        return err_set(err, ERR_INPUT, "%s: labels are integers; save it so: y.astype('int64')",
                       npy->path);
    char shape[128];
    if (npy->dims > 2 || (npy->dims == 2 && npy->dim[1] != 1) || npy->dim[0] != count)
        return err_set(err, ERR_INPUT,
                       "%s: %s labels; %zu labels are expected, one for each record of %s",
                       npy->path, dims_text(npy, shape), count, self->values.path);
    self->labels = malloc(count * sizeof *self->labels);
    uint8_t *bytes = malloc(n);
    if (!self->labels || !bytes) {
        free(bytes);
        return err_set(err, ERR_NOMEM, "%s: out of memory for %zu labels", npy->path, count);
    }
    int rc = npy_part(npy, npy->begin, bytes, n);
    rc = rc == OK ? take_labels(self, npy, bytes, err)
                  : err_set(err, rc, "%s: cannot be read", npy->path);
    free(bytes);
    return rc;
}

/* ---- the source ---- */

static uint32_t label_of(const struct source *source, size_t i)
{
    const struct source_npy *self = (const struct source_npy *)source;
    return self->labels ? self->labels[i] : 0;
}

static void close_source(struct source *source)
{
    struct source_npy *self = (struct source_npy *)source;
    npy_close(&self->values);
    free((char *)(uintptr_t)self->values.path);
    free(self->labels);
    free(self);
}

static const struct source_ops ops = {
    .kind = "npy",
    .read = read_record,
    .label = label_of,
    .close = close_source,
};

static int load_arrays(const struct source_config *config, const Paceline__Data__Npy *spec,
                       struct source_npy *self, struct err *err)
{
    struct npy labels;
    char *path = strdup(spec->values); /* messages of later reads name it */
    if (!path)
        return err_set(err, ERR_NOMEM, "%s: out of memory", spec->values);
    int rc = npy_open(config, path, &self->values, err);
    if (rc == OK)
        rc = find_type(self, err);
    if (rc == OK)
        rc = check_values(&self->values, &self->source, err);
    if (self->values.unpacked)
        self->source.reading = SOURCE_IN_MEMORY;
    if (rc == OK)
        rc = hash_values(&self->values, &self->source.hash, err);
    if (rc != OK || !spec->labels || !*spec->labels)
        return rc;
    rc = npy_open(config, spec->labels, &labels, err);
    if (rc == OK)
        rc = read_labels(self, &labels, err);
    npy_close(&labels);
    if (rc == OK)
        self->source.hash = hash_mix(
            self->source.hash, hash_bytes(self->labels, self->source.count * sizeof *self->labels));
    return rc;
}

int source_npy_open(const struct source_config *config, const Paceline__Data__Npy *spec,
                    struct source **out, struct err *err)
{
    struct source_npy *self = calloc(1, sizeof *self);
    if (!self)
        return err_set(err, ERR_NOMEM, "%s: out of memory", spec->values);
    self->source.ops = &ops;
    int rc = load_arrays(config, spec, self, err);
    if (rc != OK) {
        close_source(&self->source);
        return rc;
    }
    *out = &self->source;
    return OK;
}
