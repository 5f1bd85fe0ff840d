#include "data/dataset.h"

#include "base/fault.h"
#include "base/hash.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

int dataset_init(struct dataset *set, const struct source *source, const Paceline__Data *spec,
                 struct err *err)
{
    struct dataset made = {.source = source, .count = source->count, .streams = spec->streams};
    int rc = maps_init(&made.maps, spec, source, &made.shape, err);
    if (rc == OK)
        *set = made;
    return rc;
}

void dataset_release(struct dataset *set)
{
    maps_release(&set->maps);
    free(set->choice);
    *set = (struct dataset){0};
}

struct sampler dataset_sampler(const struct dataset *set, uint64_t seed)
{
    return (struct sampler){.seed = seed, .n = set->count, .streams = set->streams};
}

uint64_t dataset_hash(const struct dataset *set)
{
    uint64_t mean = set->maps.mean_hash;
    return mean ? hash_mix(set->source->hash, mean) : set->source->hash;
}

static uint64_t mix_shape(uint64_t hash, const struct shape *shape)
{
    for (size_t i = 0; i < shape->n; i++)
        hash = hash_mix(hash, shape->dim[i]);
    return hash_mix(hash, shape->n);
}

uint64_t dataset_schema(const struct dataset *set)
{
    const struct fields *fields = &set->source->fields;
    uint64_t hash = mix_shape(set->maps.mean_hash, &set->shape);
    hash = hash_mix(hash, set->source->is_integer);
    for (size_t i = 0; i < fields->n; i++) {
        const struct field *field = &fields->field[i];
        hash = hash_mix(hash, hash_bytes(field->name, strlen(field->name)));
        hash = mix_shape(hash_mix(hash, field->is_integer), &field->shape);
    }
    return hash;
}

static int read_record(const struct dataset *set, size_t n, const struct dataset_draw *draw,
                       struct scratch *scratch, float *x, uint32_t *label, uint64_t *record,
                       struct err *err)
{
    const struct source *source = set->source;
    struct maps_draw drawn;
    if (draw)
        drawn = (struct maps_draw){draw->seed, draw->epoch, n};
    struct raw raw;
    scratch->draw = draw;
    int rc = maps_read(&set->maps, source, n, draw ? &drawn : NULL, scratch, &raw, err);
    if (rc != OK)
        return rc;
    *label = source->ops->label(source, n);
    *record = n;
    if (maps_apply(&set->maps, &raw, draw ? &drawn : NULL, scratch, x) != OK)
        return err_set(err, ERR_NOMEM, "data: out of memory for record %zu", n);
    return OK;
}

int dataset_read(const struct dataset *set, size_t i, const struct dataset_draw *draw,
                 struct scratch *scratch, float *x, uint32_t *label, uint64_t *record,
                 struct err *err)
{
    PL_ASSERT(i < set->count);
    for (size_t tried = 0; tried < set->count; tried++) {
        size_t n = set->choice ? set->choice[i] : i;
        struct err why;
        if (!set->bad)
            return read_record(set, n, draw, scratch, x, label, record, err);
        if (!bad_records_have(set->bad, set->of, n)) {
            int rc = read_record(set, n, draw, scratch, x, label, record, &why);
            if (rc == OK)
                return OK;
            if (rc != ERR_INPUT)
                return err_set(err, rc, "%s", why.text);
            rc = bad_records_add(set->bad, set->of, n, why.text, err);
            if (rc != OK)
                return rc;
        }
        i = i + 1 < set->count ? i + 1 : 0;
    }
    return err_set(err, ERR_INPUT, "none of the %zu records can be read; first: %s", set->count,
                   bad_records_at(set->bad, 0)->cause);
}

void dataset_label(const struct dataset *set, size_t i, uint32_t *label, uint64_t *record)
{
    PL_ASSERT(i < set->count && !set->bad);
    *record = set->choice ? set->choice[i] : i;
    *label = set->source->ops->label(set->source, *record);
}

void dataset_prefetch(const struct dataset *set, size_t i)
{
    PL_ASSERT(i < set->count);
    source_prefetch(set->source, set->choice ? set->choice[i] : i);
}

/* Quotas of a split: by class, the existing records and those to take. */
struct quota {
    size_t *have, *take;
};

/* An equal share for every class that occurs; the remainder goes to classes drawn by the seed, one
 * record each. Every class keeps a record to train on. */
static int quota_share(const struct quota *quota, uint32_t classes, uint32_t held, uint64_t seed,
                       struct err *err)
{
    size_t present = 0;
    for (uint32_t c = 0; c < classes; c++)
        present += quota->have[c] > 0;
    size_t share = held / present, extra = held % present;
    for (uint32_t c = 0; c < classes; c++) {
        if (quota->have[c] == 0)
            continue;
        if (quota->have[c] <= share)
            return err_set(err, ERR_INPUT,
                           "validation: %u held out are %zu a class or more, but class %u has %zu "
                           "records and must keep one",
                           held, share, c, quota->have[c]);
        quota->take[c] = share;
    }
    struct sampler order = {.seed = rng_u64(seed, RNG_SPLIT, UINT64_MAX), .n = classes};
    for (size_t place = 0; place < classes && extra > 0; place++) {
        size_t c = sampler_at(&order, 0, place);
        if (quota->have[c] <= share + 1)
            continue;
        quota->take[c]++;
        extra--;
    }
    if (extra > 0)
        return err_set(err, ERR_INPUT,
                       "validation: %u held out are %zu more than %zu a class, which no class can "
                       "give",
                       held, extra, share);
    return OK;
}

/* Selection sampling (Knuth, TAOCP 3.4.2, algorithm S) in every class at once: a record is taken
 * with the chance (still to take) / (still to come), so the counts come out exactly and the
 * choices in ascending order. Uses `quota` up. */
static void quota_deal(const struct quota *quota, const struct source *source, uint64_t seed,
                       uint32_t *kept, uint32_t *taken)
{
    for (size_t i = 0; i < source->count; i++) {
        uint32_t c = source->ops->label(source, i);
        if (rng_below(seed, RNG_SPLIT, i, quota->have[c]) < quota->take[c]) {
            quota->take[c]--;
            *taken++ = (uint32_t)i;
        } else {
            *kept++ = (uint32_t)i;
        }
        quota->have[c]--;
    }
}

/* Streams keep their records together: the last ones are held out. */
static void deal_last(const struct dataset *set, uint32_t held, uint32_t *kept, uint32_t *taken)
{
    size_t first = set->count - held;
    for (size_t i = 0; i < set->count; i++)
        *(i < first ? kept++ : taken++) = (uint32_t)i;
}

/* Records without labels are one class. */
static uint32_t classes_of(const struct source *source)
{
    return source->classes > 0 ? source->classes : 1;
}

/* Split into choices that the caller owns. */
static int split_choices(const struct dataset *set, uint32_t held, uint64_t seed,
                         const struct quota *quota, uint32_t **kept, uint32_t **taken,
                         struct err *err)
{
    const struct source *source = set->source;
    int rc = OK;
    for (size_t i = 0; i < source->count; i++)
        quota->have[source->ops->label(source, i)]++;
    if (set->streams == 0)
        rc = quota_share(quota, classes_of(source), held, seed, err);
    if (rc != OK)
        return rc;
    uint32_t *most = malloc((set->count - held) * sizeof *most);
    uint32_t *few = malloc(held * sizeof *few);
    if (!most || !few) {
        free(most);
        free(few);
        return err_set(err, ERR_NOMEM, "validation: out of memory");
    }
    if (set->streams > 0)
        deal_last(set, held, most, few);
    else
        quota_deal(quota, source, seed, most, few);
    *kept = most;
    *taken = few;
    return OK;
}

int dataset_copy(const struct dataset *set, struct dataset *out, struct err *err)
{
    struct dataset copy = *set;
    size_t bytes = set->count * sizeof *set->choice;
    copy.maps = (struct maps){0};
    copy.choice = set->choice ? malloc(bytes) : NULL;
    if ((set->choice && !copy.choice) || maps_copy(&copy.maps, &set->maps) != OK) {
        free(copy.choice);
        return err_set(err, ERR_NOMEM, "data: out of memory for %zu records", set->count);
    }
    if (set->choice)
        memcpy(copy.choice, set->choice, bytes);
    *out = copy;
    return OK;
}

int dataset_split(struct dataset *set, uint32_t held, uint64_t seed, struct dataset *validation,
                  struct err *err)
{
    const struct source *source = set->source;
    PL_ASSERT(!set->choice && set->count == source->count && set->count <= UINT32_MAX);
    struct dataset out = {.source = source, .shape = set->shape, .bad = set->bad, .of = set->of};
    if (held == 0) {
        *validation = out;
        return OK;
    }
    if (held >= set->count)
        return err_set(err, ERR_INPUT,
                       "validation: %u held out of %zu records leave none to train; hold out fewer",
                       held, set->count);
    size_t *counts = calloc(classes_of(source), 2 * sizeof *counts);
    uint32_t *kept = NULL;
    int rc;
    if (!counts || maps_copy(&out.maps, &set->maps) != OK) {
        rc = err_set(err, ERR_NOMEM, "validation: out of memory");
    } else {
        struct quota quota = {.have = counts, .take = counts + classes_of(source)};
        rc = split_choices(set, held, seed, &quota, &kept, &out.choice, err);
    }
    free(counts);
    if (rc != OK) {
        maps_release(&out.maps);
        return rc;
    }
    out.count = held;
    set->choice = kept;
    set->count -= held;
    *validation = out;
    return OK;
}
