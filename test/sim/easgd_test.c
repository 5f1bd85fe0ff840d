/* `easgd`: timelines drawn by hand, and their results, recomputed with plain loops to the bit;
 * whole runs with deaths, delays and restarts. */
#include "data/lease.h"
#include "doomed_run.h"
#include "replay.h"
#include "strategy_sim.h"
#include "sweep_stride.h"

enum { STRIDE = SWEEP_STRIDE(8, 4) };

#define FIXED "solver.lr_policy=fixed"

/* A worker of a replay: Caffe's SGD at a fixed rate on its own model. */
struct elastic {
    float x[REPLAY_FLOATS], m[REPLAY_FLOATS], d[REPLAY_FLOATS];
    uint64_t steps;
};

static void train_worker(struct replay *r, struct elastic *w, uint64_t offset)
{
    float g[REPLAY_FLOATS];
    replay_gradient(r, w->x, offset, g);
    for (size_t i = 0; i < r->n; i++) {
        w->m[i] = 0.9f * w->m[i] + 0.05f * (g[i] + 0.0005f * w->x[i]);
        w->x[i] -= w->m[i];
    }
    w->steps++;
}

/* τ steps of the asynchronous worker i: on its first lease, or alone. */
static void train_free(struct replay *r, struct elastic *w, uint64_t i, uint64_t tau)
{
    for (uint64_t t = 0; t < tau; t++)
        train_worker(r, w, (i * LEASE_STEPS_MIN + w->steps) * SIM_BATCH);
}

/* d = α(x − x̃), x ← x − d. */
static void pull_worker(const struct replay *r, struct elastic *w, const float *centre, float alpha)
{
    for (size_t i = 0; i < r->n; i++) {
        w->d[i] = alpha * (w->x[i] - centre[i]);
        w->x[i] -= w->d[i];
    }
}

static void give_update(const struct replay *r, const struct elastic *w, float *centre)
{
    for (size_t i = 0; i < r->n; i++)
        centre[i] += w->d[i];
}

static struct elastic *begin_replay(struct replay *r, struct tiny *t, size_t workers, float *centre)
{
    replay_open(r, t);
    struct elastic *w = calloc(workers, sizeof *w);
    for (size_t i = 0; i < workers; i++)
        memcpy(w[i].x, r->x0, sizeof r->x0);
    memcpy(centre, r->x0, sizeof r->x0);
    return w;
}

/* ---- async ---- */

/* A worker and the centre: an update is added before the worker's next request. The last steps,
 * after the last visit, are in no centre; the end is before a visit. */
static void train_alone_of(struct tiny *t, const char *cluster, const char *workers,
                           const char *limit, uint64_t tau, uint64_t steps)
{
    char set[2][64];
    struct sim_run run = {0};
    struct replay r;
    float centre[REPLAY_FLOATS], alpha = 0.9f;
    struct elastic *w = begin_replay(&r, t, 1, centre);
    snprintf(set[0], sizeof set[0], "strategy.easgd.tau=%llu", (unsigned long long)tau);
    snprintf(set[1], sizeof set[1], "stop.steps=%llu", (unsigned long long)steps);
    SIM(t, cluster, &run, set[0], set[1], workers, limit, FIXED);
    for (uint64_t s = tau; s < steps; s += tau) {
        train_free(&r, w, 0, tau);
        pull_worker(&r, w, centre, alpha);
        give_update(&r, w, centre);
    }
    assert_int_equal(run_count(run.dir, "exchange", NULL, NULL), (steps - 1) / tau);
    assert_true(replay_difference(&r, centre, run.dir) == 0);
    free(w);
    replay_close(&r);
}

static void train_alone(struct tiny *t, const char *cluster, uint64_t tau, uint64_t steps)
{
    train_alone_of(t, cluster, "workers=1", "seed=1", tau, steps);
}

static void test_one_worker_and_its_centre(void **state)
{
    train_alone(*state, SIM_CALM, 4, 30);
    train_alone(*state, SIM_CALM, 1, 25);
    train_alone(*state, SIM_CALM, 5, 5);
}

/* The update of the last visit arrives long after the report that the worker has ended. */
static void test_what_is_given_is_waited_for(void **state)
{
    train_alone(*state,
                "node { } step_seconds: 0.004 link { mbit: 100 }\n"
                "delay { from: 0 to: -1 tag: 'transfer' seconds: 0.5 }",
                1, 6);
}

/* Three workers, whose steps take 0.1, 0.125 and 0.2 s; τ = 2; a hop 9 ms, bytes next to nothing. A
 * fetch takes four hops: the request, the header of the reply, the grant, the vector; the centre is
 * read after the first. An update takes three messages: its header, the grant, the vector. Seconds
 * from the first step on; `|..|` waits for the driver.
 *
 *   worker 0  0 --.1--.2|..|.236 --.336--.436|..|.472 --.572--.672|..|.708 --.808--.908  stop
 *   worker 1  0 ---.125---.25|..|.286 ---.411---.536|..|.572 ---.697---.822|..|.858      stop
 *   worker 2  0 -----.2-----.4|..|.436 -----.636-----.836                               stop
 *
 *   centre    .209  read for 0                      .463  2's d is in
 *             .259  for 1: 0's d is on its way      .499  0's
 *             .263  0's d is in                     .545  read for 1     .599  1's is in
 *             .313  1's                             .681  for 0          .735  0's
 *             .409  read for 2                      .831  for 1          .885  1's
 *             .445  for 0: 2's d is on its way
 *
 * Fifteen steps make five of all together: at .808 they are taken, at .817 the driver has heard, at
 * .826 all are told. Worker 1 has begun its third visit by then, and ends after it. */
enum { READ, IN };

static const struct centre_event {
    int what, worker;
} centre_events[] = {
    {READ, 0}, {READ, 1}, {IN, 0}, {IN, 1},   {READ, 2}, {READ, 0}, {IN, 2},
    {IN, 0},   {READ, 1}, {IN, 1}, {READ, 0}, {IN, 0},   {READ, 1}, {IN, 1},
};

static const struct visit {
    int worker, n;
    double from;
} visits[] = {{0, 1, .2},   {1, 1, .25},  {2, 1, .4},  {0, 2, .436},
              {1, 2, .536}, {0, 3, .672}, {1, 3, .822}};

enum { VISITS = sizeof visits / sizeof *visits };

#define HOP 0.009
#define THREE                                                              \
    "node { } node { speed: 0.8 } node { speed: 0.5 } step_seconds: 0.1\n" \
    "link { mbit: 1000000 latency_us: 9000 }\n"

static void visits_are_reported(const struct sim_run *run, double zero)
{
    assert_int_equal(run_count(run->dir, "exchange", NULL, NULL), VISITS);
    for (int k = 0; k < VISITS; k++) {
        double t = run_number(run->dir, "exchange", k, "t") - zero;
        if (run_number(run->dir, "exchange", k, "node") != visits[k].worker ||
            run_number(run->dir, "exchange", k, "n") != visits[k].n ||
            fabs(t - (visits[k].from + 5 * HOP)) > 1e-5)
            fail_msg("visit %d is not as drawn: at %.6f", k, t);
        assert_true(fabs(run_number(run->dir, "exchange", k, "waited_s") - 4 * HOP) < 1e-5);
        assert_true(run_number(run->dir, "exchange", k, "waited_for") == -1);
    }
}

static void test_timeline(void **state)
{
    struct sim_run run = {.traced = true};
    struct trace_events trace;
    SIM(*state, THREE, &run, "strategy.easgd.tau=2", "workers=3", "stop.steps=5", FIXED);
    trace_read(run.trace, &trace);
    double zero = sim_zero(&trace);
    SIM_SPANS(&trace, 0, "compute", zero, {0, .1}, {.1, .2}, {.236, .336}, {.336, .436},
              {.472, .572}, {.572, .672}, {.708, .808}, {.808, .908});
    SIM_SPANS(&trace, 0, "wait", zero, {.2, .236}, {.436, .472}, {.672, .708});
    SIM_SPANS(&trace, 1, "compute", zero, {0, .125}, {.125, .25}, {.286, .411}, {.411, .536},
              {.572, .697}, {.697, .822});
    SIM_SPANS(&trace, 1, "wait", zero, {.25, .286}, {.536, .572}, {.822, .858});
    SIM_SPANS(&trace, 2, "compute", zero, {0, .2}, {.2, .4}, {.436, .636}, {.636, .836});
    SIM_SPANS(&trace, 2, "wait", zero, {.4, .436});
    trace_release(&trace);
    visits_are_reported(&run, zero);

    struct replay r;
    float centre[REPLAY_FLOATS];
    struct elastic *w = begin_replay(&r, *state, 3, centre);
    double given[REPLAY_FLOATS] = {0};
    for (size_t k = 0; k < sizeof centre_events / sizeof *centre_events; k++) {
        struct elastic *one = &w[centre_events[k].worker];
        if (centre_events[k].what == READ) {
            train_free(&r, one, (uint64_t)centre_events[k].worker, 2);
            pull_worker(&r, one, centre, 0.9f / 3);
            continue;
        }
        give_update(&r, one, centre);
        for (size_t i = 0; i < r.n; i++)
            given[i] += (double)one->d[i];
    }
    assert_true(replay_difference(&r, centre, run.dir) == 0);
    for (size_t i = 0; i < r.n; i++) /* Σ d, and the change of the centre */
        assert_true(fabs((double)centre[i] - (double)r.x0[i] - given[i]) < 1e-6);
    free(w);
    replay_close(&r);
}

/* τ = round(1.3·K·T_download / T_step): 1.3 · 2 · 0.2 / 0.1 = 5.2, once it is known. */
static void test_tau_follows_the_link(void **state)
{
    struct sim_run run = {.traced = true};
    struct trace_events trace;
    SIM(*state, "node { count: 2 } step_seconds: 0.1 link { mbit: 1000000 latency_us: 50000 }",
        &run, "strategy.easgd.tau=3", "strategy.easgd.tau_auto=true", "workers=2", "stop.steps=12");
    trace_read(run.trace, &trace);
    SIM_SPANS(&trace, 0, "wait", sim_zero(&trace), {.3, .5}, {1, 1.2}, {1.7, 1.9});
    trace_release(&trace);
}

/* A link so slow that to fetch takes far longer than τ steps (560 floats take 0.18 s each way);
 * and a d whose grant is late. Nothing is lost. */
static void test_a_slow_link_is_waited_for(void **state)
{
    train_alone(*state, "node { } step_seconds: 0.004 link { mbit: 0.1 }", 2, 9);
    train_alone(*state,
                /* the first d is granted late */
                "node { } step_seconds: 0.004 link { mbit: 100 }\n"
                "delay { from: -1 to: 0 tag: 'transfer_go' nth: 2 seconds: 0.5 }",
                2, 9);
}

/* ---- sync ---- */

/* The same three exchange synchronously, along a tree: worker 2 below worker 1, workers 0 and 1
 * below the driver. Headers go up and down, then the sums go up and the mean goes down: when the
 * slowest, and the lowest, has entered, the driver has the mean after six hops, workers 0 and 1
 * after seven, worker 2 after eight. Rounds of two steps, and the last of one.
 *
 *   worker 0  0 --.1--.2|..............|.463 --.563--.663|.........|.935 --1.035|....|1.207
 *   worker 1  0 ---.125---.25|.........|.463 ---.588---.713|.......|.935 ---1.06|....|1.207
 *   worker 2  0 -----.2-----.4|.........|.472 ----.672----.872|.....|.944 ----1.144|..|1.216 */
static void test_sync_timeline(void **state)
{
    static const struct {
        double longest, received; /* worker 0's wait; worker 2's report */
    } want[] = {{.263, .481}, {.272, .953}, {.172, 1.225}};
    struct sim_run run = {.traced = true};
    struct trace_events trace;
    SIM(*state, THREE, &run, "strategy.easgd.tau=2", "strategy.easgd.mode=sync", "workers=3",
        "stop.steps=5", FIXED, "collective.algorithm=tree");
    trace_read(run.trace, &trace);
    double zero = sim_zero(&trace);
    SIM_SPANS(&trace, 0, "compute", zero, {0, .1}, {.1, .2}, {.463, .563}, {.563, .663},
              {.935, 1.035});
    SIM_SPANS(&trace, 0, "exchange", zero, {.2, .463}, {.663, .935}, {1.035, 1.207});
    SIM_SPANS(&trace, 1, "compute", zero, {0, .125}, {.125, .25}, {.463, .588}, {.588, .713},
              {.935, 1.06});
    SIM_SPANS(&trace, 1, "exchange", zero, {.25, .463}, {.713, .935}, {1.06, 1.207});
    SIM_SPANS(&trace, 2, "compute", zero, {0, .2}, {.2, .4}, {.472, .672}, {.672, .872},
              {.944, 1.144});
    SIM_SPANS(&trace, 2, "exchange", zero, {.4, .472}, {.872, .944}, {1.144, 1.216});
    trace_release(&trace);
    for (int n = 0; n < 3; n++) {
        sim_exchange(&run, n, 0, n + 1, zero, want[n].received);
        assert_true(fabs(run_number(run.dir, "exchange", n, "waited_s") - want[n].longest) < 1e-5);
    }
}

/* Eq. 2 with the centre of before, then Eq. 8. Sums are in the order of ranks, as a tree adds. */
static void visit_centre(const struct replay *r, struct elastic *w, size_t k, float *centre,
                         float alpha, float beta)
{
    for (size_t i = 0; i < r->n; i++) {
        float sum = k == 1   ? w[0].x[i]
                    : k == 2 ? w[0].x[i] + w[1].x[i]
                             : w[0].x[i] + (w[1].x[i] + w[2].x[i]);
        for (size_t j = 0; j < k; j++)
            w[j].x[i] = w[j].x[i] - alpha * (w[j].x[i] - centre[i]);
        centre[i] = (1 - beta) * centre[i] + beta * (sum / (float)k);
    }
}

static double sync_differs_of(struct tiny *t, const char *cluster, const char *workers,
                              const char *limit, uint64_t k, float alpha, float beta,
                              const char *more)
{
    struct sim_run run = {0};
    struct replay r;
    float centre[REPLAY_FLOATS];
    struct elastic *w = begin_replay(&r, t, k, centre);
    uint64_t offset = 0, steps = 11, tau = 3;
    SIM(t, cluster, &run, "strategy.easgd.tau=3", "strategy.easgd.mode=sync", "stop.steps=11",
        FIXED, workers, limit, "collective.algorithm=tree", more);
    for (uint64_t s = 0; s < steps; s += tau) {
        uint64_t round = steps - s < tau ? steps - s : tau;
        for (uint64_t j = 0; j < k; j++)
            for (uint64_t i = 0; i < round; i++)
                train_worker(&r, &w[j], offset + (i * k + j) * SIM_BATCH);
        offset += round * k * SIM_BATCH;
        visit_centre(&r, w, k, centre, alpha, beta);
    }
    double apart = replay_difference(&r, centre, run.dir);
    free(w);
    replay_close(&r);
    return apart;
}

static double sync_differs(struct tiny *t, uint64_t k, float alpha, float beta, const char *more)
{
    char workers[32];
    snprintf(workers, sizeof workers, "workers=%u", (unsigned)k);
    return sync_differs_of(t, SIM_CALM, workers, "seed=1", k, alpha, beta, more);
}

static void test_sync_to_the_bit(void **state)
{
    assert_true(sync_differs(*state, 1, 0.9f, 0.9f, "seed=1") == 0);
    assert_true(sync_differs(*state, 2, 0.9f / 2, 0.9f / 2 * 2, "seed=1") == 0);
    assert_true(sync_differs(*state, 3, 0.9f / 3, 0.9f / 3 * 3, "seed=1") < 1e-6);
    assert_true(sync_differs(*state, 2, 0.9f / 2, 0.25f, "strategy.easgd.beta=0.25") == 0);
    assert_true(sync_differs(*state, 2, 0.9f / 2, 0.25f, "seed=1") > 1e-3); /* the test's test */
}

/* α and β follow the workers in the view, not those that may join later. The last test, since it
 * takes the number of workers out of the job. */
static void test_alpha_follows_the_view(void **state)
{
    static const char later[] = SIM_CALM "fault { at: 1000 join: 2 } fault { at: 1000 join: 3 }";
    static const char none[] = SIM_CALM "fault { at: 1000 join: 1 } fault { at: 1000 join: 2 } "
                                        "fault { at: 1000 join: 3 }";
    float alpha = 0.9f / 2;
    tiny_elastic(*state);
    assert_true(sync_differs_of(*state, later, "workers_min=2", "workers_max=4", 2, alpha,
                                alpha * 2, "seed=1") == 0);
    assert_true(sync_differs_of(*state, later, "workers_min=2", "workers_max=4", 2, 0.1f, 0.1f * 2,
                                "strategy.easgd.alpha=0.1") == 0);
    train_alone_of(*state, none, "workers_min=1", "workers_max=4", 4, 30);
}

/* ---- whole runs ---- */

static void test_a_death_at_every_message(void **state)
{
    static const char cluster[] = "node { count: 2 } node { speed: 0.6 } step_seconds: 0.004\n"
                                  "link { mbit: 10 }";
    const char *const mode[] = {"strategy.easgd.mode=async", "strategy.easgd.mode=sync"};
    int runs = 0;
    for (size_t i = 0; i < 2; i++) {
        const char *const set[] = {"workers=3", "strategy.easgd.tau=2", "stop.epochs=0.5", mode[i],
                                   NULL};
        for (uint32_t node = 0; node < 3; node++)
            runs += doomed_sweep(*state, cluster, set, node, STRIDE);
    }
    print_message("    %d deaths\n", runs);
    assert_true(runs > 120 / STRIDE);
}

static void test_deaths_at_moments(void **state)
{
    sim_survives(*state, (const char *const[]){"strategy.easgd.tau=3", NULL}, 24 / STRIDE, 0);
    sim_survives(*state,
                 (const char *const[]){"strategy.easgd.tau=3", "strategy.easgd.mode=sync", NULL},
                 24, 3);
}

/* Lost messages arrive a fifth of a second later, in any order. */
static void test_on_a_lossy_link(void **state)
{
    static const char lossy[] = "node { count: 3 jitter: 0.3 } node { speed: 0.4 }\n"
                                "step_seconds: 0.004 link { mbit: 20 latency_us: 500 loss: 0.05 }";
    for (int seed = 1; seed <= 10; seed++) {
        char set[32];
        struct sim_run r = {0};
        snprintf(set, sizeof set, "seed=%d", seed);
        SIM(*state, lossy, &r, set, "strategy.easgd.tau=1", "stop.epochs=2");
        sim_adds_up(&r);
    }
}

/* Too high a rate: workers start over from the centre, which stays sound. When all have done so
 * twice in a row, the run ends by name. */
static void test_models_that_are_lost(void **state)
{
    static const char cluster[] = "node { count: 3 } step_seconds: 0.004 link { mbit: 100 }";
    const char *const mode[] = {"strategy.easgd.mode=async", "strategy.easgd.mode=sync"};
    for (size_t i = 0; i < 2; i++) {
        struct doomed_run r = {0};
        doomed_play(*state, cluster,
                    (const char *const[]){"workers=3", "strategy.easgd.tau=40", mode[i],
                                          "solver.base_lr=1e5", "stop.epochs=4", NULL},
                    1000, &r);
        if (r.rc != ERR_DIVERGED)
            fail_msg("%s: %s\n%s", mode[i], r.err.text, r.log);
        assert_true(r.end_s < 5);
        assert_true(i == 1 || strstr(r.log, "it starts over from the centre"));
    }
}

static void test_it_resumes(void **state)
{
    const char *const mode[] = {"strategy.easgd.mode=async", "strategy.easgd.mode=sync"};
    for (size_t i = 0; i < 2; i++) {
        struct sim_run r = {0};
        char path[3][512];
        SIM(*state, SIM_CALM, &r, "strategy.easgd.tau=2", mode[i], "stop.epochs=3",
            "checkpoint.every_seconds=0.05");
        assert_true(run_checkpoints(r.dir, path) > 0);
        double error = r.report.test_error, epochs = r.report.epochs;
        uint64_t used = r.report.used;
        SIM(*state, SIM_CALM, &r, "strategy.easgd.tau=2", mode[i], "stop.epochs=8",
            "checkpoint.every_seconds=0.05");
        assert_true(r.report.epochs >= 8 && epochs < 4 && r.report.used > used);
        assert_true(r.report.test_error <= error && r.report.test_error < 0.15);
        sim_adds_up(&r);
    }
}

/* ---- momentum ---- */

static Paceline__Job *job_with(const char *solver, int expected, const char *phrase)
{
    static const char least[] = "name: 't' net { zoo: 'lenet' } batch: 8 train_data { idx { images:"
                                " 'i' labels: 'l' } } strategy { easgd { momentum: true } } ";
    char text[512];
    Paceline__Job *job = NULL;
    struct err err = {0};
    snprintf(text, sizeof text, "%ssolver { base_lr: 0.1 %s }", least, solver);
    assert_int_equal(job_parse("t", text, strlen(text), &job, &err), OK);
    assert_int_equal(job_finish(job, &err), expected);
    if (expected != OK)
        assert_string_equal(err.text, phrase);
    return job;
}

static void test_momentum_is_nesterovs(void **state)
{
    struct sim_run a = {0}, b = {0}, c = {0};
    struct err err = {0};
    Paceline__Job *job = job_with("", OK, NULL);
    assert_int_equal(job_finish(job, &err), OK); /* a finished job may be finished again */
    assert_string_equal(job->solver->type, "Nesterov");
    assert_true(job->solver->momentum == 0.99f);
    job_free(job);
    job = job_with("type: 'Nesterov' momentum: 0.5", OK, NULL);
    assert_true(job->solver->momentum == 0.5f);
    job_free(job);
    job_free(job_with("type: 'SGD'", ERR_INPUT,
                      "strategy.easgd.momentum: is Nesterov's, but solver.type is \"SGD\""));
    SIM(*state, SIM_CALM, &a, "strategy.easgd.momentum=true", "workers=1", "stop.steps=25");
    SIM(*state, SIM_CALM, &b, "strategy.easgd={}", "solver.type=Nesterov", "workers=1",
        "stop.steps=25");
    SIM(*state, SIM_CALM, &c, "strategy.easgd={}", "workers=1", "stop.steps=25");
    assert_true(run_same_bits(a.dir, b.dir, "final.safetensors"));
    assert_false(run_same_bits(a.dir, c.dir, "final.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_worker_and_its_centre),
        cmocka_unit_test(test_what_is_given_is_waited_for),
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_tau_follows_the_link),
        cmocka_unit_test(test_a_slow_link_is_waited_for),
        cmocka_unit_test(test_sync_timeline),
        cmocka_unit_test(test_sync_to_the_bit),
        cmocka_unit_test(test_a_death_at_every_message),
        cmocka_unit_test(test_deaths_at_moments),
        cmocka_unit_test(test_on_a_lossy_link),
        cmocka_unit_test(test_models_that_are_lost),
        cmocka_unit_test(test_it_resumes),
        cmocka_unit_test(test_momentum_is_nesterovs),
        cmocka_unit_test(test_alpha_follows_the_view),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
