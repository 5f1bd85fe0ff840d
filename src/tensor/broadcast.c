#include "tensor/broadcast.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"
#include "tensor/slices.h"

#include <string.h>

/* One record of x as it lies in memory, outermost dimension first: how many there are, how far
 * apart in x, and how far apart their entries of w, 0 where w is repeated. */
struct walk {
    size_t n, dim[SHAPE_DIMS_MAX], step[SHAPE_DIMS_MAX], w_step[SHAPE_DIMS_MAX];
};

struct broadcast_op {
    struct op op;
    enum broadcast_kind kind;
    bool bias;
    struct walk walk;
    size_t N, floats, W; /* records; floats of one; entries of w that it meets */
    size_t w_record;     /* from the entries of one record to those of the next: W or 0 */
    size_t sums;         /* W, or 2 W if db follows dw */
    struct slices slices;
    double *part; /* sums of each record of a slice */
};

/* ---- geometry ---- */

static const size_t nhwc[] = {0, 2, 3, 1};

/* The steps in memory between neighbours along each axis. */
static void steps_of(const struct shape *shape, enum layout layout, size_t *step)
{
    size_t s = 1;
    for (size_t i = shape->n; i-- > 0;) {
        size_t k = layout == LAYOUT_NHWC ? nhwc[i] : i;
        step[k] = s;
        s *= shape->dim[k];
    }
}

/* Dimensions in the order of memory; neighbours that are one in x and in w become one. */
static struct walk walk_of(const struct broadcast_spec *spec)
{
    size_t step[SHAPE_DIMS_MAX], w_step[SHAPE_DIMS_MAX];
    struct walk walk = {.n = 1, .dim = {1}, .step = {1}};
    steps_of(&spec->x, spec->layout, step);
    steps_of(&spec->w, spec->w_layout, w_step);
    for (size_t i = 1; i < spec->x.n; i++) {
        size_t k = spec->layout == LAYOUT_NHWC ? nhwc[i] : i, last = walk.n - 1;
        bool has = k >= spec->axis && k < spec->axis + spec->w.n;
        size_t w = has ? w_step[k - spec->axis] : 0, dim = spec->x.dim[k];
        if (dim == 1)
            continue;
        if (walk.dim[last] == 1) {
            walk.dim[last] = dim;
        } else if (walk.w_step[last] == w * dim) {
            walk.dim[last] *= dim;
        } else {
            last = walk.n++;
            walk.dim[last] = dim;
        }
        walk.step[last] = step[k];
        walk.w_step[last] = w;
    }
    return walk;
}

/* ---- rows: n neighbours in x, whose entries of w are s apart ---- */

typedef void row_fn(const struct broadcast_op *op, const void *pass, size_t n, size_t x, size_t w,
                    size_t s);

static void walk_rows(const struct broadcast_op *op, size_t d, size_t x, size_t w, row_fn *row,
                      const void *pass)
{
    const struct walk *walk = &op->walk;
    if (d + 1 == walk->n) {
        row(op, pass, walk->dim[d], x, w, walk->w_step[d]);
        return;
    }
    for (size_t i = 0; i < walk->dim[d]; i++)
        walk_rows(op, d + 1, x + i * walk->step[d], w + i * walk->w_step[d], row, pass);
}

static void scale_row(size_t n, const float *x, const float *w, const float *b, size_t s, float *y)
{
    if (s == 0)
        for (size_t i = 0; i < n; i++)
            y[i] = b ? w[0] * x[i] + b[0] : w[0] * x[i];
    else
        for (size_t i = 0; i < n; i++)
            y[i] = b ? w[i * s] * x[i] + b[i * s] : w[i * s] * x[i];
}

static void bias_row(size_t n, const float *x, const float *w, size_t s, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] + w[i * s];
}

/* v where x > 0, else w·v: v is x on the way there, and dy on the way back. */
static void slope_row(size_t n, const float *x, const float *v, const float *w, size_t s, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] > 0 ? v[i] : w[i * s] * v[i];
}

static void forward_row(const struct broadcast_op *op, const void *pass, size_t n, size_t x,
                        size_t w, size_t s)
{
    const struct op_args *args = pass;
    const struct op_floats io = op_floats(args);
    const float *at = io.x + x, *b = op->bias ? args->b + w : NULL;
    switch (op->kind) {
    case BROADCAST_SCALE: scale_row(n, at, args->w + w, b, s, io.y + x); break;
    case BROADCAST_BIAS: bias_row(n, at, args->w + w, s, io.y + x); break;
    case BROADCAST_SLOPE: slope_row(n, at, at, args->w + w, s, io.y + x); break;
    }
}

static void backward_row(const struct broadcast_op *op, const void *pass, size_t n, size_t x,
                         size_t w, size_t s)
{
    const struct op_args *args = pass;
    const struct op_floats io = op_floats(args);
    const float *dy = io.dy + x;
    if (op->kind == BROADCAST_SCALE)
        scale_row(n, dy, args->w + w, NULL, s, io.dx + x);
    else
        slope_row(n, io.x + x, dy, args->w + w, s, io.dx + x);
}

struct sum_pass {
    const struct op_args *args;
    double *sum;
};

static double sum_term(enum broadcast_kind kind, float x, float dy)
{
    switch (kind) {
    case BROADCAST_SCALE: return (double)dy * (double)x;
    case BROADCAST_SLOPE: return x > 0 ? 0.0 : (double)dy * (double)x;
    default: return (double)dy;
    }
}

/* All of a row into one number, by lanes, so that it does not wait for itself at each step. */
static double fold_row(enum broadcast_kind kind, size_t n, const float *x, const float *dy)
{
    enum { LANES = 8 };
    double lane[LANES] = {0};
    for (size_t i = 0; i < n; i += LANES) {
        size_t lanes = n - i < LANES ? n - i : LANES;
        for (size_t l = 0; l < lanes; l++)
            lane[l] += sum_term(kind, x[i + l], dy[i + l]);
    }
    for (size_t width = LANES / 2; width; width /= 2)
        for (size_t l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return lane[0];
}

static void add_row(enum broadcast_kind kind, size_t n, const float *x, const float *dy, size_t s,
                    double *sum)
{
    if (s == 0)
        sum[0] += fold_row(kind, n, x, dy);
    else
        for (size_t i = 0; i < n; i++)
            sum[i * s] += sum_term(kind, x[i], dy[i]);
}

static void sum_row(const struct broadcast_op *op, const void *pass, size_t n, size_t x, size_t w,
                    size_t s)
{
    const struct sum_pass *sums = pass;
    const struct op_floats io = op_floats(sums->args);
    const float *at = io.x + x, *dy = io.dy + x;
    add_row(op->kind, n, at, dy, s, sums->sum + w);
    if (op->bias)
        add_row(BROADCAST_BIAS, n, at, dy, s, sums->sum + op->W + w);
}

/* ---- records ---- */

static void each_record(const struct broadcast_op *op, row_fn *row, const struct op_args *args)
{
#pragma omp parallel for schedule(static) if (op->N * op->floats >= PARALLEL_MIN)
    for (size_t n = 0; n < op->N; n++)
        walk_rows(op, 0, n * op->floats, n * op->w_record, row, args);
}

static void broadcast_forward(struct op *op, const struct op_args *args)
{
    each_record((const struct broadcast_op *)op, forward_row, args);
}

struct slice_pass {
    const struct broadcast_op *op;
    const struct op_args *args;
};

/* Each record by itself, then one after another. */
static void sum_records(void *user, size_t first, size_t count, float *sum)
{
    const struct slice_pass *pass = user;
    const struct broadcast_op *op = pass->op;
    size_t sums = op->sums;
#pragma omp parallel for schedule(static) if (count * op->floats >= PARALLEL_MIN)
    for (size_t k = 0; k < count; k++) {
        struct sum_pass row = {pass->args, op->part + k * sums};
        memset(row.sum, 0, sums * sizeof *row.sum);
        walk_rows(op, 0, (first + k) * op->floats, 0, sum_row, &row);
    }
    for (size_t i = 0; i < sums; i++) {
        double all = op->part[i];
        for (size_t k = 1; k < count; k++)
            all += op->part[k * sums + i];
        sum[i] = (float)all;
    }
}

/* A w that has the records' axis: nothing is summed over them. */
static void sum_apart(const struct broadcast_op *op, const struct op_args *args)
{
    for (size_t n = 0; n < op->N; n++) {
        struct sum_pass row = {args, op->part};
        memset(op->part, 0, op->sums * sizeof *op->part);
        walk_rows(op, 0, n * op->floats, 0, sum_row, &row);
        for (size_t i = 0; i < op->W; i++)
            args->dw[n * op->W + i] += (float)op->part[i];
    }
}

static void add_sums(struct broadcast_op *op, const struct op_args *args)
{
    struct slice_pass pass = {op, args};
    const float *sum = slices_sum(&op->slices, sum_records, &pass);
    if (args->dw)
        add_floats(op->W, sum, args->dw);
    if (args->db)
        add_floats(op->W, sum + op->W, args->db);
}

static void broadcast_backward(struct op *base, const struct op_args *args)
{
    struct broadcast_op *op = (struct broadcast_op *)base;
    if (!op->w_record && (args->dw || args->db))
        add_sums(op, args);
    else if (args->dw)
        sum_apart(op, args);
    if (!args->dx)
        return;
    if (op->kind != BROADCAST_BIAS)
        each_record(op, backward_row, args);
    else if (args->dx != args->dy)
        memcpy(args->dx, args->dy, op->N * op->floats * sizeof(float));
}

static const struct op_ops training_ops = {broadcast_forward, broadcast_backward, NULL};
static const struct op_ops inference_ops = {broadcast_forward, NULL, NULL};

static void check_spec(const struct broadcast_spec *spec)
{
    PL_ASSERT(spec->axis + spec->w.n <= spec->x.n);
    PL_ASSERT(spec->layout == LAYOUT_PLAIN || (spec->layout == LAYOUT_NHWC && spec->x.n == 4));
    PL_ASSERT(spec->w_layout == LAYOUT_PLAIN || (spec->w_layout == LAYOUT_NHWC && spec->w.n == 4));
    for (size_t i = 0; i < spec->w.n; i++)
        PL_ASSERT(spec->w.dim[i] == spec->x.dim[spec->axis + i]);
}

int broadcast_plan(const struct broadcast_spec *spec, bool training, struct arena *arena,
                   struct op **op, struct err *err)
{
    check_spec(spec);
    struct broadcast_op *self = arena_new(arena, struct broadcast_op);
    if (!self)
        return plan_nomem("broadcast", err);
    bool apart = spec->axis == 0 && spec->w.n > 0;
    size_t N = spec->x.n ? spec->x.dim[0] : 1, sums = 0;
    PL_ASSERT(!apart || !spec->bias);
    *self = (struct broadcast_op){
        .op = {.ops = training ? &training_ops : &inference_ops,
               .x_layout = spec->layout,
               .y_layout = spec->layout,
               .in_place = !training || spec->kind == BROADCAST_BIAS},
        .kind = spec->kind,
        .bias = spec->bias,
        .walk = walk_of(spec),
        .N = N,
        .floats = shape_count(&spec->x) / N,
        .W = shape_count(&spec->w) / (apart ? N : 1),
    };
    self->w_record = apart ? self->W : 0;
    self->sums = spec->bias ? 2 * self->W : self->W;
    *op = &self->op;
    if (!training)
        return OK;
    size_t parts = (apart ? 1 : SLICE_RECORDS) * self->sums;
    self->part = arena_array(arena, parts, double);
    if (!self->part || (!apart && slices_init(&self->slices, arena, N, self->sums, &sums) != OK))
        return plan_nomem("broadcast", err);
    self->op.scratch_bytes = sums + parts * sizeof(double);
    return OK;
}
