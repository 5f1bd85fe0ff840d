#include "nn/filler.h"

#include "base/fault.h"
#include "base/rng.h"
#include "nn/fields.h"

#include <math.h>
#include <string.h>

enum { ELEMENT_BITS = 40 };

/* In addition to an element's number: whether it is 0, where some are. */
static const uint64_t drop_bit = (uint64_t)1 << 63;

/* Caffe's n: how many inputs (or outputs, or their mean) an element takes part with. */
static double fan_of(const Caffe__FillerParameter *param, const struct shape *shape)
{
    double count = (double)shape_count(shape);
    double in = count / (double)shape->dim[0];
    double out = shape->n > 1 ? count / (double)shape->dim[1] : count;
    switch (param->variance_norm) {
    case CAFFE__FILLER_PARAMETER__VARIANCE_NORM__FAN_OUT: return out;
    case CAFFE__FILLER_PARAMETER__VARIANCE_NORM__AVERAGE: return (in + out) / 2.0;
    default: return in;
    }
}

/* Each makes the filler, or refuses shapes that it does not fill. */
static int set_constant(const Caffe__FillerParameter *param, const struct shape *shape,
                        struct filler *out, struct err *err)
{
    (void)shape, (void)err;
    *out = (struct filler){.kind = FILLER_CONSTANT, .a = (double)param->value};
    return OK;
}

static int set_uniform(const Caffe__FillerParameter *param, const struct shape *shape,
                       struct filler *out, struct err *err)
{
    (void)shape, (void)err;
    *out =
        (struct filler){.kind = FILLER_UNIFORM, .a = (double)param->min, .b = (double)param->max};
    return OK;
}

/* `sparse` is how many of an output's weights are to differ from 0 on the average, of as many as
 * there are outputs: that is how Caffe reckons, whatever the number of inputs. */
static int set_gaussian(const Caffe__FillerParameter *param, const struct shape *shape,
                        struct filler *out, struct err *err)
{
    size_t outputs = shape->dim[0];
    if (param->sparse < -1 || (param->sparse >= 0 && (size_t)param->sparse > outputs))
        return err_set(err, ERR_INPUT, "sparse: %d is out of range, -1 or 0 to the %zu outputs",
                       (int)param->sparse, outputs);
    *out = (struct filler){
        .kind = FILLER_GAUSSIAN,
        .a = (double)param->mean,
        .b = (double)param->std,
        .drop = param->sparse < 0 ? 0.0 : 1.0 - (double)param->sparse / (double)outputs,
    };
    return OK;
}

/* A row has the weights of one output (dim 0), and sums to 1. */
static int set_unitball(const Caffe__FillerParameter *param, const struct shape *shape,
                        struct filler *out, struct err *err)
{
    (void)param, (void)err;
    *out = (struct filler){.kind = FILLER_UNITBALL, .row = shape_count_from(shape, 1)};
    return OK;
}

static int set_xavier(const Caffe__FillerParameter *param, const struct shape *shape,
                      struct filler *out, struct err *err)
{
    (void)err;
    double limit = sqrt(3.0 / fan_of(param, shape));
    *out = (struct filler){.kind = FILLER_UNIFORM, .a = -limit, .b = limit};
    return OK;
}

static int set_msra(const Caffe__FillerParameter *param, const struct shape *shape,
                    struct filler *out, struct err *err)
{
    (void)err;
    *out = (struct filler){.kind = FILLER_GAUSSIAN, .b = sqrt(2.0 / fan_of(param, shape))};
    return OK;
}

/* Weights that interpolate between the pixels of an image that a deconvolution enlarges. */
static int set_bilinear(const Caffe__FillerParameter *param, const struct shape *shape,
                        struct filler *out, struct err *err)
{
    (void)param;
    char text[128];
    if (shape->n != 4 || shape->dim[2] != shape->dim[3])
        return err_set(err, ERR_INPUT, "filler \"bilinear\" fills square kernels, not %s",
                       shape_text(shape, text, sizeof text));
    size_t row = shape->dim[3], half = (row + 1) / 2;
    *out = (struct filler){
        .kind = FILLER_BILINEAR,
        .a = (double)half,
        .b = (double)(row - 1) / (2.0 * (double)half),
        .row = row,
    };
    return OK;
}

/* Caffe has one message for all types. Its own GoogLeNet gives a `std` to "xavier", which has none:
 * that is let pass, there and here. */
static const struct {
    const char *type;
    const char *fields[5];
    int (*make)(const Caffe__FillerParameter *param, const struct shape *shape, struct filler *out,
                struct err *err);
} kinds[] = {
    {"constant", {"type", "value"}, set_constant},
    {"uniform", {"type", "min", "max"}, set_uniform},
    {"gaussian", {"type", "mean", "std", "sparse"}, set_gaussian},
    {"positive_unitball", {"type"}, set_unitball},
    {"xavier", {"type", "variance_norm", "std"}, set_xavier},
    {"msra", {"type", "variance_norm", "std"}, set_msra},
    {"bilinear", {"type"}, set_bilinear},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static int check_values(const char *type, const struct filler *filler, struct err *err)
{
    if (!isfinite(filler->a) || !isfinite(filler->b) ||
        (filler->kind == FILLER_UNIFORM && filler->a > filler->b) ||
        (filler->kind == FILLER_GAUSSIAN && filler->b < 0.0))
        return err_set(err, ERR_INPUT, "filler \"%s\": %g and %g make no distribution", type,
                       filler->a, filler->b);
    return OK;
}

int filler_read(const Caffe__FillerParameter *param, const struct shape *shape, struct filler *out,
                struct err *err)
{
    static const struct shape one = {1, {1}};
    PL_ASSERT(shape_count(shape) > 0);
    if (shape->n == 0) /* a scalar is filled as a vector of one element */
        shape = &one;
    if (!param) {
        *out = (struct filler){.kind = FILLER_CONSTANT};
        return OK;
    }
    size_t i = 0;
    while (i < KINDS && strcmp(param->type, kinds[i].type) != 0)
        i++;
    if (i == KINDS)
        return err_set(err, ERR_UNSUPPORTED,
                       "filler \"%.64s\" is not supported; supported: constant, uniform, gaussian, "
                       "positive_unitball, xavier, msra, bilinear",
                       param->type);
    /* "sparse: -1" is how Caffe writes its default. */
    const char *dense[] = {param->sparse == -1 ? "sparse" : NULL, NULL};
    char number[32];
    const char *bad =
        fields_first_unknown(&param->base, kinds[i].fields, dense, number, sizeof number);
    if (bad)
        return err_set(err, ERR_UNSUPPORTED, "%s is not supported by filler \"%s\"", bad,
                       param->type);
    struct filler filler;
    int rc = kinds[i].make(param, shape, &filler, err);
    if (rc == OK)
        rc = check_values(param->type, &filler, err);
    if (rc == OK)
        *out = filler;
    return rc;
}

/* ---- filling: the first element to fill is at counter `base` ---- */

static void fill_gaussian(const struct filler *filler, uint64_t seed, uint64_t base, float *x,
                          size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool drops = filler->drop > 0.0 &&
                     (double)rng_uniform(seed, RNG_INIT, drop_bit | (base + i)) < filler->drop;
        double value = filler->a + filler->b * (double)rng_normal(seed, RNG_INIT, base + i);
        x[i] = drops ? 0.0f : (float)value;
    }
}

static double draw_above_zero(uint64_t seed, uint64_t at)
{
    return (double)(1.0f - rng_uniform(seed, RNG_INIT, at));
}

/* Of numbers above 0, so that no sum is; also of those of a row that are not filled. */
static void fill_unitball(const struct filler *filler, uint64_t seed, uint64_t base, size_t first,
                          float *x, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        size_t column = (first + i) % filler->row;
        uint64_t row = base + i - column;
        if (i == 0 || column == 0) {
            sum = 0.0;
            for (size_t k = 0; k < filler->row; k++)
                sum += draw_above_zero(seed, row + k);
        }
        x[i] = (float)(draw_above_zero(seed, row + column) / sum);
    }
}

static void fill_bilinear(const struct filler *filler, size_t first, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = first + i;
        double column = (double)(k % filler->row), line = (double)(k / filler->row % filler->row);
        x[i] = (float)((1.0 - fabs(column / filler->a - filler->b)) *
                       (1.0 - fabs(line / filler->a - filler->b)));
    }
}

void filler_fill(const struct filler *filler, uint64_t seed, size_t parameter, size_t first,
                 float *x, size_t n)
{
    PL_ASSERT(first < (size_t)1 << (ELEMENT_BITS - 1) && n < (size_t)1 << (ELEMENT_BITS - 1));
    uint64_t base = ((uint64_t)parameter << ELEMENT_BITS) + first;
    double a = filler->a, b = filler->b;
    switch (filler->kind) {
    case FILLER_CONSTANT:
        for (size_t i = 0; i < n; i++)
            x[i] = (float)a;
        break;
    case FILLER_UNIFORM:
        for (size_t i = 0; i < n; i++)
            x[i] = (float)(a + (b - a) * (double)rng_uniform(seed, RNG_INIT, base + i));
        break;
    case FILLER_GAUSSIAN: fill_gaussian(filler, seed, base, x, n); break;
    case FILLER_UNITBALL: fill_unitball(filler, seed, base, first, x, n); break;
    case FILLER_BILINEAR: fill_bilinear(filler, first, x, n); break;
    }
}
