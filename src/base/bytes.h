/* Bytes in and out. `bytes_*` load and store fixed-width numbers at any alignment; `struct buf` is
 * a growing output; `struct byte_reader` is a bounded input that fails softly: after the first
 * read past
 * the end every further read gives zero and `failed` stays set, so a decoder checks once. */
#ifndef PL_BASE_BYTES_H
#define PL_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint32_t bytes_be32(const void *at)
{
    const uint8_t *b = at;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static inline uint32_t bytes_le32(const void *at)
{
    const uint8_t *b = at;
    return (uint32_t)b[3] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[1] << 8 | b[0];
}

static inline uint64_t bytes_le64(const void *at)
{
    const uint8_t *b = at;
    return (uint64_t)bytes_le32(b + 4) << 32 | bytes_le32(b);
}

static inline void bytes_put_le32(void *at, uint32_t v)
{
    uint8_t *b = at;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
    b[2] = (uint8_t)(v >> 16);
    b[3] = (uint8_t)(v >> 24);
}

static inline void bytes_put_le64(void *at, uint64_t v)
{
    bytes_put_le32(at, (uint32_t)v);
    bytes_put_le32((uint8_t *)at + 4, (uint32_t)(v >> 32));
}

struct buf {
    uint8_t *data; /* owned; freed by buf_release */
    size_t len, cap;
    bool failed; /* memory ran out; later puts are ignored */
};

void buf_release(struct buf *buf);
void buf_put(struct buf *buf, const void *data, size_t len);
void buf_put_u8(struct buf *buf, uint8_t v);
void buf_put_u32(struct buf *buf, uint32_t v);
void buf_put_u64(struct buf *buf, uint64_t v);
void buf_put_f64(struct buf *buf, double v);
/* A u32 length, then the characters without the final zero. */
void buf_put_text(struct buf *buf, const char *text);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct byte_reader {
    const uint8_t *at;
    size_t left;
    bool failed;
};

/* `n` bytes within the input, or NULL. */
const void *byte_reader_take(struct byte_reader *cut, size_t n);
uint8_t read_u8(struct byte_reader *cut);
uint32_t read_u32(struct byte_reader *cut);
uint64_t read_u64(struct byte_reader *cut);
double read_f64(struct byte_reader *cut);
/* A text of at most size-1 characters into `out`, always terminated. */
void read_text(struct byte_reader *cut, char *out, size_t size);
/* The input was read to its end and never past it. */
bool byte_reader_done(const struct byte_reader *cut);

#endif
