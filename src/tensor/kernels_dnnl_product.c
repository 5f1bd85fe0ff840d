/* A window of one pixel makes a convolution over NHWC images a product of matrices: with P pixels
 * of the batch, y (P, O) = x (P, C) · wᵀ, dx = dy · w, and dw += dyᵀ · x, straight on canonical
 * weights. By loops of ours (product_loops.h), for oneDNN's products allocate whenever they run. */
#include "base/minmax.h"
#include "tensor/kernels_common.h"
#include "tensor/kernels_dnnl_code.h"
#include "tensor/product_loops.h"

#include <omp.h>

struct product_code {
    struct conv_code code;
    const struct product_loops *loops;
    const struct op_scratch *scratch; /* of w's strips; or, for each thread, of BLOCK pixels of x */
    size_t P, C, O;
    bool bias;
    int threads;
};

/* A strip of STEPS steps fits in a core's first cache, ROWS rows of pixels in its second; BLOCK are
 * computed at a time, or half as many. */
enum { STEPS = 256, ROWS = 96, BLOCK = 128, ROWS_EVEN = 12 };

static float *scratch_of(const struct product_code *c)
{
    return c->scratch->at;
}

/* n columns as whole strips. */
static size_t wide_of(const struct product_code *c, size_t n)
{
    size_t strip = c->loops->strip;
    return (n + strip - 1) / strip * strip;
}

/* ---- pixels by weights ---- */

/* ROWS pixels from p on: out (P, N) = bias (NULL: 0) + in (P, K) · b, whose strips are packed. */
static void multiply_rows(const struct product_code *c, size_t p, size_t N, size_t K,
                          const float *in, const float *bias, float *out)
{
    size_t strip = c->loops->strip, rows = min_size(ROWS, c->P - p);
    for (size_t k = 0; k < K; k += STEPS) {
        const struct product_a a = {in + p * K + k, K, 1};
        for (size_t n = 0; n < N; n += strip) {
            size_t columns = min_size(strip, N - n), wide = c->loops->wide(columns);
            c->loops->multiply(rows, columns, min_size(STEPS, K - k), &a,
                               scratch_of(c) + n * K + k * wide, k > 0 ? PRODUCT_ADD : PRODUCT_SET,
                               bias && k == 0 ? bias + n : NULL, out + p * N + n, N);
        }
    }
}

static void product_forward(struct conv_code *code, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct product_code *c = (const struct product_code *)code;
    size_t P = c->P, C = c->C, O = c->O, strip = c->loops->strip;
#pragma omp parallel num_threads(c->threads)
    {
#pragma omp for schedule(static)
        for (size_t o = 0; o < O; o += strip)
            c->loops->pack_turned(C, min_size(strip, O - o), args->w + o * C, C,
                                  scratch_of(c) + o * C);
#pragma omp for schedule(static)
        for (size_t p = 0; p < P; p += ROWS)
            multiply_rows(c, p, O, C, io.x, c->bias ? args->b : NULL, io.y);
    }
}

static void backward_data(struct conv_code *code, const struct op_args *args)
{
    const struct product_code *c = (const struct product_code *)code;
    size_t C = c->C, O = c->O, strip = c->loops->strip;
#pragma omp parallel num_threads(c->threads)
    {
#pragma omp for schedule(static)
        for (size_t i = 0; i < C; i += strip)
            c->loops->pack(O, min_size(strip, C - i), args->w + i, C, scratch_of(c) + i * O);
#pragma omp for schedule(static)
        for (size_t p = 0; p < c->P; p += ROWS)
            multiply_rows(c, p, C, O, args->dy, NULL, args->dx);
    }
}

/* ---- pixels by pixels ---- */

/* A part of dw: a range of its rows and columns; BLOCK pixels at a time, which stay in the
 * cache. */
struct part {
    size_t o, rows, i, columns;
};

static void add_weights(const struct product_code *c, const struct part *part,
                        const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    size_t C = c->C, O = c->O, strip = c->loops->strip, end = part->i + part->columns;
    float *packed = scratch_of(c) + (size_t)omp_get_thread_num() * BLOCK * wide_of(c, C);
    for (size_t p = 0; p < c->P; p += BLOCK) {
        const struct product_a turned = {io.dy + p * O + part->o, 1, O};
        size_t steps = min_size(BLOCK, c->P - p);
        c->loops->pack(steps, part->columns, io.x + p * C + part->i, C, packed);
        for (size_t i = part->i; i < end; i += strip)
            c->loops->multiply(part->rows, min_size(strip, end - i), steps, &turned,
                               packed + (i - part->i) * steps, PRODUCT_ADD, NULL,
                               args->dw + part->o * C + i, C);
    }
}

/* Each thread has its columns, or where strips do not share out evenly its rows, and then packs all
 * strips as the others do. */
static void backward_weights(struct conv_code *code, const struct op_args *args)
{
    const struct product_code *c = (const struct product_code *)code;
    size_t strip = c->loops->strip, C = c->C, O = c->O, T = (size_t)c->threads;
    size_t strips = (C + strip - 1) / strip;
    bool by_columns = strips % T == 0;
    size_t columns = by_columns ? strips / T * strip : C;
    size_t rows = by_columns ? O : ((O + T - 1) / T + ROWS_EVEN - 1) / ROWS_EVEN * ROWS_EVEN;
#pragma omp parallel for schedule(static) num_threads(c->threads)
    for (size_t t = 0; t < T; t++) {
        struct part part = {by_columns ? 0 : t * rows, rows, by_columns ? t * columns : 0, columns};
        if (part.o >= O)
            continue;
        part.rows = min_size(rows, O - part.o);
        part.columns = min_size(columns, C - part.i);
        add_weights(c, &part, args);
    }
    if (c->bias)
        column_sums_add(c->P, O, args->dy, args->db);
}

/* ---- planning ---- */

/* Not of bf16: oneDNN's codes then multiply bf16, in a seventh to three fifths of the time that
 * these products of floats take. */
bool code_product_fits(const struct conv_spec *s)
{
    return s->kernel_h == 1 && s->kernel_w == 1 && s->stride_h == 1 && s->stride_w == 1 &&
           s->pad_h == 0 && s->pad_w == 0 && s->groups == 1 && s->dtype == DTYPE_F32;
}

static size_t scratch_floats(const struct product_code *c, enum onednn_pass pass)
{
    if (pass == ONEDNN_BACKWARD_WEIGHTS)
        return (size_t)c->threads * BLOCK * wide_of(c, c->C);
    size_t N = pass == ONEDNN_FORWARD ? c->O : c->C, K = pass == ONEDNN_FORWARD ? c->C : c->O;
    return wide_of(c, N) * K;
}

dnnl_status_t code_plan_product(const struct conv_site *site, struct conv_code **out)
{
    static void (*const run[])(struct conv_code *, const struct op_args *) = {
        [ONEDNN_FORWARD] = product_forward,
        [ONEDNN_BACKWARD_DATA] = backward_data,
        [ONEDNN_BACKWARD_WEIGHTS] = backward_weights,
    };
    const struct conv_spec *s = site->spec;
    struct product_code *c = arena_new(site->arena, struct product_code);
    if (!c)
        return dnnl_out_of_memory;
    *c = (struct product_code){
        .code = {run[site->pass], NULL},
        .loops = ISA_PICK(product_loops),
        .scratch = site->scratch,
        .P = s->x.dim[0] * s->x.dim[2] * s->x.dim[3],
        .C = s->x.dim[1],
        .O = s->y.dim[1],
        .bias = s->bias,
    };
    c->threads = c->P * c->C * c->O < 16 * PARALLEL_MIN ? 1 : omp_get_max_threads();
    size_t bytes = scratch_floats(c, site->pass) * sizeof(float);
    if (bytes > site->scratch->bytes)
        site->scratch->bytes = bytes;
    *out = &c->code;
    return dnnl_success;
}
