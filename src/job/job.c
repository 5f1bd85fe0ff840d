#include "job/job.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "job/text.h"
#include "job/text_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT_MAX = 4096, FIELD_TEXT_MAX = 256, DATA_TEXT_MAX = 16384 };

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

/* What came from a command line is wrong usage, not bad input. */
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
        return err_set(err, ERR_USAGE, "`%.60s`: expected FIELD=VALUE", assignment);
    memcpy(path, assignment, n);
    path[n] = '\0';
    return as_usage(text_set(&job->base, path, equals + 1, err), err);
}

/* "scale=0.0039&mean=1,2" */
static int set_maps(Paceline__Data *data, char *maps, const char *spec, struct err *err)
{
    char *rest = NULL;
    for (char *map = strtok_r(maps, "&", &rest); map; map = strtok_r(NULL, "&", &rest)) {
        char *equals = strchr(map, '=');
        if (equals)
            *equals = '\0';
        bool scale = strcmp(map, "scale") == 0, mean = strcmp(map, "mean") == 0;
        if (!equals || (!scale && !mean))
            return err_set(err, ERR_USAGE, "%.200s: expected scale=S or mean=M,... after `?`",
                           spec);
        if (scale ? data->has_scale : data->n_mean > 0)
            return err_set(err, ERR_USAGE, "%.200s: %s is given twice", spec, map);
        int rc = as_usage(text_set(&data->base, map, equals + 1, err), err);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static int set_idx(Paceline__Data *data, char *paths, const char *spec, struct err *err)
{
    char *comma = strchr(paths, ',');
    if (!comma || comma == paths || !comma[1] || strchr(comma + 1, ','))
        return err_set(err, ERR_USAGE, "%.200s: expected idx:IMAGES,LABELS", spec);
    *comma = '\0';
    Paceline__Data__Idx *idx =
        (Paceline__Data__Idx *)text_message_new(&paceline__data__idx__descriptor);
    if (!idx)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory", spec);
    data->source_case = PACELINE__DATA__SOURCE_IDX;
    data->idx = idx;
    idx->images = strdup(paths);
    idx->labels = strdup(comma + 1);
    if (!idx->images || !idx->labels)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory", spec);
    return OK;
}

int job_set_data(Paceline__Data **data, const char *spec, struct err *err)
{
    char copy[DATA_TEXT_MAX];
    size_t n = strlen(spec);
    if (n >= sizeof copy)
        return err_set(err, ERR_USAGE, "%.60s...: longer than %d bytes", spec, DATA_TEXT_MAX);
    memcpy(copy, spec, n + 1);
    char *colon = strchr(copy, ':');
    if (!colon)
        return err_set(err, ERR_USAGE, "%.200s: expected KIND:PATH, such as idx:IMAGES,LABELS",
                       spec);
    *colon = '\0';
    if (strcmp(copy, "idx") != 0)
        return err_set(err, ERR_USAGE, "%.200s: no kind of data is called `%.60s`; there is idx",
                       spec, copy);
    char *maps = strrchr(colon + 1, '?');
    if (maps)
        *maps++ = '\0';
    Paceline__Data *fresh = (Paceline__Data *)text_message_new(&paceline__data__descriptor);
    if (!fresh)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory", spec);
    int rc = set_idx(fresh, colon + 1, spec, err);
    if (rc == OK && maps)
        rc = set_maps(fresh, maps, spec, err);
    if (rc != OK) {
        protobuf_c_message_free_unpacked(&fresh->base, NULL);
        return rc;
    }
    if (*data)
        protobuf_c_message_free_unpacked(&(*data)->base, NULL);
    *data = fresh;
    return OK;
}

static int resolve(char **path, const char *job_path, const char *field, struct err *err)
{
    if (!*path || !**path)
        return OK;
    char full[PATH_TEXT_MAX];
    int rc = file_resolve(job_path, *path, full, sizeof full, err);
    if (rc != OK) {
        err_prefix(err, "%s", field);
        return rc;
    }
    char *copy = strdup(full);
    if (!copy)
        return err_set(err, ERR_NOMEM, "%s: out of memory", field);
    free(*path);
    *path = copy;
    return OK;
}

static int resolve_data(Paceline__Data *data, const char *job_path, const char *field,
                        struct err *err)
{
    if (!data || data->source_case != PACELINE__DATA__SOURCE_IDX)
        return OK;
    char name[FIELD_TEXT_MAX];
    snprintf(name, sizeof name, "%s.idx.images", field);
    int rc = resolve(&data->idx->images, job_path, name, err);
    if (rc != OK)
        return rc;
    snprintf(name, sizeof name, "%s.idx.labels", field);
    return resolve(&data->idx->labels, job_path, name, err);
}

int job_resolve_paths(Paceline__Job *job, const char *job_path, struct err *err)
{
    int rc = OK;
    if (job->net && job->net->source_case == PACELINE__NET__SOURCE_FILE)
        rc = resolve(&job->net->file, job_path, "net.file", err);
    if (rc == OK)
        rc = resolve_data(job->train_data, job_path, "train_data", err);
    if (rc == OK)
        rc = resolve_data(job->test_data, job_path, "test_data", err);
    return rc;
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

uint64_t job_hash(const Paceline__Job *job)
{
    struct buf text = {0};
    Paceline__Job same = *job;
    same.has_threads = false;
    text_write(&same.base, &text);
    PL_ASSERT(!text.failed);
    uint64_t hash = hash_bytes(text.data, text.len);
    buf_release(&text);
    return hash;
}
