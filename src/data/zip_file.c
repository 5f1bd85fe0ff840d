#include "data/zip_file.h"

#include "base/bytes.h"
#include "base/fault.h"
#include "base/minmax.h"
#include "data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL_MAGIC = 0x04034b50,
    ENTRY_MAGIC = 0x02014b50,
    END_MAGIC = 0x06054b50,
    END64_MAGIC = 0x06064b50,
    LOCATOR_MAGIC = 0x07064b50,
    LOCAL_BYTES = 30,
    ENTRY_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    COMMENT_MAX = 0xffff,
    DIRECTORY_MAX = 1 << 24,               /* 200,000 members and more */
    ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13, /* flags */
    STORED = 0,
    DEFLATED = 8,
    EXTRA_ZIP64 = 1,
    PIECE = 1 << 15,
    REPORT_BYTES = 1 << 20,
};

struct archive {
    const struct file_open *file;
    const char *path;
    uint64_t begin, end, entries; /* of the directory */
};

/* An entry of the directory. */
struct entry {
    const uint8_t *at, *name, *extra;
    size_t name_bytes, extra_bytes, all;
};

static uint16_t read_le16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static int refuse_archive(const struct archive *zip, const char *why, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s", zip->path, why);
}

/* `n` bytes, if the file has so many there. */
static int read_at(const struct archive *zip, uint64_t offset, void *out, size_t n, struct err *err)
{
    uint64_t len = zip->file->len;
    if (offset > len || n > len - offset)
        return refuse_archive(
            zip, "a damaged archive: a part of it lies behind its end; copy it again", err);
    int rc = file_part(zip->file, offset, out, n);
    return rc == OK ? OK : err_set(err, rc, "%s: cannot be read", zip->path);
}

/* ---- the end ---- */

static int take_end64(struct archive *zip, const uint8_t *locator, struct err *err)
{
    uint8_t end[END64_BYTES];
    uint64_t at = bytes_le64(locator + 8);
    int rc = read_at(zip, at, end, sizeof end, err);
    if (rc != OK)
        return rc;
    if (bytes_le32(end) != END64_MAGIC || bytes_le32(end + 16) != 0 || bytes_le32(end + 20) != 0 ||
        bytes_le64(end + 24) != bytes_le64(end + 32))
        return refuse_archive(zip, "a damaged archive: its ZIP64 end cannot be read; copy it again",
                              err);
    uint64_t bytes = bytes_le64(end + 40);
    zip->entries = bytes_le64(end + 32);
    zip->begin = bytes_le64(end + 48);
    zip->end = at;
    return zip->begin <= at && bytes == at - zip->begin
               ? OK
               : refuse_archive(zip, "a damaged archive: its directory is not where its end says",
                                err);
}

/* `at` is where the end begins. */
static int take_end(struct archive *zip, const uint8_t *end, uint64_t at, struct err *err)
{
    uint8_t locator[LOCATOR_BYTES] = {0};
    int rc = OK;
    if (at >= LOCATOR_BYTES)
        rc = read_at(zip, at - LOCATOR_BYTES, locator, sizeof locator, err);
    if (rc != OK || bytes_le32(locator) == LOCATOR_MAGIC)
        return rc == OK ? take_end64(zip, locator, err) : rc;
    if (bytes_le32(end + 4) != 0 || read_le16(end + 8) != read_le16(end + 10))
        return refuse_archive(zip, "an archive in several files; write it as one", err);
    uint64_t bytes = bytes_le32(end + 12);
    zip->entries = read_le16(end + 10);
    zip->begin = bytes_le32(end + 16);
    zip->end = at;
    return zip->begin <= at && bytes == at - zip->begin
               ? OK
               : refuse_archive(zip, "a damaged archive: its directory is not where its end says",
                                err);
}

/* The end is the last one whose comment fills the rest of the file. */
static int find_end(struct archive *zip, struct err *err)
{
    uint64_t len = zip->file->len;
    size_t n = len < END_BYTES + COMMENT_MAX ? (size_t)len : END_BYTES + COMMENT_MAX;
    uint8_t *tail = malloc(n + 1);
    if (!tail)
        return err_set(err, ERR_NOMEM, "%s: out of memory", zip->path);
    int rc = read_at(zip, len - n, tail, n, err);
    size_t at = n < END_BYTES ? 0 : n - END_BYTES;
    while (at > 0 &&
           (bytes_le32(tail + at) != END_MAGIC || read_le16(tail + at + 20) != n - END_BYTES - at))
        at--;
    if (rc == OK && (n < END_BYTES || bytes_le32(tail + at) != END_MAGIC))
        rc = refuse_archive(zip, "not a ZIP archive, or truncated; copy it again", err);
    if (rc == OK)
        rc = take_end(zip, tail + at, len - n + at, err);
    free(tail);
    return rc;
}

/* ---- the directory ---- */

static bool take_entry(const uint8_t *at, size_t left, struct entry *out)
{
    if (left < ENTRY_BYTES || bytes_le32(at) != ENTRY_MAGIC)
        return false;
    size_t name = read_le16(at + 28), extra = read_le16(at + 30), comment = read_le16(at + 32);
    *out = (struct entry){.at = at,
                          .name = at + ENTRY_BYTES,
                          .extra = at + ENTRY_BYTES + name,
                          .name_bytes = name,
                          .extra_bytes = extra,
                          .all = ENTRY_BYTES + name + extra + comment};
    return out->all <= left;
}

/* Sizes and the place that 32 bits are too few for are in an extra field, in this order. */
static bool take_sizes(const struct entry *entry, struct zip_member *out, uint64_t *local)
{
    uint64_t *const to[] = {&out->size, &out->packed, local};
    static const size_t from[] = {24, 20, 42};
    const uint8_t *extra = entry->extra;
    size_t left = entry->extra_bytes, wide = 0;
    while (left >= 4 && read_le16(extra) != EXTRA_ZIP64) {
        size_t field = min_size(4 + (size_t)read_le16(extra + 2), left);
        extra += field;
        left -= field;
    }
    if (left >= 4)
        wide = min_size(read_le16(extra + 2), left - 4);
    for (size_t i = 0; i < 3; i++) {
        *to[i] = bytes_le32(entry->at + from[i]);
        if (*to[i] != UINT32_MAX || left < 4)
            continue;
        if (wide < 8)
            return false;
        *to[i] = bytes_le64(extra + 4);
        extra += 8;
        wide -= 8;
    }
    return true;
}

/* The header in front of a body repeats what the directory says of it. */
static int check_local(const struct archive *zip, const struct entry *entry, uint64_t at,
                       struct zip_member *out, struct err *err)
{
    uint8_t local[LOCAL_BYTES + COMMENT_MAX];
    size_t n = LOCAL_BYTES + entry->name_bytes;
    int rc = read_at(zip, at, local, n, err);
    if (rc != OK)
        return rc;
    if (bytes_le32(local) != LOCAL_MAGIC || read_le16(local + 8) != read_le16(entry->at + 10) ||
        read_le16(local + 26) != entry->name_bytes ||
        memcmp(local + LOCAL_BYTES, entry->name, entry->name_bytes) != 0)
        return refuse_archive(
            zip, "a damaged archive: its directory names another member than there is", err);
    out->body = at + n + read_le16(local + 28);
    if (out->body > zip->begin || out->packed > zip->begin - out->body)
        return refuse_archive(zip, "a damaged archive: a member ends behind its directory", err);
    return OK;
}

static int take_member(const struct archive *zip, const struct entry *entry, struct zip_member *out,
                       struct err *err)
{
    uint64_t local;
    uint16_t method = read_le16(entry->at + 10);
    if (read_le16(entry->at + 8) & ENCRYPTED)
        return refuse_archive(zip, "it is encrypted; write the archive without a password", err);
    if (method != STORED && method != DEFLATED)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: it is compressed by method %u; stored and deflated members can be read",
                       zip->path, method);
    *out = (struct zip_member){.crc = bytes_le32(entry->at + 16), .deflated = method == DEFLATED};
    if (!take_sizes(entry, out, &local) || read_le16(entry->at + 34) != 0 ||
        (!out->deflated && out->packed != out->size))
        return refuse_archive(zip, "a damaged archive: the sizes in its directory are wrong", err);
    return check_local(zip, entry, local, out, err);
}

/* The names of members, as many as there is room for. */
static void add_name(char *names, size_t room, const struct entry *entry)
{
    char name[64], shown[64];
    size_t used = strlen(names);
    snprintf(name, sizeof name, "%.*s", (int)entry->name_bytes, (const char *)entry->name);
    snprintf(names + used, room - used, "%s%s", used ? ", " : "",
             source_quote(name, shown, sizeof shown));
}

static int search_directory(const struct archive *zip, const uint8_t *at, const char *name,
                            struct zip_member *out, struct err *err)
{
    struct entry entry, found = {0};
    char names[200] = "";
    size_t left = (size_t)(zip->end - zip->begin), n = strlen(name);
    for (uint64_t i = 0; i < zip->entries; i++) {
        if (!take_entry(at, left, &entry))
            return refuse_archive(
                zip, "a damaged archive: its directory cannot be read; copy it again", err);
        if (entry.name_bytes == n && memcmp(entry.name, name, n) == 0)
            found = entry;
        add_name(names, sizeof names, &entry);
        at += entry.all;
        left -= entry.all;
    }
    if (left > 0)
        return refuse_archive(
            zip, "a damaged archive: its directory has more members than its end says", err);
    if (found.at)
        return take_member(zip, &found, out, err);
    char shown[64];
    if (n == 0)
        return err_set(err, ERR_INPUT, "%s: name one of its members, with a colon before: %s",
                       zip->path, names);
    return err_set(err, ERR_INPUT, "%s: the archive has no member `%s`; it has %s", zip->path,
                   source_quote(name, shown, sizeof shown), names[0] ? names : "none");
}

int zip_find(const struct file_open *file, const char *path, const char *name,
             struct zip_member *out, struct err *err)
{
    struct archive zip = {.file = file, .path = path};
    int rc = find_end(&zip, err);
    if (rc != OK)
        return rc;
    size_t n = (size_t)(zip.end - zip.begin);
    if (n > DIRECTORY_MAX)
        return err_set(err, ERR_INPUT, "%s: a directory of %zu bytes; at most %d can be read", path,
                       n, DIRECTORY_MAX);
    uint8_t *directory = malloc(n + 1);
    if (!directory)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    rc = read_at(&zip, zip.begin, directory, n, err);
    if (rc == OK)
        rc = search_directory(&zip, directory, name, out, err);
    free(directory);
    return rc;
}

/* ---- a deflated body ---- */

struct inflation {
    struct archive zip;
    const struct zip_member *member;
    const struct open_watch *watch;
    uint8_t *out, more; /* `more` has a byte that should not be there */
    size_t n;
    uint64_t taken; /* packed bytes that were read */
    z_stream z;
    uint8_t piece[PIECE];
};

/* Bytes to unpack, where the last ones are used, and room for what they become. */
static int refill_stream(struct inflation *self, struct err *err)
{
    z_stream *z = &self->z;
    uint64_t left = self->member->packed - self->taken;
    size_t done = z->total_out;
    if (z->avail_out == 0) {
        z->next_out = done < self->n ? self->out + done : &self->more;
        z->avail_out = done < self->n ? (uInt)min_size(self->n - done, REPORT_BYTES) : 1;
    }
    if (z->avail_in > 0)
        return OK;
    z->next_in = self->piece;
    z->avail_in = left < PIECE ? (uInt)left : PIECE;
    int rc = read_at(&self->zip, self->member->body + self->taken, self->piece, z->avail_in, err);
    self->taken += z->avail_in;
    return rc;
}

/* Until there are n bytes or, if these are all, until the stream has ended. */
static int inflate_pieces(struct inflation *self, struct err *err)
{
    z_stream *z = &self->z;
    bool whole = self->n == self->member->size;
    int state = Z_OK, rc = OK;
    while (rc == OK && state == Z_OK && z->total_out < self->n + whole) {
        rc = refill_stream(self, err);
        if (rc == OK)
            state = inflate(z, Z_NO_FLUSH); /* Z_BUF_ERROR: no bytes are left */
        if (rc == OK && z->avail_out == 0 && z->total_out <= self->n)
            rc = open_watch_report(self->watch, "bytes", z->total_out, self->n, err);
    }
    if (rc != OK)
        return rc;
    bool ended = state == Z_STREAM_END && self->taken == self->member->packed && z->avail_in == 0;
    if (z->total_out != self->n || (whole && !ended))
        return refuse_archive(&self->zip,
                              "a damaged archive: it cannot be unpacked to its size; copy it "
                              "again",
                              err);
    if (whole && crc32_z(0, self->out, self->n) != self->member->crc)
        return refuse_archive(&self->zip, "a damaged archive: its CRC is wrong; copy it again",
                              err);
    return OK;
}

int zip_inflate(const struct file_open *file, const char *path, const struct zip_member *member,
                const struct open_watch *watch, uint8_t *out, size_t n, struct err *err)
{
    PL_ASSERT(member->deflated && n > 0 && n <= member->size);
    struct inflation self = {
        .zip = {.file = file, .path = path}, .member = member, .watch = watch, .out = out, .n = n};
    if (inflateInit2(&self.z, -MAX_WBITS) != Z_OK)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    int rc = inflate_pieces(&self, err);
    inflateEnd(&self.z);
    return rc;
}
