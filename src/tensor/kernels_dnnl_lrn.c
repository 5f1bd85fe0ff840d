/* Local response normalisation of NHWC images, by Paceline's own loops: oneDNN's fast code requires
 * channels in whole vectors. */
#include "tensor/kernels_dnnl.h"

#include "tensor/kernels_common.h"
#include "tensor/lrn_loops.h"

#include <omp.h>

struct lrn_op {
    struct op op;
    struct lrn_form form;
    const struct lrn_loops *loops;
    size_t N;
    int threads;
    size_t floats; /* of a thread's scratch */
    float *scratch;
};

static float *scratch_of(const struct lrn_op *lrn)
{
    return lrn->scratch + (size_t)omp_get_thread_num() * lrn->floats;
}

static size_t pixels_of(const struct lrn_op *lrn)
{
    return lrn->N * lrn->form.H * lrn->form.W;
}

static size_t pixels_at(size_t all, size_t i)
{
    return all - i < LRN_PIXELS ? all - i : LRN_PIXELS;
}

static void across_forward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct lrn_op *lrn = (const struct lrn_op *)op;
    size_t C = lrn->form.C, all = pixels_of(lrn);
#pragma omp parallel for schedule(static) num_threads(lrn->threads)
    for (size_t i = 0; i < all; i += LRN_PIXELS)
        lrn->loops->across(&lrn->form, pixels_at(all, i), io.x + i * C, scratch_of(lrn),
                           io.y + i * C);
}

static void across_backward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct lrn_op *lrn = (const struct lrn_op *)op;
    size_t C = lrn->form.C, all = pixels_of(lrn);
    if (!io.dx)
        return;
#pragma omp parallel for schedule(static) num_threads(lrn->threads)
    for (size_t i = 0; i < all; i += LRN_PIXELS)
        lrn->loops->across_back(&lrn->form, pixels_at(all, i), io.x + i * C, io.dy + i * C,
                                scratch_of(lrn), io.dx + i * C);
}

static void within_forward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct lrn_op *lrn = (const struct lrn_op *)op;
    size_t size = lrn->form.H * lrn->form.W * lrn->form.C;
#pragma omp parallel for schedule(static) num_threads(lrn->threads)
    for (size_t n = 0; n < lrn->N; n++)
        lrn->loops->within(&lrn->form, io.x + n * size, scratch_of(lrn), io.y + n * size);
}

static void within_backward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct lrn_op *lrn = (const struct lrn_op *)op;
    size_t size = lrn->form.H * lrn->form.W * lrn->form.C;
    if (!io.dx)
        return;
#pragma omp parallel for schedule(static) num_threads(lrn->threads)
    for (size_t n = 0; n < lrn->N; n++)
        lrn->loops->within_back(&lrn->form, io.x + n * size, io.dy + n * size, scratch_of(lrn),
                                io.dx + n * size);
}

/* ---- planning ---- */

static const struct op_ops across_training = {across_forward, across_backward, NULL};
static const struct op_ops across_inference = {across_forward, NULL, NULL};
static const struct op_ops within_training = {within_forward, within_backward, NULL};
static const struct op_ops within_inference = {within_forward, NULL, NULL};

static const struct op_ops *ops_of(enum lrn_region region, bool training)
{
    if (region == LRN_ACROSS)
        return training ? &across_training : &across_inference;
    return training ? &within_training : &within_inference;
}

static enum lrn_power power_of(float beta, float k, float share)
{
    if (beta == 0.75f && k >= 0x1p-60f && share >= 0)
        return LRN_QUARTERS;
    if (beta == 0.5f)
        return LRN_HALF;
    return beta == 1.0f ? LRN_ONE : LRN_ANY;
}

static struct lrn_form form_of(const struct lrn_spec *spec)
{
    struct image x = image_of(&spec->x);
    bool across = spec->region == LRN_ACROSS;
    float size = (float)spec->size;
    struct lrn_form form = {.H = x.H, .W = x.W, .C = x.C, .size = spec->size, .beta = spec->beta};
    form.k = across ? spec->k : 1;
    form.share = across ? spec->alpha / size : spec->alpha / (size * size);
    form.power = power_of(form.beta, form.k, form.share);
    size_t all = 2 * x.C - 1; /* a wider window has no more in it than zeros */
    if (across && form.size > all)
        form.size = all;
    return form;
}

int dnnl_set_lrn(const struct lrn_spec *spec, bool training, struct arena *arena, struct op **op,
                 struct err *err)
{
    lrn_check(spec);
    struct lrn_op *lrn = arena_new(arena, struct lrn_op);
    if (!lrn)
        return plan_nomem("LRN", err);
    *lrn = (struct lrn_op){
        .op = {.ops = ops_of(spec->region, training),
               .x_layout = LAYOUT_NHWC,
               .y_layout = LAYOUT_NHWC},
        .form = form_of(spec),
        .loops = ISA_PICK(lrn_loops),
        .N = spec->x.dim[0],
        .threads = shape_count(&spec->x) >= PARALLEL_MIN ? omp_get_max_threads() : 1,
    };
    bool across = spec->region == LRN_ACROSS;
    size_t need =
        across ? lrn->loops->across_floats(&lrn->form) : lrn->loops->within_floats(&lrn->form);
    lrn->floats = (need + 15) / 16 * 16;
    lrn->scratch = arena_array(arena, (size_t)lrn->threads * lrn->floats, float);
    if (!lrn->scratch)
        return plan_nomem("LRN", err);
    lrn->op.scratch_bytes = (size_t)lrn->threads * lrn->floats * sizeof(float);
    *op = &lrn->op;
    return OK;
}
