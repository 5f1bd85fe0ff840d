/* Every record of a data set read and decoded, and those named that cannot be. */
#include "api/data.h"
#include "api/guard.h"

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

/* Those that were left out when it was opened. */
static size_t tell_left_out(const pl_data *data, const pl_data_check *check)
{
    size_t count = data->bad ? bad_records_count(data->bad) : 0;
    for (size_t i = 0; i < count; i++)
        check->problem(check->user, bad_records_at(data->bad, i)->cause);
    return count;
}

static int verify_all(pl_data *data, const pl_data_check *check, float *x, size_t *done,
                      size_t *broken)
{
    struct err *err = &data->engine->error;
    size_t left_out = tell_left_out(data, check), count = data->source->count;
    *broken = left_out;
    for (size_t i = 0; i < count; i++) {
        char name[SOURCE_NAME_MAX];
        *done = left_out + i;
        if (check->progress && !check->progress(check->user, *done, left_out + count))
            return OK;
        int rc = read_record(data, i, x, err);
        if (rc == ERR_NOMEM)
            return rc;
        if (rc == OK)
            continue;
        err_prefix(err, "%s", source_name(data->source, i, name));
        check->problem(check->user, err->text);
        ++*broken;
    }
    *done = left_out + count;
    if (check->progress)
        check->progress(check->user, *done, *done);
    return OK;
}

static int verify(pl_data *data, const pl_data_check *check, size_t *done, size_t *broken)
{
    int rc = data->maps ? api_data_map(data) : OK;
    if (rc != OK)
        return rc;
    float *x = malloc((data->maps ? shape_count(&data->set.shape) : 1) * sizeof *x);
    rc = x ? verify_all(data, check, x, done, broken)
           : err_set(&data->engine->error, ERR_NOMEM, "data: out of memory");
    free(x);
    return rc;
}

int pl_data_verify(pl_data *data, const pl_data_check *check, size_t *done, size_t *broken)
{
    RETURN_GUARDED(data->engine, verify(data, check, done, broken));
}
