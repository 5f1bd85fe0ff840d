/* A batch that is cut among workers has the bits of the whole: y and dx of every record, and dw and
 * db once the workers' are added as a tree adds its ranks'. */
#include "tensor/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"
#include "tensor/slices.h"

enum { PARTS_MAX = 4 };

struct layer {
    const char *name;
    size_t x, y, w, b; /* floats: of one record; of the parameters */
    int (*plan)(const struct kernels *set, size_t records, struct arena *arena, struct op **op,
                struct err *err);
};

static int plan_conv1(const struct kernels *set, size_t n, struct arena *arena, struct op **op,
                      struct err *err)
{
    const struct conv_spec spec = {
        .x = {4, {n, 1, 28, 28}},
        .y = {4, {n, 20, 24, 24}},
        .kernel_h = 5,
        .kernel_w = 5,
        .stride_h = 1,
        .stride_w = 1,
        .dilation_h = 1,
        .dilation_w = 1,
        .groups = 1,
        .bias = true,
    };
    return set->conv(&spec, &(struct plan_options){.training = true, .arena = arena}, op, err);
}

static int plan_conv2(const struct kernels *set, size_t n, struct arena *arena, struct op **op,
                      struct err *err)
{
    const struct conv_spec spec = {
        .x = {4, {n, 20, 12, 12}},
        .y = {4, {n, 50, 8, 8}},
        .kernel_h = 5,
        .kernel_w = 5,
        .stride_h = 1,
        .stride_w = 1,
        .dilation_h = 1,
        .dilation_w = 1,
        .groups = 1,
        .bias = true,
    };
    return set->conv(&spec, &(struct plan_options){.training = true, .arena = arena}, op, err);
}

static int plan_grouped(const struct kernels *set, size_t n, struct arena *arena, struct op **op,
                        struct err *err)
{
    const struct conv_spec spec = {
        .x = {4, {n, 32, 9, 9}},
        .y = {4, {n, 16, 9, 9}},
        .kernel_h = 3,
        .kernel_w = 3,
        .stride_h = 1,
        .stride_w = 1,
        .pad_h = 2,
        .pad_w = 2,
        .dilation_h = 2,
        .dilation_w = 2,
        .groups = 2,
        .bias = true,
    };
    return set->conv(&spec, &(struct plan_options){.training = true, .arena = arena}, op, err);
}

static int plan_deconv(const struct kernels *set, size_t n, struct arena *arena, struct op **op,
                       struct err *err)
{
    const struct conv_spec spec = {
        .x = {4, {n, 16, 5, 5}},
        .y = {4, {n, 12, 10, 10}},
        .kernel_h = 4,
        .kernel_w = 4,
        .stride_h = 2,
        .stride_w = 2,
        .pad_h = 1,
        .pad_w = 1,
        .dilation_h = 1,
        .dilation_w = 1,
        .groups = 1,
        .bias = true,
    };
    return set->deconv(&spec, &(struct plan_options){.training = true, .arena = arena}, op, err);
}

static int plan_pool(const struct kernels *set, size_t n, struct arena *arena, struct op **op,
                     struct err *err)
{
    const struct shape x = {4, {n, 12, 9, 9}}, y = {4, {n, 12, 5, 5}};
    const struct pool_spec spec = {POOL_AVERAGE, x, y, 3, 3, 2, 2, 1, 1, DTYPE_F32};
    return set->pool(&spec, true, arena, op, err);
}

static int plan_lrn(const struct kernels *set, size_t n, struct arena *arena, struct op **op,
                    struct err *err)
{
    const struct lrn_spec spec = {{4, {n, 12, 9, 9}}, LRN_ACROSS, 5, 1, 0.75f, 1};
    return set->lrn(&spec, true, arena, op, err);
}

static int plan_ip1(const struct kernels *set, size_t n, struct arena *arena, struct op **op,
                    struct err *err)
{
    const struct inner_spec spec = {{4, {n, 50, 4, 4}}, {2, {n, 500}}, true, 1};
    return set->inner(&spec, set->image_layout, true, arena, op, err);
}

static int plan_ip2(const struct kernels *set, size_t n, struct arena *arena, struct op **op,
                    struct err *err)
{
    const struct inner_spec spec = {{2, {n, 500}}, {2, {n, 10}}, true, 1};
    return set->inner(&spec, LAYOUT_PLAIN, true, arena, op, err);
}

/* More inputs than are multiplied at a time. The whole batch has more records than outputs, and the
 * parts have fewer: they are computed in other ways. */
static int plan_ip3(const struct kernels *set, size_t n, struct arena *arena, struct op **op,
                    struct err *err)
{
    const struct inner_spec spec = {{2, {n, 600}}, {2, {n, 30}}, true, 1};
    return set->inner(&spec, LAYOUT_PLAIN, true, arena, op, err);
}

static int plan_sigmoid(const struct kernels *set, size_t n, struct arena *arena, struct op **op,
                        struct err *err)
{
    const struct shape x = {2, {n, 481}};
    return set->sigmoid(&x, LAYOUT_PLAIN, true, arena, op, err);
}

static int plan_scale(const struct kernels *set, size_t n, struct arena *arena, struct op **op,
                      struct err *err)
{
    const struct scale_spec spec = {{4, {n, 12, 9, 7}}, true};
    return set->scale(&spec, set->image_layout, true, arena, op, err);
}

static const struct layer layers[] = {
    {"conv1", 28 * 28, 20 * 24 * 24, 20 * 25, 20, plan_conv1},
    {"conv2", 20 * 12 * 12, 50 * 8 * 8, 50 * 20 * 25, 50, plan_conv2},
    {"grouped", 32 * 9 * 9, 16 * 9 * 9, 16 * 16 * 9, 16, plan_grouped},
    {"deconv", 16 * 5 * 5, 12 * 10 * 10, 16 * 12 * 16, 12, plan_deconv},
    {"pool", 12 * 9 * 9, 12 * 5 * 5, 0, 0, plan_pool},
    {"lrn", 12 * 9 * 9, 12 * 9 * 9, 0, 0, plan_lrn},
    {"ip1", 50 * 4 * 4, 500, 500 * 50 * 4 * 4, 500, plan_ip1},
    {"ip2", 500, 10, 10 * 500, 10, plan_ip2},
    {"ip3", 600, 30, 30 * 600, 30, plan_ip3},
    {"sigmoid", 481, 481, 0, 0, plan_sigmoid},
    {"scale", 12 * 9 * 7, 12 * 9 * 7, 12, 12, plan_scale},
};

static float *count_floats(struct arena *arena, size_t n)
{
    float *v = arena_array(arena, n, float);
    assert_non_null(v);
    return v;
}

static float *random_value(struct arena *arena, size_t n, uint64_t stream)
{
    float *v = count_floats(arena, n);
    for (size_t i = 0; i < n; i++)
        v[i] = rng_normal(3, stream, i);
    return v;
}

/* Forward and backward over `records` of what lies at the arguments. */
static void execute_op(const struct kernels *set, const struct layer *layer, size_t records,
                       const struct op_args *args)
{
    struct arena arena;
    struct op *op;
    struct err err = {0};
    arena_init(&arena);
    if (layer->plan(set, records, &arena, &op, &err))
        fail_msg("%s", err.text);
    op->ops->forward(op, args);
    op->ops->backward(op, args);
    op_release(op);
    arena_release(&arena);
}

static struct op_args args_new(const struct layer *layer, size_t records, struct arena *arena)
{
    return (struct op_args){
        .x = random_value(arena, records * layer->x, 1),
        .w = random_value(arena, layer->w, 2),
        .b = random_value(arena, layer->b, 3),
        .dy = random_value(arena, records * layer->y, 4),
        .y = count_floats(arena, records * layer->y),
        .dx = count_floats(arena, records * layer->x),
        .dw = count_floats(arena, layer->w),
        .db = count_floats(arena, layer->b),
    };
}

static void add_sums(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* The work of `parts` workers, each with its own share of the same records. */
static struct op_args execute_cut(const struct kernels *set, const struct layer *layer,
                                  size_t parts, const struct op_args *whole, struct arena *arena)
{
    struct op_args part[PARTS_MAX], cut = *whole;
    cut.y = count_floats(arena, parts * SLICE_RECORDS * layer->y);
    cut.dx = count_floats(arena, parts * SLICE_RECORDS * layer->x);
    for (size_t p = 0; p < parts; p++) {
        size_t first = p * SLICE_RECORDS;
        part[p] = cut;
        part[p].x = (const float *)cut.x + first * layer->x;
        part[p].dx = (float *)cut.dx + first * layer->x;
        part[p].y = (float *)cut.y + first * layer->y;
        part[p].dy = (const float *)cut.dy + first * layer->y;
        part[p].dw = count_floats(arena, layer->w), part[p].db = count_floats(arena, layer->b);
        execute_op(set, layer, SLICE_RECORDS, &part[p]);
    }
    for (size_t bit = 1; bit < parts; bit *= 2)
        for (size_t p = 0; p + bit < parts; p += 2 * bit) {
            add_sums(layer->w, part[p + bit].dw, part[p].dw);
            add_sums(layer->b, part[p + bit].db, part[p].db);
        }
    cut.dw = part[0].dw, cut.db = part[0].db;
    return cut;
}

static void assert_same(const char *what, const struct layer *layer, const float *a, const float *b,
                        size_t n)
{
    if (memcmp(a, b, n * sizeof *a) != 0)
        fail_msg("%s of %s differs", what, layer->name);
}

static void assert_cut(const struct kernels *set, size_t parts)
{
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const struct layer *layer = &layers[i];
        struct arena arena;
        arena_init(&arena);
        size_t records = parts * SLICE_RECORDS;
        struct op_args whole = args_new(layer, records, &arena);
        execute_op(set, layer, records, &whole);
        struct op_args cut = execute_cut(set, layer, parts, &whole, &arena);
        assert_same("y", layer, whole.y, cut.y, records * layer->y);
        assert_same("dx", layer, whole.dx, cut.dx, records * layer->x);
        assert_same("dw", layer, whole.dw, cut.dw, layer->w);
        assert_same("db", layer, whole.db, cut.db, layer->b);
        arena_release(&arena);
    }
}

static void test_plain_c(void **state)
{
    (void)state;
    for (size_t parts = 2; parts <= PARTS_MAX; parts++)
        assert_cut(&kernels_ref, parts);
}

/* y and dx are of oneDNN's making: that they do not ask how many records came along is what we saw,
 * not what it promises. */
static void test_onednn(void **state)
{
    (void)state;
    for (size_t parts = 2; parts <= PARTS_MAX; parts++)
        assert_cut(&kernels_dnnl, parts);
}

int main(void)
{
    kernels_set_threads(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_c),
        cmocka_unit_test(test_onednn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
