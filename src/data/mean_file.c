#include "data/mean_file.h"

#include "base/bytes.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/pb.h"
#include "data/raw.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum blob_field { NUM = 1, CHANNELS, HEIGHT, WIDTH, DATA, DIFF, SHAPE, DOUBLE_DATA };

static const size_t FILE_BYTES_MAX = (size_t)1 << 26;

/* The fields of the message. */
struct blob {
    uint64_t old[WIDTH + 1]; /* NUM .. WIDTH, the shape before `shape` */
    bool has_shape;
    uint64_t dim[4];
    size_t dims;
    float *value; /* room for as many as the file can hold */
    size_t values;
};

/* BlobShape: `dim` = 1, packed or not. */
static int take_dim(struct blob *blob, uint64_t dim)
{
    if (blob->dims == 4)
        return ERR_INPUT;
    blob->dim[blob->dims++] = dim;
    return OK;
}

static int take_shape(struct blob *blob, const uint8_t *bytes, size_t len)
{
    struct pb pb;
    struct pb_field f;
    int rc;
    blob->has_shape = true;
    pb_memory(&pb, bytes, len);
    while ((rc = pb_next(&pb, &f)) == OK) {
        if (f.number != 1)
            continue;
        if (f.type == PB_VARINT) {
            rc = take_dim(blob, f.value);
        } else if (f.type == PB_BYTES) {
            struct pb packed;
            uint64_t dim;
            pb_memory(&packed, bytes + f.at, (size_t)f.value);
            while (rc == OK && packed.at < packed.end) {
                rc = pb_varint(&packed, &dim);
                if (rc == OK)
                    rc = take_dim(blob, dim);
            }
        } else {
            rc = ERR_INPUT;
        }
        if (rc != OK)
            return rc;
    }
    return rc == ERR_END ? OK : rc;
}

static void take_float(struct blob *blob, uint32_t bits)
{
    memcpy(&blob->value[blob->values++], &bits, sizeof bits);
}

static void take_double(struct blob *blob, uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    blob->value[blob->values++] = (float)value;
}

static int take_field(struct blob *blob, const struct pb_field *f, const uint8_t *bytes)
{
    if (f->number >= NUM && f->number <= WIDTH && f->type == PB_VARINT) {
        blob->old[f->number] = f->value;
    } else if (f->number == DATA && f->type == PB_FIXED32) {
        take_float(blob, (uint32_t)f->value);
    } else if (f->number == DATA && f->type == PB_BYTES && f->value % 4 == 0) {
        for (uint64_t k = 0; k < f->value; k += 4)
            take_float(blob, bytes_le32(bytes + f->at + k));
    } else if (f->number == DOUBLE_DATA && f->type == PB_FIXED64) {
        take_double(blob, f->value);
    } else if (f->number == DOUBLE_DATA && f->type == PB_BYTES && f->value % 8 == 0) {
        for (uint64_t k = 0; k < f->value; k += 8)
            take_double(blob, bytes_le64(bytes + f->at + k));
    } else if (f->number == SHAPE && f->type == PB_BYTES) {
        return take_shape(blob, bytes + f->at, (size_t)f->value);
    } else if (f->number == 0 || (f->number <= DOUBLE_DATA && f->number != DIFF)) {
        return ERR_INPUT;
    }
    return OK;
}

static int read_blob(const char *path, const struct file_bytes *file, struct blob *blob,
                     struct err *err)
{
    struct pb pb;
    struct pb_field f;
    int rc;
    pb_memory(&pb, file->data, file->len);
    while ((rc = pb_next(&pb, &f)) == OK)
        if ((rc = take_field(blob, &f, file->data)) != OK)
            break;
    if (rc != ERR_END)
        return err_set(err, ERR_INPUT, "%s: no BlobProto: wrong at byte %" PRIu64, path, pb.at);
    return OK;
}

/* (C, H, W), and as many values. */
static int check_blob(const char *path, const struct blob *blob, struct shape *out, struct err *err)
{
    const uint64_t *dim = blob->has_shape ? blob->dim : &blob->old[NUM];
    size_t dims = blob->has_shape ? blob->dims : 4;
    if (dims == 4 && dim[0] == 1) {
        dim++;
        dims--;
    }
    if (dims != 3)
        return err_set(err, ERR_INPUT, "%s: expected the shape of one mean image", path);
    uint64_t C = dim[0], H = dim[1], W = dim[2];
    if (C == 0 || H == 0 || W == 0 || C > SIDE_MAX || H > SIDE_MAX || W > SIDE_MAX)
        return err_set(err, ERR_INPUT,
                       "%s: a mean of %" PRIu64 " x %" PRIu64 " x %" PRIu64 ", expected 1 to %d "
                       "each",
                       path, C, H, W, SIDE_MAX);
    if (C * H * W != blob->values)
        return err_set(err, ERR_INPUT,
                       "%s: a mean of %" PRIu64 " x %" PRIu64 " x %" PRIu64 " has %zu values", path,
                       C, H, W, blob->values);
    for (size_t k = 0; k < blob->values; k++)
        if (!isfinite(blob->value[k]))
            return err_set(err, ERR_INPUT, "%s: value %zu is not a finite number", path, k);
    *out = (struct shape){.n = 3, .dim = {(size_t)C, (size_t)H, (size_t)W}};
    return OK;
}

int mean_file_read(const char *path, struct mean_file *out, struct err *err)
{
    struct file_bytes file;
    struct mean_file made = {0};
    int rc = file_read(path, FILE_BYTES_MAX, &file, err);
    if (rc != OK)
        return rc;
    struct blob blob = {.value = malloc(file.len / 4 * sizeof(float) + 1)};
    rc = blob.value ? read_blob(path, &file, &blob, err)
                    : err_set(err, ERR_NOMEM, "%s: out of memory", path);
    if (rc == OK)
        rc = check_blob(path, &blob, &made.shape, err);
    made.hash = hash_bytes(file.data, file.len);
    file_release(&file);
    if (rc != OK) {
        free(blob.value);
        return rc;
    }
    made.mean = blob.value;
    *out = made;
    return OK;
}
