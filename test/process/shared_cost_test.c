/* The cost of shared variables to their caller: committing takes no time, and a round proceeds
 * while a computation runs and does not slow it. */
#define _GNU_SOURCE
#include "shared_team.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>

#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
#define SLOWED 10
#else
#define SLOWED 1
#endif

static double core_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* In CPU time, submitting is always short. In wall time a thread may lose its core at any moment,
 * but not each time; a wait or a copy would be long each time. */
static int play_submit(struct member *m)
{
    enum { SUBMITS = 6 };
    const size_t n = 25000000 / SLOWED;
    pl_shared *s = NULL;
    float *x = malloc(n * sizeof *x), *out = malloc(n * sizeof *out);
    double shortest = 1, most = 0;
    int rc = x && out ? pl_shared_init(m->team, "long", n, 2, NULL, &s) : PL_ERR_NOMEM;
    for (uint64_t r = 0; rc == PL_OK && r < SUBMITS; r++) {
        for (size_t i = 0; i < n; i++)
            x[i] = (float)(i % 1000 + m->number + r);
        double start = process_now(), core = core_time();
        rc = pl_shared_submit(s, r, m->number, x);
        double took = process_now() - start;
        core = core_time() - core;
        shortest = fmin(shortest, took);
        most = fmax(most, core);
        start = process_now();
        if (rc == PL_OK)
            rc = pl_shared_get(s, r, out, 120);
        print_message("member %u: %zu floats handed in within %.0f us (%.0f us of a core), reduced "
                      "within %.0f ms\n",
                      m->number, n, took * 1e6, core * 1e6, (process_now() - start) * 1e3);
        for (size_t i = 0; rc == PL_OK && i < n; i++)
            if (out[i] != (float)(2 * (i % 1000) + 1 + 2 * r))
                rc = PL_ERR_DIVERGED;
    }
    if (rc == PL_OK && (shortest > 1e-3 || most > 1e-3))
        rc = PL_ERR_TIMEOUT;
    free(out);
    free(x);
    return rc;
}

static void test_shared_commit_of_100_mb_returns_at_once(void **state)
{
    (void)state;
    run_team(2, play_submit, NULL);
}

/* Arithmetic on a core of its own. Its speed is measured in that core's CPU time, without other
 * processes. */
struct load {
    atomic_bool stop;
    _Atomic uint64_t units;
    clockid_t clock; /* of its thread */
    pthread_barrier_t both;
    double idle_s, busy;         /* units a second of its core */
    double idle_wall, busy_wall; /* of anybody's */
};

static void pin_core(size_t core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/* Arithmetic of one core: a product of small matrices over and over. */
static void *compute_task(void *arg)
{
    enum { N = 64 };
    static float a[N][N], b[N][N], c[N][N];
    struct load *load = arg;
    pin_core(1);
    while (!atomic_load(&load->stop)) {
        for (int i = 0; i < N; i++)
            for (int k = 0; k < N; k++)
                for (int j = 0; j < N; j++)
                    c[i][j] += a[i][k] * b[k][j];
        atomic_fetch_add(&load->units, 1);
    }
    return NULL;
}

struct mark {
    double wall, core;
    uint64_t units;
};

static struct mark take_mark(const struct load *b)
{
    struct timespec t;
    clock_gettime(b->clock, &t);
    return (struct mark){process_now(), (double)t.tv_sec + 1e-9 * (double)t.tv_nsec,
                         atomic_load(&b->units)};
}

static void take_rate(const struct load *b, const struct mark *since, double *core, double *wall)
{
    struct mark now = take_mark(b);
    *core = (double)(now.units - since->units) / (now.core - since->core);
    *wall = (double)(now.units - since->units) / (now.wall - since->wall);
}

static int run_with_load(struct member *m, pl_shared *s, const float *x, uint64_t from, uint64_t to)
{
    int rc = PL_OK;
    for (uint64_t r = from; rc == PL_OK && r < to; r++) {
        rc = pl_shared_submit(s, r, m->number, x);
        if (rc == PL_OK)
            rc = pl_shared_get(s, r, NULL, 120);
    }
    return rc;
}

/* Some rounds to warm up; nothing for a while; then rounds one after another. */
static int play_with_load(struct member *m)
{
    enum { FIRST = 3, LAST = FIRST + 30 / SLOWED };
    const size_t n = 10000000 / SLOWED;
    struct load *b = m->arg;
    pl_shared *s = NULL;
    float *x = malloc(n * sizeof *x);
    int rc = x ? pl_shared_init(m->team, "with", n, 2, NULL, &s) : PL_ERR_NOMEM;
    for (size_t i = 0; x && i < n; i++)
        x[i] = (float)i;
    if (rc == PL_OK)
        rc = run_with_load(m, s, x, 0, FIRST);
    pthread_barrier_wait(&b->both);
    struct mark since = take_mark(b);
    if (m->number == 0) {
        process_nap(0.5);
        take_rate(b, &since, &b->idle_s, &b->idle_wall);
    }
    pthread_barrier_wait(&b->both);
    since = take_mark(b);
    if (rc == PL_OK)
        rc = run_with_load(m, s, x, FIRST, LAST);
    if (rc == PL_OK && m->number == 0) {
        take_rate(b, &since, &b->busy, &b->busy_wall);
        print_message("rounds of %zu MB, %.0f ms each, on one core: arithmetic on another keeps "
                      "%.1f %% of its speed (by the wall clock, with whatever else this machine "
                      "runs: %.1f %%)\n",
                      n * sizeof *x / 1000000, (process_now() - since.wall) * 1e3 / (LAST - FIRST),
                      100 * b->busy / b->idle_s, 100 * b->busy_wall / b->idle_wall);
    }
    free(x);
    return rc;
}

/* Both ends of the round share one core, the arithmetic has the other; the best of a few tries. */
static void test_shared_round_leaves_computation_its_speed(void **state)
{
    (void)state;
    cpu_set_t all;
    double best = 0;
    sched_getaffinity(0, sizeof all, &all);
    if (CPU_COUNT(&all) < 2)
        skip();
    for (int turn = 0; turn < 5 && best < 0.95; turn++) {
        struct load load = {.stop = false};
        pthread_t thread;
        pthread_barrier_init(&load.both, NULL, 2);
        pin_core(0);
        assert_int_equal(pthread_create(&thread, NULL, compute_task, &load), 0);
        assert_int_equal(pthread_getcpuclockid(thread, &load.clock), 0);
        run_team(2, play_with_load, &load);
        atomic_store(&load.stop, true);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&load.both);
        best = fmax(best, load.busy / load.idle_s);
    }
    pthread_setaffinity_np(pthread_self(), sizeof all, &all);
    assert_true(best > 0.8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_commit_of_100_mb_returns_at_once),
        cmocka_unit_test(test_shared_round_leaves_computation_its_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
