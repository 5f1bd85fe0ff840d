/* Every record of a data set read and decoded, and those named that cannot be. */
#include "api/data.h"
#include "api/guard.h"
#include "api/option_size.h"
#include "base/file.h"

#include <stdlib.h>

/* Record i, decoded, and through the maps where there are any: into x. */
static int read_record(pl_data *data, size_t i, float *x, struct err *err)
{
    const struct source *source = data->source;
    struct raw raw;
    uint32_t label;
    uint64_t record;
    return data->maps ? dataset_read(&data->set, i, NULL, &data->scratch, x, &label, &record, err)
                      : source->ops->read(source, i, &data->scratch, &raw, err);
}

static int verify_all(pl_data *data, const pl_data_check *check, float *x, pl_data_verified *out)
{
    struct err *err = &data->engine->error;
    size_t left_out = out->broken, count = data->source->count;
    for (size_t i = 0; i < count; i++) {
        char name[SOURCE_NAME_MAX];
        out->done = left_out + i;
        if (check->progress && !check->progress(check->user, out->done, left_out + count))
            return OK;
        int rc = read_record(data, i, x, err);
        if (rc == ERR_NOMEM)
            return rc;
        if (rc == OK)
            continue;
        err_prefix(err, "%s", source_name(data->source, i, name));
        check->problem(check->user, err->text);
        out->broken++;
    }
    out->done = left_out + count;
    if (check->progress)
        check->progress(check->user, out->done, out->done);
    return OK;
}

static int verify_open(pl_data *data, const pl_data_check *check, pl_data_verified *out)
{
    int rc = data->maps ? api_data_map(data) : OK;
    if (rc != OK)
        return rc;
    float *x = malloc((data->maps ? shape_count(&data->set.shape) : 1) * sizeof *x);
    rc = x ? verify_all(data, check, x, out)
           : err_set(&data->engine->error, ERR_NOMEM, "data: out of memory");
    free(x);
    return rc;
}

/* Which of two sets, where a folder holds both. */
static const char *set_of(const pl_data *data)
{
    const Paceline__Data *spec = data->spec;
    const char *path = spec->source_case == PACELINE__DATA__SOURCE_CIFAR10    ? spec->cifar10->path
                       : spec->source_case == PACELINE__DATA__SOURCE_CIFAR100 ? spec->cifar100->path
                                                                              : NULL;
    if (!path || !file_is_folder(path))
        return NULL;
    return data->role == SOURCE_TRAIN ? "train" : "test";
}

static int verify_data(pl_engine *engine, const char *spec, bool training,
                       const pl_data_check *given, pl_data_verified *out)
{
    pl_data_check own, *check = &own;
    int rc = OPTIONS_TAKE(pl_data_check, &own, given, &engine->error);
    if (rc != OK)
        return rc;
    struct bad_records *bad = bad_records_create(BAD_RECORDS_MOST);
    pl_data_verified verified = {0};
    pl_data *data = NULL;
    if (!bad)
        return err_set(&engine->error, ERR_NOMEM, "data: out of memory");
    rc = api_data_open(engine, spec, training, bad, &data);
    verified.broken = bad_records_count(bad);
    for (size_t i = 0; i < verified.broken; i++)
        check->problem(check->user, bad_records_at(bad, i)->cause);
    if (rc == OK) {
        verified.set = set_of(data);
        rc = verify_open(data, check, &verified);
    }
    if (rc == OK)
        *out = verified;
    pl_data_close(data);
    bad_records_free(bad);
    return rc;
}

int pl_data_verify(pl_engine *engine, const char *spec, bool training, const pl_data_check *check,
                   pl_data_verified *out)
{
    RETURN_GUARDED(engine, verify_data(engine, spec, training, check, out));
}
