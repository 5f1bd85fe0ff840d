/* A team of three processes grows to six and shrinks to two over real sockets, in the middle of
 * rounds of a shared variable and of a loop of collectives. Each task runs once, each round is
 * reduced once, and all sums are right. Joiners read the state from the key-value store. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "free_port.h"
#include "paceline/kv.h"
#include "paceline/shared.h"
#include "process.h"

#include <math.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { PROCESSES = 6, FIRST = 3, ROUNDS = 16, TASKS = 12, FLOATS = 60000, STEPS = 300 };
enum { GROWS_IN = 4, LEAVES_FROM = 9, NONE = 0, LIMIT_S = 100 };

/* The processes that leave; 0 coordinates and stays, and one of the joiners does. */
static const uint64_t leaves_in[PROCESSES] = {ROUNDS, LEAVES_FROM, 11, LEAVES_FROM, 11, ROUNDS};

/* Memory that the processes share: an engine's scheduler would know it. */
struct ground {
    atomic_bool grow;
    _Atomic uint32_t failed;
    _Atomic uint32_t owner[ROUNDS][TASKS]; /* process + 1 */
    _Atomic uint32_t submitted[ROUNDS][TASKS];
    _Atomic uint32_t results[ROUNDS]; /* right ones */
    _Atomic uint64_t merged;          /* floats that went through the reduction */
    _Atomic uint64_t step;
    _Atomic uint32_t opened, at_end, read;
};

struct child {
    struct ground *ground;
    const char *rendezvous;
    uint32_t number;
    bool held; /* process 0 holds a task back until the members have changed */
    pl_engine *engine;
    pl_team *team;
};

#define CHECK(holds)                                                                        \
    do {                                                                                    \
        if (!(holds)) {                                                                     \
            fprintf(stderr, "process %u, line %d: %s does not hold\n", c->number, __LINE__, \
                    #holds);                                                                \
            atomic_fetch_add(&c->ground->failed, 1);                                        \
            return 1;                                                                       \
        }                                                                                   \
    } while (0)

static int open_team(struct child *c)
{
    const pl_team_options options = {
        .size = sizeof options,
        .rendezvous = c->rendezvous,
        .members = c->number == 0 ? FIRST : 0,
        .members_max = c->number == 0 ? PROCESSES : 0,
        .no_shared_memory = 1,
        .timeout_s = LIMIT_S,
    };
    for (double limit = process_now() + LIMIT_S; c->number >= FIRST;) {
        if (atomic_load(&c->ground->grow))
            break;
        CHECK(process_now() < limit && atomic_load(&c->ground->failed) == 0);
        process_nap(0.001);
    }
    CHECK(pl_engine_create(NULL, &c->engine) == PL_OK);
    int rc = pl_team_open(c->engine, &options, &c->team);
    if (rc != PL_OK)
        fprintf(stderr, "process %u: %s\n", c->number, pl_engine_error(c->engine));
    CHECK(rc == PL_OK);
    atomic_fetch_add(&c->ground->opened, 1);
    return 0;
}

static int await_size(struct child *c, uint32_t members)
{
    for (double limit = process_now() + LIMIT_S; pl_team_size(c->team) != members;) {
        CHECK(process_now() < limit && atomic_load(&c->ground->failed) == 0);
        process_nap(0.001);
    }
    return 0;
}

/* ---- rounds of a shared variable ---- */

static float input_value(uint64_t round, uint32_t task, size_t i)
{
    return (float)((round * 5 + task * 101 + i) % 499);
}

static void add_counted(void *user, float *y, const float *x, size_t n)
{
    atomic_fetch_add(&((struct ground *)user)->merged, n);
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static bool is_staying(uint32_t process, uint64_t round)
{
    return leaves_in[process] > round && (process < FIRST || round >= GROWS_IN);
}

static uint32_t count_staying(uint64_t round)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < PROCESSES; p++)
        n += is_staying(p, round);
    return n;
}

/* Where process 0 holds a task back, each has a task of its own: no process is two rounds behind
 * the others, so it finds each result. */
static bool may_take(const struct child *c, uint64_t round, uint32_t task)
{
    if (!c->held)
        return true;
    if (task == 0)
        return c->number == 0;
    return task > PROCESSES || !is_staying(task - 1, round) || task == c->number + 1;
}

static int submit_task(struct child *c, pl_shared *s, uint64_t round, uint32_t task, float *x)
{
    for (size_t i = 0; i < FLOATS; i++)
        x[i] = input_value(round, task, i);
    process_nap(0.0005 * (double)(1 + (task * 7 + round) % 4));
    CHECK(pl_shared_submit(s, round, task, x) == PL_OK);
    atomic_fetch_add(&c->ground->submitted[round][task], 1);
    return 0;
}

/* Take tasks that no process has. Process 0 keeps the first one back, while the members change in
 * mid-round. */
static int run_tasks(struct child *c, pl_shared *s, uint64_t round, float *x)
{
    struct ground *g = c->ground;
    bool changes = round == GROWS_IN || round == LEAVES_FROM || round == 11;
    for (uint32_t task = 0; task < TASKS; task++) {
        uint32_t none = NONE;
        if (!may_take(c, round, task))
            continue;
        if (!atomic_compare_exchange_strong(&g->owner[round][task], &none, c->number + 1))
            continue;
        if (c->held && changes && task == 0)
            continue;
        if (submit_task(c, s, round, task, x + (round * TASKS + task) * FLOATS) != 0)
            return 1;
    }
    if (c->number == 0 && round == GROWS_IN)
        atomic_store(&g->grow, true);
    if (!c->held || !changes || c->number != 0)
        return 0;
    return await_size(c, count_staying(round)) ||
           submit_task(c, s, round, 0, x + round * TASKS * FLOATS);
}

static int get_result(struct child *c, pl_shared *s, uint64_t round, float *out)
{
    int rc = pl_shared_get(s, round, out, LIMIT_S);
    if (rc == PL_ERR_NOT_FOUND && !c->held)
        return 0; /* the others were faster */
    CHECK(rc == PL_OK);
    for (size_t i = 0; i < FLOATS; i++) {
        float sum = 0; /* whole numbers: any order is exact */
        for (uint32_t task = 0; task < TASKS; task++)
            sum += input_value(round, task, i);
        CHECK(out[i] == sum);
    }
    atomic_fetch_add(&c->ground->results[round], 1);
    return 0;
}

/* All have opened the team before one leaves it. */
static int await_others(struct child *c)
{
    for (double limit = process_now() + LIMIT_S; atomic_load(&c->ground->opened) < PROCESSES;) {
        CHECK(process_now() < limit && atomic_load(&c->ground->failed) == 0);
        process_nap(0.001);
    }
    return 0;
}

/* Process 0 sees the others leave; the last one of them stays until it has. */
static int end_as_two(struct child *c)
{
    if (c->number == 0) {
        if (await_size(c, 2) != 0)
            return 1;
        atomic_fetch_add(&c->ground->at_end, 1);
    }
    for (double limit = process_now() + LIMIT_S; atomic_load(&c->ground->at_end) == 0;) {
        CHECK(process_now() < limit && atomic_load(&c->ground->failed) == 0);
        process_nap(0.001);
    }
    return 0;
}

static int play_rounds(struct child *c)
{
    const pl_shared_reduction counted = {.size = sizeof counted,
                                         .op = PL_USER_OP,
                                         .fn = add_counted,
                                         .user = c->ground,
                                         .identity = 0};
    pl_shared *s;
    float *x = calloc((size_t)ROUNDS * TASKS * FLOATS, sizeof *x);
    float *out = malloc(FLOATS * sizeof *out);
    CHECK(x && out);
    CHECK(pl_shared_init(c->team, "sum", FLOATS, TASKS, c->held ? &counted : NULL, &s) == PL_OK);
    uint64_t round = pl_shared_round(s);
    if (c->held) {
        CHECK(round == (c->number < FIRST ? 0 : GROWS_IN));
        CHECK(round == 0 || pl_shared_get(s, round - 1, out, 1) == PL_ERR_NOT_FOUND);
    }
    for (; round < leaves_in[c->number]; round++)
        if ((round == LEAVES_FROM - 1 && await_others(c) != 0) || run_tasks(c, s, round, x) != 0 ||
            get_result(c, s, round, out) != 0)
            return 1;
    if (leaves_in[c->number] == ROUNDS && end_as_two(c) != 0)
        return 1;
    pl_team_close(c->team);
    c->team = NULL;
    free(x);
    free(out);
    return 0;
}

/* ---- a loop of collectives ---- */

/* Each step adds ones and steps. When members change, all agree on the earliest step that one of
 * them lacks. Process 0 keeps the step in the store, where joiners find it. */
static int read_step(struct child *c, pl_kv *kv, float *step)
{
    const pl_kv_want want = {.size = sizeof want, "step", PL_KV_NEWEST, 1, LIMIT_S};
    pl_kv_value *value;
    CHECK(pl_kv_get(kv, &want, &value) == PL_OK);
    CHECK(pl_kv_size(value) == sizeof *step);
    memcpy(step, pl_kv_data(value), sizeof *step);
    CHECK((uint64_t)*step == pl_kv_version(value) && *step > 0);
    pl_kv_free(value);
    atomic_fetch_add(&c->ground->read, 1);
    return 0;
}

static int keep_step(struct child *c, pl_kv *kv, float step)
{
    struct ground *g = c->ground;
    if (c->number != 0)
        return 0;
    int rc = pl_kv_update(kv, "step", (uint64_t)step - 1, &step, sizeof step, LIMIT_S);
    CHECK(rc == PL_OK || rc == PL_ERR_USAGE); /* a step that is repeated is older */
    atomic_store(&g->step, (uint64_t)step);
    if (step >= 50)
        atomic_store(&g->grow, true);
    return 0;
}

static int take_step(struct child *c, pl_kv *kv, float *step, bool *agreed)
{
    const pl_reduction min = {.size = sizeof min, .op = PL_MIN};
    float x[1000] = {1, *step};
    if (!*agreed) {
        int rc = pl_team_allreduce(c->team, step, 1, &min, NULL);
        CHECK(rc == PL_OK || rc == PL_ERR_PEER);
        if (rc != PL_OK)
            *step = x[1];
        *agreed = rc == PL_OK;
        return 0;
    }
    int rc = pl_team_allreduce(c->team, x, 1000, NULL, NULL);
    CHECK(rc == PL_OK || rc == PL_ERR_PEER);
    if (rc == PL_ERR_PEER) {
        CHECK(strstr(pl_team_error(c->team, 0), "lost or has joined"));
        *agreed = false;
        return 0;
    }
    CHECK(x[0] >= 1 && x[0] <= PROCESSES && x[1] == x[0] * *step);
    ++*step;
    return keep_step(c, kv, *step);
}

static int play_steps(struct child *c)
{
    bool agreed = c->number < FIRST;
    float step = 0, last = (float)(leaves_in[c->number] * STEPS / ROUNDS);
    pl_kv *kv;
    CHECK(pl_kv_open(c->team, &kv) == PL_OK);
    if (!agreed && read_step(c, kv, &step) != 0)
        return 1;
    for (double limit = process_now() + LIMIT_S; !agreed || step < last;) {
        CHECK(process_now() < limit && atomic_load(&c->ground->failed) == 0);
        if (take_step(c, kv, &step, &agreed) != 0)
            return 1;
        process_nap(0.0002);
    }
    if (last == STEPS) {
        CHECK(pl_team_size(c->team) == 2);
        atomic_fetch_add(&c->ground->at_end, 1);
        float none = 0; /* the other one has its last step when this returns, or has left */
        pl_team_allreduce(c->team, &none, 1, NULL, NULL);
    }
    return 0;
}

/* ---- processes ---- */

static struct ground *run_processes(bool held, int (*part)(struct child *c))
{
    char rendezvous[32];
    pid_t pid[PROCESSES];
    struct ground *g =
        mmap(NULL, sizeof *g, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(g != MAP_FAILED);
    port_find(rendezvous);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] > 0)
            continue;
        struct child c = {.ground = g, .rendezvous = rendezvous, .number = i, .held = held};
        int rc = open_team(&c);
        rc = rc ? rc : part(&c);
        pl_team_close(c.team);
        pl_engine_destroy(c.engine);
        _exit(rc);
    }
    for (uint32_t i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return g;
}

static void expect_tasks_once(const struct ground *g)
{
    for (uint64_t r = 0; r < ROUNDS; r++)
        for (uint32_t task = 0; task < TASKS; task++)
            assert_int_equal(atomic_load(&g->submitted[r][task]), 1);
}

/* In round 4 three join, and in rounds 9 and 11 two leave, while one task is missing. A round of P
 * members, M of which have tasks, merges (12 − M) + (P − 1) vectors if it is done once. */
static void test_real_team_grows_and_shrinks_in_mid_round(void **state)
{
    (void)state;
    struct ground *g = run_processes(true, play_rounds);
    uint64_t vectors = 0;
    expect_tasks_once(g);
    for (uint64_t r = 0; r < ROUNDS; r++) {
        uint32_t members = count_staying(r), with_tasks = 0;
        for (uint32_t p = 0; p < PROCESSES; p++) {
            uint32_t tasks = 0;
            for (uint32_t task = 0; task < TASKS; task++)
                tasks += atomic_load(&g->owner[r][task]) == p + 1;
            with_tasks += tasks > 0;
        }
        assert_int_equal(atomic_load(&g->results[r]), members);
        vectors += TASKS - with_tasks + members - 1;
    }
    print_message("%u floats reduced, %u vectors of %u\n", (unsigned)atomic_load(&g->merged),
                  (unsigned)vectors, FLOATS);
    assert_int_equal(atomic_load(&g->merged), vectors * FLOATS);
    munmap(g, sizeof *g);
}

/* The same at any moment: nothing waits for the change. */
static void test_real_team_grows_and_shrinks_at_any_moment(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct ground *g = run_processes(false, play_rounds);
        expect_tasks_once(g);
        munmap(g, sizeof *g);
    }
}

static void test_real_collectives_grow_and_shrink(void **state)
{
    (void)state;
    struct ground *g = run_processes(false, play_steps);
    assert_int_equal(atomic_load(&g->step), STEPS);
    assert_int_equal(atomic_load(&g->at_end), 2);
    assert_int_equal(atomic_load(&g->read), PROCESSES - FIRST);
    munmap(g, sizeof *g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_team_grows_and_shrinks_in_mid_round),
        cmocka_unit_test(test_real_team_grows_and_shrinks_at_any_moment),
        cmocka_unit_test(test_real_collectives_grow_and_shrink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
