#include "optim/optim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char sgd[] = "SGD", adam[] = "Adam", fixed[] = "fixed", step[] = "step";

static Caffe__SolverParameter solver_of(char *type, char *policy)
{
    Caffe__SolverParameter solver = CAFFE__SOLVER_PARAMETER__INIT;
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

static void sgd_follows_caffes_recurrence(void **state)
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

static void without_momentum_and_decay_a_step_is_the_gradients(void **state)
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

static void refuse(const Caffe__SolverParameter *solver, int status, const char *word,
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

static void an_unknown_optimizer_is_answered_with_those_there_are(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of(adam, fixed);
    refuse(&solver, ERR_UNSUPPORTED, "\"Adam\"", "there are: \"SGD\"");
}

static void a_value_out_of_range_is_named(void **state)
{
    (void)state;
    const float momenta[] = {1.0f, -0.1f, NAN}, decays[] = {-1.0f, INFINITY, NAN};
    for (size_t i = 0; i < 3; i++) {
        Caffe__SolverParameter solver = solver_of(sgd, fixed);
        solver.has_momentum = 1;
        solver.momentum = momenta[i];
        refuse(&solver, ERR_INPUT, "solver.momentum", "less than 1");
        solver = solver_of(sgd, fixed);
        solver.has_weight_decay = 1;
        solver.weight_decay = decays[i];
        refuse(&solver, ERR_INPUT, "solver.weight_decay", "0 or more");
    }
    Caffe__SolverParameter solver = solver_of(sgd, step);
    refuse(&solver, ERR_INPUT, "solver.gamma", "step");
}

static void a_solver_that_names_no_type_is_sgd(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    Caffe__SolverParameter solver = CAFFE__SOLVER_PARAMETER__INIT;
    solver.lr_policy = fixed;
    solver.has_base_lr = 1;
    struct optim optim;
    assert_int_equal(optim_init(&optim, &solver, 16, &arena, NULL), OK);
    assert_string_equal(optim.ops->type, "SGD");
    assert_int_equal(optim.state[0].n, 16);
    arena_release(&arena);
}

static void state_too_large_for_memory_is_an_error(void **state)
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
        cmocka_unit_test(sgd_follows_caffes_recurrence),
        cmocka_unit_test(without_momentum_and_decay_a_step_is_the_gradients),
        cmocka_unit_test(an_unknown_optimizer_is_answered_with_those_there_are),
        cmocka_unit_test(a_value_out_of_range_is_named),
        cmocka_unit_test(a_solver_that_names_no_type_is_sgd),
        cmocka_unit_test(state_too_large_for_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
