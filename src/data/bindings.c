#include "data/bindings.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct binding {
    struct binding *next;
    char name[BINDING_NAME_MAX];
    struct source *source;
    atomic_uint users; /* open sources of this name */
};

/* An open source of a name. */
struct source_bound {
    struct source source; /* first; as the binding's, but for its operations */
    struct binding *binding;
};

static struct binding *find_binding(const struct bindings *bindings, const char *name)
{
    struct binding *binding = bindings ? bindings->first : NULL;
    while (binding && strcmp(binding->name, name) != 0)
        binding = binding->next;
    return binding;
}

/* A name is written in a SPEC, in front of `?`, and in a job. */
static bool is_name(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    return n > 0 && n < BINDING_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == n;
}

int bindings_check(const struct bindings *bindings, const char *name, struct err *err)
{
    if (!is_name(name))
        return err_set(err, ERR_USAGE,
                       "memory: a name has 1 to %d letters, digits, dots, dashes or underscores",
                       BINDING_NAME_MAX - 1);
    return find_binding(bindings, name)
               ? err_set(err, ERR_USAGE, "memory %s: this name is bound already; unbind it first",
                         name)
               : OK;
}

int bindings_add(struct bindings *bindings, const char *name, struct source *source,
                 struct err *err)
{
    struct binding *binding = calloc(1, sizeof *binding);
    if (!binding)
        return err_set(err, ERR_NOMEM, "memory %s: out of memory", name);
    memcpy(binding->name, name, strlen(name));
    binding->source = source;
    binding->next = bindings->first;
    bindings->first = binding;
    return OK;
}

static void free_binding(struct binding *binding)
{
    source_close(binding->source);
    free(binding);
}

int bindings_remove(struct bindings *bindings, const char *name, struct err *err)
{
    struct binding *binding = find_binding(bindings, name), **at = &bindings->first;
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

/* The newest first: it may read one that was bound before. */
void bindings_release(struct bindings *bindings)
{
    for (struct binding *next; bindings->first; bindings->first = next) {
        next = bindings->first->next;
        free_binding(bindings->first);
    }
}

/* ---- the source of a name ---- */

static const struct source *bound_to(const struct source *source)
{
    return ((const struct source_bound *)source)->binding->source;
}

static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    return bound_to(source)->ops->read(bound_to(source), i, scratch, raw, err);
}

static void prefetch_record(const struct source *source, size_t i)
{
    source_prefetch(bound_to(source), i);
}

static uint32_t label_of(const struct source *source, size_t i)
{
    return bound_to(source)->ops->label(bound_to(source), i);
}

static void size_of(const struct source *source, size_t i, size_t *H, size_t *W)
{
    source_size(bound_to(source), i, H, W);
}

static size_t parts_of(const struct source *source, struct source_part *out, size_t most)
{
    size_t n = source_parts(bound_to(source), out, most), left = source->count;
    for (size_t i = 0; i < n; i++) { /* those that had arrived */
        if (i > 0 && left == 0)
            return i;
        out[i].count = out[i].count < left ? out[i].count : left;
        left -= out[i].count;
    }
    return n;
}

static size_t count_arrived(const struct source *source, bool *more)
{
    *more = false;
    return bound_to(source)->ops->arrived ? bound_to(source)->ops->arrived(bound_to(source), more)
                                          : source->count;
}

static void close_bound(struct source *source)
{
    struct source_bound *self = (struct source_bound *)source;
    atomic_fetch_sub(&self->binding->users, 1);
    free(self);
}

static const struct source_ops ops = {
    .kind = "memory",
    .read = read_record,
    .prefetch = prefetch_record,
    .label = label_of,
    .size = size_of,
    .parts = parts_of,
    .arrived = count_arrived,
    .close = close_bound,
};

size_t bindings_arrived(const struct bindings *bindings, const char *name, bool *more)
{
    const struct binding *binding = find_binding(bindings, name);
    *more = false;
    if (!binding)
        return 0;
    return binding->source->ops->arrived ? binding->source->ops->arrived(binding->source, more)
                                         : binding->source->count;
}

int bindings_open(const struct source_config *config, const char *name, struct source **out,
                  struct err *err)
{
    struct binding *binding = find_binding(config->bindings, name);
    if (!binding)
        return err_set(
            err, ERR_INPUT,
            "memory:%.60s: no records are bound to this name in this process; a program "
            "that uses the library binds them (pl_data_bind), and each worker has its own",
            name);
    struct source_bound *self = calloc(1, sizeof *self);
    if (!self)
        return err_set(err, ERR_NOMEM, "memory:%s: out of memory", name);
    self->binding = binding;
    self->source = *binding->source;
    self->source.ops = &ops;
    atomic_fetch_add(&binding->users, 1);
    bool more;
    self->source.count = count_arrived(&self->source, &more);
    if (self->source.count == 0) {
        close_bound(&self->source);
        return err_set(err, ERR_INPUT, "memory:%s: no record has arrived%s", name,
                       more ? " yet" : "");
    }
    *out = &self->source;
    return OK;
}
