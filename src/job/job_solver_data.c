#include "job/job_solver_data.h"

#include "job/job_solver.h"
#include "job/text.h"
#include "job/text_field.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool job_data_layer_is(const Caffe__LayerParameter *layer)
{
    static const char *const types[] = {"Data",       "ImageData",  "Input",    "HDF5Data",
                                        "MemoryData", "WindowData", "DummyData"};
    for (size_t i = 0; layer->type && i < sizeof types / sizeof *types; i++)
        if (strcmp(layer->type, types[i]) == 0)
            return true;
    return false;
}

static bool is_type(const Caffe__LayerParameter *layer, const char *type)
{
    return strcmp(layer->type, type) == 0;
}

static bool is_filled(const char *text)
{
    return text && *text;
}

static int fail_layer(const Caffe__LayerParameter *layer, int status, struct err *err,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

static int fail_layer(const Caffe__LayerParameter *layer, int status, struct err *err,
                      const char *format, ...)
{
    char why[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return err_set(err, status, "layer \"%.100s\": %s", layer->name ? layer->name : "", why);
}

static int set_path(Paceline__Data *data, const char *path, const char *value, struct err *err)
{
    return text_set(&data->base, path, value, err);
}

/* ---- what is done with each record ---- */

static int copy_means(const Caffe__TransformationParameter *t, Paceline__Data *data,
                      struct err *err)
{
    data->mean = malloc(t->n_mean_value * sizeof *data->mean);
    if (!data->mean)
        return err_set(err, ERR_NOMEM, "job: out of memory");
    memcpy(data->mean, t->mean_value, t->n_mean_value * sizeof *data->mean);
    data->n_mean = t->n_mean_value;
    return OK;
}

/* Caffe's order is the job's: crop, mirror, (value - mean) * scale. */
static int map_transform(const Caffe__LayerParameter *layer, bool trained, Paceline__Data *data,
                         struct err *err)
{
    const Caffe__TransformationParameter *t = layer->transform_param;
    if (!t)
        return OK;
    if (t->mirror && !trained)
        return fail_layer(
            layer, ERR_UNSUPPORTED, err,
            "transform_param.mirror: records are mirrored where they are trained on alone");
    if (is_filled(t->mean_file) && t->n_mean_value > 0)
        return fail_layer(
            layer, ERR_INPUT, err,
            "transform_param.mean_file: mean_value is set, and one of the two may be");
    int rc = t->n_mean_value > 0 ? copy_means(t, data, err) : OK;
    if (rc == OK && is_filled(t->mean_file))
        rc = set_path(data, "mean_file", t->mean_file, err);
    data->has_scale = t->has_scale;
    data->scale = t->scale;
    data->has_mirror = t->has_mirror;
    data->mirror = t->mirror;
    data->has_crop = t->has_crop_size;
    data->crop = t->crop_size;
    return rc;
}

static bool forces_encoded(const Caffe__LayerParameter *layer)
{
    return layer->data_param && layer->data_param->force_encoded_color;
}

/* Channels as OpenCV has them, which Caffe reads with, and as its means stand. */
static int map_colour(const Caffe__LayerParameter *layer, bool gray, const char *path,
                      Paceline__Data *data, struct err *err)
{
    const Caffe__TransformationParameter *t = layer->transform_param;
    if (t && t->force_color && t->force_gray)
        return fail_layer(
            layer, ERR_INPUT, err,
            "transform_param.force_gray: force_color is set, and one of the two may be");
    if (t && t->force_gray && forces_encoded(layer))
        return fail_layer(
            layer, ERR_INPUT, err,
            "transform_param.force_gray: data_param.force_encoded_color is set, and one of "
            "the two may be");
    if (t && (t->force_color || t->force_gray))
        gray = t->force_gray;
    return set_path(data, path, gray ? "gray" : "bgr", err);
}

/* ---- where they are ---- */

static void want_data(struct job_data_layer *out, const Caffe__LayerParameter *layer,
                      const char *what, const char *option)
{
    snprintf(out->wants, sizeof out->wants,
             "layer \"%.100s\": %s; give the records with %s KIND:PATH",
             layer->name ? layer->name : "", what, option);
}

static int map_data(const Caffe__LayerParameter *layer, const char *option,
                    struct job_data_layer *out, struct err *err)
{
    const Caffe__DataParameter *p = layer->data_param;
    if (!p)
        return fail_layer(layer, ERR_INPUT, err, "data_param: is missing");
    if (p->rand_skip > 0)
        return fail_layer(layer, ERR_UNSUPPORTED, err,
                          "data_param.rand_skip: records come in a random order of their own");
    out->batch = p->batch_size;
    if (p->backend != CAFFE__DATA_PARAMETER__DB__LMDB) {
        want_data(out, layer, "data_param.backend: LEVELDB cannot be read", option);
        return OK;
    }
    if (!is_filled(p->source))
        return fail_layer(layer, ERR_INPUT, err, "data_param.source: is missing");
    int rc = set_path(out->data, "lmdb.path", p->source, err);
    return rc == OK ? map_colour(layer, false, "lmdb.color", out->data, err) : rc;
}

static int map_images(const Caffe__LayerParameter *layer, struct job_data_layer *out,
                      struct err *err)
{
    const Caffe__ImageDataParameter *p = layer->image_data_param;
    if (!p || !is_filled(p->source))
        return fail_layer(layer, ERR_INPUT, err, "image_data_param.source: is missing");
    if (p->rand_skip > 0)
        return fail_layer(
            layer, ERR_UNSUPPORTED, err,
            "image_data_param.rand_skip: records come in a random order of their own");
    if ((p->new_height > 0) != (p->new_width > 0))
        return fail_layer(layer, ERR_INPUT, err,
                          "image_data_param: new_height and new_width must be given together");
    out->batch = p->batch_size;
    out->data->has_resize_height = out->data->has_resize_width = p->new_height > 0;
    out->data->resize_height = p->new_height;
    out->data->resize_width = p->new_width;
    int rc = set_path(out->data, "images.list", p->source, err);
    if (rc == OK) /* Caffe takes paths from where it is started */
        rc = set_path(out->data, "images.root", is_filled(p->root_folder) ? p->root_folder : ".",
                      err);
    return rc == OK ? map_colour(layer, !p->is_color, "images.color", out->data, err) : rc;
}

/* A layer that does not name its records. */
static int map_other(const Caffe__LayerParameter *layer, const char *option,
                     struct job_data_layer *out)
{
    char what[128];
    snprintf(what, sizeof what, "type \"%.20s\" brings no records that can be read", layer->type);
    want_data(out, layer, what, option);
    if (layer->hdf5_data_param)
        out->batch = layer->hdf5_data_param->batch_size;
    else if (layer->memory_data_param)
        out->batch = layer->memory_data_param->batch_size;
    else if (layer->input_param && layer->input_param->n_shape > 0 &&
             layer->input_param->shape[0]->n_dim > 0 && layer->input_param->shape[0]->dim[0] > 0 &&
             layer->input_param->shape[0]->dim[0] <= UINT32_MAX)
        out->batch = (uint32_t)layer->input_param->shape[0]->dim[0];
    return OK;
}

/* Values of a layer that only the records can settle here. */
static void log_ignored(const Caffe__LayerParameter *layer, const char *name,
                        const struct logger *log)
{
    const Caffe__MemoryDataParameter *memory = layer->memory_data_param;
    if (memory && (memory->has_channels || memory->has_height || memory->has_width))
        log_info(log,
                 "layer \"%s\": memory_data_param.channels, height, width: ignored, records have "
                 "the shape they are given with",
                 name);
    if (layer->hdf5_data_param && layer->hdf5_data_param->has_shuffle)
        log_info(log,
                 "layer \"%s\": hdf5_data_param.shuffle: ignored, records come in a random order "
                 "of their own",
                 name);
}

/* Log where pictures differ from Caffe's, in the last bit or more. */
static void log_pictures(const Caffe__LayerParameter *layer, const char *name,
                         const struct logger *log)
{
    const Caffe__TransformationParameter *t = layer->transform_param;
    bool forced = forces_encoded(layer) || (t && (t->force_color || t->force_gray));
    if (is_type(layer, "Data") && layer->data_param->backend == CAFFE__DATA_PARAMETER__DB__LMDB &&
        !forced)
        log_info(log,
                 "layer \"%s\": encoded records are decoded to three channels, grey ones too; "
                 "transform_param.force_gray makes them one",
                 name);
    if (is_type(layer, "ImageData") && layer->image_data_param->new_height > 0)
        log_info(log,
                 "layer \"%s\": image_data_param.new_height, new_width: pictures that shrink are "
                 "smoothed, where Caffe's bilinear samples skip pixels: values differ",
                 name);
}

/* Logs the differences from Caffe. */
static void log_differences(const Caffe__LayerParameter *layer, bool trained,
                            const struct logger *log)
{
    const char *name = layer->name ? layer->name : "";
    log_ignored(layer, name, log);
    log_pictures(layer, name, log);
    if (layer->data_param && layer->data_param->has_prefetch)
        log_info(log, "layer \"%s\": data_param.prefetch: ignored, one batch is prepared ahead",
                 name);
    bool shuffles = layer->image_data_param && layer->image_data_param->shuffle;
    if (trained && (is_type(layer, "Data") || is_type(layer, "ImageData")) && !shuffles)
        log_info(log, "layer \"%s\": records come in a new random order in every epoch", name);
}

int job_data_layer_map(const Caffe__LayerParameter *layer, const char *option, bool trained,
                       const struct logger *log, struct job_data_layer *out, struct err *err)
{
    *out = (struct job_data_layer){
        .data = (Paceline__Data *)text_message_new(&paceline__data__descriptor)};
    int rc = out->data ? OK : err_set(err, ERR_NOMEM, "job: out of memory");
    if (rc == OK && is_type(layer, "Data"))
        rc = map_data(layer, option, out, err);
    else if (rc == OK && is_type(layer, "ImageData"))
        rc = map_images(layer, out, err);
    else if (rc == OK)
        rc = map_other(layer, option, out);
    if (rc == OK)
        rc = map_transform(layer, trained, out->data, err);
    if (rc == OK) {
        log_differences(layer, trained, log);
        return OK;
    }
    if (out->data)
        protobuf_c_message_free_unpacked(&out->data->base, NULL);
    out->data = NULL;
    return rc;
}

int job_data_layer_empty(Caffe__LayerParameter *layer, struct err *err)
{
    static const char *const params[] = {"transform_param",  "data_param",
                                         "dummy_data_param", "hdf5_data_param",
                                         "image_data_param", "memory_data_param"};
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        text_field_clear(&layer->base,
                         text_field_find(layer->base.descriptor, params[i], strlen(params[i])));
    return text_set(&layer->base, "type", "Input", err);
}

/* ---- records in a layer's place ---- */

/* Maps of one kind stand for each other: a record has one mean, and one size. */
static int kind_of(const char *map)
{
    return strncmp(map, "mean", 4) == 0 ? 'm' : strncmp(map, "resize", 6) == 0 ? 'r' : 0;
}

static bool same_kind(const char *a, const char *b)
{
    return kind_of(a) ? kind_of(a) == kind_of(b) : strcmp(a, b) == 0;
}

static bool has_kind(const Paceline__Data *data, const char *map)
{
    const ProtobufCMessageDescriptor *type = data->base.descriptor;
    for (unsigned i = 0; i < type->n_fields; i++)
        if (same_kind(type->fields[i].name, map) &&
            text_field_is_set(&data->base, &type->fields[i]))
            return true;
    return false;
}

/* Leave those of `maps` that `records` have a map of the same kind for. */
static void drop_kinds(Paceline__Data *maps, const Paceline__Data *records)
{
    const ProtobufCMessageDescriptor *type = maps->base.descriptor;
    for (unsigned i = 0; i < type->n_fields; i++)
        if (!text_field_in_oneof(&type->fields[i]) && has_kind(records, type->fields[i].name))
            text_field_clear(&maps->base, &type->fields[i]);
}

static bool is_gray(const Paceline__Data *layer)
{
    if (layer->source_case == PACELINE__DATA__SOURCE_IMAGES)
        return layer->images->color == PACELINE__DATA__COLOR__gray;
    return layer->source_case == PACELINE__DATA__SOURCE_LMDB &&
           layer->lmdb->color == PACELINE__DATA__COLOR__gray;
}

/* A message of its own, by way of the bytes: `a`, and the maps of `b` (may be NULL) without its
 * source. NULL: no memory. */
static Paceline__Data *merge_data(const Paceline__Data *a, const Paceline__Data *b)
{
    Paceline__Data maps = b ? *b : (Paceline__Data)PACELINE__DATA__INIT;
    maps.source_case = PACELINE__DATA__SOURCE__NOT_SET;
    size_t own = paceline__data__get_packed_size(a);
    size_t all = own + paceline__data__get_packed_size(&maps);
    uint8_t *bytes = malloc(all + 1);
    Paceline__Data *both = NULL;
    if (bytes) {
        paceline__data__pack(a, bytes);
        paceline__data__pack(&maps, bytes + own);
        both = paceline__data__unpack(NULL, all, bytes);
    }
    free(bytes);
    return both;
}

int job_solver_keep_maps(Paceline__Data *records, const Paceline__Data *layer, struct err *err)
{
    if (!layer)
        return OK;
    const char *colour = is_gray(layer) ? "gray" : "bgr";
    int rc = OK;
    if (records->source_case == PACELINE__DATA__SOURCE_IMAGES && !records->images->has_color)
        rc = set_path(records, "images.color", colour, err);
    if (rc == OK && records->source_case == PACELINE__DATA__SOURCE_LMDB &&
        !records->lmdb->has_color)
        rc = set_path(records, "lmdb.color", colour, err);
    if (rc != OK)
        return rc;
    Paceline__Data *maps = merge_data(layer, NULL);
    if (maps)
        drop_kinds(maps, records);
    Paceline__Data *both = maps ? merge_data(records, maps) : NULL;
    if (maps)
        paceline__data__free_unpacked(maps, NULL);
    if (!both)
        return err_set(err, ERR_NOMEM, "job: out of memory");
    Paceline__Data before = *records;
    *records = *both;
    *both = before;
    paceline__data__free_unpacked(both, NULL);
    return OK;
}
