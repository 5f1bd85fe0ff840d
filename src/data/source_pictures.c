#include "data/source_pictures.h"

#include "base/hash.h"
#include "data/picture_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct source_pictures {
    struct source source; /* first: the ops get a pointer to it */
    const char *const *path;
    Paceline__Data__Color color;
    struct picture size[];
};

static uint32_t pictures_label(const struct source *source, size_t i)
{
    (void)source;
    (void)i;
    return 0;
}

static void pictures_size(const struct source *source, size_t i, size_t *H, size_t *W)
{
    const struct picture *size = &((const struct source_pictures *)source)->size[i];
    *H = size->H;
    *W = size->W;
}

static void pictures_name(const struct source *source, size_t i, char *out, size_t room)
{
    source_quote(((const struct source_pictures *)source)->path[i], out, room);
}

static void pictures_close(struct source *source)
{
    free(source);
}

static int pictures_read(const struct source *source, size_t i, struct scratch *scratch,
                         struct raw *raw, struct err *err)
{
    const struct source_pictures *pictures = (const struct source_pictures *)source;
    const char *path = pictures->path[i];
    struct file_open file;
    struct raw made = {0};
    if (picture_file_open(path, &file, err) != OK)
        return ERR_IO; /* it was there when it was opened first */
    size_t len = (size_t)file.len;
    uint8_t *bytes = scratch_get(scratch, SCRATCH_FILE, len + 1);
    int rc = bytes ? file_part(&file, 0, bytes, len) : ERR_NOMEM;
    file_close(&file);
    if (rc != OK)
        return picture_file_name(
            path, err_set(err, rc, rc == ERR_NOMEM ? "out of memory" : "cannot be read"), err);
    rc = picture_decode(bytes, len, pictures->color, scratch, &made, err);
    if (rc == OK && (made.H != pictures->size[i].H || made.W != pictures->size[i].W))
        rc = err_set(err, ERR_IO, "has changed since it was opened: %zu x %zu pixels", made.H,
                     made.W);
    if (rc == OK)
        *raw = made;
    return picture_file_name(path, rc, err);
}

static const struct source_ops pictures_ops = {
    .kind = "pictures",
    .read = pictures_read,
    .label = pictures_label,
    .size = pictures_size,
    .name = pictures_name,
    .close = pictures_close,
};

/* The header of picture i, and its part of the hash. */
static int look_at(struct source_pictures *pictures, size_t i, struct err *err)
{
    const char *path = pictures->path[i];
    uint8_t head[PICTURE_HEAD];
    size_t n;
    uint64_t len;
    int rc = picture_file_probe(path, head, &n, &len, &pictures->size[i], err);
    if (rc != OK)
        return rc;
    const uint64_t part[] = {hash_bytes(path, strlen(path)), len, pictures->size[i].H,
                             pictures->size[i].W};
    for (size_t k = 0; k < sizeof part / sizeof *part; k++)
        pictures->source.hash = hash_mix(pictures->source.hash, part[k]);
    return OK;
}

int source_pictures_open(const char *const *paths, size_t count, Paceline__Data__Color color,
                         const struct open_watch *watch, struct source **out, struct err *err)
{
    struct source_pictures *pictures =
        calloc(1, sizeof *pictures + count * sizeof pictures->size[0]);
    if (!pictures)
        return err_set(err, ERR_NOMEM, "pictures: out of memory");
    struct source *source = &pictures->source;
    *source = (struct source){.ops = &pictures_ops, .count = count, .classes = 1};
    pictures->path = paths;
    pictures->color = color;
    int rc = OK;
    for (size_t i = 0; rc == OK && i < count; i++) {
        rc = look_at(pictures, i, err);
        if (rc == OK)
            rc = open_watch_report(watch, "pictures", i + 1, count, err);
    }
    if (rc != OK) {
        free(pictures);
        return rc;
    }
    bool alike = true;
    for (size_t i = 1; i < count; i++)
        alike = alike && pictures->size[i].H == pictures->size[0].H &&
                pictures->size[i].W == pictures->size[0].W;
    source->shape = (struct shape){.n = 3,
                                   .dim = {picture_channels(color), alike ? pictures->size[0].H : 0,
                                           alike ? pictures->size[0].W : 0}};
    *out = source;
    return OK;
}
