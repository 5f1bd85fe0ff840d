#include "job/job.h"

#include "base/fault.h"
#include "base/hash.h"
#include "job/job_data.h"
#include "job/text.h"
#include "job/text_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELD_TEXT_MAX = 256, PATH_TEXT_MAX = 4096 };

int job_parse(const char *name, const char *text, size_t len, Paceline__Job **out, struct err *err)
{
    ProtobufCMessage *msg = NULL;
    int rc = text_parse(&paceline__job__descriptor, name, text, len, &msg, err);
    if (rc == OK)
        *out = (Paceline__Job *)msg;
    return rc;
}

void job_free(Paceline__Job *job)
{
    if (job)
        protobuf_c_message_free_unpacked(&job->base, NULL);
}

/* A mistake on the command line is wrong usage, not bad input. */
static int as_usage(int rc, struct err *err)
{
    if (rc != ERR_INPUT)
        return rc;
    if (err)
        err->status = ERR_USAGE;
    return ERR_USAGE;
}

int job_set_strategy(Paceline__Job *job, const char *name, struct err *err)
{
    const ProtobufCMessageDescriptor *type = &paceline__strategy__descriptor;
    const ProtobufCFieldDescriptor *field = text_field_find(type, name, strlen(name));
    if (field && text_field_in_oneof(field)) {
        char path[FIELD_TEXT_MAX];
        snprintf(path, sizeof path, "strategy.%s", field->name);
        return text_set(&job->base, path, "{}", err);
    }
    char known[FIELD_TEXT_MAX] = "";
    for (unsigned i = 0; i < type->n_fields; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", type->fields[i].name);
    }
    return err_set(err, ERR_USAGE, "no strategy is called `%.60s`; there are %s", name, known);
}

int job_set(Paceline__Job *job, const char *assignment, struct err *err)
{
    char path[FIELD_TEXT_MAX];
    const char *equals = strchr(assignment, '=');
    size_t n = equals ? (size_t)(equals - assignment) : 0;
    if (n == 0 || n >= sizeof path)
        return err_set(err, ERR_USAGE, "set `%.60s`: write FIELD=VALUE, as in batch=32",
                       assignment);
    memcpy(path, assignment, n);
    path[n] = '\0';
    return as_usage(text_set(&job->base, path, equals + 1, err), err);
}

int job_unset(Paceline__Job *job, const char *field, struct err *err)
{
    return as_usage(text_unset(&job->base, field, NULL, err), err);
}

/* A field, and one that excludes it. */
static const struct rivals {
    const char *field, *rival;
} rivals[] = {
    {"workers", "workers_min"},    {"workers", "workers_max"},
    {"workers_min", "workers"},    {"workers_max", "workers"},
    {"batch", "global_batch"},     {"batch", "batch_growth"},
    {"global_batch", "batch"},     {"global_batch", "batch_growth"},
    {"batch_growth", "batch"},     {"batch_growth", "global_batch"},
    {"stop.epochs", "stop.steps"}, {"stop.steps", "stop.epochs"},
};

static int take_back(Paceline__Job *job, const char *field, char taken[JOB_TAKEN_MAX],
                     struct err *err)
{
    bool was_set;
    size_t n = strlen(taken);
    int rc = text_unset(&job->base, field, &was_set, err);
    if (rc == OK && was_set)
        snprintf(taken + n, JOB_TAKEN_MAX - n, "%s%s", n > 0 ? ", " : "", field);
    return rc;
}

static bool is_single(const Paceline__Job *job)
{
    return job->strategy && job->strategy->algorithm_case == PACELINE__STRATEGY__ALGORITHM_SINGLE;
}

int job_override(Paceline__Job *job, const char *assignment, char taken[JOB_TAKEN_MAX],
                 struct err *err)
{
    size_t n = strcspn(assignment, "=");
    int rc = job_set(job, assignment, err);
    taken[0] = '\0';
    for (size_t i = 0; rc == OK && i < sizeof rivals / sizeof *rivals; i++)
        if (strlen(rivals[i].field) == n && strncmp(rivals[i].field, assignment, n) == 0)
            rc = take_back(job, rivals[i].rival, taken, err);
    if (rc == OK && strncmp(assignment, "workers", 7) == 0 && !job_is_alone(job) && is_single(job))
        rc = take_back(job, "strategy.single", taken, err);
    return rc;
}

int job_resolve_paths(Paceline__Job *job, const char *job_path, struct err *err)
{
    int rc = OK;
    if (job->net && job->net->source_case == PACELINE__NET__SOURCE_FILE)
        rc = job_resolve(&job->net->file, job_path, "net.file", err);
    if (rc == OK && job_is_auto(job) && job->strategy->auto_->cluster)
        rc = job_resolve(&job->strategy->auto_->cluster, job_path, "strategy.auto.cluster", err);
    if (rc == OK)
        rc = job_resolve_list(&job->weights, NULL, job_path, "weights", err);
    if (rc == OK)
        rc = job_data_resolve(job->train_data, NULL, job_path, "train_data", err);
    if (rc == OK)
        rc = job_data_resolve(job->test_data, NULL, job_path, "test_data", err);
    return rc;
}

int job_move_data(Paceline__Job *job, const char *folder, const char *root, struct err *err)
{
    char sibling[PATH_TEXT_MAX];
    if (snprintf(sibling, sizeof sibling, "%s/", root) >= (int)sizeof sibling)
        return err_set(err, ERR_INPUT, "%.80s...: path longer than %d bytes", root, PATH_TEXT_MAX);
    int rc = job_data_resolve(job->train_data, folder, sibling, "train_data", err);
    if (rc == OK)
        rc = job_data_resolve(job->test_data, folder, sibling, "test_data", err);
    return rc;
}

bool job_is_auto(const Paceline__Job *job)
{
    return job->strategy && job->strategy->algorithm_case == PACELINE__STRATEGY__ALGORITHM_AUTO;
}

/* Set a field to a message as it is. */
static int copy_field(Paceline__Job *job, const char *path, const ProtobufCMessage *from,
                      struct err *err)
{
    struct buf text = {0};
    buf_printf(&text, "{\n");
    text_write(from, &text);
    buf_printf(&text, "}");
    buf_put_u8(&text, 0);
    int rc = text.failed ? err_set(err, ERR_NOMEM, "%s: out of memory", path)
                         : text_set(&job->base, path, (const char *)text.data, err);
    buf_release(&text);
    return rc;
}

int job_take_choice(Paceline__Job *job, const Paceline__Job *from, struct err *err)
{
    char workers[16];
    snprintf(workers, sizeof workers, "%u", (unsigned)from->workers);
    int rc = copy_field(job, "strategy", &from->strategy->base, err);
    return rc == OK && !job->has_workers_min ? text_set(&job->base, "workers", workers, err) : rc;
}

const char *job_strategy_name(const Paceline__Job *job)
{
    const ProtobufCMessageDescriptor *type = &paceline__strategy__descriptor;
    PL_ASSERT(job->strategy && job->strategy->algorithm_case);
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(type, job->strategy->algorithm_case);
    PL_ASSERT(field);
    return field->name;
}

int job_hash(const Paceline__Job *job, uint64_t *out, struct err *err)
{
    struct buf text = {0};
    Paceline__Job same = *job;
    same.has_threads = false;
    text_write(&same.base, &text);
    if (!text.failed)
        *out = hash_bytes(text.data, text.len);
    int rc = text.failed ? err_set(err, ERR_NOMEM, "job: out of memory") : OK;
    buf_release(&text);
    return rc;
}
