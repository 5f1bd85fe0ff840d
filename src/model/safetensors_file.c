/* A safetensors file that is read range by range: it may be larger than the memory of its reader.
 */
#include "base/hash.h"
#include "model/safetensors.h"
#include "model/safetensors_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse_item(const char *path, const struct safetensors_item *item, const char *what,
                       struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: tensor %.200s: %s", path, item->name, what);
}

/* The checksum that the metadata states; NULL: none. */
static const char *stated_digits(const struct safetensors *st, const char *name)
{
    size_t size = strlen(SAFETENSORS_XXH3) + strlen(name) + 1;
    char *key = malloc(size);
    if (!key)
        return NULL;
    snprintf(key, size, "%s%s", SAFETENSORS_XXH3, name);
    const char *stated = safetensors_meta_get(st, key);
    free(key);
    return stated;
}

static int check_item(const struct safetensors_file *f, const char *path,
                      const struct safetensors_item *item, struct hash_stream *hash, float *piece,
                      struct err *err)
{
    char digits[SAFETENSORS_DIGITS + 1];
    const char *stated = stated_digits(&f->st, item->name);
    if (!stated)
        return refuse_item(path, item, "carries no checksum", err);
    hash_stream_begin(hash);
    for (size_t at = 0, n; at < item->count; at += n) {
        n = item->count - at < SAFETENSORS_PIECE ? item->count - at : SAFETENSORS_PIECE;
        int rc = safetensors_range(f, item, at, n, piece, err);
        if (rc != OK)
            return rc;
        hash_stream_add(hash, piece, n * sizeof *piece);
    }
    safetensors_hash_digits(hash_stream_take(hash), digits);
    return strcmp(stated, digits) == 0
               ? OK
               : refuse_item(path, item, "damaged: its bytes do not match their checksum", err);
}

static int check_all(const struct safetensors_file *f, const char *path, struct err *err)
{
    struct hash_stream *hash = hash_stream_create();
    float *piece = malloc(SAFETENSORS_PIECE * sizeof *piece);
    int rc = hash && piece ? OK : err_set(err, ERR_NOMEM, "%s: out of memory", path);
    for (size_t i = 0; rc == OK && i < f->st.n; i++)
        rc = check_item(f, path, &f->st.item[i], hash, piece, err);
    hash_stream_free(hash);
    free(piece);
    return rc;
}

int safetensors_open(const char *path, struct safetensors_file *out, struct err *err)
{
    *out = (struct safetensors_file){.data = 0};
    int rc = file_open(path, &out->file, err);
    if (rc != OK)
        return rc;
    rc = safetensors_read_table(path, &out->file, &out->st, &out->data, err);
    if (rc != OK) {
        file_close(&out->file);
        return rc;
    }
    rc = check_all(out, path, err);
    if (rc != OK)
        safetensors_close(out);
    return rc;
}

int safetensors_range(const struct safetensors_file *f, const struct safetensors_item *item,
                      size_t from, size_t n, float *into, struct err *err)
{
    uint64_t at = f->data + item->offset + from * sizeof *into;
    int rc = file_part(&f->file, at, into, n * sizeof *into);
    return rc == OK ? OK
                    : err_set(err, ERR_INPUT, "tensor %.200s: the file cannot be read any more",
                              item->name);
}

void safetensors_close(struct safetensors_file *f)
{
    safetensors_release(&f->st);
    file_close(&f->file);
}
