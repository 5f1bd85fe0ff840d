#include "optim/optim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char sgd[] = "SGD", nesterov[] = "Nesterov", adagrad[] = "AdaGrad", rmsprop[] = "RMSProp",
            adam[] = "Adam", adamw[] = "AdamW", wish[] = "Wish", lars[] = "LARS", fixed[] = "fixed",
            step[] = "step";

static Caffe__SolverParameter solver_of(char *type, char *policy)
{
    Caffe__SolverParameter solver;
    caffe__solver_parameter__init(&solver);
    solver.type = type;
    solver.lr_policy = policy;
    solver.has_base_lr = 1;
    solver.base_lr = 0.1f;
    return solver;
}

/* Two weights and a bias that learns twice as fast and does not decay. */
static struct segments table_of(struct arena *arena)
{
    struct segments table = {0};
    struct shape w = {2, {1, 2}}, b = {1, {1}};
    assert_non_null(segments_add(&table, arena, "ip.0", &w, 1, 1));
    assert_non_null(segments_add(&table, arena, "ip.1", &b, 2, 0));
    return table;
}

static const size_t where[3] = {0, 1, SEGMENT_ALIGN};

/* Ten steps down ½·Σ curve·(x − least)², momentum 0.9, decay 0.01, rate 0.1 halved every 4 steps.
 * The numbers follow
 *     g = curve·(x − least) + (0.01·decay_mult)·x
 *     m = 0.9·m + (rate·lr_mult)·g
 *     x = x − m
 * worked in another language, each operation rounded to a 32-bit float. */
static const struct {
    float x[3], m[3];
} golden[10] = {
    {{0.5995f, -0.372249991f, 2.3499999f}, {-0.0995000005f, 0.122249998f, 0.650000036f}},
    {{0.768550515f, -0.595845222f, 1.28399992f}, {-0.1690505f, 0.223595247f, 1.06599998f}},
    {{0.966217279f, -0.894775927f, 0.120759964f}, {-0.197666794f, 0.298930705f, 1.16323996f}},
    {{1.14990771f, -1.24028444f, -0.827553511f}, {-0.183690429f, 0.345508546f, 0.948313475f}},
    {{1.29966331f, -1.57721198f, -1.50845361f}, {-0.149755657f, 0.336927563f, 0.680900156f}},
    {{1.40382719f, -1.89445567f, -1.86016476f}, {-0.10416393f, 0.317243755f, 0.351711184f}},
    {{1.45649004f, -2.18272185f, -1.86988342f}, {-0.0526629016f, 0.288266182f, 0.00971865654f}},
    {{1.4575094f, -2.43467474f, -1.57054543f}, {-0.00101936236f, 0.251952946f, -0.299338043f}},
    {{1.43518698f, -2.65321684f, -1.16655576f}, {0.0223224238f, 0.218542174f, -0.403989673f}},
    {{1.39297867f, -2.83781028f, -0.694638968f}, {0.0422083288f, 0.18459335f, -0.471916825f}},
};

static void test_sgd_follows_caffes_recurrence(void **state)
{
    (void)state;
    const float curve[3] = {2.0f, 0.7f, 1.3f}, least[3] = {1.0f, -2.0f, 0.5f};
    const float start[3] = {0.5f, -0.25f, 3.0f};
    struct arena arena;
    arena_init(&arena);
    struct segments table = table_of(&arena);
    Caffe__SolverParameter solver = solver_of(sgd, step);
    solver.has_gamma = solver.has_stepsize = solver.has_momentum = solver.has_weight_decay = 1;
    solver.gamma = 0.5f;
    solver.stepsize = 4;
    solver.momentum = 0.9f;
    solver.weight_decay = 0.01f;

    struct optim optim;
    struct err err;
    assert_int_equal(optim_init(&optim, &solver, table.total, &arena, &err), OK);
    assert_int_equal(optim.ops->states, 1);
    assert_string_equal(optim.ops->state_name[0], "momentum");
    struct vec x, dx;
    assert_int_equal(vec_init(&x, &arena, table.total), OK);
    assert_int_equal(vec_init(&dx, &arena, table.total), OK);
    for (size_t i = 0; i < 3; i++)
        x.at[where[i]] = start[i];
    for (size_t t = 0; t < 10; t++) {
        for (size_t i = 0; i < 3; i++) {
            float away = x.at[where[i]] - least[i];
            dx.at[where[i]] = curve[i] * away;
        }
        optim_update(&optim, (double)t, &x, &dx, &table);
        for (size_t i = 0; i < 3; i++) {
            assert_true(x.at[where[i]] == golden[t].x[i]);
            assert_true(optim.state[0].at[where[i]] == golden[t].m[i]);
        }
    }
    for (size_t i = 2; i < SEGMENT_ALIGN; i++)
        assert_true(x.at[i] == 0 && optim.state[0].at[i] == 0);
    arena_release(&arena);
}

static void test_without_momentum_and_decay_a_step_is_the_gradients(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct segments table = table_of(&arena);
    Caffe__SolverParameter solver = solver_of(sgd, fixed);
    solver.base_lr = 0.25f;
    struct optim optim;
    assert_int_equal(optim_init(&optim, &solver, table.total, &arena, NULL), OK);
    struct vec x, dx;
    assert_int_equal(vec_init(&x, &arena, table.total), OK);
    assert_int_equal(vec_init(&dx, &arena, table.total), OK);
    for (size_t i = 0; i < 3; i++) {
        x.at[where[i]] = 8;
        dx.at[where[i]] = 4;
    }
    optim_update(&optim, 0, &x, &dx, &table);
    optim_update(&optim, 1, &x, &dx, &table);
    assert_true(x.at[0] == 6 && x.at[1] == 6 && x.at[SEGMENT_ALIGN] == 4);
    arena_release(&arena);
}

static void expect_refusal(const Caffe__SolverParameter *solver, int status, const char *word,
                           const char *other)
{
    struct arena arena;
    arena_init(&arena);
    struct optim optim = {0};
    struct err err = {0};
    assert_int_equal(optim_init(&optim, solver, 16, &arena, &err), status);
    if (!strstr(err.text, word) || !strstr(err.text, other))
        fail_msg("\"%s\" does not speak of %s and %s", err.text, word, other);
    assert_null(optim.ops);
    assert_null(optim.solver);
    arena_release(&arena);
}

static void test_optim_unknown_type_lists_known_ones(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of(wish, fixed);
    expect_refusal(
        &solver, ERR_UNSUPPORTED, "\"Wish\"",
        "there are: \"SGD\", \"Nesterov\", \"AdaGrad\", \"RMSProp\", \"AdaDelta\", \"Adam\", "
        "\"AdamW\", \"LARS\", \"CG\", \"LBFGS\"");
}

static void test_a_value_out_of_range_is_named(void **state)
{
    (void)state;
    const float momenta[] = {1.0f, -0.1f, NAN}, decays[] = {-1.0f, INFINITY, NAN};
    for (size_t i = 0; i < 3; i++) {
        Caffe__SolverParameter solver = solver_of(sgd, fixed);
        solver.has_momentum = 1;
        solver.momentum = momenta[i];
        expect_refusal(&solver, ERR_INPUT, "solver.momentum", "less than 1");
        solver = solver_of(sgd, fixed);
        solver.has_weight_decay = 1;
        solver.weight_decay = decays[i];
        expect_refusal(&solver, ERR_INPUT, "solver.weight_decay", "0 or more");
    }
    const float none[] = {0, -1e-8f, NAN, INFINITY};
    for (size_t i = 0; i < 4; i++) {
        Caffe__SolverParameter solver = solver_of(adam, fixed);
        solver.delta = none[i];
        expect_refusal(&solver, ERR_INPUT, "solver.delta", "above 0");
    }
    for (size_t i = 0; i < 3; i++) {
        Caffe__SolverParameter solver = solver_of(adamw, fixed);
        solver.momentum2 = momenta[i];
        expect_refusal(&solver, ERR_INPUT, "solver.momentum2", "less than 1");
        solver = solver_of(rmsprop, fixed);
        solver.rms_decay = momenta[i];
        expect_refusal(&solver, ERR_INPUT, "solver.rms_decay", "less than 1");
    }
    for (size_t i = 0; i < 4; i++) {
        Caffe__SolverParameter solver = solver_of(lars, fixed);
        solver.trust = none[i];
        expect_refusal(&solver, ERR_INPUT, "solver.trust", "above 0");
    }
    Caffe__SolverParameter solver = solver_of(sgd, step);
    expect_refusal(&solver, ERR_INPUT, "solver.gamma", "step");
}

/* As Caffe, which stops at a momentum for AdaGrad or RMSProp. */
static void test_a_field_that_would_do_nothing_is_refused(void **state)
{
    (void)state;
    char *const without_momentum[] = {adagrad, rmsprop};
    for (size_t i = 0; i < 2; i++) {
        Caffe__SolverParameter solver = solver_of(without_momentum[i], fixed);
        solver.has_momentum = 1;
        solver.momentum = 0.9f;
        expect_refusal(&solver, ERR_UNSUPPORTED, "solver.momentum: 0.9", without_momentum[i]);
    }
    Caffe__SolverParameter solver = solver_of(adam, fixed);
    solver.rms_decay = 0.5f;
    expect_refusal(&solver, ERR_UNSUPPORTED, "solver.rms_decay", "\"Adam\"");
    solver = solver_of(rmsprop, fixed);
    solver.momentum2 = 0.5f;
    expect_refusal(&solver, ERR_UNSUPPORTED, "solver.momentum2", "\"RMSProp\"");
    solver = solver_of(nesterov, fixed);
    solver.delta = 0.5f;
    expect_refusal(&solver, ERR_UNSUPPORTED, "solver.delta", "\"Nesterov\"");
    solver.delta = 1e-8f;
    solver.trust = 0.02f;
    expect_refusal(&solver, ERR_UNSUPPORTED, "solver.trust: 0.02", "\"Nesterov\"");
}

/* Steps on one float from x with gradient g; what becomes of it. */
struct one {
    struct arena arena;
    struct segments table;
    struct optim optim;
    struct vec x, dx;
};

static void one_open(struct one *o, const Caffe__SolverParameter *solver, float x)
{
    struct shape shape = {1, {1}};
    struct err err = {0};
    *o = (struct one){0};
    arena_init(&o->arena);
    assert_non_null(segments_add(&o->table, &o->arena, "w", &shape, 1, 1));
    if (optim_init(&o->optim, solver, o->table.total, &o->arena, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(vec_init(&o->x, &o->arena, o->table.total), OK);
    assert_int_equal(vec_init(&o->dx, &o->arena, o->table.total), OK);
    o->x.at[0] = x;
}

static float one_step(struct one *o, double t, float g)
{
    o->dx.at[0] = g;
    optim_update(&o->optim, t, &o->x, &o->dx, &o->table);
    return o->x.at[0];
}

/* Rates 1, 1/2, 1/4, momentum 1/2, g always 1:
 *     V = 1,               x = 0    − (1.5·1    − 0)       = −1.5
 *     V = 0.5 + 0.5,       x = −1.5 − (1.5·1    − 0.5·1)   = −2.5
 *     V = 0.5 + 0.25,      x = −2.5 − (1.5·0.75 − 0.5·1)   = −3.125
 * The rate is within V, so falling rates tell this from rules where it is not. */
static void test_momentum_is_of_those_that_have_one(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        float set, unset; /* with `momentum: 0.5`, and without */
    } rows[] = {{"SGD", 0.5f, 0},      {"Nesterov", 0.5f, 0}, {"Adam", 0.5f, 0},
                {"AdamW", 0.5f, 0.9f}, {"LARS", 0.5f, 0},     {"AdaDelta", 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char type[16];
        snprintf(type, sizeof type, "%s", rows[i].type);
        Caffe__SolverParameter solver = solver_of(type, fixed);
        assert_true(optim_momentum(&solver) == rows[i].unset);
        solver.momentum = 0.5f;
        solver.has_momentum = true;
        assert_true(optim_momentum(&solver) == rows[i].set);
    }
}

static void test_nesterov_by_hand_with_a_falling_rate(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of(nesterov, step);
    solver.base_lr = 1;
    solver.has_gamma = solver.has_stepsize = solver.has_momentum = 1;
    solver.gamma = solver.momentum = 0.5f;
    solver.stepsize = 1;
    struct one o;
    one_open(&o, &solver, 0);
    assert_true(one_step(&o, 0, 1) == -1.5f);
    assert_true(one_step(&o, 1, 1) == -2.5f);
    assert_true(one_step(&o, 2, 1) == -3.125f);
    assert_true(o.optim.state[0].at[0] == 0.75f);
    arena_release(&o.arena);
}

/* Delta 1, g 3 then 4, so that roots are whole: h = 9, x = 8 − 4·3/(3+1) = 5; h = 25,
 * x = 5 − 4·4/(5+1). */
static void test_adagrad_by_hand(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of(adagrad, fixed);
    solver.base_lr = 4;
    solver.delta = 1;
    struct one o;
    one_open(&o, &solver, 8);
    assert_true(one_step(&o, 0, 3) == 5);
    assert_true(fabsf(one_step(&o, 1, 4) - 7.0f / 3) < 1e-6f);
    assert_true(o.optim.state[0].at[0] == 25);
    arena_release(&o.arena);
}

/* Decay 3/4, delta 1: h = ¼·4² = 4, x = 8 − 3·4/(2+1) = 4; h = ¾·4 + ¼·(√24)² = 9. */
static void test_rmsprop_by_hand(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of(rmsprop, fixed);
    solver.base_lr = 3;
    solver.delta = 1;
    solver.rms_decay = 0.75f;
    struct one o;
    one_open(&o, &solver, 8);
    assert_true(one_step(&o, 0, 4) == 4);
    assert_true(fabsf(one_step(&o, 1, sqrtf(24)) - (4 - 3 * sqrtf(24) / 4)) < 1e-6f);
    assert_true(fabsf(o.optim.state[0].at[0] - 9) < 1e-5f);
    arena_release(&o.arena);
}

/* β1 1/2, β2 3/4, δ 1, g 2: m = 1, v = 1. Caffe's correction is √(1/4) / (1/2) = 1, and its step
 * 1·1/(1+1); PyTorch's is (1/½) / (1/½ + 1) = 2/3. A decay of 1/2 at x = 4 doubles Adam's
 * gradient: m = 2, v = 4, a step of 2/3; and takes half of x from AdamW's. */
static void test_adam_and_adamw_by_hand(void **state)
{
    (void)state;
    char *const type[] = {adam, adam, adamw, adamw};
    const float decay[] = {0, 0.5f, 0, 0.5f};
    const float want[] = {4 - 0.5f, 4 - 2.0f / 3, 4 - 2.0f / 3, 2 - 2.0f / 3};
    for (size_t i = 0; i < 4; i++) {
        Caffe__SolverParameter solver = solver_of(type[i], fixed);
        solver.base_lr = solver.delta = 1;
        solver.has_momentum = solver.has_weight_decay = 1;
        solver.momentum = 0.5f;
        solver.momentum2 = 0.75f;
        solver.weight_decay = decay[i];
        struct one o;
        one_open(&o, &solver, 4);
        assert_true(fabsf(one_step(&o, 7, 2) - want[i]) < 1e-6f); /* the clock does not count */
        assert_string_equal(o.optim.ops->state_name[0], "m");
        assert_string_equal(o.optim.ops->state_name[1], "v");
        arena_release(&o.arena);
    }
}

/* Values 3 and 4, norm 5; gradient (0, 8), norm 8; decay 1/2, trust 1/2. The segment's rate is
 * 0.5·5 / (8 + 2.5) = 5/21, and V = 4 · 5/21 · (1.5, 10). A segment at 0 has the rate 1, and so has
 * one without a gradient; a frozen one stays. */
static void test_lars_by_hand(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of(lars, fixed);
    solver.base_lr = 4;
    solver.has_weight_decay = 1;
    solver.weight_decay = solver.trust = 0.5f;
    struct arena arena;
    struct optim optim;
    struct segments table = {0};
    struct shape two = {1, {2}};
    struct vec x, dx;
    const float begin[] = {3, 4, 0, 0, 3, 4, 3, 4}, gradient[] = {0, 8, 1, 2, 0, 0, 8, 8};
    const float want[] = {3 - 30.0f / 21, 4 - 200.0f / 21, -4, -8, 3 - 6, 4 - 8, 3, 4};
    arena_init(&arena);
    for (int i = 0; i < 4; i++) {
        char name[8] = {(char)('a' + i)};
        assert_non_null(segments_add(&table, &arena, name, &two, i == 3 ? 0 : 1, 1));
    }
    assert_int_equal(optim_init(&optim, &solver, table.total, &arena, NULL), OK);
    assert_int_equal(vec_init(&x, &arena, table.total), OK);
    assert_int_equal(vec_init(&dx, &arena, table.total), OK);
    for (size_t i = 0; i < 8; i++) {
        x.at[i / 2 * SEGMENT_ALIGN + i % 2] = begin[i];
        dx.at[i / 2 * SEGMENT_ALIGN + i % 2] = gradient[i];
    }
    optim_update(&optim, 0, &x, &dx, &table);
    for (size_t i = 0; i < 8; i++)
        assert_true(fabsf(x.at[i / 2 * SEGMENT_ALIGN + i % 2] - want[i]) < 1e-6f);
    arena_release(&arena);
}

/* The factor is within V, as the rate is: 2, then 0.5·2 + 1. */
static void test_a_scaled_rate_by_hand(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of(sgd, fixed);
    solver.base_lr = 1;
    solver.has_momentum = 1;
    solver.momentum = 0.5f;
    struct one o;
    one_open(&o, &solver, 0);
    assert_true(o.optim.scale == 1);
    o.optim.scale = 2;
    assert_true(one_step(&o, 0, 1) == -2);
    o.optim.scale = 1;
    assert_true(one_step(&o, 1, 1) == -4);
    arena_release(&o.arena);
}

/* With g constant Adam's corrected means are g and g², and each step is one rate: the first, the
 * thousandth, and the first after it has forgotten. */
static void test_adams_correction_counts_from_where_its_state_began(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of(adam, fixed);
    solver.has_momentum = 1;
    solver.momentum = 0.9f;
    struct one o;
    one_open(&o, &solver, 0);
    float x = 0;
    for (int t = 0; t < 1003; t++) {
        if (t == 1000) {
            optim_reset(&o.optim);
            assert_true(o.optim.updates == 0 && o.optim.state[1].at[0] == 0);
        }
        float next = one_step(&o, t, -0.01f);
        assert_true(fabsf(next - x - 0.1f) < 2e-5f);
        x = next;
    }
    assert_int_equal(o.optim.updates, 3);
    arena_release(&o.arena);
}

static void test_a_solver_that_names_no_type_is_sgd(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    Caffe__SolverParameter solver;
    caffe__solver_parameter__init(&solver);
    solver.lr_policy = fixed;
    solver.has_base_lr = 1;
    struct optim optim;
    assert_int_equal(optim_init(&optim, &solver, 16, &arena, NULL), OK);
    assert_string_equal(optim.ops->type, "SGD");
    assert_int_equal(optim.state[0].n, 16);
    arena_release(&arena);
}

static void test_state_too_large_for_memory_is_an_error(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    Caffe__SolverParameter solver = solver_of(sgd, fixed);
    struct optim optim;
    struct err err;
    assert_int_equal(optim_init(&optim, &solver, SIZE_MAX / 2, &arena, &err), ERR_NOMEM);
    assert_non_null(strstr(err.text, "momentum"));
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd_follows_caffes_recurrence),
        cmocka_unit_test(test_without_momentum_and_decay_a_step_is_the_gradients),
        cmocka_unit_test(test_momentum_is_of_those_that_have_one),
        cmocka_unit_test(test_nesterov_by_hand_with_a_falling_rate),
        cmocka_unit_test(test_adagrad_by_hand),
        cmocka_unit_test(test_rmsprop_by_hand),
        cmocka_unit_test(test_adam_and_adamw_by_hand),
        cmocka_unit_test(test_lars_by_hand),
        cmocka_unit_test(test_a_scaled_rate_by_hand),
        cmocka_unit_test(test_adams_correction_counts_from_where_its_state_began),
        cmocka_unit_test(test_a_field_that_would_do_nothing_is_refused),
        cmocka_unit_test(test_optim_unknown_type_lists_known_ones),
        cmocka_unit_test(test_a_value_out_of_range_is_named),
        cmocka_unit_test(test_a_solver_that_names_no_type_is_sgd),
        cmocka_unit_test(test_state_too_large_for_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
