#include "api/convert.h"
#include "api/data.h"
#include "api/guard.h"
#include "data/sheet.h"
#include "data/source_text.h"
#include "real/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what there is ---- */

static const char *kind_of(const pl_data *data)
{
    if (data->path)
        return "pictures";
    switch (data->spec->source_case) {
    case PACELINE__DATA__SOURCE_IDX: return "idx";
    case PACELINE__DATA__SOURCE_CIFAR10: return "cifar10";
    case PACELINE__DATA__SOURCE_CIFAR100: return "cifar100";
    case PACELINE__DATA__SOURCE_IMAGES: return "images";
    case PACELINE__DATA__SOURCE_LMDB: return "lmdb";
    case PACELINE__DATA__SOURCE_NPY: return "npy";
    case PACELINE__DATA__SOURCE_WEBDATASET: return "webdataset";
    case PACELINE__DATA__SOURCE_CSV: return "csv";
    case PACELINE__DATA__SOURCE_TEXT: return "text";
    case PACELINE__DATA__SOURCE_SHARDS: return "shards";
    case PACELINE__DATA__SOURCE_MEMORY: return "memory";
    default: return data->source->ops->kind;
    }
}

/* Count labels, measure sizes. A value takes a byte, or four where the first record has floats. */
static int look_at_all(pl_data *data, pl_data_info *out)
{
    const struct source *source = data->source;
    struct raw first;
    int rc = source->ops->read(source, 0, &data->scratch, &first, &data->engine->error);
    if (rc != OK)
        return rc;
    uint64_t pixels = 0;
    size_t H_least = SIZE_MAX, H_most = 0, W_least = SIZE_MAX, W_most = 0;
    for (size_t i = 0; i < source->count; i++) {
        size_t H, W;
        source_size(source, i, &H, &W);
        pixels += (uint64_t)H * W;
        H_least = H < H_least ? H : H_least;
        H_most = H > H_most ? H : H_most;
        W_least = W < W_least ? W : W_least;
        W_most = W > W_most ? W : W_most;
        if (out->of_class)
            out->of_class[source->ops->label(source, i)]++;
    }
    out->bytes = pixels * source->shape.dim[0] * (first.form == RAW_FLOATS ? sizeof(float) : 1);
    out->height_min = (uint32_t)H_least;
    out->height_max = (uint32_t)H_most;
    out->width_min = (uint32_t)W_least;
    out->width_max = (uint32_t)W_most;
    return OK;
}

static int describe_data(pl_data *data, pl_data_info *out)
{
    const struct source *source = data->source;
    pl_data_info info = {
        .kind = kind_of(data),
        .records = source->count,
        .channels = (uint32_t)source->shape.dim[0],
        .mapped = data->maps,
        .classes = data->path ? 0 : source->classes,
        .hash = source->hash,
        .values = source_text_values(source),
    };
    free(data->of_class);
    data->of_class = NULL;
    if (info.classes > 0) {
        info.of_class = data->of_class = calloc(info.classes, sizeof *data->of_class);
        if (!data->of_class)
            return err_set(&data->engine->error, ERR_NOMEM, "data: out of memory");
    }
    int rc = look_at_all(data, &info);
    if (rc == OK && info.mapped)
        rc = api_data_map(data);
    for (int i = 0; rc == OK && info.mapped && i < 3; i++)
        info.shape[i] = (uint32_t)data->set.shape.dim[i];
    if (rc == OK)
        *out = info;
    return rc;
}

int pl_data_describe(pl_data *data, pl_data_info *out)
{
    RETURN_GUARDED(data->engine, describe_data(data, out));
}

/* "n01440764 tench" -> "tench" */
static const char *without_synset(const char *name)
{
    bool synset =
        name && name[0] == 'n' && strspn(name + 1, "0123456789") == 8 && name[9] == ' ' && name[10];
    return synset ? name + 10 : name;
}

const char *pl_data_class_name(const pl_data *data, uint32_t label)
{
    return without_synset(names_at(&data->names, label));
}

static int record_at(const pl_data *data, size_t i, pl_data_record *out)
{
    const struct source *source = data->source;
    if (i >= source->count)
        return err_set(&data->engine->error, ERR_USAGE, "data: record %zu, and there are %zu", i,
                       source->count);
    size_t H, W;
    pl_data_record record = {.has_label = !data->path && data->source->classes > 0};
    source_size(source, i, &H, &W);
    record.height = (uint32_t)H;
    record.width = (uint32_t)W;
    if (record.has_label) {
        record.label = source->ops->label(source, i);
        record.class_name = pl_data_class_name(data, record.label);
    }
    if (source->ops->name)
        source->ops->name(source, i, record.name, sizeof record.name);
    *out = record;
    return OK;
}

int pl_data_record_at(const pl_data *data, size_t i, pl_data_record *out)
{
    RETURN_GUARDED(data->engine, record_at(data, i, out));
}

/* ---- what its values are like ---- */

/* The records as the maps leave them, as a source of their own; for one thread. */
struct mapped_source {
    struct source source; /* first: the ops get a pointer to it */
    const struct dataset *set;
    float *x; /* room for one */
};

static int mapped_read(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct mapped_source *mapped = (const struct mapped_source *)source;
    const size_t *dim = source->shape.dim;
    uint32_t label;
    uint64_t record;
    int rc = dataset_read(mapped->set, i, NULL, scratch, mapped->x, &label, &record, err);
    if (rc == OK)
        *raw = (struct raw){mapped->x, RAW_FLOATS, dim[0], dim[1], dim[2], 0};
    return rc;
}

static uint32_t mapped_label(const struct source *source, size_t i)
{
    const struct source *from = ((const struct mapped_source *)source)->set->source;
    return from->ops->label(from, i);
}

static int measure_mapped(pl_data *data, size_t first, struct stats *out)
{
    static const struct source_ops ops = {.read = mapped_read, .label = mapped_label};
    struct err *err = &data->engine->error;
    int rc = api_data_map(data);
    if (rc != OK)
        return rc;
    struct mapped_source mapped = {
        .source = {.ops = &ops,
                   .count = data->source->count,
                   .shape = data->set.shape,
                   .classes = data->source->classes},
        .set = &data->set,
        .x = malloc(shape_count(&data->set.shape) * sizeof *mapped.x),
    };
    rc = mapped.x ? stats_of(&mapped.source, first, NULL, out, err)
                  : err_set(err, ERR_NOMEM, "data: out of memory");
    free(mapped.x);
    return rc;
}

static int measure_data(pl_data *data, size_t first, pl_data_stats *out)
{
    struct stats stats;
    int rc = data->maps ? measure_mapped(data, first, &stats)
                        : stats_of(data->source, first, NULL, &stats, &data->engine->error);
    if (rc != OK)
        return rc;
    stats_release(&data->stats);
    free(data->channel);
    data->stats = stats;
    data->channel = calloc(stats.channels, sizeof *data->channel);
    if (!data->channel)
        return err_set(&data->engine->error, ERR_NOMEM, "data: out of memory");
    for (uint32_t c = 0; c < stats.channels; c++) {
        const struct stats_channel *from = &stats.channel[c];
        data->channel[c] = (pl_data_channel){from->mean, from->deviation, from->least, from->most};
    }
    *out = (pl_data_stats){
        .records = stats.records,
        .channels = stats.channels,
        .classes = data->path ? 0 : stats.classes,
        .scaled = data->source->fields.n > 0 || data->spec->has_scale || data->spec->n_mean > 0 ||
                  data->spec->mean_file,
        .channel = data->channel,
        .of_class = stats.of_class,
    };
    return OK;
}

int pl_data_measure(pl_data *data, size_t first, pl_data_stats *out)
{
    RETURN_GUARDED(data->engine, measure_data(data, first, out));
}

/* ---- how it looks ---- */

/* A record as its maps crop and resize it, for the sheet. */
struct look {
    const struct source *source;
    struct maps maps;
    struct scratch *scratch;
    float *x; /* NULL: records as they are */
    struct shape shape;
};

static int look_read(void *user, size_t i, struct raw *raw, bool *stretched, struct err *err)
{
    struct look *look = user;
    int rc = look->x ? maps_read(&look->maps, look->source, i, NULL, look->scratch, raw, err)
                     : look->source->ops->read(look->source, i, look->scratch, raw, err);
    if (rc != OK)
        return rc;
    *stretched = raw->form == RAW_FLOATS;
    if (!look->x)
        return OK;
    if (maps_apply(&look->maps, raw, NULL, look->scratch, look->x) != OK)
        return err_set(err, ERR_NOMEM, "data: out of memory for record %zu", i);
    const size_t *dim = look->shape.dim;
    *raw = (struct raw){look->x, RAW_FLOATS, dim[0], dim[1], dim[2], 0};
    return OK;
}

/* The maps, without those that change values. */
static int begin_look(pl_data *data, struct look *look)
{
    struct err *err = &data->engine->error;
    *look = (struct look){.source = data->source, .scratch = &data->scratch};
    if (!data->maps)
        return OK;
    Paceline__Data sizes = *data->spec; /* its pointers are borrowed, and those to means left out */
    sizes.scale = 1;
    sizes.n_mean = 0;
    sizes.mean_file = NULL;
    if (!sizes.crop && !sizes.pad && !sizes.resize && !sizes.resize_height)
        return OK;
    int rc = maps_init(&look->maps, &sizes, data->source, &look->shape, err);
    if (rc != OK)
        return rc;
    look->x = malloc(shape_count(&look->shape) * sizeof *look->x);
    return look->x ? OK : err_set(err, ERR_NOMEM, "data: out of memory");
}

/* Is the first channel blue? Datums do not state it: `color` does, and Caffe's convert_imageset
 * writes blue first. */
static bool begins_blue(const pl_data *data)
{
    const Paceline__Data__Color *color = api_data_color(data->spec, NULL);
    return color && *color == PACELINE__DATA__COLOR__bgr;
}

static int make_sheet(pl_data *data, size_t first, uint32_t columns, uint32_t side, struct buf *png)
{
    struct look look;
    int rc = begin_look(data, &look);
    const struct sheet sheet = {
        .count = first,
        .columns = columns,
        .side = side,
        .coloured = data->source->shape.dim[0] == 3,
        .bgr = begins_blue(data),
        .read = look_read,
        .user = &look,
    };
    if (rc == OK)
        rc = sheet_png(&sheet, png, &data->engine->error);
    maps_release(&look.maps);
    free(look.x);
    return rc;
}

static int write_sheet(pl_data *data, size_t first, uint32_t columns, uint32_t side,
                       const char *path, bool replace)
{
    struct err *err = &data->engine->error;
    struct buf png = {0};
    char here[API_PATH_MAX];
    size_t count = first < data->source->count ? first : data->source->count;
    if (count == 0)
        return err_set(err, ERR_USAGE, "sheet: of no record");
    if (side < SHEET_SIDE_MIN || side > SHEET_SIDE_MAX)
        return err_set(err, ERR_USAGE, "sheet: cells must be %d to %d pixels, not %u",
                       SHEET_SIDE_MIN, SHEET_SIDE_MAX, side);
    int rc = api_path_result(path, replace, here, err);
    if (rc == OK)
        rc = make_sheet(data, count, columns, side, &png);
    if (rc == OK)
        rc = disk_replace(real_disk(), here, png.data, png.len, err);
    buf_release(&png);
    return rc;
}

int pl_data_sheet(pl_data *data, size_t first, uint32_t columns, uint32_t side, const char *path,
                  bool replace)
{
    RETURN_GUARDED(data->engine, write_sheet(data, first, columns, side, path, replace));
}

/* ---- names of classes ---- */

struct pl_names {
    struct names names;
};

/* The names of classes, from the file or from the data. */
static int make_names(pl_engine *engine, const char *path, const Paceline__Data *spec,
                      pl_names **out)
{
    struct err *err = &engine->error;
    pl_names *names = calloc(1, sizeof *names);
    if (!names)
        return err_set(err, ERR_NOMEM, "names: out of memory");
    int rc = path ? names_read(path, &names->names, err)
                  : names_of(spec, engine->remote, &names->names, err);
    if (rc == OK && names->names.count > 0) {
        *out = names;
        return rc;
    }
    pl_names_free(names);
    if (rc == OK && path)
        return err_set(err, ERR_INPUT, "%s: has no names", path);
    if (rc == OK)
        *out = NULL;
    return rc;
}

int pl_names_load(pl_engine *engine, const char *path, pl_names **out)
{
    RETURN_GUARDED(engine, make_names(engine, path, NULL, out));
}

static int names_of_job(const pl_job *job, pl_names **out)
{
    const Paceline__Data *spec = job->message->train_data;
    *out = NULL;
    return spec ? make_names(job->engine, NULL, spec, out) : OK;
}

int pl_names_of_job(const pl_job *job, pl_names **out)
{
    RETURN_GUARDED(job->engine, names_of_job(job, out));
}

void pl_names_free(pl_names *names)
{
    if (names)
        names_release(&names->names);
    free(names);
}

size_t pl_names_count(const pl_names *names)
{
    return names->names.count;
}

const char *pl_names_at(const pl_names *names, size_t label)
{
    return without_synset(names_at(&names->names, label));
}
