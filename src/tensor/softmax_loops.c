/* Softmax of a row, a register of it at a time. The largest becomes e^0: nothing overflows, and the
 * sum is at least 1. */
#include "tensor/softmax_loops.h"

#include "tensor/exponential.h"

static float find_largest(size_t C, const float *x)
{
    floats most = (floats){0} + x[0];
    size_t c = 0;
    for (; C - c >= LANES; c += LANES) {
        floats v = floats_load(x + c);
        most = choose(v > most, v, most);
    }
    float max = most[0];
    for (size_t l = 1; l < LANES; l++)
        max = most[l] > max ? most[l] : max;
    for (; c < C; c++)
        max = x[c] > max ? x[c] : max;
    return max;
}

/* Below the least power of `exponential` it is 0, as for a score of -inf. */
INLINE floats power_of(floats x, float max)
{
    floats below = x - max;
    return choose(below < -87.0f, (floats){0}, exponential(below));
}

static void softmax_row(size_t C, const float *x, float *y)
{
    const float max = find_largest(C, x);
    floats sums = {0};
    size_t c = 0;
    for (; C - c >= LANES; c += LANES) {
        floats power = power_of(floats_load(x + c), max);
        floats_store(y + c, power);
        sums += power;
    }
    float sum = 0;
    for (size_t l = 0; l < LANES; l++)
        sum += sums[l];
    floats last = power_of(load(x + c, C - c), max);
    for (size_t l = 0; l < C - c; l++)
        sum += last[l];
    store(y + c, last, C - c);
    for (c = 0; C - c >= LANES; c += LANES)
        floats_store(y + c, floats_load(y + c) / sum);
    for (; c < C; c++)
        y[c] /= sum;
}

const struct softmax_loops ISA_NAME(softmax_loops) = {softmax_row};
