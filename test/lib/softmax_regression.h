/* Softmax regression with L2 decay, in double: f(w) = 1/N Σ −log p_i(label_i) + decay/2·‖w‖², its
 * gradient, and its minimum by Newton's method. Weights are those of an InnerProduct layer: for
 * each class its features, and behind all of them a bias for each class, which decays as well or
 * not. */
#ifndef PL_LIB_SOFTMAX_REGRESSION_H
#define PL_LIB_SOFTMAX_REGRESSION_H

#include "cholesky.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct regression {
    size_t records, features, classes;
    const float *x;        /* records × features */
    const uint32_t *label; /* of each record */
    double decay, decay_bias;
};

static inline size_t regression_weights(const struct regression *r)
{
    return r->classes * (r->features + 1);
}

/* Of a weight's number: feature `f` of class `c`; the bias is the last feature, which is 1. */
static inline size_t regression_at(const struct regression *r, size_t c, size_t f)
{
    return f == r->features ? r->classes * r->features + c : c * r->features + f;
}

static inline double regression_feature(const struct regression *r, size_t i, size_t f)
{
    return f == r->features ? 1 : (double)r->x[i * r->features + f];
}

static inline void regression_shares(const struct regression *r, const double *w, size_t i,
                                     double *p)
{
    double most = -INFINITY, sum = 0;
    for (size_t c = 0; c < r->classes; c++) {
        p[c] = 0;
        for (size_t f = 0; f <= r->features; f++)
            p[c] += w[regression_at(r, c, f)] * regression_feature(r, i, f);
        most = fmax(most, p[c]);
    }
    for (size_t c = 0; c < r->classes; c++)
        sum += p[c] = exp(p[c] - most);
    for (size_t c = 0; c < r->classes; c++)
        p[c] /= sum;
}

static inline double regression_decay(const struct regression *r, size_t weight)
{
    return weight < r->classes * r->features ? r->decay : r->decay_bias;
}

/* A row of the Hessian, in the columns of class d: += scale · features of record i. */
static inline void regression_add_row(const struct regression *r, size_t i, double scale,
                                      double *row, size_t d)
{
    for (size_t e = 0; scale != 0 && e <= r->features; e++)
        row[regression_at(r, d, e)] += scale * regression_feature(r, i, e);
}

/* f, and its gradient into `g`; the Hessian into `h`, unless that is NULL. */
static inline double regression_evaluate(const struct regression *r, const double *w, double *g,
                                         double *h)
{
    size_t n = regression_weights(r);
    double loss = 0, p[16];
    for (size_t k = 0; k < n; k++) {
        g[k] = regression_decay(r, k) * w[k];
        loss += 0.5 * regression_decay(r, k) * w[k] * w[k];
    }
    for (size_t k = 0; h && k < n * n; k++)
        h[k] = k % (n + 1) == 0 ? regression_decay(r, k / n) : 0;
    double each = 1.0 / (double)r->records;
    for (size_t i = 0; i < r->records; i++) {
        regression_shares(r, w, i, p);
        loss -= each * log(p[r->label[i]]);
        for (size_t c = 0; c < r->classes; c++)
            for (size_t f = 0; f <= r->features; f++)
                g[regression_at(r, c, f)] +=
                    each * (p[c] - (c == r->label[i])) * regression_feature(r, i, f);
        for (size_t c = 0; h && c < r->classes; c++)
            for (size_t d = 0; d < r->classes; d++)
                for (size_t f = 0; f <= r->features; f++)
                    regression_add_row(
                        r, i, each * p[c] * ((c == d) - p[d]) * regression_feature(r, i, f),
                        h + regression_at(r, c, f) * n, d);
    }
    return loss;
}

static inline double regression_norm(const double *v, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += v[k] * v[k];
    return sqrt(sum);
}

/* Newton's method from w, without a line search; the norm of the gradient at the end. */
static inline double regression_newton(const struct regression *r, double *w, int steps)
{
    size_t n = regression_weights(r);
    double *g = malloc(n * sizeof *g), *h = malloc(n * n * sizeof *h), last = INFINITY;
    for (int t = 0; g && h && t < steps; t++) {
        regression_evaluate(r, w, g, h);
        if (!cholesky_solve(h, g, n))
            break;
        for (size_t k = 0; k < n; k++)
            w[k] -= g[k];
    }
    if (g && h) {
        regression_evaluate(r, w, g, NULL);
        last = regression_norm(g, n);
    }
    free(g);
    free(h);
    return last;
}

#endif
