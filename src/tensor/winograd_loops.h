/* The loops of Winograd's convolutions (winograd.h), compiled for each instruction set.
 *
 * With the symbols of Lavin and Gray: d is a tile of the input, g a filter, Y a tile of the output,
 *
 *     Y = A^T [ (G g G^T) ⊙ (B^T d B) ] A = A^T [ U ⊙ V ] A = A^T M A
 *
 * with products element by element at α × α points, so that over all tiles, inputs c and outputs o
 * each point is a product of matrices, M = V U. A tile of Y is 4 × 4 pixels, and α = K + 3. Turned
 * round, dM = A dY A^T, dU = V^T dM, dg = G^T dU G.
 *
 * Channels lie in blocks of 16, whatever the instruction set, the last one filled up. A slab holds
 * V or M of some tiles: at each point, of each block of channels, of each tile, 16 floats. U holds
 * at each point, of each block of outputs, of each input, 16 floats; dU at each point, of each
 * block of inputs, of each block of outputs, of each of its inputs, 16 floats. */
#ifndef PL_TENSOR_WINOGRAD_LOOPS_H
#define PL_TENSOR_WINOGRAD_LOOPS_H

#include "tensor/isa_loops.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    WINOGRAD_TILE = 4,   /* pixels of the output each way */
    WINOGRAD_BLOCK = 16, /* channels */
    WINOGRAD_ROWS = 8,   /* room for tiles in a slab is a multiple */
};

static inline size_t winograd_blocks(size_t C)
{
    return (C + WINOGRAD_BLOCK - 1) / WINOGRAD_BLOCK;
}

/* N images (H, W, C) covered by rows × columns tiles each, 4 pixels apart both ways, the first
 * beginning `top` rows and `left` columns outside.
 *
 * With them goes `outside`, stretches of C elements rounded up to whole blocks: zeros, which are
 * read outside the image, or the target of writes outside of it; and, where images are read, a
 * second one, a copy of the very last pixel, since there is no memory behind it that a whole block
 * could reach into. */
struct winograd_image {
    size_t N, H, W, C;
    size_t rows, columns, top, left;
};

/* How far apart the blocks of channels and the points are, in floats. */
struct winograd_slab {
    size_t block, point;
};

/* Filters as a matrix of `in` × `out`, the steps apart; `turned`: by half a turn. */
struct winograd_filters {
    size_t in, out, in_step, out_step;
    bool turned;
};

/* For 3 × 3 and for 5 × 5. */
enum { WINOGRAD_3X3, WINOGRAD_5X5, WINOGRAD_KERNELS };

/* Over images of floats, or of bf16. */
struct winograd_loops {
    /* V = B^T d B of `tiles` tiles from `first` on, `blocks` blocks of channels from x on. */
    void (*input)(const struct winograd_image *image, const void *x, const void *outside,
                  size_t first, size_t tiles, size_t blocks, struct winograd_slab slab, float *V);
    /* Y = A^T M A + b, of `channels` from y on. b has whole blocks. */
    void (*output)(const struct winograd_image *image, void *y, void *outside, size_t first,
                   size_t tiles, size_t channels, struct winograd_slab slab, const float *M,
                   const float *b);
    /* dM = A dY A^T, as `input`; db, unless NULL, has whole blocks, and each gets its sum added. */
    void (*output_back)(const struct winograd_image *image, const void *dy, const void *outside,
                        size_t first, size_t tiles, size_t blocks, struct winograd_slab slab,
                        float *dM, float *db);
};

struct winograd_filter_loops {
    /* U = G g G^T of up to 16 inputs from k on and the 16 outputs from c on. */
    void (*filters)(const struct winograd_filters *filters, const float *w, size_t k, size_t c,
                    size_t point, float *U);
    /* dw += G^T dU G of these, where dU is the sum of `parts`, `part` floats apart. Not turned. */
    void (*filters_back)(const struct winograd_filters *filters, const float *dU, size_t point,
                         size_t parts, size_t part, size_t k, size_t c, float *dw);
};

struct winograd_products {
    /* M = V U at one point, or M += V U. */
    void (*multiply)(size_t tiles, size_t in, size_t out_blocks, const float *V, size_t v_block,
                     const float *U, size_t u_block, bool add, float *M, size_t m_block);
    /* dU = V^T dM at one point, or dU += V^T dM. */
    void (*multiply_back)(size_t tiles, size_t in_blocks, size_t out_blocks, const float *V,
                          size_t v_block, const float *dM, size_t m_block, bool add, float *dU);
};

typedef struct winograd_loops winograd_loops_of[WINOGRAD_KERNELS];
typedef struct winograd_filter_loops winograd_filters_of[WINOGRAD_KERNELS];
ISA_DECLARE(winograd_loops_of, winograd_loops);
ISA_DECLARE(winograd_loops_of, winograd_loops_bf16);
ISA_DECLARE(winograd_filters_of, winograd_filters);
ISA_DECLARE(struct winograd_products, winograd_products);

#endif
