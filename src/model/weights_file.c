#include "model/weights_file.h"

#include "base/bytes.h"
#include "model/caffe_convert.h"
#include "model/foreign.h"
#include "model/safetensors_format.h"

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
    rc = foreign_check(path, bytes.data, bytes.len, err);
    if (rc != OK) {
        file_release(&bytes);
        return rc;
    }
    file.is_caffe =
        !safetensors_begins(bytes.data, bytes.len) && !weights_file_called(path, "safetensors");
    if (file.is_caffe) {
        rc = caffe_model_parse(path, bytes.data, bytes.len, &file.caffe, err);
    } else {
        bool demand = trust == WEIGHTS_CHECKED || is_ours(&bytes);
        rc = safetensors_look(path, bytes.data, bytes.len, demand, &file.st, err);
    }
    file.bytes = bytes;
    if (rc == OK)
        *out = file;
    else
        file_release(&bytes);
    return rc;
}

int weights_file_of_caffe(const char *path, bool *out, struct err *err)
{
    struct weights_file file;
    *out = weights_file_called(path, "caffemodel");
    if (*out)
        return OK;
    int rc = weights_file_open(path, WEIGHTS_FOREIGN, &file, err);
    if (rc != OK)
        return rc;
    *out = file.is_caffe || safetensors_meta_get(&file.st, CAFFE_CONVERT_NET);
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
