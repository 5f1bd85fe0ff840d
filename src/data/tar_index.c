#include "data/tar_index.h"

#include "base/hash.h"
#include "data/picture.h"
#include "data/raw.h"
#include "data/tar_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are written as they lie");

enum { VERSION = 1, HEADER_BYTES = 48, CHECKSUM_BYTES = 8 };

static const char magic[] = "PLTARIDX";

static void write_header(const struct file_open *archive, uint64_t labels, size_t count,
                         uint8_t out[HEADER_BYTES])
{
    memcpy(out, magic, 8);
    bytes_put_le64(out + 8, VERSION);
    bytes_put_le64(out + 16, archive->len);
    bytes_put_le64(out + 24, archive->modified);
    bytes_put_le64(out + 32, labels);
    bytes_put_le64(out + 40, count);
}

void tar_index_write(const struct file_open *archive, uint64_t labels,
                     const struct tar_record *record, size_t count, struct buf *out)
{
    uint8_t header[HEADER_BYTES];
    size_t begin = out->len;
    write_header(archive, labels, count, header);
    buf_put(out, header, sizeof header);
    buf_put(out, record, count * sizeof *record);
    if (!out->failed)
        buf_put_u64(out, hash_bytes(out->data + begin, out->len - begin));
}

/* Its picture lies within the archive, behind a header. */
static bool is_sound(const struct tar_record *record, uint64_t len)
{
    return record->body >= TAR_BLOCK && record->body % TAR_BLOCK == 0 && record->body <= len &&
           record->bytes <= len - record->body && record->bytes <= PICTURE_BYTES_MAX &&
           record->label < LABEL_MAX && record->H > 0 && record->H <= SIDE_MAX && record->W > 0 &&
           record->W <= SIDE_MAX;
}

static int check_index(const uint8_t *bytes, size_t n, const struct file_open *archive,
                       uint64_t labels, const char *path, struct err *err)
{
    const size_t count = (n - HEADER_BYTES - CHECKSUM_BYTES) / sizeof(struct tar_record);
    uint8_t header[HEADER_BYTES];
    if (bytes_le64(bytes + n - CHECKSUM_BYTES) != hash_bytes(bytes, n - CHECKSUM_BYTES))
        return err_set(err, ERR_INPUT, "%s: damaged: its checksum is wrong", path);
    write_header(archive, labels, count, header);
    if (memcmp(header, bytes, HEADER_BYTES) != 0)
        return err_set(err, ERR_INPUT,
                       "%s: made by another version, for other labels, or before the archive was "
                       "changed",
                       path);
    for (size_t i = 0; i < count; i++) {
        struct tar_record record;
        memcpy(&record, bytes + HEADER_BYTES + i * sizeof record, sizeof record);
        if (!is_sound(&record, archive->len))
            return err_set(err, ERR_INPUT, "%s: record %zu lies outside of the archive", path, i);
    }
    return OK;
}

static int read_records(const struct file_open *file, const char *path,
                        const struct file_open *archive, uint64_t labels,
                        struct tar_record **record, size_t *count, struct err *err)
{
    const size_t ends = HEADER_BYTES + CHECKSUM_BYTES, each = sizeof **record;
    if (file->len < ends + each || (file->len - ends) % each != 0 ||
        (file->len - ends) / each > archive->len / TAR_BLOCK)
        return err_set(err, ERR_INPUT, "%s: truncated, or no index of the archive", path);
    size_t n = (size_t)file->len;
    uint8_t *bytes = malloc(n);
    if (!bytes)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    int rc = file_part(file, 0, bytes, n) == OK
                 ? OK
                 : err_set(err, ERR_INPUT, "%s: cannot be read", path);
    if (rc == OK)
        rc = check_index(bytes, n, archive, labels, path, err);
    if (rc != OK) {
        free(bytes);
        return rc;
    }
    memmove(bytes, bytes + HEADER_BYTES, n - ends);
    *record = (struct tar_record *)(void *)bytes;
    *count = (n - ends) / each;
    return OK;
}

int tar_index_read(const char *root, const char *path, const struct file_open *archive,
                   uint64_t labels, struct tar_record **record, size_t *count, struct err *err)
{
    struct file_open file;
    size_t n = strlen(path) + sizeof TAR_INDEX_ENDING;
    char *name = malloc(n);
    *record = NULL;
    if (!name)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    snprintf(name, n, "%s" TAR_INDEX_ENDING, path);
    int rc = OK;
    if (file_is_regular(name) && file_check_under(root, name, NULL) == OK) {
        rc = file_open(name, &file, err);
        if (rc == OK) {
            rc = read_records(&file, name, archive, labels, record, count, err);
            file_close(&file);
        }
    }
    free(name);
    return rc;
}
