#include "job/job_slices.h"

#include "job/check.h"
#include "job/job.h"

#include <inttypes.h>

int job_settle_slices(Paceline__Job *job, struct err *err)
{
    int rc = check_range("slices", job->slices, 1, JOB_SLICES_MAX, err);
    if (rc != OK || job->slices == 1)
        return rc;
    bool ranges = job->has_workers_min || job->has_workers_max;
    if (ranges && (!job->has_workers_min || job->workers_min != job->workers_max))
        return err_set(err, ERR_UNSUPPORTED,
                       "slices: the number of workers cannot change, since a replica of the model "
                       "has %" PRIu32 " of them; write workers_min: %" PRIu32
                       " and workers_max: %" PRIu32 ", which replaces lost ones, or workers",
                       job->slices, job->workers_max, job->workers_max);
    if (!ranges && !job->has_workers) {
        job->workers = job->slices;
        job->has_workers = true;
    }
    uint32_t workers = ranges ? job->workers_max : job->workers;
    if (workers % job->slices == 0)
        return OK;
    return err_set(err, ERR_INPUT,
                   "workers: %" PRIu32 " with slices: %" PRIu32
                   "; each replica of the model has as many workers as slices: write workers: "
                   "%" PRIu32 ", a multiple of them",
                   workers, job->slices, (workers / job->slices + 1) * job->slices);
}

/* Why a strategy cannot train slices; NULL: it can. Each would need whole vectors, or a server's
 * part of one, on one node, or exchanges among some of a view's members. */
static const char *why_not(const Paceline__Job *job)
{
    switch (job->strategy->algorithm_case) {
    case PACELINE__STRATEGY__ALGORITHM_ALLREDUCE:
    case PACELINE__STRATEGY__ALGORITHM_SYNC:
    case PACELINE__STRATEGY__ALGORITHM_DILOCO: return NULL;
    case PACELINE__STRATEGY__ALGORITHM_SINGLE: return "is for one worker";
    case PACELINE__STRATEGY__ALGORITHM_EASGD:
        if (job->strategy->easgd->mode == PACELINE__EASGD__MODE__sync)
            return NULL;
        return "has the whole model on its server, unless it is given mode: sync";
    case PACELINE__STRATEGY__ALGORITHM_PS:
    case PACELINE__STRATEGY__ALGORITHM_DOWNPOUR: return "has the whole model on its server";
    case PACELINE__STRATEGY__ALGORITHM_MPCA:
    case PACELINE__STRATEGY__ALGORITHM_PACE:
    case PACELINE__STRATEGY__ALGORITHM_ASYNC_ALLREDUCE:
    case PACELINE__STRATEGY__ALGORITHM_GOSSIP:
        return "exchanges while its workers compute, each at its own pace, and slices of a replica "
               "cannot take in another model at different steps";
    default: return "exchanges whole vectors among all workers";
    }
}

int job_check_slices(const Paceline__Job *job, struct err *err)
{
    if (job->slices == 1)
        return OK;
    const char *why = why_not(job);
    if (why)
        return err_set(err, ERR_UNSUPPORTED,
                       "slices: strategy %s is not for slices of a model: it %s; write --strategy "
                       "allreduce, sync or diloco",
                       job_strategy_name(job), why);
    const struct {
        const char *field, *why;
        bool set;
    } refused[] = {
        {"collective.wire", "slices exchange f32",
         job->collective->wire != PACELINE__COLLECTIVE__WIRE__f32},
        {"precision", "slices compute in f32", job->precision != PACELINE__JOB__PRECISION__f32},
        {"local", "a slice is one learner", job->local != 1},
        {"standby", "nobody else has the slice that is lost, where there is one replica",
         job->standby > 0 && job->workers == job->slices},
        {job->batch_growth ? "batch_growth" : "global_batch",
         "all slices take the same `batch` records", job_shares_batch(job)},
        {"local_data", "all slices take the same records", job->local_data},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].set)
            return err_set(err, ERR_UNSUPPORTED, "%s: not with slices: %s; leave it out",
                           refused[i].field, refused[i].why);
    return OK;
}
