#include "tensor/kernels_common.h"

#include "base/fault.h"
#include "tensor/parallel.h"
#include "tensor/relu_loops.h"
#include "tensor/softmax_loops.h"
#include "tensor/turn.h"

struct image image_of(const struct shape *shape)
{
    PL_ASSERT(shape->n == 4);
    return (struct image){shape->dim[0], shape->dim[1], shape->dim[2], shape->dim[3]};
}

static bool axis_covered(size_t x, size_t y, size_t kernel, size_t stride, size_t pad)
{
    return kernel > pad && (y - 1) * stride < x + pad;
}

int pool_check(const struct pool_spec *spec, struct err *err)
{
    struct image x = image_of(&spec->x), y = image_of(&spec->y);
    PL_ASSERT(x.N == y.N && x.C == y.C && y.H > 0 && y.W > 0);
    PL_ASSERT(spec->stride_h > 0 && spec->stride_w > 0);
    if (axis_covered(x.H, y.H, spec->kernel_h, spec->stride_h, spec->pad_h) &&
        axis_covered(x.W, y.W, spec->kernel_w, spec->stride_w, spec->pad_w))
        return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "pooling %zux%zu, stride %zux%zu, padding %zux%zu on a %zux%zu image: a window "
                   "holds no pixel",
                   spec->kernel_h, spec->kernel_w, spec->stride_h, spec->stride_w, spec->pad_h,
                   spec->pad_w, x.H, x.W);
}

static void conv_check_axis(size_t x, size_t y, size_t kernel, size_t stride, size_t pad,
                            size_t dilation)
{
    PL_ASSERT(kernel > 0 && stride > 0 && dilation > 0);
    size_t span = dilation * (kernel - 1) + 1;
    PL_ASSERT(x + 2 * pad >= span && y == (x + 2 * pad - span) / stride + 1);
}

void conv_check(const struct conv_spec *s)
{
    struct image x = image_of(&s->x), y = image_of(&s->y);
    PL_ASSERT(x.N == y.N && x.C > 0 && y.C > 0);
    PL_ASSERT(s->groups > 0 && x.C % s->groups == 0 && y.C % s->groups == 0);
    conv_check_axis(x.H, y.H, s->kernel_h, s->stride_h, s->pad_h, s->dilation_h);
    conv_check_axis(x.W, y.W, s->kernel_w, s->stride_w, s->pad_w, s->dilation_w);
}

struct conv_spec conv_turned(const struct conv_spec *spec)
{
    struct conv_spec turned = *spec;
    turned.x = spec->y;
    turned.y = spec->x;
    turned.bias = false;
    return turned;
}

void lrn_check(const struct lrn_spec *spec)
{
    PL_ASSERT(spec->x.n == 4 && spec->size % 2 == 1);
}

void inner_check(const struct inner_spec *spec, enum layout x_layout)
{
    PL_ASSERT(spec->x.n >= 2 && spec->y.n == 2 && spec->x.dim[0] == spec->y.dim[0]);
    PL_ASSERT(x_layout == LAYOUT_PLAIN || spec->x.n == 4);
}

bool inner_needs_reorder(const struct inner_spec *spec, enum layout x_layout)
{
    return x_layout != LAYOUT_PLAIN && spec->x.dim[1] > 1 && spec->x.dim[2] * spec->x.dim[3] > 1;
}

/* Planes of colours: the rows are as short as can be. */
static size_t transpose_three(size_t C, const float *x, float *y)
{
    size_t c = 0;
    for (; c + 4 <= C; c += 4)
        turn_three(x + c, C, y + 3 * c);
    return c;
}

/* All but the last R mod 4 rows and C mod 4 columns; by tiles, whose cache lines fit in a cache at
 * any distance between them. */
static void transpose_fours(size_t R, size_t C, const float *x, float *y)
{
    enum { TILE = 32 };
    size_t rows = R / 4 * 4, columns = C / 4 * 4;
    for (size_t r0 = 0; r0 < rows; r0 += TILE)
        for (size_t c = 0; c < columns; c += 4)
            for (size_t r = r0; r < min_size(r0 + TILE, rows); r += 4)
                turn_four(x + r * C + c, C, y + c * R + r, R);
}

void transpose(size_t R, size_t C, const float *x, float *y)
{
    size_t rows = R / 4 * 4, columns = C / 4 * 4;
    if (R == 3)
        columns = transpose_three(C, x, y);
    else
        transpose_fours(R, C, x, y);
    for (size_t c = 0; c < columns && R != 3; c++)
        for (size_t r = rows; r < R; r++)
            y[c * R + r] = x[r * C + c];
    for (size_t c = columns; c < C; c++)
        for (size_t r = 0; r < R; r++)
            y[c * R + r] = x[r * C + c];
}

void add_floats(size_t n, const float *restrict x, float *restrict y)
{
    if (n >= PARALLEL_MIN) {
#pragma omp parallel for simd schedule(static)
        for (size_t i = 0; i < n; i++)
            y[i] += x[i];
        return;
    }
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

void column_sums_add(size_t N, size_t O, const float *restrict dy, float *restrict db)
{
    for (size_t n = 0; n < N; n++)
        for (size_t o = 0; o < O; o++)
            db[o] += dy[n * O + o];
}

int plan_nomem(const char *what, struct err *err)
{
    return err_set(err, ERR_NOMEM, "no memory for a %s op", what);
}

struct relu_op {
    struct op op;
    size_t n;
    enum dtype dtype;
    float negative_slope;
    const struct relu_loops *loops;
};

enum { RELU_CHUNK = 8 * 1024 };

static void rectify_values(const struct relu_op *relu, const void *x, const void *v, void *y)
{
    enum dtype dtype = relu->dtype;
    size_t n = relu->n;
    PARALLEL_EACH(i, 0, n, RELU_CHUNK, n >= PARALLEL_MIN,
                  relu->loops->run(min_size(RELU_CHUNK, n - i), relu->negative_slope,
                                   dtype_in(dtype, x, i), dtype_in(dtype, v, i),
                                   dtype_at(dtype, y, i)));
}

static void relu_forward(struct op *op, const struct op_args *args)
{
    rectify_values((const struct relu_op *)op, args->x, args->x, args->y);
}

/* In place, x holds y by this time: its sign is that of x, since slopes in place are not
 * negative. */
static void relu_backward(struct op *op, const struct op_args *args)
{
    if (args->dx)
        rectify_values((const struct relu_op *)op, args->x, args->dy, args->dx);
}

static const struct op_ops relu_training = {relu_forward, relu_backward, NULL};
static const struct op_ops relu_inference = {relu_forward, NULL, NULL};

int plan_relu(const struct relu_spec *spec, enum layout layout, bool training, struct arena *arena,
              struct op **op, struct err *err)
{
    struct relu_op *self = arena_new(arena, struct relu_op);
    if (!self)
        return plan_nomem("ReLU", err);
    *self = (struct relu_op){
        .op = {.ops = training ? &relu_training : &relu_inference,
               .x_layout = layout,
               .y_layout = layout,
               .in_place = spec->negative_slope >= 0},
        .n = shape_count(&spec->x),
        .dtype = spec->dtype,
        .negative_slope = spec->negative_slope,
        .loops = spec->dtype == DTYPE_BF16 ? ISA_PICK(relu_loops_bf16) : ISA_PICK(relu_loops),
    };
    *op = &self->op;
    return OK;
}

struct softmax_op {
    struct op op;
    size_t N, C;
    const struct softmax_loops *loops;
};

static void softmax_forward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct softmax_op *softmax = (const struct softmax_op *)op;
    size_t N = softmax->N, C = softmax->C;
    PARALLEL_EACH(n, 0, N, 1, N * C >= PARALLEL_MIN,
                  softmax->loops->row(C, io.x + n * C, io.y + n * C));
}

static const struct op_ops softmax_ops = {softmax_forward, NULL, NULL};

int plan_softmax(const struct shape *x, const struct softmax_loops *loops, struct arena *arena,
                 struct op **op, struct err *err)
{
    PL_ASSERT(x->n == 2 && x->dim[1] > 0);
    struct softmax_op *softmax = arena_new(arena, struct softmax_op);
    if (!softmax)
        return plan_nomem("softmax", err);
    *softmax = (struct softmax_op){
        .op = {.ops = &softmax_ops, .in_place = true},
        .N = x->dim[0],
        .C = x->dim[1],
        .loops = loops,
    };
    *op = &softmax->op;
    return OK;
}
