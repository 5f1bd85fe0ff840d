#include "data/source_memory.h"

#include "base/hash.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct memory_binding {
    struct memory_binding *next;
    char name[MEMORY_NAME_MAX];
    struct memory_records records;
    atomic_uint users; /* open sources */
};

struct source_memory {
    struct source source;
    struct memory_binding *binding;
};

/* ---- names ---- */

static struct memory_binding *find_binding(const struct memory_bindings *bindings, const char *name)
{
    struct memory_binding *binding = bindings ? bindings->first : NULL;
    while (binding && strcmp(binding->name, name) != 0)
        binding = binding->next;
    return binding;
}

/* A name is written in a SPEC, in front of `?`, and in a job. */
static bool is_name(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    return n > 0 && n < MEMORY_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == n;
}

size_t memory_record_bytes(const struct memory_records *records)
{
    size_t each = records->form == RAW_FLOATS ? sizeof(float) : 1;
    return shape_count(&records->shape) * each;
}

static int check_shape(const struct memory_records *records, const char *name, struct err *err)
{
    size_t values = 1;
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

static int check_records(const struct memory_records *records, const char *name, struct err *err)
{
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

int memory_check(const struct memory_bindings *bindings, const char *name,
                 const struct memory_records *records, struct err *err)
{
    if (!is_name(name))
        return err_set(err, ERR_USAGE,
                       "memory: a name has 1 to %d letters, digits, dots, dashes or underscores",
                       MEMORY_NAME_MAX - 1);
    if (find_binding(bindings, name))
        return err_set(err, ERR_USAGE, "memory %s: this name is bound already; unbind it first",
                       name);
    if (records->classes == 0 || records->classes > LABEL_MAX)
        return err_set(err, ERR_INPUT, "memory %s: %u classes; 1 to %u may be given", name,
                       records->classes, LABEL_MAX);
    return check_shape(records, name, err);
}

int memory_bind(struct memory_bindings *bindings, const char *name,
                const struct memory_records *records, struct err *err)
{
    int rc = memory_check(bindings, name, records, err);
    if (rc == OK)
        rc = check_records(records, name, err);
    if (rc != OK)
        return rc;
    struct memory_binding *binding = calloc(1, sizeof *binding);
    if (!binding)
        return err_set(err, ERR_NOMEM, "memory %s: out of memory", name);
    memcpy(binding->name, name, strlen(name));
    binding->records = *records;
    binding->next = bindings->first;
    bindings->first = binding;
    return OK;
}

static void free_binding(struct memory_binding *binding)
{
    if (binding->records.release)
        binding->records.release(binding->records.user);
    free(binding);
}

int memory_unbind(struct memory_bindings *bindings, const char *name, struct err *err)
{
    struct memory_binding *binding = find_binding(bindings, name), **at = &bindings->first;
    if (!binding)
        return err_set(err, ERR_USAGE, "memory %.60s: no records are bound to this name", name);
    if (atomic_load(&binding->users) > 0)
        return err_set(err, ERR_USAGE, "memory %s: these records are in use", name);
    while (*at != binding)
        at = &(*at)->next;
    *at = binding->next;
    free_binding(binding);
    return OK;
}

void memory_release(struct memory_bindings *bindings)
{
    for (struct memory_binding *next; bindings->first; bindings->first = next) {
        next = bindings->first->next;
        free_binding(bindings->first);
    }
}

/* ---- the source ---- */

static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct memory_binding *binding = ((const struct source_memory *)source)->binding;
    const struct memory_records *records = &binding->records;
    const size_t *dim = source->shape.dim, bytes = memory_record_bytes(records);
    const void *at = records->values ? (const char *)records->values + i * bytes : NULL;
    if (!at) {
        void *made = scratch_get(scratch, SCRATCH_PIXELS, bytes);
        if (!made)
            return err_set(err, ERR_NOMEM, "record %zu: out of memory for %zu bytes", i, bytes);
        int rc = records->read(records->user, i, made);
        if (rc != OK)
            return err_set(err, rc == ERR_INPUT || rc == ERR_NOMEM ? rc : ERR_IO,
                           "memory %s: record %zu cannot be made: %s", binding->name, i,
                           status_text(rc));
        at = made;
    }
    *raw = (struct raw){at, records->form, dim[0], dim[1], dim[2]};
    return OK;
}

static uint32_t label_of(const struct source *source, size_t i)
{
    return ((const struct source_memory *)source)->binding->records.labels[i];
}

static void close_memory(struct source *source)
{
    struct source_memory *self = (struct source_memory *)source;
    atomic_fetch_sub(&self->binding->users, 1);
    free(self);
}

static const struct source_ops ops = {
    .kind = "memory",
    .read = read_record,
    .label = label_of,
    .close = close_memory,
};

static int hash_records(const struct memory_records *records, const struct open_watch *watch,
                        uint64_t *out, struct err *err)
{
    uint64_t labels = hash_bytes(records->labels, records->count * sizeof *records->labels);
    uint64_t values = records->hash;
    int rc = values
                 ? OK
                 : source_hash_bytes(records->values, records->count * memory_record_bytes(records),
                                     watch, &values, err);
    *out = hash_mix(values, labels);
    return rc;
}

int source_memory_open(const struct source_config *config, const char *name, struct source **out,
                       struct err *err)
{
    struct memory_binding *binding = find_binding(config->memory, name);
    if (!binding)
        return err_set(
            err, ERR_INPUT,
            "memory:%.60s: no records are bound to this name in this process; a program "
            "that uses the library binds them (pl_data_bind), and each worker has its own",
            name);
    struct source_memory *self = calloc(1, sizeof *self);
    if (!self)
        return err_set(err, ERR_NOMEM, "memory:%s: out of memory", name);
    self->binding = binding;
    self->source = (struct source){.ops = &ops,
                                   .count = binding->records.count,
                                   .shape = binding->records.shape,
                                   .classes = binding->records.classes};
    int rc = hash_records(&binding->records, config->watch, &self->source.hash, err);
    if (rc != OK) {
        free(self);
        return rc;
    }
    atomic_fetch_add(&binding->users, 1);
    *out = &self->source;
    return OK;
}
