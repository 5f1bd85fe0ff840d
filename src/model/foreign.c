#include "model/foreign.h"

#include "base/file.h"
#include "model/onnx_import.h"
#include "model/safetensors.h"

#include <stdio.h>
#include <string.h>

enum { PATH_MAX_BYTES = 4096 };

static const char safetensors_instead[] =
    "save its weights as .safetensors, and write the net as a prototxt";

static const struct magic {
    const char *bytes;
    size_t len;
    const char *what;
} magics[] = {
    {"\x89HDF\r\n\x1a\n", 8, "HDF5"},
    {"PK\x03\x04", 4, "a zip archive, as PyTorch and Keras write"},
    {"\x80\x02", 2, "a pickle, as PyTorch writes"},
    {"\x93NUMPY", 6, "an array of NumPy"},
    {"GGUF", 4, "GGUF"},
};

static int refuse_format(const char *path, const char *what, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "%.200s: this is %s, which is not supported: %s", path,
                   what, safetensors_instead);
}

/* The length that a safetensors file begins with may look like any of them. */
int foreign_check(const char *path, const uint8_t *bytes, size_t len, struct err *err)
{
    if (safetensors_begins(bytes, len))
        return OK;
    if (onnx_is_model(path, bytes, len))
        return err_set(err, ERR_INPUT,
                       "%.200s: this is a model in ONNX; give it a name that ends in .onnx", path);
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (len >= magics[i].len && memcmp(bytes, magics[i].bytes, magics[i].len) == 0)
            return refuse_format(path, magics[i].what, err);
    return OK;
}

static bool folder_holds(const char *folder, const char *name)
{
    char path[PATH_MAX_BYTES];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           file_is_regular(path);
}

int foreign_check_folder(const char *path, struct err *err)
{
    if (!file_is_folder(path))
        return OK;
    if (folder_holds(path, "CURRENT"))
        return refuse_format(path, "a LevelDB", err);
    return folder_holds(path, "saved_model.pb")
               ? refuse_format(path, "a SavedModel of TensorFlow", err)
               : OK;
}
