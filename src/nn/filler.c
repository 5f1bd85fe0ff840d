#include "nn/filler.h"

#include "base/fault.h"
#include "base/rng.h"
#include "nn/fields.h"

#include <math.h>
#include <string.h>

enum { ELEMENT_BITS = 40 };

/* Caffe's n: how many inputs (or outputs, or their mean) an element takes part with. */
static double fan(const Caffe__FillerParameter *param, const struct shape *shape)
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

static struct filler constant(const Caffe__FillerParameter *param, const struct shape *shape)
{
    (void)shape;
    return (struct filler){FILLER_CONSTANT, (double)param->value, 0.0};
}

static struct filler uniform(const Caffe__FillerParameter *param, const struct shape *shape)
{
    (void)shape;
    return (struct filler){FILLER_UNIFORM, (double)param->min, (double)param->max};
}

static struct filler gaussian(const Caffe__FillerParameter *param, const struct shape *shape)
{
    (void)shape;
    return (struct filler){FILLER_GAUSSIAN, (double)param->mean, (double)param->std};
}

static struct filler xavier(const Caffe__FillerParameter *param, const struct shape *shape)
{
    double limit = sqrt(3.0 / fan(param, shape));
    return (struct filler){FILLER_UNIFORM, -limit, limit};
}

static struct filler msra(const Caffe__FillerParameter *param, const struct shape *shape)
{
    return (struct filler){FILLER_GAUSSIAN, 0.0, sqrt(2.0 / fan(param, shape))};
}

static const struct {
    const char *type;
    const char *fields[4];
    struct filler (*make)(const Caffe__FillerParameter *param, const struct shape *shape);
} kinds[] = {
    {"constant", {"type", "value"}, constant},       {"uniform", {"type", "min", "max"}, uniform},
    {"gaussian", {"type", "mean", "std"}, gaussian}, {"xavier", {"type", "variance_norm"}, xavier},
    {"msra", {"type", "variance_norm"}, msra},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

int filler_read(const Caffe__FillerParameter *param, const struct shape *shape, struct filler *out,
                struct err *err)
{
    PL_ASSERT(shape->n > 0 && shape_count(shape) > 0);
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
                       "xavier, msra",
                       param->type);
    /* "sparse: -1" is how Caffe writes its default. */
    const char *dense[] = {param->sparse == -1 ? "sparse" : NULL, NULL};
    char number[32];
    const char *bad =
        fields_first_unknown(&param->base, kinds[i].fields, dense, number, sizeof number);
    if (bad)
        return err_set(err, ERR_UNSUPPORTED, "%s is not supported by filler \"%s\"", bad,
                       param->type);
    struct filler filler = kinds[i].make(param, shape);
    if (!isfinite(filler.a) || !isfinite(filler.b) ||
        (filler.kind == FILLER_UNIFORM && filler.a > filler.b) ||
        (filler.kind == FILLER_GAUSSIAN && filler.b < 0.0))
        return err_set(err, ERR_INPUT, "filler \"%s\": %g and %g make no distribution", param->type,
                       filler.a, filler.b);
    *out = filler;
    return OK;
}

void filler_fill(const struct filler *filler, uint64_t seed, size_t parameter, float *x, size_t n)
{
    PL_ASSERT(n < (size_t)1 << ELEMENT_BITS);
    uint64_t base = (uint64_t)parameter << ELEMENT_BITS;
    double a = filler->a, b = filler->b;
    for (size_t i = 0; i < n; i++) {
        switch (filler->kind) {
        case FILLER_CONSTANT: x[i] = (float)a; break;
        case FILLER_UNIFORM:
            x[i] = (float)(a + (b - a) * (double)rng_uniform(seed, RNG_INIT, base | i));
            break;
        case FILLER_GAUSSIAN:
            x[i] = (float)(a + b * (double)rng_normal(seed, RNG_INIT, base | i));
            break;
        }
    }
}
