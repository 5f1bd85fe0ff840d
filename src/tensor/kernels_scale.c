/* Scale: y = w·x + b by channel; dx = w·dy, dw = Σ dy·x, db = Σ dy. */
#include "tensor/channels.h"
#include "tensor/kernels_common.h"
#include "tensor/slices.h"

struct scale_op {
    struct op op;
    struct channels ch;
    size_t N;
    bool bias;
    struct slices sums;  /* dw, then db */
    double *part, *both; /* of a slice: db, then dw */
};

static void scale_forward(struct op *op, const struct op_args *args)
{
    const struct scale_op *scale = (const struct scale_op *)op;
    const struct channels_terms terms = {
        .p = args->w, .x = args->x, .b = scale->bias ? args->b : NULL};
    channels_combine(&scale->ch, scale->N, &terms, args->y);
}

struct scale_pass {
    const struct scale_op *scale;
    const float *x, *dy;
};

static void sum_records(void *user, size_t first, size_t count, float *sum)
{
    const struct scale_pass *pass = user;
    const struct scale_op *scale = pass->scale;
    size_t C = scale->ch.C, at = first * C * scale->ch.S;
    channels_sum(&scale->ch, count, pass->dy + at, pass->x + at, scale->part, scale->both);
    for (size_t c = 0; c < C; c++) {
        sum[c] = (float)scale->both[C + c];
        sum[C + c] = (float)scale->both[c];
    }
}

static void scale_backward(struct op *op, const struct op_args *args)
{
    struct scale_op *scale = (struct scale_op *)op;
    struct scale_pass pass = {scale, args->x, args->dy};
    const float *sum = slices_sum(&scale->sums, sum_records, &pass);
    add_floats(scale->ch.C, sum, args->dw);
    if (scale->bias)
        add_floats(scale->ch.C, sum + scale->ch.C, args->db);
    if (args->dx)
        channels_combine(&scale->ch, scale->N,
                         &(struct channels_terms){.p = args->w, .x = args->dy}, args->dx);
}

static const struct op_ops scale_training = {scale_forward, scale_backward, NULL};
static const struct op_ops scale_inference = {scale_forward, NULL, NULL};

int plan_scale(const struct scale_spec *spec, enum layout layout, bool training,
               struct arena *arena, struct op **op, struct err *err)
{
    struct scale_op *scale = arena_new(arena, struct scale_op);
    if (!scale)
        return plan_nomem("scale", err);
    *scale = (struct scale_op){
        .op = {.ops = training ? &scale_training : &scale_inference,
               .x_layout = layout,
               .y_layout = layout,
               .in_place = !training},
        .ch = channels_of(&spec->x, layout),
        .N = spec->x.dim[0],
        .bias = spec->bias,
    };
    *op = &scale->op;
    if (!training)
        return OK;
    size_t C = scale->ch.C, sums = 0;
    scale->part = arena_array(arena, 2 * SLICE_RECORDS * C, double);
    scale->both = arena_array(arena, 2 * C, double);
    if (!scale->part || !scale->both ||
        slices_init(&scale->sums, arena, scale->N, 2 * C, &sums) != OK)
        return plan_nomem("scale", err);
    scale->op.scratch_bytes = sums + 2 * (SLICE_RECORDS + 1) * C * sizeof(double);
    return OK;
}
