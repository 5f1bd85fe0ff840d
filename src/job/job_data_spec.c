/* Data on a command line: KIND:PATH[?map=value&...] */
#include "base/remote.h"
#include "job/job.h"
#include "job/text.h"
#include "job/text_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELD_TEXT_MAX = 256, DATA_TEXT_MAX = 16384 };

/* The name of a kind, the field of its path, that of what follows a comma or NULL, its own fields
 * as a message lists them, and what is expected where there is a comma. */
static const struct kind {
    const char *name, *path, *second, *own, *both;
} kinds[] = {
    {"idx", "idx.images", "idx.labels", "", "IMAGES,LABELS"},
    {"cifar10", "cifar10.path", NULL, "", NULL},
    {"cifar100", "cifar100.path", NULL, ", coarse=", NULL},
    {"images", "images.list", NULL, ", root=, color=", NULL},
    {"webdataset", "webdataset.shards", NULL, ", color=, label_key=", NULL},
    {"shards", "shards.shards", NULL, ", color=", NULL},
    {"lmdb", "lmdb.path", NULL, ", color=", NULL},
    {"npy", "npy.values", "npy.labels", "", "VALUES,LABELS"},
    {"csv", "csv.path", "csv.label",
     ", delimiter=, header=, missing=, ignore=, standardize=, target=", "TABLE[,LABEL]"},
    {"text", "text.path", NULL, ", unit=, window=, stride=", NULL},
    {"memory", "memory.name", NULL, "", NULL},
};

/* From the command line: wrong usage. */
static int as_usage(int rc, struct err *err)
{
    if (rc != ERR_INPUT)
        return rc;
    if (err)
        err->status = ERR_USAGE;
    return ERR_USAGE;
}

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(name, kinds[i].name) == 0)
            return &kinds[i];
    return NULL;
}

/* The field that a map sets: the data's, or the kind's own. False: there is no such map. */
static bool find_map(const struct kind *kind, const char *map, char out[FIELD_TEXT_MAX])
{
    static const char *const maps[] = {"scale", "mean",   "mean_file",     "mirror",      "pad",
                                       "crop",  "resize", "resize_height", "resize_width"};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (strcmp(map, maps[i]) == 0)
            return snprintf(out, FIELD_TEXT_MAX, "%s", map) > 0;
    char own[64];
    snprintf(own, sizeof own, " %.50s=", map);
    return strstr(kind->own, own) && snprintf(out, FIELD_TEXT_MAX, "%s.%s", kind->name, map) > 0;
}

/* "scale=0.0039&mean=1,2" */
static int set_maps(Paceline__Data *data, const struct kind *kind, char *maps, const char *spec,
                    struct err *err)
{
    char *rest = NULL, given[DATA_TEXT_MAX / 64] = "&";
    for (char *map = strtok_r(maps, "&", &rest); map; map = strtok_r(NULL, "&", &rest)) {
        char field[FIELD_TEXT_MAX], named[64];
        char *equals = strchr(map, '=');
        if (equals)
            *equals = '\0';
        if (!equals || !find_map(kind, map, field))
            return err_set(err, ERR_USAGE,
                           "%.200s: expected after `?` some of scale=, mean=, mean_file=, "
                           "mirror=, pad=, crop=, resize=, resize_height=, resize_width=%s, with "
                           "`&` between them",
                           spec, kind->own);
        snprintf(named, sizeof named, "&%s&", map);
        if (strstr(given, named))
            return err_set(err, ERR_USAGE, "%.200s: %s is given twice", spec, map);
        snprintf(given + strlen(given), sizeof given - strlen(given), "%s&", map);
        int rc = as_usage(text_set(&data->base, field, equals + 1, err), err);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static int set_paths(Paceline__Data *data, const struct kind *kind, char *path, const char *spec,
                     struct err *err)
{
    if (!kind->second)
        return *path ? as_usage(text_set(&data->base, kind->path, path, err), err)
                     : err_set(err, ERR_USAGE, "%.200s: expected %s:PATH", spec, kind->name);
    char *comma = strchr(path, ',');
    if (!comma && *path && strcmp(kind->name, "idx") != 0) /* without labels */
        return as_usage(text_set(&data->base, kind->path, path, err), err);
    if (!comma || comma == path || !comma[1] || strchr(comma + 1, ','))
        return err_set(err, ERR_USAGE, "%.200s: expected %s:%s", spec, kind->name, kind->both);
    *comma = '\0';
    int rc = text_set(&data->base, kind->path, path, err);
    return as_usage(rc == OK ? text_set(&data->base, kind->second, comma + 1, err) : rc, err);
}

static int parse_spec(char *copy, const char *spec, Paceline__Data *data, struct err *err)
{
    char *colon = strchr(copy, ':');
    if (!colon)
        return err_set(err, ERR_USAGE, "%.200s: expected KIND:PATH, such as idx:IMAGES,LABELS",
                       spec);
    *colon = '\0';
    const struct kind *kind = find_kind(copy);
    if (!kind && strcmp(copy, "leveldb") == 0)
        return err_set(err, ERR_USAGE,
                       "%.200s: a LevelDB cannot be read; make an LMDB of it: lmdb:PATH", spec);
    if (!kind)
        return err_set(err, ERR_USAGE,
                       "%.200s: no kind of data is called `%.60s`; there are idx, cifar10, "
                       "cifar100, images, webdataset, lmdb, npy, csv, text, shards, memory",
                       spec, copy);
    char *maps = strrchr(colon + 1, '?');
    if (maps)
        *maps++ = '\0';
    int rc = set_paths(data, kind, colon + 1, spec, err);
    return rc == OK && maps ? set_maps(data, kind, maps, spec, err) : rc;
}

int job_set_data(Paceline__Data **data, const char *spec, struct err *err)
{
    char copy[DATA_TEXT_MAX], shown[FIELD_TEXT_MAX];
    size_t n = strlen(spec);
    if (n >= sizeof copy)
        return err_set(err, ERR_USAGE, "%.60s...: longer than %d bytes",
                       remote_shown(spec, shown, sizeof shown), DATA_TEXT_MAX);
    memcpy(copy, spec, n + 1);
    Paceline__Data *fresh = (Paceline__Data *)text_message_new(&paceline__data__descriptor);
    if (!fresh)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory", spec);
    int rc = parse_spec(copy, remote_shown(spec, shown, sizeof shown), fresh, err);
    if (rc != OK) {
        protobuf_c_message_free_unpacked(&fresh->base, NULL);
        return rc;
    }
    if (*data)
        protobuf_c_message_free_unpacked(&(*data)->base, NULL);
    *data = fresh;
    return OK;
}
