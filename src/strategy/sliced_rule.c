#include "strategy/sliced_rule.h"

#include "base/fault.h"
#include "strategy/mean_rules.h"

static void choose_kind(struct sliced_rule *r, const Paceline__Strategy *strategy)
{
    int on_replace = PACELINE__ON_REPLACE__keep;
    *r = (struct sliced_rule){.kind = SLICED_ALLREDUCE, .tau = 1};
    switch (strategy->algorithm_case) {
    case PACELINE__STRATEGY__ALGORITHM_ALLREDUCE: return;
    case PACELINE__STRATEGY__ALGORITHM_SYNC:
        r->kind = SLICED_SYNC;
        r->tau = strategy->sync->tau;
        on_replace = (int)strategy->sync->on_replace;
        break;
    case PACELINE__STRATEGY__ALGORITHM_DILOCO:
        r->kind = SLICED_DILOCO;
        r->tau = strategy->diloco->tau;
        on_replace = (int)strategy->diloco->on_replace;
        break;
    case PACELINE__STRATEGY__ALGORITHM_EASGD:
        r->kind = SLICED_EASGD;
        r->tau = strategy->easgd->tau;
        break;
    default: PL_ASSERT(!"a strategy for slices"); /* the job's check */
    }
    r->resets = on_replace == PACELINE__ON_REPLACE__reset;
}

static int open_momentum(struct sliced_rule *r, struct member *m)
{
    int rc = vec_init(&r->own, m->arena, m->learner->x.n);
    if (rc == OK && m->resumed)
        vec_copy(&r->own, m->resumed, vec_all(&r->own));
    m->model.extra = &r->own;
    return rc;
}

static int open_centre(struct sliced_rule *r, struct member *m)
{
    const struct learner *l = m->learner;
    int rc = vec_init_model(&r->own, &r->x, &r->s, m->arena, l->x.n, l->s.n);
    if (rc == OK)
        vec_copy(&r->own, &l->both, vec_all(&r->own));
    m->model.x = &r->x;
    m->model.s = &r->s;
    return rc;
}

int sliced_rule_open(struct sliced_rule *r, struct member *m)
{
    choose_kind(r, m->job->strategy);
    return r->kind == SLICED_DILOCO  ? open_momentum(r, m)
           : r->kind == SLICED_EASGD ? open_centre(r, m)
                                     : OK;
}

bool sliced_rule_sums_models(const struct sliced_rule *r)
{
    return r->kind != SLICED_ALLREDUCE;
}

const struct vec *sliced_rule_common(const struct sliced_rule *r, const struct learner *l)
{
    return r->kind == SLICED_EASGD ? &r->x : &l->x;
}

/* A replica keeps its own s; that of the centre is the mean. A damaged one starts over from the
 * previous centre. */
static void move_centre(struct sliced_rule *r, const struct member *m, struct sliced_round *round)
{
    struct learner *l = m->learner;
    const struct easgd_round of = {round->replicas, round->contributors};
    struct vec mean = vec_part(round->before, 0, l->x.n), mean_s = l->s;
    if (round->x.n > 0) {
        mean = round->x;
        mean_s = round->s;
    } else { /* x moves before the centre does */
        vec_copy(&mean, &l->x, vec_all(&mean));
    }
    if (round->damaged)
        vec_copy(&l->both, &r->own, vec_all(&l->both));
    easgd_step(m->job->strategy->easgd, &of, round->damaged ? NULL : &l->x, &r->x, &mean);
    vec_copy(&r->s, &mean_s, vec_all(&r->s));
}

static void take_mean(struct vec *x, struct learner *l, const struct sliced_round *round)
{
    if (round->x.n == 0)
        return;
    vec_copy(x, &round->x, vec_all(x));
    vec_copy(&l->s, &round->s, vec_all(&l->s));
}

static void replace_model(struct sliced_rule *r, const struct member *m, struct sliced_round *round)
{
    struct learner *l = m->learner;
    if (r->kind == SLICED_EASGD) {
        move_centre(r, m, round);
        return;
    }
    struct vec delta = vec_part(round->before, 0, l->x.n);
    take_mean(&l->x, l, round);
    if (r->kind == SLICED_DILOCO)
        diloco_step(m->job->strategy->diloco, &l->x, &r->own, &delta);
}

void sliced_rule_apply(struct sliced_rule *r, struct member *m, struct sliced_round *round)
{
    struct learner *l = m->learner;
    if (!sliced_rule_sums_models(r)) {
        take_mean(&l->dx, l, round);
        learner_update(l, m->progress.sample_offset);
        return;
    }
    replace_model(r, m, round);
    if (round->damaged || r->resets)
        optim_reset(&l->optim);
    if (round->damaged)
        l->steps = m->progress.steps + round->steps;
}

int sliced_configure(const Paceline__Job *job, uint32_t tau, const struct sliced_refusal *refused,
                     size_t count, struct strategy_traits *traits, struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (refused[i].given)
            return err_set(err, ERR_UNSUPPORTED,
                           "strategy.%s.%s: not with slices, whose rounds are `tau` steps; leave "
                           "it out",
                           job_strategy_name(job), refused[i].field);
    traits->joinable = job_replicas(job) > 1;
    traits->sends_gradients = true;
    traits->round = tau;
    return OK;
}
