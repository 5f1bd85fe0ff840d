/* Invariants after a trial: the commit rule's promises (D5), with every mean recomputed from the
 * participants. */
#ifndef PL_LIB_EXCHANGE_JUDGE_H
#define PL_LIB_EXCHANGE_JUDGE_H

#include "coll/auto.h"
#include "exchange_trial.h"
#include "schedule_cluster.h"

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

/* The expected result of exchange n among `participants`. */
struct expected {
    uint64_t n; /* 0: not computed yet */
    struct members took_part;
    struct exchange_meta meta;
    size_t ranks;
    float *x;
    double *size; /* Σ|w·x| / Σw: the scale of rounding errors */
};

static void expected_release(struct expected *e)
{
    free(e->x);
    free(e->size);
    *e = (struct expected){0};
}

static void add_up(const struct trial *t, uint32_t node, struct expected *e, float *x)
{
    struct exchange_meta mine = contribution(t, node, e->n), *meta = &e->meta;
    meta->stop_votes += mine.stop_votes;
    meta->hash_min = mine.hash_min < meta->hash_min ? mine.hash_min : meta->hash_min;
    meta->hash_max = mine.hash_max > meta->hash_max ? mine.hash_max : meta->hash_max;
    if (!counts(t, node, e->n))
        return;
    members_add(&meta->contributors, node);
    meta->weight += mine.weight; /* exact, in whatever order */
    meta->samples += mine.samples;
    meta->loss += mine.loss;
    for (size_t i = 0; i < t->floats; i++) {
        x[i] = t->value(node, e->n, i) * (float)mine.weight;
        e->size[i] += fabs((double)x[i]);
    }
}

static int schedule_for(const struct trial *t, struct cluster *c, size_t rank, uint64_t algorithm)
{
    struct schedule *s = &c->by[rank];
    switch (t->split) {
    case EXCHANGE_AT_ROOT: return schedule_relay_reduce(s, c->ranks, rank, c->n);
    case EXCHANGE_AT_OWNERS: return schedule_reduce_scatter(s, c->ranks, rank, c->n, NULL);
    default:
        return schedule_allreduce(s, (enum coll_algorithm)algorithm, c->ranks, rank, c->n, NULL);
    }
}

/* The rank whose sum of element i is the result. */
static size_t rank_with(const struct trial *t, const struct cluster *c, size_t i)
{
    size_t rank = 0;
    while (t->split == EXCHANGE_AT_OWNERS && schedule_cut(c->n, c->ranks, rank + 1) <= i)
        rank++;
    return rank;
}

/* Without a network: scaled values, added in the order of the schedules; the driver, where it takes
 * part, is rank 0 and brings nothing. */
static void recompute(const struct trial *t, const struct members *participants, uint64_t n,
                      struct expected *e)
{
    struct cluster c = {.ranks = t->driver_takes_part + members_count(participants),
                        .n = t->floats};
    *e = (struct expected){.n = n, .took_part = *participants, .ranks = c.ranks};
    e->meta = (struct exchange_meta){.hash_min = UINT64_MAX, .participants = *participants};
    if (!t->split)
        e->meta.algorithm = t->algorithm ? t->algorithm : auto_rule(t->codec, c.ranks, c.n);
    assert_non_null(e->x = calloc(t->floats, sizeof *e->x));
    assert_non_null(e->size = calloc(t->floats, sizeof *e->size));
    for (size_t r = 0; r < c.ranks; r++)
        assert_int_equal(schedule_for(t, &c, r, e->meta.algorithm), OK);
    cluster_make_room(&c);
    size_t rank = t->driver_takes_part;
    for (uint32_t node = 0; node < t->workers; node++)
        if (members_has(participants, node))
            add_up(t, node, e, c.x[rank++]);
    cluster_carry_out(&c);
    for (size_t i = 0; c.ranks > 0 && e->meta.weight > 0 && i < t->floats; i++) {
        float sum = c.x[rank_with(t, &c, i)][i];
        e->x[i] =
            t->split ? prepared_value(sum, e->meta.weight) : sum * (float)(1.0 / e->meta.weight);
        e->size[i] /= e->meta.weight;
    }
    cluster_tear_down(&c);
}

/* Within the error of a lossy wire format: one rounding a rank, and another for residuals. */
static bool near(const struct trial *t, const struct record *r, const struct expected *e)
{
    double largest = 0;
    PL_ASSERT(t->floats <= FLOATS_KEPT);
    for (size_t i = 0; i < t->floats; i++)
        largest = fmax(largest, e->size[i]);
    for (size_t i = 0; i < t->floats; i++) {
        double step = t->codec == CODEC_BF16 ? e->size[i] / 256 : largest / 127;
        if (fabs((double)(r->x[i] - e->x[i])) > 2 * (double)(e->ranks + 2) * step)
            return false;
    }
    return true;
}

static bool is_mean(const struct trial *t, const struct record *r, const struct expected *e)
{
    if (memcmp(&r->meta, &e->meta, sizeof r->meta) != 0)
        return false;
    return t->codec == CODEC_F32 ? r->hash == hash_bytes(e->x, t->floats * sizeof *e->x)
                                 : near(t, r, e);
}

static bool same_outcome(const struct record *a, const struct record *b)
{
    return a->hash == b->hash && memcmp(&a->meta, &b->meta, sizeof a->meta) == 0;
}

/* D5: no two members of a view have different results, and all remaining members have the same. */
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

/* `e` is kept from one member to the next: most have the same. */
static bool is_right(const struct trial *t, uint32_t place, uint64_t n, struct expected *e,
                     char *complaint)
{
    const struct record *r = &t->record[place][n];
    const char *wrong = NULL;
    if (!r->there) {
        if (!survived(t, place))
            return true;
        wrong = "is missing";
    } else {
        if (e->n != n || memcmp(&e->took_part, &r->meta.participants, sizeof e->took_part) != 0) {
            expected_release(e);
            recompute(t, &r->meta.participants, n, e);
        }
        if (!is_mean(t, r, e))
            wrong = "is not the mean of those who took part";
        else if (!subset(&r->members, &r->meta.participants))
            wrong = "is without a member of its view";
        else if (n > 1 && t->record[place][n - 1].view > r->view)
            wrong = "is of an older view than the one before";
    }
    if (wrong)
        snprintf(complaint, COMPLAINT_MAX, "exchange %u of %u %s", (unsigned)n, place, wrong);
    return !wrong;
}

/* Check everything; `complaint` gets the error. */
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
    struct expected e = {0};
    for (uint64_t n = 1; !complaint[0] && t->formed && n <= t->exchanges; n++) {
        bool right = agree(t, n, complaint);
        for (uint32_t place = 0; right && place < NODES; place++)
            right = is_right(t, place, n, &e, complaint);
    }
    expected_release(&e);
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
