/* `mpca` and `pace` as a whole, in simulation: a timeline, against timelines drawn by hand;
 * results, against the equations in plain loops; and behaviour when a node dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "phased_trial.h"
#include "sweep_stride.h"

#include <math.h>

/* ---- timelines ---- */

/* Steps of 10, 20 and 40 ms; links without delay, except that reductions arrive at the driver 43 ms
 * after they were sent, and broadcasts after 60 ms. */
static const char unequal[] = "node { speed: 1 } node { speed: 0.5 } node { speed: 0.25 }\n"
                              "link { mbit: 1000000 latency_us: 1 }\n"
                              "delay { to: -1 tag: 'reduce' seconds: 0.043 }\n"
                              "delay { from: -1 tag: 'broadcast' seconds: 0.06 }\n";

struct happening {
    int64_t at; /* ns */
    char text[60];
};

struct story {
    struct happening is[1000];
    size_t count;
};

static void add_event(struct story *story, const struct trial *t, int64_t at, const char *text)
{
    long long ms = (long long)((at - t->begun + WORLD_SECOND / 2000) / (WORLD_SECOND / 1000));
    struct happening new = {.at = at};
    snprintf(new.text, sizeof new.text, "%lld %s", ms, text);
    assert_true(story->count < 1000);
    size_t i = story->count++;
    for (; i > 0 && story->is[i - 1].at > at + 1000; i--) /* in order of time, then of recording */
        story->is[i] = story->is[i - 1];
    story->is[i] = new;
}

/* Did this worker give shard s, or take a new x̃*_s, at the boundary before step k? */
static bool has_given(const struct trial *t, uint32_t w, uint64_t k, uint32_t s)
{
    return k > 1 && t->step[w][k].tau[s] == 1;
}

static bool has_taken(const struct trial *t, uint32_t w, uint64_t k, uint32_t s)
{
    return t->step[w][k].c[s] != t->step[w][k - 1].c[s];
}

static void draw_story(struct story *story, const struct trial *t)
{
    char text[40];
    story->count = 0;
    for (size_t i = 0; i < t->moves; i++)
        add_event(story, t, t->move[i], "joint model moves");
    for (uint32_t w = 0; w < t->workers; w++)
        for (uint64_t k = 1; k <= t->taken[w]; k++)
            for (uint32_t s = 0; s < t->lanes; s++) {
                const struct stepped *before = &t->step[w][k - 1], *after = &t->step[w][k];
                snprintf(text, sizeof text, "%c gives %u of %u", 'A' + (int)w, s,
                         (unsigned)before->tau[s]);
                if (has_given(t, w, k, s))
                    add_event(story, t, before->t, text);
                snprintf(text, sizeof text, "%c takes %u of %u", 'A' + (int)w, s,
                         (unsigned)after->c[s]);
                if (has_taken(t, w, k, s))
                    add_event(story, t, before->t, text);
            }
}

static void expect_story(void **state, const char *strategy, double seconds,
                         const char *const *want, size_t count)
{
    static struct trial t;
    static struct story story;
    t = (struct trial){.strategy = strategy,
                       .cluster = unequal,
                       .workers = 3,
                       .steps = STEPS_MAX,
                       .seconds = seconds};
    trial_open(&t, *state);
    trial_run(&t);
    assert_int_equal(t.rc, OK);
    draw_story(&story, &t);
    for (size_t i = 0; i < count; i++) {
        if (i >= story.count || strcmp(story.is[i].text, want[i]) != 0)
            fail_msg("event %zu: '%s', expected '%s'", i,
                     i < story.count ? story.is[i].text : "nothing", want[i]);
    }
    trial_close(&t);
}

#define EXPECT_STORY(state, strategy, seconds, ...)                                  \
    do {                                                                             \
        static const char *const want_[] = {__VA_ARGS__};                            \
        expect_story(state, strategy, seconds, want_, sizeof want_ / sizeof *want_); \
    } while (0)

/* One shard, one phase: reduce 43 ms, broadcast 60 ms, and the next tick begins.
 *
 *  ms  0   20   40   60   80  100  120  140  160  180  200  220  240  260  280  300  320  340  360
 * A    |-g--.----.----.----.----.----.----.--gt.----.----.----.----.----g----.----.----.----.----.g
 * B    |----g----.----.----.----.----.----.----gt---.----.----.----g----.----.----.----.----.----gt
 * C    |---------g---------.---------.---------gt--------.---------g---------.---------.---------gt
 * tick |    0    reduce    broadcast       |  1   reduce  broadcast    |  2   reduce  broadcast
 *      0        40        83             143    160     203          263            306         366
 *
 * Tick 0's contributions are requested at once, and made at the ends of first steps. Tick 1 comes
 * at 143, as nobody could know: all give at their next boundaries, 150 and 160, what is then τ =
 * 14, 7 and 3 steps, and take x̃*_1 with them (rotation). That makes a tick of 143 ms, so the next
 * is expected at 286. Each gives for it at its first boundary that is less than one and a half of
 * its steps and an eighth of a tick, 17.9 ms, ahead of that: A from 253.1 on, so at 260; B from
 * 238.1, at 240; C from 208.1, at 240. x̃*_2 comes to workers at 203 + 60 = 263, too late for them
 * to take it. Tick 2 begins then, and finds all there. Ticks took 143 and 120: of two the upper is
 * the median, tick 3 is expected at 406: B gives from 358.1 on, C from 328.1; A, from 373.1 on, is
 * asked at 366 and gives at 370, and finds x̃*_3 there. */
static void test_one_phase(void **state)
{
    EXPECT_STORY(
        state, "mpca { phases: 1 }", 0.5, "10 A gives 0 of 1", "20 B gives 0 of 1",
        "40 C gives 0 of 1", "83 joint model moves", "150 A gives 0 of 14", "150 A takes 0 of 1",
        "160 B gives 0 of 7", "160 B takes 0 of 1", "160 C gives 0 of 3", "160 C takes 0 of 1",
        "203 joint model moves", "240 B gives 0 of 4", "240 C gives 0 of 2", "260 A gives 0 of 11",
        "306 joint model moves", "360 B gives 0 of 6", "360 B takes 0 of 2", "360 C gives 0 of 3",
        "360 C takes 0 of 2", "370 A gives 0 of 11", "370 A takes 0 of 3", "413 joint model moves");
}

/* Three shards, three phases: while one is broadcast the next is reduced. For workers, a shard is
 * reduced when the last contribution has been sent; the driver has it 43 ms later, and they have
 * x̃* after another 60.
 *
 * tick  shard  begins        contributions of A, B, C       last   joint  x̃* there
 *   0     0      0           10 (asked) 20 (asked) 40 (asked)  40     83    143
 *   1     1     40           50 (asked) 60 (asked) 80 (asked)  80    123    183
 *   2     2     80           70         60         80          80    123    183
 *   3     0    143 (x̃*_0)    110        100        80         143    186    246
 *   4     1    183 (x̃*_1)    170        140        120        183    226    286
 *   5     2    183           190 (a.)   200 (a.)   160        200    243    303
 *   6     0    246 (x̃*_0)    210        200        200        246    289    349
 *
 * A tick is taken to last the median of those there were: 40 ms from tick 1 on, whatever else they
 * take. A gives when a shard's turn is less than 20 ms ahead, B 35, C 65. So at 70 A gives shard 2
 * for tick 2, expected at 80; at 110 shard 0 for tick 3, expected at 120. At 143 tick 3 begins, so
 * 183 and 223 are expected for 4 and 5; that 5 comes at 183, too, nobody foresees but C. x̃* of
 * ticks 1 and 2 are taken with the first contribution after 183. */
static void test_three_phases(void **state)
{
    EXPECT_STORY(
        state, "mpca { }", 0.4, "10 A gives 0 of 1", "20 B gives 0 of 1", "40 C gives 0 of 1",
        "50 A gives 1 of 5", "60 B gives 1 of 3", "60 B gives 2 of 3", "70 A gives 2 of 7",
        "80 C gives 0 of 1", "80 C gives 1 of 2", "80 C gives 2 of 2", "83 joint model moves",
        "100 B gives 0 of 4", "110 A gives 0 of 10", "120 C gives 1 of 1", "123 joint model moves",
        "123 joint model moves", "140 B gives 1 of 4", "160 C takes 0 of 1", "160 C gives 2 of 2",
        "170 A takes 0 of 1", "170 A gives 1 of 12", "186 joint model moves", "190 A takes 1 of 1",
        "190 A gives 2 of 12", "190 A takes 2 of 1", "200 B gives 0 of 5", "200 B takes 0 of 1",
        "200 B takes 1 of 1", "200 B gives 2 of 7", "200 B takes 2 of 1", "200 C gives 0 of 3",
        "200 C gives 1 of 2", "200 C takes 1 of 1", "200 C takes 2 of 1", "210 A gives 0 of 10",
        "226 joint model moves", "240 B gives 1 of 5", "240 C gives 2 of 2",
        "243 joint model moves");
}

/* The shortest time between two moves of the joint model, in ms. */
static double shortest_tick(void **state, const char *strategy, const char *cluster)
{
    static struct trial t;
    int64_t shortest = INT64_MAX;
    t = (struct trial){
        .strategy = strategy, .cluster = cluster, .workers = 3, .steps = STEPS_MAX, .seconds = 1.1};
    trial_open(&t, *state);
    trial_run(&t);
    assert_int_equal(t.rc, OK);
    assert_true(t.moves > 8);
    for (size_t i = 1; i < t.moves; i++) {
        int64_t gap = t.move[i] - t.move[i - 1];
        shortest = gap < shortest ? gap : shortest;
    }
    trial_close(&t);
    return (double)shortest / 1e6;
}

/* A shard is 187 floats, 6 ms at a megabit a second; reductions arrive 43 ms late. */
static const char narrow[] = "node { speed: 1 } node { speed: 0.5 } node { speed: 0.25 }\n"
                             "link { mbit: 1 latency_us: 100 }\n"
                             "delay { to: -1 tag: 'reduce' seconds: 0.043 }\n";
#define SHARD_MS (187 * 4 * 8e-3)

/* One phase: reduced and broadcast before the next may begin. Two: the next is reduced when this
 * one is prepared. Three: when it is reduced, as workers see it, so that several may be on their
 * way to the driver; but even then a broadcast has the links for itself. */
static void test_phases_bound_the_concurrency(void **state)
{
    double one = shortest_tick(state, "mpca { phases: 1 shards: 3 }", narrow);
    double two = shortest_tick(state, "mpca { phases: 2 shards: 3 }", narrow);
    double three = shortest_tick(state, "mpca { phases: 3 }", narrow);
    assert_true(one > 43 + 2 * SHARD_MS);
    assert_true(two > 43 + SHARD_MS && two < one);
    assert_true(three > SHARD_MS && three < 43);
}

/* Shards arrive at the driver as fast as they can be copied; preparing one takes three times as
 * long: 704 bytes 6.29 ms of a core, of which there are enough for all. One is prepared at a time,
 * in turn. */
static void test_one_shard_is_prepared_at_a_time(void **state)
{
    double tick = shortest_tick(state, "mpca { phases: 3 }",
                                "node { count: 3 } driver { cores: 4 }\n"
                                "link { mbit: 1000 latency_us: 10 }\n"
                                "costs { copy_gb_s: 0.000336 }");
    assert_true(tick > 6.28 && tick < 6.3);
}

/* C takes 200 ms a step, A and B 10: a typical step is 3 over 100 + 100 + 5 a second, 14.6 ms, and
 * C's lanes stop waiting for it after 29 ms. Others do not wait longer, and its contributions
 * count. */
static void test_the_slow_are_not_waited_for(void **state)
{
    static struct trial t;
    t = (struct trial){.strategy = "mpca { phases: 1 }",
                       .cluster = "node { count: 2 } node { speed: 0.05 }\n"
                                  "link { mbit: 1000000 latency_us: 1 }",
                       .workers = 3,
                       .steps = STEPS_MAX,
                       .seconds = 1.1};
    trial_open(&t, *state);
    trial_run(&t);
    assert_int_equal(t.rc, OK);
    for (size_t i = 1; i < t.moves; i++) /* the first is after C's first step */
        assert_true(t.move[i] - t.move[i - 1] <= WORLD_SECOND / 1000 * 41);
    assert_true(t.moves > 25);
    assert_int_equal(t.taken[2], 6);
    for (uint64_t k = 2; k <= 6; k++)
        assert_true(has_given(&t, 2, k, 0));
    trial_close(&t);
}

/* ---- the equations, in plain loops ---- */

/* No worker is too slow: every contribution counts at its turn. */
static const char calm[] = "node { speed: 1 } node { speed: 0.5 } node { speed: 0.34 }\n"
                           "link { mbit: 100 latency_us: 100 }\n"
                           "delay { to: -1 tag: 'reduce' seconds: 0.043 }\n"
                           "delay { from: -1 tag: 'broadcast' seconds: 0.06 }\n";

/* Contributions to an exchange, and its result: x̃* and x̃, or b and R of `pace`. */
struct cycle {
    size_t given;
    uint64_t tau[WORKERS_MAX];
    float x[WORKERS_MAX][FLOATS_MAX + STATE], star[FLOATS_MAX + STATE], joint[FLOATS_MAX];
};

struct replay {
    const struct trial *t;
    struct learner l;
    uint32_t lanes;
    bool tilts, rebases, equal;
    double beta, gamma;
    uint64_t ramp;
    float x[WORKERS_MAX][FLOATS_MAX], star[WORKERS_MAX][FLOATS_MAX];
    uint64_t counted[WORKERS_MAX][LANES_MAX]; /* contributions in what each has taken */
    float joint[FLOATS_MAX], v[FLOATS_MAX];
    /* `pace`: l and P of the last exchange, and T. */
    double leap[LANES_MAX], period[LANES_MAX], trained[LANES_MAX];
    struct cycle cycle[LANES_MAX][EXCHANGES_MAX];
    uint64_t gives[WORKERS_MAX][LANES_MAX];
    size_t checked;
};

static double ramped_share(const struct replay *p, uint64_t c)
{
    return c < p->ramp ? (double)c / (double)p->ramp : 1;
}

/* The job's defaults, but alpha_hold 1. */
static float alpha_at(uint64_t c)
{
    return c < 1 ? 0 : (float)(0.05 + 0.45 * pow(0.8, (double)(c - 1)));
}

static void expect_near(const char *what, uint32_t worker, uint64_t n, float have, float want)
{
    if (!(fabsf(have - want) <= 2e-5f))
        fail_msg("%s %u after %u: %g, expected %g", what, worker, (unsigned)n, (double)have,
                 (double)want);
}

/* Eq. 9, 8, 4, 5 for exchange n of shard s; s̃ is a mean alone. */
static void close_cycle(struct replay *p, uint32_t s, uint64_t n)
{
    struct cycle *cycle = &p->cycle[s][n];
    struct range r = range_shard(p->l.x.n, p->lanes, s);
    double beta = pow(p->beta, ramped_share(p, n - 1)), gamma = p->gamma * ramped_share(p, n - 1),
           delta = (double)0.8f, fresh = 1 - delta, taus = 0;
    for (uint32_t w = 0; w < p->t->workers; w++)
        taus += p->equal ? 1 : (double)cycle->tau[w];
    if (p->rebases) { /* pace_rules.h, without momentum */
        double gain = (1 - 1 / (double)p->t->workers) * fmin(1, p->trained[s] / 100);
        double period = taus / (double)p->t->workers;
        double left = fmax(0, 1 - period / 3);
        gamma = gain * (n > 1 ? fmin(period, p->period[s]) : period);
        delta = left + (1 - left) * (gain - p->leap[s] / period);
        fresh = (1 - left) / period;
        p->leap[s] = gamma;
        p->period[s] = period;
        p->trained[s] += period;
    }
    for (size_t i = 0; i < r.len + STATE; i++) {
        double sum = 0;
        for (uint32_t w = 0; w < p->t->workers; w++)
            sum += (p->equal ? 1 : (double)cycle->tau[w]) * (double)cycle->x[w][i];
        double mean = sum / taus;
        if (i >= r.len) {
            cycle->star[i] = (float)mean;
            continue;
        }
        float *x = &p->joint[r.from + i], *v = &p->v[r.from + i];
        double next = (1 - beta) * (double)*x + beta * mean;
        *v = (float)(delta * (double)*v + fresh * (next - (double)*x));
        *x = (float)next;
        cycle->joint[i] = *x;
        cycle->star[i] = (float)(next + gamma * (double)*v);
    }
}

static void give_contribution(struct replay *p, uint32_t w, uint64_t k, uint32_t s)
{
    struct range r = range_shard(p->l.x.n, p->lanes, s);
    uint64_t n = ++p->gives[w][s];
    assert_true(n < EXCHANGES_MAX);
    struct cycle *cycle = &p->cycle[s][n];
    cycle->tau[w] = p->t->step[w][k - 1].tau[s];
    memcpy(cycle->x[w], p->x[w] + r.from, r.len * sizeof(float));
    for (size_t i = 0; i < STATE; i++)
        cycle->x[w][r.len + i] = state_value(w, k - 1, i);
    if (++cycle->given == p->t->workers)
        close_cycle(p, s, n);
}

/* `pace`: d = b_n − p_n, if this worker has contributed since it took the last; else b_n − b_{n−1}.
 */
static void rebase_worker(struct replay *p, uint32_t w, uint32_t s, uint64_t n)
{
    struct range r = range_shard(p->l.x.n, p->lanes, s);
    const float *b = p->cycle[s][n].star, *from = p->star[w] + r.from;
    if (p->gives[w][s] > p->counted[w][s])
        from = p->cycle[s][n].x[w];
    p->counted[w][s] = p->gives[w][s];
    for (size_t i = 0; i < r.len; i++)
        p->x[w][r.from + i] += b[i] - from[i];
}

static void take_result(struct replay *p, uint32_t w, uint64_t k, uint32_t s)
{
    uint64_t n = p->t->step[w][k].c[s];
    struct range r = range_shard(p->l.x.n, p->lanes, s);
    const struct cycle *cycle = &p->cycle[s][n];
    const struct adopted *have = &p->t->adopted[s][n];
    assert_int_equal(cycle->given, p->t->workers);
    if (p->rebases)
        rebase_worker(p, w, s, n);
    memcpy(p->star[w] + r.from, cycle->star, r.len * sizeof(float));
    for (size_t i = 0; i < r.len; i++)
        expect_near("x̃* of shard", s, n, have->x[i], cycle->star[i]);
    bool symmetric = !trial_driver_hosts(p->t);
    for (size_t i = 0; i < r.len && symmetric; i++)
        expect_near("x̃ of shard", s, n, have->joint[i], cycle->joint[i]);
    for (size_t i = 0; i < STATE && s + 1 == p->lanes; i++)
        expect_near("s̃ of shard", s, n, have->x[r.len + i], cycle->star[r.len + i]);
    p->checked++;
}

/* Step k of worker w: Eq. 7 or 6 of `mpca`, the gradient, plain SGD. */
static void take_step(struct replay *p, uint32_t w, uint64_t k)
{
    float *x = p->x[w], pull[FLOATS_MAX];
    size_t n = p->l.x.n;
    for (uint32_t s = 0; s < p->lanes; s++) {
        struct range r = range_shard(n, p->lanes, s);
        for (size_t i = r.from; i < r.from + r.len; i++)
            pull[i] = p->rebases ? 0 : alpha_at(p->t->step[w][k].c[s]) * (x[i] - p->star[w][i]);
    }
    for (size_t i = 0; i < n; i++)
        x[i] -= p->tilts ? 0 : pull[i];
    memcpy(p->l.x.at, x, n * sizeof *x);
    uint64_t offset = phased_trial_offset(p->t, w, k - 1);
    assert_int_equal(learner_gradient(&p->l, offset, p->t->job->batch), OK);
    for (size_t i = 0; i < n; i++)
        x[i] -= 0.05f * (p->l.dx.at[i] + (p->tilts ? pull[i] : 0));
    for (size_t i = 0; i < n; i++)
        expect_near("x of", w, k, p->t->step[w][k].x[i], x[i]);
}

/* All steps of all workers, in the order in which they began. */
static void replay_trial(struct replay *p)
{
    const struct trial *t = p->t;
    uint64_t next[WORKERS_MAX] = {1, 1, 1, 1};
    for (;;) {
        uint32_t w = t->workers;
        for (uint32_t i = 0; i < t->workers; i++)
            if (next[i] <= t->taken[i] &&
                (w == t->workers || t->step[i][next[i] - 1].t < t->step[w][next[w] - 1].t))
                w = i;
        if (w == t->workers)
            return;
        uint64_t k = next[w]++;
        for (uint32_t s = 0; s < p->lanes; s++)
            if (has_taken(t, w, k, s))
                take_result(p, w, k, s);
        for (uint32_t s = 0; s < p->lanes; s++)
            if (has_given(t, w, k, s))
                give_contribution(p, w, k, s);
        take_step(p, w, k);
    }
}

static void expect_equations(void **state, const char *strategy)
{
    static struct trial t;
    struct replay *p = calloc(1, sizeof *p);
    struct err err;
    assert_non_null(p);
    t = (struct trial){.strategy = strategy,
                       .cluster = calm,
                       .workers = 3,
                       .steps = STEPS_MAX,
                       .seconds = 1.1,
                       .with_state = true};
    trial_open(&t, *state);
    trial_run(&t);
    assert_int_equal(t.rc, OK);
    p->t = &t;
    p->lanes = t.lanes;
    p->rebases = phased_rule(t.job) == &pace_rule;
    p->tilts = !p->rebases && t.job->strategy->mpca->penalty == PACELINE__MPCA__PENALTY__gradient;
    p->equal = strstr(strategy, "weights: equal");
    p->beta = p->rebases ? 1 : (double)0.9f;
    p->gamma = (double)0.7f;
    p->ramp = 4;
    assert_int_equal(learner_init(&p->l, NULL, t.job, &t.corpus, t.ws, &t.arena, &t.dx, &err), OK);
    for (uint32_t w = 0; w < t.workers; w++) {
        memcpy(p->x[w], p->l.x.at, p->l.x.n * sizeof(float));
        memcpy(p->star[w], p->l.x.at, p->l.x.n * sizeof(float));
    }
    memcpy(p->joint, p->l.x.at, p->l.x.n * sizeof(float));
    replay_trial(p);
    assert_true(p->checked > 20);
    trial_close(&t);
    free(p);
}

static void test_the_papers_equations(void **state)
{
    expect_equations(state, "mpca { phases: 1 ramp: 4 alpha_hold: 1 }");
    expect_equations(state, "mpca { phases: 2 ramp: 4 alpha_hold: 1 adopt: arrival }");
    expect_equations(state, "mpca { phases: 3 ramp: 4 alpha_hold: 1 }");
    expect_equations(state, "mpca { phases: 2 shards: 3 ramp: 4 alpha_hold: 1 penalty: gradient }");
    expect_equations(state, "mpca { ramp: 4 alpha_hold: 1 coordination: symmetric }");
    expect_equations(state, "mpca { ramp: 4 alpha_hold: 1 weights: equal }");
}

static void test_the_rule_of_pace(void **state)
{
    expect_equations(state, "pace { shards: 3 }");
    expect_equations(state, "pace { shards: 3 coordination: symmetric }");
}

/* All workers of `pace` train the same records: d is 0, and each trains as one alone does. */
static void test_equal_workers_train_as_one(void **state)
{
    static const char *const strategies[] = {"pace { shards: 3 gamma: 0 }",
                                             "pace { shards: 3 gamma: 0 coordination: symmetric }"};
    static struct trial t;
    struct learner l;
    struct err err;
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        t = (struct trial){.strategy = strategies[i],
                           .solver = "base_lr: 0.05 lr_policy: 'fixed' momentum: 0.9",
                           .cluster = "node { count: 3 } link { mbit: 1000000 latency_us: 1 }",
                           .workers = 3,
                           .same_records = true,
                           .steps = 60};
        trial_open(&t, *state);
        trial_run(&t);
        assert_int_equal(t.rc, OK);
        assert_int_equal(learner_init(&l, NULL, t.job, &t.corpus, t.ws, &t.arena, &t.dx, &err), OK);
        for (uint64_t k = 1; k <= t.steps; k++) {
            assert_int_equal(learner_step(&l, phased_trial_offset(&t, 0, k - 1), 4), OK);
            for (uint32_t w = 0; w < t.workers; w++)
                for (size_t j = 0; j < l.x.n; j++)
                    expect_near("x of", w, k, t.step[w][k].x[j], l.x.at[j]);
        }
        assert_true(t.step[0][t.steps].c[0] > 10);
        trial_close(&t);
    }
}

/* Without a penalty nothing returns: a worker is a learner alone, bit for bit. */
static void test_without_a_penalty_a_worker_is_alone(void **state)
{
    static struct trial t;
    struct learner l;
    struct err err;
    t = (struct trial){.strategy = "mpca { alpha_hold: 4000000000 }",
                       .cluster = unequal,
                       .workers = 1,
                       .steps = 30};
    trial_open(&t, *state);
    trial_run(&t);
    assert_int_equal(t.rc, OK);
    assert_true(t.moves > 3);
    assert_int_equal(learner_init(&l, NULL, t.job, &t.corpus, t.ws, &t.arena, &t.dx, &err), OK);
    for (uint64_t k = 1; k <= 30; k++) {
        assert_int_equal(learner_step(&l, phased_trial_offset(&t, 0, k - 1), 4), OK);
        assert_memory_equal(l.x.at, t.step[0][k].x, l.x.n * sizeof(float));
    }
    trial_close(&t);
}

/* A broadcast takes half a second, while cycles took a step or two: after four of them the penalty
 * stops, the worker logs this, and trains alone, until the exchanges continue. */
static void test_an_old_joint_model_pulls_no_worker(void **state)
{
    static struct trial t;
    struct learner l;
    struct err err;
    t = (struct trial){.strategy = "mpca { phases: 1 alpha_hold: 0 }",
                       .cluster = "node { } link { mbit: 1000000 latency_us: 1 }\n"
                                  "delay { from: -1 to: 0 tag: 'broadcast' nth: 20 seconds: 0.5 }",
                       .workers = 1,
                       .steps = STEPS_MAX};
    trial_open(&t, *state);
    trial_run(&t);
    assert_int_equal(t.rc, OK);
    assert_non_null(strstr(t.logged, "shard 0: no new global model for"));
    assert_int_equal(learner_init(&l, NULL, t.job, &t.corpus, t.ws, &t.arena, &t.dx, &err), OK);
    uint64_t pulled = 0, free = 0;
    for (uint64_t k = 2; k <= STEPS_MAX; k++) {
        memcpy(l.x.at, t.step[0][k - 1].x, l.x.n * sizeof(float));
        assert_int_equal(learner_step(&l, phased_trial_offset(&t, 0, k - 1), 4), OK);
        bool same = memcmp(l.x.at, t.step[0][k].x, l.x.n * sizeof(float)) == 0;
        free += same;
        pulled += !same;
    }
    assert_true(free > 30 && free < 60 && pulled > 50); /* of 500 ms all but some 50 */
    assert_true(t.step[0][STEPS_MAX].c[0] > 30);
    trial_close(&t);
}

/* ---- deaths ---- */

enum { STRIDE = SWEEP_STRIDE(8, 4) };

struct tallied {
    size_t runs, unformed, went_on;
};

/* The remaining workers have taken their steps and have the same x̃*; exchanges continued, each
 * reported once, or not at all if its reporter died. */
static void expect_agreement(const struct trial *t, uint32_t dead, struct tallied *sum)
{
    sum->runs++;
    sum->unformed += !t->formed;
    if (!t->formed)
        return;
    uint64_t last = UINT64_MAX;
    for (uint32_t w = 0; w < t->workers; w++) {
        if (w == dead)
            continue;
        if (t->ended[w] != OK || t->taken[w] != t->steps)
            fail_msg("worker %u ended with %d after %u steps", w, t->ended[w],
                     (unsigned)t->taken[w]);
        for (uint32_t s = 0; s < t->lanes; s++) {
            last = t->step[w][t->steps].c[s] < last ? t->step[w][t->steps].c[s] : last;
            for (uint64_t n = 0; n < EXCHANGES_MAX; n++)
                for (uint32_t v = 0; v < w; v++) {
                    uint64_t a = t->star[v][s][n], b = t->star[w][s][n];
                    if (v != dead && a && b && a != b)
                        fail_msg("%u and %u hold different models after exchange %u of shard %u", v,
                                 w, (unsigned)n, s);
                }
        }
    }
    if (last < 3)
        fail_msg("after %u was killed at message %u no shard came further than exchange %u", dead,
                 (unsigned)t->kill_send, (unsigned)last);
    sum->went_on++;
    for (uint32_t s = 0; s < t->lanes; s++)
        for (uint64_t n = 0; n < EXCHANGES_MAX; n++)
            assert_true(t->reported[s][n] <= 1);
}

static void kill_at_each_send(void **state, const char *strategy, struct tallied *sum)
{
    static struct trial t;
    for (uint32_t node = 0; node < 3; node++)
        for (uint64_t k = 1 + node % STRIDE;; k += STRIDE) {
            t = (struct trial){.strategy = strategy,
                               .cluster = "node { count: 3 } link { mbit: 20 latency_us: 100 }",
                               .workers = 3,
                               .steps = 8,
                               .kill_node = node,
                               .kill_send = k};
            trial_open(&t, *state);
            trial_run(&t);
            trial_close(&t);
            if (t.rc != OK)
                fail_msg("%s: killing %u at message %u ends with %d", strategy, node, (unsigned)k,
                         t.rc);
            if (t.formed && t.ended[node] == OK)
                break; /* it has sent fewer */
            expect_agreement(&t, node, sum);
        }
}

static void test_a_worker_dies_at_each_message_it_sends(void **state)
{
    static const char *const strategies[] = {
        "mpca { adopt: arrival }",
        "mpca { adopt: arrival coordination: symmetric }",
        "mpca { phases: 1 shards: 2 adopt: arrival }",
        "mpca { phases: 2 shards: 3 adopt: arrival coordination: symmetric }",
        "pace { shards: 3 }",
        "pace { shards: 3 coordination: symmetric }",
    };
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct tallied sum = {0};
        kill_at_each_send(state, strategies[i], &sum);
        print_message("%s: %zu runs, %zu never formed, %zu continued\n", strategies[i], sum.runs,
                      sum.unformed, sum.went_on);
        assert_true(sum.went_on > 200 / STRIDE);
    }
}

static void test_a_seed_is_a_run(void **state)
{
    static struct trial t;
    uint64_t trace[2];
    for (int i = 0; i < 2; i++) {
        t = (struct trial){.strategy = "mpca { coordination: symmetric }",
                           .cluster = "node { count: 3 jitter: 0.3 } link { mbit: 10 }",
                           .workers = 3,
                           .steps = 20,
                           .seed = 5};
        trial_open(&t, *state);
        trial_run(&t);
        assert_int_equal(t.rc, OK);
        trace[i] = t.trace;
        trial_close(&t);
    }
    assert_true(trace[0] == trace[1]);
}

/* A worker whose last step breaks its model contributes none of it, and ends. */
static void test_a_broken_rest_is_given_up(void **state)
{
    static const char *const strategies[] = {"mpca { }", "pace { shards: 3 }",
                                             "pace { shards: 3 coordination: symmetric }"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        static struct trial t;
        t = (struct trial){.strategy = strategies[i],
                           .cluster = "node { count: 3 } link { mbit: 1000 latency_us: 100 }\n",
                           .workers = 3,
                           .steps = 20,
                           .ends_broken = true};
        trial_open(&t, *state);
        trial_run(&t);
        assert_int_equal(t.rc, OK);
        assert_true(vec_finite(&t.joint, vec_all(&t.joint)));
        trial_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_phase),
        cmocka_unit_test(test_three_phases),
        cmocka_unit_test(test_phases_bound_the_concurrency),
        cmocka_unit_test(test_one_shard_is_prepared_at_a_time),
        cmocka_unit_test(test_the_slow_are_not_waited_for),
        cmocka_unit_test(test_the_papers_equations),
        cmocka_unit_test(test_the_rule_of_pace),
        cmocka_unit_test(test_equal_workers_train_as_one),
        cmocka_unit_test(test_without_a_penalty_a_worker_is_alone),
        cmocka_unit_test(test_an_old_joint_model_pulls_no_worker),
        cmocka_unit_test(test_a_worker_dies_at_each_message_it_sends),
        cmocka_unit_test(test_a_seed_is_a_run),
        cmocka_unit_test(test_a_broken_rest_is_given_up),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
