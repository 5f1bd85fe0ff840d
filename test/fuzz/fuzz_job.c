/* A job in text: read, checked, written, and the same when read again. */
#include "support/fuzz.h"

#include "job/job.h"

#define NAME "in.job"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    Paceline__Job *job = NULL;
    struct err err = {0};
    int rc = job_parse(NAME, (const char *)bytes, n, &job, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc != OK)
        return 0;
    fuzz_text(&job->base);
    rc = job_resolve_paths(job, "folder/" NAME, &err);
    fuzz_judge(rc, &err, NULL);
    if (rc == OK)
        rc = job_finish(job, &err);
    fuzz_judge(rc, &err, NULL);
    if (rc == OK) {
        fuzz_text(&job->base);
        uint64_t hash;
        (void)job_hash(job, &hash, &err);
    }
    job_free(job);
    return 0;
}
