#include "paceline/run.h"

#include "api/api.h"
#include "real/real.h"
#include "train/train.h"

#include <stdio.h>

static void copy_report(const struct train_report *from, pl_run_report *to)
{
    *to = (pl_run_report){
        .has_validation = from->has_validation,
        .has_test = from->has_test,
        .validation_error = from->validation_error,
        .test_error = from->test_error,
        .test_loss = from->test_loss,
        .epochs = from->epochs,
        .samples = from->samples,
        .used = from->used,
        .repeated = from->repeated,
        .missed = from->missed,
        .wall_s = from->wall_s,
        .seed = from->seed,
    };
    snprintf(to->reason, sizeof to->reason, "%s", from->reason);
}

int pl_run(pl_engine *engine, const pl_job *job, const pl_run_options *options,
           pl_run_report *report)
{
    Paceline__Job *finished;
    int rc = api_job_finish(job, &finished);
    if (rc != OK)
        return rc;
    struct train_options how = {
        .job = finished,
        .log = &engine->log,
        .line = options ? options->event : NULL,
        .user = options ? options->user : NULL,
        .stop = options ? options->stop : NULL,
    };
    struct train_report result;
    rc = train_solo(real_world(), &how, &result, &engine->error);
    job_free(finished);
    if (rc == OK)
        copy_report(&result, report);
    return rc;
}
