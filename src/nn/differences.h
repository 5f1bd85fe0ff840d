/* For tests: gradients against central differences of the loss. Forward arithmetic is in float, so
 * differences are good to three digits or so; errors in a gradient's formula are larger. Where a
 * step crosses a kink (another element becomes the largest, a sign changes) there is nothing to
 * compare: slopes over two steps differ, and the element is left out. */
#ifndef PL_NN_DIFFERENCES_H
#define PL_NN_DIFFERENCES_H

#include "nn/fixture.h"

static inline double differences_loss(struct fixture *f, size_t i, float value)
{
    float old = f->x.at[i];
    f->x.at[i] = value;
    double loss = fixture_forward(f).loss / (double)f->batch.count;
    f->x.at[i] = old;
    return loss;
}

static inline double differences_slope(struct fixture *f, size_t i, float h)
{
    float x = f->x.at[i], above = x + h, below = x - h;
    return (differences_loss(f, i, above) - differences_loss(f, i, below)) /
           ((double)above - (double)below);
}

/* d loss / d x[i]; false where a kink is near. Two steps cancel the second-order error. A loss is
 * rounded by about 2^-24, which is 2^-24 / h of a slope: so steps are as long as they can be, and
 * shorter only where a long one crosses a kink. */
static inline bool differences_element(struct fixture *f, size_t i, bool kinked, double *out)
{
    for (float h = 0x1p-8f; h >= 0x1p-10f; h /= 4.0f) {
        double fine = differences_slope(f, i, h), coarse = differences_slope(f, i, 2.0f * h);
        *out = (4.0 * fine - coarse) / 3.0;
        if (!kinked || !(fabs(fine - coarse) > 5e-4))
            return true;
    }
    return false;
}

/* Each segment's gradient, element by element; the norm of the error against that of the segment.
 */
static inline void differences_elements(struct fixture *f, const char *what, bool kinked,
                                        const char *kernels)
{
    const struct segments *table = net_segments(f->net);
    for (size_t k = 0; k < table->count; k++) {
        const struct segment *segment = &table->at[k];
        double error = 0.0, norm = 0.0;
        size_t kinks = 0;
        for (size_t i = segment->offset; i < segment->offset + segment->len; i++) {
            double difference, gradient = (double)f->dx.at[i];
            if (!differences_element(f, i, kinked, &difference)) {
                kinks++;
                continue;
            }
            error += (difference - gradient) * (difference - gradient);
            norm += gradient * gradient;
        }
        if (!(sqrt(error) <= 2e-3 * sqrt(norm)) || norm == 0.0)
            fail_msg("%s, %s, %s: error %g of %g", kernels, what, segment->name, sqrt(error),
                     sqrt(norm));
        if (2 * kinks > segment->len)
            fail_msg("%s, %s, %s: %zu kinks", kernels, what, segment->name, kinks);
    }
}

/* One random direction v over all of x at once: <dx, v>. */
static inline void differences_direction(struct fixture *f, const char *what, const char *kernels)
{
    size_t n = f->x.n;
    float *x = arena_array(&f->arena, n, float), h = 0x1p-10f;
    double expected = 0.0, loss[2], scale = 0.0;
    memcpy(x, f->x.at, n * sizeof(float));
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++)
            f->x.at[i] = x[i] + (side ? h : -h) * rng_normal(21, 3, i);
        loss[side] = fixture_forward(f).loss / (double)f->batch.count;
    }
    memcpy(f->x.at, x, n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        expected += (double)f->dx.at[i] * (double)rng_normal(21, 3, i);
        scale += (double)f->dx.at[i] * (double)f->dx.at[i];
    }
    double difference = (loss[1] - loss[0]) / (2.0 * (double)h);
    if (!(fabs(difference - expected) <= 5e-3 * sqrt(scale)))
        fail_msg("%s, %s: slope %g, gradient says %g", kernels, what, difference, expected);
}

/* Both, for a net of its own over a batch of 3: one that keeps all its values, and one in which
 * they share memory, and layers run as one, wherever they can. */
static inline void differences_check(const char *net, const char *what, bool kinked,
                                     struct shape input, const struct kernels *kernels)
{
    for (int lean = 0; lean <= 1; lean++) {
        struct fixture f;
        (lean ? fixture_open_lean : fixture_open)(&f, net, PHASE_TRAIN, 3, input, kernels);
        fixture_gradient(&f);
        differences_elements(&f, what, kinked, kernels->name);
        differences_direction(&f, what, kernels->name);
        fixture_close(&f);
    }
}

#endif
