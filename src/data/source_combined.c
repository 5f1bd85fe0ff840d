#include "data/source_combined.h"

#include "base/fault.h"
#include "base/hash.h"
#include "base/rng.h"
#include "data/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a source finds the part and the record behind number i. */
enum choice {
    CHOICE_CONCAT, /* part p has the numbers from begin[p] on */
    CHOICE_LISTED, /* those in `record` */
    CHOICE_FROM,   /* first + i, modulo the part's count */
    CHOICE_DRAWN,  /* equal chances, with replacement */
    CHOICE_ALIAS,  /* by the alias table */
    CHOICE_ORDER,  /* place i of a random order */
};

/* Walker's alias method: a column is drawn, and from it its own record or the other one. */
struct alias {
    float keeps;
    uint32_t other;
};

struct source_combined {
    struct source source; /* first */
    enum choice choice;
    struct source **part; /* owned, with the sources */
    size_t parts;
    size_t *begin;    /* of each part; owned */
    uint32_t *record; /* owned */
    struct alias *alias;
    size_t first;
    uint64_t seed;
};

static const struct source *find_record(const struct source_combined *self, size_t *i)
{
    const struct source *part = self->part[0];
    size_t n = *i;
    switch (self->choice) {
    case CHOICE_CONCAT: {
        size_t low = 0, high = self->parts;
        while (high - low > 1) {
            size_t middle = (low + high) / 2;
            *(self->begin[middle] <= n ? &low : &high) = middle;
        }
        part = self->part[low];
        *i = n - self->begin[low];
        break;
    }
    case CHOICE_LISTED: *i = self->record[n]; break;
    case CHOICE_FROM: *i = (self->first + n) % part->count; break;
    case CHOICE_DRAWN: *i = (size_t)rng_below(self->seed, RNG_SAMPLE, n, part->count); break;
    case CHOICE_ALIAS: {
        size_t column = (size_t)rng_below(self->seed, RNG_SAMPLE, 2 * n, part->count);
        const struct alias *alias = &self->alias[column];
        bool own = rng_uniform(self->seed, RNG_SAMPLE, 2 * n + 1) < alias->keeps;
        *i = own ? column : alias->other;
        break;
    }
    case CHOICE_ORDER:
        *i = sampler_at(&(struct sampler){.seed = self->seed, .n = part->count}, 0, n);
        break;
    }
    return part;
}

static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct source *part = find_record((const struct source_combined *)source, &i);
    return part->ops->read(part, i, scratch, raw, err);
}

static int read_encoded(const struct source *source, size_t i, struct scratch *scratch,
                        const uint8_t **bytes, size_t *n, struct err *err)
{
    const struct source *part = find_record((const struct source_combined *)source, &i);
    *bytes = NULL;
    return part->ops->encoded ? part->ops->encoded(part, i, scratch, bytes, n, err) : OK;
}

static void prefetch_record(const struct source *source, size_t i)
{
    const struct source *part = find_record((const struct source_combined *)source, &i);
    source_prefetch(part, i);
}

static uint32_t label_of(const struct source *source, size_t i)
{
    const struct source *part = find_record((const struct source_combined *)source, &i);
    return part->ops->label(part, i);
}

static void size_of(const struct source *source, size_t i, size_t *H, size_t *W)
{
    const struct source *part = find_record((const struct source_combined *)source, &i);
    source_size(part, i, H, W);
}

/* The part's own name of the record, with its number there. */
static void name_of(const struct source *source, size_t i, char *out, size_t room)
{
    const struct source *part = find_record((const struct source_combined *)source, &i);
    char name[SOURCE_NAME_MAX];
    snprintf(out, room, "%s", source_name(part, i, name));
}

static void free_combined(struct source_combined *self)
{
    free(self->part);
    free(self->begin);
    free(self->record);
    free(self->alias);
    free(self);
}

static void close_combined(struct source *source)
{
    struct source_combined *self = (struct source_combined *)source;
    for (size_t i = 0; i < self->parts; i++)
        source_close(self->part[i]);
    free_combined(self);
}

/* Of sources one behind the other. */
static size_t list_parts(const struct source *source, struct source_part *out, size_t most)
{
    const struct source_combined *self = (const struct source_combined *)source;
    size_t n = 0;
    for (size_t p = 0; self->choice == CHOICE_CONCAT && p < self->parts; p++) {
        if (n >= most)
            return most + 1;
        n += source_parts(self->part[p], out + n, most - n);
    }
    return n;
}

static const struct source_ops ops = {
    .kind = "combined",
    .read = read_record,
    .encoded = read_encoded,
    .prefetch = prefetch_record,
    .label = label_of,
    .size = size_of,
    .name = name_of,
    .close = close_combined,
    .parts = list_parts,
};

static int refuse_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "data: out of memory for a choice of records");
}

/* With everything of the first part but its count. NULL: no memory. */
static struct source_combined *make_combined(struct source *const *part, size_t n,
                                             enum choice choice, size_t count, struct err *err)
{
    struct source_combined *self = NULL;
    if (count == 0 || count > UINT32_MAX) {
        err_set(err, ERR_INPUT, "data: %zu records; 1 to %u may be chosen", count, UINT32_MAX);
        return NULL;
    }
    self = calloc(1, sizeof *self);
    struct source **own = self ? calloc(n, sizeof(struct source *)) : NULL;
    if (!own) {
        free(self);
        refuse_memory(err);
        return NULL;
    }
    memcpy(own, part, n * sizeof(struct source *));
    *self = (struct source_combined){.source = *part[0], .choice = choice, .part = own, .parts = n};
    self->source.ops = &ops;
    self->source.count = count;
    self->source.warning[0] = '\0';
    self->source.hash = hash_mix(hash_mix(0, choice), count);
    for (size_t i = 0; i < n; i++)
        self->source.hash = hash_mix(self->source.hash, part[i]->hash);
    return self;
}

/* ---- all of some ---- */

/* Records of different sizes have no common shape. */
static int join_shape(struct source *to, const struct source *part, size_t number, struct err *err)
{
    if (to->shape.dim[0] != part->shape.dim[0])
        return err_set(err, ERR_INPUT,
                       "data: records of part %zu have %zu channels, those of part 0 have %zu",
                       number, part->shape.dim[0], to->shape.dim[0]);
    if ((to->classes > 0) != (part->classes > 0))
        return err_set(err, ERR_INPUT,
                       "data: of part %zu and part 0 one has labels, and one has not", number);
    if (!fields_equal(&to->fields, &part->fields))
        return err_set(err, ERR_INPUT, "data: records of part %zu have other fields than part 0",
                       number);
    if (part->reading == SOURCE_DRAWS || to->reading == SOURCE_IN_MEMORY)
        to->reading = part->reading;
    to->is_bf16 = to->is_bf16 && part->is_bf16;
    to->depth = part->depth > to->depth ? part->depth : to->depth;
    if (!shape_equal(&to->shape, &part->shape))
        to->shape.dim[1] = to->shape.dim[2] = 0;
    to->classes = part->classes > to->classes ? part->classes : to->classes;
    return OK;
}

int source_concat(struct source *const *part, size_t n, struct source **out, struct err *err)
{
    size_t count = 0;
    PL_ASSERT(n > 0);
    for (size_t i = 0; i < n; i++)
        count += part[i]->count; /* each fits 32 bits */
    struct source_combined *self = make_combined(part, n, CHOICE_CONCAT, count, err);
    if (!self)
        return err->status;
    self->begin = calloc(n, sizeof *self->begin);
    int rc = self->begin ? OK : refuse_memory(err);
    for (size_t i = 0, begin = 0; rc == OK && i < n; begin += part[i++]->count) {
        self->begin[i] = begin;
        rc = join_shape(&self->source, part[i], i, err);
    }
    if (rc == OK)
        *out = &self->source;
    else
        free_combined(self);
    return rc;
}

int source_repeat(struct source *of, uint32_t times, struct source **out, struct err *err)
{
    struct source_combined *self =
        make_combined(&of, 1, CHOICE_FROM, of->count * (size_t)times, err);
    if (self)
        *out = &self->source;
    return self ? OK : err->status;
}

int source_shard(struct source *whole, uint32_t index, uint32_t of, struct source **out,
                 struct err *err)
{
    if (index >= of)
        return err_set(err, ERR_INPUT, "data: part %u of %u: there is no such part", index, of);
    size_t n = whole->count, from = n * index / of, end = n * (index + 1) / of;
    struct source_combined *self = make_combined(&whole, 1, CHOICE_FROM, end - from, err);
    if (!self)
        return err->status;
    self->first = from;
    self->source.hash = hash_mix(self->source.hash, from);
    *out = &self->source;
    return OK;
}

int source_subset(struct source *of, const uint32_t *records, size_t count, struct source **out,
                  struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (records[i] >= of->count)
            return err_set(err, ERR_INPUT, "data: record %" PRIu32 " is chosen, of %zu records",
                           records[i], of->count);
    struct source_combined *self = make_combined(&of, 1, CHOICE_LISTED, count, err);
    if (!self)
        return err->status;
    self->record = malloc(count * sizeof *self->record);
    if (!self->record) {
        free_combined(self);
        return refuse_memory(err);
    }
    memcpy(self->record, records, count * sizeof *self->record);
    self->source.hash = hash_mix(self->source.hash, hash_bytes(records, count * sizeof *records));
    *out = &self->source;
    return OK;
}

/* ---- samples ---- */

static int check_weights(const struct source *of, const double *weights, double *sum,
                         size_t *possible, struct err *err)
{
    *sum = 0;
    *possible = 0;
    for (size_t i = 0; i < of->count; i++) {
        if (!(weights[i] >= 0) || !isfinite(weights[i]))
            return err_set(err, ERR_INPUT, "data: the weight of record %zu is %g", i, weights[i]);
        *sum += weights[i];
        *possible += weights[i] > 0;
    }
    return *sum > 0 && isfinite(*sum)
               ? OK
               : err_set(err, ERR_INPUT, "data: the weights of all records add up to %g", *sum);
}

/* Vose's way to fill Walker's table: a column below the mean is filled up by one above it. */
static bool fill_alias(struct alias *alias, const double *weights, size_t n, double sum)
{
    double *scaled = malloc(n * sizeof *scaled);
    uint32_t *open =
        malloc(n * sizeof *open); /* the low ones from the front, others from the end */
    size_t low = 0, high = n;
    for (size_t i = 0; scaled && open && i < n; i++) {
        scaled[i] = weights[i] / sum * (double)n;
        alias[i] = (struct alias){1, (uint32_t)i};
        open[scaled[i] < 1 ? low++ : --high] = (uint32_t)i;
    }
    while (scaled && open && low > 0 && high < n) {
        uint32_t less = open[--low], more = open[high];
        alias[less] = (struct alias){(float)scaled[less], more};
        scaled[more] -= 1 - scaled[less];
        if (scaled[more] < 1) {
            high++;
            open[low++] = more;
        }
    }
    bool done = scaled && open;
    free(scaled);
    free(open);
    return done;
}

struct keyed {
    double key;
    uint32_t record;
};

static int compare_keys(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    return x->record < y->record ? -1 : x->record > y->record;
}

/* The records with the largest u^(1/w), by logarithms, in that order. */
static int choose_weighted(struct source_combined *self, const double *weights, struct err *err)
{
    size_t n = self->part[0]->count, count = self->source.count;
    struct keyed *keyed = malloc(n * sizeof *keyed);
    self->record = malloc(count * sizeof *self->record);
    if (!keyed || !self->record) {
        free(keyed);
        return refuse_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        double u = ((double)(rng_u64(self->seed, RNG_SAMPLE, i) >> 11) + 1) * 0x1p-53;
        keyed[i] = (struct keyed){weights[i] > 0 ? log(u) / weights[i] : -INFINITY, (uint32_t)i};
    }
    qsort(keyed, n, sizeof *keyed, compare_keys);
    for (size_t i = 0; i < count; i++)
        self->record[i] = keyed[i].record;
    free(keyed);
    return OK;
}

/* Of each class its share, rounded so that the shares add up to the count: the records come first
 * that a random order puts first in their class. */
static int choose_stratified(struct source_combined *self, struct err *err)
{
    const struct source *of = self->part[0];
    size_t n = of->count, count = self->source.count, found = 0, before = 0;
    if (of->classes == 0)
        return err_set(err, ERR_INPUT,
                       "data: a stratified sample needs labels, and there are none");
    size_t *quota = calloc(of->classes, sizeof *quota);
    self->record = malloc(count * sizeof *self->record);
    if (!quota || !self->record) {
        free(quota);
        return refuse_memory(err);
    }
    for (size_t i = 0; i < n; i++)
        quota[of->ops->label(of, i)]++;
    for (size_t c = 0, upto = 0; c < of->classes; c++) { /* round the running total */
        upto += quota[c];
        size_t total = (size_t)((double)upto * (double)count / (double)n + 0.5);
        quota[c] = total - before;
        before = total;
    }
    for (size_t place = 0; place < n && found < count; place++) {
        size_t i = sampler_at(&(struct sampler){.seed = self->seed, .n = n}, 0, place);
        uint32_t label = of->ops->label(of, i);
        if (quota[label] == 0)
            continue;
        quota[label]--;
        self->record[found++] = (uint32_t)i;
    }
    PL_ASSERT(found == count);
    free(quota);
    return OK;
}

static enum choice choice_of(const struct sample_config *config)
{
    if (config->stratified || (config->weights && !config->replacement))
        return CHOICE_LISTED;
    if (config->replacement)
        return config->weights ? CHOICE_ALIAS : CHOICE_DRAWN;
    return CHOICE_ORDER;
}

int source_sample(struct source *of, const struct sample_config *config, struct source **out,
                  struct err *err)
{
    double sum = 0;
    size_t possible = of->count;
    if (config->stratified && (config->weights || config->replacement))
        return err_set(err, ERR_INPUT,
                       "data: a stratified sample has neither weights nor replacement");
    int rc = config->weights ? check_weights(of, config->weights, &sum, &possible, err) : OK;
    if (rc == OK && !config->replacement && config->count > possible)
        rc =
            err_set(err, ERR_INPUT, "data: %zu records are to be drawn without replacement, of %zu",
                    config->count, possible);
    struct source_combined *self =
        rc == OK ? make_combined(&of, 1, choice_of(config), config->count, err) : NULL;
    if (!self)
        return err->status;
    self->seed = config->seed;
    self->source.hash = hash_mix(self->source.hash, config->seed);
    if (config->weights)
        self->source.hash = hash_mix(
            self->source.hash, hash_bytes(config->weights, of->count * sizeof *config->weights));
    if (self->choice == CHOICE_ALIAS) {
        self->alias = malloc(of->count * sizeof *self->alias);
        if (!self->alias || !fill_alias(self->alias, config->weights, of->count, sum))
            rc = refuse_memory(err);
    } else if (config->stratified) {
        rc = choose_stratified(self, err);
    } else if (self->choice == CHOICE_LISTED) {
        rc = choose_weighted(self, config->weights, err);
    }
    if (rc == OK)
        *out = &self->source;
    else
        free_combined(self);
    return rc;
}
