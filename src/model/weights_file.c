#include "model/weights_file.h"

#include "base/bytes.h"
#include "model/caffe_convert.h"
#include "model/foreign.h"
#include "model/onnx_import.h"
#include "model/safetensors_format.h"
#include "model/torch_names.h"

#include <stdlib.h>
#include <string.h>

static const size_t FILE_BYTES_MAX = (size_t)1 << 36;

bool weights_file_called(const char *path, const char *extension)
{
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot + 1, extension) == 0;
}

static bool is_ours(const struct file_bytes *bytes)
{
    size_t n = strlen(SAFETENSORS_LEAD);
    return bytes->len > SAFETENSORS_LENGTH_BYTES + n &&
           memcmp(bytes->data + SAFETENSORS_LENGTH_BYTES, SAFETENSORS_LEAD, n) == 0;
}

int weights_file_is_ours(const char *path, bool *ours, struct err *err)
{
    uint8_t begin[SAFETENSORS_LENGTH_BYTES + sizeof SAFETENSORS_LEAD];
    const struct file_bytes bytes = {.data = begin, .len = sizeof begin};
    struct file_open file;
    int rc = file_open(path, &file, err);
    if (rc != OK)
        return rc;
    *ours = file.len >= sizeof begin && file_part(&file, 0, begin, sizeof begin) == OK &&
            is_ours(&bytes);
    file_close(&file);
    return OK;
}

/* A net with its blobs as the bytes of a caffemodel. */
static int pack_net(const char *path, const Caffe__NetParameter *net, struct file_bytes *out,
                    struct err *err)
{
    size_t len = caffe__net_parameter__get_packed_size(net);
    if (len > CAFFE_MODEL_BYTES_MAX)
        return err_set(err, ERR_UNSUPPORTED, "%.200s: more than %zu bytes of weights", path,
                       CAFFE_MODEL_BYTES_MAX);
    out->data = malloc(len + 1);
    if (!out->data)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory", path);
    out->len = caffe__net_parameter__pack(net, out->data);
    return OK;
}

/* The bytes of a model in ONNX become those of a caffemodel. */
static int take_onnx(const char *path, struct file_bytes *bytes, struct err *err)
{
    Onnx__ModelProto *model;
    Caffe__NetParameter *net = NULL;
    int rc = bytes->len <= CAFFE_MODEL_BYTES_MAX
                 ? onnx_unpack(path, bytes->data, bytes->len, &model, err)
                 : err_set(err, ERR_INPUT, "%.200s: longer than the limit of %zu bytes", path,
                           CAFFE_MODEL_BYTES_MAX);
    file_release(bytes);
    if (rc != OK)
        return rc;
    rc = onnx_import_model(path, model, CAFFE_MODEL_BYTES_MAX, &net, err);
    onnx__model_proto__free_unpacked(model, NULL);
    if (rc != OK)
        return rc;
    rc = pack_net(path, net, bytes, err);
    caffe__net_parameter__free_unpacked(net, NULL);
    return rc;
}

int weights_file_open(const char *path, enum weights_trust trust, struct weights_file *out,
                      struct err *err)
{
    struct file_bytes bytes;
    struct weights_file file = {0};
    int rc = foreign_check_folder(path, err);
    if (rc == OK)
        rc = file_read(path, FILE_BYTES_MAX, &bytes, err);
    if (rc != OK)
        return rc;
    file.is_onnx =
        !safetensors_begins(bytes.data, bytes.len) && onnx_is_model(path, bytes.data, bytes.len);
    rc = file.is_onnx ? take_onnx(path, &bytes, err)
                      : foreign_check(path, bytes.data, bytes.len, err);
    if (rc != OK) {
        file_release(&bytes);
        return rc;
    }
    file.is_caffe = file.is_onnx || (!safetensors_begins(bytes.data, bytes.len) &&
                                     !weights_file_called(path, "safetensors"));
    if (file.is_caffe) {
        rc = caffe_model_parse(path, bytes.data, bytes.len, &file.caffe, err);
    } else {
        bool ours = is_ours(&bytes);
        rc = safetensors_look(path, bytes.data, bytes.len, ours, &file.st, err);
        if (rc == OK && trust == WEIGHTS_CHECKED && !ours && !torch_is_named(&file.st)) {
            safetensors_release(&file.st);
            rc = safetensors_look(path, bytes.data, bytes.len, true, &file.st, err);
        }
    }
    file.bytes = bytes;
    if (rc == OK)
        *out = file;
    else
        file_release(&bytes);
    return rc;
}

static bool came_of_caffe(const struct safetensors *st)
{
    return safetensors_meta_get(st, CAFFE_CONVERT_NET) &&
           !safetensors_meta_get(st, CAFFE_CONVERT_SOURCE);
}

int weights_file_of_caffe(const char *path, bool *out, struct err *err)
{
    struct weights_file file;
    struct safetensors st;
    bool ours;
    *out = weights_file_called(path, "caffemodel");
    if (*out || weights_file_called(path, "onnx"))
        return OK;
    if (weights_file_is_ours(path, &ours, NULL) == OK && ours) {
        int read = safetensors_read_meta(path, &st, err);
        if (read != OK)
            return read;
        *out = came_of_caffe(&st);
        safetensors_release(&st);
        return OK;
    }
    int rc = weights_file_open(path, WEIGHTS_FOREIGN, &file, err);
    if (rc != OK)
        return rc;
    *out = !file.is_onnx && (file.is_caffe || came_of_caffe(&file.st));
    weights_file_close(&file);
    return OK;
}

void weights_file_close(struct weights_file *file)
{
    if (file->is_caffe)
        caffe_model_release(&file->caffe);
    else
        safetensors_release(&file->st);
    file_release(&file->bytes);
}
