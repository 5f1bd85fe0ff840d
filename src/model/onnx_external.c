/* Numbers of a model in a file of their own, in the model's folder. The model is untrusted: the
 * file must be in that folder, after all links, and have the bytes that the tensor's shape needs.
 */
#include "base/file.h"
#include "model/onnx_graph.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_BYTES = 4096 };

static int refuse_place(const struct onnx_graph *g, const Onnx__TensorProto *tensor,
                        const char *why, struct err *err)
{
    return err_set(err, ERR_INPUT, "%.200s: tensor \"%.100s\", which is in another file: %s",
                   g->path, tensor->name ? tensor->name : "", why);
}

static const char *find_entry(const Onnx__TensorProto *tensor, const char *key)
{
    for (size_t i = 0; i < tensor->n_external_data; i++) {
        const Onnx__StringStringEntryProto *entry = tensor->external_data[i];
        if (entry->key && entry->value && strcmp(entry->key, key) == 0)
            return entry->value;
    }
    return NULL;
}

/* Decimal digits alone. */
static bool read_count(const char *text, uint64_t *out)
{
    if (!text)
        return true;
    *out = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (*out > (UINT64_MAX - 9) / 10)
            return false;
        *out = *out * 10 + (uint64_t)(*text - '0');
    }
    return *text == '\0';
}

/* The part of a path up to the next slash is "..". */
static bool leads_up(const char *path)
{
    for (; path; path = strchr(path, '/') ? strchr(path, '/') + 1 : NULL)
        if (path[0] == '.' && path[1] == '.' && (path[2] == '/' || path[2] == '\0'))
            return true;
    return false;
}

/* The file's path, if it is in the folder of the model. */
static int find_file(const struct onnx_graph *g, const Onnx__TensorProto *tensor, char *path,
                     struct err *err)
{
    char folder[PATH_MAX_BYTES], root[PATH_MAX_BYTES];
    const char *location = find_entry(tensor, "location");
    if (!location || !location[0] || location[0] == '/' || leads_up(location))
        return refuse_place(g, tensor, "its location must be a path within the model's folder",
                            err);
    int rc = file_resolve(g->path, ".", folder, sizeof folder, err);
    if (rc == OK)
        rc = file_canonical(folder, root, sizeof root, err);
    if (rc == OK)
        rc = file_resolve(g->path, location, path, PATH_MAX_BYTES, err);
    return rc == OK ? file_check_under(root, path, err) : rc;
}

int onnx_external_read(const struct onnx_graph *g, const Onnx__TensorProto *tensor, size_t bytes,
                       uint8_t **out, struct err *err)
{
    char path[PATH_MAX_BYTES];
    struct file_open file;
    uint64_t offset = 0, length = bytes;
    if (!read_count(find_entry(tensor, "offset"), &offset) ||
        !read_count(find_entry(tensor, "length"), &length) || length != bytes)
        return refuse_place(g, tensor,
                            "its offset or length is not a number, or not that of its shape", err);
    int rc = find_file(g, tensor, path, err);
    if (rc == OK)
        rc = file_open(path, &file, err);
    if (rc != OK)
        return rc;
    bool there = offset <= file.len && bytes <= file.len - offset;
    uint8_t *at = there ? malloc(bytes > 0 ? bytes : 1) : NULL;
    if (!there)
        rc = refuse_place(g, tensor, "the file is shorter than that", err);
    else if (!at)
        rc = onnx_no_memory(g, err);
    else if (file_part(&file, offset, at, bytes) != OK)
        rc = refuse_place(g, tensor, "the file cannot be read", err);
    file_close(&file);
    if (rc != OK) {
        free(at);
        return rc;
    }
    *out = at;
    return OK;
}
