#include "data/source_zip.h"

#include "base/fault.h"
#include "base/hash.h"
#include "data/source_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct source_zip {
    struct source source; /* first */
    const struct source *labels;
    struct source **part; /* owned, with the sources */
    size_t parts;
};

/* ---- reading ---- */

/* The parts read into the scratch one after another; the record has a place of its own, by its
 * depth. */
static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct source_zip *self = (const struct source_zip *)source;
    float *x =
        scratch_get(scratch, SCRATCH_MADE + source->depth - 1, source->shape.dim[0] * sizeof *x);
    if (!x)
        return err_set(err, ERR_NOMEM, "record %zu: out of memory", i);
    *raw = (struct raw){x, RAW_FLOATS, source->shape.dim[0], 1, 1, 0};
    scratch->want = NULL;
    for (size_t k = 0; k < self->parts; k++) {
        const struct source *part = self->part[k];
        struct raw values;
        int rc = part->ops->read(part, i, scratch, &values, err);
        if (rc != OK)
            return rc;
        PL_ASSERT(values.C * values.H * values.W == shape_count(&part->shape));
        raw_floats(&values, x);
        x += shape_count(&part->shape);
    }
    return OK;
}

static void prefetch_record(const struct source *source, size_t i)
{
    const struct source_zip *self = (const struct source_zip *)source;
    for (size_t k = 0; k < self->parts; k++)
        source_prefetch(self->part[k], i);
}

static uint32_t label_of(const struct source *source, size_t i)
{
    const struct source *part = ((const struct source_zip *)source)->labels;
    return part->ops->label(part, i);
}

static void name_of(const struct source *source, size_t i, char *out, size_t room)
{
    char name[SOURCE_NAME_MAX];
    snprintf(out, room, "%s", source_name(((const struct source_zip *)source)->part[0], i, name));
}

static void close_zip(struct source *source)
{
    struct source_zip *self = (struct source_zip *)source;
    for (size_t k = 0; k < self->parts; k++)
        source_close(self->part[k]);
    free(self->part);
    free(self);
}

static const struct source_ops ops = {
    .kind = "zip",
    .read = read_record,
    .prefetch = prefetch_record,
    .label = label_of,
    .name = name_of,
    .close = close_zip,
};

/* ---- its fields ---- */

static int add_field(struct source *to, const struct field *field, struct err *err)
{
    struct fields *fields = &to->fields;
    size_t name = strlen(field->name);
    if (name == 0 || strcmp(field->name, "label") == 0)
        return err_set(err, ERR_INPUT, "zip: \"%s\" is no name of a field", field->name);
    for (size_t k = 0; k < fields->n; k++)
        if (strcmp(fields->field[k].name, field->name) == 0)
            return err_set(err, ERR_INPUT, "zip: field \"%s\" is there twice", field->name);
    if (fields->n == FIELDS_MAX)
        return err_set(err, ERR_INPUT, "zip: more than %d fields", FIELDS_MAX);
    fields->field[fields->n] = *field;
    fields->field[fields->n++].from = to->shape.dim[0];
    to->shape.dim[0] += shape_count(&field->shape);
    to->hash = hash_mix(to->hash, hash_bytes(field->name, name));
    for (size_t k = 0; k < field->shape.n; k++)
        to->hash = hash_mix(to->hash, field->shape.dim[k]);
    return OK;
}

static struct shape own_shape(const struct source *part)
{
    const size_t *dim = part->shape.dim;
    return dim[1] == 1 && dim[2] == 1 ? (struct shape){1, {dim[0]}} : part->shape;
}

static int add_part(struct source *to, const struct zip_field *from, struct err *err)
{
    const struct source *part = from->part;
    struct field field = {.shape = from->shape.n > 0 ? from->shape : own_shape(part),
                          .is_integer = part->is_integer};
    char a[64], b[64];
    int rc = OK;
    if (part->count != to->count)
        return err_set(err, ERR_INPUT, "zip: %zu records of \"%s\", and %zu of the first field",
                       part->count, from->name ? from->name : "", to->count);
    if (part->shape.dim[1] == 0)
        return err_set(err, ERR_INPUT, "zip: records of \"%s\" are of several sizes",
                       from->name ? from->name : "");
    for (size_t k = 0; rc == OK && !from->name && k < part->fields.n; k++)
        rc = add_field(to, &part->fields.field[k], err);
    if (!from->name && part->fields.n > 0)
        return rc;
    if (!from->name || strlen(from->name) >= sizeof field.name)
        return err_set(err, ERR_INPUT, "zip: a field has a name of 1 to %zu bytes",
                       sizeof field.name - 1);
    memcpy(field.name, from->name, strlen(from->name) + 1);
    if (shape_count(&field.shape) != shape_count(&part->shape))
        return err_set(err, ERR_INPUT, "zip: \"%s\" is %s, and its records are %s", field.name,
                       shape_text(&field.shape, a, sizeof a),
                       shape_text(&part->shape, b, sizeof b));
    return add_field(to, &field, err);
}

static int check_size(const struct source *to, struct err *err)
{
    if (to->depth > DEPTH_MAX)
        return source_refuse_depth(err);
    if (to->shape.dim[0] > RECORD_VALUES_MAX)
        return err_set(err, ERR_INPUT, "zip: a record has %zu values, at most %zu",
                       to->shape.dim[0], RECORD_VALUES_MAX);
    return OK;
}

int source_zip(const struct zip_field *field, size_t n, struct source **out, struct err *err)
{
    PL_ASSERT(n > 0);
    struct source_zip *self = calloc(1, sizeof *self);
    struct source **part = calloc(n, sizeof(struct source *));
    int rc = self && part ? OK : err_set(err, ERR_NOMEM, "zip: out of memory");
    if (rc == OK) {
        self->source =
            (struct source){.ops = &ops, .count = field[0].part->count, .shape = {3, {0, 1, 1}}};
        self->part = part;
        self->parts = n;
        self->labels = field[0].part;
        self->source.reading = SOURCE_IN_MEMORY;
    }
    for (size_t k = 0; rc == OK && k < n; k++) {
        part[k] = field[k].part;
        if (self->labels->classes == 0)
            self->labels = part[k];
        self->source.hash = hash_mix(self->source.hash, part[k]->hash);
        if (part[k]->reading == SOURCE_DRAWS || self->source.reading == SOURCE_IN_MEMORY)
            self->source.reading = part[k]->reading;
        if (!self->source.warning[0])
            memcpy(self->source.warning, part[k]->warning, sizeof part[k]->warning);
        if (part[k]->depth + 1 > self->source.depth)
            self->source.depth = part[k]->depth + 1;
        rc = add_part(&self->source, &field[k], err);
        if (rc == OK)
            rc = check_size(&self->source, err);
    }
    if (rc != OK) {
        free(part);
        free(self);
        return rc;
    }
    self->source.classes = self->labels->classes;
    *out = &self->source;
    return OK;
}

const struct source *source_zip_part(const struct source *source, size_t k)
{
    const struct source_zip *self = (const struct source_zip *)source;
    return source->ops == &ops && k < self->parts ? self->part[k] : NULL;
}

/* ---- of a job ---- */

static int open_field(const struct source_config *config, const Paceline__Data__Field *spec,
                      struct zip_field *out, struct err *err)
{
    PL_ASSERT(spec->n_dim < SHAPE_DIMS_MAX);
    *out = (struct zip_field){.name = spec->name, .shape = {.n = spec->n_dim}};
    for (size_t d = 0; d < spec->n_dim; d++)
        out->shape.dim[d] = spec->dim[d];
    return source_field_open(config, spec->data, &out->part, err);
}

int source_zip_open(const struct source_config *config, const Paceline__Data__Zip *spec,
                    struct source **out, struct err *err)
{
    struct zip_field field[FIELDS_MAX];
    size_t n = 0;
    int rc = OK;
    PL_ASSERT(spec->n_field > 0 && spec->n_field <= FIELDS_MAX);
    while (rc == OK && n < spec->n_field) {
        rc = open_field(config, spec->field[n], &field[n], err);
        if (rc == OK)
            n++;
        else if (rc != ERR_CANCELLED)
            err_prefix(err, "zip.field[%zu]", n);
    }
    if (rc == OK)
        rc = source_zip(field, n, out, err);
    while (rc != OK && n > 0)
        source_close(field[--n].part);
    return rc;
}
