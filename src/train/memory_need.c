#include "train/memory_need.h"

#include "base/memory.h"
#include "job/job_strategy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool may_be_cut(const Paceline__Job *job)
{
    static const char *const names[] = {"single", "allreduce", "sync", "diloco"};
    bool may = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        may |= strcmp(job_strategy_name(job), names[i]) == 0;
    return may && !job->local_data;
}

/* The number of slices of which one has room in `left` bytes, where `bytes` are those of a part
 * now. */
static uint64_t count_slices(const Paceline__Job *job, uint64_t bytes, uint64_t left)
{
    uint64_t whole = bytes * job->slices;
    return (whole + left - 1) / left;
}

/* ERR_NOMEM: so many vectors have no room; *left: bytes that there are. */
static int check_vectors(const char *who, size_t floats, size_t vectors, const char *which,
                         uint64_t *left, struct err *err)
{
    const char *by = NULL;
    uint64_t bytes = (uint64_t)floats * vectors * sizeof(float);
    char limit[64] = "";
    *left = memory_available(&by);
    if (*left == 0 || bytes <= *left)
        return OK;
    if (by)
        snprintf(limit, sizeof limit, " of %.32s", by);
    return err_set(err, ERR_NOMEM,
                   "memory: %s needs %" PRIu64
                   " bytes for %zu times %zu parameters (%s), and %" PRIu64 " are left%s",
                   who, bytes, vectors, floats, which, *left, limit);
}

int memory_check_worker(const Paceline__Job *job, const char *who, size_t floats, size_t states,
                        struct err *err)
{
    uint64_t left;
    size_t vectors = 2 + states;
    int rc =
        check_vectors(who, floats, vectors, "values, gradients, the optimizer's state", &left, err);
    if (rc == OK || !may_be_cut(job))
        return rc;
    uint64_t slices = count_slices(job, (uint64_t)floats * vectors * sizeof(float), left);
    const struct err what = *err;
    return slices > JOB_SLICES_MAX
               ? rc
               : err_set(err, rc,
                         "%s; cut the model into %" PRIu64 " slices at least (--set slices)",
                         what.text, slices);
}

int memory_check_driver(const Paceline__Job *job, size_t floats, size_t states, struct err *err)
{
    uint64_t left;
    int rc = check_vectors("the driver", floats, 3 + states,
                           "initial values, a copy with the optimizer's state, and one to evaluate",
                           &left, err);
    if (rc == OK || !may_be_cut(job) || job->slices > 1)
        return rc;
    const struct err what = *err;
    return err_set(err, rc, "%s; the driver needs none of a model in slices (--set slices)",
                   what.text);
}
