#include "api/data.h"

#include "api/guard.h"
#include "data/mean_file.h"
#include "data/source_pictures.h"
#include "data/source_text.h"
#include "job/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

Paceline__Data__Color *api_data_color(const Paceline__Data *spec, protobuf_c_boolean **given)
{
    protobuf_c_boolean *unused;
    protobuf_c_boolean **has = given ? given : &unused;
    switch (spec->source_case) {
    case PACELINE__DATA__SOURCE_IMAGES:
        *has = &spec->images->has_color;
        return &spec->images->color;
    case PACELINE__DATA__SOURCE_WEBDATASET:
        *has = &spec->webdataset->has_color;
        return &spec->webdataset->color;
    case PACELINE__DATA__SOURCE_SHARDS:
        *has = &spec->shards->has_color;
        return &spec->shards->color;
    case PACELINE__DATA__SOURCE_LMDB: *has = &spec->lmdb->has_color; return &spec->lmdb->color;
    default: return NULL;
    }
}

static bool gives_size(const Paceline__Data *spec)
{
    return spec->crop || spec->pad || spec->resize || spec->resize_height;
}

static bool has_mean_file(const Paceline__Data *spec)
{
    return spec->mean_file && spec->mean_file[0];
}

bool api_data_has_maps(const Paceline__Data *spec)
{
    return gives_size(spec) || spec->has_scale || spec->n_mean > 0 || has_mean_file(spec) ||
           spec->has_mirror;
}

static void forget_maps(pl_data *data)
{
    if (data->mapped)
        dataset_release(&data->set);
    data->mapped = false;
}

/* Open the source of the present spec in place of the open one, which stays open on an error. */
static int open_source(pl_data *data)
{
    struct err *err = &data->engine->error;
    struct source *source = NULL;
    const struct source_config config = {.role = data->role,
                                         .bad = data->bad,
                                         .bindings = &data->engine->bindings,
                                         .remote = data->engine->remote};
    int rc = data->path ? source_pictures_open((const char *const *)data->path, data->paths,
                                               data->spec->images->color, NULL, &source, err)
                        : source_open_with(&config, data->spec, &source, err);
    if (rc != OK)
        return rc;
    forget_maps(data);
    source_close(data->source);
    data->source = source;
    return OK;
}

/* The same records with their colours in another order, which is then settled. */
static int set_color(pl_data *data, Paceline__Data__Color color)
{
    protobuf_c_boolean *given = NULL;
    Paceline__Data__Color *ours = api_data_color(data->spec, &given), before = *ours;
    *ours = color;
    int rc = color == before ? OK : open_source(data);
    if (rc != OK)
        *ours = before;
    else
        *given = true;
    return rc;
}

/* `data` is all there is to it but its source; it is freed if it cannot be opened. */
static int open_data(pl_data *data, const char *field, pl_data **out)
{
    struct err *err = &data->engine->error;
    int rc = job_check_data(data->spec, field, err);
    if (rc == OK)
        rc = open_source(data);
    if (rc == OK)
        rc = job_text_settle(data->spec, source_text_settled(data->source), err);
    if (rc == OK && !data->path)
        rc = names_of(data->spec, data->engine->remote, &data->names, err);
    data->own_maps = data->maps = api_data_has_maps(data->spec);
    data->own_size = gives_size(data->spec);
    if (rc == OK && data->source->warning[0])
        log_warn(&data->engine->log, "%s", data->source->warning);
    if (rc == OK)
        *out = data;
    else
        pl_data_close(data);
    return rc;
}

static pl_data *new_data(pl_engine *engine, enum source_role role)
{
    pl_data *data = calloc(1, sizeof *data);
    if (!data) {
        err_set(&engine->error, ERR_NOMEM, "data: out of memory");
        return NULL;
    }
    data->engine = engine;
    data->role = role;
    return data;
}

/* Records have the columns and the vocabulary of `job` (NULL: none), if it has them. */
static int open_spec(pl_data *data, const char *spec, const Paceline__Job *job, pl_data **out)
{
    struct err *err = &data->engine->error;
    int rc = job_set_data(&data->spec, spec, err);
    if (rc == OK)
        rc = job_data_settle(data->spec, job ? job->train_data : NULL, err);
    if (rc == OK)
        return open_data(data, "data", out);
    pl_data_close(data);
    return rc;
}

int api_data_open(pl_engine *engine, const char *spec, bool training, struct bad_records *bad,
                  pl_data **out)
{
    pl_data *data = new_data(engine, training ? SOURCE_TRAIN : SOURCE_TEST);
    if (!data)
        return ERR_NOMEM;
    data->bad = bad;
    return open_spec(data, spec, NULL, out);
}

static int open_for(const pl_job *job, const char *spec, pl_data **out)
{
    pl_data *data = new_data(job->engine, SOURCE_TEST);
    return data ? open_spec(data, spec, job->message, out) : ERR_NOMEM;
}

static int copy_paths(pl_data *data, const char *const *paths, size_t count)
{
    data->path = calloc(count, sizeof *data->path);
    for (; data->path && data->paths < count; data->paths++) {
        data->path[data->paths] = strdup(paths[data->paths]);
        if (!data->path[data->paths])
            return ERR_NOMEM;
    }
    return data->path ? OK : ERR_NOMEM;
}

static int open_pictures(pl_engine *engine, const char *const *paths, size_t count,
                         const char *maps, pl_data **out)
{
    struct err *err = &engine->error;
    if (count == 0)
        return err_set(err, ERR_USAGE, "pictures: there are none");
    pl_data *data = new_data(engine, SOURCE_TEST);
    struct buf spec = {0};
    buf_printf(&spec, "images:pictures%s%s", maps && maps[0] ? "?" : "", maps ? maps : "");
    buf_put_u8(&spec, 0);
    int rc = !data ? ERR_NOMEM : OK;
    if (rc == OK && (spec.failed || copy_paths(data, paths, count) != OK))
        rc = err_set(err, ERR_NOMEM, "pictures: out of memory");
    if (rc == OK)
        rc = job_set_data(&data->spec, (const char *)spec.data, err);
    buf_release(&spec);
    if (rc == OK)
        return open_data(data, "pictures", out);
    pl_data_close(data);
    return rc;
}

static int open_job(const pl_job *job, bool training, pl_data **out)
{
    struct err *err = &job->engine->error;
    const Paceline__Data *spec = training ? job->message->train_data : job->message->test_data;
    const char *field = training ? "train_data" : "test_data";
    if (!spec)
        return err_set(err, ERR_INPUT,
                       "%s: is missing from the job; name records with --data KIND:PATH", field);
    pl_data *data = new_data(job->engine, training ? SOURCE_TRAIN : SOURCE_TEST);
    if (!data)
        return ERR_NOMEM;
    data->spec = (Paceline__Data *)text_copy(&spec->base);
    if (data->spec)
        return open_data(data, field, out);
    pl_data_close(data);
    return err_set(err, ERR_NOMEM, "data: out of memory");
}

int pl_data_open(pl_engine *engine, const char *spec, bool training, pl_data **out)
{
    RETURN_GUARDED(engine, api_data_open(engine, spec, training, NULL, out));
}

int pl_data_open_for(const pl_job *job, const char *spec, pl_data **out)
{
    RETURN_GUARDED(job->engine, open_for(job, spec, out));
}

int pl_data_open_pictures(pl_engine *engine, const char *const *paths, size_t count,
                          const char *maps, pl_data **out)
{
    RETURN_GUARDED(engine, open_pictures(engine, paths, count, maps, out));
}

int pl_data_open_job(const pl_job *job, bool training, pl_data **out)
{
    RETURN_GUARDED(job->engine, open_job(job, training, out));
}

void pl_data_close(pl_data *data)
{
    if (!data)
        return;
    forget_maps(data);
    source_close(data->source);
    names_release(&data->names);
    scratch_release(&data->scratch);
    stats_release(&data->stats);
    free(data->channel);
    free(data->of_class);
    for (size_t i = 0; i < data->paths; i++)
        free(data->path[i]);
    free(data->path);
    if (data->spec)
        paceline__data__free_unpacked(data->spec, NULL);
    free(data);
}

/* ---- maps ---- */

int api_data_map(pl_data *data)
{
    if (data->mapped)
        return OK;
    int rc = dataset_init(&data->set, data->source, data->spec, &data->engine->error);
    data->mapped = rc == OK;
    return rc;
}

static int take_colors(pl_data *data, const Paceline__Data *from)
{
    protobuf_c_boolean *given = NULL;
    Paceline__Data__Color *ours = api_data_color(data->spec, &given);
    const Paceline__Data__Color *theirs = api_data_color(from, NULL);
    return ours && theirs && !*given ? set_color(data, *theirs) : OK;
}

/* Everything but mirror, which is for training, into a spec without maps. */
static int copy_maps(Paceline__Data *to, const Paceline__Data *from)
{
    float *mean = NULL;
    char *file = NULL;
    if (from->n_mean > 0 && !(mean = malloc(from->n_mean * sizeof *mean)))
        return ERR_NOMEM;
    if (has_mean_file(from) && !(file = strdup(from->mean_file))) {
        free(mean);
        return ERR_NOMEM;
    }
    if (mean)
        memcpy(mean, from->mean, from->n_mean * sizeof *mean);
    free(to->mean);
    free(to->mean_file); /* which may be there and empty */
    to->n_mean = from->n_mean;
    to->mean = mean;
    to->mean_file = file;
    to->has_scale = from->has_scale;
    to->scale = from->scale;
    to->pad = from->pad;
    to->crop = from->crop;
    to->resize = from->resize;
    to->resize_height = from->resize_height;
    to->resize_width = from->resize_width;
    to->has_pad = to->has_crop = to->has_resize = true;
    to->has_resize_height = to->has_resize_width = true;
    return OK;
}

static int take_maps(pl_data *data, const pl_job *job)
{
    const Paceline__Data *from =
        job->message->test_data ? job->message->test_data : job->message->train_data;
    if (!from)
        return OK;
    int rc = take_colors(data, from);
    if (rc != OK || data->own_maps)
        return rc;
    forget_maps(data);
    data->maps = api_data_has_maps(from);
    return copy_maps(data->spec, from) == OK
               ? OK
               : err_set(&data->engine->error, ERR_NOMEM, "data: out of memory");
}

int pl_data_take_maps(pl_data *data, const pl_job *job)
{
    RETURN_GUARDED(data->engine, take_maps(data, job));
}

/* ---- to a net's size ---- */

struct shape api_data_inputs(const pl_data *data)
{
    const struct fields *fields = &data->source->fields;
    bool table = data->spec->source_case == PACELINE__DATA__SOURCE_CSV && fields->n > 0;
    return table ? (struct shape){3, {shape_count(&fields->field[0].shape), 1, 1}}
                 : data->set.shape;
}

static bool shape_fits(const pl_data *data, const uint32_t want[3])
{
    struct shape inputs = api_data_inputs(data);
    for (int i = 0; i < 3; i++)
        if (inputs.dim[i] != want[i])
            return false;
    return true;
}

static int refuse_shape(pl_data *data, const uint32_t want[3])
{
    const struct shape inputs = api_data_inputs(data);
    const size_t *dim = inputs.dim;
    return err_set(&data->engine->error, ERR_INPUT,
                   "data: records of %zu x %zu x %zu, and the net takes %u x %u x %u", dim[0],
                   dim[1], dim[2], want[0], want[1], want[2]);
}

/* Colour pictures for a net of one channel. */
static int make_grey(pl_data *data)
{
    protobuf_c_boolean *given = NULL;
    Paceline__Data__Color *color = api_data_color(data->spec, &given);
    if (!color || *given || (data->source->shape.dim[0] == 1))
        return OK;
    snprintf(data->reason, sizeof data->reason, "pictures are made grey");
    return set_color(data, PACELINE__DATA__COLOR__gray);
}

/* The size that the mean image wants before records are cropped; else 0. */
static int mean_size(const pl_data *data, size_t *h, size_t *w)
{
    struct mean_file mean;
    *h = *w = 0;
    if (!has_mean_file(data->spec))
        return OK;
    int rc = mean_file_read(data->spec->mean_file, &mean, &data->engine->error);
    if (rc != OK)
        return rc;
    *h = mean.shape.dim[1];
    *w = mean.shape.dim[2];
    free(mean.mean);
    return OK;
}

/* Maps that lead to the wanted size, whatever the records'. */
static int choose_size(pl_data *data, const uint32_t want[3])
{
    Paceline__Data *spec = data->spec;
    size_t h, w;
    int rc = mean_size(data, &h, &w);
    if (rc != OK)
        return rc;
    bool square = want[1] == want[2], exact = h > 0 || !square;
    if (h == 0) {
        h = want[1];
        w = want[2];
    }
    bool crop = h != want[1] || w != want[2] || !exact;
    spec->pad = 0;
    spec->crop = crop && square ? want[1] : 0;
    spec->resize = exact ? 0 : want[1];
    spec->resize_height = exact ? (uint32_t)h : 0;
    spec->resize_width = exact ? (uint32_t)w : 0;
    size_t used = strlen(data->reason);
    char edges[48] = "";
    if (exact)
        snprintf(edges, sizeof edges, "%zu x %zu pixels", h, w);
    else
        snprintf(edges, sizeof edges, "%zu pixels along the shorter edge", h);
    snprintf(data->reason + used, sizeof data->reason - used, "%srecords are resized to %s%s",
             used ? ", " : "", edges, spec->crop ? " and cut to the middle" : "");
    return OK;
}

/* Would the crop of a job, made for smaller records, see less than half of some record's edges? */
static bool sees_little(const pl_data *data)
{
    const Paceline__Data *spec = data->spec;
    if (data->own_size || spec->crop == 0 || spec->resize || spec->resize_height)
        return false;
    for (size_t i = 0; i < data->source->count; i++) {
        size_t H, W;
        source_size(data->source, i, &H, &W);
        if ((H < W ? H : W) > 2 * (size_t)spec->crop)
            return true;
    }
    return false;
}

/* Replace maps that do not give the wanted size. */
static int resize_records(pl_data *data, const uint32_t want[3])
{
    forget_maps(data);
    int rc = choose_size(data, want);
    if (rc == OK)
        rc = api_data_map(data);
    if (rc != OK)
        return rc;
    return shape_fits(data, want) ? OK : refuse_shape(data, want);
}

static int fit_records(pl_data *data, const uint32_t want[3], const char **reason)
{
    data->reason[0] = '\0';
    int rc = want[0] == 1 ? make_grey(data) : OK;
    if (rc != OK)
        return rc;
    rc = api_data_map(data);
    if (rc == OK && api_data_inputs(data).dim[0] != want[0])
        return refuse_shape(data, want);
    bool there = rc == OK && shape_fits(data, want) && !sees_little(data);
    if (!there && data->own_size)
        return rc == OK ? refuse_shape(data, want) : rc;
    if (!there && (rc == OK || rc == ERR_INPUT))
        rc = resize_records(data, want);
    if (rc == OK)
        *reason = data->reason[0] ? data->reason : NULL;
    return rc;
}

int pl_data_fit(pl_data *data, uint32_t channels, uint32_t height, uint32_t width,
                const char **reason)
{
    const uint32_t want[3] = {channels, height, width};
    RETURN_GUARDED(data->engine, fit_records(data, want, reason));
}

/* ---- reading ---- */

static int shape_of(pl_data *data, uint32_t shape[3])
{
    int rc = api_data_map(data);
    for (int i = 0; rc == OK && i < 3; i++)
        shape[i] = (uint32_t)data->set.shape.dim[i];
    return rc;
}

int pl_data_shape(pl_data *data, uint32_t shape[3])
{
    RETURN_GUARDED(data->engine, shape_of(data, shape));
}

int api_data_check(pl_data *data, size_t first, size_t count, size_t room)
{
    struct err *err = &data->engine->error;
    int rc = api_data_map(data);
    if (rc != OK)
        return rc;
    size_t each = shape_count(&data->set.shape);
    if (first > data->set.count || count > data->set.count - first)
        return err_set(err, ERR_USAGE, "data: %zu records from %zu on, and there are %zu", count,
                       first, data->set.count);
    if (room / each < count)
        return err_set(err, ERR_USAGE, "data: %zu records of %zu floats need more room", count,
                       each);
    return OK;
}

static int read_records(pl_data *data, size_t first, size_t count, float *out, size_t room)
{
    struct err *err = &data->engine->error;
    int rc = api_data_check(data, first, count, room);
    size_t each = rc == OK ? shape_count(&data->set.shape) : 0;
    for (size_t i = 0; rc == OK && i < count; i++) {
        uint32_t label;
        uint64_t record;
        rc = dataset_read(&data->set, first + i, NULL, &data->scratch, out + i * each, &label,
                          &record, err);
    }
    return rc;
}

int pl_data_read(pl_data *data, size_t first, size_t count, float *out, size_t room)
{
    RETURN_GUARDED(data->engine, read_records(data, first, count, out, room));
}
