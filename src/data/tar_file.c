#include "data/tar_file.h"

#include "base/fault.h"
#include "base/minmax.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Fields of a header: where they begin, and their bytes. */
enum {
    NAME_BYTES = 100,
    SIZE_AT = 124,
    SIZE_BYTES = 12,
    SUM_AT = 148,
    SUM_BYTES = 8,
    TYPE_AT = 156,
    MAGIC_AT = 257,
    PREFIX_AT = 345,
    PREFIX_BYTES = 155
};

/* From the members in front of a header. */
struct extended {
    bool named, sized;
    uint64_t size;
};

static int refuse_at(const struct tar *tar, uint64_t offset, const char *why, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: byte %" PRIu64 ": %s", tar->path, offset, why);
}

const uint8_t *tar_bytes(struct tar *tar, uint64_t offset, size_t n, struct err *err)
{
    uint64_t len = tar->file->len;
    PL_ASSERT(n <= TAR_WINDOW && offset <= len && n <= len - offset);
    if (offset < tar->begin || offset + n > tar->begin + tar->filled) {
        size_t most = len - offset < TAR_WINDOW ? (size_t)(len - offset) : TAR_WINDOW;
        tar->filled = 0;
        if (remote_part(tar->file, tar->path, offset, tar->window, most, ERR_INPUT, err) != OK)
            return NULL;
        tar->begin = offset;
        tar->filled = most;
    }
    return tar->window + (offset - tar->begin);
}

/* ---- a header ---- */

static bool parse_octal(const uint8_t *field, size_t n, uint64_t *out)
{
    size_t i = 0;
    uint64_t value = 0;
    while (i < n && field[i] == ' ')
        i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (field[i] - '0');
    *out = value;
    return i == n || field[i] == ' ' || field[i] == '\0';
}

/* Base 256 where the first bit is set; negative numbers, whose second bit is set, are refused. */
static bool parse_number(const uint8_t *field, size_t n, uint64_t *out)
{
    if (!(field[0] & 0x80))
        return parse_octal(field, n, out);
    uint64_t value = field[0] & 0x7f;
    for (size_t i = 1; i < n && value >> 56 == 0; i++)
        value = value << 8 | field[i];
    *out = value;
    return value >> 56 == 0;
}

static bool is_zero(const uint8_t header[TAR_BLOCK])
{
    for (size_t i = 0; i < TAR_BLOCK; i++)
        if (header[i] != 0)
            return false;
    return true;
}

/* The sum counts its own field as spaces. */
static bool is_header(const uint8_t header[TAR_BLOCK])
{
    uint64_t sum = SUM_BYTES * ' ', stored;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= SUM_AT && i < SUM_AT + SUM_BYTES ? 0 : header[i];
    return parse_octal(header + SUM_AT, SUM_BYTES, &stored) && stored == sum;
}

void tar_header_name(const uint8_t header[TAR_BLOCK], char out[TAR_HEADER_NAME])
{
    const char *name = (const char *)header, *prefix = name + PREFIX_AT;
    bool divided = memcmp(header + MAGIC_AT, "ustar", 6) == 0 && prefix[0];
    snprintf(out, TAR_HEADER_NAME, "%.*s%s%.*s", divided ? PREFIX_BYTES : 0, prefix,
             divided ? "/" : "", NAME_BYTES, name);
}

static bool is_within(const struct tar *tar, uint64_t offset, uint64_t n)
{
    return offset <= tar->file->len && n <= tar->file->len - offset;
}

static int refuse_header(struct tar *tar, const uint8_t *header, struct err *err)
{
    tar->damaged = true;
    if (tar->at > 0)
        return refuse_at(tar, tar->at,
                         "a damaged header: its checksum is wrong; copy the archive again", err);
    bool gzip = header[0] == 0x1f && header[1] == 0x8b;
    return err_set(err, ERR_INPUT, "%s: not a TAR archive%s", tar->path,
                   gzip ? ", but gzip; unpack it with gunzip" : "");
}

/* The header at tar->at; *out is NULL where the archive ends. */
static int take_header(struct tar *tar, const uint8_t **out, struct err *err)
{
    if (!is_within(tar, tar->at, TAR_BLOCK))
        return err_set(err, ERR_INPUT,
                       "%s: truncated: %" PRIu64 " bytes, and no block of zeros ends it; copy it "
                       "again",
                       tar->path, tar->file->len);
    const uint8_t *header = tar_bytes(tar, tar->at, TAR_BLOCK, err);
    if (!header)
        return ERR_INPUT;
    bool end = is_zero(header);
    if (!end && !is_header(header))
        return refuse_header(tar, header, err);
    *out = end ? NULL : header;
    return OK;
}

/* ---- members in front of others ---- */

static int set_name(struct tar *tar, uint64_t offset, const uint8_t *name, size_t n,
                    struct err *err)
{
    if (n == 0 || n >= TAR_NAME_MAX || memchr(name, '\0', n))
        return refuse_at(tar, offset, "a name that is empty, too long, or has a zero byte", err);
    memcpy(tar->name, name, n);
    tar->name[n] = '\0';
    return OK;
}

static bool parse_decimal(const uint8_t *text, size_t n, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (text[i] - '0');
    }
    *out = value;
    return n > 0 && n <= 18;
}

static bool has_key(const uint8_t *line, size_t n, const char *key)
{
    return n >= strlen(key) && memcmp(line, key, strlen(key)) == 0;
}

/* `key=value` of a pax header. */
static int take_line(struct tar *tar, uint64_t offset, const uint8_t *line, size_t n,
                     struct extended *extended, struct err *err)
{
    int rc = OK;
    if (has_key(line, n, "path=")) {
        rc = set_name(tar, offset, line + 5, n - 5, err);
        extended->named = true;
    } else if (has_key(line, n, "size=")) {
        extended->sized = true;
        if (!parse_decimal(line + 5, n - 5, &extended->size))
            rc = refuse_at(tar, offset, "a pax header with a size that cannot be read", err);
    } else if (has_key(line, n, "GNU.sparse.")) {
        rc = refuse_at(tar, offset, "a sparse file; make the archive without --sparse", err);
    }
    return rc;
}

/* Lines "LENGTH key=value\n", whose length counts all of it. */
static int take_pax(struct tar *tar, uint64_t offset, const uint8_t *body, size_t n,
                    struct extended *extended, struct err *err)
{
    int rc = OK;
    while (rc == OK && n > 0) {
        uint64_t length;
        const uint8_t *space = memchr(body, ' ', min_size(n, 8));
        size_t digits = space ? (size_t)(space - body) : 0;
        if (!parse_decimal(body, digits, &length) || length > n || length < digits + 2 ||
            body[length - 1] != '\n')
            return refuse_at(tar, offset, "a pax header whose lines have a wrong length", err);
        rc = take_line(tar, offset, body + digits + 1, (size_t)length - digits - 2, extended, err);
        body += length;
        n -= (size_t)length;
    }
    return rc;
}

/* The body of a member of type L or x. */
static int take_extended(struct tar *tar, char type, uint64_t offset, uint64_t size,
                         struct extended *extended, struct err *err)
{
    if (size > TAR_WINDOW)
        return refuse_at(tar, offset, "an extended header is longer than 16,384 bytes", err);
    const uint8_t *body = tar_bytes(tar, offset, (size_t)size, err);
    if (!body)
        return ERR_INPUT;
    if (type == 'x')
        return take_pax(tar, offset, body, (size_t)size, extended, err);
    if (extended->named) /* pax's name counts */
        return OK;
    extended->named = true;
    return set_name(tar, offset, body, strnlen((const char *)body, (size_t)size), err);
}

/* ---- members ---- */

static bool is_regular(char type)
{
    return type == '0' || type == '\0' || type == '7';
}

/* Links, devices and folders, whatever size their header has. */
static bool has_no_body(char type)
{
    return type >= '1' && type <= '6';
}

static int take_size(const struct tar *tar, const uint8_t *header, const struct extended *extended,
                     uint64_t *size, struct err *err)
{
    char type = (char)header[TYPE_AT];
    if (!parse_number(header + SIZE_AT, SIZE_BYTES, size))
        return refuse_at(tar, tar->at, "a size that cannot be read", err);
    if (is_regular(type) && extended->sized)
        *size = extended->size;
    if (has_no_body(type))
        *size = 0;
    if (!is_within(tar, tar->at + TAR_BLOCK, *size))
        return err_set(err, ERR_INPUT,
                       "%s: truncated: the %" PRIu64 " bytes of the member at byte %" PRIu64
                       " end behind its end; copy it again",
                       tar->path, *size, tar->at);
    return OK;
}

int tar_next(struct tar *tar, struct tar_member *out, struct err *err)
{
    struct extended extended = {0};
    tar->damaged = false;
    for (;;) {
        const uint8_t *header = NULL;
        uint64_t size = 0;
        int rc = take_header(tar, &header, err);
        if (rc == OK && !header)
            *out = (struct tar_member){0};
        if (rc != OK || !header)
            return rc;
        char type = (char)header[TYPE_AT];
        rc = take_size(tar, header, &extended, &size, err);
        if (rc == OK && type == 'S')
            rc = refuse_at(tar, tar->at, "a sparse file; make the archive without --sparse", err);
        if (rc != OK)
            return rc;
        uint64_t body = tar->at + TAR_BLOCK;
        tar->at = body + (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
        if (is_regular(type)) {
            if (!extended.named)
                tar_header_name(header, tar->name);
            *out = (struct tar_member){tar->name, body, size};
            return OK;
        }
        if (type == 'L' || type == 'x')
            rc = take_extended(tar, type, body, size, &extended, err);
        else if (type != 'K' && type != 'g')
            extended = (struct extended){0};
        if (rc != OK)
            return rc;
    }
}

bool tar_resume(struct tar *tar)
{
    if (!tar->damaged)
        return false;
    for (tar->at += TAR_BLOCK; is_within(tar, tar->at, TAR_BLOCK); tar->at += TAR_BLOCK) {
        const uint8_t *header = tar_bytes(tar, tar->at, TAR_BLOCK, NULL);
        if (!header || is_header(header))
            return header != NULL;
    }
    return false;
}
