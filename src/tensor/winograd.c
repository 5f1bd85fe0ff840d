/* See winograd.h. Tiles are processed in blocks that are small enough for their V and M, or dM, to
 * stay in a core's own cache; channels in blocks that are small enough for U and dU, which all
 * tiles share, to take a few MB. Each thread gets one part of the tiles. */
#include "tensor/winograd.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "tensor/kernels_common.h"
#include "tensor/winograd_loops.h"

#include <omp.h>
#include <string.h>

enum { BLOCK = WINOGRAD_BLOCK, ROWS = WINOGRAD_ROWS, TILE = WINOGRAD_TILE };

/* V and M of a block of tiles, in floats; it has at least TILES_MIN, over which the cost of reading
 * U is spread, and at most a useful number. U and dU: about as much as is read from the last cache
 * anyway. */
enum {
    SLABS_FLOATS = 80 * 1024,
    TILES_MIN = 24,
    TILES_MAX = 72,
    IN_BLOCKS_MAX = 16,
    SHARED_FLOATS = 1280 * 1024,
    PART_WORK_MIN = 1024 * 1024, /* products: less is not worth waking a thread */
};

/* The operation on x and y, or dy and dx, by blocks of their channels. */
struct pass {
    struct winograd_image in, out;
    size_t tiles; /* of a block, at most */
    size_t in_blocks, out_blocks;
    size_t shared_point; /* from point to point of U, or dU */
    struct winograd_slab V, M;
};

struct winograd {
    const struct winograd_loops *loops;
    const struct winograd_filter_loops *filter_loops;
    const struct winograd_products *products;
    size_t N, points, parts;
    struct pass forward, back, weights;
    struct winograd_filters filters, filters_turned;
    enum dtype dtype;             /* of images */
    void *x_outside, *dy_outside; /* elements of images, too */
    float *b, *zeros, *U;
    size_t part_floats;
    float *scratch; /* part_floats for each part */
};

static size_t round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

/* ---- tiles ---- */

/* The tiles of a part, from `first` up to `end`, by `step`. */
struct span {
    size_t first, end, step;
};

static struct span span_of(const struct pass *p, size_t part, size_t parts)
{
    size_t tiles = p->in.N * p->in.rows * p->in.columns, rows = round_up(tiles, ROWS) / ROWS;
    size_t first = rows * part / parts * ROWS, end = rows * (part + 1) / parts * ROWS;
    size_t blocks = max_size(1, round_up(end - first, p->tiles) / p->tiles);
    return (struct span){first, min_size(end, tiles),
                         max_size(ROWS, round_up((end - first) / blocks, ROWS))};
}

/* Copy the last pixel, which has no memory behind it. */
static void copy_last(enum dtype dtype, const struct winograd_image *image, const void *x,
                      void *outside)
{
    size_t C = image->C, count = image->N * image->H * image->W * C;
    memcpy(dtype_at(dtype, outside, round_up(C, BLOCK)), dtype_in(dtype, x, count - C),
           C * dtype_size(dtype));
}

/* ---- forward, and back to dx ---- */

/* Blocks o to o + blocks of the output. */
static void make_tiles(const struct winograd *winograd, const struct pass *p, struct span span,
                       size_t o, size_t blocks, const void *x, const void *x_outside,
                       const float *b, void *y, float *scratch)
{
    const struct winograd_loops *loops = winograd->loops;
    const enum dtype dtype = winograd->dtype;
    size_t in = p->in.C, c = o * BLOCK, channels = min_size(blocks * BLOCK, p->out.C - c);
    float *outside = scratch, *V = outside + round_up(p->out.C, BLOCK);
    float *M = V + winograd->points * p->V.point;
    for (size_t t = span.first; t < span.end; t += span.step) {
        size_t tiles = min_size(span.step, span.end - t);
        for (size_t k = 0; k < in; k += p->in_blocks * BLOCK) {
            size_t some = min_size(p->in_blocks * BLOCK, in - k);
            loops->input(&p->in, dtype_in(dtype, x, k), dtype_in(dtype, x_outside, k), t, tiles,
                         winograd_blocks(some), p->V, V);
            for (size_t i = 0; i < winograd->points; i++)
                winograd->products->multiply(round_up(tiles, ROWS), some, blocks,
                                             V + i * p->V.point, p->V.block,
                                             winograd->U + i * p->shared_point + k * BLOCK,
                                             in * BLOCK, k > 0, M + i * p->M.point, p->M.block);
        }
        loops->output(&p->out, dtype_at(dtype, y, c), outside, t, tiles, channels, p->M, M, b + c);
    }
}

static void convolve_batch(const struct winograd *winograd, struct pass p, size_t N,
                           const struct winograd_filters *filters, const void *x, void *x_outside,
                           const float *w, const float *b, void *y)
{
    size_t parts = winograd->parts, in = p.in.C, all = winograd_blocks(p.out.C);
    PL_ASSERT(N > 0 && N <= winograd->N);
    p.in.N = p.out.N = N;
    copy_last(winograd->dtype, &p.in, x, x_outside);
#pragma omp parallel num_threads((int)parts)
    for (size_t o = 0; o < all; o += p.out_blocks) {
        size_t blocks = min_size(p.out_blocks, all - o);
#pragma omp for schedule(static) collapse(2)
        for (size_t i = 0; i < blocks; i++)
            for (size_t k = 0; k < in; k += BLOCK)
                winograd->filter_loops->filters(filters, w, k, (o + i) * BLOCK, p.shared_point,
                                                winograd->U + (i * in + k) * BLOCK);
#pragma omp for schedule(static)
        for (size_t part = 0; part < parts; part++)
            make_tiles(winograd, &p, span_of(&p, part, parts), o, blocks, x, x_outside, b, y,
                       winograd->scratch + part * winograd->part_floats);
    }
}

void winograd_forward(const struct winograd *winograd, size_t N, const void *x, const float *w,
                      const float *b, void *y)
{
    if (b)
        memcpy(winograd->b, b, winograd->forward.out.C * sizeof *b);
    convolve_batch(winograd, winograd->forward, N, &winograd->filters, x, winograd->x_outside, w,
                   b ? winograd->b : winograd->zeros, y);
}

void winograd_backward_data(const struct winograd *winograd, size_t N, const void *dy,
                            const float *w, void *dx)
{
    PL_ASSERT(winograd->dy_outside);
    convolve_batch(winograd, winograd->back, N, &winograd->filters_turned, dy, winograd->dy_outside,
                   w, winograd->zeros, dx);
}

/* ---- back to dw ---- */

/* A part's sums: first db, then dU. */
static float *part_sums(const struct winograd *winograd, size_t part)
{
    return winograd->scratch + part * winograd->part_floats;
}

/* dU of blocks c to c + ins and o to o + outs, and db on the first way past them. */
static void sum_tiles(const struct winograd *winograd, const struct pass *p, size_t part, size_t c,
                      size_t ins, size_t o, size_t outs, const void *x, const void *dy)
{
    const struct winograd_loops *loops = winograd->loops;
    const enum dtype dtype = winograd->dtype;
    struct span span = span_of(p, part, winograd->parts);
    float *db = part_sums(winograd, part), *dU = db + round_up(p->out.C, BLOCK);
    float *V = dU + winograd->points * p->shared_point, *dM = V + winograd->points * p->V.point;
    if (c == 0)
        memset(db + o * BLOCK, 0, outs * BLOCK * sizeof *db);
    if (span.first >= span.end)
        memset(dU, 0, winograd->points * p->shared_point * sizeof *dU);
    for (size_t t = span.first; t < span.end; t += span.step) {
        size_t tiles = min_size(span.step, span.end - t);
        loops->input(&p->in, dtype_in(dtype, x, c * BLOCK),
                     dtype_in(dtype, winograd->x_outside, c * BLOCK), t, tiles, ins, p->V, V);
        loops->output_back(&p->out, dtype_in(dtype, dy, o * BLOCK),
                           dtype_in(dtype, winograd->dy_outside, o * BLOCK), t, tiles, outs, p->M,
                           dM, c == 0 ? db + o * BLOCK : NULL);
        for (size_t i = 0; i < winograd->points; i++)
            winograd->products->multiply_back(tiles, ins, outs, V + i * p->V.point, p->V.block,
                                              dM + i * p->M.point, p->M.block, t > span.first,
                                              dU + i * p->shared_point);
    }
}

/* dw of these blocks from the sum over parts, in their order. */
static void add_filters(const struct winograd *winograd, const struct pass *p, size_t c, size_t ins,
                        size_t o, size_t outs, float *dw)
{
    const float *dU = part_sums(winograd, 0) + round_up(p->out.C, BLOCK);
#pragma omp for schedule(static) collapse(2)
    for (size_t i = 0; i < ins; i++)
        for (size_t j = 0; j < outs; j++)
            winograd->filter_loops->filters_back(
                &winograd->filters, dU + (i * outs + j) * BLOCK * BLOCK, p->shared_point,
                winograd->parts, winograd->part_floats, (c + i) * BLOCK, (o + j) * BLOCK, dw);
}

void winograd_backward_weights(const struct winograd *winograd, size_t N, const void *x,
                               const void *dy, float *dw, float *db)
{
    PL_ASSERT(winograd->dy_outside && N > 0 && N <= winograd->N);
    struct pass p = winograd->weights;
    p.in.N = p.out.N = N;
    copy_last(winograd->dtype, &p.in, x, winograd->x_outside);
    copy_last(winograd->dtype, &p.out, dy, winograd->dy_outside);
    size_t all_in = winograd_blocks(p.in.C), all_out = winograd_blocks(p.out.C);
#pragma omp parallel num_threads((int)winograd->parts)
    for (size_t c = 0; c < all_in; c += p.in_blocks)
        for (size_t o = 0; o < all_out; o += p.out_blocks) {
            size_t ins = min_size(p.in_blocks, all_in - c);
            size_t outs = min_size(p.out_blocks, all_out - o);
#pragma omp for schedule(static)
            for (size_t part = 0; part < winograd->parts; part++)
                sum_tiles(winograd, &p, part, c, ins, o, outs, x, dy);
            add_filters(winograd, &p, c, ins, o, outs, dw);
        }
    for (size_t part = 0; db && part < winograd->parts; part++)
        add_floats(p.out.C, part_sums(winograd, part), db);
}

/* ---- planning ---- */

bool winograd_fits(const struct conv_spec *spec)
{
    size_t K = spec->kernel_h;
    return (K == 3 || K == 5) && spec->kernel_w == K && spec->pad_h < K && spec->pad_w < K &&
           spec->stride_h == 1 && spec->stride_w == 1 && spec->dilation_h == 1 &&
           spec->dilation_w == 1 && spec->groups == 1 && spec->x.dim[1] >= 8 && spec->y.dim[1] >= 8;
}

/* Points lie an odd number of cache lines apart, so that they do not push one another out. */
static size_t point_floats(size_t blocks)
{
    return (blocks | 1) * BLOCK;
}

static struct winograd_slab slab_of(size_t tiles, size_t blocks)
{
    return (struct winograd_slab){tiles * BLOCK, point_floats(tiles * blocks)};
}

/* The images, and the tiles of those of y, of which the first sees x from -pad on. */
static void plan_images(struct pass *p, struct image x, struct image y, size_t pad_h, size_t pad_w)
{
    size_t rows = round_up(y.H, TILE) / TILE, columns = round_up(y.W, TILE) / TILE;
    p->in = (struct winograd_image){x.N, x.H, x.W, x.C, rows, columns, pad_h, pad_w};
    p->out = (struct winograd_image){y.N, y.H, y.W, y.C, rows, columns, 0, 0};
}

static void plan_slabs(struct pass *p, size_t points)
{
    size_t tile = points * BLOCK * (p->in_blocks + p->out_blocks);
    size_t tiles = min_size(max_size(SLABS_FLOATS / tile, TILES_MIN), TILES_MAX);
    p->tiles = tiles / ROWS * ROWS;
    p->V = slab_of(p->tiles, p->in_blocks);
    p->M = slab_of(p->tiles, p->out_blocks);
}

/* As many outputs as U has room for, of all inputs. */
static void plan_convolve(struct pass *p, size_t points)
{
    p->in_blocks = min_size(winograd_blocks(p->in.C), IN_BLOCKS_MAX);
    size_t most = max_size(SHARED_FLOATS / (points * p->in.C * BLOCK), 2);
    p->out_blocks = min_size(most, winograd_blocks(p->out.C));
    p->shared_point = point_floats(p->in.C * p->out_blocks);
    plan_slabs(p, points);
}

/* As much of either as dU has room for. */
static void plan_weights(struct pass *p, size_t points)
{
    size_t most = SHARED_FLOATS / 2 / (points * BLOCK * BLOCK), in = winograd_blocks(p->in.C);
    p->out_blocks = min_size(winograd_blocks(p->out.C), max_size(8, most / in));
    p->in_blocks = min_size(in, most / p->out_blocks);
    p->shared_point = point_floats(p->in_blocks * p->out_blocks * BLOCK);
    plan_slabs(p, points);
}

static size_t slabs_floats(const struct pass *p)
{
    return p->V.point + p->M.point;
}

static int plan_scratch(struct winograd *winograd, size_t C, size_t O, bool training,
                        struct arena *arena, size_t *bytes, struct err *err)
{
    const struct pass *p = &winograd->forward, *q = &winograd->back, *r = &winograd->weights;
    size_t U = p->shared_point, part = slabs_floats(p), widest = round_up(max_size(C, O), BLOCK);
    size_t before = arena->bytes;
    if (training) {
        U = max_size(U, q->shared_point);
        part = max_size(max_size(part, slabs_floats(q)), r->shared_point + slabs_floats(r));
        winograd->dy_outside = arena_alloc(arena, 2 * widest, dtype_size(winograd->dtype));
    }
    winograd->part_floats = widest + part * winograd->points;
    winograd->x_outside = arena_alloc(arena, 2 * widest, dtype_size(winograd->dtype));
    winograd->zeros = arena_array(arena, widest, float);
    winograd->b = arena_array(arena, widest, float);
    winograd->U = arena_array(arena, U * winograd->points, float);
    winograd->scratch = arena_array(arena, winograd->part_floats * winograd->parts, float);
    if ((training && !winograd->dy_outside) || !winograd->x_outside || !winograd->zeros ||
        !winograd->b || !winograd->U || !winograd->scratch)
        return plan_nomem("Winograd convolution", err);
    *bytes = arena->bytes - before;
    return OK;
}

int winograd_plan(const struct conv_spec *spec, bool training, struct arena *arena,
                  struct winograd **out, size_t *bytes, struct err *err)
{
    conv_check(spec);
    PL_ASSERT(winograd_fits(spec));
    struct winograd *winograd = arena_new(arena, struct winograd);
    if (!winograd)
        return plan_nomem("Winograd convolution", err);
    struct image x = image_of(&spec->x), y = image_of(&spec->y);
    size_t K = spec->kernel_h, C = x.C, O = y.C, taps = K * K;
    const int kernel = K == 3 ? WINOGRAD_3X3 : WINOGRAD_5X5;
    winograd->dtype = spec->dtype;
    winograd->loops = spec->dtype == DTYPE_BF16 ? &(*ISA_PICK(winograd_loops_bf16))[kernel]
                                                : &(*ISA_PICK(winograd_loops))[kernel];
    winograd->filter_loops = &(*ISA_PICK(winograd_filters))[kernel];
    winograd->products = ISA_PICK(winograd_products);
    winograd->N = x.N;
    winograd->points = (K + TILE - 1) * (K + TILE - 1);
    plan_images(&winograd->forward, x, y, spec->pad_h, spec->pad_w);
    plan_images(&winograd->back, y, x, K - 1 - spec->pad_h, K - 1 - spec->pad_w);
    winograd->weights = winograd->forward;
    plan_convolve(&winograd->forward, winograd->points);
    plan_convolve(&winograd->back, winograd->points);
    plan_weights(&winograd->weights, winograd->points);
    winograd->filters = (struct winograd_filters){C, O, taps, C * taps, false};
    winograd->filters_turned = (struct winograd_filters){O, C, C * taps, taps, true};
    const struct winograd_image *tiles = &winograd->forward.in;
    size_t work = x.N * tiles->rows * tiles->columns * winograd->points * C * O;
    winograd->parts = min_size((size_t)omp_get_max_threads(), 1 + work / PART_WORK_MIN);
    int result = plan_scratch(winograd, C, O, training, arena, bytes, err);
    if (result)
        return result;
    *out = winograd;
    return OK;
}
