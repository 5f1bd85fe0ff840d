/* Every code that a direction of a convolution may be given, against plain C; and how it is chosen:
 * by rule without a tuner, by what is kept, and by timing once. */
#include "tensor/kernels_test_suite.h"

#include "tensor/isa.h"
#include "tensor/kernels_common.h"
#include "tensor/kernels_dnnl_choose.h"
#include "tensor/tuner.h"

#include <pthread.h>
#include <stdatomic.h>

struct shape_case {
    struct shape x;
    size_t O, kernel, stride, pad, dilation, groups;
    bool bias, turned;
};

static struct work work_of(const struct shape_case *c)
{
    size_t span = c->dilation * (c->kernel - 1) + 1;
    struct shape y = c->x;
    y.dim[1] = c->O;
    for (size_t i = 2; i < 4; i++)
        y.dim[i] = c->turned ? c->stride * (c->x.dim[i] - 1) + span - 2 * c->pad
                             : (c->x.dim[i] + 2 * c->pad - span) / c->stride + 1;
    struct conv_spec s = {
        .x = c->x,
        .y = y,
        .kernel_h = c->kernel,
        .kernel_w = c->kernel,
        .stride_h = c->stride,
        .stride_w = c->stride,
        .pad_h = c->pad,
        .pad_w = c->pad,
        .dilation_h = c->dilation,
        .dilation_w = c->dilation,
        .groups = c->groups,
        .bias = c->bias,
    };
    size_t weights = c->O * c->x.dim[1] / c->groups * c->kernel * c->kernel;
    return (struct work){c->turned ? DECONV : CONV, {.conv = s}, c->x, y, weights,
                         c->bias ? c->O : 0};
}

static const struct shape_case cases[] = {
    {{4, {2, 1, 12, 12}}, 20, 5, 1, 0, 1, 1, true, false},
    {{4, {19, 3, 9, 7}}, 16, 3, 1, 1, 1, 1, false, false},
    {{4, {17, 16, 8, 8}}, 16, 3, 1, 1, 1, 1, true, false},
    {{4, {3, 20, 9, 9}}, 50, 3, 2, 1, 1, 1, true, false},
    {{4, {2, 3, 11, 9}}, 64, 3, 2, 1, 1, 1, true, false},
    {{4, {3, 32, 14, 13}}, 48, 3, 1, 1, 1, 1, true, false},
    {{4, {2, 64, 7, 7}}, 32, 3, 1, 0, 1, 1, false, false},
    {{4, {19, 32, 10, 7}}, 16, 3, 1, 1, 1, 1, false, false},
    {{4, {2, 32, 9, 8}}, 64, 5, 1, 2, 1, 1, false, false},
    {{4, {2, 48, 6, 6}}, 32, 3, 1, 1, 1, 1, false, true},
    {{4, {18, 20, 5, 6}}, 24, 1, 1, 0, 1, 1, true, false},
    {{4, {2, 32, 7, 7}}, 64, 1, 1, 0, 1, 1, false, false},
    {{4, {3, 300, 11, 11}}, 37, 1, 1, 0, 1, 1, true, false},
    {{4, {7, 45, 7, 7}}, 270, 1, 1, 0, 1, 1, true, true},
    {{4, {2, 16, 8, 8}}, 32, 1, 2, 0, 1, 1, false, false},
    {{4, {1, 3, 14, 14}}, 16, 1, 2, 0, 1, 1, true, false},
    {{4, {2, 7, 9, 9}}, 16, 1, 2, 0, 1, 1, true, false},
    {{4, {1, 12, 14, 14}}, 16, 1, 2, 0, 1, 1, true, false},
    {{4, {6, 5, 12, 10}}, 16, 1, 1, 0, 1, 1, true, false},
    {{4, {6, 16, 12, 10}}, 21, 1, 1, 0, 1, 1, true, false},
    {{4, {2, 16, 9, 9}}, 32, 3, 1, 2, 2, 1, true, false},
    {{4, {2, 32, 6, 6}}, 48, 5, 1, 2, 1, 2, true, false},
    {{4, {2, 16, 9, 9}}, 16, 3, 1, 1, 1, 16, true, false},
    {{4, {2, 16, 5, 5}}, 32, 4, 2, 1, 1, 1, true, true},
    {{4, {3, 7, 6, 6}}, 4, 3, 1, 1, 1, 1, true, true},
};
enum { CASES = sizeof cases / sizeof *cases, WIDE = 5 }; /* with room for Winograd */

/* A clock that must not be asked. */
static int64_t no_clock(void *user)
{
    (void)user;
    fail_msg("something was timed");
    return 0;
}

/* Each look takes a microsecond, and is counted. */
static int64_t counting_clock(void *user)
{
    int64_t *looks = user;
    return 1000 * ++*looks;
}

struct choices {
    struct onednn dnn;
    struct arena arena;
    struct conv_spec spec;
    struct conv_site site[ONEDNN_PASSES];
    struct conv_candidate list[ONEDNN_PASSES][CONV_CANDIDATES_MAX];
    size_t n[ONEDNN_PASSES];
    char key[ONEDNN_PASSES][TUNER_KEY_MAX + 1];
};

static void choices_of(const struct work *work, struct choices *c)
{
    struct err err;
    *c = (struct choices){.spec = work->kind == DECONV ? conv_turned(&work->spec.conv)
                                                       : work->spec.conv};
    arena_init(&c->arena);
    assert_int_equal(onednn_init(&c->dnn, &err), OK);
    int there = work->kind == DECONV ? ONEDNN_BACKWARD_DATA : ONEDNN_FORWARD;
    for (int p = 0; p < ONEDNN_PASSES; p++) {
        c->site[p] = (struct conv_site){.spec = &c->spec,
                                        .pass = (enum onednn_pass)p,
                                        .training = true,
                                        .cold = p == there,
                                        .dnn = &c->dnn};
        c->n[p] = conv_candidates(&c->site[p], c->list[p]);
        conv_key(&c->site[p], c->key[p]);
        assert_true(c->n[p] > 0);
    }
}

static void choices_end(struct choices *c)
{
    onednn_release(&c->dnn);
    arena_release(&c->arena);
}

/* A tuner in which direction `pass` has its ith candidate, the others their first, or last. */
static struct tuner *tuner_with(const struct choices *c, int pass, size_t i, bool last)
{
    struct tuner *tuner = tuner_create(&(struct tuner_host){.now = no_clock});
    struct buf text = {0};
    assert_non_null(tuner);
    buf_printf(&text, "paceline kernels 1\n");
    for (int p = 0; p < ONEDNN_PASSES; p++) {
        size_t k = p == pass ? i : last ? c->n[p] - 1 : 0;
        buf_printf(&text, "%s | %s | 5 ns\n", c->key[p], c->list[p][k].name);
    }
    assert_int_equal(tuner_load(tuner, (char *)text.data, text.len), ONEDNN_PASSES);
    buf_release(&text);
    return tuner;
}

/* Behind the scratch: nothing may be written there. */
enum { BEHIND = 4096 };

static void scribble_file(const struct op_scratch *scratch)
{
    memset(scratch->at, 0xff, scratch->bytes); /* NaN */
    memset((char *)scratch->at + scratch->bytes, 0xab, BEHIND);
}

static void assert_untouched(const struct op_scratch *scratch)
{
    const unsigned char *behind = (const unsigned char *)scratch->at + scratch->bytes;
    for (size_t i = 0; i < BEHIND; i++)
        assert_int_equal(behind[i], 0xab);
}

/* Twice, with scratch that others write to between the calls. */
static void execute_shared(const struct work *work, struct op *op, const struct op_scratch *scratch,
                           struct run *run)
{
    enum dtype dtype = dtype_of(work);
    struct array x = array_laid_out(&work->x, op->x_layout, dtype, &run->x);
    struct array dy = array_laid_out(&work->y, op->y_layout, dtype, &run->dy);
    struct array y = array_of(dtype, run->y.n), dx = array_of(dtype, run->x.n);
    struct array zero_w = array_new(run->w.n, 0), zero_b = array_new(run->b.n, 0);
    struct array lost_w = array_new(run->w.n, 0), lost_b = array_new(run->b.n, 0);
    const struct op_args args[] = {
        {x.v, zero_w.v, zero_b.v, y.v, dy.v, dx.v, lost_w.v, lost_b.v},
        {x.v, run->w.v, run->b.v, y.v, dy.v, dx.v, run->dw.v, run->db.v},
    };
    for (size_t i = 0; i < 2; i++) {
        scribble_file(scratch);
        op->ops->forward(op, &args[i]);
        assert_untouched(scratch);
        scribble_file(scratch);
        op->ops->backward(op, &args[i]);
        assert_untouched(scratch);
    }
    array_return(&work->y, op->y_layout, dtype, &y, &run->y);
    array_return(&work->x, op->x_layout, dtype, &dx, &run->dx);
    array_free(&x), array_free(&dy);
    array_free(&zero_w), array_free(&zero_b), array_free(&lost_w), array_free(&lost_b);
}

static int plan_tuned(const struct work *work, struct tuner *tuner, struct arena *arena,
                      struct op_scratch *scratch, struct op **op)
{
    struct err err = {0};
    const struct plan_options options = {
        .training = true, .arena = arena, .scratch = scratch, .tuner = tuner};
    int rc = (work->kind == DECONV ? kernels_dnnl.deconv : kernels_dnnl.conv)(&work->spec.conv,
                                                                              &options, op, &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    scratch->at = arena_alloc(arena, 1, scratch->bytes + BEHIND);
    assert_non_null(scratch->at);
    return rc;
}

static void assert_code(const struct work *work, const struct run *want, struct tuner *tuner,
                        const char *name)
{
    struct arena arena;
    struct op_scratch scratch = {0};
    struct op *op;
    struct run run = run_new(work);
    arena_init(&arena);
    plan_tuned(work, tuner, &arena, &scratch, &op);
    assert_non_null(strstr(op->chosen, name));
    bool reorders = strstr(op->chosen, " reordered");
    assert_true((op->forward.images + op->backward.images > 0) == reorders);
    if (dtype_of(work) == DTYPE_BF16)
        round_array(&run.w); /* a code may take them as they are */
    execute_shared(work, op, &scratch, &run);
    if (dtype_of(work) == DTYPE_BF16)
        assert_pair_rounded(want, &run);
    else
        assert_pair(want, &run);
    op_release(op);
    arena_release(&arena);
    run_free(&run);
}

static void assert_codes(const struct work *work)
{
    struct run want = run_new(work);
    struct choices c;
    run_plainly(work, LAYOUT_PLAIN, &want);
    choices_of(work, &c);
    for (int p = 0; p < ONEDNN_PASSES; p++)
        for (size_t i = 0; i < c.n[p]; i++)
            for (int last = 0; last < 2; last++) {
                struct tuner *tuner = tuner_with(&c, p, i, last);
                print_message("  %s: %s\n", c.key[p], c.list[p][i].name);
                assert_code(work, &want, tuner, c.list[p][i].name);
                tuner_free(tuner);
            }
    choices_end(&c);
    run_free(&want);
}

static void test_every_code_agrees_with_plain_c(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        kernels_set_threads(threads);
        for (size_t i = 0; i < CASES; i++) {
            struct work work = work_of(&cases[i]);
            assert_codes(&work);
            if (threads < 2 || !runs_rounded(&work))
                continue;
            work.spec.conv.dtype = DTYPE_BF16;
            assert_codes(&work);
        }
    }
}

/* Images in blocks of channels, where a case has any. */
static void test_every_code_agrees_over_blocks(void **state)
{
    (void)state;
    size_t tried = 0;
    kernels_set_threads(2);
    for (size_t i = 0; i < CASES; i++) {
        struct work work = work_of(&cases[i]);
        bool x = layout_in_blocks(&work.x) == LAYOUT_BLOCKS;
        bool y = layout_in_blocks(&work.y) == LAYOUT_BLOCKS;
        if (cases[i].turned || !(x || y))
            continue;
        work.spec.conv.blocks = true;
        assert_codes(&work);
        tried++;
    }
    assert_true(tried > 5);
}

/* Winograd's form is that of blocks: there and back nothing is copied. */
static void test_winograd_takes_blocks_as_they_lie(void **state)
{
    (void)state;
    struct work work = work_of(&cases[WIDE]);
    struct choices c;
    work.spec.conv.blocks = true;
    choices_of(&work, &c);
    for (int p = 0; p < ONEDNN_PASSES; p++) {
        bool as_is = isa_best() < ISA_AVX512; /* which it is written for */
        for (size_t i = 0; i < c.n[p]; i++) {
            assert_false(c.list[p][i].winograd && c.list[p][i].reordered);
            as_is = as_is || c.list[p][i].winograd;
        }
        assert_true(as_is);
    }
    choices_end(&c);
}

static char *chosen_by(struct tuner *tuner, const struct work *work)
{
    struct arena arena;
    struct op_scratch scratch = {0};
    struct op *op;
    arena_init(&arena);
    plan_tuned(work, tuner, &arena, &scratch, &op);
    char *text = strdup(op->chosen);
    op_release(op);
    arena_release(&arena);
    assert_non_null(text);
    return text;
}

/* A choice that was timed in one process is known to the next, which times nothing. */
static void test_a_second_run_chooses_the_same_and_times_nothing(void **state)
{
    (void)state;
    int64_t looks = 0;
    for (size_t i = 0; i < CASES; i++) {
        struct work work = work_of(&cases[i]);
        struct tuner *one =
            tuner_create(&(struct tuner_host){.now = counting_clock, .keep = NULL, .user = &looks});
        struct tuner *two = tuner_create(&(struct tuner_host){.now = no_clock});
        struct buf text = {0};
        int64_t before = looks;
        char *first = chosen_by(one, &work);
        assert_true(looks > before);
        before = looks;
        char *again = chosen_by(one, &work);
        assert_int_equal(looks, before);
        assert_int_equal(tuner_text(one, &text), OK);
        assert_int_equal(tuner_load(two, (char *)text.data, text.len), ONEDNN_PASSES);
        char *later = chosen_by(two, &work);
        assert_string_equal(first, again);
        assert_string_equal(first, later);
        free(first), free(again), free(later);
        buf_release(&text);
        tuner_free(one), tuner_free(two);
    }
}

/* A file that names what there is not changes what is timed, not what is right. */
static void test_kernel_code_unknown_name_is_timed_again(void **state)
{
    (void)state;
    int64_t looks = 0;
    struct work work = work_of(&cases[2]);
    struct choices c;
    struct buf text = {0};
    struct tuner *tuner =
        tuner_create(&(struct tuner_host){.now = counting_clock, .keep = NULL, .user = &looks});
    choices_of(&work, &c);
    buf_printf(&text, "paceline kernels 1\n");
    for (int p = 0; p < ONEDNN_PASSES; p++)
        buf_printf(&text, "%s | jit:of_tomorrow | 1 ns\n", c.key[p]);
    assert_int_equal(tuner_load(tuner, (char *)text.data, text.len), ONEDNN_PASSES);
    char *chosen = chosen_by(tuner, &work);
    assert_true(looks > 0);
    assert_null(strstr(chosen, "of_tomorrow"));
    free(chosen);
    buf_release(&text);
    choices_end(&c);
    tuner_free(tuner);
}

/* A code that wants more memory than there is: the rule's does with less. */
static void test_a_kept_code_that_cannot_be_planned_leaves_it_to_the_rule(void **state)
{
    (void)state;
    struct work work = work_of(&cases[WIDE]);
    struct arena arena;
    struct op *op;
    struct choices c;
    struct err err = {0};
    struct op_scratch scratch = {0};
    struct buf text = {0};
    struct tuner *tuner = tuner_create(&(struct tuner_host){.now = no_clock});
    struct plan_options options = {.training = true, .arena = &arena, .scratch = &scratch};
    choices_of(&work, &c);
    buf_printf(&text, "paceline kernels 1\n");
    for (int p = 0; p < ONEDNN_PASSES; p++)
        buf_printf(&text, "%s | winograd | 1 ns\n", c.key[p]);
    assert_int_equal(tuner_load(tuner, (char *)text.data, text.len), ONEDNN_PASSES);
    arena_init(&arena);
    assert_int_equal(kernels_dnnl.conv(&work.spec.conv, &options, &op, &err), OK);
    char *rule = strdup(op->chosen);
    size_t bytes = arena.bytes;
    op_release(op), arena_release(&arena);
    scratch = (struct op_scratch){0};
    options.tuner = tuner;
    arena_init(&arena);
    arena_limit(&arena, bytes + 1024); /* and some for the start of a plan that fails */
    if (kernels_dnnl.conv(&work.spec.conv, &options, &op, &err) != OK)
        fail_msg("%s", err.text);
    assert_string_equal(op->chosen, rule);
    op_release(op), arena_release(&arena);
    free(rule);
    buf_release(&text);
    choices_end(&c);
    tuner_free(tuner);
}

/* Nothing is kept of what is tried. */
static int64_t clock_without_a_cache(void *user)
{
    int capacity;
    assert_int_equal(dnnl_get_primitive_cache_capacity(&capacity), dnnl_success);
    assert_int_equal(capacity, 0);
    return counting_clock(user);
}

/* A losing code is not kept in oneDNN's cache, whose capacity is as before. */
static void test_timing_leaves_no_primitives_behind(void **state)
{
    (void)state;
    int64_t looks = 0;
    int before, after;
    struct work work = work_of(&cases[WIDE]);
    struct choices c;
    struct conv_candidate chosen;
    struct tuner *tuner = tuner_create(
        &(struct tuner_host){.now = clock_without_a_cache, .keep = NULL, .user = &looks});
    assert_int_equal(dnnl_get_primitive_cache_capacity(&before), dnnl_success);
    assert_true(before > 0);
    choices_of(&work, &c);
    double seconds;
    assert_int_equal(conv_choose(&c.site[0], tuner, &chosen, &seconds), dnnl_success);
    assert_true(seconds > 0);
    assert_true(looks > 0);
    assert_int_equal(dnnl_get_primitive_cache_capacity(&after), dnnl_success);
    assert_int_equal(after, before);
    choices_end(&c);
    tuner_free(tuner);
}

/* One of two engines that tune at the same time on threads of their own. */
struct engine {
    pthread_t thread;
    bool is_first;
    struct engine *other;
    _Atomic bool begun, ended;
};

/* The first waits for the second to begin, the second for the first to end. */
static int64_t clock_of_two(void *user)
{
    struct engine *e = user;
    atomic_store(&e->begun, true);
    while (e->is_first ? !atomic_load(&e->other->begun) : !atomic_load(&e->other->ended))
        ;
    return 0;
}

static void *choose_with_another(void *user)
{
    struct engine *e = user;
    struct work work = work_of(&cases[WIDE]);
    struct choices c;
    struct conv_candidate chosen;
    double seconds;
    while (!e->is_first && !atomic_load(&e->other->begun))
        ;
    struct tuner *tuner =
        tuner_create(&(struct tuner_host){.now = clock_of_two, .keep = NULL, .user = e});
    choices_of(&work, &c);
    assert_int_equal(conv_choose(&c.site[0], tuner, &chosen, &seconds), dnnl_success);
    choices_end(&c);
    tuner_free(tuner);
    atomic_store(&e->ended, true);
    return NULL;
}

static void test_timing_by_two_engines_leaves_the_cache_as_it_was(void **state)
{
    (void)state;
    int before, after;
    struct engine engine[2] = {{.is_first = true, .other = &engine[1]}, {.other = &engine[0]}};
    assert_int_equal(dnnl_get_primitive_cache_capacity(&before), dnnl_success);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&engine[i].thread, NULL, choose_with_another, &engine[i]),
                         0);
    for (int i = 0; i < 2; i++)
        pthread_join(engine[i].thread, NULL);
    assert_int_equal(dnnl_get_primitive_cache_capacity(&after), dnnl_success);
    assert_int_equal(after, before);
}

/* Without a tuner the choice hangs on the shape alone, and sums go by slices. */
static void test_the_rule_times_nothing_and_sums_by_slices(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        struct work work = work_of(&cases[i]);
        char *first = chosen_by(NULL, &work), *again = chosen_by(NULL, &work);
        assert_string_equal(first, again);
        assert_non_null(strstr(first, "fwd "));
        assert_non_null(strstr(first, ", bwd-data "));
        assert_non_null(strstr(first, " in slices"));
        free(first), free(again);
    }
}

int main(void)
{
    kernels_set_threads(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_agrees_with_plain_c),
        cmocka_unit_test(test_every_code_agrees_over_blocks),
        cmocka_unit_test(test_winograd_takes_blocks_as_they_lie),
        cmocka_unit_test(test_a_second_run_chooses_the_same_and_times_nothing),
        cmocka_unit_test(test_kernel_code_unknown_name_is_timed_again),
        cmocka_unit_test(test_a_kept_code_that_cannot_be_planned_leaves_it_to_the_rule),
        cmocka_unit_test(test_timing_leaves_no_primitives_behind),
        cmocka_unit_test(test_timing_by_two_engines_leaves_the_cache_as_it_was),
        cmocka_unit_test(test_the_rule_times_nothing_and_sums_by_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
