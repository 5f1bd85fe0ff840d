#include "strategy/shard.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* A model of two segments, 40 and 24 floats in 48 and 32, the second with half the rate; and five
 * floats of s behind. */
enum { X = 80, S = 5, WHOLE = X + S };

struct model {
    struct arena arena;
    struct segments table;
    struct vec x, s;
};

static void model_init(struct model *m)
{
    const struct shape one = {.n = 1, .dim = {40}}, two = {.n = 1, .dim = {24}};
    *m = (struct model){0};
    arena_init(&m->arena);
    assert_non_null(segments_add(&m->table, &m->arena, "one", &one, 1, 1));
    assert_non_null(segments_add(&m->table, &m->arena, "two", &two, 0.5f, 0));
    assert_int_equal(m->table.total, X);
    assert_int_equal(vec_init(&m->x, &m->arena, X), OK);
    assert_int_equal(vec_init(&m->s, &m->arena, S), OK);
    for (size_t i = 0; i < m->table.count; i++)
        for (size_t k = 0; k < m->table.at[i].len; k++)
            m->x.at[m->table.at[i].offset + k] = (float)(k % 7) - 3.0f;
    for (size_t i = 0; i < S; i++)
        m->s.at[i] = 100.0f + (float)i;
}

static Caffe__SolverParameter solver_of(const char *type, float rate)
{
    Caffe__SolverParameter solver;
    caffe__solver_parameter__init(&solver);
    solver.type = (char *)(uintptr_t)type;
    solver.base_lr = rate;
    solver.has_base_lr = 1;
    solver.lr_policy = (char *)(uintptr_t) "fixed";
    return solver;
}

static void open_shard(struct shard *shard, struct model *m, const struct shard_config *config,
                       size_t i, size_t n)
{
    struct err err = {0};
    int rc = shard_init(shard, config, &m->table, &m->x, &m->s, range_shard(WHOLE, n, i), &m->arena,
                        &err);
    if (rc != OK)
        fail_msg("%s", err.text);
}

/* Worker p's push in its round t, of the whole vector. */
static void fill_vector(struct vec *v, const struct segments *table, int p, int t)
{
    vec_fill(v, vec_all(v), 0);
    for (size_t i = 0; i < table->count; i++)
        for (size_t k = 0; k < table->at[i].len; k++) {
            size_t at = table->at[i].offset + k;
            v->at[at] = 0.01f * (float)(((size_t)p * 31 + (size_t)t * 17 + at * 7) % 23) - 0.1f;
        }
    for (size_t i = 0; i < S; i++)
        v->at[X + i] = (float)(10 * p + t) + (float)i;
}

static void test_shard_ranges_cover_all(void **state)
{
    (void)state;
    for (size_t floats = 1; floats < 300; floats += 7)
        for (size_t n = 1; n < 9; n++) {
            size_t at = 0;
            for (size_t i = 0; i < n; i++) {
                struct range r = range_shard(floats, n, i);
                assert_true(r.len == 0 || (r.from == at && r.from % SEGMENT_ALIGN == 0));
                assert_true(r.len <= floats / n + 2 * SEGMENT_ALIGN);
                at += r.len;
            }
            assert_int_equal(at, floats);
        }
}

static void test_shard_refuses_global_optimizers(void **state)
{
    Caffe__SolverParameter solver;
    struct err err = {0};
    (void)state;
    caffe__solver_parameter__init(&solver);
    solver.has_base_lr = 1;
    solver.base_lr = 0.1f;
    solver.lr_policy = (char *)"fixed";
    assert_int_equal(shard_check_solver(&solver, &err), OK);
    solver.clip_gradients = 5;
    assert_int_equal(shard_check_solver(&solver, &err), ERR_UNSUPPORTED);
    assert_string_equal(err.text,
                        "solver.clip_gradients: needs the whole gradient at once, and each of "
                        "several servers has a part of it");
    solver.clip_gradients = -1;
    solver.type = (char *)"LARS";
    assert_int_equal(shard_check_solver(&solver, &err), ERR_UNSUPPORTED);
    assert_string_equal(err.text, "solver.type: LARS needs the whole gradient at once, and each of "
                                  "several servers has a part of it");
}

/* Whatever the rule, n shards hold to the bit what one does; cut in the middle of segments, and
 * where x ends and s begins. */
static void test_shards_are_one(void **state)
{
    static const struct {
        enum shard_rule rule;
        const char *type;
    } rules[] = {{SHARD_GRADIENTS, "SGD"},
                 {SHARD_GRADIENTS, "Adam"},
                 {SHARD_GRADIENTS, "AdaGrad"},
                 {SHARD_UPDATES, "SGD"},
                 {SHARD_ADAGRAD, "SGD"}};
    (void)state;
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        for (size_t n = 2; n <= 6; n++) {
            struct model m;
            struct shard one, part[6];
            struct vec sent[2], whole;
            Caffe__SolverParameter solver = solver_of(rules[r].type, 0.1f);
            const struct shard_config config = {.rule = rules[r].rule, .solver = &solver};
            model_init(&m);
            open_shard(&one, &m, &config, 0, 1);
            for (size_t i = 0; i < n; i++)
                open_shard(&part[i], &m, &config, i, n);
            assert_int_equal(vec_init(&whole, &m.arena, WHOLE), OK);
            for (int p = 0; p < 2; p++)
                assert_int_equal(vec_init(&sent[p], &m.arena, WHOLE), OK);
            for (int t = 0; t < 5; t++) {
                size_t count = 1 + (size_t)t % 2;
                for (int p = 0; p < 2; p++)
                    fill_vector(&sent[p], &m.table, p, t);
                struct push push[2] = {{&sent[0], 16}, {&sent[1], 48}};
                shard_apply(&one, push, count, t);
                shard_average(&one, push, 2);
                for (size_t i = 0; i < n; i++) {
                    struct vec cut[2];
                    for (int p = 0; p < 2; p++) {
                        assert_int_equal(vec_init(&cut[p], &m.arena, part[i].range.len), OK);
                        vec_export(&sent[p], part[i].range, cut[p].at);
                    }
                    struct push here[2] = {{&cut[0], 16}, {&cut[1], 48}};
                    shard_apply(&part[i], here, count, t);
                    shard_average(&part[i], here, 2);
                }
            }
            for (size_t i = 0; i < n; i++)
                vec_import(&whole, part[i].range, part[i].both.at);
            assert_memory_equal(whole.at, one.both.at, WHOLE * sizeof(float));
            assert_true(one.both.at[3] != m.x.at[3]);
            arena_release(&m.arena);
        }
}

/* By hand: mean of 1 (16 records) and 5 (48) is 4; their sum is 6; one alone is itself. */
static void test_shard_batched_gradients_are_one(void **state)
{
    static const struct {
        bool sum;
        size_t count;
        float step;
    } cases[] = {{false, 2, 4.0f}, {true, 2, 6.0f}, {false, 1, 1.0f}, {true, 1, 1.0f}};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct model m;
        struct shard shard;
        struct vec sent[2];
        Caffe__SolverParameter solver = solver_of("SGD", 0.5f);
        const struct shard_config config = {SHARD_GRADIENTS, cases[i].sum, &solver};
        model_init(&m);
        open_shard(&shard, &m, &config, 0, 1);
        for (int p = 0; p < 2; p++) {
            assert_int_equal(vec_init(&sent[p], &m.arena, WHOLE), OK);
            vec_fill(&sent[p], (struct range){0, X}, p == 0 ? 1.0f : 5.0f);
        }
        struct push push[2] = {{&sent[0], 16}, {&sent[1], 48}};
        shard_apply(&shard, push, cases[i].count, 0);
        assert_true(shard.x.at[0] == -3.0f - 0.5f * cases[i].step);
        assert_true(shard.x.at[48] == -3.0f - 0.25f * cases[i].step); /* half the rate */
        assert_true(shard.x.at[47] == 0.0f);                          /* padding */
        assert_int_equal(shard.applied, cases[i].count);
        arena_release(&m.arena);
    }
}

/* a = 2: h = 4, and x moves by 0.5 · 2/√4; then a = −1: h = 5, by −0.5/√5. */
static void test_adagrad_at_the_server(void **state)
{
    struct model m;
    struct shard shard;
    struct vec a;
    Caffe__SolverParameter solver = solver_of("SGD", 0.5f);
    const struct shard_config config = {SHARD_ADAGRAD, false, &solver};
    (void)state;
    model_init(&m);
    open_shard(&shard, &m, &config, 0, 1);
    assert_int_equal(vec_init(&a, &m.arena, WHOLE), OK);
    struct push push = {&a, 16};
    vec_fill(&a, (struct range){0, X}, 2.0f);
    shard_apply(&shard, &push, 1, 0);
    assert_true(fabsf(shard.x.at[0] - -2.5f) < 1e-6f);
    vec_fill(&a, (struct range){0, X}, -1.0f);
    shard_apply(&shard, &push, 1, 1);
    assert_true(fabsf(shard.x.at[0] - (-2.5f - 0.5f / sqrtf(5.0f))) < 1e-6f);
    assert_true(fabsf(shard.x.at[48] - (-2.5f - 0.25f / sqrtf(5.0f) + -0.25f)) < 1e-6f);
    arena_release(&m.arena);
}

/* s̃ is the mean of the last of each by their samples, whatever was applied; x is left alone. */
static void test_state_is_a_mean(void **state)
{
    struct model m;
    struct shard shard;
    struct vec sent[2];
    Caffe__SolverParameter solver = solver_of("SGD", 0.5f);
    const struct shard_config config = {SHARD_GRADIENTS, true, &solver};
    (void)state;
    model_init(&m);
    open_shard(&shard, &m, &config, 0, 1);
    assert_true(shard.s.at[0] == 100.0f && shard.s.at[4] == 104.0f);
    for (int p = 0; p < 2; p++) {
        assert_int_equal(vec_init(&sent[p], &m.arena, WHOLE), OK);
        fill_vector(&sent[p], &m.table, p, 0);
    }
    struct push push[2] = {{&sent[0], 16}, {&sent[1], 48}};
    shard_average(&shard, push, 2);
    for (size_t i = 0; i < S; i++)
        assert_true(shard.s.at[i] == 0.25f * (float)i + 0.75f * (10.0f + (float)i));
    assert_memory_equal(shard.x.at, m.x.at, X * sizeof(float));
    shard_average(&shard, push, 0);
    assert_true(shard.s.at[0] == 7.5f); /* of no worker: it does not change */
    arena_release(&m.arena);
}

/* A state is cut out of vectors of the global model, and put into those of a server: x̃, then s̃,
 * then each vector of the optimizer where x̃ lies, then the workers' numbers, of 64 bits. The last
 * of three shards of 80 and 5 floats has both; a shard of s̃ alone has no vectors. */
static void test_state_of_a_shard(void **state)
{
    (void)state;
    const struct range range = range_shard(WHOLE, 3, 2), tail = {X + 1, S - 1};
    const struct shard_layout layout = shard_layout_of(&range, X, 2);
    const struct shard_layout end = shard_layout_of(&tail, X, 2);
    size_t n = WHOLE - range.from, x = X - range.from;
    float at[2 * WHOLE], both[WHOLE], first[X], second[X], copy[3][WHOLE] = {{0}};
    for (size_t i = 0; i < WHOLE; i++)
        both[i] = (float)i;
    for (size_t i = 0; i < X; i++) {
        first[i] = 1000 + (float)i;
        second[i] = 2000 + (float)i;
    }
    const struct vec model = {both, WHOLE}, vectors[] = {{first, X}, {second, X}};
    const struct vec own = {copy[0], n}, owns[] = {{copy[1], x}, {copy[2], x}};
    uint64_t push[] = {3, UINT64_C(1) << 40 | 5}, pushes[2] = {0};
    const struct shard_state global = {&model, vectors, range.from, push, 2};
    const struct shard_state server = {&own, owns, 0, pushes, 2};
    assert_int_equal(layout.x, x);
    assert_int_equal(shard_state_length(&layout, 2), n + 2 * x + 4);
    assert_int_equal(shard_state_length(&end, 0), S - 1);
    shard_export_state(&layout, &global, at);
    assert_true(at[0] == (float)range.from && at[n - 1] == WHOLE - 1);
    assert_true(at[n] == 1000 + (float)range.from && at[n + x] == 2000 + (float)range.from);
    assert_true(at[n + 2 * x - 1] == 2000 + X - 1);
    shard_import_state(&layout, &server, at);
    assert_memory_equal(pushes, push, sizeof push);
    assert_memory_equal(copy[0], both + range.from, n * sizeof(float));
    assert_memory_equal(copy[1], first + range.from, x * sizeof(float));
    assert_memory_equal(copy[2], second + range.from, x * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shard_ranges_cover_all),
        cmocka_unit_test(test_shard_refuses_global_optimizers),
        cmocka_unit_test(test_shards_are_one),
        cmocka_unit_test(test_shard_batched_gradients_are_one),
        cmocka_unit_test(test_adagrad_at_the_server),
        cmocka_unit_test(test_state_is_a_mean),
        cmocka_unit_test(test_state_of_a_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
