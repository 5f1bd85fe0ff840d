#include "data/source_images.h"

#include "base/file.h"
#include "base/hash.h"
#include "data/picture_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT_MAX = 4096 };

static const size_t LIST_BYTES_MAX = (size_t)1 << 28;

struct source_images {
    struct source source; /* first: the ops get a pointer to it */
    struct image_list list;
    char *root;        /* base of relative paths, with its slash */
    const char *under; /* where all must be; NULL: anywhere */
    Paceline__Data__Color color;
};

static const struct image_entry *entry_of(const struct source *source, size_t i)
{
    return &((const struct source_images *)source)->list.at[i];
}

static uint32_t images_label(const struct source *source, size_t i)
{
    return entry_of(source, i)->label;
}

static void images_size(const struct source *source, size_t i, size_t *H, size_t *W)
{
    *H = entry_of(source, i)->H;
    *W = entry_of(source, i)->W;
}

static void images_name(const struct source *source, size_t i, char *out, size_t room)
{
    const struct source_images *images = (const struct source_images *)source;
    source_quote(images->list.text + images->list.at[i].path, out, room);
}

static void images_close(struct source *source)
{
    struct source_images *images = (struct source_images *)source;
    image_list_release(&images->list);
    free(images->root);
    free(images);
}

/* ---- a file ---- */

static int full_path(const struct source_images *images, size_t i, char out[PATH_TEXT_MAX],
                     struct err *err)
{
    const char *path = images->list.text + images->list.at[i].path;
    int n = snprintf(out, PATH_TEXT_MAX, "%s%s", path[0] == '/' ? "" : images->root, path);
    if (n >= PATH_TEXT_MAX)
        return err_set(err, ERR_INPUT, "%.80s...: path longer than %d bytes", out, PATH_TEXT_MAX);
    return file_check_under(images->under, out, err);
}

static int fill_record(const struct file_open *file, uint64_t bytes, struct scratch *scratch,
                       const uint8_t **out, struct err *err)
{
    if (file->len != bytes)
        return err_set(err, ERR_IO, "has changed since it was opened: %llu bytes, not %llu",
                       (unsigned long long)file->len, (unsigned long long)bytes);
    uint8_t *to = scratch_get(scratch, SCRATCH_FILE, (size_t)bytes);
    if (!to)
        return err_set(err, ERR_NOMEM, "out of memory for its %llu bytes",
                       (unsigned long long)bytes);
    *out = to;
    return file_part(file, 0, to, (size_t)bytes) == OK
               ? OK
               : err_set(err, ERR_IO, "cannot be read any more");
}

static int images_encoded(const struct source *source, size_t i, struct scratch *scratch,
                          const uint8_t **bytes, size_t *n, struct err *err)
{
    const struct source_images *images = (const struct source_images *)source;
    char path[PATH_TEXT_MAX];
    struct file_open file;
    *n = (size_t)images->list.at[i].bytes;
    if (full_path(images, i, path, err) != OK || picture_file_open(path, &file, err) != OK)
        return ERR_IO; /* it was there when the list was opened */
    int rc = fill_record(&file, *n, scratch, bytes, err);
    file_close(&file);
    return picture_file_name(path, rc, err);
}

static void images_prefetch(const struct source *source, size_t i)
{
    const struct source_images *images = (const struct source_images *)source;
    char path[PATH_TEXT_MAX];
    struct file_open file;
    if (full_path(images, i, path, NULL) != OK || picture_file_open(path, &file, NULL) != OK)
        return; /* the read will say why */
    file_prefetch(&file, 0, (size_t)file.len);
    file_close(&file);
}

static int images_read(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct source_images *images = (const struct source_images *)source;
    const struct image_entry *entry = &images->list.at[i];
    char path[PATH_TEXT_MAX];
    const uint8_t *bytes = NULL;
    size_t n;
    struct raw made;
    int rc = images_encoded(source, i, scratch, &bytes, &n, err);
    if (rc != OK)
        return rc;
    rc = picture_decode(bytes, n, images->color, scratch, &made, err);
    if (rc == OK && (made.H != entry->H || made.W != entry->W))
        rc = err_set(err, ERR_IO, "has changed since it was opened: %zu x %zu pixels", made.H,
                     made.W);
    if (rc != OK)
        return full_path(images, i, path, NULL) == OK ? picture_file_name(path, rc, err) : rc;
    *raw = made;
    return OK;
}

static const struct source_ops images_ops = {
    .kind = "images",
    .read = images_read,
    .encoded = images_encoded,
    .prefetch = images_prefetch,
    .label = images_label,
    .size = images_size,
    .name = images_name,
    .close = images_close,
};

/* ---- opening ---- */

/* The header of picture i, and its part of the hash. */
static int look_at(struct source_images *images, const struct source_config *config, size_t i,
                   struct err *err)
{
    struct image_entry *entry = &images->list.at[i];
    const char *name = images->list.text + entry->path;
    char path[PATH_TEXT_MAX];
    struct picture picture;
    uint8_t head[PICTURE_HEAD];
    size_t n;
    int rc = full_path(images, i, path, err);
    if (rc == OK)
        rc = picture_file_probe(path, head, &n, &entry->bytes, &picture, err);
    if (rc == ERR_INPUT && !config->bad && file_is_regular(path))
        err_remedy(err, BAD_RECORD_REMEDY);
    if (rc != OK)
        return rc;
    entry->H = (uint16_t)picture.H;
    entry->W = (uint16_t)picture.W;
    uint64_t hash = hash_mix(images->source.hash, hash_bytes(name, strlen(name)));
    hash = hash_mix(hash_mix(hash, entry->label), entry->bytes);
    images->source.hash = hash_mix(hash, hash_bytes(head, n));
    return OK;
}

static int look_at_all(struct source_images *images, const struct source_config *config,
                       const char *path, struct err *err)
{
    struct source *source = &images->source;
    source->classes = images->list.classes;
    source->hash = hash_mix(0, images->color);
    int rc = OK;
    size_t kept = 0;
    for (size_t i = 0; rc == OK && i < images->list.count; i++) {
        rc = look_at(images, config, i, err);
        if (rc == OK)
            images->list.at[kept++] = images->list.at[i];
        else if (rc == ERR_INPUT && config->bad)
            rc = source_leave_out(config, i, err);
        if (rc == OK)
            rc = open_watch_report(config->watch, "pictures", i + 1, images->list.count, err);
    }
    if (rc == OK && kept == 0)
        rc = source_refuse_empty(path, images->list.count, err);
    if (rc != OK)
        return rc;
    source->count = images->list.count = kept;
    const struct image_entry *first = &images->list.at[0];
    source->shape =
        (struct shape){.n = 3, .dim = {picture_channels(images->color), first->H, first->W}};
    for (size_t i = 1; i < source->count; i++)
        if (images->list.at[i].H != first->H || images->list.at[i].W != first->W)
            source->shape.dim[1] = source->shape.dim[2] = 0;
    return OK;
}

static char *join_path(const char *folder, size_t n)
{
    char *out = malloc(n + 2);
    if (!out)
        return NULL;
    memcpy(out, folder, n);
    if (n > 0 && out[n - 1] != '/')
        out[n++] = '/';
    out[n] = '\0';
    return out;
}

/* The folder that paths are relative to. */
static char *root_of(const Paceline__Data__Images *spec, bool walks)
{
    if (walks)
        return join_path(spec->list, strlen(spec->list));
    if (spec->root && spec->root[0])
        return join_path(spec->root, strlen(spec->root));
    const char *slash = strrchr(spec->list, '/');
    return join_path(spec->list, slash ? (size_t)(slash - spec->list) + 1 : 0);
}

/* "; 2 files next to ... (README.txt)" */
static void warn_of(char *text, size_t room, const struct image_strays *strays, const char *what)
{
    size_t used = strlen(text);
    if (strays->count > 0)
        snprintf(text + used, room - used, "%s%zu %s (%s%s)", used > 0 ? "; " : "", strays->count,
                 what, strays->first, strays->count > 1 ? " first" : "");
}

static void write_warning(struct source_images *images, const char *folder)
{
    char text[256] = "", quoted[64];
    const struct image_list *list = &images->list;
    warn_of(text, sizeof text, &list->folder_prefix, "files next to the class folders are ignored");
    warn_of(text, sizeof text, &list->inside, "files that are no pictures are ignored");
    warn_of(text, sizeof text, &list->empty, "classes without pictures");
    if (text[0])
        snprintf(images->source.warning, sizeof images->source.warning, "%s: %s",
                 source_quote(folder, quoted, sizeof quoted), text);
}

static int load_list(struct source_images *images, const char *path, const struct open_watch *watch,
                     struct err *err)
{
    struct file_bytes file;
    int rc = file_read_watched(path, LIST_BYTES_MAX, watch, &file, err);
    if (rc != OK)
        return rc;
    return image_list_parse(path, (char *)file.data, file.len, &images->list, err);
}

int source_images_open(const struct source_config *config, const Paceline__Data__Images *spec,
                       struct source **out, struct err *err)
{
    int rc = file_check_under(config->root, spec->list, err);
    if (rc != OK)
        return rc;
    bool walks = file_is_folder(spec->list);
    if (walks && spec->root && spec->root[0])
        return err_set(err, ERR_INPUT,
                       "%s: images.root is for a list of pictures, and this is a folder",
                       spec->list);
    struct source_images *images = calloc(1, sizeof *images);
    if (!images)
        return err_set(err, ERR_NOMEM, "%s: out of memory", spec->list);
    images->source.ops = &images_ops;
    images->color = spec->color;
    images->under = config->root;
    images->root = root_of(spec, walks);
    rc = images->root ? OK : err_set(err, ERR_NOMEM, "%s: out of memory", spec->list);
    if (rc == OK)
        rc = walks ? image_list_walk(config, spec->list, &images->list, err)
                   : load_list(images, spec->list, config->watch, err);
    if (rc == OK && walks)
        write_warning(images, spec->list);
    if (rc == OK)
        rc = look_at_all(images, config, spec->list, err);
    if (rc != OK) {
        images_close(&images->source);
        return rc;
    }
    *out = &images->source;
    return OK;
}
