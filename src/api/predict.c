#include "paceline/predict.h"

#include "api/data.h"
#include "api/guard.h"
#include "api/net.h"
#include "base/file.h"
#include "base/memory.h"
#include "job/job.h"
#include "job/text.h"
#include "model/load.h"
#include "model/scores.h"
#include "model/weights_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the job of a run ---- */

static int load_run(pl_engine *engine, const char *path, pl_job **out)
{
    struct file_bytes text;
    struct err *err = &engine->error;
    int rc = file_read(path, TEXT_BYTES_MAX, &text, err);
    if (rc != OK)
        return rc;
    pl_job *job = calloc(1, sizeof *job);
    rc = job ? job_parse(path, (char *)text.data, text.len, &job->message, err)
             : err_set(err, ERR_NOMEM, "%s: out of memory", path);
    file_release(&text);
    if (rc != OK) {
        free(job);
        return rc;
    }
    job->engine = engine;
    *out = job;
    return OK;
}

int pl_job_load_run(pl_engine *engine, const char *path, pl_job **out)
{
    RETURN_GUARDED(engine, load_run(engine, path, out));
}

/* The model is as large as its file, which is read whole, into room that doubles as it grows. */
static int slices_for(const pl_job *job, const char *weights, uint32_t *slices)
{
    struct err *err = &job->engine->error;
    uint64_t room = memory_available(NULL), budget;
    struct file_open file;
    bool ours;
    *slices = 1;
    if (job->message->slices <= 1)
        return OK;
    if (job->message->slices > JOB_SLICES_MAX)
        return err_set(err, ERR_INPUT, "slices: %u: at most %d", job->message->slices,
                       JOB_SLICES_MAX);
    int rc = job_memory_budget(job->message, room, &budget, err);
    if (rc == OK)
        rc = weights_file_is_ours(weights, &ours, err);
    if (rc != OK || !ours) /* others are read whole */
        return rc;
    rc = file_open(weights, &file, err);
    if (rc != OK)
        return rc;
    uint64_t need = 3 * file.len;
    file_close(&file);
    if (budget > 0 && (room == 0 || budget < room))
        room = budget;
    if (room == 0 || need <= room)
        return OK;
    *slices = job->message->slices;
    log_info(&job->engine->log,
             "the model and its file need %" PRIu64 " bytes, and there are %" PRIu64
             ": %u processes have a slice each",
             need, room, *slices);
    return OK;
}

int pl_job_slices_for(const pl_job *job, const char *weights, uint32_t *slices)
{
    RETURN_GUARDED(job->engine, slices_for(job, weights, slices));
}

/* ---- the shape of records ---- */

/* The shape of a record after these data's maps, as far as it is known without opening the data. */
static bool shape_by_maps(const Paceline__Data *data, struct shape *out)
{
    const Paceline__Data__Color *color = api_data_color(data, NULL);
    bool cifar = data->source_case == PACELINE__DATA__SOURCE_CIFAR10 ||
                 data->source_case == PACELINE__DATA__SOURCE_CIFAR100;
    bool images = data->source_case == PACELINE__DATA__SOURCE_IMAGES ||
                  data->source_case == PACELINE__DATA__SOURCE_WEBDATASET;
    size_t H = data->crop ? data->crop : data->resize_height;
    size_t W = data->crop ? data->crop : data->resize_width;
    if (H == 0 && cifar)
        H = W = data->resize ? data->resize : 32;
    if (H == 0 || !(cifar || images)) /* a Datum has as many channels as it has */
        return false;
    bool gray = images && *color == PACELINE__DATA__COLOR__gray;
    *out = (struct shape){3, {gray ? 1 : 3, H, W}};
    return true;
}

static int shape_of_job(const pl_job *job, struct shape *out)
{
    bool training = !job->message->test_data;
    const Paceline__Data *spec = training ? job->message->train_data : job->message->test_data;
    pl_data *data;
    if (!spec || shape_by_maps(spec, out))
        return OK;
    int rc = pl_data_open_job(job, training, &data);
    if (rc != OK)
        return rc;
    rc = api_data_map(data);
    if (rc == OK)
        *out = api_data_inputs(data);
    pl_data_close(data);
    return rc;
}

static int record_of(const pl_net_spec *spec, const pl_job *job, uint32_t shape[3])
{
    struct err *err = &spec->engine->error;
    int rc = api_spec_check(spec, err);
    if (rc != OK)
        return rc;
    struct shape record = model_record_shape(spec->build.net);
    if (record.n == 0 && job)
        rc = shape_of_job(job, &record);
    if (rc != OK)
        return rc;
    if (record.n == 0)
        record = spec->record;
    if (record.n == 0 || record.n > 3)
        return err_set(err, ERR_NOT_FOUND, "net: the shape of its records is unknown");
    for (size_t i = 0; i < 3; i++)
        shape[i] = i < record.n ? (uint32_t)record.dim[i] : 1;
    return OK;
}

int pl_net_spec_record(const pl_net_spec *spec, const pl_job *job, uint32_t shape[3])
{
    RETURN_GUARDED(spec->engine, record_of(spec, job, shape));
}

static int choose_form(pl_net *net, const struct shape *record, const struct fields *fields)
{
    struct err *err = &net->engine->error;
    if (!net->ws)
        return api_net_form(net, record, fields, err);
    if (net->ws->record_floats == shape_count(record))
        return OK;
    return err_set(err, ERR_USAGE, "net: takes records of %zu values, not of %zu x %zu x %zu",
                   net->ws->record_floats, record->dim[0], record->dim[1], record->dim[2]);
}

int pl_net_form(pl_net *net, uint32_t channels, uint32_t height, uint32_t width)
{
    const struct shape record = {3, {channels, height, width}};
    RETURN_GUARDED(net->engine, choose_form(net, &record, NULL));
}

static const Paceline__Data__Csv *table_of(const Paceline__Data *spec)
{
    return spec && spec->source_case == PACELINE__DATA__SOURCE_CSV ? spec->csv : NULL;
}

/* Records without the targets that the net was trained on get room for them. */
static int form_for_data(pl_net *net, const pl_job *job, pl_data *data)
{
    int rc = api_data_map(data);
    if (rc != OK)
        return rc;
    struct shape record = data->set.shape;
    struct fields fields = data->source->fields;
    const Paceline__Data__Csv *table = job ? table_of(job->message->train_data) : NULL;
    size_t given = shape_count(&record);
    if (fields.n == 0 && table && table->n_target > 0) {
        fields =
            (struct fields){2,
                            {{.name = "data", .shape = {1, {given}}},
                             {.name = "target", .shape = {1, {table->n_target}}, .from = given}}};
        record = (struct shape){3, {given + table->n_target, 1, 1}};
    }
    rc = choose_form(net, &record, &fields);
    net->given = given;
    return rc;
}

int pl_net_form_data(pl_net *net, const pl_job *job, pl_data *data)
{
    RETURN_GUARDED(net->engine, form_for_data(net, job, data));
}

static int find_field(pl_data *data, const char *name, size_t *from, size_t *count)
{
    int rc = api_data_map(data);
    const struct fields *fields = &data->source->fields;
    for (size_t i = 0; rc == OK && i < fields->n; i++) {
        if (strcmp(fields->field[i].name, name) != 0)
            continue;
        *from = fields->field[i].from;
        *count = shape_count(&fields->field[i].shape);
        return OK;
    }
    return rc == OK ? err_set(&data->engine->error, ERR_NOT_FOUND,
                              "data: records have no field \"%.64s\"", name)
                    : rc;
}

int pl_data_field(pl_data *data, const char *name, size_t *from, size_t *count)
{
    RETURN_GUARDED(data->engine, find_field(data, name, from, count));
}

const char *pl_data_target(const pl_data *data, const pl_job *job, size_t k)
{
    const Paceline__Data__Csv *table = table_of(data->spec);
    if ((!table || table->n_target == 0) && job)
        table = table_of(job->message->train_data);
    return table && k < table->n_target ? table->target[k] : NULL;
}

/* ---- what it says ---- */

static int classes_of(pl_net *net, pl_net_classes *out, struct scores *scores)
{
    struct err *err = &net->engine->error;
    struct shape shape = {0};
    pl_net_classes classes = {0};
    int rc = api_net_formed(net, err);
    if (rc == OK)
        rc = model_scores(net->job->net->define, scores, err);
    if (rc != OK)
        return rc;
    if (snprintf(classes.blob, sizeof classes.blob, "%s", scores->blob) >=
            (int)sizeof classes.blob ||
        net_blob(net->ws->test, scores->blob, NULL, 0, &shape) == 0 || shape.n < 2)
        return err_set(err, ERR_INPUT, "net: blob \"%.100s\" has no scores a record", scores->blob);
    int axis = scores->axis < 0 ? scores->axis + (int)shape.n : scores->axis;
    bool steps = shape.n == 3 && axis == 2;
    classes.steps = steps ? shape.dim[1] : 1;
    classes.count = shape.dim[steps ? 2 : 1];
    if (shape_count_from(&shape, 1) != classes.steps * classes.count || axis != (steps ? 2 : 1))
        return err_set(err, ERR_UNSUPPORTED,
                       "net: blob \"%.100s\" has several scores a class for each record",
                       scores->blob);
    classes.values = scores->form == SCORES_VALUES;
    classes.probabilities = scores->form == SCORES_PROBABILITIES || scores->form == SCORES_SOFTMAX;
    if (classes.values)
        snprintf(classes.target, sizeof classes.target, "%s", scores->target);
    *out = classes;
    return OK;
}

int pl_net_classes_of(pl_net *net, pl_net_classes *out)
{
    struct scores scores;
    RETURN_GUARDED(net->engine, classes_of(net, out, &scores));
}

/* p_i = exp(z_i - max z) / sum_k exp(z_k - max z), in place. */
static void apply_softmax(float *z, size_t n)
{
    float most = z[0];
    double sum = 0;
    for (size_t i = 1; i < n; i++)
        most = fmaxf(most, z[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp((double)z[i] - (double)most);
    for (size_t i = 0; i < n; i++)
        z[i] = (float)(exp((double)z[i] - (double)most) / sum);
}

/* Zeros in place of the floats that are not given. */
static int widen_records(const pl_net *net, const float *records, size_t count, float **out)
{
    size_t each = net->ws->record_floats;
    *out = calloc(count > 0 ? count : 1, each * sizeof **out);
    if (!*out)
        return err_set(&net->engine->error, ERR_NOMEM, "net: out of memory for %zu records", count);
    for (size_t i = 0; i < count; i++)
        memcpy(*out + i * each, records + i * net->given, net->given * sizeof **out);
    return OK;
}

static int predict_records(pl_net *net, const float *records, size_t count, float *out, size_t room)
{
    pl_net_classes classes = {.steps = 1};
    struct scores scores = {0};
    size_t each;
    float *wide = NULL;
    int rc = classes_of(net, &classes, &scores);
    if (rc == OK && net->given > 0 && net->given < net->ws->record_floats)
        rc = widen_records(net, records, count, &wide);
    if (rc == OK)
        rc = pl_net_forward(net, wide ? wide : records, count, classes.blob, out, room, &each);
    free(wide);
    size_t rows = count * classes.steps;
    for (size_t i = 0; rc == OK && scores.form == SCORES_SOFTMAX && i < rows; i++)
        apply_softmax(out + i * classes.count, classes.count);
    return rc;
}

int pl_net_predict(pl_net *net, const float *records, size_t count, float *out, size_t room)
{
    RETURN_GUARDED(net->engine, predict_records(net, records, count, out, room));
}
