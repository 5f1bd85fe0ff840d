/* The paces of asynchronous workers (src/plan/server_round.c) against simulated runs. */
#include "round_scene.h"
#include "strategy/consistency.h"
#include "sweep_stride.h"
#include "tensor/vec.h"

struct pace_scene {
    const char *strategy, *solver; /* as set in the job */
    struct round_config config;
    int lane; /* of the exchanges that end a round */
    enum consistency_kind kind;
    size_t servers; /* on workers; ON_ALL: on each */
};

enum { ON_ALL = 1000 };

static const struct pace_scene paced[] = {
    {"strategy.easgd={tau: 4}",
     "solver.momentum=0.9",
     {.strategy = ROUND_EASGD_ASYNC, .tau = 4},
     .lane = 0},
    {"strategy.ps={consistency: asp}",
     "solver.momentum=0.9",
     {.strategy = ROUND_PS, .tau = 1, .server_states = 1, .kept_pushes = 8},
     .kind = CONSISTENCY_ASP},
    {"strategy.ps={consistency: bsp}",
     "solver.momentum=0.9",
     {.strategy = ROUND_PS, .tau = 1, .server_states = 1, .kept_pushes = 8},
     .kind = CONSISTENCY_BSP},
    {"strategy.ps={consistency: ssp}",
     "solver.momentum=0.9",
     {.strategy = ROUND_PS, .tau = 1, .server_states = 1, .kept_pushes = 8},
     .kind = CONSISTENCY_SSP},
    {"strategy.ps={}",
     "solver.momentum=0.9",
     {.strategy = ROUND_PS, .tau = 1, .server_states = 1, .kept_pushes = 8},
     .kind = CONSISTENCY_DSSP},
    {"strategy.downpour={}",
     "solver.momentum=0",
     {.strategy = ROUND_DOWNPOUR, .tau = 5, .fetch = 5, .kept_pushes = 2},
     .lane = 1},
    {"strategy.downpour={n_push: 2 n_fetch: 4}",
     "solver.momentum=0",
     {.strategy = ROUND_DOWNPOUR, .tau = 2, .fetch = 4, .kept_pushes = 3},
     .lane = 1},
    {"strategy.mpca={}",
     "solver.momentum=0.9",
     {.strategy = ROUND_PHASED, .fragments = 3, .phases = 3},
     .lane = 0},
    {"strategy.mpca={coordination: symmetric phases: 2}",
     "solver.momentum=0.9",
     {.strategy = ROUND_PHASED, .fragments = 2, .phases = 2, .symmetric = true},
     .lane = 0},
    {"strategy.pace={}",
     "solver.momentum=0.9",
     {.strategy = ROUND_PHASED, .fragments = 12, .phases = 3},
     .lane = 0},
};

/* Servers on workers. */
static const struct pace_scene placed[] = {
    {"strategy.ps={consistency: asp colocated: true}",
     "solver.momentum=0.9",
     {.strategy = ROUND_PS, .tau = 1, .server_states = 1, .kept_pushes = 8},
     .kind = CONSISTENCY_ASP,
     .servers = ON_ALL},
    {"strategy.ps={consistency: bsp colocated: true}",
     "solver.momentum=0.9",
     {.strategy = ROUND_PS, .tau = 1, .server_states = 1, .kept_pushes = 8, .in_rounds = true},
     .kind = CONSISTENCY_BSP,
     .servers = ON_ALL},
    {"strategy.ps={consistency: ssp servers: 2}",
     "solver.momentum=0.9",
     {.strategy = ROUND_PS, .tau = 1, .server_states = 1, .kept_pushes = 8},
     .kind = CONSISTENCY_SSP,
     .servers = 2},
    {"strategy.downpour={colocated: true}",
     "solver.momentum=0",
     {.strategy = ROUND_DOWNPOUR, .tau = 5, .fetch = 5, .kept_pushes = 2},
     .lane = 1,
     .servers = ON_ALL},
    {"strategy.downpour={n_push: 2 n_fetch: 4 servers: 2}",
     "solver.momentum=0",
     {.strategy = ROUND_DOWNPOUR, .tau = 2, .fetch = 4, .kept_pushes = 3},
     .lane = 1,
     .servers = 2},
};

enum { PLACED = sizeof placed / sizeof *placed };

enum { PACED = sizeof paced / sizeof *paced, PACED_ROUNDS = 24, VARIED_ROUNDS = 120 };

/* Two unequal workers need many rounds until they meet in the same way again. Workers that serve
 * each other never do: means of a dozen rounds differ by a tenth. */
static int rounds_of(const struct scene *s)
{
    bool varies = s->jitter > 0 || s->workers == 2 || s->config.servers > 0;
    return varies ? VARIED_ROUNDS : PACED_ROUNDS;
}

static void on_push(void *user, uint32_t worker, int64_t now, struct members *ok)
{
    struct members pushed = {0};
    members_add(&pushed, worker);
    consistency_push(user, &pushed, now, ok);
}

static void open_gate(struct consistency *c, const struct pace_scene *p, size_t workers,
                      struct round_config *config)
{
    const struct consistency_config settings = {
        .kind = p->kind, .staleness = 3, .s_lower = 3, .r_max = 12};
    struct members all = {0};
    for (size_t i = 0; i < workers; i++)
        members_add(&all, (uint32_t)i);
    consistency_init(c, &settings);
    consistency_join(c, &all);
    config->gate = on_push;
    config->gate_user = c;
}

/* Rounds a second of a worker in the middle of the run. */
static double measure_pace(const char *dir, int worker, int lane)
{
    static struct sim_exchange e[SIM_EXCHANGES_MAX];
    int n = sim_exchanges(dir, e), count = -1;
    double begin = 0.3 * e[n - 1].at, end = 0.85 * e[n - 1].at, first = 0, last = 0;
    for (int i = 0; i < n; i++) {
        if (e[i].node != worker || e[i].lane != lane || e[i].at < begin || e[i].at > end)
            continue;
        last = e[i].at;
        first = count++ < 0 ? last : first;
    }
    assert_true(count > 3);
    return count / (last - first) * 1e3;
}

/* The gradient of the upper layer is ready after f + 3g of 2f + 3g (round_sim_test.c). */
static void place_servers(const struct pace_scene *p, size_t workers, double leaves[ROUND_NODES],
                          struct round_config *config)
{
    const double f = (double)INPUTS * HIDDEN, g = (double)HIDDEN * OUTPUTS;
    const size_t upper = INPUTS * HIDDEN + HIDDEN;
    config->servers = p->servers == ON_ALL ? workers : p->servers;
    config->leaves = leaves;
    for (size_t i = 0; i < config->servers; i++) {
        bool is_upper = range_shard(WIDE, config->servers, i).from >= upper;
        leaves[i] = is_upper ? (f + 3 * g) / (2 * f + 3 * g) : 1;
    }
}

/* A worker's own pace in few rounds depends on whom it meets, and so on a few bytes of messages. */
#define WORKER_WORST 0.15

/* Each worker's pace is as predicted, without evaluations and checkpoints. After one of these three
 * unequal workers that serve each other wait for each other in another way until the end, and are a
 * tenth slower. Returns the error of the prediction of all workers' rounds a second. */
static double check_paces(struct tiny *t, const struct pace_scene *p, struct scene *s)
{
    static struct consistency consistency;
    struct sim_run r = {0};
    struct round_node node[ROUND_NODES];
    char cluster[2048], workers[32], steps[32], file[128];
    double took = 0, predicted = 0, worst = 0, leaves[ROUND_NODES];
    s->config = p->config;
    place_servers(p, s->workers, leaves, &s->config);
    if (p->config.strategy == ROUND_PS)
        open_gate(&consistency, p, s->workers, &s->config);
    struct round_cost cost = predict_scene(s, node);
    write_cluster(s, cluster, sizeof cluster);
    snprintf(workers, sizeof workers, "workers=%zu", s->workers);
    snprintf(steps, sizeof steps, "stop={steps:%d}", rounds_of(s) * (int)lround(cost.steps));
    snprintf(file, sizeof file, "net.file=%s/wide.prototxt", t->folder);
    tiny_write(t, "wide.prototxt", round_net);
    SIM(t, cluster, &r, p->strategy, p->solver, "solver.base_lr=0.001", workers, steps, file,
        "collective.chunk_kb=64", "batch=2", "kernels=dnnl", "evaluate.every_exchanges=1000000",
        "checkpoint={every_seconds: 0}");
    size_t reporting = s->config.strategy == ROUND_PHASED ? 1 : s->workers;
    for (size_t i = 0; i < reporting; i++) {
        double pace = measure_pace(r.dir, (int)i, p->lane);
        worst = fmax(worst, fabs(node[i + 1].pace / pace - 1));
        took += pace;
        predicted += node[i + 1].pace;
    }
    /* Whom dssp lets run ahead depends on its last two intervals, and so on each draw. */
    bool drawn = s->jitter > 0 && p->kind == CONSISTENCY_DSSP;
    if (worst > WORKER_WORST && !drawn)
        fail_msg("%s, %zu workers, %g Mbit/s, unequal %d: %.3f rounds a second, not %.3f; a worker "
                 "%.1f %% off",
                 p->strategy, s->workers, s->mbit, s->unequal, took, predicted, 100 * worst);
    return fabs(predicted / took - 1);
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Some of the rates of each number of workers, in turn, and so are equal and unequal nodes; with
 * PACELINE_SWEEP=all each of these. */
static void test_paces_of_workers(void **state)
{
    static const size_t workers[] = {2, 8, 32};
    enum { WORKERS = sizeof workers / sizeof *workers, RATES = 2 };
    double off[PACED * WORKERS * RATES * UNEQUALS];
    size_t n = 0, scene = 0, step = sweep_share(1, UNEQUALS);
    for (size_t kind = 0; kind < PACED; kind++)
        for (size_t w = 0; w < WORKERS; w++)
            for (double mbit = (kind + w) % 2 ? 10 : 100; mbit <= 10240;
                 mbit *= workers[w] > 8 ? 1e4 : 100, scene++)
                for (size_t u = 0; u < UNEQUALS && scene_is_tried(scene, workers[w]); u += step) {
                    struct scene s = {.workers = workers[w], .mbit = mbit, .step = 0.02};
                    s.unequal = (enum unequal)((scene + u) % UNEQUALS);
                    off[n++] = check_paces(*state, &paced[kind], &s);
                }
    qsort(off, n, sizeof *off, compare_numbers);
    print_message("    %.1f %% off in the median, %.1f %% at most\n", 100 * off[n / 2],
                  100 * off[n - 1]);
    assert_true(off[n / 2] <= ROUND_MEDIAN);
}

/* Between 32 workers that all serve so many messages are on their way that a simulation takes
 * minutes: only with PACELINE_SWEEP=all. */
static size_t most_workers(const struct pace_scene *p)
{
    bool tries_all = sweep_share(1, 2) == 1;
    return p->servers == ON_ALL && !tries_all ? 8 : ROUND_WORKERS_MAX;
}

static void test_paces_of_servers_on_workers(void **state)
{
    static const size_t workers[] = {2, 3, 8, 32};
    enum { WORKERS = sizeof workers / sizeof *workers, RATES = 2 };
    double off[PLACED * WORKERS * RATES * UNEQUALS];
    size_t n = 0, scene = 0, step = sweep_share(1, UNEQUALS);
    for (size_t kind = 0; kind < PLACED; kind++)
        for (size_t w = 0; w < WORKERS && workers[w] <= most_workers(&placed[kind]); w++)
            for (double mbit = (kind + w) % 2 ? 10 : 100; mbit <= 10240;
                 mbit *= workers[w] > 8 ? 1e4 : 100, scene++)
                for (size_t u = 0; u < UNEQUALS && scene_is_tried(scene, workers[w]); u += step) {
                    struct scene s = {.workers = workers[w], .mbit = mbit, .step = 0.02};
                    s.unequal = (enum unequal)((scene + u) % UNEQUALS);
                    off[n++] = check_paces(*state, &placed[kind], &s);
                }
    qsort(off, n, sizeof *off, compare_numbers);
    print_message("    %.1f %% off in the median, %.1f %% at most\n", 100 * off[n / 2],
                  100 * off[n - 1]);
    assert_true(off[n / 2] <= ROUND_MEDIAN && off[n - 1] <= ROUND_WORST);
}

/* Steps take between half and one and a half of their mean. */
static void test_paces_of_steps_that_vary(void **state)
{
    double off[PACED * 2];
    size_t n = 0;
    for (size_t kind = 0; kind < PACED; kind++)
        for (size_t workers = 3; workers <= 6; workers += 3) {
            struct scene s = {.workers = workers, .mbit = 300, .step = 0.02, .jitter = 0.5};
            s.unequal = n % 2 ? UNEQUAL_SPEEDS : ALL_EQUAL;
            off[n++] = check_paces(*state, &paced[kind], &s);
        }
    qsort(off, n, sizeof *off, compare_numbers);
    print_message("    %.1f %% off in the median, %.1f %% at most\n", 100 * off[n / 2],
                  100 * off[n - 1]);
    assert_true(off[n / 2] <= ROUND_MEDIAN && off[n - 1] <= ROUND_WORST);
}

/* Steps of gossip take their own time, and as many models arrive as predicted, in two runs of which
 * one is twice as long. Sends are drawn at random: of about 300, a tenth more or less is likely. */
static void test_pace_of_gossip(void **state)
{
    struct tiny *t = *state;
    struct scene s = {
        .config = {.strategy = ROUND_GOSSIP, .p = 0.25}, .workers = 4, .mbit = 100, .step = 0.02};
    struct round_node node[ROUND_NODES];
    struct sim_run r[2] = {{0}};
    char cluster[2048], file[128];
    struct round_cost cost = predict_scene(&s, node);
    write_cluster(&s, cluster, sizeof cluster);
    tiny_write(t, "wide.prototxt", round_net);
    snprintf(file, sizeof file, "net.file=%s/wide.prototxt", t->folder);
    for (int i = 0; i < 2; i++)
        SIM(t, cluster, &r[i], "strategy.gossip={p: 0.25}", "workers=4", file,
            "collective.chunk_kb=64", i ? "stop={steps: 800}" : "stop={steps: 400}",
            "evaluate.every_exchanges=1000000", "solver.base_lr=0.001");
    double step = (r[1].report.wall_s - r[0].report.wall_s) / 400;
    double arrived =
        run_count(r[1].dir, "exchange", NULL, NULL) - run_count(r[0].dir, "exchange", NULL, NULL);
    double sent = cost.carried * 0.25 * 400 * 4;
    print_message("    %.0f models arrived, predicted %.0f\n", arrived, sent);
    assert_true(fabs(step * cost.steps / cost.seconds - 1) < 0.01);
    assert_true(fabs(arrived / sent - 1) < 0.15);
}

/* A worker of two that is half as fast mixes in two models after a step: both have had a place
 * meanwhile, as `plan` counts them (api/plan_round.c). */
static void test_models_of_gossip_that_wait(void **state)
{
    static struct sim_exchange e[SIM_EXCHANGES_MAX];
    const struct scene s = {.workers = 2, .mbit = 1000, .step = 0.02, .unequal = UNEQUAL_SPEEDS};
    struct sim_run r = {0};
    char cluster[2048];
    double last = -1;
    int together = 0;
    write_cluster(&s, cluster, sizeof cluster);
    SIM(*state, cluster, &r, "strategy.gossip={p: 1}", "workers=2", "stop={steps: 40}",
        "evaluate.every_exchanges=1000000");
    int n = sim_exchanges(r.dir, e);
    for (int i = 0; i < n; i++)
        if (e[i].node == 1) {
            together += sim_close(e[i].at, last);
            last = e[i].at;
        }
    assert_true(together > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pace_of_gossip),
        cmocka_unit_test(test_models_of_gossip_that_wait),
        cmocka_unit_test(test_paces_of_workers),
        cmocka_unit_test(test_paces_of_servers_on_workers),
        cmocka_unit_test(test_paces_of_steps_that_vary),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
