#include "data/picture_file.h"

#include "data/source.h"

#include <string.h>

int picture_file_name(const char *path, int rc, struct err *err)
{
    char quoted[SOURCE_NAME_MAX];
    if (rc != OK)
        err_prefix(err, "%s", source_quote(path, quoted, sizeof quoted));
    return rc;
}

int picture_file_open(const char *path, struct file_open *file, struct err *err)
{
    char quoted[SOURCE_NAME_MAX];
    struct err why;
    int rc = file_open(path, file, &why);
    if (rc != OK) /* its message holds the path as it stands: what comes after it counts */
        return err_set(err, rc, "%s%s", source_quote(path, quoted, sizeof quoted),
                       strlen(why.text) > strlen(path) ? why.text + strlen(path) : "");
    if (file->len <= PICTURE_BYTES_MAX)
        return OK;
    file_close(file);
    return err_set(err, ERR_INPUT, "%s: longer than the limit of %d bytes",
                   source_quote(path, quoted, sizeof quoted), PICTURE_BYTES_MAX);
}

int picture_file_probe(const char *path, uint8_t head[PICTURE_HEAD], size_t *n, uint64_t *len,
                       struct picture *out, struct err *err)
{
    struct file_open file;
    int rc = picture_file_open(path, &file, err);
    if (rc != OK)
        return rc;
    struct part_of all = {.file = &file, .len = file.len};
    *n = part_left(&all, 0, PICTURE_HEAD);
    *len = file.len;
    if (part_read(&all, 0, head, *n) != OK)
        rc = err_set(err, ERR_INPUT, "cannot be read");
    else
        rc = picture_probe(&all, head, *n, out, err);
    file_close(&file);
    return picture_file_name(path, rc == ERR_IO ? ERR_INPUT : rc, err);
}
