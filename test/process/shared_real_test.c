/* Shared variables over real connections: engines of one process, whose threads submit and read at
 * once; processes, of which one is killed. */
#include "shared_team.h"

enum { VARS = 4, TASKS = 6, ROUNDS = 5, FLOATS = 70000 };

static float input_value(uint64_t v, uint64_t round, uint32_t task, size_t i)
{
    return (float)((v * 17 + round * 5 + task * 101 + i) % 499);
}

static float expected_sum(uint64_t v, uint64_t round, size_t i)
{
    float all = 0; /* whole numbers: any order is exact */
    for (uint32_t task = 0; task < TASKS; task++)
        all += input_value(v, round, task, i);
    return all;
}

/* ---- many variables, many callers ---- */

struct caller {
    pthread_t thread;
    struct member *member;
    pl_shared *shared;
    uint32_t v;
    float *x, *out; /* ROUNDS × TASKS × FLOATS; FLOATS */
    int rc;
};

/* One thread a variable: it submits its member's tasks of a round, and a task that another member
 * runs, too, and reads the result. */
static int call_rounds(struct caller *c)
{
    for (uint64_t r = 0; r < ROUNDS; r++) {
        for (uint32_t task = 0; task < TASKS; task++) {
            float *x = c->x + (r * TASKS + task) * FLOATS;
            if ((task + r) % MEMBERS != c->member->number && task != 2)
                continue;
            for (size_t i = 0; i < FLOATS; i++)
                x[i] = input_value(c->v, r, task, i);
            int rc = pl_shared_submit(c->shared, r, task, x);
            if (rc != PL_OK)
                return rc;
        }
        int rc = pl_shared_get(c->shared, r, c->out, 60);
        if (rc != PL_OK)
            return rc;
        for (size_t i = 0; i < FLOATS; i++)
            if (c->out[i] != expected_sum(c->v, r, i))
                return PL_ERR_DIVERGED;
        if (pl_shared_poll(c->shared, r) != 1)
            return PL_ERR_BUG;
    }
    return PL_OK;
}

static void *run_caller(void *arg)
{
    struct caller *c = arg;
    c->rc = call_rounds(c);
    return NULL;
}

/* Another thread of the same handle only reads. */
static void *run_reader(void *arg)
{
    struct caller *c = arg;
    for (uint64_t r = 0; r < ROUNDS && c->rc == PL_OK; r++) {
        c->rc = pl_shared_get(c->shared, r, c->out, 60);
        if (c->rc == PL_ERR_NOT_FOUND && r + PL_SHARED_KEPT < ROUNDS)
            c->rc = PL_OK; /* others were faster */
        else if (c->rc == PL_OK && c->out[FLOATS - 1] != expected_sum(c->v, r, FLOATS - 1))
            c->rc = PL_ERR_DIVERGED;
    }
    return NULL;
}

/* And the team's own collectives proceed at the same time, on every channel. */
static void *run_channels(void *arg)
{
    struct caller *c = arg;
    for (uint32_t i = 0; i < 40 && c->rc == PL_OK; i++) {
        pl_call_options options = {.size = sizeof options, .channel = i % PL_TEAM_CHANNELS};
        float x[3] = {1, 2, 3};
        c->rc = pl_team_allreduce(c->member->team, x, 3, NULL, &options);
        if (c->rc == PL_OK && (x[0] != MEMBERS || x[2] != 3 * MEMBERS))
            c->rc = PL_ERR_DIVERGED;
    }
    return NULL;
}

static int play_callers(struct member *m)
{
    struct caller c[2 * VARS], channels = {.member = m};
    int rc = PL_OK;
    pthread_create(&channels.thread, NULL, run_channels, &channels);
    for (uint32_t v = 0; v < 2 * VARS; v++) {
        char key[8] = {'v', (char)('0' + v % VARS)};
        c[v] = (struct caller){.member = m, .v = v % VARS};
        rc = pl_shared_init(m->team, key, FLOATS, TASKS, NULL, &c[v].shared);
        if (rc != PL_OK)
            return rc;
        c[v].x = v < VARS ? malloc(sizeof(float) * ROUNDS * TASKS * FLOATS) : NULL;
        c[v].out = malloc(sizeof(float) * FLOATS);
        pthread_create(&c[v].thread, NULL, v < VARS ? run_caller : run_reader, &c[v]);
    }
    pthread_join(channels.thread, NULL);
    rc = channels.rc;
    for (uint32_t v = 0; v < 2 * VARS; v++) {
        pthread_join(c[v].thread, NULL);
        rc = rc == PL_OK ? c[v].rc : rc;
        free(c[v].out);
    }
    if (rc != PL_OK)
        fprintf(stderr, "member %u ends with %d\n", m->number, rc);
    for (uint32_t v = 0; v < VARS; v++)
        free(c[v].x); /* all rounds are done: nothing is borrowed */
    return rc;
}

static void test_shared_many_variables_and_callers(void **state)
{
    (void)state;
    run_team(MEMBERS, play_callers, NULL);
}

/* ---- wrong use, by the public names ---- */

static bool message_has(pl_shared *s, const char *part)
{
    char text[256];
    pl_shared_error(s, text, sizeof text);
    return strstr(text, part) != NULL;
}

static int play_wrong(struct member *m)
{
    pl_shared *s = NULL, *other = NULL;
    const pl_shared_reduction no_function = {.size = sizeof no_function, .op = PL_USER_OP},
                              mean = {.size = sizeof mean, .op = PL_MEAN};
    float x[4] = {1, 2, 3, 4}, y[4] = {3, 2, 1, 0}, out[4];
    char key[80];
    memset(key, 'k', sizeof key);
    key[79] = '\0';
    assert_int_equal(pl_shared_init(m->team, key, 4, 2, NULL, &s), PL_ERR_USAGE);
    assert_int_equal(pl_shared_init(m->team, "w", 4, 2, &no_function, &s), PL_ERR_USAGE);
    assert_int_equal(pl_shared_init(m->team, "w", 0, 2, NULL, &s), PL_ERR_USAGE);
    assert_int_equal(pl_shared_init(m->team, "w", 4, 2, &mean, &s), PL_OK);
    assert_int_equal(pl_shared_init(m->team, "w", 5, 2, &mean, &other), PL_ERR_USAGE);
    assert_non_null(strstr(pl_engine_error(m->engine), "'w': n is 4 elsewhere, and 5 here"));
    assert_int_equal(pl_shared_submit(s, 0, 2, x), PL_ERR_USAGE);
    assert_true(message_has(s, "task 2"));
    assert_int_equal(pl_shared_submit(s, PL_SHARED_AHEAD, 0, x), PL_ERR_USAGE);
    assert_true(message_has(s, "too far ahead"));
    assert_int_equal(pl_shared_submit(s, 0, 0, NULL), PL_ERR_USAGE);
    assert_true(message_has(s, "no vector"));
    assert_int_equal(pl_shared_get(s, 0, out, 0.01), PL_ERR_TIMEOUT);
    assert_true(message_has(s, "round 0"));
    for (uint64_t r = 0; r < 4; r++) {
        assert_int_equal(pl_shared_submit(s, r, 1, y), PL_OK);
        assert_int_equal(pl_shared_poll(s, r), 0);
        assert_int_equal(pl_shared_submit(s, r, 0, x), PL_OK);
        assert_int_equal(pl_shared_get(s, r, out, -1), PL_OK);
        for (int i = 0; i < 4; i++)
            assert_true(out[i] == 2);
    }
    assert_int_equal(pl_shared_poll(s, 0), PL_ERR_NOT_FOUND);
    assert_int_equal(pl_shared_get(s, 0, out, -1), PL_ERR_NOT_FOUND);
    return PL_OK;
}

static void test_shared_misuse_is_refused_by_name(void **state)
{
    (void)state;
    run_team(1, play_wrong, NULL);
}

/* The coordinator leaves; waiting members get an error at once. Earlier results remain. */
static int play_end(struct member *m)
{
    pl_shared *s = NULL;
    float x = 1, out = 0;
    int rc = pl_shared_init(m->team, "w", 1, 2, NULL, &s);
    if (rc == PL_OK)
        rc = pl_shared_submit(s, 0, m->number, &x);
    if (rc == PL_OK)
        rc = pl_shared_get(s, 0, &out, 30);
    if (rc != PL_OK || m->number == 0)
        return rc;
    rc = pl_shared_get(s, 1, &out, 30);
    bool reported = rc == PL_ERR_PEER && message_has(s, "the team is over") &&
                    pl_shared_poll(s, 1) == PL_ERR_PEER &&
                    pl_shared_submit(s, 1, 0, &x) == PL_ERR_PEER;
    return reported && pl_shared_get(s, 0, &out, 30) == PL_OK && out == 2 ? PL_OK : PL_ERR_DIVERGED;
}

static void test_shared_end_of_team_is_reported(void **state)
{
    (void)state;
    run_team(2, play_end, NULL);
}

/* ---- a process is killed ---- */

/* Process 2 dies when it has handed in its tasks of round 1, of which two are all that is missing;
 * process 0 runs them again. */
static int play_killed(struct member *m)
{
    enum { SHORT = 2000 };
    static float x[2][TASKS][SHORT], out[SHORT];
    pl_shared *s = NULL;
    int rc = pl_shared_init(m->team, "w", SHORT, TASKS, NULL, &s);
    for (uint64_t r = 0; rc == PL_OK && r < 2; r++) {
        for (uint32_t task = 0; rc == PL_OK && task < TASKS; task++) {
            for (size_t i = 0; i < SHORT; i++)
                x[r][task][i] = input_value(0, r, task, i);
            if (task % MEMBERS == m->number && !(r == 1 && m->number == 1))
                rc = pl_shared_submit(s, r, task, x[r][task]);
        }
        if (rc == PL_OK && r == 1 && m->number == 2) {
            process_nap(0.2);
            kill(getpid(), SIGKILL);
        }
        for (double limit = process_now() + 30; r == 1 && pl_team_size(m->team) > 2;) {
            if (process_now() > limit)
                return PL_ERR_TIMEOUT;
            process_nap(0.01);
        }
        for (uint32_t task = m->number ? 1 : 2; rc == PL_OK && r == 1 && task < TASKS; task += 3)
            rc = pl_shared_submit(s, r, task, x[r][task]);
        if (rc == PL_OK)
            rc = pl_shared_get(s, r, out, 30);
        for (size_t i = 0; rc == PL_OK && i < SHORT; i++)
            if (out[i] != expected_sum(0, r, i))
                rc = PL_ERR_DIVERGED;
    }
    return rc;
}

static void test_a_killed_process_is_made_up_for(void **state)
{
    (void)state;
    char rendezvous[32];
    pid_t child[MEMBERS];
    port_find(rendezvous);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] == 0) {
            struct member m = {
                .number = i, .members = MEMBERS, .rendezvous = rendezvous, .play = play_killed};
            run_member(&m);
            if (m.rc != PL_OK)
                fprintf(stderr, "process %u: %d, %s\n", i, m.rc, m.error);
            _exit(m.rc == PL_OK ? 0 : 1);
        }
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        if (i == 2)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_a_killed_process_is_made_up_for), /* forks: before there are threads */
        cmocka_unit_test(test_shared_many_variables_and_callers),
        cmocka_unit_test(test_shared_misuse_is_refused_by_name),
        cmocka_unit_test(test_shared_end_of_team_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
