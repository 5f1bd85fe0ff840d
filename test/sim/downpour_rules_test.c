/* Downpour with any learning rule, at the workers and at the servers, against a simulation by hand:
 * the timeline is drawn, and the arithmetic is written out in double. */
#include "softmax_regression.h"
#include "strategy_sim.h"

enum { WORKERS = 3, RECORDS = SIM_BATCH, FEATURES = TINY_SIDE * TINY_SIDE };
enum { WEIGHTS = TINY_CLASSES * (FEATURES + 1) };

#define RATE 0.05
#define DELTA \
    0.01          /* large, so that rounding of small gradients is not divided by next to nothing */
#define NEAR 1e-5 /* from the simulation by hand, of the largest weight */

static const char net[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

static float pixels[RECORDS * FEATURES];
static uint32_t label[RECORDS];
static struct regression regression;
static double initial[WEIGHTS];
static char set_net[160], set_images[160], set_labels[160];

/* As many records as a step takes: each step takes all of them, whatever its leases are. */
static void write_records(struct tiny *t)
{
    tiny_write_set(t, "few", 0, RECORDS);
    tiny_write(t, "regression.prototxt", net);
    snprintf(set_net, sizeof set_net, "net.file=%s/regression.prototxt", t->folder);
    snprintf(set_images, sizeof set_images, "train_data.idx.images=%s/few-images", t->folder);
    snprintf(set_labels, sizeof set_labels, "train_data.idx.labels=%s/few-labels", t->folder);
    for (uint32_t i = 0; i < RECORDS; i++) {
        label[i] = i % TINY_CLASSES;
        for (int k = 0; k < FEATURES; k++)
            pixels[i * FEATURES + (uint32_t)k] =
                (float)tiny_pixel(0, i, label[i], k / TINY_SIDE, k % TINY_SIDE) * 0.00390625f;
    }
    regression = (struct regression){RECORDS, FEATURES, TINY_CLASSES, pixels, label, 0, 0};
}

static void read_weights(const char *dir, double *w)
{
    struct safetensors model;
    struct shape shape;
    run_model(dir, "final.safetensors", &model);
    const float *x = safetensors_find(&model, "joint/ip.0", &shape);
    const float *bias = safetensors_find(&model, "joint/ip.1", &shape);
    assert_non_null(x);
    assert_non_null(bias);
    for (size_t k = 0; k < WEIGHTS; k++)
        w[k] =
            k < TINY_CLASSES * FEATURES ? (double)x[k] : (double)bias[k - TINY_CLASSES * FEATURES];
    safetensors_release(&model);
}

static int open_stage(void **state)
{
    struct sim_run r = {0};
    if (tiny_setup(state) != 0)
        return -1;
    write_records(*state);
    /* One evaluation: the model is still the initial one. */
    SIM(*state, SIM_CALM, &r, set_net, set_images, set_labels, "validation=0", "workers=1",
        "strategy.full_batch={}", "solver={ type: 'CG' }", "stop={ steps: 1 }");
    read_weights(r.dir, initial);
    return 0;
}

/* ---- the simulation by hand ---- */

struct rule {
    const char *solver;
    /* One step of x by the gradient, with the state m, v and its number of steps. */
    void (*step)(double *x, const double *g, double *m, double *v, int t);
};

static void momentum_step(double *x, const double *g, double *m, double *v, int t)
{
    (void)v, (void)t;
    for (size_t k = 0; k < WEIGHTS; k++) {
        m[k] = 0.9 * m[k] + RATE * g[k];
        x[k] -= m[k];
    }
}

static void nesterov_step(double *x, const double *g, double *m, double *v, int t)
{
    (void)v, (void)t;
    for (size_t k = 0; k < WEIGHTS; k++) {
        double last = m[k];
        m[k] = 0.9 * m[k] + RATE * g[k];
        x[k] -= 1.9 * m[k] - 0.9 * last;
    }
}

static void rmsprop_step(double *x, const double *g, double *m, double *v, int t)
{
    (void)m, (void)t;
    for (size_t k = 0; k < WEIGHTS; k++) {
        v[k] = 0.8 * v[k] + 0.2 * g[k] * g[k];
        x[k] -= RATE * g[k] / (sqrt(v[k]) + DELTA);
    }
}

static void adam_step(double *x, const double *g, double *m, double *v, int t)
{
    double c = sqrt(1 - pow(0.99, t)) / (1 - pow(0.9, t));
    for (size_t k = 0; k < WEIGHTS; k++) {
        m[k] = 0.9 * m[k] + 0.1 * g[k];
        v[k] = 0.99 * v[k] + 0.01 * g[k] * g[k];
        x[k] -= RATE * c * m[k] / (sqrt(v[k]) + DELTA);
    }
}

#define SOLVER(rest) "solver={ base_lr: 0.05 lr_policy: 'fixed' " rest " }"

static const struct rule rules[] = {
    {SOLVER("momentum: 0.9"), momentum_step},
    {SOLVER("type: 'Nesterov' momentum: 0.9"), nesterov_step},
    {SOLVER("type: 'RMSProp' rms_decay: 0.8 delta: 0.01"), rmsprop_step},
    {SOLVER("type: 'Adam' momentum: 0.9 momentum2: 0.99 delta: 0.01"), adam_step},
};

struct node {
    double x[WEIGHTS], a[WEIGHTS], m[WEIGHTS], v[WEIGHTS];
    int steps, since; /* steps taken, and those in a */
    int updates;      /* of the rule */
};

static void push_sum(struct node *server, struct node *w, const struct rule *rule, bool at_server)
{
    if (at_server)
        rule->step(server->x, w->a, server->m, server->v, ++server->updates);
    for (size_t k = 0; !at_server && k < WEIGHTS; k++)
        server->x[k] += w->a[k];
    memset(w->a, 0, sizeof w->a);
    server->steps += w->since;
    w->since = 0;
}

static void take_step(struct node *w, const struct rule *rule, bool at_server)
{
    double g[WEIGHTS], before[WEIGHTS];
    regression_evaluate(&regression, w->x, g, NULL);
    memcpy(before, w->x, sizeof before);
    if (!at_server)
        rule->step(w->x, g, w->m, w->v, ++w->updates);
    for (size_t k = 0; k < WEIGHTS; k++) {
        if (at_server)
            w->x[k] -= RATE * g[k];
        w->a[k] += at_server ? g[k] : w->x[k] - before[k];
    }
    w->steps++;
    w->since++;
}

/* n_push = 2, n_fetch = 3, steps of 200, 310 and 530 ms; the timeline is drawn in downpour_test.c.
 * When as many steps as all are to take have been pushed, each worker ends its step, pushes it, and
 * leaves. */
static void simulate_by_hand(const struct rule *rule, bool at_server, double *out)
{
    static const int step_ms[WORKERS] = {200, 310, 530};
    static struct node server, worker[WORKERS];
    int next[WORKERS], left = WORKERS;
    memset(&server, 0, sizeof server);
    memset(worker, 0, sizeof worker);
    memcpy(server.x, initial, sizeof initial);
    for (int i = 0; i < WORKERS; i++) {
        memcpy(worker[i].x, initial, sizeof initial);
        next[i] = step_ms[i];
    }
    while (left > 0) {
        int now = 0;
        for (int i = 1; i < WORKERS; i++)
            now = next[i] < next[now] ? i : now;
        struct node *w = &worker[now];
        bool over = server.steps >= 4 * WORKERS;
        take_step(w, rule, at_server);
        if (over || w->steps % 2 == 0)
            push_sum(&server, w, rule, at_server);
        if (!over && w->steps % 3 == 0)
            memcpy(w->x, server.x, sizeof w->x);
        next[now] = over ? INT32_MAX : next[now] + step_ms[now];
        left -= over;
    }
    assert_int_equal(server.steps, 15);
    memcpy(out, server.x, sizeof server.x);
}

static double largest_difference(const double *a, const double *b)
{
    double apart = 0, largest = 0;
    for (size_t k = 0; k < WEIGHTS; k++) {
        apart = fmax(apart, fabs(a[k] - b[k]));
        largest = fmax(largest, fabs(b[k]));
    }
    return apart / largest;
}

static void test_downpour_rules_are_those_of_a_simulation_by_hand(void **state)
{
    static const char *const where[] = {"worker", "server"};
    static const char *const servers[] = {"", "colocated: true"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        for (int k = 0; k < 4; k++) {
            struct sim_run r = {0};
            double hand[WEIGHTS], run[WEIGHTS], other[WEIGHTS];
            char set[128];
            snprintf(set, sizeof set,
                     "strategy.downpour={ n_push: 2 n_fetch: 3 learning_rule: %s %s }",
                     where[k % 2], servers[k / 2]);
            SIM(*state,
                "node { speed: 3 } node { speed: 1.935483870967742 } "
                "node { speed: 1.1320754716981132 }\n"
                "step_seconds: 0.6 link { mbit: 1000000 latency_us: 0 }\n",
                &r, set_net, set_images, set_labels, "validation=0", "workers=3",
                "stop={ steps: 4 }", "evaluate.every_exchanges=1000", rules[i].solver, set);
            simulate_by_hand(&rules[i], k % 2, hand);
            simulate_by_hand(&rules[i], !(k % 2), other);
            read_weights(r.dir, run);
            double apart = largest_difference(run, hand),
                   elsewhere = largest_difference(run, other);
            print_message("    %s %s: %.1e by hand, %.1e from the other place\n", rules[i].solver,
                          set, apart, elsewhere);
            assert_true(r.report.used == 15 * RECORDS);
            assert_true(apart <= NEAR && elsewhere > 100 * NEAR);
        }
}

/* ---- alone, a push and a fetch each step: the optimizer of `single` ---- */

static void test_downpour_rules_alone_are_single(void **state)
{
    static const char *const where[] = {"worker", "server"};
    static const char *const solvers[] = {
        "solver={ base_lr: 0.02 momentum: 0.9 weight_decay: 0.001 lr_policy: 'step' gamma: 0.5 "
        "stepsize: 20 }",
        "solver={ type: 'RMSProp' base_lr: 0.002 weight_decay: 0.001 lr_policy: 'fixed' }",
        "solver={ type: 'Adam' base_lr: 0.002 momentum: 0.9 lr_policy: 'fixed' }",
        "solver={ type: 'LARS' base_lr: 0.5 momentum: 0.9 lr_policy: 'fixed' }",
    };
    for (size_t i = 0; i < sizeof solvers / sizeof *solvers; i++) {
        char single[128], other[128], set[96];
        SIM_RUN(*state, SIM_CALM, single, "stop.steps=45", "workers=1", "strategy.single={}",
                solvers[i]);
        for (int k = 0; k < 2; k++) {
            snprintf(set, sizeof set,
                     "strategy.downpour={ n_push: 1 n_fetch: 1 learning_rule: %s }", where[k]);
            SIM_RUN(*state, SIM_CALM, other, "stop.steps=45", "workers=1", set, solvers[i]);
            bool same = run_same_bits(other, single, "final.safetensors");
            double apart = run_difference(other, single);
            print_message("    %.32s, %s: %.1e\n", solvers[i], where[k], apart);
            /* Differences of x are rounded; gradients, and the steps that SGD keeps, are not. */
            assert_true(apart <= 1e-4);
            assert_true(same || (k == 0 && i > 0 && i < 3));
        }
    }
}

/* ---- more servers, and what is refused ---- */

static void expect_refusal(struct tiny *t, const char *downpour, const char *solver,
                           const char *text)
{
    struct sim_run r = {0};
    SIM_TRY(t, SIM_CALM, &r, downpour, solver);
    if (r.rc == PL_OK || !strstr(r.error, text))
        fail_msg("%s, %s: %s", downpour, solver, r.rc == PL_OK ? "it runs" : r.error);
}

static void test_downpour_rules_that_cannot_be_are_refused(void **state)
{
    expect_refusal(*state, "strategy.downpour={ learning_rule: server server_adagrad: true }",
                   "solver.momentum=0",
                   "strategy.downpour.server_adagrad: learning_rule is server");
    expect_refusal(*state, "strategy.downpour={ learning_rule: server servers: 2 }",
                   "solver.clip_gradients=5", "solver.clip_gradients: needs the whole gradient");
    expect_refusal(*state, "strategy.downpour={ learning_rule: server colocated: true }",
                   SOLVER("type: 'LARS'"), "solver.type: LARS needs the whole gradient");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_downpour_rules_are_those_of_a_simulation_by_hand),
        cmocka_unit_test(test_downpour_rules_alone_are_single),
        cmocka_unit_test(test_downpour_rules_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, open_stage, tiny_teardown);
}
