#include "coll/exchange_internal.h"

#include "coll/coll_meta.h"

#include <stdlib.h>

bool exchange_is_refused(const struct exchange *e, const struct exchange_meta *meta)
{
    return e->config.reject && e->mine.weight > 0 &&
           !members_has(&meta->contributors, e->group->world->self);
}

bool exchange_counted(const struct exchange *e)
{
    return e->mine.weight > 0 && !exchange_is_refused(e, exchange_result_meta(e));
}

bool exchange_meta_ends_run(const struct exchange_meta *meta)
{
    struct members stay = members_without(&meta->participants, &meta->leaving);
    return meta->stop_votes > 0 || members_empty(&stay);
}

bool exchange_was_last(const struct exchange *e)
{
    return e->completed > 0 && exchange_meta_ends_run(exchange_result_meta(e));
}

/* The sums of all members, */
void exchange_merge_meta(void *header, const void *other)
{
    struct exchange_meta *t = header;
    const struct exchange_meta *o = other;
    t->weight += o->weight;
    t->samples += o->samples;
    t->loss += o->loss;
    t->stop_votes += o->stop_votes;
    t->flush_votes += o->flush_votes;
    t->checkpoint_votes += o->checkpoint_votes;
    t->contributors = members_union(&t->contributors, &o->contributors);
    t->participants = members_union(&t->participants, &o->participants);
    t->non_contributing = members_union(&t->non_contributing, &o->non_contributing);
    t->leaving = members_union(&t->leaving, &o->leaving);
    t->hash_min = o->hash_min < t->hash_min ? o->hash_min : t->hash_min;
    t->hash_max = o->hash_max > t->hash_max ? o->hash_max : t->hash_max;
    t->step_s = o->step_s > t->step_s ? o->step_s : t->step_s;
    if (t->exchange_s == 0 || (o->exchange_s > 0 && o->exchange_s < t->exchange_s))
        t->exchange_s = o->exchange_s;
    auto_meta_merge(&t->automatic, &o->automatic);
    t->rate += o->rate;
}

/* and with `reject` the claim of each, by rank. */
struct claimed_meta {
    struct exchange_meta meta;
    uint64_t ranks;
    struct outlier_claim claim[];
};

static void merge_claimed(void *header, const void *other)
{
    struct claimed_meta *t = header;
    const struct claimed_meta *o = other;
    exchange_merge_meta(&t->meta, &o->meta);
    for (uint64_t i = 0; i < t->ranks; i++)
        if (t->claim[i].weight == 0)
            t->claim[i] = o->claim[i];
}

bool exchange_measures(const struct exchange *e)
{
    return e->config.algorithm == COLL_AUTO && !e->config.pinned && auto_measures(e->n_floats);
}

/* Rank 0 chooses the algorithm for all: members that chose for themselves could disagree. */
static void decide_algorithm(struct exchange *e, const struct coll *c, struct exchange_meta *meta)
{
    meta->algorithm = e->config.algorithm;
    if (e->config.algorithm == COLL_AUTO)
        meta->algorithm = auto_rule(e->config.codec, c->ranks->count, e->n_floats);
    if (exchange_measures(e))
        auto_decide(&e->automatic, c, e->n_floats, e->config.stripes, &meta->automatic);
}

/* Rank 0 decides for all which contributions do not count: take them out of the sums. */
static void refuse_outliers(const struct exchange *e, const struct coll *c, struct claimed_meta *t)
{
    enum outlier_cause cause[VIEW_MEMBERS_MAX + 1];
    double weight = 0, loss = 0;
    if (outlier_judge(t->claim, t->ranks, cause) == 0)
        return;
    for (size_t i = 0; i < t->ranks; i++) {
        const struct outlier_claim *claim = &t->claim[i];
        uint32_t node = c->ranks->node[i];
        if (cause[i] == OUTLIER_SOUND) {
            weight += claim->weight;
            loss += claim->loss;
            continue;
        }
        char why[OUTLIER_TEXT_MAX];
        outlier_explain(t->claim, t->ranks, i, cause[i], why);
        log_warn(e->group->log, "worker %u: its contribution to exchange %llu is refused: %s", node,
                 (unsigned long long)c->n, why);
        members_remove(&t->meta.contributors, node);
        t->meta.samples -= claim->samples;
    }
    t->meta.weight = weight;
    t->meta.loss = loss;
}

/* Reduce the metadata with the claims of all ranks, which rank 0 judges. */
static int reduce_claims(const struct exchange *e, struct coll *c, struct exchange_meta *meta)
{
    size_t len = sizeof(struct claimed_meta) + c->ranks->count * sizeof(struct outlier_claim);
    struct claimed_meta *mine = calloc(1, len), *other = malloc(len);
    int rc = mine && other ? OK : ERR_NOMEM;
    if (rc == OK) {
        mine->meta = *meta;
        mine->ranks = c->ranks->count;
        mine->claim[c->ranks->me] = e->claim;
        rc = coll_meta_reduce(c, mine, len, other, merge_claimed);
    }
    if (rc == OK && c->ranks->me == 0)
        refuse_outliers(e, c, mine);
    if (rc == OK)
        *meta = mine->meta;
    free(mine);
    free(other);
    return rc;
}

int exchange_reduce_meta(struct exchange *e, struct coll *c, struct exchange_meta *meta)
{
    struct exchange_meta other;
    *meta = e->mine;
    exchange_enter(e, EXCHANGE_COLLECTING);
    auto_meta_init(&meta->automatic, c, e->took);
    c->patient = true;
    int rc = e->config.reject
                 ? reduce_claims(e, c, meta)
                 : coll_meta_reduce(c, meta, sizeof *meta, &other, exchange_merge_meta);
    if (rc == OK && c->ranks->me == 0)
        decide_algorithm(e, c, meta);
    if (rc == OK)
        rc = coll_meta_broadcast(c, meta, sizeof *meta);
    c->patient = false;
    exchange_enter(e, EXCHANGE_REDUCING);
    c->stripes = exchange_measures(e) ? (uint32_t)meta->automatic.stripes : e->config.stripes;
    if (rc == OK && meta->automatic.measure) {
        e->planned_in = 0;
        rc = auto_measure(&e->automatic, c, e->n_floats, e->config.codec, &meta->automatic);
    }
    if (rc == OK && e->config.probe_s > 0)
        rc = probe_links(c, e->config.probe_s, &e->automatic.probe);
    if (rc == OK && (meta->algorithm == COLL_AUTO || meta->algorithm >= COLL_ALGORITHMS))
        rc = ERR_PROTOCOL;
    return rc;
}

int exchange_make_claim(struct exchange *e)
{
    const struct vec *last = &e->result[e->completed & 1], *before = &e->result[~e->completed & 1];
    const struct vec *base = e->base.n > 0 ? &e->base : NULL;
    uint64_t needs = base && base->at != last->at ? 2 : 1; /* averages; a base may be the first */
    size_t exact = e->config.exact.len > 0 ? e->config.exact.from : e->n_floats;
    struct range r = {0, base ? base->n : exact};
    e->claim = (struct outlier_claim){.weight = e->mine.weight,
                                      .samples = e->mine.samples,
                                      .loss = e->mine.loss,
                                      .cosine = OUTLIER_NO_SIDE};
    if (e->mine.weight == 0)
        return OK;
    const struct vec_angle angle =
        vec_angle(&e->input, base, e->averaged >= needs ? last : NULL, base ? before : NULL, r);
    double print = base ? vec_dot(&e->input, &e->input, r) : angle.uu;
    outlier_measure(&e->history, &angle, print, &e->claim);
    return world_copied(e->group->world, r.len * sizeof(float) * (base ? 5 : 2));
}
