#include "base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_release(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){0};
}

static bool buf_reserve(struct buf *buf, size_t more)
{
    if (buf->failed)
        return false;
    if (buf->cap - buf->len >= more)
        return true;
    size_t want = buf->len + more;
    size_t cap = buf->cap ? buf->cap : 256;
    while (cap < want && cap <= SIZE_MAX / 2)
        cap *= 2;
    uint8_t *data = want >= more && cap >= want ? realloc(buf->data, cap) : NULL;
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->cap = cap;
    return true;
}

/* Static, so that it is inlined for numbers, whose lengths are constants. */
static inline void put_bytes(struct buf *buf, const void *data, size_t len)
{
    if (len == 0 || ((buf->failed || buf->cap - buf->len < len) && !buf_reserve(buf, len)))
        return;
    memcpy(buf->data + buf->len, data, len);
    buf->len += len;
}

void buf_put(struct buf *buf, const void *data, size_t len)
{
    put_bytes(buf, data, len);
}

void buf_put_u8(struct buf *buf, uint8_t v)
{
    put_bytes(buf, &v, 1);
}

void buf_put_u32(struct buf *buf, uint32_t v)
{
    uint8_t b[4];
    bytes_put_le32(b, v);
    put_bytes(buf, b, sizeof b);
}

void buf_put_u64(struct buf *buf, uint64_t v)
{
    uint8_t b[8];
    bytes_put_le64(b, v);
    put_bytes(buf, b, sizeof b);
}

void buf_put_f64(struct buf *buf, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    buf_put_u64(buf, bits);
}

void buf_put_text(struct buf *buf, const char *text)
{
    size_t n = strlen(text);
    buf_put_u32(buf, (uint32_t)n);
    buf_put(buf, text, n);
}

/* Into the room there is; once more if that was too little. */
void buf_printf(struct buf *buf, const char *format, ...)
{
    if (!buf_reserve(buf, 1))
        return;
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    size_t room = buf->cap - buf->len;
    int n = vsnprintf((char *)buf->data + buf->len, room, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n >= room) {
        if (buf_reserve(buf, (size_t)n + 1))
            vsnprintf((char *)buf->data + buf->len, (size_t)n + 1, format, again);
        else
            n = 0;
    }
    buf->len += n > 0 ? (size_t)n : 0;
    va_end(again);
}

const void *byte_reader_take(struct byte_reader *cut, size_t n)
{
    if (cut->failed || cut->left < n) {
        cut->failed = true;
        return NULL;
    }
    const void *at = cut->at;
    cut->at += n;
    cut->left -= n;
    return at;
}

uint8_t read_u8(struct byte_reader *cut)
{
    const uint8_t *b = byte_reader_take(cut, 1);
    return b ? *b : 0;
}

uint32_t read_u32(struct byte_reader *cut)
{
    const void *b = byte_reader_take(cut, 4);
    return b ? bytes_le32(b) : 0;
}

uint64_t read_u64(struct byte_reader *cut)
{
    const void *b = byte_reader_take(cut, 8);
    return b ? bytes_le64(b) : 0;
}

double read_f64(struct byte_reader *cut)
{
    uint64_t bits = read_u64(cut);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

void read_text(struct byte_reader *cut, char *out, size_t size)
{
    uint32_t n = read_u32(cut);
    if (n >= size)
        cut->failed = true;
    const void *b = byte_reader_take(cut, n);
    if (b)
        memcpy(out, b, n);
    out[b ? n : 0] = '\0';
}

bool byte_reader_done(const struct byte_reader *cut)
{
    return !cut->failed && cut->left == 0;
}
