/* Four rows of four floats as four columns: the building block of all transposition. */
#ifndef PL_TENSOR_TURN_H
#define PL_TENSOR_TURN_H

#include <stddef.h>

typedef float four __attribute__((vector_size(4 * sizeof(float)), aligned(4)));

static inline four four_load(const float *p)
{
    return *(const four *)(const void *)p;
}

static inline void four_store(float *p, four v)
{
    *(four *)(void *)p = v;
}

/* to[k][i] = x[i][k]; neighbours in x's rows, rows in memory `row` apart, those of `to` `to_row`.
 */
static inline void turn_four(const float *x, size_t row, float *to, size_t to_row)
{
    four a = four_load(x), b = four_load(x + row);
    four c = four_load(x + 2 * row), d = four_load(x + 3 * row);
    four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
         AB = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
         CD = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    four_store(to, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
    four_store(to + to_row, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
    four_store(to + 2 * to_row, __builtin_shufflevector(AB, CD, 0, 1, 4, 5));
    four_store(to + 3 * to_row, __builtin_shufflevector(AB, CD, 2, 3, 6, 7));
}

/* to[k][i] = x[i][k] for three rows, and four k. */
static inline void turn_three(const float *x, size_t row, float *to)
{
    four a = four_load(x), b = four_load(x + row), c = four_load(x + 2 * row);
    four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
         bc = __builtin_shufflevector(b, c, 1, 5, 2, 6);
    four ca = __builtin_shufflevector(c, a, 2, 7, 3, 6);
    four_store(to, __builtin_shufflevector(ab, c, 0, 1, 4, 2));
    four_store(to + 4, __builtin_shufflevector(bc, a, 0, 1, 6, 2));
    four_store(to + 8, __builtin_shufflevector(ca, b, 0, 1, 7, 2));
}

#endif
