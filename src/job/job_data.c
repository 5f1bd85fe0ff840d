#include "job/job_data.h"

#include "base/bytes.h"
#include "base/file.h"
#include "job/check.h"
#include "job/job.h"
#include "job/text.h"
#include "job/text_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT_MAX = 4096, FIELD_TEXT_MAX = 256 };
enum { STREAMS_MAX = 65536 };
enum { SIDE_MAX = 16384, PAD_MAX = 1024 };          /* pixels; data/raw.h has the same limit */
enum { TEXT_WINDOW_MAX = 65536 };                   /* units of a record */
enum { FIELDS_MAX = 16, FIELD_DIMENSIONS_MAX = 7 }; /* as tensor/record_fields.h, shape.h */

static bool is_filled(const char *text)
{
    return text && *text;
}

/* "train_data.idx.images", and the like. */
static const char *join_field(char out[FIELD_TEXT_MAX], const char *field, const char *name)
{
    snprintf(out, FIELD_TEXT_MAX, "%.200s.%s", field, name);
    return out;
}

/* "train_data.zip.field[1].data" */
static const char *join_part(char out[FIELD_TEXT_MAX], const char *field, size_t k)
{
    snprintf(out, FIELD_TEXT_MAX, "%.200s.zip.field[%zu].data", field, k);
    return out;
}

/* The fields of a zip; of other data there are none. */
static size_t fields_of(const Paceline__Data *data, Paceline__Data__Field ***field)
{
    bool zips = data && data->source_case == PACELINE__DATA__SOURCE_ZIP;
    *field = zips ? data->zip->field : NULL;
    return zips ? data->zip->n_field : 0;
}

/* ---- paths ---- */

int job_resolve(char **path, const char *job_path, const char *field, struct err *err)
{
    if (!is_filled(*path) || remote_is_url(*path))
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

/* "jobs/a/images" of the folder "jobs/" is "a/images". */
static void strip_folder(char *path, const char *folder)
{
    size_t n = folder ? strlen(folder) : 0;
    if (n > 0 && path && strncmp(path, folder, n) == 0 && path[n])
        memmove(path, path + n, strlen(path + n) + 1);
}

int job_resolve_list(char **list, const char *folder, const char *job_path, const char *field,
                     struct err *err)
{
    if (!is_filled(*list))
        return OK;
    struct buf full = {0};
    char *copy = strdup(*list), *rest = NULL;
    int rc = copy ? OK : err_set(err, ERR_NOMEM, "%s: out of memory", field);
    for (char *path = copy ? strtok_r(copy, ",", &rest) : NULL; rc == OK && path;
         path = strtok_r(NULL, ",", &rest)) {
        char *one = strdup(path + strspn(path, " "));
        strip_folder(one, folder);
        rc = one ? job_resolve(&one, job_path, field, err)
                 : err_set(err, ERR_NOMEM, "%s: out of memory", field);
        buf_printf(&full, "%s%s", full.len > 0 ? "," : "", one ? one : "");
        free(one);
    }
    free(copy);
    buf_put_u8(&full, 0);
    if (rc == OK && full.failed)
        rc = err_set(err, ERR_NOMEM, "%s: out of memory", field);
    if (rc != OK) {
        buf_release(&full);
        return rc;
    }
    free(*list);
    *list = (char *)full.data;
    return OK;
}

/* All there can be. */
enum { PATHS_MAX = 3 };

/* It may be missing; it must be there; so must one or several, with commas between. */
enum path_form { PATH_OPTIONAL, PATH, PATH_LIST };

struct data_path {
    const char *name;
    char **at;
    enum path_form form;
};

static size_t paths_of(Paceline__Data *data, struct data_path path[PATHS_MAX])
{
    size_t n = 0;
    switch (data->source_case) {
    case PACELINE__DATA__SOURCE_IDX:
        path[n++] = (struct data_path){"idx.images", &data->idx->images, PATH};
        path[n++] = (struct data_path){"idx.labels", &data->idx->labels, PATH};
        break;
    case PACELINE__DATA__SOURCE_NPY:
        path[n++] = (struct data_path){"npy.values", &data->npy->values, PATH};
        path[n++] = (struct data_path){"npy.labels", &data->npy->labels, PATH_OPTIONAL};
        break;
    case PACELINE__DATA__SOURCE_CSV:
        path[n++] = (struct data_path){"csv.path", &data->csv->path, PATH};
        break;
    case PACELINE__DATA__SOURCE_TEXT:
        path[n++] = (struct data_path){"text.path", &data->text->path, PATH};
        break;
    case PACELINE__DATA__SOURCE_CIFAR10:
        path[n++] = (struct data_path){"cifar10.path", &data->cifar10->path, PATH};
        break;
    case PACELINE__DATA__SOURCE_CIFAR100:
        path[n++] = (struct data_path){"cifar100.path", &data->cifar100->path, PATH};
        break;
    case PACELINE__DATA__SOURCE_IMAGES:
        path[n++] = (struct data_path){"images.list", &data->images->list, PATH};
        path[n++] = (struct data_path){"images.root", &data->images->root, PATH_OPTIONAL};
        break;
    case PACELINE__DATA__SOURCE_WEBDATASET:
        path[n++] = (struct data_path){"webdataset.shards", &data->webdataset->shards, PATH_LIST};
        break;
    case PACELINE__DATA__SOURCE_SHARDS:
        path[n++] = (struct data_path){"shards.shards", &data->shards->shards, PATH_LIST};
        break;
    case PACELINE__DATA__SOURCE_LMDB:
        path[n++] = (struct data_path){"lmdb.path", &data->lmdb->path, PATH};
        break;
    default: break;
    }
    path[n++] = (struct data_path){"mean_file", &data->mean_file, PATH_OPTIONAL};
    return n;
}

const char *job_data_path(const Paceline__Data *data)
{
    struct data_path path[PATHS_MAX];
    Paceline__Data__Field **part;
    if (fields_of(data, &part) > 0)
        return job_data_path(part[0]->data);
    size_t n = data ? paths_of((Paceline__Data *)(uintptr_t)data, path) : 0;
    return n > 0 && is_filled(*path[0].at) ? *path[0].at : "";
}

int job_data_resolve(Paceline__Data *data, const char *folder, const char *job_path,
                     const char *field, struct err *err)
{
    struct data_path path[PATHS_MAX];
    char name[FIELD_TEXT_MAX];
    size_t n = data ? paths_of(data, path) : 0;
    int rc = OK;
    for (size_t i = 0; rc == OK && i < n; i++) {
        join_field(name, field, path[i].name);
        if (path[i].form == PATH_LIST) {
            rc = job_resolve_list(path[i].at, folder, job_path, name, err);
        } else {
            strip_folder(*path[i].at, folder);
            rc = job_resolve(path[i].at, job_path, name, err);
        }
    }
    Paceline__Data__Field **part;
    n = fields_of(data, &part);
    for (size_t k = 0; rc == OK && k < n; k++)
        rc = job_data_resolve(part[k]->data, folder, job_path, join_part(name, field, k), err);
    return rc;
}

/* ---- checks ---- */

static int refuse_field(struct err *err, const char *field, const char *name, const char *why)
{
    return err_set(err, ERR_INPUT, "%.200s.%s: %s", field, name, why);
}

static int check_values(const Paceline__Data *data, const char *field, struct err *err)
{
    char name[FIELD_TEXT_MAX], which[32];
    int rc = check_finite(join_field(name, field, "scale"), (double)data->scale, err);
    if (rc == OK && data->scale == 0)
        rc = refuse_field(err, field, "scale", "must not be 0");
    for (size_t i = 0; rc == OK && i < data->n_mean; i++) {
        snprintf(which, sizeof which, "mean[%zu]", i);
        rc = check_finite(join_field(name, field, which), (double)data->mean[i], err);
    }
    if (rc == OK && is_filled(data->mean_file) && data->n_mean > 0)
        rc = refuse_field(err, field, "mean_file", "`mean` is set, and one of the two may be");
    return rc;
}

static int check_columns(const Paceline__Data__Csv *csv, const char *field, struct err *err)
{
    char name[FIELD_TEXT_MAX], which[48];
    const char *delimiter = csv->delimiter;
    int rc = OK;
    if (is_filled(delimiter) && (delimiter[1] || strchr("\"\r\n", delimiter[0])))
        rc = refuse_field(err, field, "csv.delimiter",
                          "is one character, and neither a quote nor a line break");
    if (rc == OK && csv->has_missing)
        rc = check_finite(join_field(name, field, "csv.missing"), (double)csv->missing, err);
    for (size_t i = 0; rc == OK && i < csv->n_column; i++) {
        const Paceline__Data__Column *column = csv->column[i];
        snprintf(which, sizeof which, "csv.column[%zu]", i);
        rc = check_given(join_field(name, field, which), is_filled(column->name), err);
        if (rc == OK)
            rc = check_finite(name, (double)column->mean, err);
        if (rc == OK)
            rc = check_finite(name, (double)column->scale, err);
    }
    return rc;
}

static int check_text(const Paceline__Data__Text *text, const char *field, struct err *err)
{
    char name[FIELD_TEXT_MAX];
    int rc = OK;
    if (text->has_window)
        rc = check_range(join_field(name, field, "text.window"), text->window, 1, TEXT_WINDOW_MAX,
                         err);
    if (rc == OK && is_filled(text->vocabulary) &&
        text->unit != PACELINE__DATA__TEXT__UNIT__character)
        rc = refuse_field(err, field, "text.vocabulary", "is for `unit: character`");
    return rc;
}

/* Streams are of whole records that follow each other. */
static int check_streams(const Paceline__Data *data, const char *field, struct err *err)
{
    char name[FIELD_TEXT_MAX];
    if (data->streams == 0)
        return OK;
    if (strcmp(field, "train_data") != 0)
        return refuse_field(err, field, "streams", "is for train_data");
    if (data->source_case == PACELINE__DATA__SOURCE_TEXT && data->text->stride > 0 &&
        !(data->text->has_window && data->text->stride == data->text->window))
        return refuse_field(err, field, "streams",
                            "text.stride is set, and windows of a stream follow each other");
    return check_range(join_field(name, field, "streams"), data->streams, 0, STREAMS_MAX, err);
}

static int check_sizes(const Paceline__Data *data, const char *field, struct err *err)
{
    const struct {
        const char *name;
        uint32_t value, most;
    } size[] = {
        {"pad", data->pad, PAD_MAX},
        {"crop", data->crop, SIDE_MAX},
        {"resize", data->resize, SIDE_MAX},
        {"resize_height", data->resize_height, SIDE_MAX},
        {"resize_width", data->resize_width, SIDE_MAX},
    };
    char name[FIELD_TEXT_MAX];
    int rc = OK;
    for (size_t i = 0; rc == OK && i < sizeof size / sizeof *size; i++)
        rc =
            check_range(join_field(name, field, size[i].name), size[i].value, 0, size[i].most, err);
    if (rc != OK)
        return rc;
    if (data->pad > 0 && data->crop == 0)
        return refuse_field(err, field, "pad", "is there to be cropped from; give `crop`, too");
    if ((data->resize_height > 0) != (data->resize_width > 0))
        return refuse_field(err, field, data->resize_height > 0 ? "resize_width" : "resize_height",
                            "is missing; both edges are given together");
    if (data->resize > 0 && data->resize_height > 0)
        return refuse_field(err, field, "resize",
                            "resize_height is set, and one of the two may be");
    return OK;
}

static int check_zip(const Paceline__Data *data, const char *field, struct err *err)
{
    char name[FIELD_TEXT_MAX];
    Paceline__Data__Field **part;
    size_t n = fields_of(data, &part);
    int rc = n > 0 && n <= FIELDS_MAX
                 ? OK
                 : err_set(err, ERR_INPUT, "%.200s.zip: has %zu fields; give 1 to %d", field, n,
                           FIELDS_MAX);
    for (size_t k = 0; rc == OK && k < n; k++) {
        rc = job_check_data(part[k]->data, join_part(name, field, k), err);
        if (rc == OK && part[k]->n_dim > FIELD_DIMENSIONS_MAX)
            rc = err_set(err, ERR_INPUT,
                         "%.200s.zip.field[%zu].dim: has %zu dimensions; give up to %d", field, k,
                         part[k]->n_dim, FIELD_DIMENSIONS_MAX);
    }
    return rc;
}

int job_check_data(const Paceline__Data *data, const char *field, struct err *err)
{
    struct data_path path[PATHS_MAX];
    char name[FIELD_TEXT_MAX];
    if (!data || data->source_case == PACELINE__DATA__SOURCE__NOT_SET)
        return err_set(err, ERR_INPUT,
                       "%s: is missing; give a source: idx, cifar10, cifar100, images, "
                       "webdataset, lmdb, npy, csv, text, shards, zip or memory",
                       field);
    int rc = OK;
    size_t n = paths_of((Paceline__Data *)(uintptr_t)data, path);
    for (size_t i = 0; rc == OK && i < n; i++) {
        bool given = is_filled(*path[i].at);
        if (path[i].form != PATH_OPTIONAL)
            rc = check_given(join_field(name, field, path[i].name), given, err);
        if (rc == OK && given && path[i].form != PATH_LIST && remote_is_url(*path[i].at))
            rc = refuse_field(err, field, path[i].name,
                              "is a URL; only shards and webdataset are read from URLs");
    }
    if (rc == OK && data->source_case == PACELINE__DATA__SOURCE_MEMORY)
        rc =
            check_given(join_field(name, field, "memory.name"), is_filled(data->memory->name), err);
    if (rc == OK && data->source_case == PACELINE__DATA__SOURCE_CSV)
        rc = check_columns(data->csv, field, err);
    if (rc == OK && data->source_case == PACELINE__DATA__SOURCE_TEXT)
        rc = check_text(data->text, field, err);
    if (rc == OK && data->source_case == PACELINE__DATA__SOURCE_CIFAR10 && data->cifar10->coarse)
        rc = refuse_field(err, field, "cifar10.coarse", "only cifar100 has coarse labels");
    if (rc == OK && data->source_case == PACELINE__DATA__SOURCE_ZIP)
        rc = check_zip(data, field, err);
    if (rc == OK)
        rc = check_values(data, field, err);
    if (rc == OK)
        rc = check_streams(data, field, err);
    return rc == OK ? check_sizes(data, field, err) : rc;
}

/* ---- what the training data shows: columns, a vocabulary ---- */

static bool is_target(const Paceline__Data__Csv *csv, const char *name)
{
    for (size_t i = 0; i < csv->n_target; i++)
        if (strcmp(csv->target[i], name) == 0)
            return true;
    return false;
}

/* A table without a label or targets need not have those columns: they leave the list. */
static void drop_columns(Paceline__Data__Csv *list, const Paceline__Data__Csv *csv)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->n_column; i++) {
        Paceline__Data__Column *column = list->column[i];
        bool label = is_filled(list->label) && strcmp(column->name, list->label) == 0;
        if ((label && !is_filled(csv->label)) ||
            (is_target(list, column->name) && !is_target(csv, column->name)))
            protobuf_c_message_free_unpacked(&column->base, NULL);
        else
            list->column[kept++] = column;
    }
    list->n_column = kept;
}

static Paceline__Data__Csv *table_of(const Paceline__Data *data)
{
    return data && data->source_case == PACELINE__DATA__SOURCE_CSV ? data->csv : NULL;
}

int job_table_settle(Paceline__Data *data, const Paceline__Data__Csv *from, struct err *err)
{
    Paceline__Data__Csv *csv = table_of(data);
    if (!csv || csv->all_listed || !from || !from->all_listed)
        return OK;
    Paceline__Data__Csv *copy = (Paceline__Data__Csv *)text_copy(&from->base);
    if (!copy)
        return err_set(err, ERR_NOMEM, "%s: out of memory for its columns", csv->path);
    drop_columns(copy, csv);
    Paceline__Data__Column **column = csv->column;
    size_t n = csv->n_column;
    csv->column = copy->column;
    csv->n_column = copy->n_column;
    csv->all_listed = csv->has_all_listed = true;
    if (!csv->has_missing) {
        csv->has_missing = copy->has_missing;
        csv->missing = copy->missing;
    }
    copy->column = column; /* freed with the rest of the copy */
    copy->n_column = n;
    protobuf_c_message_free_unpacked(&copy->base, NULL);
    return OK;
}

static Paceline__Data__Text *text_of(const Paceline__Data *data)
{
    return data && data->source_case == PACELINE__DATA__SOURCE_TEXT ? data->text : NULL;
}

int job_text_settle(Paceline__Data *data, const Paceline__Data__Text *from, struct err *err)
{
    Paceline__Data__Text *text = text_of(data);
    if (!text || !from)
        return OK;
    if (!text->has_unit && from->has_unit) {
        text->has_unit = true;
        text->unit = from->unit;
    }
    if (!text->has_window && from->has_window) {
        text->has_window = true;
        text->window = from->window;
    }
    if (text->unit != PACELINE__DATA__TEXT__UNIT__character || is_filled(text->vocabulary) ||
        !is_filled(from->vocabulary))
        return OK;
    char *copy = strdup(from->vocabulary);
    if (!copy)
        return err_set(err, ERR_NOMEM, "%s: out of memory for its vocabulary", text->path);
    free(text->vocabulary);
    text->vocabulary = copy;
    return OK;
}

int job_data_settle(Paceline__Data *data, const Paceline__Data *from, struct err *err)
{
    Paceline__Data__Field **part, **other;
    size_t n = fields_of(data, &part), m = fields_of(from, &other);
    int rc = job_table_settle(data, table_of(from), err);
    if (rc == OK)
        rc = job_text_settle(data, text_of(from), err);
    for (size_t k = 0; rc == OK && k < n && k < m; k++)
        rc = job_data_settle(part[k]->data, other[k]->data, err);
    return rc;
}

int job_settle(Paceline__Job *job, const Paceline__Data *from, struct err *err)
{
    int rc = job_data_settle(job->train_data, from, err);
    return rc == OK ? job_data_settle(job->test_data, job->train_data, err) : rc;
}
