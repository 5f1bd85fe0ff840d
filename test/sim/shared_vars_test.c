/* Shared variables in a simulated team: several at once, every reduction, rounds handed in ahead,
 * old rounds, wrong use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shared_trial.h"

#include <math.h>

static struct trial trial_of(uint32_t workers, int (*play)(struct trial *t, struct team *team))
{
    return (struct trial){
        .workers = workers, .chunk = 8, .cluster = TRIAL_SLOW, .seed = 1, .play = play};
}

/* ---- several variables, all reductions, rounds ahead ---- */

struct user_max {
    _Atomic uint32_t calls;
};

static void take_larger(void *user, float *y, const float *x, size_t n)
{
    struct user_max *u = user;
    atomic_fetch_add(&u->calls, 1);
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] > x[i] ? y[i] : x[i];
}

enum { VARS = 5, AHEAD_ROUNDS = 4, SHORT = 33 };

static float mixed_value(uint32_t v, uint64_t r, uint32_t task, size_t i)
{
    return (float)((int)((v * 131 + r * 17 + task * 53 + i * 7) % 211) - 100);
}

/* The reductions of four tasks, done by hand; the mean divides by four, which is exact. */
static float by_hand(uint32_t v, uint64_t r, size_t i)
{
    float sum = 0, largest = -1000, smallest = 1000;
    for (uint32_t task = 0; task < 4; task++) {
        float x = mixed_value(v, r, task, i);
        sum += x;
        largest = x > largest ? x : largest;
        smallest = x < smallest ? x : smallest;
    }
    const float all[VARS] = {sum, sum / 4, largest, smallest, largest};
    return all[v];
}

struct bundle {
    struct shared_var *var[VARS];
    struct user_max user;
    float x[VARS][AHEAD_ROUNDS][4][SHORT];
};

static int make_all(struct bundle *b, struct team *team)
{
    int rc = OK;
    for (uint32_t v = 0; rc == OK && v < VARS; v++) {
        struct tasks_spec spec = {.n = SHORT, .tasks = 4, .op = v, .identity = -1000};
        struct reduction reduction = {0};
        if (v == TASKS_USER)
            reduction = (struct reduction){REDUCE_USER, take_larger, &b->user};
        spec.key[0] = (char)('a' + v);
        rc = shared_init(&team->shared, &spec, &reduction, &b->var[v], NULL);
    }
    return rc;
}

/* Tasks wander: task t of round r runs on node (t + r) % workers, and node 4 has none. Later rounds
 * are handed in first. */
static int submit_all(struct bundle *b, struct world *w)
{
    int rc = OK;
    for (uint64_t r = AHEAD_ROUNDS; rc == OK && r-- > 0;)
        for (uint32_t v = 0; v < VARS; v++)
            for (uint32_t task = 0; rc == OK && task < 4; task++) {
                if ((task + r) % 4 != w->self)
                    continue;
                float *x = b->x[v][r][task];
                for (size_t i = 0; i < SHORT; i++)
                    x[i] = mixed_value(v, r, task, i);
                rc = shared_submit(b->var[v], r, task, x, NULL);
            }
    return rc;
}

static int check_all(struct bundle *b)
{
    for (uint64_t r = 0; r < AHEAD_ROUNDS; r++)
        for (uint32_t v = 0; v < VARS; v++) {
            float out[SHORT];
            int rc = shared_get(b->var[v], r, out, WORLD_FOREVER, NULL);
            if (rc == ERR_NOT_FOUND && r < AHEAD_ROUNDS - 2)
                continue; /* others were faster than this reader */
            if (rc != OK)
                return rc;
            for (size_t i = 0; i < SHORT; i++)
                if (out[i] != by_hand(v, r, i))
                    return ERR_DIVERGED;
        }
    return OK;
}

/* Node 4 makes the variables when rounds of the others are done already: it has them all the same,
 * but for the user's, which waits for it. */
static int play_bundle(struct trial *t, struct team *team)
{
    struct bundle *b = calloc(1, sizeof *b);
    struct world *w = team->world;
    (void)t;
    int rc = b ? OK : ERR_NOMEM;
    if (rc == OK && w->self == 4)
        rc = world_sleep(w, 300 * TRIAL_MS);
    if (rc == OK)
        rc = make_all(b, team);
    if (rc == OK && w->self == 4 && shared_poll(b->var[0], AHEAD_ROUNDS - 1, NULL) != 1)
        rc = ERR_STOP;
    if (rc == OK && w->self == 0 && shared_poll(b->var[TASKS_USER], 0, NULL) != 0)
        rc = ERR_STOP;
    if (rc == OK)
        rc = submit_all(b, w);
    if (rc == OK)
        rc = check_all(b);
    if (rc == OK && b->user.calls == 0 && w->self == 0)
        rc = ERR_STOP;
    team_leave(team); /* the vectors are borrowed until then */
    free(b);
    return rc;
}

static void test_five_variables_at_once(void **state)
{
    (void)state;
    struct trial t = trial_of(5, play_bundle);
    run_trial(&t);
    assert_int_equal(t.rc, OK);
    for (uint32_t node = 0; node < 5; node++)
        assert_int_equal(t.ended[node], OK);
}

/* ---- wrong use, old rounds, numbers that are none ---- */

#define REFUSED(status, part, expression)                        \
    do {                                                         \
        struct err e_ = {0}, *err = &e_;                         \
        int rc_ = (expression);                                  \
        if (rc_ != (status) || !strstr(e_.text, part))           \
            fail_msg("%s: %d, '%s'", #expression, rc_, e_.text); \
    } while (0)

static void refuse_specs(struct shared *s)
{
    static const struct reduction none;
    struct shared_var *var;
    struct tasks_spec good = {.key = "w", .n = 8, .tasks = 2, .op = TASKS_SUM}, bad = good;
    bad.key[0] = '\0';
    REFUSED(ERR_USAGE, "key", shared_init(s, &bad, &none, &var, err));
    bad = good, bad.n = 0;
    REFUSED(ERR_USAGE, "'w': n must be", shared_init(s, &bad, &none, &var, err));
    bad = good, bad.tasks = TASKS_MAX + 1;
    REFUSED(ERR_USAGE, "num_tasks must be", shared_init(s, &bad, &none, &var, err));
    bad = good, bad.op = TASKS_USER;
    REFUSED(ERR_USAGE, "no function", shared_init(s, &bad, &none, &var, err));
    assert_int_equal(shared_init(s, &good, &none, &var, NULL), OK);
    bad = good, bad.n = 9;
    REFUSED(ERR_USAGE, "'w': n is 8 elsewhere", shared_init(s, &bad, &none, &var, err));
    bad = good, bad.tasks = 3;
    REFUSED(ERR_USAGE, "num_tasks is 2 elsewhere", shared_init(s, &bad, &none, &var, err));
    bad = good, bad.op = TASKS_MEAN;
    REFUSED(ERR_USAGE, "another reduction", shared_init(s, &bad, &none, &var, err));
}

static int play_wrong(struct trial *t, struct team *team)
{
    static const struct reduction none;
    struct tasks_spec spec = {.key = "v", .n = 2, .tasks = 2, .op = TASKS_SUM};
    struct shared_var *v, *same;
    float x[2] = {1, NAN}, y[2] = {INFINITY, 2}, out[2] = {0};
    (void)t;
    assert_int_equal(shared_init(&team->shared, &spec, &none, &v, NULL), OK);
    assert_int_equal(shared_init(&team->shared, &spec, &none, &same, NULL), OK);
    assert_ptr_equal(v, same);
    refuse_specs(&team->shared);
    REFUSED(ERR_USAGE, "task 2, but num_tasks is 2", shared_submit(v, 0, 2, x, err));
    REFUSED(ERR_USAGE, "no vector", shared_submit(v, 0, 1, NULL, err));
    REFUSED(ERR_USAGE, "round 8 is too far ahead", shared_submit(v, 8, 0, x, err));
    REFUSED(ERR_TIMEOUT, "no result yet", shared_get(v, 0, out, 0, err));
    assert_int_equal(shared_poll(v, 0, NULL), 0);
    for (uint64_t r = 0; r < 7; r++) {
        assert_int_equal(shared_submit(v, r, 0, x, NULL), OK);
        assert_int_equal(shared_submit(v, r, 1, y, NULL), OK);
        assert_int_equal(shared_submit(v, r, 1, x, NULL), OK); /* passed over */
        assert_int_equal(shared_get(v, r, out, WORLD_FOREVER, NULL), OK);
        assert_true(isinf(out[0]) && isnan(out[1]));
    }
    assert_int_equal(shared_submit(v, 0, 0, x, NULL), OK); /* it is done: passed over */
    assert_int_equal(shared_submit(v, 14, 0, x, NULL), OK);
    assert_int_equal(shared_poll(v, 6, NULL), 1);
    assert_int_equal(shared_poll(v, 5, NULL), 1);
    REFUSED(ERR_NOT_FOUND, "round 2 is no longer kept", shared_poll(v, 2, err));
    REFUSED(ERR_NOT_FOUND, "round 2 is no longer kept", shared_get(v, 2, out, WORLD_FOREVER, err));
    return OK;
}

static void test_wrong_use_is_refused_by_name(void **state)
{
    (void)state;
    struct trial t = trial_of(1, play_wrong);
    run_trial(&t);
    assert_int_equal(t.rc, OK);
    assert_int_equal(t.ended[0], OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_five_variables_at_once),
        cmocka_unit_test(test_wrong_use_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
