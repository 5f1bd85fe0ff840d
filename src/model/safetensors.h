/* The safetensors format, in and out: named float32 tensors and a dictionary of texts. Other number
 * types are refused by name.
 *
 *   bytes 0..7     N, the header's length, little-endian
 *   bytes 8..8+N   JSON and spaces after it: {"__metadata__": {KEY: TEXT, ...},
 *                  NAME: {"dtype": "F32", "shape": [...], "data_offsets": [BEGIN, END]}, ...}
 *   bytes 8+N..    the data; offsets count from here, and the tensors cover it to the end of the
 *                  file without gap or overlap
 *
 * Any reader of the format can read a file written here. Its checksums reveal a change of any byte.
 * Its metadata begins with "check": 16 hex digits of hash_bytes over the N bytes of the header,
 * spaces included, with those digits replaced by zeros. For each tensor it has "xxh3.NAME", 16 hex
 * digits of hash_bytes over the tensor's bytes. Its data begins at a multiple of 64 bytes. The same
 * calls write the same bytes.
 *
 * Reading needs as much memory as the file's size, unless the file is only viewed; so does making
 * an image, but not writing in parts. */
#ifndef PL_MODEL_SAFETENSORS_H
#define PL_MODEL_SAFETENSORS_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/file.h"
#include "tensor/shape.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- writing ---- */

struct safetensors_meta;
struct safetensors_part;

/* A file being put together. After memory runs out calls do nothing, so that the caller need not
 * look until safetensors_image. It stays where it was begun: it points into itself. */
struct safetensors_writer {
    struct arena arena;
    struct safetensors_meta *meta, **meta_end;
    struct safetensors_part *parts, **parts_end;
    size_t meta_n, parts_n;
    bool failed;
};

/* Released by safetensors_end. */
void safetensors_begin(struct safetensors_writer *w);
void safetensors_end(struct safetensors_writer *w);

/* Add a text to the metadata; both are copied. `key` is neither "check" nor begins with "xxh3.":
 * these are the checksums'. */
void safetensors_meta(struct safetensors_writer *w, const char *key, const char *value);

/* Add a tensor after those before it. Name and shape are copied; `data`, shape_count floats, is
 * borrowed until the last safetensors_image and may be NULL when the shape holds none, or when the
 * floats come later (safetensors_stream). */
void safetensors_tensor(struct safetensors_writer *w, const char *name, const struct shape *shape,
                        const float *data);

/* The whole file as it shall lie on disk. `out` is written over, and released by buf_release.
 *
 * ERR_INPUT  a name or key that occurs twice or is not UTF-8, a tensor called "__metadata__", a
 *            dimension above 2^31 - 1, a header above 16 MiB
 * ERR_NOMEM  here or in a call before */
int safetensors_image(const struct safetensors_writer *w, struct buf *out, struct err *err);

/* The same in parts, without a copy of the tensors: the bytes before the data, into `out`, which is
 * released by buf_release, and the size of the whole file; then the data, piece by piece. An error
 * of `put` ends the writing. Errors as of safetensors_image. */
int safetensors_head(const struct safetensors_writer *w, struct buf *out, size_t *bytes,
                     struct err *err);
int safetensors_data(const struct safetensors_writer *w,
                     int (*put)(void *user, const void *data, size_t len), void *user);

/* A file whose tensors are nowhere in memory whole, written in three steps: safetensors_head, with
 * checksums of 0 for tensors without data; safetensors_stream, which takes their floats from
 * `next`, in the order of the file and up to SAFETENSORS_PIECE at a time, hands them to `put`, and
 * keeps their checksums; and safetensors_head again: as many bytes, to be written over the first
 * ones. ERR_NOMEM, or the error of `next` or `put`. */
enum { SAFETENSORS_PIECE = 64 * 1024 };
int safetensors_stream(struct safetensors_writer *w, int (*next)(void *user, float *into, size_t n),
                       int (*put)(void *user, const void *data, size_t len), void *user);

/* ---- reading ---- */

struct safetensors_item {
    const char *name;
    struct shape shape;
    size_t count;      /* of floats; 0 when some dimension is */
    const float *data; /* never NULL, but in an open file */
    size_t offset;     /* in bytes, from the start of the file's data */
};

/* The contents of a file. Nothing points into the bytes it was read from, unless it is only viewed;
 * everything is valid until safetensors_release. */
struct safetensors {
    struct arena arena;
    size_t n;
    const struct safetensors_item *item; /* n, in the order of their data in the file */
    const struct safetensors_item **by_name;
    size_t meta_n;
    const struct safetensors_meta *meta; /* by key */
};

/* Do the bytes begin as such a file: with a length that leads no further than the file, then JSON?
 * No file of another format that is known here does, whatever the length looks like. */
bool safetensors_begins(const uint8_t *bytes, size_t len);

/* Read a file from untrusted bytes.
 *
 * file              its name, for messages alone
 * bytes, len        the file, borrowed until return; at any alignment
 * demand_checksums  refuse a file without the checksums described above, or with wrong ones; else
 *                   they are ignored
 * out               written only on success; released by safetensors_release
 *
 * Memory is bounded before it is taken: by the file's length for the data, and for the header by 16
 * MiB and 2^18 JSON values.
 *
 * ERR_INPUT        a violation of the format, with its tensor or offset; a
 *                  checksum missing or wrong
 * ERR_UNSUPPORTED  a tensor of another type than F32, or of more than 8 dimensions
 * ERR_NOMEM */
int safetensors_parse(const char *file, const uint8_t *bytes, size_t len, bool demand_checksums,
                      struct safetensors *out, struct err *err);

/* The same without a copy of the tensors: `bytes` are borrowed until safetensors_release. */
int safetensors_look(const char *file, const uint8_t *bytes, size_t len, bool demand_checksums,
                     struct safetensors *out, struct err *err);

/* The metadata of the file `path`: reads the header alone, and checks it and the file's length. The
 * result has no tensors. ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM */
int safetensors_read_meta(const char *path, struct safetensors *out, struct err *err);

/* A file that stays open, for callers that read it range by range, in bounded memory. */
struct safetensors_file {
    struct file_open file;
    struct safetensors st; /* without data */
    uint64_t data;         /* where that begins */
};

/* Every checksum is demanded, and every byte read once to check it. ERR_INPUT, ERR_UNSUPPORTED,
 * ERR_NOMEM */
int safetensors_open(const char *path, struct safetensors_file *out, struct err *err);
/* Floats [from, from + n) of a tensor of the file. ERR_INPUT: they are not there any more */
int safetensors_range(const struct safetensors_file *f, const struct safetensors_item *item,
                      size_t from, size_t n, float *into, struct err *err);
void safetensors_close(struct safetensors_file *f);

void safetensors_release(struct safetensors *st);

/* The tensor of that name, or NULL. */
const struct safetensors_item *safetensors_item(const struct safetensors *st, const char *name);

/* The tensor's floats, or NULL when there is no such tensor. `shape`, when not NULL, is written
 * only when there is. */
const float *safetensors_find(const struct safetensors *st, const char *name, struct shape *shape);

/* The text, or NULL when the metadata has no such key. */
const char *safetensors_meta_get(const struct safetensors *st, const char *key);

#endif
