/* Convolution over NHWC images, or images in blocks, deconvolution over NHWC, and the dnnl set as a
 * whole.
 *
 * A convolution has three directions, each by a code of its own choosing: forward, from x to y;
 * back to dx; and to dw and db. A deconvolution is the convolution from its y to its x, turned
 * round: its forward is that one's way back, its way back that one's forward. The way back knows no
 * bias, which a deconvolution then adds by a loop of ours. */
#include "tensor/kernels_dnnl.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"
#include "tensor/kernels_dnnl_choose.h"
#include "tensor/recurrence.h"
#include "tensor/slices.h"
#include "tensor/softmax_loops.h"

#include <stdio.h>
#include <string.h>

struct conv_op {
    struct op op;
    struct onednn dnn;
    struct conv_spec spec; /* of the convolution; */
    struct conv_spec back; /* of its dw, without a bias where no db is wanted */
    struct conv_code *code[ONEDNN_PASSES];
    struct op_scratch own; /* where it is not shared */
    bool timed;            /* all codes until now */
    bool bias;             /* of a deconvolution */
    struct slices sums;    /* of its db */
    char chosen[3 * (TUNER_NAME_MAX + 16)];
};

static void execute_primitive(const struct conv_op *conv, enum onednn_pass pass,
                              const struct op_args *args)
{
    PL_ASSERT(conv->code[pass]);
    conv->code[pass]->run(conv->code[pass], args);
}

static void conv_forward(struct op *op, const struct op_args *args)
{
    execute_primitive((const struct conv_op *)op, ONEDNN_FORWARD, args);
}

static void conv_backward(struct op *op, const struct op_args *args)
{
    const struct conv_op *conv = (const struct conv_op *)op;
    if (args->dw)
        execute_primitive(conv, ONEDNN_BACKWARD_WEIGHTS, args);
    if (args->dx)
        execute_primitive(conv, ONEDNN_BACKWARD_DATA, args);
}

/* ---- what a deconvolution adds ---- */

static void add_bias(size_t pixels, size_t C, const float *restrict b, float *restrict y)
{
#pragma omp parallel for schedule(static) if (pixels * C >= PARALLEL_MIN)
    for (size_t p = 0; p < pixels; p++)
        for (size_t c = 0; c < C; c++)
            y[p * C + c] += b[c];
}

static void deconv_forward(struct op *op, const struct op_args *args)
{
    const struct conv_op *conv = (const struct conv_op *)op;
    const struct op_args turned = {.dy = args->x, .w = args->w, .dx = args->y};
    struct image y = image_of(&conv->spec.x);
    execute_primitive(conv, ONEDNN_BACKWARD_DATA, &turned);
    if (conv->bias)
        add_bias(y.N * y.H * y.W, y.C, args->b, args->y);
}

struct bias_pass {
    const struct conv_op *conv;
    const float *dy;
};

static void sum_bias(void *user, size_t first, size_t count, float *sum)
{
    const struct bias_pass *pass = user;
    struct image y = image_of(&pass->conv->spec.x);
    size_t P = y.H * y.W;
    memset(sum, 0, y.C * sizeof *sum);
    column_sums_add(count * P, y.C, pass->dy + first * P * y.C, sum);
}

static void deconv_backward(struct op *op, const struct op_args *args)
{
    struct conv_op *conv = (struct conv_op *)op;
    struct bias_pass pass = {conv, args->dy};
    const struct op_args turned = {
        .x = args->dy, .w = args->w, .y = args->dx, .dy = args->x, .dw = args->dw};
    execute_primitive(conv, ONEDNN_BACKWARD_WEIGHTS, &turned);
    if (conv->bias)
        add_floats(conv->spec.x.dim[1], slices_sum(&conv->sums, sum_bias, &pass), args->db);
    if (args->dx)
        execute_primitive(conv, ONEDNN_FORWARD, &turned);
}

static void conv_release(struct op *op)
{
    onednn_release(&((struct conv_op *)op)->dnn);
}

static const struct op_ops conv_training = {conv_forward, conv_backward, conv_release};
static const struct op_ops conv_inference = {conv_forward, NULL, conv_release};
static const struct op_ops deconv_training = {deconv_forward, deconv_backward, conv_release};
static const struct op_ops deconv_inference = {deconv_forward, NULL, conv_release};

/* ---- planning ---- */

/* One convolution being planned. */
struct plan {
    struct conv_op *conv;
    bool turned;
    const struct plan_options *options;
    struct op_scratch *scratch;
    struct err *err;
};

static int plan_fail(const struct plan *plan, dnnl_status_t status, const char *slow)
{
    const struct conv_spec *s = &plan->conv->spec;
    const struct shape *x = plan->turned ? &s->y : &s->x, *y = plan->turned ? &s->x : &s->y;
    char text[96], what[ERR_TEXT_MAX / 2];
    snprintf(what, sizeof what,
             "a %zux%zu %s, stride %zux%zu, padding %zux%zu, dilation %zux%zu, of %s into %zu "
             "channels in %zu groups",
             s->kernel_h, s->kernel_w, plan->turned ? "deconvolution" : "convolution", s->stride_h,
             s->stride_w, s->pad_h, s->pad_w, s->dilation_h, s->dilation_w,
             shape_text(x, text, sizeof text), y->dim[1], s->groups);
    return onednn_fail(status, slow, what, plan->err);
}

/* The tuner's choice may need more memory than the rule's choice, which is then used instead. */
static dnnl_status_t plan_chosen(const struct plan *plan, const struct conv_site *site,
                                 struct conv_candidate *candidate, double *seconds)
{
    struct conv_code **code = &plan->conv->code[site->pass];
    dnnl_status_t status = conv_code_plan(site, candidate, code);
    if (!status || !plan->options->tuner)
        return status;
    *seconds = 0;
    status = conv_rule(site, candidate);
    return status ? status : conv_code_plan(site, candidate, code);
}

static void count_threads(struct op_reorders *sum, const struct conv_code *code)
{
    if (!code)
        return;
    sum->images += code->reorders.images;
    sum->weights += code->reorders.weights;
}

/* `what` is the direction's name for the op's user. */
static int plan_code(const struct plan *plan, enum onednn_pass pass, const char *what)
{
    struct conv_op *conv = plan->conv;
    enum onednn_pass other = pass == ONEDNN_FORWARD ? ONEDNN_BACKWARD_DATA : ONEDNN_FORWARD;
    const struct conv_site site = {
        .spec = pass == ONEDNN_BACKWARD_WEIGHTS ? &conv->back : &conv->spec,
        .pass = pass,
        .training = plan->options->training || plan->turned, /* only then is there a backward
                                                                pass */
        .cold = plan->options->training &&
                pass == (plan->turned ? ONEDNN_BACKWARD_DATA : ONEDNN_FORWARD),
        .dnn = &conv->dnn,
        .arena = plan->options->arena,
        .scratch = plan->scratch,
        .bytes = &conv->op.scratch_bytes,
        .first = conv->code[other],
    };
    struct conv_candidate candidate = {.name = ""};
    double seconds;
    dnnl_status_t status = conv_choose(&site, plan->options->tuner, &candidate, &seconds);
    if (!status)
        status = plan_chosen(plan, &site, &candidate, &seconds);
    else if (status == dnnl_unimplemented && candidate.name[0])
        return plan_fail(plan, status, candidate.name);
    if (status)
        return plan_fail(plan, status, NULL);
    conv->timed = conv->timed && seconds > 0;
    conv->op.seconds = conv->timed ? conv->op.seconds + seconds : 0;
    size_t len = strlen(conv->chosen);
    snprintf(conv->chosen + len, sizeof conv->chosen - len, "%s%s %s", len ? ", " : "", what,
             candidate.name);
    return OK;
}

/* The op's forward is planned first: it reorders the weights that its backward may read, too. */
static int plan_codes(const struct plan *plan)
{
    bool turned = plan->turned;
    int rc = plan_code(plan, turned ? ONEDNN_BACKWARD_DATA : ONEDNN_FORWARD, "fwd");
    if (rc == OK && plan->options->training && !plan->options->no_dx)
        rc = plan_code(plan, turned ? ONEDNN_FORWARD : ONEDNN_BACKWARD_DATA, "bwd-data");
    if (rc == OK && plan->options->training)
        rc = plan_code(plan, ONEDNN_BACKWARD_WEIGHTS, "bwd-weights");
    struct conv_op *conv = plan->conv;
    count_threads(&conv->op.forward, conv->code[turned ? ONEDNN_BACKWARD_DATA : ONEDNN_FORWARD]);
    count_threads(&conv->op.backward, conv->code[turned ? ONEDNN_FORWARD : ONEDNN_BACKWARD_DATA]);
    count_threads(&conv->op.backward, conv->code[ONEDNN_BACKWARD_WEIGHTS]);
    return rc;
}

static int plan_all(const struct plan *plan)
{
    struct conv_op *conv = plan->conv;
    struct arena *arena = plan->options->arena;
    int rc = onednn_init(&conv->dnn, plan->err);
    if (rc == OK)
        rc = plan_codes(plan);
    if (rc != OK)
        return rc;
    size_t bytes = 0, channels = conv->spec.x.dim[1];
    if (conv->bias && plan->options->training &&
        slices_init(&conv->sums, arena, conv->spec.x.dim[0], channels, &bytes) != OK)
        return plan_nomem("deconvolution", plan->err);
    conv->op.scratch_bytes += bytes;
    if (plan->scratch != &conv->own)
        return OK;
    conv->own.at = arena_alloc(arena, 1, conv->own.bytes);
    conv->op.scratch_bytes += conv->own.bytes;
    return conv->own.at ? OK : plan_nomem("convolution", plan->err);
}

static int plan_either(const struct conv_spec *spec, bool turned,
                       const struct plan_options *options, struct op **op, struct err *err)
{
    const struct op_ops *ops = options->training ? &conv_training : &conv_inference;
    if (turned)
        ops = options->training ? &deconv_training : &deconv_inference;
    struct conv_op *conv = arena_new(options->arena, struct conv_op);
    if (!conv)
        return plan_nomem("convolution", err);
    enum layout x = spec->blocks ? layout_in_blocks(&spec->x) : LAYOUT_NHWC;
    enum layout y = spec->blocks ? layout_in_blocks(&spec->y) : LAYOUT_NHWC;
    *conv = (struct conv_op){
        .op = {.ops = ops, .x_layout = x, .y_layout = y, .chosen = conv->chosen},
        .spec = turned ? conv_turned(spec) : *spec,
        .bias = turned && spec->bias,
        .timed = true,
    };
    conv->spec.blocks = x == LAYOUT_BLOCKS || y == LAYOUT_BLOCKS;
    PL_ASSERT(!conv->spec.blocks || (!turned && spec->dtype == DTYPE_F32));
    conv_check(&conv->spec);
    conv->back = conv->spec;
    conv->back.bias = conv->spec.bias && !options->no_db;
    struct op_scratch *scratch = options->scratch ? options->scratch : &conv->own;
    const struct plan plan = {conv, turned, options, scratch, err};
    int rc = plan_all(&plan);
    if (rc != OK) {
        onednn_release(&conv->dnn);
        return rc;
    }
    *op = &conv->op;
    return OK;
}

static int plan_conv(const struct conv_spec *spec, const struct plan_options *options,
                     struct op **op, struct err *err)
{
    return plan_either(spec, false, options, op, err);
}

static int plan_deconv(const struct conv_spec *spec, const struct plan_options *options,
                       struct op **op, struct err *err)
{
    return plan_either(spec, true, options, op, err);
}

static int plan_recurrence(const struct recurrence_spec *spec, bool training, struct arena *arena,
                           struct recurrence **out, struct err *err)
{
    const struct recurrence_loops loops = {ISA_PICK(gate_loops), ISA_PICK(product_loops)};
    return recurrence_plan(spec, &kernels_dnnl, &loops, training, arena, out, err);
}

static int plan_softmax_loops(const struct shape *x, struct arena *arena, struct op **op,
                              struct err *err)
{
    return plan_softmax(x, ISA_PICK(softmax_loops), arena, op, err);
}

const struct kernels kernels_dnnl = {
    .name = "dnnl",
    .image_layout = LAYOUT_NHWC,
    .has_bf16 = true,
    .has_blocks = true,
    .conv = plan_conv,
    .deconv = plan_deconv,
    .pool = dnnl_set_pool,
    .lrn = dnnl_set_lrn,
    .inner = dnnl_set_inner,
    .relu = plan_relu,
    .sigmoid = dnnl_set_sigmoid,
    .scale = plan_scale,
    .softmax = plan_softmax_loops,
    .recurrence = plan_recurrence,
};
