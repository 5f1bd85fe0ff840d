/* `gossip`: weights that are conserved to the last unit, even when members die; a timeline drawn by
 * hand; whole runs. */
#include "data/lease.h"
#include "doomed_run.h"
#include "replay.h"
#include "sim/scene.h"
#include "strategy/gossip_sender.h"
#include "strategy_sim.h"
#include "sweep_stride.h"

enum { STRIDE = SWEEP_STRIDE(8, 4) };

/* ---- weights ---- */

static void test_halves_and_sums_by_hand(void **state)
{
    (void)state;
    uint64_t w = 7;
    assert_int_equal(gossip_halve(&w), 3); /* the odd unit stays */
    assert_int_equal(w, 4);
    assert_int_equal(gossip_halve(&w), 2);
    assert_int_equal(gossip_halve(&w), 1);
    assert_int_equal(w, 1);
    assert_int_equal(gossip_halve(&w), 0);
    assert_int_equal(w, 1);
    assert_true(gossip_add(&w, 3) == 0.75f); /* 3 of 4 */
    assert_int_equal(w, 4);
    w = GOSSIP_WORKER;
    assert_true(gossip_add(&w, GOSSIP_WORKER) == 0.5f);
    w = GOSSIP_WORKER;
    assert_true(gossip_add(&w, GOSSIP_WORKER / 2) == (float)(1.0 / 3));
}

/* ---- members that only gossip ---- */

enum { MEMBERS = 5, X = 37, S = 3, STEPS = 40 };

/* A member, and its accounts: its accepted shares, and the shares that it took, by member. The test
 * owns them, so that those of the dead can be read as well. */
struct talker {
    struct gossip_sender sender;
    struct group group;
    struct logger log;
    struct arena arena;
    struct vec both, x, s;
    uint64_t gave[MEMBERS], took[MEMBERS];
    uint64_t skipped, refused, poisoned, returned;
    bool ended;
};

struct club {
    struct scene scene;
    struct talker talker[MEMBERS];
    bool poison; /* some letters of member 1 are spoilt on their way out */
    bool gentle; /* few letters, none towards the end */
};

static uint64_t roll_dice(const struct club *c, uint32_t node, uint64_t step, uint64_t what,
                          uint64_t n)
{
    return rng_below(c->scene.seed, 100 + what, (uint64_t)node << 32 | step, n);
}

static void book_out(struct talker *t)
{
    const struct gossip_message *l = &t->sender.out;
    if (atomic_load(&l->at) != SLOT_ENDED)
        return;
    if (l->status == OK)
        t->gave[l->peer] += l->w;
    t->refused += l->status == ERR_STOP;
}

static void book_in(struct talker *t)
{
    for (size_t i = 0; i < GOSSIP_INBOX; i++)
        if (atomic_load(&t->sender.in[i].at) == SLOT_THERE &&
            vec_finite(&t->sender.in[i].both, vec_all(&t->sender.in[i].both)))
            t->took[t->sender.in[i].peer] += t->sender.in[i].w;
}

static void take_all(struct talker *t)
{
    struct gossip_taken taken;
    book_out(t);
    t->returned += atomic_load(&t->sender.returned);
    gossip_drain(&t->sender);
    book_in(t);
    while (gossip_take(&t->sender, &t->both, &taken))
        assert_int_equal(taken.bytes, (X + S) * sizeof(float));
}

static void give_one(struct club *c, struct talker *t, uint32_t self, uint64_t step)
{
    uint32_t to = (uint32_t)roll_dice(c, self, step, 1, c->scene.workers - 1);
    to += to >= self;
    if (!gossip_share(&t->sender, to, &t->both)) {
        t->skipped++;
    } else if (c->poison && self == 1 && roll_dice(c, self, step, 2, 2)) {
        t->sender.out.both.at[X / 2] = NAN;
        t->poisoned++;
    }
}

/* The same as take_all, for the shares that gossip_finish takes itself. */
static int finish_talker(struct talker *t, struct world *w)
{
    struct gossip_sender *p = &t->sender;
    bool coming[GOSSIP_INBOX], going = atomic_load(&p->out.at) != SLOT_FREE;
    for (size_t i = 0; i < GOSSIP_INBOX; i++)
        coming[i] = atomic_load(&p->in[i].at) != SLOT_FREE;
    int rc = gossip_finish(p, &t->both, world_now(w) + 100 * WORLD_SECOND);
    if (rc != OK)
        return rc;
    if (going && p->out.status == OK)
        t->gave[p->out.peer] += p->out.w;
    t->refused += going && p->out.status == ERR_STOP;
    for (size_t i = 0; i < GOSSIP_INBOX; i++)
        if (coming[i] && p->in[i].transfer.status == OK)
            t->took[p->in[i].peer] += p->in[i].w;
    return OK;
}

static int talk_scene(struct scene *s, struct world *w)
{
    struct club *c = (struct club *)s;
    struct talker *t = &c->talker[w->self];
    *t = (struct talker){.log = {.write = scene_log, .user = s, .level = LOG_INFO}};
    t->group = (struct group){.world = w, .log = &t->log};
    arena_init(&t->arena);
    int rc = vec_init_model(&t->both, &t->x, &t->s, &t->arena, X, S);
    if (rc == OK)
        rc = gossip_sender_open(&t->sender, w, &t->group, X + S, 0, &t->arena);
    for (size_t i = 0; rc == OK && i < X; i++)
        t->x.at[i] = (float)(100 + w->self * 100 + i);
    for (uint64_t step = 0; rc == OK && step < STEPS; step++) {
        double seconds = 1e-4 * (double)(1 + roll_dice(c, w->self, step, 0, 40));
        rc = world_work(w, &(struct cost){seconds});
        if (rc != OK)
            break;
        take_all(t);
        if (c->gentle ? step < STEPS / 2 && roll_dice(c, w->self, step, 3, 8) == 0
                      : roll_dice(c, w->self, step, 3, 3) > 0)
            give_one(c, t, w->self, step);
    }
    if (rc == OK)
        rc = finish_talker(t, w);
    t->ended = rc == OK;
    if (rc == OK)
        rc = world_sleep(w, BEGIN + 300 * WORLD_SECOND); /* others may still have a letter for us */
    gossip_sender_close(&t->sender);
    return rc;
}

static void forget_club(struct club *c)
{
    for (uint32_t i = 0; i < c->scene.workers; i++)
        arena_release(&c->talker[i].arena);
}

/* Each share that one live member has given to another has been taken, to the unit; and each
 * member's weight is its first one, less its given shares, plus its taken shares. Without deaths:
 * the whole weight. */
static void weights_are_conserved(const struct club *c)
{
    uint64_t sum = 0, dead = 0;
    for (uint32_t i = 0; i < c->scene.workers; i++) {
        const struct talker *t = &c->talker[i];
        uint64_t w = GOSSIP_WORKER;
        dead += !t->ended;
        if (!t->ended)
            continue;
        for (uint32_t j = 0; j < c->scene.workers; j++) {
            if (c->talker[j].ended && !c->poison && t->gave[j] != c->talker[j].took[i])
                fail_msg("seed %u, message %u of %u: %u gave %u %llu, which took %llu",
                         (unsigned)c->scene.seed, (unsigned)c->scene.kill_send, c->scene.kill_node,
                         i, j, (unsigned long long)t->gave[j],
                         (unsigned long long)c->talker[j].took[i]);
            w += t->took[j] - t->gave[j];
        }
        if (!c->poison)
            assert_true(t->sender.w == w);
        sum += t->sender.w;
    }
    if (dead == 0)
        assert_true(sum == c->scene.workers * GOSSIP_WORKER);
}

static void play_club(struct club *c, const char *cluster, uint32_t workers, uint64_t seed)
{
    memset(c->talker, 0, sizeof c->talker);
    c->scene.cluster = cluster;
    c->scene.workers = workers;
    c->scene.worker = talk_scene;
    c->scene.seed = seed;
    int rc = scene_play_on(&c->scene, SIM_FIBRES);
    if (rc != OK)
        fail_msg("%s", c->scene.log);
}

static const char lan[] = "node { count: 5 } link { mbit: 100 latency_us: 100 }";
static const char rough[] = "node { count: 2 jitter: 0.5 } node { speed: 0.2 } node { count: 2 }"
                            "link { mbit: 20 latency_us: 1500 loss: 0.02 }";

/* Mixing leaves Σ w x alone, to rounding: where no letter is refused. A weight that returns finds
 * another x than the one it left. */
static bool the_mean_is_conserved(const struct club *c)
{
    for (uint32_t k = 0; k < c->scene.workers; k++)
        if (c->talker[k].refused > 0)
            return false;
    for (size_t i = 0; i < X; i++) {
        double sum = 0, first = 0;
        for (uint32_t k = 0; k < c->scene.workers; k++) {
            double w = (double)c->talker[k].sender.w / (double)GOSSIP_WORKER;
            sum += w * (double)c->talker[k].x.at[i];
            first += 100 + k * 100 + (double)i;
        }
        assert_true(fabs(sum - first) < 1e-5 * first);
    }
    return true;
}

static void test_nothing_is_lost_without_deaths(void **state)
{
    (void)state;
    struct club *c = calloc(1, sizeof *c);
    uint64_t skipped = 0, refused = 0, means = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        c->gentle = seed % 3 == 0;
        play_club(c, seed % 2 ? lan : rough, 2 + (uint32_t)seed % 4, seed);
        weights_are_conserved(c);
        means += the_mean_is_conserved(c);
        for (uint32_t i = 0; i < c->scene.workers; i++) {
            assert_true(c->talker[i].ended);
            skipped += c->talker[i].skipped;
            refused += c->talker[i].refused;
        }
        forget_club(c);
    }
    print_message("    %u letters not begun, %u refused; %u runs without\n", (unsigned)skipped,
                  (unsigned)refused, (unsigned)means);
    assert_true(skipped > 50 && refused > 50 && means > 5);
    free(c);
}

/* One is killed at each message it hands to the world, and sometimes another at some moment. */
static void test_nothing_is_lost_when_members_die(void **state)
{
    (void)state;
    struct club *c = calloc(1, sizeof *c);
    unsigned runs = 0, two = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        play_club(c, lan, 4, seed);
        uint64_t most = c->scene.sent;
        forget_club(c);
        for (uint64_t k = 1; k <= most; k += STRIDE, runs++) {
            char cluster[200];
            snprintf(cluster, sizeof cluster, "%s fault { at: %.6f kill: 3 }",
                     seed % 2 ? lan : rough, 10 + 1e-4 * (double)(k % 900));
            c->scene.kill_node = (uint32_t)seed % 3;
            c->scene.kill_send = k;
            play_club(c, k % 3 ? seed % 2 ? lan : rough : cluster, 4, seed);
            weights_are_conserved(c);
            two += !c->talker[3].ended;
            forget_club(c);
        }
        c->scene.kill_send = 0;
        c->scene.kill_node = (uint32_t)(seed + 1) % 3;
    }
    print_message("    %u runs, in %u of them two die\n", runs, two);
    assert_true(runs > 200 / STRIDE && two > 40 / STRIDE);
    free(c);
}

/* A model that is spoilt on its way is reported, its weight returns, and no model contains it. */
static void test_infinite_model_returns_its_weight(void **state)
{
    (void)state;
    struct club *c = calloc(1, sizeof *c);
    uint64_t poisoned = 0, back = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        c->poison = true;
        play_club(c, lan, 4, seed);
        weights_are_conserved(c);
        for (uint32_t i = 0; i < 4; i++) {
            assert_true(vec_finite(&c->talker[i].x, vec_all(&c->talker[i].x)));
            poisoned += c->talker[i].poisoned;
            back += c->talker[i].returned;
        }
        assert_non_null(strstr(c->scene.log, "worker 1: its model for worker "));
        assert_null(strstr(c->scene.log, "worker 0: its model"));
        forget_club(c);
    }
    assert_true(poisoned > 30 && back > 0);
    free(c);
}

/* ---- whole runs ---- */

static void test_alone_it_is_single(void **state)
{
    struct sim_run single = {0}, gossip = {0};
    SIM(*state, SIM_CALM, &single, "stop.steps=45", "workers=1", "strategy.single={}");
    SIM(*state, SIM_CALM, &gossip, "stop.steps=45", "workers=1", "strategy.gossip.p=1");
    assert_true(run_same_bits(gossip.dir, single.dir, "final.safetensors"));
    assert_int_equal(run_count(gossip.dir, "exchange", NULL, NULL), 0);
}

/* Three workers, the last half as fast; a step takes 0.1 s, a hop 0.06 s, bytes next to nothing; p
 * = 1, so that each sends after every step, if its last message has been sent. A message takes
 * three hops: its header, the grant, the vector; its bytes leave after the second. Seconds from the
 * first step on; `s` a message sent, `-` none, since the last is under way; `t` a message taken:
 *
 *             .1    .2    .3    .4    .5    .6    .7    .8
 *   worker 0  |s-1  |-    |st 1 |-    |s-1  |t    |st 1 |tt   stop
 *   worker 1  |s-0  |-    |st 2 |t    |st 0 |-    |st 0 |t    stop
 *   worker 2        |s-1        |s-0        |st 0       |     stop
 *
 * The receivers drawn by seed 1: worker 0: 1, 2, 1, 1, 1, 1, 1; 1: 0, 2, 2, 2, 0, 2, 0; 2: 1, 0, 0.
 * Fifteen steps make five of all together: at 0.6 these are taken, at 0.66 the driver has heard so,
 * and its word is everywhere at 0.72. Messages that arrive by then are still taken, in order of
 * arrival: worker 2's at 0.78, the last two at 0.88. Nobody has ever waited. */
struct drawn_message {
    int from, sent, to, taken; /* tenths of a second */
};

static const struct drawn_message drawn[] = {
    {0, 1, 1, 3}, {1, 1, 0, 3}, {2, 2, 1, 4}, {0, 3, 1, 5}, {1, 3, 2, 6}, {2, 4, 0, 6},
    {0, 5, 1, 7}, {1, 5, 0, 7}, {2, 6, 0, 8}, {0, 7, 1, 8}, {1, 7, 0, 8},
};

enum { MESSAGES = sizeof drawn / sizeof *drawn, LATE = 3 };

#define HOP 0.06

static bool is_reported(const struct sim_run *r, const struct drawn_message *l, int nth,
                        double zero)
{
    bool found = false;
    for (int k = 0; k < MESSAGES - LATE; k++) {
        double t = run_number(r->dir, "exchange", k, "t") - zero;
        double age = run_number(r->dir, "exchange", k, "seconds");
        found |= run_number(r->dir, "exchange", k, "node") == l->to &&
                 run_number(r->dir, "exchange", k, "n") == nth &&
                 fabs(t - (l->taken * 0.1 + HOP)) < 1e-5 &&
                 fabs(age - ((l->taken - l->sent) * 0.1 - HOP)) < 1e-5 &&
                 run_number(r->dir, "exchange", k, "waited_s") == 0;
    }
    return found;
}

struct drawn_worker {
    float x[REPLAY_FLOATS], m[REPLAY_FLOATS];
    uint64_t w, steps;
};

struct drawn_copy {
    float x[REPLAY_FLOATS];
    uint64_t w;
};

static void mix_model(float *x, uint64_t w, const float *x_m, uint64_t w_m, size_t n)
{
    float share = (float)((double)w_m / (double)(w + w_m));
    for (size_t i = 0; i < n; i++)
        x[i] = (1 - share) * x[i] + share * x_m[i];
}

/* Caffe's SGD at a fixed rate: m ← μm + η(g + λx); x ← x − m. */
static void drawn_step(struct replay *r, struct drawn_worker *self, uint64_t place)
{
    float g[REPLAY_FLOATS];
    replay_gradient(r, self->x, place, g);
    for (size_t i = 0; i < r->n; i++) {
        self->m[i] = 0.9f * self->m[i] + 0.05f * (g[i] + 0.0005f * self->x[i]);
        self->x[i] -= self->m[i];
    }
    self->steps++;
}

/* A tenth of a second's boundary of worker i: a step, then messages sent and taken. */
static void drawn_boundary(struct replay *r, struct drawn_worker *worker, struct drawn_copy *copy,
                           int i, int now)
{
    struct drawn_worker *self = &worker[i];
    if (i == 2 && now % 2)
        return;
    drawn_step(r, self, (self->steps + (uint64_t)i * LEASE_STEPS_MIN) * SIM_BATCH);
    for (int k = 0; k < MESSAGES; k++)
        if (drawn[k].from == i && drawn[k].sent == now) {
            memcpy(copy[k].x, self->x, sizeof self->x);
            copy[k].w = self->w / 2;
            self->w -= copy[k].w;
        }
    for (int k = 0; k < MESSAGES; k++)
        if (drawn[k].to == i && drawn[k].taken == now) {
            mix_model(self->x, self->w, copy[k].x, copy[k].w, r->n);
            self->w += copy[k].w;
        }
}

static void test_timeline(void **state)
{
    struct sim_run run = {.traced = true};
    struct trace_events trace;
    SIM(*state,
        "node { count: 2 } node { speed: 0.5 } step_seconds: 0.1\n"
        "link { mbit: 1000000 latency_us: 60000 }\n",
        &run, "strategy.gossip.p=1", "workers=3", "stop.steps=5", "seed=1",
        "solver.lr_policy=fixed");
    trace_read(run.trace, &trace);
    double zero = sim_zero(&trace);
    for (int w = 0; w < 2; w++)
        SIM_SPANS(&trace, w, "compute", zero, {0, .1}, {.1, .2}, {.2, .3}, {.3, .4}, {.4, .5},
                  {.5, .6}, {.6, .7}, {.7, .8});
    SIM_SPANS(&trace, 2, "compute", zero, {0, .2}, {.2, .4}, {.4, .6}, {.6, .8});
    trace_release(&trace);
    int nth[3] = {0};
    assert_int_equal(run_count(run.dir, "exchange", NULL, NULL), MESSAGES - LATE);
    for (int k = 0; k < MESSAGES - LATE; k++)
        if (!is_reported(&run, &drawn[k], ++nth[drawn[k].to], zero))
            fail_msg("letter %d is not as drawn", k);

    struct replay r;
    replay_open(&r, *state);
    struct drawn_worker *worker = calloc(3, sizeof *worker);
    struct drawn_copy *copy = calloc(MESSAGES, sizeof *copy);
    for (int i = 0; i < 3; i++) {
        memcpy(worker[i].x, r.x0, sizeof r.x0);
        worker[i].w = UINT64_C(1) << 40;
    }
    for (int now = 1; now <= 8; now++)
        for (int i = 0; i < 3; i++)
            drawn_boundary(&r, worker, copy, i, now);
    assert_true(worker[0].w + worker[1].w + worker[2].w == UINT64_C(3) << 40);
    mix_model(worker[0].x, worker[0].w, worker[1].x, worker[1].w, r.n);
    mix_model(worker[0].x, worker[0].w + worker[1].w, worker[2].x, worker[2].w, r.n);
    assert_true(replay_difference(&r, worker[0].x, run.dir) == 0); /* Σ w x / Σ w */
    free(worker);
    free(copy);
    replay_close(&r);
}

/* The final model is the mean over all, with their weights. */
static void test_all_weights_are_there_at_the_end(void **state)
{
    static const char cluster[] =
        "node { count: 2 } node { speed: 0.3 jitter: 0.3 } node { }\n"
        "step_seconds: 0.004 link { mbit: 20 latency_us: 900 loss: 0.01 }";
    for (int seed = 1; seed <= 8; seed++) {
        char set[32], want[128];
        struct doomed_run r = {0};
        snprintf(set, sizeof set, "seed=%d", seed);
        doomed_play(*state, cluster, (const char *const[]){"strategy.gossip.p=0.7", set, NULL},
                    1000, &r);
        if (r.rc != OK)
            fail_msg("%s", r.err.text);
        snprintf(want, sizeof want, "the mean of 4 models; their weights add up to 4\n");
        if (!strstr(r.log, want))
            fail_msg("seed %d: %s", seed, r.log);
        assert_true(r.exchanges > 10);
    }
}

/* Whenever one dies, at its end and while it collects the models too, the others end the run. */
static void test_a_death_at_every_message(void **state)
{
    static const char cluster[] = "node { count: 3 } step_seconds: 0.004 link { mbit: 100 }";
    const char *const set[] = {"workers=3", "strategy.gossip.p=0.5", "stop.epochs=0.5",
                               "evaluate.every_exchanges=3", NULL};
    int runs = 0;
    for (uint32_t node = 0; node < 3; node++)
        runs += doomed_sweep(*state, cluster, set, node, STRIDE);
    print_message("    %d deaths\n", runs);
    assert_true(runs > 60 / STRIDE);
}

static void test_deaths_at_moments(void **state)
{
    sim_survives(*state, (const char *const[]){"strategy.gossip.p=0.5", NULL}, 24 / STRIDE, 0);
}

/* The lowest number speaks for all; when it dies, the next does: an evaluation an epoch, and the
 * last one. */
static void test_another_speaks(void **state)
{
    struct sim_run r = {0};
    SIM(*state, SIM_CALM "fault { at: 0.03 kill: 0 }", &r, "strategy.gossip.p=0.5",
        "stop.epochs=8");
    assert_int_equal(run_count(r.dir, "member", "what", "dead"), 1);
    assert_true(run_count(r.dir, "eval", "set", "validation") >= 7);
}

static void play_lost(struct tiny *t, const char *rate, struct doomed_run *r)
{
    static const char cluster[] = "node { count: 2 } node { speed: 0.2 } step_seconds: 0.004\n"
                                  "link { mbit: 100 }";
    doomed_play(t, cluster,
                (const char *const[]){"workers=3", "strategy.gossip.p=0", "stop.steps=14",
                                      "solver.lr_policy=fixed", rate, NULL},
                1000, r);
}

/* With p = 0 models are sent only on request. At the first rate all models diverge at once, and the
 * run reports this. At the second a dozen steps are too many: the fast workers' models diverge when
 * the slow one's, after two or three, is still finite; they request it and continue. At the third
 * the fast ones' have diverged again when the run ends, and are left out. */
static void test_lost_models(void **state)
{
    struct doomed_run all = {0}, some = {0}, one = {0};
    play_lost(*state, "solver.base_lr=1e30", &all);
    assert_int_equal(all.rc, ERR_DIVERGED);
    assert_true(all.end_s < 1);
    play_lost(*state, "solver.base_lr=3000", &some);
    if (some.rc != OK)
        fail_msg("%s\n%s", some.err.text, some.log);
    assert_non_null(strstr(some.log, "worker 0, step 14: its model is lost"));
    assert_non_null(strstr(some.log, "worker 1, step 13: its model is lost"));
    assert_non_null(strstr(some.log, "the mean of 3 models; their weights add up to 3\n"));
    assert_int_equal(some.exchanges, 2);
    play_lost(*state, "solver.base_lr=5000", &one);
    assert_int_equal(one.rc, OK);
    assert_non_null(strstr(one.log, "the mean of 1 model;"));
}

/* Continues from a checkpoint, which is one member's model: equal weights again. */
static void test_it_resumes(void **state)
{
    struct sim_run r = {0};
    SIM(*state, SIM_CALM, &r, "strategy.gossip.p=0.5", "stop.epochs=3",
        "checkpoint.every_seconds=0.05");
    char path[3][512];
    assert_true(run_checkpoints(r.dir, path) > 0);
    double first = r.report.epochs;
    SIM(*state, SIM_CALM, &r, "strategy.gossip.p=0.5", "stop.epochs=6",
        "checkpoint.every_seconds=0.05");
    assert_true(r.report.epochs > first + 0.5);
    assert_true(r.report.test_error < 0.3);
    sim_adds_up(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves_and_sums_by_hand),
        cmocka_unit_test(test_nothing_is_lost_without_deaths),
        cmocka_unit_test(test_nothing_is_lost_when_members_die),
        cmocka_unit_test(test_infinite_model_returns_its_weight),
        cmocka_unit_test(test_alone_it_is_single),
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_all_weights_are_there_at_the_end),
        cmocka_unit_test(test_a_death_at_every_message),
        cmocka_unit_test(test_deaths_at_moments),
        cmocka_unit_test(test_another_speaks),
        cmocka_unit_test(test_lost_models),
        cmocka_unit_test(test_it_resumes),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
