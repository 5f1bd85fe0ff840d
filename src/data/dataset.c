#include "data/dataset.h"

#include "base/fault.h"
#include "base/rng.h"
#include "data/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int dataset_init(struct dataset *set, const struct source *source, const Paceline__Data *spec,
                 struct err *err)
{
    size_t C = source->shape.dim[0];
    if (!isfinite(spec->scale))
        return err_set(err, ERR_INPUT, "data: scale is not a finite number");
    if (spec->n_mean > 1 && spec->n_mean != C)
        return err_set(err, ERR_INPUT,
                       "data: %zu values of mean for records of %zu channels, expected one, or one "
                       "a channel",
                       spec->n_mean, C);
    for (size_t i = 0; i < spec->n_mean; i++)
        if (!isfinite(spec->mean[i]))
            return err_set(err, ERR_INPUT, "data: value %zu of mean is not a finite number", i + 1);
    float *mean = calloc(C, sizeof *mean);
    if (!mean)
        return err_set(err, ERR_NOMEM, "data: out of memory");
    for (size_t c = 0; c < C && spec->n_mean > 0; c++)
        mean[c] = spec->mean[spec->n_mean == 1 ? 0 : c];
    *set = (struct dataset){
        .source = source,
        .scale = spec->scale,
        .mean = mean,
        .count = source->count,
    };
    return OK;
}

void dataset_release(struct dataset *set)
{
    free(set->mean);
    free(set->choice);
    *set = (struct dataset){0};
}

void dataset_read(const struct dataset *set, size_t i, float *x, uint32_t *label, uint64_t *record)
{
    PL_ASSERT(i < set->count);
    const struct source *source = set->source;
    size_t n = set->choice ? set->choice[i] : i;
    source->ops->read(source, n, x, label);
    *record = n;
    size_t C = source->shape.dim[0], HW = source->shape.dim[1] * source->shape.dim[2];
    for (size_t c = 0; c < C; c++)
        for (size_t k = c * HW; k < (c + 1) * HW; k++)
            x[k] = (x[k] - set->mean[c]) * set->scale;
}

/* How a split goes about it: per class, the records there are and those to take. */
struct quota {
    size_t *have, *take;
};

/* An equal share for every class that occurs; what does not divide goes to classes drawn by seed,
 * one record each. Every class keeps a record to train on. */
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

/* Split into choices that the caller owns. */
static int split_choices(const struct dataset *set, uint32_t held, uint64_t seed,
                         const struct quota *quota, uint32_t **kept, uint32_t **taken,
                         struct err *err)
{
    const struct source *source = set->source;
    for (size_t i = 0; i < source->count; i++)
        quota->have[source->ops->label(source, i)]++;
    int rc = quota_share(quota, source->classes, held, seed, err);
    if (rc != OK)
        return rc;
    uint32_t *most = malloc((set->count - held) * sizeof *most);
    uint32_t *few = malloc(held * sizeof *few);
    if (!most || !few) {
        free(most);
        free(few);
        return err_set(err, ERR_NOMEM, "validation: out of memory");
    }
    quota_deal(quota, source, seed, most, few);
    *kept = most;
    *taken = few;
    return OK;
}

int dataset_split(struct dataset *set, uint32_t held, uint64_t seed, struct dataset *validation,
                  struct err *err)
{
    const struct source *source = set->source;
    PL_ASSERT(!set->choice && set->count == source->count && set->count <= UINT32_MAX);
    struct dataset out = {.source = source, .scale = set->scale};
    if (held == 0) {
        *validation = out;
        return OK;
    }
    if (held >= set->count)
        return err_set(err, ERR_INPUT, "validation: %u held out of %zu records leave none to train",
                       held, set->count);
    size_t C = source->shape.dim[0];
    size_t *counts = calloc(source->classes, 2 * sizeof *counts);
    float *mean = malloc(C * sizeof *mean);
    uint32_t *kept = NULL;
    int rc;
    if (!counts || !mean) {
        rc = err_set(err, ERR_NOMEM, "validation: out of memory");
    } else {
        struct quota quota = {.have = counts, .take = counts + source->classes};
        rc = split_choices(set, held, seed, &quota, &kept, &out.choice, err);
    }
    free(counts);
    if (rc != OK) {
        free(mean);
        return rc;
    }
    out.mean = memcpy(mean, set->mean, C * sizeof *mean);
    out.count = held;
    set->choice = kept;
    set->count -= held;
    *validation = out;
    return OK;
}
