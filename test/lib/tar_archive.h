/* TAR archives that a test writes, header by header, as POSIX.1-1988 (ustar) has them. */
#ifndef PL_LIB_TAR_ARCHIVE_H
#define PL_LIB_TAR_ARCHIVE_H

#include "folder.h"

enum { ARCHIVE_MAX = 1 << 16, ARCHIVE_BLOCK = 512 };

struct archive {
    uint8_t bytes[ARCHIVE_MAX];
    size_t n;
};

/* Make the checksum of a header right. */
static inline void archive_seal(uint8_t *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < ARCHIVE_BLOCK; i++)
        sum += header[i];
    snprintf((char *)header + 148, 7, "%06o", sum);
}

/* The header, sealed. */
static inline uint8_t *archive_header(struct archive *a, const char *name, char type, size_t size)
{
    uint8_t *header = a->bytes + a->n;
    assert_true(a->n + ARCHIVE_BLOCK <= ARCHIVE_MAX && strlen(name) <= 100);
    memset(header, 0, ARCHIVE_BLOCK);
    memcpy(header, name, strlen(name));
    snprintf((char *)header + 100, 8, "0000644");
    snprintf((char *)header + 124, 12, "%011o", (unsigned)size);
    header[156] = (uint8_t)type;
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    archive_seal(header);
    a->n += ARCHIVE_BLOCK;
    return header;
}

static inline uint8_t *archive_put(struct archive *a, const char *name, char type, const void *body,
                                   size_t n)
{
    uint8_t *header = archive_header(a, name, type, n);
    size_t whole = (n + ARCHIVE_BLOCK - 1) / ARCHIVE_BLOCK * ARCHIVE_BLOCK;
    assert_true(a->n + whole <= ARCHIVE_MAX);
    memset(a->bytes + a->n, 0, whole);
    if (n > 0)
        memcpy(a->bytes + a->n, body, n);
    a->n += whole;
    return header;
}

static inline uint8_t *archive_text(struct archive *a, const char *name, const char *text)
{
    return archive_put(a, name, '0', text, strlen(text));
}

/* Two blocks of zeros. */
static inline void archive_end(struct archive *a)
{
    memset(a->bytes + a->n, 0, 2 * ARCHIVE_BLOCK);
    a->n += 2 * ARCHIVE_BLOCK;
}

#endif
