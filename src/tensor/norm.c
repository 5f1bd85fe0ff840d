#include "tensor/norm.h"

#include "base/fault.h"
#include "tensor/bf16.h"
#include "tensor/kernels_common.h"
#include "tensor/norm_loops.h"
#include "tensor/slices.h"

#include <string.h>

#include <omp.h>

enum {
    BLOCK_FLOATS = 16 * 1024, /* at least, if there are as many */
    SAMPLES = 32,             /* pixels that k is the mean of */
    TERMS = 6,
};

static const struct norm_loops *loops_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? ISA_PICK(norm_loops_bf16) : ISA_PICK(norm_loops);
}

/* ---- setting up ---- */

/* The least common multiple of C and a group, which is a power of two. */
static size_t period_of(size_t group, size_t C)
{
    size_t period = C;
    while (period % group != 0)
        period *= 2;
    return period;
}

static size_t blocks_of(const struct norm *m, size_t n)
{
    return (n + m->block - 1) / m->block;
}

/* Runs of a record with different channels. */
static size_t strips_of(const struct norm *m)
{
    return m->inner ? m->C / m->width : 1;
}

/* Either sum of a strip; both lie next to one another, strip by strip. */
static size_t part_doubles(const struct norm *m)
{
    return m->inner ? m->period : m->C;
}

int norm_init(struct norm *norm, const struct shape *x, enum layout layout, enum dtype dtype,
              bool sums, struct arena *arena)
{
    PL_ASSERT(x->n >= 2);
    struct norm m = {
        .N = x->dim[0], .C = x->dim[1], .S = shape_count_from(x, 2), .dtype = dtype, .block = 1};
    size_t group = loops_of(dtype)->group, record = m.C * m.S;
    PL_ASSERT(group <= NORM_GROUP_MAX);
    m.inner = layout != LAYOUT_PLAIN || m.S == 1;
    m.width = layout == LAYOUT_BLOCKS ? BLOCK_CHANNELS : m.C;
    m.period = m.inner ? period_of(group, m.width) : group;
    while (m.block < SLICE_RECORDS && m.block * record < BLOCK_FLOATS)
        m.block *= 2;
    size_t parts = sums ? blocks_of(&m, m.N) * strips_of(&m) * 2 * part_doubles(&m) : 0;
    size_t wide = m.inner ? TERMS * strips_of(&m) * m.period : 0;
    m.part = arena_array(arena, parts, double);
    m.sum = arena_array(arena, 2 * m.C, double);
    m.k = arena_array(arena, TERMS * m.C, float);
    m.wide = arena_array(arena, wide, float);
    if (!m.part || !m.sum || !m.k || !m.wide)
        return ERR_NOMEM;
    m.a = m.k + m.C;
    m.b = m.a + m.C;
    m.p = m.b + m.C;
    m.q = m.p + m.C;
    m.c = m.q + m.C;
    m.bytes = (parts + 2 * m.C) * sizeof(double) + (TERMS * m.C + wide) * sizeof(float);
    *norm = m;
    return OK;
}

/* ---- runs ---- */

typedef void loop_fn(const struct norm_run *run);

static const void *element_address(enum dtype dtype, const void *p, size_t at)
{
    return p ? dtype_in(dtype, p, at) : NULL;
}

static struct norm_run run_at(const struct norm *m, const struct norm_run *all, size_t at, size_t n)
{
    struct norm_run run = *all;
    run.n = n;
    run.x = element_address(m->dtype, all->x, at);
    run.z = element_address(m->dtype, all->z, at);
    run.y = element_address(m->dtype, all->y, at);
    run.dy = element_address(m->dtype, all->dy, at);
    run.dy2 = element_address(m->dtype, all->dy2, at);
    run.out = all->out ? dtype_at(m->dtype, all->out, at) : NULL;
    return run;
}

/* Where pixels lie next to one another, a channel's are a run. */
static void run_plane(const struct norm *m, const struct norm_run *all, size_t at, size_t c,
                      loop_fn *loop, double *sum)
{
    float term[TERMS][NORM_GROUP_MAX];
    double sums[2 * NORM_GROUP_MAX] = {0};
    struct norm_run run = run_at(m, all, at, m->S);
    const float **const terms[TERMS] = {&run.k, &run.a, &run.b, &run.p, &run.q, &run.c};
    size_t P = run.period;
    for (size_t t = 0; t < TERMS; t++) {
        if (!*terms[t])
            continue;
        for (size_t i = 0; i < P; i++)
            term[t][i] = (*terms[t])[c];
        *terms[t] = term[t];
    }
    run.sum = sums;
    loop(&run);
    for (size_t i = 0; i < P && sum; i++) {
        sum[0] += sums[i];
        sum[1] += sums[P + i];
    }
}

/* Some records, where channels lie next to one another: one run, or by strips. */
static void run_strips(const struct norm *m, const struct norm_run *all, size_t first,
                       size_t records, loop_fn *loop, double *sum)
{
    size_t strips = strips_of(m), pixels = (strips == 1 ? records : 1) * m->S;
    for (size_t i = 0; i < records * m->S / pixels; i++)
        for (size_t t = 0; t < strips; t++) {
            size_t at = first * m->C * m->S + (i * strips + t) * pixels * m->width;
            struct norm_run run = run_at(m, all, at, pixels * m->width);
            const float **const terms[TERMS] = {&run.k, &run.a, &run.b, &run.p, &run.q, &run.c};
            for (size_t k = 0; k < TERMS; k++)
                if (*terms[k])
                    *terms[k] += t * m->period;
            run.sum = sum ? sum + t * 2 * m->period : NULL;
            loop(&run);
        }
}

static void run_block(const struct norm *m, const struct norm_run *all, size_t n, size_t block,
                      loop_fn *loop)
{
    size_t first = block * m->block, records = n - first < m->block ? n - first : m->block;
    size_t record = m->C * m->S, parts = strips_of(m) * 2 * part_doubles(m);
    double *sum = all->sum ? all->sum + block * parts : NULL;
    if (sum)
        memset(sum, 0, parts * sizeof *sum);
    if (m->inner) {
        run_strips(m, all, first, records, loop, sum);
        return;
    }
    for (size_t i = 0; i < records; i++)
        for (size_t c = 0; c < m->C; c++) {
            double both[2] = {0};
            run_plane(m, all, (first + i) * record + c * m->S, c, loop, both);
            if (sum) {
                sum[c] += both[0];
                sum[m->C + c] += both[1];
            }
        }
}

/* A thread has the same blocks each time. `back`: from its last to its first, since caches still
 * hold the last ones. */
static void run_all(const struct norm *m, const struct norm_run *all, size_t n, loop_fn *loop,
                    bool back)
{
    size_t blocks = blocks_of(m, n);
#pragma omp parallel if (n * m->C * m->S >= PARALLEL_MIN)
    {
        size_t T = (size_t)omp_get_num_threads(), t = (size_t)omp_get_thread_num();
        size_t first = blocks * t / T, end = blocks * (t + 1) / T;
        for (size_t i = first; i < end; i++)
            run_block(m, all, n, back ? first + end - 1 - i : i, loop);
    }
}

/* The caller's terms as runs take them. */
static void give_terms(const struct norm *m, struct norm_run *run)
{
    const float **const terms[TERMS] = {&run->k, &run->a, &run->b, &run->p, &run->q, &run->c};
    size_t strips = strips_of(m), width = m->width;
    run->period = m->period;
    for (size_t t = 0; t < TERMS && m->inner; t++) {
        float *wide = m->wide + t * strips * m->period;
        if (!*terms[t])
            continue;
        for (size_t s = 0; s < strips; s++)
            for (size_t i = 0; i < m->period; i += width)
                memcpy(wide + s * m->period + i, *terms[t] + s * width, width * sizeof *wide);
        *terms[t] = wide;
    }
}

/* ---- sums ---- */

void norm_sums_of(const struct norm *norm, size_t n, size_t first, size_t count, double *sum)
{
    size_t C = norm->C, P = part_doubles(norm), end = blocks_of(norm, n);
    size_t strips = strips_of(norm), width = norm->inner ? norm->width : C;
    size_t last = blocks_of(norm, first + count) < end ? blocks_of(norm, first + count) : end;
    PL_ASSERT(first % norm->block == 0);
    memset(sum, 0, 2 * C * sizeof *sum);
    for (size_t block = first / norm->block; block < last; block++) {
        const double *part = norm->part + block * strips * 2 * P;
        for (size_t first_c = 0; first_c < C; first_c += width, part += 2 * P)
            for (size_t i = 0; i < P; i += width)
                for (size_t c = 0; c < width; c++) {
                    sum[first_c + c] += part[i + c];
                    sum[C + first_c + c] += part[P + i + c];
                }
    }
}

static double read_element(const struct norm *norm, const void *x, size_t i)
{
    return norm->dtype == DTYPE_BF16 ? (double)bf16_float(((const bf16 *)x)[i])
                                     : (double)((const float *)x)[i];
}

/* The mean of some pixels from all over the batch. */
static void choose_k(struct norm *norm, size_t n, const void *x)
{
    size_t C = norm->C, S = norm->S, pixels = n * S;
    size_t samples = pixels < SAMPLES ? pixels : SAMPLES, width = norm->width;
    memset(norm->sum, 0, C * sizeof *norm->sum);
    for (size_t i = 0; i < samples; i++) {
        size_t pixel = i * pixels / samples, at = pixel / S * C * S, s = pixel % S;
        for (size_t first = 0; first < C; first += width, at += width * S)
            for (size_t c = 0; c < width; c++)
                norm->sum[first + c] +=
                    read_element(norm, x, at + (norm->inner ? s * width + c : c * S + s));
    }
    for (size_t c = 0; c < C; c++)
        norm->k[c] = (float)(norm->sum[c] / (double)samples);
}

void norm_moments(struct norm *norm, size_t n, const void *x)
{
    size_t C = norm->C;
    double m = (double)(n * norm->S);
    choose_k(norm, n, x);
    struct norm_run run = {.x = x, .k = norm->k, .sum = norm->part};
    give_terms(norm, &run);
    run_all(norm, &run, n, loops_of(norm->dtype)->moments, false);
    norm_sums_of(norm, n, 0, n, norm->sum);
    for (size_t c = 0; c < C; c++) {
        double other = norm->sum[c] / m, variance = norm->sum[C + c] / m - other * other;
        norm->sum[c] = (double)norm->k[c] + other;
        norm->sum[C + c] = variance < 0.0 ? 0.0 : variance; /* keeps NaN and infinity */
    }
}

void norm_sums(struct norm *norm, size_t n, const struct norm_flow *flow, void *copy)
{
    PL_ASSERT(flow->mask != NORM_MASK_SELF || !copy);
    struct norm_run run = {
        .x = flow->x,
        .y = flow->y,
        .dy = flow->dy,
        .dy2 = flow->dy2,
        .out = copy,
        .k = norm->k,
        .a = norm->a,
        .b = norm->b,
        .mask = flow->mask,
        .sum = norm->part,
    };
    give_terms(norm, &run);
    run_all(norm, &run, n, loops_of(norm->dtype)->sums, false);
    norm_sums_of(norm, n, 0, n, norm->sum);
}

/* ---- element by element ---- */

void norm_apply(struct norm *norm, const void *x, const void *z, bool relu, void *y)
{
    struct norm_run run = {
        .x = x,
        .z = z,
        .out = y,
        .k = norm->k,
        .a = norm->a,
        .b = norm->b,
        .relu = relu,
    };
    give_terms(norm, &run);
    run_all(norm, &run, norm->N, loops_of(norm->dtype)->apply, true);
}

void norm_slopes(struct norm *norm, size_t n, const struct norm_flow *flow, bool centred, void *dx)
{
    struct norm_run run = {
        .x = flow->x,
        .y = flow->y,
        .dy = flow->dy,
        .dy2 = flow->dy2,
        .out = dx,
        .k = norm->k,
        .a = norm->a,
        .b = norm->b,
        .p = norm->p,
        .q = centred ? norm->q : NULL,
        .c = centred ? norm->c : NULL,
        .mask = flow->mask,
    };
    give_terms(norm, &run);
    run_all(norm, &run, n, loops_of(norm->dtype)->slopes, true);
}
