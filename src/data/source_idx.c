#include "data/source_idx.h"

#include "base/bytes.h"
#include "base/file.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    MAGIC_IMAGES = 0x803,
    MAGIC_LABELS = 0x801,
    HEADER_IMAGES = 16,
    HEADER_LABELS = 8,
};

/* Limit of the pixels of a file: it bounds the allocation that a few bytes of gzip can cause. */
static const size_t PIXELS_MAX = (size_t)1 << 32;

struct source_idx {
    struct source source; /* first: the ops get a pointer to it */
    struct file_bytes images, labels;
    const struct open_watch *watch; /* while it is opened */
};

static int idx_read(const struct source *source, size_t i, struct scratch *scratch, struct raw *raw,
                    struct err *err)
{
    (void)scratch;
    (void)err;
    const struct source_idx *idx = (const struct source_idx *)source;
    size_t H = source->shape.dim[1], W = source->shape.dim[2];
    *raw = (struct raw){idx->images.data + HEADER_IMAGES + i * H * W, RAW_PLANES, 1, H, W, 0};
    return OK;
}

static uint32_t idx_label(const struct source *source, size_t i)
{
    const struct source_idx *idx = (const struct source_idx *)source;
    return idx->labels.data[HEADER_LABELS + i];
}

static void idx_close(struct source *source)
{
    struct source_idx *idx = (struct source_idx *)source;
    file_release(&idx->images);
    file_release(&idx->labels);
    free(idx);
}

static const struct source_ops idx_ops = {
    .kind = "idx",
    .read = idx_read,
    .label = idx_label,
    .close = idx_close,
};

/* Check the magic number, which tells the kind of file, and that the header is complete. */
static int check_magic(const char *path, const struct file_bytes *file, uint32_t want,
                       size_t header, struct err *err)
{
    const char *kind = want == MAGIC_IMAGES ? "image" : "label";
    if (file->len < 4)
        return err_set(err, ERR_INPUT, "%s: not an IDX %s file (%zu bytes, too short for a magic)",
                       path, kind, file->len);
    uint32_t magic = bytes_be32(file->data);
    if (magic != want) {
        const char *found = magic == MAGIC_LABELS   ? ", an IDX label file); exchange the two"
                            : magic == MAGIC_IMAGES ? ", an IDX image file); exchange the two"
                                                    : ")";
        return err_set(err, ERR_INPUT, "%s: not an IDX %s file (magic 0x%08" PRIx32 "%s", path,
                       kind, magic, found);
    }
    if (file->len < header)
        return err_set(err, ERR_INPUT, "%s: truncated: %zu bytes, an IDX %s header alone has %zu",
                       path, file->len, kind, header);
    return OK;
}

/* The header alone, unpacked and checked: nothing else of a file that is no such is. */
static int read_header(const char *path, uint32_t magic, size_t header, struct file_bytes *out,
                       struct err *err)
{
    struct file_bytes file;
    int rc = file_read_begin(path, header, NULL, &file, err);
    if (rc != OK)
        return rc;
    rc = check_magic(path, &file, magic, header, err);
    if (rc == OK)
        *out = file;
    else
        file_release(&file);
    return rc;
}

/* Header and data fill the file exactly; of one that continues, a byte more is unpacked. */
static int read_promised(const char *path, size_t promised, const struct open_watch *watch,
                         struct file_bytes *out, struct err *err)
{
    int rc = file_read_begin(path, promised + 1, watch, out, err);
    if (rc != OK)
        return rc;
    if (out->len < promised)
        return err_set(
            err, ERR_INPUT,
            "%s: truncated: %zu bytes, header promises %zu; the file ends too early: copy "
            "it again",
            path, out->len, promised);
    if (out->len > promised)
        return err_set(err, ERR_INPUT, "%s: longer than the %zu bytes its header promises", path,
                       promised);
    return OK;
}

static int check_images(const char *path, const uint8_t *header, struct source *source,
                        struct err *err)
{
    size_t N = bytes_be32(header + 4), H = bytes_be32(header + 8), W = bytes_be32(header + 12);
    if (N == 0)
        return err_set(err, ERR_INPUT, "%s: holds 0 images", path);
    if (H == 0 || W == 0 || H > SIDE_MAX || W > SIDE_MAX)
        return err_set(err, ERR_INPUT, "%s: images of %zu x %zu pixels, expected 1 to %d a side",
                       path, H, W, SIDE_MAX);
    size_t pixels;
    if (__builtin_mul_overflow(N, H * W, &pixels) || pixels > PIXELS_MAX)
        return err_set(err, ERR_INPUT,
                       "%s: %zu images of %zu x %zu pixels are more than the limit of %zu bytes",
                       path, N, H, W, PIXELS_MAX);
    source->count = N;
    source->shape = (struct shape){.n = 3, .dim = {1, H, W}};
    return OK;
}

static int load_images(const char *path, struct source_idx *idx, struct err *err)
{
    struct file_bytes header;
    int rc = read_header(path, MAGIC_IMAGES, HEADER_IMAGES, &header, err);
    if (rc != OK)
        return rc;
    rc = check_images(path, header.data, &idx->source, err);
    file_release(&header);
    size_t pixels = idx->source.count * idx->source.shape.dim[1] * idx->source.shape.dim[2];
    return rc == OK ? read_promised(path, HEADER_IMAGES + pixels, idx->watch, &idx->images, err)
                    : rc;
}

static int load_labels(const char *path, const char *images, struct source_idx *idx,
                       struct err *err)
{
    struct file_bytes header;
    int rc = read_header(path, MAGIC_LABELS, HEADER_LABELS, &header, err);
    if (rc != OK)
        return rc;
    size_t N = bytes_be32(header.data + 4);
    file_release(&header);
    if (N == 0)
        return err_set(err, ERR_INPUT, "%s: holds 0 labels", path);
    if (N != idx->source.count)
        return err_set(err, ERR_INPUT,
                       "%s: %zu labels for the %zu images of %s; give files of the same set", path,
                       N, idx->source.count, images);
    rc = read_promised(path, HEADER_LABELS + N, idx->watch, &idx->labels, err);
    uint32_t top = 0;
    for (size_t i = 0; rc == OK && i < N; i++) {
        uint32_t label = idx->labels.data[HEADER_LABELS + i];
        top = label > top ? label : top;
    }
    idx->source.classes = top + 1;
    return rc;
}

static int idx_load(const Paceline__Data__Idx *spec, struct source_idx *idx, struct err *err)
{
    int rc = load_images(spec->images, idx, err);
    if (rc == OK)
        rc = load_labels(spec->labels, spec->images, idx, err);
    uint64_t images = 0;
    if (rc == OK)
        rc = source_hash_bytes(idx->images.data, idx->images.len, idx->watch, &images, err);
    if (rc == OK)
        idx->source.hash = hash_mix(images, hash_bytes(idx->labels.data, idx->labels.len));
    return rc;
}

int source_idx_open(const Paceline__Data__Idx *spec, const struct open_watch *watch,
                    struct source **out, struct err *err)
{
    if (!spec->images || !spec->images[0])
        return err_set(err, ERR_INPUT, "data: idx.images is not set");
    if (!spec->labels || !spec->labels[0])
        return err_set(err, ERR_INPUT, "data: idx.labels is not set");
    struct source_idx *idx = calloc(1, sizeof *idx);
    if (!idx)
        return err_set(err, ERR_NOMEM, "%s: out of memory", spec->images);
    idx->source.ops = &idx_ops;
    idx->source.reading = SOURCE_IN_MEMORY;
    idx->watch = watch;
    int rc = idx_load(spec, idx, err);
    idx->watch = NULL;
    if (rc != OK) {
        idx_close(&idx->source);
        return rc;
    }
    *out = &idx->source;
    return OK;
}
