/* The format of shards, the files of records that `paceline data pack` writes. A shard is written
 * from its begin to its end, and read at random. Numbers are little-endian.
 *
 *   header    SHARD_HEADER bytes: "PLSHARD\0", the version (u32), 0 (u32)
 *   blocks    records, one after another; a block ends with the record by which it has block_bytes
 *   index     names of classes, each ended by a zero; zeros up to a multiple of 8
 *             fields, SHARD_FIELD bytes each: name, is_integer (u32), dimensions (u32), 8 of them
 *             (u32)
 *             the checksum of each block (u64)
 *             of pictures: bytes (u32), height and width (u16) of each
 *             labels, label_bytes each
 *   footer    SHARD_FOOTER bytes: struct shard_footer, and their checksum (u64)
 *
 * A record is C·H·W bytes, as many floats (f32, or bf16 where that holds all), or a picture as its
 * file was, JPEG or PNG.
 * Checksums are XXH3 with 64 bits. */
#ifndef PL_DATA_SHARD_FORMAT_H
#define PL_DATA_SHARD_FORMAT_H

#include "base/err.h"
#include "tensor/record_fields.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SHARD_HEADER = 16,
    SHARD_FOOTER = 96,
    SHARD_FIELD = FIELD_NAME_MAX + 4 * (2 + SHAPE_DIMS_MAX),
    SHARD_SIZES = 8,
    SHARD_BLOCK_BYTES = 16384,
    SHARD_BLOCK_MAX = 1 << 24,
    SHARD_NAMES_MAX = 1 << 24
};

enum shard_form { SHARD_BYTES = 1, SHARD_FLOATS, SHARD_PICTURES, SHARD_BF16 };

/* In this order in the file. */
struct shard_footer {
    uint32_t form, is_integer, label_bytes; /* 0 (no labels), 1, 2 or 4 */
    uint32_t block_bytes;
    uint32_t C, H, W; /* of a record; of pictures 0 */
    uint32_t classes;
    uint32_t fields;      /* > 0: the record's values are these, and H = W = 1 */
    uint32_t names_bytes; /* of all names, with their zeros */
    uint64_t count;
    uint64_t blocks;
    uint64_t data_bytes, index_bytes; /* of all blocks, of the index */
    uint64_t index_hash;
    uint64_t data_hash; /* the checksums of all blocks, folded by hash_mix */
};

/* Where the parts of the index begin, from its begin on. */
struct shard_index {
    uint64_t fields, hashes, sizes, labels, end;
};

void shard_header_write(uint8_t out[SHARD_HEADER]);

/* ERR_INPUT: no shard; ERR_UNSUPPORTED: of another version */
int shard_header_check(const char *path, const uint8_t in[SHARD_HEADER], struct err *err);

void shard_footer_write(const struct shard_footer *footer, uint8_t out[SHARD_FOOTER]);

/* Every number is within its bounds, and the parts fill the file of `len` bytes. ERR_INPUT */
int shard_footer_read(const char *path, const uint8_t in[SHARD_FOOTER], uint64_t len,
                      struct shard_footer *out, struct err *err);

struct shard_index shard_index_of(const struct shard_footer *footer);

/* Bytes of a record; of pictures 0: they differ. */
size_t shard_record_bytes(const struct shard_footer *footer);

/* Records of each block but the last, where all have so many bytes. */
size_t shard_per_block(const struct shard_footer *footer);

/* The bytes of labels below `classes`; 0: there are none. */
uint32_t shard_label_bytes(uint32_t classes);

void shard_field_write(const struct field *field, uint8_t out[SHARD_FIELD]);

/* The next one of `fields`, whose values begin at *values. ERR_INPUT */
int shard_field_read(const char *path, const uint8_t in[SHARD_FIELD], struct fields *fields,
                     size_t *values, struct err *err);

#endif
