#include "tensor/map.h"

#include "tensor/kernels_common.h"
#include "tensor/parallel.h"

#include <math.h>
#include <string.h>

/* Floats at a time: few enough that several loops in turn find them in a core's nearest cache. */
enum { CHUNK = 2048 };

static size_t chunk_at(size_t n, size_t at)
{
    return n - at < CHUNK ? n - at : CHUNK;
}

struct map_loops {
    void (*forward)(const struct map_spec *m, size_t n, const float *x, float *y);
    void (*backward)(const struct map_spec *m, size_t n, const float *x, const float *y,
                     const float *dy, float *dx);
    bool reads_x; /* backward needs x, which does not follow from y */
};

static void map_affine(const struct map_spec *m, size_t n, const float *x, float *y)
{
    float a = (float)m->a, b = (float)m->b;
    for (size_t i = 0; i < n; i++)
        y[i] = a * x[i] + b;
}

static void affine_back(const struct map_spec *m, size_t n, const float *x, const float *y,
                        const float *dy, float *dx)
{
    (void)x;
    (void)y;
    float a = (float)m->a;
    for (size_t i = 0; i < n; i++)
        dx[i] = a * dy[i];
}

static void map_square(const struct map_spec *m, size_t n, const float *x, float *y)
{
    float a = (float)m->a, b = (float)m->b;
    for (size_t i = 0; i < n; i++) {
        float u = a * x[i] + b;
        y[i] = u * u;
    }
}

static void square_back(const struct map_spec *m, size_t n, const float *x, const float *y,
                        const float *dy, float *dx)
{
    (void)y;
    float a = (float)m->a, b = (float)m->b;
    for (size_t i = 0; i < n; i++)
        dx[i] = 2.0f * a * (a * x[i] + b) * dy[i];
}

static void map_power(const struct map_spec *m, size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)pow(m->a * (double)x[i] + m->b, m->c);
}

static void power_back(const struct map_spec *m, size_t n, const float *x, const float *y,
                       const float *dy, float *dx)
{
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] = (float)(m->c * m->a * pow(m->a * (double)x[i] + m->b, m->c - 1.0) * (double)dy[i]);
}

/* b^c wherever x is: there is nothing for a slope that is not finite to spoil. */
static void constant_back(const struct map_spec *m, size_t n, const float *x, const float *y,
                          const float *dy, float *dx)
{
    (void)m;
    (void)x;
    (void)y;
    (void)dy;
    memset(dx, 0, n * sizeof *dx);
}

static void map_exponential(const struct map_spec *m, size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)exp(m->a * (double)x[i] + m->b);
}

static void exponential_back(const struct map_spec *m, size_t n, const float *x, const float *y,
                             const float *dy, float *dx)
{
    (void)x;
    float a = (float)m->a;
    for (size_t i = 0; i < n; i++)
        dx[i] = dy[i] * y[i] * a;
}

static void map_logarithm(const struct map_spec *m, size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)(m->c * log(m->a * (double)x[i] + m->b));
}

static void logarithm_back(const struct map_spec *m, size_t n, const float *x, const float *y,
                           const float *dy, float *dx)
{
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] = (float)((double)dy[i] * m->c * m->a / (m->a * (double)x[i] + m->b));
}

static void map_absolute(const struct map_spec *m, size_t n, const float *x, float *y)
{
    (void)m;
    for (size_t i = 0; i < n; i++)
        y[i] = fabsf(x[i]);
}

static void absolute_back(const struct map_spec *m, size_t n, const float *x, const float *y,
                          const float *dy, float *dx)
{
    (void)m;
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] = x[i] > 0 ? dy[i] : x[i] < 0 ? -dy[i] : 0;
}

static void map_hyperbolic(const struct map_spec *m, size_t n, const float *x, float *y)
{
    (void)m;
    for (size_t i = 0; i < n; i++)
        y[i] = (float)tanh((double)x[i]);
}

static void hyperbolic_back(const struct map_spec *m, size_t n, const float *x, const float *y,
                            const float *dy, float *dx)
{
    (void)m;
    (void)x;
    for (size_t i = 0; i < n; i++)
        dx[i] = dy[i] * (1 - y[i] * y[i]);
}

/* A NaN stays. */
static void map_clip(const struct map_spec *m, size_t n, const float *x, float *y)
{
    float a = (float)m->a, b = (float)m->b;
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] < a ? a : x[i] > b ? b : x[i];
}

static void clip_back(const struct map_spec *m, size_t n, const float *x, const float *y,
                      const float *dy, float *dx)
{
    (void)y;
    float a = (float)m->a, b = (float)m->b;
    for (size_t i = 0; i < n; i++)
        dx[i] = x[i] < a || x[i] > b ? 0 : dy[i];
}

static void map_elu(const struct map_spec *m, size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] > 0 ? x[i] : (float)(m->a * expm1((double)x[i]));
}

/* In place, x holds y by this time: its sign is x's, for no `a` that is allowed in place is
 * negative. */
static void elu_back(const struct map_spec *m, size_t n, const float *x, const float *y,
                     const float *dy, float *dx)
{
    float a = (float)m->a;
    for (size_t i = 0; i < n; i++)
        dx[i] = x[i] > 0 ? dy[i] : dy[i] * (y[i] + a);
}

static struct map_loops loops_of(const struct map_spec *m)
{
    switch (m->kind) {
    case MAP_POWER:
        if (m->a == 0.0 || m->c == 0.0)
            return (struct map_loops){map_power, constant_back, false};
        if (m->c == 1.0)
            return (struct map_loops){map_affine, affine_back, false};
        return m->c == 2.0 ? (struct map_loops){map_square, square_back, true}
                           : (struct map_loops){map_power, power_back, true};
    case MAP_EXP: return (struct map_loops){map_exponential, exponential_back, false};
    case MAP_LOG: return (struct map_loops){map_logarithm, logarithm_back, true};
    case MAP_ABS: return (struct map_loops){map_absolute, absolute_back, true};
    case MAP_TANH: return (struct map_loops){map_hyperbolic, hyperbolic_back, false};
    case MAP_CLIP: return (struct map_loops){map_clip, clip_back, true};
    default: return (struct map_loops){map_elu, elu_back, m->a < 0.0};
    }
}

struct map_op {
    struct op op;
    struct map_spec spec;
    struct map_loops loops;
};

static void map_forward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct map_op *map = (const struct map_op *)op;
    size_t n = map->spec.n;
    PARALLEL_EACH(i, 0, n, CHUNK, n >= PARALLEL_MIN,
                  map->loops.forward(&map->spec, chunk_at(n, i), io.x + i, io.y + i));
}

static void map_backward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct map_op *map = (const struct map_op *)op;
    if (!io.dx)
        return;
    size_t n = map->spec.n;
    PARALLEL_EACH(
        i, 0, n, CHUNK, n >= PARALLEL_MIN,
        map->loops.backward(&map->spec, chunk_at(n, i), io.x + i, io.y + i, io.dy + i, io.dx + i));
}

static const struct op_ops map_training = {map_forward, map_backward, NULL};
static const struct op_ops map_inference = {map_forward, NULL, NULL};

int map_plan(const struct map_spec *spec, bool training, struct arena *arena, struct op **op,
             struct err *err)
{
    struct map_op *map = arena_new(arena, struct map_op);
    if (!map)
        return plan_nomem("element-wise", err);
    *map = (struct map_op){
        .op = {.ops = training ? &map_training : &map_inference},
        .spec = *spec,
        .loops = loops_of(spec),
    };
    map->op.in_place = !training || !map->loops.reads_x;
    *op = &map->op;
    return OK;
}

bool map_reads_x(const struct op *op)
{
    const struct map_op *map = (const struct map_op *)op;
    return map->loops.reads_x || map->spec.kind == MAP_ELU;
}
