#include "tensor/channels.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"

#include <string.h>

enum { LANES = 8 };

struct channels channels_of(const struct shape *x, enum layout layout)
{
    PL_ASSERT(x->n >= 2);
    struct channels ch = {.C = x->dim[1], .S = shape_count_from(x, 2)};
    ch.inner = layout != LAYOUT_PLAIN || ch.S == 1;
    ch.width = layout == LAYOUT_BLOCKS ? BLOCK_CHANNELS : ch.C;
    return ch;
}

/* ---- sums ---- */

static double fold_sums(double lane[LANES])
{
    for (size_t width = LANES / 2; width; width /= 2)
        for (size_t l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return lane[0];
}

static void sum_pixels(size_t S, const float *a, const float *b, double *sum, double *dot)
{
    double sums[LANES] = {0}, dots[LANES] = {0};
    for (size_t s = 0; s < S; s += LANES) {
        size_t lanes = S - s < LANES ? S - s : LANES;
        for (size_t l = 0; l < lanes; l++) {
            sums[l] += (double)a[s + l];
            dots[l] += (double)a[s + l] * (double)b[s + l];
        }
    }
    *sum = fold_sums(sums);
    *dot = fold_sums(dots);
}

static void add_pixel(size_t width, const float *restrict a, const float *restrict b,
                      double *restrict sum, double *restrict dot)
{
#pragma omp simd
    for (size_t c = 0; c < width; c++) {
        sum[c] += (double)a[c];
        dot[c] += (double)a[c] * (double)b[c];
    }
}

static void sum_record(const struct channels *ch, const float *a, const float *b, double *sum)
{
    size_t C = ch->C, S = ch->S, width = ch->width;
    memset(sum, 0, 2 * C * sizeof *sum);
    for (size_t c = 0; c < C && ch->inner; c += width)
        for (size_t s = 0; s < S; s++)
            add_pixel(width, a + c * S + s * width, b + c * S + s * width, sum + c, sum + C + c);
    for (size_t c = 0; c < C && !ch->inner; c++)
        sum_pixels(S, a + c * S, b + c * S, sum + c, sum + C + c);
}

/* Each record by itself, then one after another. */
void channels_sum(const struct channels *ch, size_t n, const float *a, const float *b, double *part,
                  double *sum)
{
    size_t C = ch->C, floats = C * ch->S;
#pragma omp parallel for schedule(static) if (n * floats >= PARALLEL_MIN)
    for (size_t k = 0; k < n; k++)
        sum_record(ch, a + k * floats, b + k * floats, part + k * 2 * C);
    memset(sum, 0, 2 * C * sizeof *sum);
    for (size_t k = 0; k < n; k++)
        for (size_t c = 0; c < 2 * C; c++)
            sum[c] += part[k * 2 * C + c];
}

/* ---- combinations ---- */

static void combine_inner(const struct channels *ch, const struct channels_terms *t, size_t at,
                          float *y)
{
    size_t width = ch->width;
    for (size_t first = 0; first < ch->C; first += width)
        for (size_t s = 0; s < ch->S; s++, at += width) {
            const float *x = t->x + at, *z = t->z ? t->z + at : NULL;
            const float *p = t->p + first, *q = z ? t->q + first : NULL;
            const float *b = t->b ? t->b + first : NULL;
#pragma omp simd
            for (size_t c = 0; c < width; c++) {
                float v = p[c] * x[c];
                v = z ? v + q[c] * z[c] : v;
                y[at + c] = b ? v + b[c] : v;
            }
        }
}

static void combine_outer(const struct channels *ch, const struct channels_terms *t, size_t at,
                          float *y)
{
    size_t S = ch->S;
    for (size_t c = 0; c < ch->C; c++, at += S) {
        const float *x = t->x + at, *z = t->z ? t->z + at : NULL;
        float p = t->p[c], q = t->q ? t->q[c] : 0, b = t->b ? t->b[c] : 0;
#pragma omp simd
        for (size_t s = 0; s < S; s++) {
            float v = p * x[s];
            v = z ? v + q * z[s] : v;
            y[at + s] = v + b;
        }
    }
}

void channels_combine(const struct channels *ch, size_t n, const struct channels_terms *terms,
                      float *y)
{
    size_t floats = ch->C * ch->S;
#pragma omp parallel for schedule(static) if (n * floats >= PARALLEL_MIN)
    for (size_t k = 0; k < n; k++) {
        if (ch->inner)
            combine_inner(ch, terms, k * floats, y);
        else
            combine_outer(ch, terms, k * floats, y);
    }
}
