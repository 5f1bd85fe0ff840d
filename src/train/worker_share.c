#include "train/worker_share.h"

#include "base/fault.h"
#include "base/hash.h"
#include "data/bindings.h"
#include "data/spool.h"
#include "train/worker.h"
#include "wire/wire_send.h"

#include <string.h>

_Static_assert((int)SPOOL_PARTS_MAX <= (int)HOLDINGS_MAX &&
                   (int)HOLDINGS_MAX <= (int)LEARNER_RANGES_MAX,
               "a part is a holding, and a holding a range");

/* In a simulation all nodes have one corpus; each worker then owns a part of the training set, and
 * a replacement that of the worker whose number it has, counted around. */
static struct range simulated_part(const struct worker *w)
{
    size_t n = w->data.corpus->set[SET_TRAIN].count;
    size_t parts = job_workers_max(w->job), k = w->world->self % parts, from = n * k / parts;
    return (struct range){.from = from, .len = n * (k + 1) / parts - from};
}

void worker_describe_records(struct worker *w)
{
    struct hello_records *out = &w->share.described;
    const struct source *source = w->data.corpus->train_source;
    struct holding *first = &out->local.holding[0];
    hello_take_records(out, w->found ? w->found : w->job, w->data.corpus);
    if (!w->job->local_data)
        return;
    if (w->host->corpus) {
        const struct range part = simulated_part(w);
        out->local.holdings = 1;
        *first = (struct holding){hash_mix(w->data.corpus->hash, part.from), part.len, false};
    }
    if (source && source->unshared)
        first->hash = hash_mix(first->hash, w->world->self);
    w->share.adds = w->share.grows && source->in_parts;
    w->share.grows = w->share.grows && !w->share.adds;
    first->grows = w->share.grows;
    atomic_store(&w->share.holdings, out->local.holdings);
}

void worker_copy_records(const struct worker *w, struct hello_records *out)
{
    const uint32_t n = atomic_load(&w->share.holdings); /* behind them, one may be added */
    memcpy(out, &w->share.described,
           offsetof(struct hello_records, local.holding) + n * sizeof(struct holding));
    out->local.holdings = n;
    out->local.epoch_records = atomic_load(&w->share.epoch_records);
}

/* Where its holdings from number `h` on lie in the training set. */
static void find_holdings(struct worker *w, uint32_t h)
{
    const struct hello_local *own = &w->share.described.local;
    size_t from = h > 0             ? w->share.holding[h - 1].from + w->share.holding[h - 1].len
                  : w->host->corpus ? simulated_part(w).from
                                    : 0;
    for (; h < w->share.holdings; h++) {
        w->share.holding[h] = (struct range){.from = from, .len = own->holding[h].count};
        from += w->share.holding[h].len;
    }
}

/* The samples of its ranges so far, by holding. */
static void keep_counts(struct worker *w)
{
    struct learner_share *share = &w->learner.share;
    for (size_t i = 0; i < share->sampler.ranges; i++) {
        w->share.taken[w->share.of_range[i]] += share->used[i];
        share->used[i] = 0;
    }
}

/* ---- records that arrive ---- */

/* The records of the source that have arrived. */
static size_t count_arrived(struct worker *w, bool *more)
{
    const struct source *source = w->data.corpus->train_source;
    *more = false;
    return source && source->ops->arrived ? source->ops->arrived(source, more) : 0;
}

int worker_await_records(struct worker *w)
{
    const Paceline__Data *data = w->job->train_data;
    bool more, partly = w->job->local_data && data->memory && data->memory->has_begin_with;
    if (data->source_case != PACELINE__DATA__SOURCE_MEMORY || w->host->corpus)
        return OK;
    for (;;) {
        size_t here = bindings_arrived(w->host->bindings, data->memory->name, &more);
        if (!more || (partly && here > 0 && here >= data->memory->begin_with))
            break;
        if (!worker_report_opening(w, "records", here, partly ? data->memory->begin_with : 0))
            return worker_report_ended(w);
        int rc = world_sleep(w->world, world_now(w->world) + WORLD_SECOND / 50);
        if (rc != OK)
            return rc;
    }
    w->share.grows = more;
    return more && w->job->validation > 0 && !w->job->driver_validates
               ? err_set(&w->err, ERR_INPUT,
                         "validation: none can be held out of records that still arrive; leave it "
                         "out, or memory.begin_with")
               : OK;
}

/* Records have arrived: when they are a tenth more than before, or the last ones, they belong to
 * the training set. */
static int take_arrived(struct worker *w)
{
    struct dataset *set = &w->data.own_corpus.set[SET_TRAIN];
    bool more;
    size_t now = count_arrived(w, &more);
    if (more && now < set->count + set->count / 10 + 1)
        return OK;
    w->share.grows = more;
    if (now == set->count)
        return OK;
    /* Behind this call no task of the loader looks at the set. */
    int rc = loader_draw(&w->data.ws->loader, &w->data.ws->loader.sampler);
    if (rc != OK)
        return rc;
    set->count = now;
    w->share.holding[0].len = now;
    keep_counts(w);
    return learner_take_share(&w->learner, &w->share.holding[0], 1, 0);
}

/* Parts have arrived: they are further holdings, which the next report names. */
static int add_parts(struct worker *w)
{
    struct dataset *set = &w->data.own_corpus.set[SET_TRAIN];
    struct worker_share *own = &w->share;
    struct hello_local now = {.holdings = 0};
    const uint32_t before = own->holdings;
    size_t count = count_arrived(w, &own->adds);
    if (count == set->count)
        return OK;
    /* Behind this call no task of the loader looks at the set. */
    int rc = loader_draw(&w->data.ws->loader, &w->data.ws->loader.sampler);
    if (rc != OK)
        return rc;
    set->count = w->data.corpus->train_source->count = count;
    hello_list_holdings(&now, set);
    PL_ASSERT(now.holdings > before);
    memcpy(own->described.local.holding + before, now.holding + before,
           (now.holdings - before) * sizeof *now.holding);
    atomic_store(&own->holdings, now.holdings);
    find_holdings(w, before);
    own->awaits = true;
    return OK;
}

static int take_share(struct worker *w, const struct share_message *share)
{
    struct worker_share *own = &w->share;
    struct range range[HOLDINGS_MAX];
    size_t ranges = 0;
    if (share->count > own->holdings || (share->count < own->holdings && !own->awaits))
        return ERR_PROTOCOL;
    own->awaits = share->count < own->holdings; /* it was sent before the driver knew of them */
    for (uint32_t h = 0; h < share->count; h++) {
        const struct range *given = &share->range[h];
        if (given->from > own->holding[h].len || given->len > own->holding[h].len - given->from)
            return ERR_PROTOCOL;
    }
    keep_counts(w);
    own->view = share->view;
    atomic_store(&own->epoch_records, share->epoch_records);
    w->learner.epoch_records = share->epoch_records;
    for (uint32_t h = 0; h < share->count && !own->grows; h++) {
        if (share->range[h].len == 0)
            continue;
        own->of_range[ranges] = h;
        range[ranges++] = (struct range){.from = own->holding[h].from + share->range[h].from,
                                         .len = share->range[h].len};
    }
    if (ranges == 0) { /* it grows, or has more owners than records: each takes them all */
        own->of_range[ranges] = 0;
        range[ranges++] = own->holding[0];
    }
    return learner_take_share(&w->learner, range, ranges,
                              w->start.sample_offset / w->learner.epoch_records);
}

/* Take the newest share that has arrived, and wait for one until `deadline`. ERR_TIMEOUT */
static int receive_share(struct worker *w, int64_t deadline)
{
    const struct wait_for sent = wire_from(WORLD_DRIVER, WIRE_SHARE);
    struct share_message share;
    struct wake wake;
    int rc = world_wait(w->world, &sent, 1, deadline, &wake);
    if (rc != OK)
        return rc;
    struct byte_reader in = {wake.msg->data, wake.msg->len, false};
    rc = share_decode(&in, &share);
    message_unref(wake.msg);
    if (rc == OK && share.view >= w->share.view)
        rc = take_share(w, &share);
    return rc == OK ? OK
           : rc == ERR_PROTOCOL
               ? err_set(&w->err, rc, "the driver's message with the share of records is invalid")
               : rc;
}

int worker_await_share(struct worker *w)
{
    int rc = OK;
    if (!w->job->local_data)
        return OK;
    find_holdings(w, 0);
    while (w->share.view == 0 && (rc == OK || rc == ERR_TIMEOUT)) {
        if (atomic_load(&w->group.end.over))
            return ERR_DRIVER;
        rc = receive_share(w, world_now(w->world) + w->group.timing.heartbeat);
    }
    return rc;
}

int worker_poll_share(struct worker *w)
{
    int rc = OK;
    while (rc == OK && w->share.view != 0 &&
           (w->share.awaits || w->share.view != group_view(&w->group)->number))
        rc = receive_share(w, world_now(w->world));
    if ((rc == OK || rc == ERR_TIMEOUT) && w->share.grows)
        rc = take_arrived(w);
    if ((rc == OK || rc == ERR_TIMEOUT) && w->share.adds)
        rc = add_parts(w);
    return rc == ERR_TIMEOUT ? OK : rc;
}

void worker_report_share(const struct worker *w, struct committed *report)
{
    const struct learner_share *share = &w->learner.share;
    report->holdings = w->share.holdings;
    for (uint32_t h = 0; h < w->share.holdings; h++)
        report->of_holding[h] = (struct holding_use){w->share.described.local.holding[h].hash,
                                                     w->share.holding[h].len, w->share.taken[h]};
    for (size_t i = 0; i < share->sampler.ranges; i++)
        report->of_holding[w->share.of_range[i]].taken += share->used[i];
}
