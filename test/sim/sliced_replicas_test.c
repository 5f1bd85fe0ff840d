/* Several replicas of a model in slices (SparkDML §2.2 with data parallelism) train as so many
 * workers with the whole model do. A slice that is lost takes its replica with it, and no other; a
 * replica that is made again has the state of the others. */
#include "coll/cost.h"
#include "coll/exchange.h"
#include "sim_run.h"
#include "sliced_job.h"
#include "world/disk.h"

#define SAME_MAX 1e-5 /* max |a − b| / max |b| */

enum { BATCH = 16, FAULTS = 12 };

static const char *const strategies[] = {"strategy.allreduce={}", "strategy.sync={tau:3}",
                                         "strategy.diloco={tau:3}",
                                         "strategy.easgd={mode:sync tau:3}"};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

static const char cluster[] = "node { count: 8 } step_seconds: 0.004 link { mbit: 100 }\n";

/* So many replicas of so many slices, with these fields. */
static void simulate_replicas(struct tiny *t, const char *machines, struct sim_run *r, int replicas,
                              int slices, const char *const *more)
{
    char count[32], workers[32];
    const char *set[16] = {count, workers};
    snprintf(count, sizeof count, "slices=%d", slices);
    snprintf(workers, sizeof workers, "workers=%d", replicas * slices);
    for (size_t n = 2; *more; n++)
        set[n] = *more++;
    sim_do(t, machines, r, set);
}

#define REPLICAS(t, machines, r, replicas, slices, ...) \
    simulate_replicas(t, machines, r, replicas, slices, (const char *const[]){__VA_ARGS__, NULL})

static void expect_same(struct tiny *t, int replicas, int slices, bool bits,
                        const char *const *more)
{
    struct sim_run whole = {.limit_s = 1000}, sliced = {.limit_s = 1000};
    simulate_replicas(t, cluster, &whole, replicas, 1, more);
    simulate_replicas(t, cluster, &sliced, replicas, slices, more);
    double apart = run_difference(sliced.dir, whole.dir);
    print_message("    %s, %d x %d: %.2g\n", more[0], replicas, slices, apart);
    if (bits ? !run_same_bits(sliced.dir, whole.dir, "final.safetensors") : apart > SAME_MAX)
        fail_msg("%s, %d x %d: %.2g", more[0], replicas, slices, apart);
    assert_true(run_number(sliced.dir, "end", 0, "used") ==
                run_number(whole.dir, "end", 0, "used"));
    assert_true(fabs(run_number(sliced.dir, "end", 0, "test_loss") -
                     run_number(whole.dir, "end", 0, "test_loss")) <= SAME_MAX);
}

static void test_replicas_of_slices_train_as_replicas(void **state)
{
    static const struct {
        int replicas, slices;
        const char *set[4];
    } cases[] = {
        {2, 2, {"strategy.allreduce={}", "stop.steps=20"}},
        {3, 2, {"strategy.allreduce={}", "stop.steps=20", "solver.weight_decay=0.0005"}},
        {2, 3, {"strategy.allreduce={}", "stop.steps=20", "iter_size=2"}},
        {2, 4, {"strategy.allreduce={}", "stop.steps=20", "collective.algorithm=ring"}},
        {2, 2, {"strategy.sync={tau:4}", "stop.steps=20"}},
        {3, 2, {"strategy.sync={tau:3 on_replace:reset}", "stop.steps=20"}},
        {2, 2, {"strategy.diloco={tau:4}", "stop.steps=20"}},
        {3, 2, {"strategy.diloco={tau:3 on_replace:reset}", "stop.steps=20"}},
        {2, 2, {"strategy.easgd={mode:sync tau:4}", "stop.steps=20"}},
        {3, 2, {"strategy.easgd={mode:sync tau:3}", "stop.steps=20"}},
        {1, 2, {"strategy.diloco={tau:4}", "stop.steps=20"}},
        {2, 2, {"strategy.allreduce={}", "stop.steps=20", "solver.clip_gradients=0.2"}},
        {2, 3, {"strategy.sync={tau:4}", "stop.steps=20", "solver.clip_gradients=0.2"}},
        {1, 2, {"strategy.easgd={mode:sync tau:4 alpha:0.4}", "stop.steps=20"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_same(*state, cases[i].replicas, cases[i].slices, false, cases[i].set);
    /* Parameters and a state by channel, of which the peers take the mean, too. */
    struct tiny *t = *state;
    char net[192];
    tiny_write(t, "channels.prototxt", sliced_channels);
    snprintf(net, sizeof net, "net.file=%s/channels.prototxt", t->folder);
    const char *const channels[] = {"strategy.allreduce={}", "stop.steps=20", net, NULL};
    expect_same(t, 2, 2, false, channels);
}

/* The mixed scheme: gradients of data-parallel layers are averaged over all members, and those of
 * layers that slices share out over the replicas. */
static void test_replicas_of_a_range_train_as_replicas(void **state)
{
    struct tiny *t = *state;
    char net[192];
    snprintf(net, sizeof net, "net.file=%s/mixed.prototxt", t->folder);
    static const int shapes[][2] = {{2, 2}, {3, 2}, {2, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < STRATEGIES; k++) {
            const char *const mixed[] = {strategies[k],     "stop.steps=20", net,
                                         "slices_from=one", "slices_to=two", NULL};
            expect_same(t, shapes[i][0], shapes[i][1], false, mixed);
        }
    snprintf(net, sizeof net, "net.file=%s/sequence.prototxt", t->folder);
    for (size_t k = 0; k < STRATEGIES; k++) {
        const char *const sequence[] = {strategies[k], "stop.steps=20", net, NULL};
        expect_same(t, 2, 2, false, sequence);
    }
}

/* Where no sum is cut otherwise: the net has one layer, whose input has no gradient, and two
 * replicas add two numbers. */
static void test_two_replicas_of_slices_have_the_bits_of_two(void **state)
{
    struct tiny *t = *state;
    char net[192];
    const char *const allreduce[] = {"strategy.allreduce={}", "stop.steps=20", net, NULL};
    const char *const sync[] = {"strategy.sync={tau:3}", "stop.steps=20", net, NULL};
    const char *const diloco[] = {"strategy.diloco={tau:3}", "stop.steps=20", net, NULL};
    snprintf(net, sizeof net, "net.file=%s/one.prototxt", t->folder);
    expect_same(t, 2, 2, true, allreduce);
    expect_same(t, 2, 3, true, sync);
    expect_same(t, 2, 2, true, diloco);
}

static void add_volume(struct cost_volume *sum, struct cost_volume v, double times)
{
    sum->messages += times * v.messages;
    sum->bytes += times * v.bytes;
}

/* All members send this in a round: of these meetings, and of peers with so many floats of
 * data-parallel layers, and of those that slices share out. */
static struct cost_volume predict_volume(int replicas, int slices,
                                         const struct cost_meeting *meetings, size_t count,
                                         size_t parallel, size_t cut)
{
    enum { VOTES = 6 };
    size_t peers[8], all = (size_t)(replicas * slices);
    for (int f = 0; f < slices; f++)
        peers[f] = cut / (size_t)slices; /* about: layers are cut one by one */
    const struct cost_sliced s = {
        (size_t)slices, (size_t)replicas, COLL_AUTO, meetings, count, peers,
    };
    struct cost_volume sent = cost_sliced_step(&s);
    if (parallel > 0) { /* the rest is then a weight, without states */
        add_volume(&sent, cost_sum_volume(COLL_AUTO, (size_t)replicas, parallel), slices);
        add_volume(&sent, cost_sum_volume(COLL_AUTO, (size_t)replicas, 1), slices);
    }
    if (replicas > 1)
        add_volume(&sent, cost_sum_volume(COLL_AUTO, (size_t)slices, VOTES), replicas);
    const double edges = 2.0 * (double)(all - 1);
    add_volume(&sent, (struct cost_volume){1, sizeof(struct exchange_meta)}, edges);
    add_volume(&sent, cost_sum_volume(COLL_AUTO, all, 1), 1);
    return sent;
}

static struct cost_volume predict_plain(int replicas, int slices)
{
    const struct cost_meeting meetings[] = {
        {false, BATCH * 24}, {false, BATCH * 12}, {false, BATCH * 5}, /* outputs of the layers */
        {true, BATCH * 12},  {true, BATCH * 24}, /* gradients of their inputs */
    };
    return predict_volume(replicas, slices, meetings, 5, 0, 24 * 145 + 12 * 25 + 5 * 13);
}

/* The records before `one`, the outputs of `one` and `two`; the gradients of their inputs; and the
 * gradient of the data-parallel layers. The last layer, whole on each slice, is broadcast. */
static struct cost_volume predict_mixed(int replicas, int slices)
{
    enum { CONV = 6 * 5 * 5, PARALLEL = 64 + 16 + 16 + 16, LAST = 3 * 12 + 3 };
    const struct cost_meeting meetings[] = {
        {false, BATCH * CONV}, {false, BATCH * 24},  {false, BATCH * 12},
        {true, BATCH * 24},    {true, BATCH * CONV}, {true, PARALLEL},
    };
    struct cost_volume sent = predict_volume(replicas, slices, meetings, 6, PARALLEL,
                                             24 * (CONV + 1) + 12 * 25 + (size_t)(LAST * slices));
    add_volume(&sent, (struct cost_volume){1, LAST * sizeof(float)}, replicas * (slices - 1));
    return sent;
}

/* Gathers of the outputs of each step, and of the layers that follow; sums of the gradients of the
 * outputs before each step but the first, and of the layers' inputs. */
static struct cost_volume predict_sequence(int replicas, int slices)
{
    enum { T = 12, LSTM = 8, GRU = 6, RNN = 5, IP = 5 };
    static const size_t units[] = {LSTM, GRU, RNN};
    struct cost_meeting meetings[3 * 2 * T + 6] = {
        {false, BATCH * T * RNN}, {true, BATCH * T * RNN}, /* outputs by products */
        {false, BATCH * IP},      {true, BATCH * T * RNN},
        {true, BATCH * T * GRU},  {true, BATCH * T * LSTM},
    };
    size_t n = 6;
    for (size_t i = 0; i < 3; i++)
        for (size_t t = 0; t < T; t++) {
            meetings[n++] = (struct cost_meeting){false, BATCH * units[i]};
            if (t > 0)
                meetings[n++] = (struct cost_meeting){true, BATCH * units[i]};
        }
    size_t cut = 4 * LSTM * (12 + 1 + LSTM) + 3 * GRU * (LSTM + 1 + GRU + 1) +
                 RNN * (GRU + 1 + RNN) + RNN * (RNN + 1) + IP * (T * RNN + 1);
    return predict_volume(replicas, slices, meetings, n, 0, cut);
}

/* The sends of all members in a run of so many steps, and the bytes of a round. */
static double count_sends(struct tiny *t, const int shape[2], const char *steps,
                          const char *const *net, double *bytes)
{
    static const char far[] =
        "node { count: 8 } step_seconds: 0.004 link { mbit: 100 latency_us: 20000 }\n";
    struct sim_run r = {.limit_s = 1000, .traced = true};
    char line[512];
    int sends = 0;
    REPLICAS(t, far, &r, shape[0], shape[1], "strategy.allreduce={}", steps,
             "evaluate.every_steps=1000", "collective.chunk_kb=64", net[0], net[1], net[2]);
    FILE *f = fopen(r.trace, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "\"sends\":");
        sends += at ? atoi(at + strlen("\"sends\":")) : 0;
    }
    fclose(f);
    *bytes = run_number(r.dir, "exchange", 1, "bytes") / 2; /* sent and received */
    return sends;
}

/* The sends that one more step adds; metadata has none. */
static void expect_volume(struct tiny *t, const int shape[2], const char *const *net,
                          struct cost_volume predicted)
{
    double bytes, sends = -count_sends(t, shape, "stop.steps=3", net, &bytes);
    sends += count_sends(t, shape, "stop.steps=4", net, &bytes);
    double messages = predicted.messages - 2 * (shape[0] * shape[1] - 1);
    print_message("    %d x %d, %s: %.0f sends of %.0f, %.0f bytes of %.0f\n", shape[0], shape[1],
                  strrchr(net[0], '/') + 1, sends, messages, bytes, predicted.bytes);
    assert_true(sends == messages);
    assert_true(fabs(bytes - predicted.bytes) <= 0.02 * bytes);
}

static void test_replicas_send_the_volume_of_the_cost_model(void **state)
{
    struct tiny *t = *state;
    char plain[192], mixed[192], sequence[192];
    snprintf(plain, sizeof plain, "net.file=%s/net.prototxt", t->folder);
    snprintf(mixed, sizeof mixed, "net.file=%s/mixed.prototxt", t->folder);
    snprintf(sequence, sizeof sequence, "net.file=%s/sequence.prototxt", t->folder);
    const char *const nets[][3] = {
        {plain, NULL, NULL}, {mixed, "slices_from=one", "slices_to=two"}, {sequence, NULL, NULL}};
    static const int shapes[][2] = {{1, 2}, {1, 3}, {1, 4}, {2, 2}, {3, 2}, {2, 3}, {2, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int replicas = shapes[i][0], slices = shapes[i][1];
        expect_volume(t, shapes[i], nets[0], predict_plain(replicas, slices));
        expect_volume(t, shapes[i], nets[1], predict_mixed(replicas, slices));
        expect_volume(t, shapes[i], nets[2], predict_sequence(replicas, slices));
    }
}

/* Models of the run under way are evaluated as those of replicas are. */
static void test_replicas_are_evaluated_on_the_way(void **state)
{
    struct tiny *t = *state;
    struct sim_run whole = {.limit_s = 1000}, sliced = {.limit_s = 1000};
    REPLICAS(t, cluster, &whole, 2, 1, "stop.steps=30", "evaluate.every_steps=10",
             "strategy.allreduce={}", "pace=0.05");
    REPLICAS(t, cluster, &sliced, 2, 2, "stop.steps=30", "evaluate.every_steps=10",
             "strategy.allreduce={}", "pace=0.05");
    int evaluations = run_count(sliced.dir, "eval", NULL, NULL);
    assert_true(evaluations >= 3);
    assert_int_equal(evaluations, run_count(whole.dir, "eval", NULL, NULL));
    for (int i = 0; i < evaluations; i++) {
        double a = run_number(sliced.dir, "eval", i, "loss"),
               b = run_number(whole.dir, "eval", i, "loss");
        if (!(fabs(a - b) <= SAME_MAX * fabs(b)))
            fail_msg("evaluation %d: %.9g is not near %.9g", i, a, b);
    }
}

/* Checkpoints are of the whole model: a run resumes with other numbers of both. */
static void test_replicas_resume_as_others(void **state)
{
    struct tiny *t = *state;
    /* Workers have no optimizer's state of their own, which a checkpoint has of one alone. */
    static const char *const strategy[] = {"strategy.allreduce={}",
                                           "strategy.diloco={tau:3 on_replace:reset}",
                                           "strategy.diloco={tau:3}"};
    for (int i = 0; i < 3; i++) {
        const char *momentum = i < 2 ? "solver.momentum=0.9" : "solver.momentum=0";
        struct sim_run whole = {.limit_s = 1000}, r = {.limit_s = 1000};
        REPLICAS(t, cluster, &whole, 2, 1, "stop.steps=20", strategy[i], momentum);
        REPLICAS(t, cluster, &r, 2, 2, "stop.steps=9", strategy[i], momentum);
        REPLICAS(t, cluster, &r, 2, 3, "stop.steps=15", strategy[i], momentum);
        REPLICAS(t, cluster, &r, 2, 1, "stop.steps=20", strategy[i], momentum);
        assert_true(run_difference(r.dir, whole.dir) <= SAME_MAX);
    }
}

/* Models that are not finite on all replicas end the run by name; it does not wait for better
 * ones. */
static void test_replicas_diverge_together(void **state)
{
    for (size_t k = 0; k < STRATEGIES; k++) {
        struct sim_run r = {.limit_s = 1000};
        SIM_TRY(*state, cluster, &r, "slices=2", "workers=4", strategies[k], "stop.steps=60",
                "solver={base_lr:1e38 lr_policy:'fixed'}");
        if (r.rc != PL_ERR_DIVERGED || !strstr(r.error, "the model diverged"))
            fail_msg("%s: %d, %s", strategies[k], r.rc, r.error);
    }
}

/* ---- members that go and come ---- */

static void write_fault(char text[256], const char *what, double at, int node)
{
    snprintf(text, 256,
             "node { count: 8 } step_seconds: 0.004 link { mbit: 100 } "
             "fault { at: %.4f %s: %d }\n",
             at, what, node);
}

/* A slice dies at any moment of a step: the other replica continues, and the run reaches its end.
 */
static void test_a_lost_slice_takes_its_replica_alone(void **state)
{
    struct tiny *t = *state;
    for (int i = 0; i < FAULTS; i++) {
        struct sim_run r = {.limit_s = 1000};
        char faults[256];
        write_fault(faults, "kill", 0.15 + 0.0017 * i, i % 4);
        REPLICAS(t, faults, &r, 2, 2, "stop.epochs", "stop.steps=120", strategies[i % STRATEGIES]);
        assert_string_equal(r.report.reason, "steps");
        assert_int_equal(run_count(r.dir, "member", "what", "unseated"), 1);
        assert_true(run_is_finite(r.dir, "final.safetensors"));
        assert_true(run_number(r.dir, "end", 0, "used") > 120 * BATCH);
    }
}

/* Its seat is filled by a worker that stands by: both of the new replica get the state of their
 * slices, and train from then on. Replicas are compared every hundred exchanges. */
static void test_a_standby_fills_the_seat_of_a_lost_slice(void **state)
{
    struct tiny *t = *state;
    for (int i = 0; i < FAULTS; i++) {
        struct sim_run r = {.limit_s = 1000};
        char faults[256];
        write_fault(faults, "kill", 0.15 + 0.0017 * i, i % 4);
        REPLICAS(t, faults, &r, 2, 2, "stop.epochs", "stop.steps=330", strategies[i % STRATEGIES],
                 "standby=1", "evaluate.every_steps=50",
                 i % 3 == 0 ? "solver.clip_gradients=0.2" : "seed=1");
        assert_string_equal(r.report.reason, "steps");
        assert_int_equal(r.report.workers, 4);
        assert_int_equal(run_count(r.dir, "member", "what", "seated"), 1);
        assert_int_equal(run_count(r.dir, "member", "what", "join"), 5);
        /* One round at most has had half of its samples. */
        assert_true(run_number(r.dir, "end", 0, "used") >= (330 - 2 * 3) * 2 * BATCH);
        assert_true(run_is_finite(r.dir, "final.safetensors"));
    }
}

/* Three replicas lose a slice each of two: the others of the two make one. */
static void test_what_is_left_of_two_replicas_makes_one(void **state)
{
    struct tiny *t = *state;
    static const int lost[][2] = {{2, 5}, {2, 4}, {0, 3}, {1, 5}};
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        struct sim_run r = {.limit_s = 1000};
        char faults[256];
        snprintf(faults, sizeof faults,
                 "node { count: 6 } step_seconds: 0.004 link { mbit: 100 } "
                 "fault { at: 0.15 kill: %d } fault { at: 0.25 kill: %d }\n",
                 lost[i][0], lost[i][1]);
        REPLICAS(t, faults, &r, 3, 2, "stop.epochs", "stop.steps=220", "strategy.allreduce={}");
        assert_string_equal(r.report.reason, "steps");
        assert_int_equal(r.report.workers, 4);
        assert_int_equal(run_count(r.dir, "member", "what", "unseated"), 2);
        assert_int_equal(run_count(r.dir, "member", "what", "seated"), 2);
    }
}

/* The last replica loses a slice: the run ends and names it. */
static void test_the_last_replica_ends_the_run(void **state)
{
    struct tiny *t = *state;
    struct sim_run r = {.limit_s = 1000};
    SIM_TRY(t,
            "node { count: 4 } step_seconds: 0.004 link { mbit: 100 } "
            "fault { at: 0.15 kill: 2 } fault { at: 0.25 kill: 1 }\n",
            &r, "slices=2", "workers=4", "strategy.allreduce={}", "stop.epochs", "stop.steps=220",
            "checkpoint.every_seconds=0.05");
    if (r.rc == PL_OK || !strstr(r.error, "slice 1 of 2 of the model is lost"))
        fail_msg("%d, \"%s\"", r.rc, r.error);
    SIM(t, cluster, &r, "slices=2", "workers=4", "strategy.allreduce={}", "stop.epochs",
        "stop.steps=220");
    assert_string_equal(r.report.reason, "steps");
}

/* A slice that is asked to leave takes its replica along behind a commit point: no sample of a
 * round that has begun is lost. */
static void test_a_slice_leaves_with_its_replica(void **state)
{
    struct tiny *t = *state;
    for (int i = 0; i < 4; i++) {
        struct sim_run r = {.limit_s = 1000};
        char faults[256];
        write_fault(faults, "leave", 0.15 + 0.0021 * i, i);
        REPLICAS(t, faults, &r, 2, 2, "stop.epochs", "stop.steps=120", "strategy.allreduce={}");
        assert_string_equal(r.report.reason, "steps");
        assert_int_equal(run_count(r.dir, "member", "what", "leave"), 1);
        assert_int_equal(run_count(r.dir, "member", "what", "unseated"), 1);
        assert_true(run_number(r.dir, "end", 0, "missed") == 0);
    }
}

/* A slice dies while the model is evaluated, offered and taken for the files at the end: the other
 * replica offers it again. A slow link makes that long. */
static void test_a_slice_is_lost_while_the_model_is_taken(void **state)
{
    struct tiny *t = *state;
    static const char slow[] = "node { count: 8 } step_seconds: 0.004 link { mbit: 10 }\n";
    struct sim_run r = {.limit_s = 1000};
    REPLICAS(t, slow, &r, 2, 2, "stop.epochs", "stop.steps=6", "strategy.allreduce={}");
    double end = r.report.wall_s;
    int alone = 0;
    for (int i = 0; i < 24; i++) {
        struct sim_run lost = {.limit_s = 1000};
        char faults[256], unfinished[256];
        snprintf(faults, sizeof faults,
                 "node { count: 8 } step_seconds: 0.004 link { mbit: 10 } "
                 "fault { at: %.4f kill: %d }\n",
                 end - 0.0025 * (i + 1), i % 4);
        REPLICAS(t, faults, &lost, 2, 2, "stop.epochs", "stop.steps=6", "strategy.allreduce={}");
        assert_string_equal(lost.report.reason, "steps");
        assert_true(run_is_finite(lost.dir, "final.safetensors"));
        snprintf(unfinished, sizeof unfinished, "%s/final.safetensors" DISK_UNFINISHED, lost.dir);
        assert_int_not_equal(access(unfinished, F_OK), 0);
        alone += run_count(lost.dir, "member", "what", "unseated") == 1;
    }
    assert_true(alone > 12);
}

/* A worker dies before the first view, as one of another program may: the next one takes its
 * slice, whatever its number. */
static void test_a_successor_before_the_first_view_has_the_seat(void **state)
{
    struct tiny *t = *state;
    struct sim_run whole = {.limit_s = 1000}, r = {.limit_s = 1000};
    SIM(t, cluster, &whole, "stop.steps=20", "workers=1", "slices=1", "strategy.single={}");
    SIM(t,
        "node { count: 4 } step_seconds: 0.004 link { mbit: 100 } "
        "fault { at: 0.3 join: 1 } fault { at: 0.4 join: 2 } fault { at: 0.2 kill: 0 } "
        "fault { at: 0.5 join: 3 }\n",
        &r, "stop.steps=20", "workers=3", "slices=3", "strategy.allreduce={}");
    assert_true(run_difference(r.dir, whole.dir) <= SAME_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicas_of_slices_train_as_replicas),
        cmocka_unit_test(test_replicas_of_a_range_train_as_replicas),
        cmocka_unit_test(test_two_replicas_of_slices_have_the_bits_of_two),
        cmocka_unit_test(test_replicas_send_the_volume_of_the_cost_model),
        cmocka_unit_test(test_replicas_are_evaluated_on_the_way),
        cmocka_unit_test(test_replicas_resume_as_others),
        cmocka_unit_test(test_replicas_diverge_together),
        cmocka_unit_test(test_a_lost_slice_takes_its_replica_alone),
        cmocka_unit_test(test_a_standby_fills_the_seat_of_a_lost_slice),
        cmocka_unit_test(test_what_is_left_of_two_replicas_makes_one),
        cmocka_unit_test(test_the_last_replica_ends_the_run),
        cmocka_unit_test(test_a_slice_leaves_with_its_replica),
        cmocka_unit_test(test_a_slice_is_lost_while_the_model_is_taken),
        cmocka_unit_test(test_a_successor_before_the_first_view_has_the_seat),
    };
    return cmocka_run_group_tests(tests, sliced_setup, tiny_teardown);
}
