#include "paceline/run.h"

#include "api/api.h"
#include "real/real.h"

int pl_run(pl_engine *engine, const pl_job *job, const pl_run_options *options,
           pl_run_report *report)
{
    static const pl_run_options defaults;
    Paceline__Job *finished;
    int rc = api_job_finish(job, 0, &finished);
    if (rc != OK)
        return rc;
    struct train_options train = {.job = finished, .stop = options ? options->stop : NULL};
    struct train_report result;
    struct api_sink sink = {0};
    rc = api_sink_open(&sink, finished, options ? options : &defaults, &train, &engine->error);
    if (rc == OK)
        rc = train_solo(real_now, &engine->log, &train, &result, &engine->error);
    if (rc == OK)
        api_report(&sink, &result, report);
    api_sink_close(&sink);
    job_free(finished);
    return rc;
}
