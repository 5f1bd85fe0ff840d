/* The state of layers, s, under each strategy: BatchNorm's sums and their count, in a real net,
 * against the same sums computed by hand.
 *
 * Most runs here have a rate that moves no weight. Then a batch's contribution to s depends on its
 * records alone, and a worker's s after n steps is known, whatever it exchanged meanwhile. Where
 * sums do not decay (moving_average_fraction: 1) their count is a number of batches. */
#include "replay.h"
#include "strategy_sim.h"

#define NORM_NET(fraction)                                                         \
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"               \
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"        \
    "  convolution_param { num_output: 6 kernel_size: 3 bias_term: false\n"        \
    "    weight_filler { type: 'xavier' } } }\n"                                   \
    "layer { name: 'norm' type: 'BatchNorm' bottom: 'conv' top: 'norm'\n"          \
    "  batch_norm_param { moving_average_fraction: " fraction " } }\n"             \
    "layer { name: 'scale' type: 'Scale' bottom: 'norm' top: 'scale'\n"            \
    "  scale_param { bias_term: true } }\n"                                        \
    "layer { name: 'pool' type: 'Pooling' bottom: 'scale' top: 'pool'\n"           \
    "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"                   \
    "layer { name: 'relu' type: 'ReLU' bottom: 'pool' top: 'pool' }\n"             \
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'\n"           \
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n" \
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label'\n"     \
    "  top: 'accuracy' include { phase: TEST } }\n"                                \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label'\n"  \
    "  top: 'loss' }\n"

/* Three workers whose steps take a second, and messages almost nothing; the same, with unequal
 * steps. */
#define EQUAL "node { count: 3 } step_seconds: 1 link { mbit: 1000000 latency_us: 100 }\n"
#define UNEQUAL                                                           \
    "node { } node { speed: 0.8 } node { speed: 0.45 } step_seconds: 1\n" \
    "link { mbit: 1000000 latency_us: 100 }\n"

#define STILL "solver={base_lr:1e-30 lr_policy:'fixed'}"

enum { K = REPLAY_WORKERS, S = 48, CHANNELS = 6, COUNT = 32 };

struct state {
    double v[S];
};

/* ---- the same sums, taken by hand ---- */

static void net_of(struct tiny *t, const char *net)
{
    tiny_write(t, "net.prototxt", net);
}

static struct replay replayed;

/* Add one batch to s. */
static void add_batch(struct state *s, uint64_t place)
{
    struct learner *l = &replayed.l;
    assert_int_equal(l->s.n, S);
    for (size_t i = 0; i < S; i++)
        l->s.at[i] = (float)s->v[i];
    assert_int_equal(learner_gradient(l, place, SIM_BATCH), OK);
    for (size_t i = 0; i < S; i++)
        s->v[i] = (double)l->s.at[i];
}

/* y ← y + w·x */
static void add_state(struct state *y, double w, const struct state *x)
{
    for (size_t i = 0; i < S; i++)
        y->v[i] += w * x->v[i];
}

static struct state mean_of(const struct state *s, size_t n)
{
    struct state mean = {{0}};
    for (size_t i = 0; i < n; i++)
        add_state(&mean, 1.0 / (double)n, &s[i]);
    return mean;
}

/* A worker's own s after n steps, of `workers` that each go through their stripe of the records. */
static struct state own_after(uint64_t n, uint64_t worker, uint64_t workers)
{
    struct state s = {{0}};
    for (uint64_t t = 0; t < n; t++)
        add_batch(&s, (t * workers + worker) * SIM_BATCH);
    return s;
}

/* The same of asynchronous workers, each with one lease of eight steps after another, which it
 * requested when half of the one before was used; none so early that it overtakes another. */
static struct state own_leased_after(uint64_t n, uint64_t worker, uint64_t workers)
{
    struct state s = {{0}};
    for (uint64_t t = 0; t < n; t++)
        add_batch(&s, ((t / 8 * workers + worker) * 8 + t % 8) * SIM_BATCH);
    return s;
}

/* The joint s with which a run ended. */
static struct state model_of(const struct sim_run *r)
{
    struct safetensors st;
    struct state model = {{0}};
    float s[S] = {0};
    run_model(r->dir, "final.safetensors", &st);
    weights_take(&st, "s", net_state_segments(replayed.ground.ws->train), s);
    safetensors_release(&st);
    for (size_t i = 0; i < S; i++)
        model.v[i] = (double)s[i];
    return model;
}

static double distance_of(const struct state *a, const struct state *b)
{
    double most = 0, largest = 0;
    for (size_t i = 0; i < S; i++) {
        most = fmax(most, fabs(a->v[i] - b->v[i]));
        largest = fmax(largest, fabs(b->v[i]));
    }
    assert_true(largest > 0);
    return most / largest;
}

static void expect_state(const struct sim_run *r, const struct state *want, const char *what)
{
    struct state model = model_of(r);
    double gap = distance_of(&model, want);
    if (!(gap <= 2e-6))
        fail_msg("%s: off by %.2g; a count of %.9g, by hand %.9g", what, gap, model.v[COUNT],
                 want->v[COUNT]);
    if (!(replay_difference(&replayed, replayed.x0, r->dir) <= 1e-6))
        fail_msg("%s: the rate moves weights", what);
}

/* Steps that a worker has taken. */
static uint64_t steps_of(const struct trace_events *trace, int worker)
{
    uint64_t n = 0;
    for (size_t i = 0; i < trace->count; i++)
        n += trace->at[i].pid == TRACE_WORKER + worker && strcmp(trace->at[i].name, "compute") == 0;
    return n;
}

/* ---- synchronous strategies ---- */

/* The joint s is the mean of the workers'. */
static void test_in_step_it_is_the_mean(void **state)
{
    static const char *const options[] = {
        "strategy.sync.tau=4",
        "strategy.sync={tau:3 on_replace:average}",
        "strategy.allreduce={}",
        "strategy.allreduce.bucket_kb=1",
        "strategy.async_allreduce={method:1 s_every:1}",
        "strategy.async_allreduce={method:1 s_every:5}",
        "strategy.async_allreduce={method:2 s_every:1}",
        "strategy.async_allreduce={method:2}",
        "strategy.diloco.tau=4",
        "strategy.diloco={tau:4 fragments:3 overlap:2}",
        "strategy.easgd={mode:sync tau:4}",
        "strategy.ps.consistency=bsp",
        "strategy.ps={consistency:bsp colocated:true}",
    };
    net_of(*state, NORM_NET("0.875"));
    replay_open(&replayed, *state);
    struct state own[K];
    for (uint64_t i = 0; i < K; i++)
        own[i] = own_after(12, i, K);
    struct state want = mean_of(own, K);
    assert_true(fabs(want.v[COUNT] - 8 * (1 - pow(0.875, 12))) < 1e-5);
    assert_true(distance_of(&own[0], &want) > 1e-3); /* workers do differ */
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct sim_run r = {0};
        SIM(*state, EQUAL, &r, "workers=3", "stop.steps=12", STILL, options[i]);
        expect_state(&r, &want, options[i]);
    }
    replay_close(&replayed);
}

/* The third of three workers dies in the fourth of eight steps: where workers replace their s by
 * the mean, its earlier steps are included, and where they keep their own, they are not. Rounds are
 * of `tau` steps; the dead one's share of its last round is missed. */
static struct state after_a_death(uint64_t tau, bool replaced)
{
    struct state own[K] = {{{0}}};
    uint64_t place = 0, worker = K;
    for (uint64_t step = 0; step < 8; step += tau) {
        uint64_t left = step + tau > 3 ? K - 1 : K;
        for (uint64_t t = 0; t < tau; t++)
            for (uint64_t i = 0; i < left; i++)
                add_batch(&own[i], place + (t * worker + i) * SIM_BATCH);
        struct state mean = mean_of(own, left);
        for (uint64_t i = 0; i < left && replaced; i++)
            own[i] = mean;
        place += tau * worker * SIM_BATCH;
        worker = left;
    }
    return mean_of(own, K - 1);
}

static void test_who_replaces_his_own_and_who_keeps_it(void **state)
{
    static const struct {
        const char *options;
        uint64_t tau;
        bool replaced;
    } cases[] = {
        {"strategy.sync.tau=2", 2, true},
        {"strategy.allreduce={}", 1, true},
        {"strategy.diloco.tau=2", 2, false},
        {"strategy.easgd={mode:sync tau:2}", 2, false},
    };
    net_of(*state, NORM_NET("1"));
    replay_open(&replayed, *state);
    struct state kept = after_a_death(2, false), replaced = after_a_death(2, true);
    assert_true(distance_of(&kept, &replaced) > 1e-4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sim_run r = {0};
        SIM(*state, EQUAL "fault { at: 3.5 kill: 2 }", &r, "workers=3", "stop.steps=8", STILL,
            cases[i].options);
        struct state want = after_a_death(cases[i].tau, cases[i].replaced);
        expect_state(&r, &want, cases[i].options);
    }
    replay_close(&replayed);
}

/* ---- each at its own pace ---- */

/* The servers have the mean of each worker's last pushed s, weighted by its samples: one batch with
 * `ps`, with `downpour` those since the previous push. */
static void test_servers_have_the_mean_of_the_last(void **state)
{
    static const struct {
        const char *options;
        uint64_t n_push;
    } cases[] = {
        {"strategy.ps.consistency=asp", 1},
        {"strategy.ps={consistency:ssp staleness:2}", 1},
        {"strategy.ps={}", 1},
        {"strategy.ps={consistency:asp colocated:true}", 1},
        {"strategy.ps={consistency:asp servers:2}", 1},
        {"strategy.downpour={n_push:1 n_fetch:3}", 1},
        {"strategy.downpour={n_push:4 n_fetch:2}", 4},
        {"strategy.downpour={n_push:4 n_fetch:2 colocated:true}", 4},
    };
    net_of(*state, NORM_NET("1"));
    replay_open(&replayed, *state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sim_run r = {.traced = true};
        struct trace_events trace;
        struct state want = {{0}};
        uint64_t last[K], all = 0;
        SIM(*state, UNEQUAL, &r, "workers=3", "stop.steps=9", STILL, cases[i].options);
        trace_read(r.trace, &trace);
        for (int w = 0; w < K; w++) {
            uint64_t over = steps_of(&trace, w) % cases[i].n_push;
            last[w] = over > 0 ? over : cases[i].n_push;
            all += last[w];
        }
        for (int w = 0; w < K; w++) {
            struct state own = own_leased_after(steps_of(&trace, w), (uint64_t)w, K);
            add_state(&want, (double)last[w] / (double)all, &own);
        }
        assert_true(i > 0 || steps_of(&trace, 0) > steps_of(&trace, 2)); /* each at its own */
        expect_state(&r, &want, cases[i].options);
        trace_release(&trace);
    }
    replay_close(&replayed);
}

/* Alone it visits the centre after every second step but the last: s̃ ← s̃ + α(s − s̃), and s is
 * not pulled. */
static void test_the_centre_moves_and_the_worker_does_not(void **state)
{
    struct sim_run r = {0};
    struct state centre = {{0}}, own = {{0}};
    net_of(*state, NORM_NET("0.875"));
    replay_open(&replayed, *state);
    SIM(*state, EQUAL, &r, "workers=1", "stop.steps=9", STILL, "strategy.easgd={tau:2 alpha:0.25}");
    for (uint64_t n = 2; n < 9; n += 2) {
        own = own_after(n, 0, 1);
        add_state(&own, -1, &centre);
        add_state(&centre, 0.25, &own);
    }
    expect_state(&r, &centre, "easgd");
    replay_close(&replayed);
}

/* The global s is a mean of two workers' values after some of their steps.
 * The weight of the first is τ / (τ + τ') for numbers of steps between two exchanges. */
static bool is_weighted_mean(const struct state *model, struct state own[2][64],
                             const uint64_t taken[2], double *weight)
{
    for (uint64_t a = 1; a <= taken[0]; a++)
        for (uint64_t b = 1; b <= taken[1]; b++)
            for (uint64_t tau = 0; tau < 9 * 9; tau++) {
                struct state want = {{0}};
                double first = (double)(tau / 9), second = (double)(tau % 9);
                *weight = first / (first + second);
                double count = *weight * (double)a + (1 - *weight) * (double)b;
                if (!(fabs(count - model->v[COUNT]) <= 1e-4))
                    continue;
                add_state(&want, *weight, &own[0][a]);
                add_state(&want, 1 - *weight, &own[1][b]);
                if (distance_of(model, &want) <= 2e-6)
                    return true;
            }
    return false;
}

/* How many of eight runs, each a step longer, end with a mean of both workers in which the first
 * counts for about twice as much. In the last exchange of others one had no more to give. */
static int weighted_runs(struct tiny *t, const char *options, struct state own[2][64])
{
    static const char cluster[] =
        "node { } node { speed: 0.5 } step_seconds: 0.1 link { mbit: 0.4 latency_us: 100 }\n";
    int weighted = 0;
    for (unsigned steps = 16; steps < 24; steps++) {
        struct sim_run r = {.traced = true};
        struct trace_events trace;
        char stop[32];
        double weight = 0;
        snprintf(stop, sizeof stop, "stop.steps=%u", steps);
        SIM(t, cluster, &r, "workers=2", stop, STILL, options);
        trace_read(r.trace, &trace);
        const uint64_t taken[] = {steps_of(&trace, 0), steps_of(&trace, 1)};
        struct state model = model_of(&r);
        assert_true(taken[0] < 64 && taken[1] < taken[0]);
        if (!is_weighted_mean(&model, own, taken, &weight))
            fail_msg("%s, %s: no mean of the two, of %.9g batches", options, stop, model.v[COUNT]);
        weighted += weight > 0.55 && weight < 0.8;
        trace_release(&trace);
    }
    return weighted;
}

/* mpca, pace: s̃ is the mean weighted by τ, like R of Eq. 9, without Eq. 8 and 5: no memory and no
 * extrapolation. The first worker is twice as fast, so that its τ is. */
/* The batch of the stream that is step t of each worker: eight of its first lease; then leases of
 * two seconds, 16 steps of 0.1 s (more would exceed a fair share of an epoch) and 10 of 0.2 s, in
 * the order of the requests: at 0.4 s, 0.8 s and 1.6 s. */
static uint64_t leased_batch(int worker, uint64_t t)
{
    if (worker == 0)
        return t < 8 ? t : t < 24 ? 16 + (t - 8) : 42 + (t - 24);
    return t < 8 ? 8 + t : 32 + (t - 8);
}

static void test_mpca_weighs_and_neither_mixes_nor_extrapolates(void **state)
{
    static const char *const options[] = {
        "strategy.mpca={alpha_hold:0 ramp:1}",
        "strategy.mpca={alpha_hold:0 ramp:1 phases:1}",
        "strategy.mpca={alpha_hold:0 ramp:1 penalty:gradient adopt:arrival}",
        "strategy.mpca={alpha_hold:0 ramp:1 coordination:symmetric}",
        "strategy.pace={shards:3}",
        "strategy.pace={shards:3 coordination:symmetric}",
    };
    static struct state own[2][64];
    net_of(*state, NORM_NET("1"));
    replay_open(&replayed, *state);
    for (uint64_t w = 0; w < 2; w++)
        for (uint64_t n = 1; n < 64; n++) {
            own[w][n] = own[w][n - 1];
            add_batch(&own[w][n], leased_batch((int)w, n - 1) * SIM_BATCH);
        }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        int weighted = weighted_runs(*state, options[i], own);
        print_message("    %s: %d\n", options[i], weighted);
        assert_true(weighted >= 3);
    }
    replay_close(&replayed);
}

/* ---- sums and counts ---- */

/* Every record the same: then each batch has the same mean and variance, and so has every s, as
 * long as its sums and its count have been averaged alike. */
static void same_records(struct tiny *t)
{
    FILE *images = tiny_open(t, "train-images");
    tiny_put_be32(images, 0x803);
    tiny_put_be32(images, TINY_TRAIN);
    tiny_put_be32(images, TINY_SIDE);
    tiny_put_be32(images, TINY_SIDE);
    for (uint32_t i = 0; i < TINY_TRAIN; i++)
        for (int row = 0; row < TINY_SIDE; row++)
            for (int col = 0; col < TINY_SIDE; col++)
                fputc(tiny_pixel(1, 0, 0, row, col), images);
    fclose(images);
}

static void test_sums_and_count_go_together(void **state)
{
    static const char *const options[] = {
        "strategy.single={}",
        "strategy.sync={tau:3}",
        "strategy.sync={seconds:3}",
        "strategy.sync={tau:3 init_iterations:4}",
        "strategy.allreduce={}",
        "strategy.async_allreduce={s_every:3}",
        "strategy.async_allreduce={method:1 s_every:3}",
        "strategy.diloco={tau:4 fragments:2 overlap:1}",
        "strategy.easgd={tau:2}",
        "strategy.easgd={mode:sync tau:3}",
        "strategy.gossip={p:0.7}",
        "strategy.ps={}",
        "strategy.downpour={n_push:3 n_fetch:2}",
        "strategy.mpca={alpha_hold:0 ramp:2}",
        "strategy.mpca={alpha_hold:0 ramp:2 coordination:symmetric}",
        "strategy.pace={}",
        "strategy.pace={coordination:symmetric}",
    };
    struct tiny *t = *state;
    same_records(t);
    net_of(t, NORM_NET("0.875"));
    replay_open(&replayed, t);
    struct state one = own_after(1, 0, 1);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct sim_run r = {0};
        SIM(t, UNEQUAL, &r, i == 0 ? "workers=1" : "workers=3", "stop.steps=15", STILL, options[i]);
        struct state model = model_of(&r);
        double count = model.v[COUNT];
        if (!(count > 1 && count < 8)) /* 1/(1 − f) is never reached */
            fail_msg("%s: a count of %.9g", options[i], count);
        for (size_t k = 0; k < COUNT; k++)
            if (!(fabs(model.v[k] / count - one.v[k]) <= 1e-5 * fmax(1, fabs(one.v[k]))))
                fail_msg("%s: s[%zu] is %.9g, %.9g of them would be %.9g", options[i], k,
                         model.v[k], count, count * one.v[k]);
    }
    replay_close(&replayed);
    tiny_write_set(t, "train", 1, TINY_TRAIN);
}

/* ---- alone, and in groups ---- */

static void test_alone_it_is_single(void **state)
{
    static const char *const options[] = {
        "strategy.sync.tau=7",
        "strategy.sync={tau:7 on_replace:average}",
        "strategy.allreduce={}",
        "strategy.allreduce.bucket_kb=1",
        "strategy.async_allreduce={}",
        "strategy.async_allreduce={s_every:1}",
        "strategy.diloco={tau:7 outer_lr:1 outer_momentum:0}",
        "strategy.diloco={tau:7 outer_lr:1 outer_momentum:0 fragments:3 overlap:5 mix:1}",
        "strategy.gossip.p=1",
        "strategy.ps.consistency=bsp",
        "strategy.ps={}",
    };
    struct sim_run single = {0};
    net_of(*state, NORM_NET("0.9"));
    SIM(*state, SIM_CALM, &single, "workers=1", "stop.steps=45", "strategy.single={}");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct sim_run r = {0};
        SIM(*state, SIM_CALM, &r, "workers=1", "stop.steps=45", options[i]);
        if (!run_same_bits(r.dir, single.dir, "final.safetensors"))
            fail_msg("%s", options[i]);
        assert_true(run_number(r.dir, "end", 0, "test_loss") ==
                    run_number(single.dir, "end", 0, "test_loss"));
    }
}

/* Two learners inside a worker, each with the statistics of its own half of the batch, are two
 * workers that average gradients and s; and they are not one learner with all of it. */
static void test_two_local_learners_are_two_workers(void **state)
{
    struct sim_run local = {0}, two = {0}, whole = {0}, sync = {0};
    net_of(*state, NORM_NET("0.9"));
    SIM(*state, SIM_CALM, &local, "workers=1", "threads=2", "local=2", "stop.steps=20",
        "strategy.single={}");
    SIM(*state, SIM_CALM, &two, "workers=2", "batch=8", "stop.steps=20", "strategy.allreduce={}");
    SIM(*state, SIM_CALM, &whole, "workers=1", "stop.steps=20", "strategy.single={}");
    assert_true(run_difference(local.dir, two.dir) <= SIM_SAME);
    assert_true(run_difference(local.dir, whole.dir) > 10 * SIM_SAME);
    SIM(*state, SIM_CALM, &sync, "workers=3", "threads=2", "local=2", "strategy.sync.tau=4",
        "stop.epochs=3");
    assert_true(run_number(sync.dir, "end", 0, "test_error") < 0.3);
}

/* ---- and it trains ---- */

/* The evaluation uses the global model with its global s; a checkpoint has both. */
static void test_every_strategy_trains_it(void **state)
{
    static const char *const options[] = {
        "strategy.sync.tau=4",
        "strategy.allreduce={}",
        "strategy.async_allreduce={}",
        "strategy.diloco={tau:4 outer_momentum:0.5}",
        "strategy.easgd.tau=2",
        "strategy.easgd={mode:sync tau:2}",
        "strategy.gossip.p=0.5",
        "strategy.ps={}",
        "strategy.mpca={}",
        "strategy.pace={}",
        "strategy.downpour={}",
    };
    net_of(*state, NORM_NET("0.9"));
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct sim_run r = {0};
        bool plain = strstr(options[i], "downpour") != NULL; /* steps of four add up, */
        bool adds = strstr(options[i], "ps") != NULL;        /* and so do gradients */
        SIM(*state, SIM_CALM, &r, "stop.epochs=6", options[i],
            plain  ? "solver={base_lr:0.01 lr_policy:'fixed'}"
            : adds ? "solver.base_lr=0.0125"
                   : "solver.base_lr=0.05");
        double error = run_number(r.dir, "end", 0, "test_error");
        print_message("    %s: %.3g\n", options[i], error);
        assert_true(error < 0.2);
    }
}

static void test_it_resumes_from_a_checkpoint(void **state)
{
    struct sim_run whole = {0}, parts = {0};
    net_of(*state, NORM_NET("0.9"));
    SIM(*state, SIM_CALM, &whole, "stop.steps=24", "strategy.allreduce={}");
    SIM(*state, SIM_CALM, &parts, "stop.steps=11", "strategy.allreduce={}");
    SIM(*state, SIM_CALM, &parts, "stop.steps=24", "strategy.allreduce={}");
    assert_true(run_same_bits(parts.dir, whole.dir, "final.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_step_it_is_the_mean),
        cmocka_unit_test(test_who_replaces_his_own_and_who_keeps_it),
        cmocka_unit_test(test_servers_have_the_mean_of_the_last),
        cmocka_unit_test(test_the_centre_moves_and_the_worker_does_not),
        cmocka_unit_test(test_mpca_weighs_and_neither_mixes_nor_extrapolates),
        cmocka_unit_test(test_sums_and_count_go_together),
        cmocka_unit_test(test_alone_it_is_single),
        cmocka_unit_test(test_two_local_learners_are_two_workers),
        cmocka_unit_test(test_every_strategy_trains_it),
        cmocka_unit_test(test_it_resumes_from_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
