/* Inner product, by loops of ours. They read canonical weights where they lie: oneDNN's products
 * copy both factors to a form of their own, which a batch of some records does not pay for. A sum
 * has one order, whatever the batch and the threads: a batch cut among workers gives the whole
 * one's bits. */
#include "tensor/kernels_dnnl.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "tensor/kernels_common.h"
#include "tensor/product_loops.h"
#include "tensor/slices.h"

#include <omp.h>
#include <string.h>

struct inner_op {
    struct op op;
    struct inner_spec spec;
    const struct product_loops *loops;
    size_t N, I, O;
    float *x, *dx;             /* (N, I) in NCHW order; NULL when the caller's own are */
    float *strips;             /* on the way there: of records of x, turned, or of w */
    float *x_apart, *dy_apart; /* copies for dw, or NULL */
    float *packed;  /* on the way back: all columns of w, or some of them for each thread */
    size_t columns; /* of dx, at most, that a thread takes at a time */
    size_t dw_rows; /* of dw, that a thread takes at a time */
    size_t slice;   /* rows of x, of whole records, that dw adds up in one go */
    size_t dw_part; /* rows of x, of whole slices, that all of dw takes before it takes others */
    int threads;
    struct slices db;
};

/* Rows in memory, and the floats from one to the next. */
struct rows {
    const float *at;
    size_t apart;
};

/* ROWS rows of w, by COLUMNS columns, stay in a core's second cache while they are multiplied by
 * all strips of x, and RECORDS records with a packed strip in the first one. A strip of w that is
 * packed for dx has STEPS rows of COLUMNS. */
enum { ROWS = 48, RECORDS = 24, COLUMNS = 512, STEPS = 64 };

/* ---- forward ---- */

/* Some rows of w make as many columns of y. */
static void set_y(const struct inner_op *inner, size_t o, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    size_t N = inner->N, I = inner->I, O = inner->O, strip = inner->loops->strip;
    const float *bias = inner->spec.bias ? args->b + o : NULL;
    for (size_t i = 0; i < I; i += COLUMNS) {
        const struct product_a w = {args->w + o * I + i, I, 1};
        for (size_t n = 0; n < N; n += strip) {
            size_t records = min_size(strip, N - n);
            size_t wide = inner->loops->wide(records);
            inner->loops->multiply_turned(min_size(ROWS, O - o), records, min_size(COLUMNS, I - i),
                                          &w, inner->strips + n * I + i * wide, i > 0, bias,
                                          io.y + n * O + o, O);
        }
    }
}

/* RECORDS records from n on, by weights whose strips are packed: the sums of set_y in its order. */
static void set_rows(const struct inner_op *inner, size_t n, const float *x,
                     const struct op_args *args)
{
    size_t I = inner->I, O = inner->O, strip = inner->loops->strip;
    size_t rows = min_size(RECORDS, inner->N - n);
    float *y = op_floats(args).y + n * O;
    const float *bias = inner->spec.bias ? args->b : NULL;
    for (size_t i = 0; i < I; i += COLUMNS) {
        const struct product_a part = {x + n * I + i, I, 1};
        for (size_t o = 0; o < O; o += strip) {
            size_t columns = min_size(strip, O - o), wide = inner->loops->wide(columns);
            inner->loops->multiply(
                rows, columns, min_size(COLUMNS, I - i), &part, inner->strips + o * I + i * wide,
                i > 0 ? PRODUCT_ADD : PRODUCT_SET, bias && i == 0 ? bias + o : NULL, y + o, O);
        }
    }
}

/* With no fewer records than outputs, the weights are the smaller factor to pack. */
static bool packs_weights(const struct inner_op *inner)
{
    return inner->N >= inner->O;
}

static void by_records(const struct inner_op *inner, const float *x, const struct op_args *args)
{
    size_t I = inner->I, strip = inner->loops->strip;
#pragma omp parallel num_threads(inner->threads)
    {
#pragma omp for schedule(static)
        for (size_t o = 0; o < inner->O; o += strip)
            inner->loops->pack_turned(I, min_size(strip, inner->O - o), args->w + o * I, I,
                                      inner->strips + o * I);
#pragma omp for schedule(static)
        for (size_t n = 0; n < inner->N; n += RECORDS)
            set_rows(inner, n, x, args);
    }
}

static void inner_forward(struct op *op, const struct op_args *args)
{
    const struct inner_op *inner = (const struct inner_op *)op;
    size_t N = inner->N, I = inner->I, strip = inner->loops->strip;
    const float *x = args->x;
    if (inner->x) {
        kernels_reorder(&inner->spec.x, inner->op.x_layout, x, LAYOUT_PLAIN, inner->x);
        x = inner->x;
    }
    if (packs_weights(inner)) {
        by_records(inner, x, args);
        return;
    }
#pragma omp parallel num_threads(inner->threads)
    {
#pragma omp for schedule(static)
        for (size_t n = 0; n < N; n += strip)
            inner->loops->pack_turned(I, min_size(strip, N - n), x + n * I, I,
                                      inner->strips + n * I);
#pragma omp for schedule(static)
        for (size_t o = 0; o < inner->O; o += ROWS)
            set_y(inner, o, args);
    }
}

/* ---- backward ---- */

/* Rows of dw: dyᵀ·x, of the rows of x from n on. */
static void add_dw(const struct inner_op *inner, size_t o, size_t n, const struct rows *x,
                   const struct rows *dy, float *dw)
{
    const struct product_a turned = {dy->at + n * dy->apart + o, 1, dy->apart};
    inner->loops->add_slices(min_size(inner->dw_rows, inner->O - o), inner->I,
                             min_size(inner->dw_part, inner->N - n), inner->slice, &turned,
                             x->at + n * x->apart, x->apart, dw + o * inner->I, inner->I);
}

/* Rows whose distance is a multiple of CLASH floats share a few sets of the caches. Copies that
 * are a line longer are worth their time if dw reads each number of them often enough. */
enum { CLASH = 512, LINE = 16, READS_MIN = 512 };

static bool copies_rows(size_t n, size_t reads)
{
    return n % CLASH == 0 && reads >= READS_MIN;
}

/* The rows of n floats, or copies of them by the threads of a team. */
static struct rows well_apart(const float *rows, size_t n, size_t count, float *copies)
{
    if (!copies)
        return (struct rows){rows, n};
#pragma omp for schedule(static)
    for (size_t i = 0; i < count; i++)
        memcpy(copies + i * (n + LINE), rows + i * n, n * sizeof *rows);
    return (struct rows){copies, n + LINE};
}

static void share_dw(const struct inner_op *inner, const float *x, const float *dy, float *dw)
{
    const struct rows xs = well_apart(x, inner->I, inner->N, inner->x_apart);
    const struct rows dys = well_apart(dy, inner->O, inner->N, inner->dy_apart);
    for (size_t n = 0; n < inner->N; n += inner->dw_part)
#pragma omp for schedule(static) nowait
        for (size_t o = 0; o < inner->O; o += inner->dw_rows)
            add_dw(inner, o, n, &xs, &dys, dw);
}

/* Some columns of dx: dy·w. */
static void set_dx(const struct inner_op *inner, size_t i, size_t columns, const float *w,
                   const float *dy, float *dx)
{
    size_t I = inner->I, O = inner->O, strip = inner->loops->strip;
    float *packed = inner->packed + (size_t)omp_get_thread_num() * STEPS * COLUMNS;
    for (size_t o = 0; o < O; o += STEPS) {
        const struct product_a part = {dy + o, O, 1};
        size_t steps = min_size(STEPS, O - o);
        inner->loops->pack(steps, columns, w + o * I + i, I, packed);
        for (size_t at = 0; at < columns; at += strip)
            inner->loops->multiply(inner->N, min_size(strip, columns - at), steps, &part,
                                   packed + at * steps, o > 0 ? PRODUCT_CONTINUE : PRODUCT_SET,
                                   NULL, dx + i + at, I);
    }
}

/* RECORDS rows of dx, by the whole of w, packed: the sums of set_dx in its order. */
static void set_dx_rows(const struct inner_op *inner, size_t n, const float *dy, float *dx)
{
    size_t I = inner->I, O = inner->O, strip = inner->loops->strip;
    size_t rows = min_size(RECORDS, inner->N - n);
    for (size_t i = 0; i < I; i += strip) {
        size_t columns = min_size(strip, I - i), wide = inner->loops->wide(columns);
        for (size_t o = 0; o < O; o += COLUMNS) {
            const struct product_a part = {dy + n * O + o, O, 1};
            inner->loops->multiply(rows, columns, min_size(COLUMNS, O - o), &part,
                                   inner->packed + i * O + o * wide,
                                   o > 0 ? PRODUCT_CONTINUE : PRODUCT_SET, NULL, dx + n * I + i, I);
        }
    }
}

/* All of dx, by the threads of a team. */
static void share_dx(const struct inner_op *inner, const float *w, const float *dy, float *dx)
{
    size_t I = inner->I, strip = inner->loops->strip;
    if (!packs_weights(inner)) {
#pragma omp for schedule(static)
        for (size_t i = 0; i < I; i += inner->columns)
            set_dx(inner, i, min_size(inner->columns, I - i), w, dy, dx);
        return;
    }
#pragma omp for schedule(static)
    for (size_t i = 0; i < I; i += strip)
        inner->loops->pack(inner->O, min_size(strip, I - i), w + i, I,
                           inner->packed + i * inner->O);
#pragma omp for schedule(static)
    for (size_t n = 0; n < inner->N; n += RECORDS)
        set_dx_rows(inner, n, dy, dx);
}

struct bias_pass {
    size_t O;
    const float *dy;
};

static void sum_bias(void *user, size_t first, size_t count, float *sum)
{
    const struct bias_pass *pass = user;
    for (size_t o = 0; o < pass->O; o++)
        sum[o] = 0;
    column_sums_add(count, pass->O, pass->dy + first * pass->O, sum);
}

static void inner_backward(struct op *op, const struct op_args *args)
{
    struct inner_op *inner = (struct inner_op *)op;
    const float *x = inner->x ? inner->x : args->x;
    float *dx = args->dx && inner->dx ? inner->dx : args->dx;
#pragma omp parallel num_threads(inner->threads)
    {
        if (args->dw)
            share_dw(inner, x, args->dy, args->dw);
        if (dx)
            share_dx(inner, args->w, args->dy, dx);
    }
    if (inner->spec.bias && args->dw) {
        struct bias_pass pass = {inner->O, args->dy};
        add_floats(inner->O, slices_sum(&inner->db, sum_bias, &pass), args->db);
    }
    if (dx && inner->dx)
        kernels_reorder(&inner->spec.x, LAYOUT_PLAIN, dx, inner->op.x_layout, args->dx);
}

static const struct op_ops inner_training = {inner_forward, inner_backward, NULL};
static const struct op_ops inner_inference = {inner_forward, NULL, NULL};

/* ---- planning ---- */

static float *reserve_room(struct inner_op *inner, struct arena *arena, size_t count)
{
    inner->op.scratch_bytes += count * sizeof(float);
    return arena_array(arena, count, float);
}

static size_t whole_batch(const struct inner_op *inner, size_t n)
{
    size_t strip = inner->loops->strip;
    return (n + strip - 1) / strip * strip;
}

/* Few records are read again for each row of dw from a near cache. Many are not, so that ROWS
 * rows share them; or somewhat fewer, where the thread with the most then has fewer. */
static size_t choose_dw_rows(size_t N, size_t I, size_t O, size_t threads)
{
    enum { FEW = 64, MANY = 256, NEAR = 1 << 18 };
    enum { FEW_ROWS = 12, ROWS_MIN = 24, TILE = 4 };
    bool few = N <= FEW || (N <= MANY && N * I <= NEAR);
    size_t best = FEW_ROWS, least = SIZE_MAX;
    for (size_t rows = ROWS; !few && rows >= ROWS_MIN; rows -= TILE) {
        size_t parts = (O + rows - 1) / rows, of_thread = (parts + threads - 1) / threads;
        size_t most = min_size(of_thread * rows, O);
        if (most < least) {
            best = rows;
            least = most;
        }
    }
    return best;
}

/* All rows of x, or two parts of them where each is long: then a part, and the columns of dy that
 * are read with it and next, stay in a core's second cache. The first part is the largest power of
 * two of slices, so that the sum of both has the order of slices.h if dw begins with 0. */
static size_t choose_dw_part(const struct inner_op *inner)
{
    enum { FAR = 1 << 18, STEPS_MIN = 512, OUTPUTS_MIN = 4 * ROWS };
    size_t part = inner->slice;
    while (2 * part < inner->N)
        part *= 2;
    bool far = inner->N * inner->I >= FAR && inner->O >= OUTPUTS_MIN;
    return far && part >= STEPS_MIN ? part : inner->N;
}

static int plan_training(struct inner_op *inner, struct arena *arena)
{
    size_t bytes = 0;
    size_t share =
        whole_batch(inner, (inner->I + (size_t)inner->threads - 1) / (size_t)inner->threads);
    inner->columns = min_size(share, COLUMNS);
    inner->dw_part = choose_dw_part(inner);
    inner->dw_rows = choose_dw_rows(inner->N, inner->I, inner->O, (size_t)inner->threads);
    inner->packed = reserve_room(inner, arena,
                                 packs_weights(inner) ? whole_batch(inner, inner->I) * inner->O
                                                      : (size_t)inner->threads * STEPS * COLUMNS);
    if (inner->x)
        inner->dx = reserve_room(inner, arena, inner->N * inner->I);
    bool copies_x = copies_rows(inner->I, inner->O), copies_dy = copies_rows(inner->O, inner->I);
    if (copies_x)
        inner->x_apart = reserve_room(inner, arena, inner->N * (inner->I + LINE));
    if (copies_dy)
        inner->dy_apart = reserve_room(inner, arena, inner->N * (inner->O + LINE));
    if (!inner->packed || (inner->x && !inner->dx) || (copies_x && !inner->x_apart) ||
        (copies_dy && !inner->dy_apart))
        return ERR_NOMEM;
    int result = slices_init(&inner->db, arena, inner->N, inner->O, &bytes);
    inner->op.scratch_bytes += bytes;
    return result;
}

int dnnl_set_inner(const struct inner_spec *spec, enum layout x_layout, bool training,
                   struct arena *arena, struct op **op, struct err *err)
{
    inner_check(spec, x_layout);
    struct inner_op *inner = arena_new(arena, struct inner_op);
    if (!inner)
        return plan_nomem("inner product", err);
    *inner = (struct inner_op){
        .op = {.ops = training ? &inner_training : &inner_inference, .x_layout = x_layout},
        .spec = *spec,
        .loops = ISA_PICK(product_loops),
        .N = spec->x.dim[0],
        .I = shape_count_from(&spec->x, 1),
        .O = spec->y.dim[1],
        .slice = SLICE_RECORDS * (spec->steps > 0 ? spec->steps : 1),
    };
    bool small = inner->N * inner->I * inner->O < 16 * PARALLEL_MIN;
    inner->threads = small ? 1 : omp_get_max_threads();
    size_t packed = packs_weights(inner) ? inner->O : inner->N;
    inner->strips = reserve_room(inner, arena, whole_batch(inner, packed) * inner->I);
    if (inner_needs_reorder(spec, x_layout)) {
        inner->op.forward.images = inner->op.backward.images = 1;
        inner->x = reserve_room(inner, arena, inner->N * inner->I);
        if (!inner->x)
            return plan_nomem("inner product", err);
    }
    if (!inner->strips || (training && plan_training(inner, arena) != OK))
        return plan_nomem("inner product", err);
    *op = &inner->op;
    return OK;
}
