/* The wire formats of floats: unchanged, rounded to bfloat16, as bytes that share a scale, or the
 * largest few of them.
 *
 * Decoding and encoding again gives the same bytes, so a rank that forwards decoded values forwards
 * the same bits, however often. The encoded bytes depend on nothing but the floats: not on the
 * instruction set, the library, or the order of bytes in memory. On the wire all numbers are
 * little-endian:
 *
 *   f32    | x0 (4) | x1 (4) | ...                  the bits of each float
 *   bf16   | x0 (2) | x1 (2) | ... | 0 (0 or 2) |   the upper half of each float, rounded
 *   int8   | block | block | ... |                  of CODEC_BLOCK floats, the last one of the rest
 *   block  | scale s (4) | q0 (1) | q1 (1) | ... | 0 (0 to 3) |       x_i = q_i·s
 *   topkN  | block | block | ... |                  of CODEC_TOPK_BLOCK floats, likewise
 *   block  | c (4) | index (2) · k | value (2) · k |  k = ⌈length/N⌉; 0 from entry c ≤ k on
 *
 * bf16 rounds to nearest, ties to even: at most half a step, which is 2^-8 of the value. Infinities
 * stay, NaNs stay NaNs of their sign and become quiet; what is above bfloat16's largest number
 * becomes infinite.
 *
 * int8: s is a float and the smallest power of two, from 2^-149 (so for zeros), with max|x| ≤ 127·s
 * in the block; q is x/s rounded to nearest, ties to even, in [-127, 127]. The error is at most
 * s/2. A power of two loses nothing: the largest |q| of a block is 64 or more unless s = 2^-149, so
 * the decoded values choose the same s again. Above 127·2^121 there is no such s that decodes to a
 * float: then s = 2^121 and q stops at ±127, which is off by less than s. Zeros come out as +0.
 * When a value of the block is infinite or NaN, s is the NaN 0x7fc00000 and all q are 0: the whole
 * block decodes to NaNs, and who checks for finite values sees it.
 *
 * topk16, topk64: of each block the k largest magnitudes, the first ones of equals, in ascending
 * order of their indices; values are bfloat16 as above, and those that it makes 0 are left out. All
 * other values decode to +0: use feedback. NaNs are larger than infinities. Sums should not be
 * coded at each hop, since each codes k values again.
 *
 * Codes of ranges that begin at multiples of the block are the parts of the code of the whole.
 *
 * Single-threaded, O(n); nothing here allocates or blocks. Encoded bytes may lie at any address.
 * The output overlaps no other argument of the call. */
#ifndef PL_TENSOR_CODEC_H
#define PL_TENSOR_CODEC_H

#include <stdbool.h>
#include <stddef.h>

enum codec { CODEC_F32, CODEC_BF16, CODEC_INT8, CODEC_TOPK16, CODEC_TOPK64, CODECS };

enum { CODEC_BLOCK = 256, CODEC_TOPK_BLOCK = 4096 };

/* Does it drop values, so that only increments and differences may be coded? */
bool codec_drops(enum codec codec);

/* Bytes of n floats: a multiple of 4. */
size_t codec_bytes(enum codec codec, size_t n);

/* x (n floats) to codec_bytes(codec, n) bytes at out, and back. Decoding returns false, and x has
 * any values, if the bytes are no code, as c or the indices of topk may be wrong; any bytes are one
 * of the other formats. */
void codec_encode(enum codec codec, const float *x, size_t n, void *out);
bool codec_decode(enum codec codec, const void *in, size_t n, float *x);

/* Encodes x + residual (float addition) and leaves in residual the exact difference between that
 * sum and the decoded value; start with zeros. Where the decoded value is not finite, the residual
 * is not changed, so that residuals stay finite. */
void codec_encode_feedback(enum codec codec, const float *x, float *residual, size_t n, void *out);

/* The same in place: x becomes the decoded value, whose code is the one that would be sent. */
void codec_round_feedback(enum codec codec, float *x, float *residual, size_t n);

/* x becomes the value that its code decodes to. */
void codec_round(enum codec codec, float *x, size_t n);

/* "f32", "bf16", "int8", "topk16", "topk64". */
const char *codec_name(enum codec codec);

/* The codec of that name; false, and *codec untouched, when there is none. */
bool codec_find(const char *name, enum codec *codec);

#endif
