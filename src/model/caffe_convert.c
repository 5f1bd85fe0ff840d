#include "model/caffe_convert.h"

#include "job/text.h"
#include "model/caffe_model.h"
#include "model/caffe_upgrade.h"
#include "model/load.h"
#include "model/onnx_export.h"
#include "model/torch_names.h"
#include "model/weights_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_NAME_MAX = 256 };

#define PREFIX_X "joint"
#define PREFIX_S "s"

/* ---- caffemodel → safetensors ---- */

static int put_layer(struct safetensors_writer *w, struct arena *arena,
                     const struct caffe_layer *layer, const char *path, struct err *err)
{
    bool statistics = strcmp(layer->type, "BatchNorm") == 0;
    for (size_t k = 0; k < layer->n; k++) {
        const struct caffe_blob *blob = &layer->blob[k];
        float *copy = arena_array(arena, blob->count, float);
        char name[TENSOR_NAME_MAX];
        int n = snprintf(name, sizeof name, "%s/%s.%zu", statistics ? PREFIX_S : PREFIX_X,
                         layer->name, k);
        if (n >= TENSOR_NAME_MAX)
            return err_set(err, ERR_UNSUPPORTED,
                           "%.200s: layer \"%.100s...\": its name is too long", path, layer->name);
        if (!copy)
            return err_set(err, ERR_NOMEM, "%.200s: no memory for %zu numbers", path, blob->count);
        caffe_blob_copy(blob, copy);
        safetensors_tensor(w, name, &blob->shape, copy);
    }
    return OK;
}

/* The net without the numbers of its blobs. `source`: NULL for Caffe. */
static int put_net(struct safetensors_writer *w, const Caffe__NetParameter *net, const char *source,
                   const char *path, struct err *err)
{
    struct buf text = {0};
    int rc = OK;
    text_write(&net->base, &text);
    buf_put_u8(&text, 0);
    safetensors_meta(w, "format", "paceline 1");
    if (source)
        safetensors_meta(w, CAFFE_CONVERT_SOURCE, source);
    if (text.failed)
        rc = err_set(err, ERR_NOMEM, "%.200s: out of memory", path);
    else
        safetensors_meta(w, CAFFE_CONVERT_NET, (const char *)text.data);
    buf_release(&text);
    return rc;
}

static int put_own_net(struct safetensors_writer *w, const struct weights_file *file,
                       struct err *err)
{
    Caffe__NetParameter *net;
    int rc = caffe_model_net(&file->caffe, &net, err);
    if (rc != OK)
        return rc;
    rc = put_net(w, net, file->is_onnx ? "onnx" : NULL, file->caffe.path, err);
    caffe__net_parameter__free_unpacked(net, NULL);
    return rc;
}

static void report_doubles(const struct caffe_model *model, const struct logger *log)
{
    for (size_t i = 0; i < model->n; i++)
        for (size_t k = 0; k < model->layer[i].n; k++)
            if (model->layer[i].blob[k].doubles) {
                log_warn(log, "%s: holds doubles, which are rounded to floats", model->path);
                return;
            }
}

/* The file's bytes are given back once its numbers are copied, before they are copied again. */
static int to_safetensors(struct weights_file *file, const char *out, struct disk *disk,
                          const struct logger *log, struct err *err)
{
    const struct caffe_model *model = &file->caffe;
    struct safetensors_writer w;
    struct arena arena;
    struct buf image = {0};
    arena_init(&arena);
    safetensors_begin(&w);
    report_doubles(model, log);
    int rc = put_own_net(&w, file, err);
    for (size_t i = 0; i < model->n && rc == OK; i++)
        rc = put_layer(&w, &arena, &model->layer[i], model->path, err);
    weights_file_close(file);
    if (rc == OK)
        rc = safetensors_image(&w, &image, err);
    safetensors_end(&w);
    arena_release(&arena);
    if (rc == OK)
        rc = disk_replace(disk, out, image.data, image.len, err);
    buf_release(&image);
    return rc;
}

int caffe_convert_net(const char *path, const struct safetensors *st, Caffe__NetParameter **out,
                      struct err *err)
{
    const char *text = safetensors_meta_get(st, CAFFE_CONVERT_NET);
    ProtobufCMessage *msg = NULL;
    char where[ERR_TEXT_MAX];
    if (!text)
        return err_set(err, ERR_INPUT,
                       "%.200s: brings no net along, as a file that was converted does; name one",
                       path);
    snprintf(where, sizeof where, "%.200s: " CAFFE_CONVERT_NET, path);
    int rc = text_parse(&caffe__net_parameter__descriptor, where, text, strlen(text), &msg, err);
    if (rc != OK)
        return rc;
    rc = caffe_upgrade((Caffe__NetParameter *)msg, err);
    if (rc != OK) {
        err_prefix(err, "%.200s", where);
        protobuf_c_message_free_unpacked(msg, NULL);
        return rc;
    }
    *out = (Caffe__NetParameter *)msg;
    return OK;
}

/* ---- tensors and vectors → caffemodel ---- */

/* The source of the numbers that belong to "LAYER.INDEX". */
struct numbers {
    const Caffe__NetParameter *net;
    const struct safetensors *st;    /* a file, */
    const struct torch_map *torch;   /*   with torchvision's names; else NULL */
    const struct caffe_model *caffe; /* or this, */
    const struct segments *x, *s;    /* or vectors */
    const float *x_at, *s_at;
    struct arena *arena; /* of numbers that are not there as they are wanted */
};

static const float *find_in_file(const struct safetensors *st, const char *name,
                                 struct shape *shape)
{
    char full[TENSOR_NAME_MAX + 8];
    snprintf(full, sizeof full, PREFIX_X "/%s", name);
    const float *at = safetensors_find(st, full, shape);
    if (at)
        return at;
    snprintf(full, sizeof full, PREFIX_S "/%s", name);
    return safetensors_find(st, full, shape);
}

/* A copy: a caffemodel's numbers may lie in pieces. */
static const float *find_in_caffe(const struct numbers *from, const char *name, struct shape *shape)
{
    const char *dot = strrchr(name, '.');
    char layer_name[TENSOR_NAME_MAX];
    snprintf(layer_name, sizeof layer_name, "%.*s", (int)(dot - name), name);
    const struct caffe_layer *layer = caffe_model_find(from->caffe, layer_name);
    size_t k = (size_t)strtoul(dot + 1, NULL, 10);
    if (!layer || k >= layer->n)
        return NULL;
    float *copy = arena_array(from->arena, layer->blob[k].count, float);
    if (copy)
        caffe_blob_copy(&layer->blob[k], copy);
    *shape = layer->blob[k].shape;
    return copy;
}

static const float *find_tensor(const struct numbers *from, const char *name, struct shape *shape)
{
    if (from->caffe)
        return find_in_caffe(from, name, shape);
    if (from->st)
        return find_in_file(from->st, name, shape);
    const struct segment *segment = segments_find(from->x, name);
    const float *vector = from->x_at;
    if (!segment) {
        segment = segments_find(from->s, name);
        vector = from->s_at;
    }
    if (!segment)
        return NULL;
    *shape = segment->shape;
    return vector + segment->offset;
}

/* If parameter k of layer i has a name, the first layer with this name owns it. */
static bool owner_of(const Caffe__NetParameter *net, size_t *i, size_t *k)
{
    const Caffe__LayerParameter *layer = net->layer[*i];
    const char *name = *k < layer->n_param ? layer->param[*k]->name : NULL;
    if (!name || !name[0])
        return false;
    for (size_t a = 0; a <= *i; a++)
        for (size_t b = 0; b < net->layer[a]->n_param; b++) {
            const char *other = net->layer[a]->param[b]->name;
            if (other && strcmp(other, name) == 0) {
                *i = a;
                *k = b;
                return true;
            }
        }
    return false;
}

/* Layers of one name belong to different phases: the first brings the blobs. */
static bool is_first(const Caffe__NetParameter *net, size_t i)
{
    for (size_t a = 0; a < i; a++)
        if (net->layer[a]->name && strcmp(net->layer[a]->name, net->layer[i]->name) == 0)
            return false;
    return true;
}

static bool was_old(const Caffe__LayerParameter *layer, size_t k, const struct shape *shape)
{
    if (k >= layer->n_blobs || shape->n != 4)
        return false;
    const Caffe__BlobProto *blob = layer->blobs[k];
    return blob->has_num || blob->has_channels || blob->has_height || blob->has_width;
}

/* A convolution has a bias if the net says so. */
static bool get_torch(const struct numbers *from, const Caffe__LayerParameter *layer, size_t k,
                      struct caffe_tensor *out)
{
    const Caffe__ConvolutionParameter *conv = layer->convolution_param;
    if (conv && k == 1 && !conv->bias_term)
        return false;
    return torch_take(from->torch, from->st, layer->name, k, from->arena, out);
}

static bool get_tensor(void *user, size_t i, size_t k, struct caffe_tensor *out)
{
    const struct numbers *from = user;
    const Caffe__LayerParameter *layer = from->net->layer[i];
    char name[TENSOR_NAME_MAX];
    if (!layer->name || !is_first(from->net, i))
        return false;
    if (from->torch)
        return get_torch(from, layer, k, out);
    snprintf(name, sizeof name, "%s.%zu", layer->name, k);
    const float *at = find_tensor(from, name, &out->shape);
    size_t a = i, b = k;
    if (!at && owner_of(from->net, &a, &b) && from->net->layer[a]->name) {
        snprintf(name, sizeof name, "%s.%zu", from->net->layer[a]->name, b);
        at = find_tensor(from, name, &out->shape);
    }
    out->data = at;
    out->old = at && was_old(layer, k, &out->shape);
    return at != NULL;
}

int caffe_convert_save(const Caffe__NetParameter *net, const struct segments *x, const float *x_at,
                       const struct segments *s, const float *s_at, const struct shape *record,
                       struct disk *disk, const char *path, struct err *err)
{
    struct numbers from = {.net = net, .x = x, .s = s, .x_at = x_at, .s_at = s_at};
    const struct caffe_blobs blobs = {get_tensor, &from};
    return weights_file_called(path, "onnx") ? onnx_export(net, &blobs, record, disk, path, err)
                                             : caffe_model_write(net, &blobs, disk, path, err);
}

/* ---- safetensors → caffemodel ---- */

/* Is the tensor written with some layer of the net? */
static bool is_written(struct numbers *from, const char *name)
{
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < from->net->n_layer; i++) {
        const char *layer = from->net->layer[i]->name;
        struct caffe_tensor tensor;
        if (!layer || strlen(layer) != (size_t)(dot - name) ||
            strncmp(layer, name, strlen(layer)) != 0)
            continue;
        size_t wanted = (size_t)strtoul(dot + 1, NULL, 10), k = 0;
        while (k < wanted && get_tensor(from, i, k, &tensor))
            k++;
        return k == wanted && get_tensor(from, i, k, &tensor);
    }
    return false;
}

static int check_tensors(struct numbers *from, const char *in, const struct logger *log,
                         struct err *err)
{
    size_t others = 0, written = 0;
    for (size_t i = 0; i < from->st->n; i++) {
        const struct safetensors_item *item = &from->st->item[i];
        const char *slash = strchr(item->name, '/');
        size_t prefix = slash ? (size_t)(slash - item->name) : 0;
        bool ours = (prefix == strlen(PREFIX_X) && strncmp(item->name, PREFIX_X, prefix) == 0) ||
                    (prefix == strlen(PREFIX_S) && strncmp(item->name, PREFIX_S, prefix) == 0);
        if (!ours) {
            others++;
            continue;
        }
        if (strlen(slash + 1) >= TENSOR_NAME_MAX || item->count == 0 ||
            !is_written(from, slash + 1))
            return err_set(err, ERR_INPUT, "%.200s: tensor %.150s: the net has no layer for it", in,
                           item->name);
        written++;
    }
    if (written == 0)
        return err_set(err, ERR_INPUT, "%.200s: has no tensors " PREFIX_X "/LAYER.INDEX", in);
    if (others > 0)
        log_info(log, "%s: %zu tensors that are not the model's are ignored", in, others);
    return OK;
}

/* ---- any source → any format ---- */

struct layers {
    const Caffe__NetParameter *net;
};

static bool has_layer(void *user, const char *name)
{
    const Caffe__NetParameter *net = ((struct layers *)user)->net;
    for (size_t i = 0; i < net->n_layer; i++)
        if (net->layer[i]->name && strcmp(net->layer[i]->name, name) == 0)
            return true;
    return false;
}

static int find_map(const Caffe__NetParameter *net, const char *path, struct torch_map *map,
                    struct err *err)
{
    struct layers layers = {net};
    return torch_map_find(has_layer, &layers, map)
               ? OK
               : err_set(
                     err, ERR_INPUT,
                     "%.200s: only the zoo's ResNets and VGGs have torchvision's names, and the "
                     "net is none; name it with --net",
                     path);
}

static int to_ours(struct numbers *from, const char *out, struct disk *disk, struct err *err)
{
    struct safetensors_writer w;
    struct buf image = {0};
    safetensors_begin(&w);
    int rc = put_net(&w, from->net, from->torch ? "torchvision" : NULL, out, err);
    for (size_t i = 0; i < from->net->n_layer && rc == OK; i++) {
        const Caffe__LayerParameter *layer = from->net->layer[i];
        struct caffe_tensor tensor;
        char name[TENSOR_NAME_MAX];
        bool statistics = layer->type && strcmp(layer->type, "BatchNorm") == 0;
        for (size_t k = 0; get_tensor(from, i, k, &tensor); k++) {
            snprintf(name, sizeof name, "%s/%s.%zu", statistics ? PREFIX_S : PREFIX_X, layer->name,
                     k);
            safetensors_tensor(&w, name, &tensor.shape, tensor.data);
        }
    }
    if (rc == OK)
        rc = safetensors_image(&w, &image, err);
    safetensors_end(&w);
    if (rc == OK)
        rc = disk_replace(disk, out, image.data, image.len, err);
    buf_release(&image);
    return rc;
}

static int write_numbers(struct numbers *from, const char *in, const char *out,
                         const struct convert_options *options, struct disk *disk,
                         const struct logger *log, struct err *err)
{
    const struct caffe_blobs blobs = {get_tensor, from};
    struct torch_map map;
    int rc = from->st && !from->torch ? check_tensors(from, in, log, err) : OK;
    if (rc != OK)
        return rc;
    if (weights_file_called(out, "caffemodel"))
        return caffe_model_write(from->net, &blobs, disk, out, err);
    if (weights_file_called(out, "onnx"))
        return onnx_export(from->net, &blobs, &options->record, disk, out, err);
    if (!options->torch)
        return to_ours(from, out, disk, err);
    rc = find_map(from->net, out, &map, err);
    return rc == OK ? torch_write(&map, from->net, &blobs, disk, out, err) : rc;
}

/* Not one tensor of a file with torchvision's names may be missing. */
static int check_torch(struct numbers *from, const char *in, struct err *err)
{
    struct caffe_tensor tensor;
    for (size_t i = 0; i < from->net->n_layer; i++) {
        const Caffe__LayerParameter *layer = from->net->layer[i];
        const char *type = layer->type ? layer->type : "";
        bool weighty = strcmp(type, "Convolution") == 0 || strcmp(type, "InnerProduct") == 0 ||
                       strcmp(type, "BatchNorm") == 0 || strcmp(type, "Scale") == 0;
        if (weighty && !get_tensor(from, i, 0, &tensor))
            return err_set(err, ERR_INPUT,
                           "%.200s: has no tensor for the net's layer \"%.100s\": it is of another "
                           "net",
                           in, layer->name ? layer->name : "");
    }
    return OK;
}

static int convert_file(struct weights_file *file, const char *in, const char *out,
                        const struct convert_options *options, struct disk *disk,
                        const struct logger *log, struct err *err)
{
    Caffe__NetParameter *own = NULL;
    struct torch_map map;
    struct arena arena;
    int rc = OK;
    if (file->is_caffe)
        rc = caffe_model_net(&file->caffe, &own, err);
    else if (!options->net)
        rc = caffe_convert_net(in, &file->st, &own, err);
    if (rc != OK)
        return rc;
    arena_init(&arena);
    struct numbers from = {.net = own ? own : options->net, .arena = &arena};
    if (file->is_caffe)
        from.caffe = &file->caffe;
    else
        from.st = &file->st;
    if (from.st && torch_is_named(from.st)) {
        rc = find_map(from.net, in, &map, err);
        from.torch = &map;
        if (rc == OK)
            rc = check_torch(&from, in, err);
    }
    if (rc == OK)
        rc = write_numbers(&from, in, out, options, disk, log, err);
    arena_release(&arena);
    if (own)
        caffe__net_parameter__free_unpacked(own, NULL);
    return rc;
}

/* ---- all ways ---- */

static int to_prototxt(const char *in, const char *out, struct disk *disk, struct err *err)
{
    Caffe__NetParameter *net;
    struct buf text = {0};
    int rc = model_load_file(in, &net, err);
    if (rc != OK)
        return rc;
    for (size_t i = 0; i < net->n_layer; i++)
        while (net->layer[i]->n_blobs > 0)
            caffe__blob_proto__free_unpacked(net->layer[i]->blobs[--net->layer[i]->n_blobs], NULL);
    text_write(&net->base, &text);
    caffe__net_parameter__free_unpacked(net, NULL);
    rc = text.failed ? err_set(err, ERR_NOMEM, "%.200s: out of memory", in)
                     : disk_replace(disk, out, text.data, text.len, err);
    buf_release(&text);
    return rc;
}

/* Is the file already what it shall become? */
static bool is_same(const struct weights_file *file, const char *out,
                    const struct convert_options *options)
{
    if (weights_file_called(out, "onnx"))
        return file->is_onnx;
    if (weights_file_called(out, "caffemodel"))
        return file->is_caffe && !file->is_onnx;
    return !file->is_caffe && torch_is_named(&file->st) == options->torch;
}

int caffe_convert(const char *in, const char *out, const struct convert_options *options,
                  struct disk *disk, const struct logger *log, struct err *err)
{
    bool safetensors = weights_file_called(out, "safetensors");
    struct weights_file file;
    if (weights_file_called(out, "prototxt"))
        return to_prototxt(in, out, disk, err);
    if (!safetensors && !weights_file_called(out, "caffemodel") &&
        !weights_file_called(out, "onnx"))
        return err_set(err, ERR_INPUT,
                       "%.200s: ends in none of .caffemodel, .safetensors, .onnx and .prototxt",
                       out);
    int rc = weights_file_open(in, WEIGHTS_FOREIGN, &file, err);
    if (rc != OK)
        return rc;
    if (is_same(&file, out, options)) {
        weights_file_close(&file);
        return err_set(err, ERR_INPUT,
                       "%.200s: is a %s already; copy it, or give OUT another ending", in,
                       strrchr(out, '.'));
    }
    if (file.is_caffe && safetensors && !options->torch)
        return to_safetensors(&file, out, disk, log, err);
    rc = convert_file(&file, in, out, options, disk, log, err);
    weights_file_close(&file);
    return rc;
}
