#include "model/caffe_convert.h"

#include "job/text.h"
#include "model/caffe_model.h"
#include "model/caffe_upgrade.h"
#include "model/load.h"
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

static int put_net(struct safetensors_writer *w, const struct caffe_model *model, struct err *err)
{
    Caffe__NetParameter *net;
    struct buf text = {0};
    int rc = caffe_model_net(model, &net, err);
    if (rc != OK)
        return rc;
    text_write(&net->base, &text);
    buf_put_u8(&text, 0);
    caffe__net_parameter__free_unpacked(net, NULL);
    safetensors_meta(w, "format", "paceline 1");
    if (text.failed)
        rc = err_set(err, ERR_NOMEM, "%.200s: out of memory", model->path);
    else
        safetensors_meta(w, CAFFE_CONVERT_NET, (const char *)text.data);
    buf_release(&text);
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
    int rc = put_net(&w, model, err);
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
    const struct safetensors *st; /* a file, */
    const struct segments *x, *s; /* or vectors */
    const float *x_at, *s_at;
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

static const float *find_tensor(const struct numbers *from, const char *name, struct shape *shape)
{
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

static bool get_tensor(void *user, size_t i, size_t k, struct caffe_tensor *out)
{
    const struct numbers *from = user;
    const Caffe__LayerParameter *layer = from->net->layer[i];
    char name[TENSOR_NAME_MAX];
    if (!layer->name || !is_first(from->net, i))
        return false;
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
                       const struct segments *s, const float *s_at, struct disk *disk,
                       const char *path, struct err *err)
{
    struct numbers from = {.net = net, .x = x, .s = s, .x_at = x_at, .s_at = s_at};
    const struct caffe_blobs blobs = {get_tensor, &from};
    return caffe_model_write(net, &blobs, disk, path, err);
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

static int to_caffe(const struct safetensors *st, const char *in, const char *out,
                    const Caffe__NetParameter *net, struct disk *disk, const struct logger *log,
                    struct err *err)
{
    Caffe__NetParameter *own = NULL;
    int rc = OK;
    if (!net)
        rc = caffe_convert_net(in, st, &own, err);
    if (rc != OK)
        return rc;
    struct numbers from = {.net = net ? net : own, .st = st};
    const struct caffe_blobs blobs = {get_tensor, &from};
    rc = check_tensors(&from, in, log, err);
    if (rc == OK)
        rc = caffe_model_write(from.net, &blobs, disk, out, err);
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

int caffe_convert(const char *in, const char *out, const Caffe__NetParameter *net,
                  struct disk *disk, const struct logger *log, struct err *err)
{
    bool caffe = weights_file_called(out, "caffemodel");
    struct weights_file file;
    if (weights_file_called(out, "prototxt"))
        return to_prototxt(in, out, disk, err);
    if (!caffe && !weights_file_called(out, "safetensors"))
        return err_set(err, ERR_INPUT,
                       "%.200s: ends in none of .caffemodel, .safetensors and .prototxt", out);
    int rc = weights_file_open(in, WEIGHTS_FOREIGN, &file, err);
    if (rc != OK)
        return rc;
    if (caffe == file.is_caffe) {
        weights_file_close(&file);
        return err_set(err, ERR_INPUT,
                       "%.200s: is a .%s already; copy it, or give OUT another ending", in,
                       caffe ? "caffemodel" : "safetensors");
    }
    if (file.is_caffe)
        return to_safetensors(&file, out, disk, log, err);
    rc = to_caffe(&file.st, in, out, net, disk, log, err);
    weights_file_close(&file);
    return rc;
}
