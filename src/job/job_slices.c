#include "job/job_slices.h"

#include "job/check.h"
#include "job/job.h"

#include <inttypes.h>

enum { SLICES_MAX = 1024 };

int job_settle_slices(Paceline__Job *job, struct err *err)
{
    int rc = check_range("slices", job->slices, 1, SLICES_MAX, err);
    if (rc != OK || job->slices == 1)
        return rc;
    if (job->has_workers_min || job->has_workers_max)
        return err_set(err, ERR_UNSUPPORTED,
                       "slices: the number of workers cannot change: without one of them the model "
                       "is not complete; --unset %s and write workers: %" PRIu32,
                       job->has_workers_min ? "workers_min" : "workers_max", job->slices);
    if (!job->has_workers) {
        job->workers = job->slices;
        job->has_workers = true;
    }
    if (job->workers != job->slices)
        return err_set(err, ERR_UNSUPPORTED,
                       "slices: needs as many workers, is %" PRIu32 " with workers: %" PRIu32
                       "; several replicas of a model in slices are not supported",
                       job->slices, job->workers);
    return OK;
}

int job_check_slices(const Paceline__Job *job, struct err *err)
{
    const Paceline__AllReduce usual = PACELINE__ALL_REDUCE__INIT;
    const Paceline__AllReduce *allreduce = job->strategy->allreduce;
    if (job->slices == 1)
        return OK;
    if (job->strategy->algorithm_case != PACELINE__STRATEGY__ALGORITHM_ALLREDUCE)
        return err_set(err, ERR_UNSUPPORTED,
                       "slices: strategy %s is not for slices of a model; write --strategy "
                       "allreduce",
                       job_strategy_name(job));
    const struct {
        const char *field, *why;
        bool set;
    } refused[] = {
        {"strategy.allreduce.bucket_kb", "slices of one replica exchange no gradients of weights",
         allreduce->bucket_kb != usual.bucket_kb},
        {"collective.wire", "slices exchange f32",
         job->collective->wire != PACELINE__COLLECTIVE__WIRE__f32},
        {"precision", "slices compute in f32", job->precision != PACELINE__JOB__PRECISION__f32},
        {"local", "a slice is one learner", job->local != 1},
        {"standby", "a slice is not replaced", job->standby > 0},
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
