/* The numbers of each strategy: their ranges, and the defaults that follow from other fields.
 */
#include "job/job_strategy.h"
#include "job/check.h"
#include "job/job.h"
#include "job/text.h"
#include "job/text_field.h"
#include "job/text_number.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { SHARDS_MAX = 16, FRAGMENTS_MAX = 16, R_MAX = 255 };
enum { SERVERS_MAX = 250, SURVEY_STEPS_MAX = 100000, HISTORY_MAX = 100 };

/* Refuse a job that sets both a number and the field that makes Paceline find this number. */
static int check_one_of(const char *number, bool has_number, const char *word, bool has_word,
                        struct err *err)
{
    return has_number && has_word
               ? err_set(err, ERR_INPUT, "%s: %s is set, and one of the two may be", number, word)
               : OK;
}

static int check_sync(const Paceline__Sync *s, struct err *err)
{
    int rc = check_range("strategy.sync.tau", s->tau, 1, UINT32_MAX, err);
    if (rc == OK && s->has_seconds)
        rc = check_positive("strategy.sync.seconds", s->seconds, err);
    if (rc == OK)
        rc = check_one_of("strategy.sync.seconds", s->has_seconds, "tau_auto", s->tau_auto, err);
    return rc;
}

static int check_async_allreduce(const Paceline__AsyncAllReduce *a, struct err *err)
{
    int rc = check_range("strategy.async_allreduce.method", a->method, 1, 2, err);
    if (rc == OK)
        rc = check_not_negative("strategy.async_allreduce.sync_every_epochs", a->sync_every_epochs,
                                err);
    if (rc == OK)
        rc = check_not_negative("strategy.async_allreduce.warmup_epochs", a->warmup_epochs, err);
    return rc == OK
               ? check_range("strategy.async_allreduce.s_every", a->s_every, 1, UINT32_MAX, err)
               : rc;
}

static int check_servers(const char *field, uint32_t servers, bool colocated, uint32_t workers,
                         struct err *err)
{
    int rc = check_range(field, servers, 1, workers < SERVERS_MAX ? workers : SERVERS_MAX, err);
    if (rc == OK && colocated)
        rc = check_range("colocated: workers", workers, 1, SERVERS_MAX, err);
    return rc == OK ? check_one_of(field, servers > 1, "colocated", colocated, err) : rc;
}

static int check_ps(const Paceline__Ps *p, uint32_t workers, struct err *err)
{
    int rc = check_servers("strategy.ps.servers", p->servers, p->colocated, workers, err);
    if (rc == OK)
        rc = check_range("strategy.ps.r_max", p->r_max, 0, R_MAX, err);
    if (rc == OK)
        rc = check_range("strategy.ps.s_lower", p->s_lower, 0, 1 << 30, err);
    return rc == OK ? check_range("strategy.ps.staleness", p->staleness, 0, 1 << 30, err) : rc;
}

static int check_downpour(const Paceline__Downpour *d, uint32_t workers, struct err *err)
{
    int rc = check_servers("strategy.downpour.servers", d->servers, d->colocated, workers, err);
    if (rc == OK)
        rc = check_range("strategy.downpour.n_push", d->n_push, 1, UINT32_MAX, err);
    return rc == OK ? check_range("strategy.downpour.n_fetch", d->n_fetch, 1, UINT32_MAX, err) : rc;
}

static int check_rate(const char *field, float value, struct err *err)
{
    return check_range(field, (double)value, 0, 1, err);
}

/* EAMSGD: Nesterov's momentum in each worker, 0.99 unless the solver sets one. */
static int finish_momentum(Paceline__Job *job, struct err *err)
{
    Caffe__SolverParameter *solver = job->solver;
    const ProtobufCFieldDescriptor *type = text_field_find(solver->base.descriptor, "type", 4);
    if (text_field_is_set(&solver->base, type) && strcmp(solver->type, "Nesterov") != 0)
        return err_set(err, ERR_INPUT,
                       "strategy.easgd.momentum: is Nesterov's, but solver.type is \"%s\"",
                       solver->type);
    if (!solver->has_momentum) {
        solver->momentum = 0.99f;
        solver->has_momentum = true;
    }
    return text_set(&job->base, "solver.type", "Nesterov", err);
}

/* α and β that the job does not set follow the workers of the view (strategy/easgd.c). */
static int finish_easgd(Paceline__Job *job, struct err *err)
{
    Paceline__Easgd *e = job->strategy->easgd;
    int rc = check_range("strategy.easgd.tau", e->tau, 1, UINT32_MAX, err);
    if (rc == OK && e->has_alpha)
        rc = check_rate("strategy.easgd.alpha", e->alpha, err);
    if (rc == OK && e->has_beta)
        rc = check_rate("strategy.easgd.beta", e->beta, err);
    uint32_t replicas = job_workers_max(job) / job->slices; /* each has one model */
    if (rc == OK && e->mode == PACELINE__EASGD__MODE__sync && e->has_alpha && !e->has_beta)
        rc = check_rate("strategy.easgd.beta (workers times alpha)", e->alpha * (float)replicas,
                        err);
    return rc == OK && e->momentum ? finish_momentum(job, err) : rc;
}

static int finish_mpca(Paceline__Mpca *m, struct err *err)
{
    int rc = check_range("strategy.mpca.phases", m->phases, 1, 3, err);
    if (rc != OK)
        return rc;
    if (!m->has_shards) {
        m->shards = m->phases;
        m->has_shards = true;
    }
    rc = check_range("strategy.mpca.shards", m->shards, m->phases, SHARDS_MAX, err);
    if (rc == OK)
        rc = check_rate("strategy.mpca.alpha", m->alpha, err);
    if (rc == OK)
        rc = check_rate("strategy.mpca.alpha_high", m->alpha_high, err);
    if (rc == OK)
        rc = check_rate("strategy.mpca.alpha_decay", m->alpha_decay, err);
    if (rc == OK)
        rc = check_rate("strategy.mpca.beta", m->beta, err);
    if (rc == OK)
        rc = check_not_negative("strategy.mpca.gamma", (double)m->gamma, err);
    if (rc == OK)
        rc = check_fraction("strategy.mpca.delta", (double)m->delta, err);
    return rc == OK ? check_positive("strategy.mpca.stale_limit", (double)m->stale_limit, err) : rc;
}

static int check_pace(const Paceline__Pace *p, struct err *err)
{
    int rc = check_range("strategy.pace.shards", p->shards, 3, SHARDS_MAX, err);
    return rc == OK ? check_fraction("strategy.pace.gamma", (double)p->gamma, err) : rc;
}

static int check_gossip(const Paceline__Gossip *g, struct err *err)
{
    return check_range("strategy.gossip.p", g->p, 0, 1, err);
}

static int check_diloco(const Paceline__DiLoCo *d, struct err *err)
{
    int rc = check_range("strategy.diloco.tau", d->tau, 1, UINT32_MAX, err);
    if (rc == OK)
        rc = check_positive("strategy.diloco.outer_lr", (double)d->outer_lr, err);
    if (rc == OK)
        rc = check_fraction("strategy.diloco.outer_momentum", (double)d->outer_momentum, err);
    if (rc == OK)
        rc = check_range("strategy.diloco.fragments", d->fragments, 1,
                         d->tau < FRAGMENTS_MAX ? d->tau : FRAGMENTS_MAX, err);
    if (rc == OK)
        rc = check_range("strategy.diloco.overlap", d->overlap, 0, d->tau - 1, err);
    return rc == OK ? check_rate("strategy.diloco.mix", d->mix, err) : rc;
}

static int check_full_batch(const Paceline__FullBatch *f, struct err *err)
{
    int rc = check_range("strategy.full_batch.history", f->history, 1, HISTORY_MAX, err);
    return rc == OK ? check_not_negative("strategy.full_batch.tolerance", f->tolerance, err) : rc;
}

static int check_survey(const Paceline__Survey *s, struct err *err)
{
    int rc = check_positive("strategy.survey.seconds", s->seconds, err);
    return rc == OK ? check_range("strategy.survey.steps", s->steps, 1, SURVEY_STEPS_MAX, err) : rc;
}

/* Does the strategy exchange vectors by collectives? Others send transfers, which take one
 * connection. `single` exchanges nothing, so any value is harmless there. */
static bool uses_collectives(const Paceline__Strategy *s)
{
    switch (s->algorithm_case) {
    case PACELINE__STRATEGY__ALGORITHM_PS:
    case PACELINE__STRATEGY__ALGORITHM_DOWNPOUR:
    case PACELINE__STRATEGY__ALGORITHM_GOSSIP: return false;
    case PACELINE__STRATEGY__ALGORITHM_EASGD: return s->easgd->mode == PACELINE__EASGD__MODE__sync;
    default: return true;
    }
}

static int check_collective_use(const Paceline__Job *job, struct err *err)
{
    const Paceline__Collective *c = job->collective;
    const Paceline__Collective unset = PACELINE__COLLECTIVE__INIT;
    if (uses_collectives(job->strategy))
        return OK;
    if (job->strategy->algorithm_case == PACELINE__STRATEGY__ALGORITHM_GOSSIP &&
        c->wire != unset.wire)
        return err_set(
            err, ERR_UNSUPPORTED,
            "collective.wire: strategy.gossip needs f32: it sends whole models to members "
            "that change, and has no common one of which it could send differences");
    const char *field = c->algorithm != unset.algorithm ? "algorithm"
                        : c->stripes != unset.stripes   ? "stripes"
                                                        : NULL;
    return field ? err_set(
                       err, ERR_UNSUPPORTED,
                       "collective.%s: strategy.%s uses no collectives; leave the field out, or "
                       "choose another strategy",
                       field,
                       protobuf_c_message_descriptor_get_field(
                           job->strategy->base.descriptor, (unsigned)job->strategy->algorithm_case)
                           ->name)
                 : OK;
}

/* Why contributions to the job's strategy cannot be judged; NULL: they can. */
static const char *cannot_judge(const Paceline__Job *job)
{
    const Paceline__Strategy *s = job->strategy;
    if (job->slices > 1)
        return "slices of one model contribute parts that differ by design";
    switch (s->algorithm_case) {
    case PACELINE__STRATEGY__ALGORITHM_SINGLE: return "a single worker is compared with nobody";
    case PACELINE__STRATEGY__ALGORITHM_SYNC:
        return s->sync->has_seconds
                   ? "rounds by the clock (strategy.sync.seconds) give fast workers a larger change"
                   : NULL;
    case PACELINE__STRATEGY__ALGORITHM_ASYNC_ALLREDUCE:
        return "its workers submit models of their own, without a common base";
    case PACELINE__STRATEGY__ALGORITHM_MPCA:
    case PACELINE__STRATEGY__ALGORITHM_PACE:
        return "a late contribution waits for the next exchange, and a leaf's is added to its "
               "proxy's";
    case PACELINE__STRATEGY__ALGORITHM_GOSSIP:
        return "a model that is refused takes its share of all weights with it";
    case PACELINE__STRATEGY__ALGORITHM_FULL_BATCH:
        return "without one worker's part the loss is that of other records, and the line search "
               "fails";
    case PACELINE__STRATEGY__ALGORITHM_SURVEY: return "a survey averages nothing";
    default: return NULL;
    }
}

static int check_reject(const Paceline__Job *job, struct err *err)
{
    const char *why = cannot_judge(job);
    return job->reject == PACELINE__JOB__REJECT__outliers && why
               ? err_set(err, ERR_UNSUPPORTED,
                         "reject: outliers is not for strategy.%s: %s; leave it out",
                         job_strategy_name(job), why)
               : OK;
}

int job_finish_strategy(Paceline__Job *job, struct err *err)
{
    Paceline__Strategy *s = job->strategy;
    int rc = check_collective_use(job, err);
    if (rc == OK)
        rc = check_reject(job, err);
    if (rc != OK)
        return rc;
    switch (s->algorithm_case) {
    case PACELINE__STRATEGY__ALGORITHM_SINGLE:
        if (!job_is_alone(job))
            return err_set(err, ERR_INPUT,
                           "strategy.single: needs workers: 1, has %" PRIu32
                           "; write --strategy %s",
                           job_workers_max(job),
                           job->slices > 1 ? "allreduce, or another that is for slices"
                                           : "sync, or another that is for several");
        return OK;
    case PACELINE__STRATEGY__ALGORITHM_SYNC: return check_sync(s->sync, err);
    case PACELINE__STRATEGY__ALGORITHM_ASYNC_ALLREDUCE:
        return check_async_allreduce(s->async_allreduce, err);
    case PACELINE__STRATEGY__ALGORITHM_PS: return check_ps(s->ps, job->workers, err);
    case PACELINE__STRATEGY__ALGORITHM_DOWNPOUR:
        return check_downpour(s->downpour, job->workers, err);
    case PACELINE__STRATEGY__ALGORITHM_EASGD: return finish_easgd(job, err);
    case PACELINE__STRATEGY__ALGORITHM_MPCA: return finish_mpca(s->mpca, err);
    case PACELINE__STRATEGY__ALGORITHM_PACE: return check_pace(job->strategy->pace, err);
    case PACELINE__STRATEGY__ALGORITHM_GOSSIP: return check_gossip(s->gossip, err);
    case PACELINE__STRATEGY__ALGORITHM_DILOCO: return check_diloco(s->diloco, err);
    case PACELINE__STRATEGY__ALGORITHM_FULL_BATCH: return check_full_batch(s->full_batch, err);
    case PACELINE__STRATEGY__ALGORITHM_SURVEY: return check_survey(s->survey, err);
    default: return OK;
    }
}

static void put_value(struct buf *out, const ProtobufCFieldDescriptor *field, const void *slot)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_FLOAT: text_number_put_float(out, *(const float *)slot); break;
    case PROTOBUF_C_TYPE_DOUBLE: text_number_put_double(out, *(const double *)slot); break;
    case PROTOBUF_C_TYPE_BOOL:
        buf_printf(out, "%s", *(const protobuf_c_boolean *)slot ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_ENUM:
        buf_printf(
            out, "%s",
            protobuf_c_enum_descriptor_get_value(field->descriptor, *(const int *)slot)->name);
        break;
    default: buf_printf(out, "%" PRIu32, *(const uint32_t *)slot);
    }
}

void job_strategy_settings(const Paceline__Job *job, char *out, size_t size)
{
    const ProtobufCFieldDescriptor *algorithm = protobuf_c_message_descriptor_get_field(
        &paceline__strategy__descriptor, job->strategy->algorithm_case);
    const ProtobufCMessage *msg =
        *(ProtobufCMessage *const *)text_field_slot(&job->strategy->base, algorithm);
    struct buf text = {0};
    for (unsigned i = 0; i < msg->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &msg->descriptor->fields[i];
        const void *slot = text_field_slot(msg, field);
        bool usual =
            field->default_value && memcmp(slot, field->default_value, text_field_size(field)) == 0;
        if (!text_field_is_set(msg, field) || (usual && i > 0))
            continue;
        buf_printf(&text, "%s%s ", text.len > 0 ? ", " : "", field->name);
        put_value(&text, field, slot);
    }
    buf_put_u8(&text, 0);
    snprintf(out, size, "%s", text.failed ? "" : (const char *)text.data);
    buf_release(&text);
}
