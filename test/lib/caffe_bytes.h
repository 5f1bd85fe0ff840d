/* Caffe's binary files, put together byte by byte, without any code that is tested. */
#ifndef PL_LIB_CAFFE_BYTES_H
#define PL_LIB_CAFFE_BYTES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { PIECE_MAX = 4096 };

/* A message, or a part of one. */
struct piece {
    uint8_t at[PIECE_MAX];
    size_t n;
};

static inline void piece_byte(struct piece *p, unsigned byte)
{
    assert_true(p->n < PIECE_MAX);
    p->at[p->n++] = (uint8_t)byte;
}

static inline void piece_bytes(struct piece *p, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        piece_byte(p, ((const uint8_t *)bytes)[i]);
}

static inline void piece_varint(struct piece *p, uint64_t v)
{
    while (v > 127) {
        piece_byte(p, (unsigned)(v % 128 + 128));
        v /= 128;
    }
    piece_byte(p, (unsigned)v);
}

static inline void piece_number(struct piece *p, unsigned field, uint64_t v)
{
    piece_varint(p, field * 8);
    piece_varint(p, v);
}

static inline void piece_block(struct piece *p, unsigned field, const void *bytes, size_t n)
{
    piece_varint(p, field * 8 + 2);
    piece_varint(p, n);
    piece_bytes(p, bytes, n);
}

static inline void piece_text(struct piece *p, unsigned field, const char *text)
{
    piece_block(p, field, text, strlen(text));
}

static inline void piece_in(struct piece *p, unsigned field, const struct piece *inner)
{
    piece_block(p, field, inner->at, inner->n);
}

/* A BlobProto with `shape`, packed. */
static inline struct piece blob_new(const uint64_t *dim, size_t dims, const float *data, size_t n)
{
    struct piece blob = {.n = 0}, shape = {.n = 0}, list = {.n = 0};
    for (size_t i = 0; i < dims; i++)
        piece_varint(&list, dim[i]);
    piece_in(&shape, 1, &list);
    piece_block(&blob, 5, data, n * sizeof *data);
    piece_in(&blob, 7, &shape);
    return blob;
}

/* One of old: num, channels, height, width. */
static inline struct piece blob_old(const uint64_t dim[4], const float *data, size_t n)
{
    struct piece blob = {.n = 0};
    for (unsigned i = 0; i < 4; i++)
        piece_number(&blob, i + 1, dim[i]);
    piece_block(&blob, 5, data, n * sizeof *data);
    return blob;
}

/* A LayerParameter up to its blobs. */
static inline struct piece layer_new(const char *name, const char *type)
{
    struct piece layer = {.n = 0};
    piece_text(&layer, 1, name);
    piece_text(&layer, 2, type);
    return layer;
}

/* A V1LayerParameter up to its blobs; 4 is CONVOLUTION, 14 INNER_PRODUCT. */
static inline struct piece layer_v1(const char *name, unsigned type)
{
    struct piece layer = {.n = 0};
    piece_text(&layer, 4, name);
    piece_number(&layer, 5, type);
    return layer;
}

#endif
