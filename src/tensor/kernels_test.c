/* One suite for all kernel sets: small cases worked out by hand, every pair of sets on the same
 * inputs, and the reference against finite differences of itself. Ops that read images through
 * windows are in kernels_window_test.c. */
#include "tensor/kernels_test_suite.h"

static void assert_conforms_in_all(const struct work *work)
{
    assert_conforms(work, LAYOUT_PLAIN);
    if (work->x.n == 4)
        assert_conforms(work, LAYOUT_NHWC);
    if (work->x.n == 4 && layout_in_blocks(&work->x) == LAYOUT_BLOCKS)
        assert_conforms(work, LAYOUT_BLOCKS);
}

static void test_inner_products_agree(void **state)
{
    (void)state;
    const struct work works[] = {
        inner_work(image_array(4, 50, 4, 4), 30, true),
        inner_work(image_array(3, 3, 5, 2), 7, false),
        inner_work(image_array(2, 1, 6, 6), 10, true),
        inner_work(image_array(5, 9, 1, 1), 1, true),
        inner_work(matrix_array(64, 37), 10, true),
        inner_work(matrix_array(1, 1), 3, false),
        inner_work(matrix_array(39, 400), 90, true),
        inner_work(image_array(100, 64, 3, 3), 64, true),
        inner_work(matrix_array(130, 70), 301, true),
        inner_work(matrix_array(17, 1100), 13, false),
        inner_work(matrix_array(270, 70), 117, true),
        inner_work(matrix_array(270, 76), 52, false),
        inner_work(matrix_array(270, 5), 65, false),
    };
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        print_message("inner product %zu\n", i);
        assert_conforms_in_all(&works[i]);
        assert_gradients(&works[i]);
    }
}

/* Rows that share sets of the caches. */
static void test_wide_inner_products_agree(void **state)
{
    (void)state;
    const struct work works[] = {inner_work(matrix_array(20, 512), 513, true),
                                 inner_work(matrix_array(19, 530), 1024, true),
                                 inner_work(matrix_array(70, 1024), 512, false)};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        assert_conforms(&works[i], LAYOUT_PLAIN);
}

static void test_relus_agree(void **state)
{
    (void)state;
    const struct work works[] = {
        relu_work(matrix_array(3, 11), 0), relu_work(image_array(2, 3, 4, 5), 0.1f),
        relu_work(image_array(8, 16, 16, 16), 0.01f), relu_work(image_array(3, 7, 9, 5), -0.3f)};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        assert_conforms(&works[i], LAYOUT_PLAIN);
        assert_conforms_rounded(&works[i], LAYOUT_PLAIN);
        if (works[i].x.n == 4)
            assert_conforms(&works[i], LAYOUT_NHWC);
        assert_gradients(&works[i]);
    }
}

static void test_sigmoids_agree(void **state)
{
    (void)state;
    const struct work works[] = {
        sigmoid_work(matrix_array(1, 1)), sigmoid_work(matrix_array(3, 11)),
        sigmoid_work(image_array(2, 3, 4, 5)), sigmoid_work(image_array(8, 16, 17, 16))};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        assert_conforms_in_all(&works[i]);
        assert_gradients(&works[i]);
    }
}

static void test_scales_agree(void **state)
{
    (void)state;
    const struct work works[] = {
        scale_work(matrix_array(1, 1), true), scale_work(matrix_array(3, 11), false),
        scale_work(image_array(2, 3, 4, 5), true), scale_work(image_array(18, 16, 17, 16), true),
        scale_work(image_array(17, 48, 5, 6), true)};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        assert_conforms_in_all(&works[i]);
        assert_gradients(&works[i]);
    }
}

static void assert_in_place_is_the_same(const struct kernels *set, const struct work *work)
{
    struct arena arena;
    struct op *op;
    struct run run = run_new(work);
    run_set(set, work, LAYOUT_PLAIN, &run);
    arena_init(&arena);
    plan_or_fail(set, work, LAYOUT_PLAIN, true, &arena, &op);
    assert_true(op->in_place);
    struct op_args args = {.x = run.x.v, .y = run.x.v, .dy = run.dy.v, .dx = run.dy.v};
    op->ops->forward(op, &args);
    op->ops->backward(op, &args);
    assert_memory_equal(run.x.v, run.y.v, run.y.n * sizeof(float));
    assert_memory_equal(run.dy.v, run.dx.v, run.dx.n * sizeof(float));
    op_release(op);
    arena_release(&arena);
    run_free(&run);
}

static void test_in_place_gives_the_same(void **state)
{
    (void)state;
    const struct work works[] = {relu_work(matrix_array(5, 13), 0.25f),
                                 sigmoid_work(matrix_array(5, 13))};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        for (size_t s = 0; s < SETS; s++)
            assert_in_place_is_the_same(sets[s], &works[i]);
}

static void test_reference_has_the_same_bits_for_any_thread_count(void **state)
{
    (void)state;
    const struct work works[] = {inner_work(image_array(8, 50, 4, 4), 500, true),
                                 sigmoid_work(matrix_array(64, 480)),
                                 scale_work(image_array(24, 8, 10, 12), true)};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        assert_same_for_any_thread_count(&works[i]);
}

static void test_inner_product_counts_in_nchw_order(void **state)
{
    (void)state;
    struct work work = inner_work(image_array(1, 2, 1, 2), 2, true);
    for (enum layout layout = LAYOUT_PLAIN; layout <= LAYOUT_NHWC; layout++)
        assert_worked(&work, layout, (float[]){30.5f, 70.5f}, (float[]){6, 8, 10, 12},
                      (float[]){1.5f, 2.5f, 3.5f, 4.5f, 1.5f, 2.5f, 3.5f, 4.5f},
                      (float[]){1.5f, 1.5f});
}

/* 1 / (1 + 1/3) = 3/4, and on from there; far out it is flat, and what is not finite stays none. */
static void test_sigmoid_by_hand(void **state)
{
    (void)state;
    struct work work = sigmoid_work(matrix_array(1, 8));
    const float x[] = {0, logf(3), -logf(3), logf(4), 1000, -1000, INFINITY, -INFINITY};
    const float y[] = {0.5f, 0.75f, 0.25f, 0.8f, 1, 0, 1, 0};
    const float dx[] = {0.25f, 0.1875f, 0.1875f, 0.16f, 0, 0, 0, 0};
    for (size_t s = 0; s < SETS; s++) {
        struct run run = run_counted(&work);
        memcpy(run.x.v, x, sizeof x);
        run_set(sets[s], &work, LAYOUT_PLAIN, &run);
        assert_close("y", y, run.y.v, run.y.n, 1e-6);
        assert_close("dx", dx, run.dx.v, run.dx.n, 1e-6);
        run.x.v[3] = NAN;
        run_set(sets[s], &work, LAYOUT_PLAIN, &run);
        assert_true(isnan(run.y.v[3]) && isnan(run.dx.v[3]) && run.y.v[4] == 1.0f);
        run_free(&run);
    }
}

/* Two records of two channels of two pixels, x = 1 .. 8, w = (1, 2), b = ½, and dy = 1: so dw is
 * the sum of a channel's pixels, 1 + 2 + 5 + 6 and 3 + 4 + 7 + 8. */
static void test_scale_by_hand(void **state)
{
    (void)state;
    struct work work = scale_work(image_array(2, 2, 1, 2), true);
    const float y[] = {1.5f, 2.5f, 6.5f, 8.5f, 5.5f, 6.5f, 14.5f, 16.5f};
    const float dx[] = {1, 1, 2, 2, 1, 1, 2, 2}, dw[] = {14.5f, 22.5f}, db[] = {4.5f, 4.5f};
    for (size_t s = 0; s < SETS; s++)
        for (int layout = LAYOUT_PLAIN; layout <= LAYOUT_NHWC; layout++) {
            struct run run = run_counted(&work);
            run_set(sets[s], &work, (enum layout)layout, &run);
            assert_memory_equal(run.y.v, y, sizeof y);
            assert_memory_equal(run.dx.v, dx, sizeof dx);
            assert_memory_equal(run.dw.v, dw, sizeof dw);
            assert_memory_equal(run.db.v, db, sizeof db);
            run_free(&run);
        }
}

static void test_softmax_is_right_and_does_not_overflow(void **state)
{
    (void)state;
    struct work work = softmax_work(matrix_array(3, 3));
    const float x[] = {1, 2, 3, 1000, 1000, -1000, -1e9f, -1e9f, -1e9f};
    const float y[] = {.09003057f, .24472847f, .66524096f, .5f,     .5f,
                       0,          1 / 3.0f,   1 / 3.0f,   1 / 3.0f};
    for (size_t s = 0; s < SETS; s++) {
        struct run run = run_new(&work);
        memcpy(run.x.v, x, sizeof x);
        run_set(sets[s], &work, LAYOUT_PLAIN, &run);
        assert_close("y", y, run.y.v, run.y.n, 1e-6);
        run_free(&run);
    }
}

/* Rows of any length, whose scores are far apart; one of -inf has no share. */
static void test_softmax_of_rows_of_any_length(void **state)
{
    (void)state;
    for (size_t C = 1; C <= 67; C += C < 19 ? 1 : 8)
        for (size_t s = 0; s < SETS; s++) {
            struct work work = softmax_work(matrix_array(2, C));
            struct run run = run_new(&work);
            double sum[2] = {0};
            float max[2] = {-INFINITY, -INFINITY};
            for (size_t i = 0; i < 2 * C; i++) {
                bool none = i % C != 0 && i % 7 == 3;
                run.x.v[i] = none ? -INFINITY : 60 * sinf((float)(i * i));
                max[i / C] = fmaxf(max[i / C], run.x.v[i]);
            }
            for (size_t i = 0; i < 2 * C; i++)
                sum[i / C] += exp((double)(run.x.v[i] - max[i / C]));
            run_set(sets[s], &work, LAYOUT_PLAIN, &run);
            for (size_t i = 0; i < 2 * C; i++) {
                double y = exp((double)(run.x.v[i] - max[i / C])) / sum[i / C];
                if (!(fabs((double)run.y.v[i] - y) <= 1e-6 * y + 1e-37))
                    fail_msg("%s, %zu: %g, not %g", sets[s]->name, C, (double)run.y.v[i], y);
            }
            run_free(&run);
        }
}

/* Sizes that are, and are not, made of whole fours; planes of colours. */
static void test_layouts_convert_at_any_size(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 2, 3, 4, 5, 7, 20, 33, 50};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (size_t i = 0; i < SIZES * SIZES; i++) {
        size_t C = sizes[i / SIZES], W = sizes[i % SIZES];
        struct shape shape = image_array(2, C, 1, W);
        struct array x = array_shuffled(2 * C * W, 7), y = array_new(2 * C * W, NAN);
        struct array z = array_new(2 * C * W, NAN);
        kernels_reorder(&shape, LAYOUT_PLAIN, x.v, LAYOUT_NHWC, y.v);
        for (size_t n = 0; n < 2; n++)
            for (size_t c = 0; c < C; c++)
                for (size_t w = 0; w < W; w++)
                    assert_true(y.v[(n * W + w) * C + c] == x.v[(n * C + c) * W + w]);
        kernels_reorder(&shape, LAYOUT_NHWC, y.v, LAYOUT_PLAIN, z.v);
        assert_memory_equal(x.v, z.v, x.n * sizeof(float));
        array_free(&x), array_free(&y), array_free(&z);
    }
}

static void test_layouts_convert_both_ways(void **state)
{
    (void)state;
    struct shape shape = image_array(2, 2, 1, 3);
    const float nchw[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const float nhwc[] = {1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12};
    float out[12];
    kernels_reorder(&shape, LAYOUT_PLAIN, nchw, LAYOUT_NHWC, out);
    assert_memory_equal(out, nhwc, sizeof out);
    kernels_reorder(&shape, LAYOUT_NHWC, nhwc, LAYOUT_PLAIN, out);
    assert_memory_equal(out, nchw, sizeof out);
    assert_true(strlen(kernels_isa()) > 0);
}

int main(void)
{
    kernels_set_threads(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts_convert_both_ways),
        cmocka_unit_test(test_layouts_convert_at_any_size),
        cmocka_unit_test(test_inner_product_counts_in_nchw_order),
        cmocka_unit_test(test_sigmoid_by_hand),
        cmocka_unit_test(test_scale_by_hand),
        cmocka_unit_test(test_softmax_is_right_and_does_not_overflow),
        cmocka_unit_test(test_softmax_of_rows_of_any_length),
        cmocka_unit_test(test_inner_products_agree),
        cmocka_unit_test(test_wide_inner_products_agree),
        cmocka_unit_test(test_relus_agree),
        cmocka_unit_test(test_sigmoids_agree),
        cmocka_unit_test(test_scales_agree),
        cmocka_unit_test(test_in_place_gives_the_same),
        cmocka_unit_test(test_reference_has_the_same_bits_for_any_thread_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
