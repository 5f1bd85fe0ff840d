/* What must hold after a trial: the commit rule's promises (D5), with every mean recomputed from
 * who took part. */
#ifndef PL_LIB_EXCHANGE_JUDGE_H
#define PL_LIB_EXCHANGE_JUDGE_H

#include "exchange_trial.h"

#include <math.h>

enum { COMPLAINT_MAX = 300 };

static bool survived(const struct trial *t, uint32_t place)
{
    return place == DRIVER ? t->driver_takes_part : place < t->workers && t->ended[place] == OK;
}

static size_t dead(const struct trial *t)
{
    size_t n = 0;
    for (uint32_t node = 0; node < t->workers; node++)
        n += !survived(t, node);
    return n;
}

static bool counts(const struct trial *t, uint32_t node, uint64_t n)
{
    for (size_t i = 0; i < t->floats; i++)
        if (!isfinite(t->value(node, n, i)))
            return false;
    return t->weight(node, n) > 0;
}

/* Exchange n among `took_part` without a network: scaled values, added by partners a step apart,
 * the step doubling; the driver, where it takes part, first and with nothing. */
static void recompute(const struct trial *t, const struct members *took_part, uint64_t n,
                      struct tally *tally, uint64_t *hash)
{
    float *part[NODES] = {0};
    size_t ranks = t->driver_takes_part;
    *tally = (struct tally){.hash_min = UINT64_MAX, .took_part = *took_part};
    for (int k = 0; k < NODES; k++)
        assert_non_null(part[k] = calloc(t->floats, sizeof(float)));
    for (uint32_t node = 0; node < t->workers; node++) {
        if (!members_has(took_part, node))
            continue;
        struct tally mine = contribution(t, node, n);
        float *x = part[ranks++];
        tally->stop_votes += mine.stop_votes;
        tally->hash_min = mine.hash_min < tally->hash_min ? mine.hash_min : tally->hash_min;
        tally->hash_max = mine.hash_max > tally->hash_max ? mine.hash_max : tally->hash_max;
        if (!counts(t, node, n))
            continue;
        members_add(&tally->who, node);
        tally->weight += mine.weight; /* exact, in whatever order */
        tally->samples += mine.samples;
        tally->loss += mine.loss;
        for (size_t i = 0; i < t->floats; i++)
            x[i] = t->value(node, n, i) * (float)mine.weight;
    }
    for (size_t gap = 1; gap < ranks; gap *= 2)
        for (size_t r = 0; r + gap < ranks; r += 2 * gap)
            for (size_t i = 0; i < t->floats; i++)
                part[r][i] += part[r + gap][i];
    for (size_t i = 0; tally->weight > 0 && i < t->floats; i++)
        part[0][i] *= (float)(1.0 / tally->weight);
    *hash = hash_bytes(part[0], t->floats * sizeof(float));
    for (int k = 0; k < NODES; k++)
        free(part[k]);
}

static bool same_outcome(const struct record *a, const struct record *b)
{
    return a->hash == b->hash && memcmp(&a->tally, &b->tally, sizeof a->tally) == 0;
}

/* D5: no two members of a view hold different results; and all who are left hold the same. */
static bool agree(const struct trial *t, uint64_t n, char *complaint)
{
    for (uint32_t i = 0; i < NODES; i++)
        for (uint32_t j = 0; j < i; j++) {
            const struct record *a = &t->record[i][n], *b = &t->record[j][n];
            if (!a->there || !b->there || same_outcome(a, b))
                continue;
            if (a->view == b->view || (survived(t, i) && survived(t, j))) {
                snprintf(complaint, COMPLAINT_MAX,
                         "exchange %u: %u (view %u) and %u (view %u) hold different results",
                         (unsigned)n, i, a->view, j, b->view);
                return false;
            }
        }
    return true;
}

static bool subset(const struct members *a, const struct members *b)
{
    for (int i = 0; i < MEMBER_WORDS; i++)
        if (a->word[i] & ~b->word[i])
            return false;
    return true;
}

static bool is_right(const struct trial *t, uint32_t place, uint64_t n, char *complaint)
{
    const struct record *r = &t->record[place][n];
    struct record want = {0};
    const char *wrong = NULL;
    if (!r->there) {
        if (!survived(t, place))
            return true;
        wrong = "is missing";
    } else {
        recompute(t, &r->tally.took_part, n, &want.tally, &want.hash);
        if (!same_outcome(r, &want))
            wrong = "is not the mean of those who took part";
        else if (!subset(&r->members, &r->tally.took_part))
            wrong = "is without a member of its view";
        else if (n > 1 && t->record[place][n - 1].view > r->view)
            wrong = "is of an older view than the one before";
    }
    if (wrong)
        snprintf(complaint, COMPLAINT_MAX, "exchange %u of %u %s", (unsigned)n, place, wrong);
    return !wrong;
}

/* Everything; what is wrong is put into `complaint`. */
static bool all_is_well(const struct trial *t, char *complaint)
{
    complaint[0] = '\0';
    if (t->rc != OK)
        snprintf(complaint, COMPLAINT_MAX, "the run ends with %d at %.3f s", t->rc,
                 world_seconds(t->end));
    else if (t->touched)
        snprintf(complaint, COMPLAINT_MAX, "an input was touched");
    for (uint32_t node = 0; t->formed && !complaint[0] && node < t->workers; node++)
        if (!survived(t, node) && !members_has(&t->victims, node))
            snprintf(complaint, COMPLAINT_MAX, "worker %u ends with %d", node, t->ended[node]);
    for (uint64_t n = 1; !complaint[0] && t->formed && n <= t->exchanges; n++) {
        if (!agree(t, n, complaint))
            return false;
        for (uint32_t place = 0; place < NODES; place++)
            if (!is_right(t, place, n, complaint))
                return false;
    }
    return !complaint[0];
}

static void expect_well(const struct trial *t)
{
    char complaint[COMPLAINT_MAX];
    if (!all_is_well(t, complaint))
        fail_msg("%s; seed %u, %u killed at message %u, %s", complaint, (unsigned)t->seed,
                 t->kill_node, (unsigned)t->kill_send, t->cluster);
}

#endif
