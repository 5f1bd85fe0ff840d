#include "base/bytes.h"
#include "base/fault.h"
#include "job/enums.h"
#include "model/caffe_model.h"
#include "model/caffe_snapshot.h"
#include "model/caffe_upgrade.h"

#include <stdlib.h>
#include <string.h>

/* Fields by their numbers: of NetParameter, and of both kinds of layers. */
enum {
    NET_V1_LAYER = 2,
    NET_LAYER = 100,
    BLOB_DATA = 5,
    BLOB_DIFF = 6,
    BLOB_DOUBLE_DATA = 8,
    BLOB_DOUBLE_DIFF = 9,
};

/* The field numbers of a syntax; 0: it has no such field. */
struct fields {
    uint32_t v0, name, type, blobs;
    enum proto_kind type_kind;
};

static const struct fields fields_v1 = {1, 4, 5, 6, PROTO_VARINT};
static const struct fields fields_new = {0, 1, 2, 7, PROTO_BYTES};

enum { NET_BYTES_MAX = 1 << 20 };

static bool is_layer(const struct proto_field *field)
{
    return field->number == NET_LAYER || field->number == NET_V1_LAYER;
}

/* ---- counting, before memory is taken ---- */

struct counts {
    size_t v1, layers, blobs;
};

static int count_layer(const struct proto_field *layer, struct counts *counts, struct err *err)
{
    const struct fields *f = layer->number == NET_V1_LAYER ? &fields_v1 : &fields_new;
    int rc = proto_expect(layer, PROTO_BYTES, "layer", err);
    for (struct proto w = layer->in; rc == OK && w.at < w.end;) {
        struct proto_field field;
        rc = proto_next(&w, &field, err);
        if (rc == OK && f->v0 && field.number == f->v0)
            return err_set(err, ERR_UNSUPPORTED,
                           "%.200s: layers of the oldest syntax (V0LayerParameter) are not "
                           "supported",
                           w.path);
        counts->blobs += rc == OK && field.number == f->blobs;
    }
    counts->v1 += layer->number == NET_V1_LAYER;
    counts->layers++;
    return rc;
}

static int count_layers(struct proto net, struct counts *counts, struct err *err)
{
    const char *path = net.path;
    while (net.at < net.end) {
        struct proto_field field;
        int rc = proto_next(&net, &field, err);
        if (rc == OK && is_layer(&field))
            rc = count_layer(&field, counts, err);
        if (rc != OK)
            return rc;
        if (counts->layers > CAFFE_LAYERS_MAX || counts->blobs > CAFFE_BLOBS_MAX)
            return err_set(err, ERR_INPUT, "%.200s: more than %d layers or %d blobs", path,
                           CAFFE_LAYERS_MAX, CAFFE_BLOBS_MAX);
    }
    if (counts->v1 > 0 && counts->v1 < counts->layers)
        return err_set(err, ERR_INPUT, "%.200s: both `layer` and `layers`, of two syntaxes", path);
    return OK;
}

/* ---- layers ---- */

static int take_text(struct arena *arena, const struct proto_field *field, const char *what,
                     const char **out, struct err *err)
{
    size_t len = (size_t)(field->in.end - field->in.at);
    int rc = proto_expect(field, PROTO_BYTES, what, err);
    if (rc != OK)
        return rc;
    if (memchr(field->in.at, 0, len))
        return proto_fail(&field->in, field->from, err, "%s: a text with a zero byte in it", what);
    char *copy = arena_array(arena, len + 1, char);
    if (!copy)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory", field->in.path);
    memcpy(copy, field->in.at, len);
    *out = copy;
    return OK;
}

static int take_type(struct arena *arena, const struct fields *f, const struct proto_field *field,
                     const char **out, struct err *err)
{
    if (f->type_kind == PROTO_BYTES)
        return take_text(arena, field, "a layer's type", out, err);
    int rc = proto_expect(field, PROTO_VARINT, "a layer's type", err);
    if (rc != OK)
        return rc;
    const char *type = caffe_upgrade_type(field->value);
    if (!type)
        return proto_fail(&field->in, field->from, err, "there is no type %llu of layers",
                          (unsigned long long)field->value);
    *out = type;
    return OK;
}

static int take_blob(const struct proto_field *field, struct caffe_layer *layer,
                     struct caffe_blob *blob, struct err *err)
{
    int rc = proto_expect(field, PROTO_BYTES, "blobs", err);
    if (rc == OK)
        rc = caffe_blob_read(&field->in, blob, err);
    layer->n += rc == OK;
    return rc;
}

/* The layer's name may follow its blobs, as any field may, so messages get it at the end. `blob` is
 * the first free slot; it advances. */
static int read_layer(struct arena *arena, const struct proto_field *from, struct caffe_layer *out,
                      struct caffe_blob **blob, struct err *err)
{
    const struct fields *f = from->number == NET_V1_LAYER ? &fields_v1 : &fields_new;
    int rc = OK, bad = OK;
    *out = (struct caffe_layer){.name = "", .type = "", .blob = *blob};
    for (struct proto w = from->in; w.at < w.end && rc == OK;) {
        struct proto_field field;
        rc = proto_next(&w, &field, err);
        if (rc == OK && field.number == f->name)
            rc = take_text(arena, &field, "a layer's name", &out->name, err);
        else if (rc == OK && field.number == f->type)
            rc = take_type(arena, f, &field, &out->type, err);
        else if (rc == OK && field.number == f->blobs && bad == OK)
            bad = take_blob(&field, out, (*blob)++, err);
    }
    if (rc == OK && bad != OK)
        err_prefix(err, "layer \"%.100s\", blob %zu", out->name, out->n);
    if (rc == OK && bad == OK && out->n > 0 && !out->name[0])
        return proto_fail(&from->in, from->from, err, "a layer with blobs and no name");
    return rc == OK ? bad : rc;
}

static int compare_names(const void *a, const void *b)
{
    const struct caffe_layer *x = *(const struct caffe_layer *const *)a;
    const struct caffe_layer *y = *(const struct caffe_layer *const *)b;
    return strcmp(x->name, y->name);
}

static int index_names(struct caffe_model *model, struct err *err)
{
    for (size_t i = 0; i < model->n; i++)
        if (model->layer[i].n > 0)
            model->by_name[model->named++] = &model->layer[i];
    if (model->named == 0)
        return OK;
    qsort(model->by_name, model->named, sizeof *model->by_name, compare_names);
    for (size_t i = 1; i < model->named; i++)
        if (strcmp(model->by_name[i - 1]->name, model->by_name[i]->name) == 0)
            return err_set(err, ERR_INPUT, "%.200s: layer \"%.100s\": given twice with blobs",
                           model->path, model->by_name[i]->name);
    return OK;
}

static int fill_model(struct caffe_model *model, const struct counts *counts, struct err *err)
{
    struct arena *arena = &model->arena;
    struct caffe_blob *blob = arena_array(arena, counts->blobs, struct caffe_blob);
    model->layer = arena_array(arena, counts->layers, struct caffe_layer);
    model->by_name = arena_array(arena, counts->layers, const struct caffe_layer *);
    if (!blob || !model->layer || !model->by_name)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory for %zu layers", model->path,
                       counts->layers);
    for (struct proto w = proto_of(model->path, model->bytes, model->len); w.at < w.end;) {
        struct proto_field field;
        int rc = proto_next(&w, &field, err);
        if (rc == OK && is_layer(&field))
            rc = read_layer(arena, &field, &model->layer[model->n++], &blob, err);
        if (rc != OK)
            return rc;
    }
    return index_names(model, err);
}

int caffe_model_parse(const char *path, const uint8_t *bytes, size_t len, struct caffe_model *out,
                      struct err *err)
{
    static const uint8_t hdf5[] = {0x89, 'H', 'D', 'F'};
    struct counts counts = {0};
    if (len >= sizeof hdf5 && memcmp(bytes, hdf5, sizeof hdf5) == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "%.200s: HDF5 is not supported; in Caffe, snapshot_format: BINARYPROTO",
                       path);
    if (len > CAFFE_MODEL_BYTES_MAX)
        return err_set(err, ERR_INPUT, "%.200s: longer than the limit of %zu bytes", path,
                       CAFFE_MODEL_BYTES_MAX);
    int rc = count_layers(proto_of(path, bytes, len), &counts, err);
    if (rc == OK && counts.layers == 0)
        rc = err_set(err, ERR_INPUT, "%.200s: no layers: this is no caffemodel", path);
    if (rc != OK)
        return rc;
    struct caffe_model model = {.bytes = bytes, .len = len, .v1 = counts.v1 > 0};
    arena_init(&model.arena);
    model.path = arena_strdup(&model.arena, path);
    rc = model.path ? fill_model(&model, &counts, err)
                    : err_set(err, ERR_NOMEM, "%.200s: out of memory", path);
    if (rc != OK) {
        arena_release(&model.arena);
        return rc;
    }
    *out = model;
    return OK;
}

void caffe_model_release(struct caffe_model *model)
{
    arena_release(&model->arena);
    *model = (struct caffe_model){0};
}

const struct caffe_layer *caffe_model_find(const struct caffe_model *model, const char *name)
{
    const struct caffe_layer key = {.name = name}, *at = &key;
    const struct caffe_layer **found =
        model->named ? bsearch(&at, model->by_name, model->named, sizeof at, compare_names) : NULL;
    return found ? *found : NULL;
}

/* ---- the file's contents besides its numbers ---- */

static void put_message(struct buf *out, uint32_t number, const struct buf *in)
{
    proto_put_varint(out, (uint64_t)number << 3 | PROTO_BYTES);
    proto_put_varint(out, in->len);
    buf_put(out, in->data, in->len);
    out->failed |= in->failed;
}

static void put_as_is(struct buf *out, const struct proto_field *field)
{
    const struct proto *in = &field->in;
    if (field->kind == PROTO_VARINT) {
        proto_put_varint(out, (uint64_t)field->number << 3);
        proto_put_varint(out, field->value);
    } else {
        buf_put(out, field->from, (size_t)(in->end - field->from));
    }
}

/* The fields of a message; those of the next level that lead to blobs are stripped in turn. Level 0
 * is the net, 1 a layer, 2 a blob. */
static void strip_data(struct proto w, unsigned level, const struct fields *f, struct buf *out)
{
    while (w.at < w.end && !out->failed && out->len <= NET_BYTES_MAX) {
        struct proto_field field;
        int rc = proto_next(&w, &field, NULL);
        PL_ASSERT(rc == OK); /* these were read before */
        bool numbers = field.number == BLOB_DATA || field.number == BLOB_DIFF ||
                       field.number == BLOB_DOUBLE_DATA || field.number == BLOB_DOUBLE_DIFF;
        if (level == 2 && numbers)
            continue;
        if (level == 0 && is_layer(&field))
            f = field.number == NET_V1_LAYER ? &fields_v1 : &fields_new;
        if ((level == 0 && is_layer(&field)) || (level == 1 && field.number == f->blobs)) {
            struct buf inner = {0};
            strip_data(field.in, level + 1, f, &inner);
            put_message(out, field.number, &inner);
            buf_release(&inner);
        } else {
            put_as_is(out, &field);
        }
    }
}

int caffe_model_net(const struct caffe_model *model, Caffe__NetParameter **out, struct err *err)
{
    struct buf bytes = {0};
    Caffe__NetParameter *net = NULL;
    int rc = OK;
    strip_data(proto_of(model->path, model->bytes, model->len), 0, NULL, &bytes);
    if (bytes.failed)
        rc = err_set(err, ERR_NOMEM, "%.200s: out of memory", model->path);
    else if (bytes.len > NET_BYTES_MAX)
        rc = err_set(err, ERR_UNSUPPORTED,
                     "%.200s: the net's description is longer than the limit of %d bytes",
                     model->path, NET_BYTES_MAX);
    else if (!(net = caffe__net_parameter__unpack(NULL, bytes.len, bytes.data)))
        rc = err_set(err, ERR_INPUT, "%.200s: the description of a layer is broken", model->path);
    buf_release(&bytes);
    if (rc != OK)
        return rc;
    rc = enums_check(&net->base, err);
    if (rc == OK)
        rc = caffe_upgrade(net, err);
    if (rc == OK)
        rc = caffe_snapshot_finish(net, model->v1, err);
    if (rc != OK) {
        err_prefix(err, "%.200s", model->path);
        caffe__net_parameter__free_unpacked(net, NULL);
        return rc;
    }
    *out = net;
    return OK;
}
