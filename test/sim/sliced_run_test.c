/* A model in slices (SparkDML §2.2) trains as the whole model does: to the bit where no sum is cut
 * otherwise, else to the rounding of floats. Its messages are those of the scheme, and a run that
 * loses a slice ends and can be resumed. */
#include "coll/exchange.h"
#include "sim_run.h"
#include "sliced_job.h"

#define SAME_MAX 1e-5 /* max |a − b| / max |b| */

enum { BATCH = 16 };

static const char cluster[] = "node { count: 5 } step_seconds: 0.004 link { mbit: 100 }\n";

#define SIMULATE(t, out, ...) SIM_RUN(t, cluster, out, __VA_ARGS__)

/* `slices: 1` is one worker with the whole model. */
static void simulate_slices(struct tiny *t, int slices, char out[128], const char *const *more)
{
    char count[32], workers[32];
    const char *set[16] = {count, workers,
                           slices > 1 ? "strategy.allreduce={}" : "strategy.single={}"};
    snprintf(count, sizeof count, "slices=%d", slices);
    snprintf(workers, sizeof workers, "workers=%d", slices);
    for (size_t n = 3; *more; n++)
        set[n] = *more++;
    sim_dir(t, NULL, cluster, set, out);
}

/* `net.file=` of a net of the folder, the job's other one. */
static const char *other_net(const struct tiny *t, const char *name, char text[192])
{
    snprintf(text, 192, "net.file=%s/%s", t->folder, name);
    return text;
}

#define SLICES(t, slices, out, ...) \
    simulate_slices(t, slices, out, (const char *const[]){__VA_ARGS__, NULL})

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= SAME_MAX * fabs(b)))
        fail_msg("%.9g is not near %.9g", a, b);
}

static void test_slices_train_as_the_whole_model(void **state)
{
    struct tiny *t = *state;
    static const char *const solvers[] = {
        "solver.weight_decay=0.0005",
        "solver={base_lr:0.002 lr_policy:'fixed' type:'Adam' momentum:0.9}",
        "iter_size=2",
        "solver.clip_gradients=0.2",
    };
    char whole[128], sliced[128];
    for (size_t i = 0; i < sizeof solvers / sizeof *solvers; i++) {
        SLICES(t, 1, whole, "stop.steps=20", solvers[i]);
        for (int slices = 2; slices <= 5; slices++) {
            SLICES(t, slices, sliced, "stop.steps=20", solvers[i]);
            double apart = run_difference(sliced, whole);
            print_message("    %s, %d slices: %.2g\n", solvers[i], slices, apart);
            assert_true(apart <= SAME_MAX);
            assert_true(run_number(sliced, "end", 0, "used") ==
                        run_number(whole, "end", 0, "used"));
            assert_near(run_number(sliced, "end", 0, "test_loss"),
                        run_number(whole, "end", 0, "test_loss"));
        }
    }
}

static const char sliced_steep[] = SLICED_DATA SLICED_INNER("one", "data", "one", 24) SLICED_INNER(
    "ip", "one", "ip", 5) "layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: "
                          "'label' top: 'accuracy' include { phase: TEST } }\n"
                          "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: "
                          "'label' top: 'loss' loss_weight: 1e21 }\n";

/* The square of its norm is no float: steps are those of a gradient that is clipped. */
static void test_slices_clip_a_gradient_that_explodes(void **state)
{
    struct tiny *t = *state;
    char whole[128], sliced[128], net[192];
    tiny_write(t, "steep.prototxt", sliced_steep);
    const char *steep = other_net(t, "steep.prototxt", net);
    SLICES(t, 1, whole, "stop.steps=5", steep, "solver.clip_gradients=0.2");
    SLICES(t, 2, sliced, "stop.steps=5", steep, "solver.clip_gradients=0.2");
    assert_true(run_difference(sliced, whole) <= SAME_MAX);
}

/* Feature maps: 6 of a convolution, and 3 outputs. */
static void test_slices_of_convolutions_train_as_the_whole_model(void **state)
{
    struct tiny *t = *state;
    char whole[128], sliced[128], net[192];
    const char *conv = other_net(t, "conv.prototxt", net);
    static const char *const kernels[] = {"kernels=ref", "kernels=dnnl"};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        SLICES(t, 1, whole, "stop.steps=20", conv, kernels[i]);
        for (int slices = 2; slices <= 3; slices++) {
            SLICES(t, slices, sliced, "stop.steps=20", conv, kernels[i]);
            double apart = run_difference(sliced, whole);
            print_message("    %s, %d slices: %.2g\n", kernels[i], slices, apart);
            assert_true(apart <= SAME_MAX);
        }
    }
}

/* Parameters by channel, and BatchNorm, which has a state; the slices gather behind the pooling. */
static void test_slices_share_channels_out(void **state)
{
    struct tiny *t = *state;
    char whole[128], sliced[128], net[192];
    tiny_write(t, "channels.prototxt", sliced_channels);
    const char *channels = other_net(t, "channels.prototxt", net);
    SLICES(t, 1, whole, "stop.steps=20", channels);
    for (int slices = 2; slices <= 4; slices++) {
        SLICES(t, slices, sliced, "stop.steps=20", channels);
        double apart = run_difference(sliced, whole);
        print_message("    %d slices: %.2g\n", slices, apart);
        assert_true(apart <= SAME_MAX);
        assert_near(run_number(sliced, "end", 0, "test_loss"),
                    run_number(whole, "end", 0, "test_loss"));
    }
}

/* Whole groups, with the channels that they read. */
static void test_slices_share_groups_out(void **state)
{
    struct tiny *t = *state;
    char whole[128], sliced[128], net[192];
    tiny_write(t, "groups.prototxt", sliced_groups);
    const char *groups = other_net(t, "groups.prototxt", net);
    static const char *const kernels[] = {"kernels=ref", "kernels=dnnl"};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        SLICES(t, 1, whole, "stop.steps=20", groups, kernels[i]);
        for (int slices = 2; slices <= 4; slices += 2) {
            SLICES(t, slices, sliced, "stop.steps=20", groups, kernels[i]);
            double apart = run_difference(sliced, whole);
            print_message("    %s, %d slices: %.2g\n", kernels[i], slices, apart);
            assert_true(apart <= SAME_MAX);
        }
    }
}

/* Recurrent layers by units, and an Embed by columns; or one of them behind data-parallel ones. */
static void test_slices_of_units_train_as_the_whole_model(void **state)
{
    struct tiny *t = *state;
    char whole[128], sliced[128], net[192];
    static const char *const runs[][2] = {
        {"sequence.prototxt", "kernels=ref"},     {"sequence.prototxt", "kernels=dnnl"},
        {"sequence.prototxt", "slices_from=gru"}, {"states.prototxt", "kernels=ref"},
        {"states.prototxt", "kernels=dnnl"},      {"states.prototxt", "slices_from=gru"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        other_net(t, runs[i][0], net);
        SLICES(t, 1, whole, "stop.steps=20", net, runs[i][1]);
        for (int slices = 2; slices <= 4; slices++) {
            SLICES(t, slices, sliced, "stop.steps=20", net, runs[i][1]);
            double apart = run_difference(sliced, whole);
            print_message("    %s, %s, %d slices: %.2g\n", runs[i][0], runs[i][1], slices, apart);
            assert_true(apart <= SAME_MAX);
            assert_near(run_number(sliced, "end", 0, "test_loss"),
                        run_number(whole, "end", 0, "test_loss"));
        }
    }
}

/* Data-parallel layers before those that slices share out, and layers whole behind them. */
static void test_slices_of_a_range_train_as_the_whole_model(void **state)
{
    struct tiny *t = *state;
    char whole[128], sliced[128], net[192];
    const char *mixed = other_net(t, "mixed.prototxt", net);
    static const char *const more[] = {"kernels=ref", "kernels=dnnl", "iter_size=2",
                                       "solver.clip_gradients=0.2"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        SLICES(t, 1, whole, "stop.steps=20", mixed, more[i]);
        for (int slices = 2; slices <= 4; slices++) {
            SLICES(t, slices, sliced, "stop.steps=20", mixed, more[i], "slices_from=one",
                   "slices_to=two");
            double apart = run_difference(sliced, whole);
            print_message("    %s, %d slices: %.2g\n", more[i], slices, apart);
            assert_true(apart <= SAME_MAX);
            assert_near(run_number(sliced, "end", 0, "test_loss"),
                        run_number(whole, "end", 0, "test_loss"));
        }
    }
}

/* A BatchNorm before the range has the statistics of a slice's records, as that of a worker has
 * those of its own: the model, with its state, is that of workers. */
static void test_data_parallel_layers_are_those_of_workers(void **state)
{
    struct tiny *t = *state;
    char workers[128], sliced[128], net[192];
    tiny_write(t, "channels.prototxt", sliced_channels);
    const char *channels = other_net(t, "channels.prototxt", net);
    for (int n = 2; n <= 4; n *= 2) {
        char batch[32], count[32];
        snprintf(batch, sizeof batch, "batch=%d", BATCH / n);
        snprintf(count, sizeof count, "workers=%d", n);
        SIMULATE(t, workers, "stop.steps=20", channels, batch, count, "strategy.allreduce={}");
        SLICES(t, n, sliced, "stop.steps=20", channels, "slices_from=ip");
        double apart = run_difference(sliced, workers);
        print_message("    %d slices: %.2g\n", n, apart);
        assert_true(apart <= SAME_MAX);
        assert_near(run_number(sliced, "end", 0, "test_loss"),
                    run_number(workers, "end", 0, "test_loss"));
    }
}

static void test_slices_of_one_layer_have_its_bits(void **state)
{
    struct tiny *t = *state;
    char whole[128], sliced[128], other[128], net[192];
    const char *one = other_net(t, "one.prototxt", net);
    SLICES(t, 1, whole, "stop.steps=20", one);
    SLICES(t, 1, other, "stop.steps=19", one);
    assert_true(run_difference(other, whole) > 10 * SAME_MAX); /* the test of the test */
    for (int slices = 2; slices <= 5; slices++) {
        SLICES(t, slices, sliced, "stop.steps=20", one);
        if (!run_same_bits(sliced, whole, "final.safetensors"))
            fail_msg("%d slices", slices);
    }
}

static void compare_evaluations(struct tiny *t, const char *net, const char *from)
{
    char whole[128], sliced[128];
    SLICES(t, 1, whole, "stop.steps=30", "evaluate.every_steps=5", "pace=0.05", net, from);
    SLICES(t, 3, sliced, "stop.steps=30", "evaluate.every_steps=5", "pace=0.05", net, from);
    int evaluations = run_count(sliced, "eval", NULL, NULL);
    assert_true(evaluations >= 6);
    assert_int_equal(evaluations, run_count(whole, "eval", NULL, NULL));
    for (int i = 0; i < evaluations; i++) {
        assert_near(run_number(sliced, "eval", i, "loss"), run_number(whole, "eval", i, "loss"));
        assert_true(run_number(sliced, "eval", i, "epoch") ==
                    run_number(whole, "eval", i, "epoch"));
    }
    assert_true(run_is_finite(sliced, "best.safetensors"));
}

/* The slices evaluate models of the run under way as the whole model is, and the best is kept. */
static void test_slices_are_evaluated_on_the_way(void **state)
{
    struct tiny *t = *state;
    static const char *const nets[][2] = {
        {"net.prototxt", "slices_from=one"},      {"sequence.prototxt", "slices_from=lstm"},
        {"sequence.prototxt", "slices_from=gru"}, {"channels.prototxt", "slices_from=conv"},
        {"mixed.prototxt", "slices_from=one"},    {"states.prototxt", "slices_from=data"},
    };
    char net[192];
    tiny_write(t, "channels.prototxt", sliced_channels);
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        compare_evaluations(t, other_net(t, nets[i][0], net), nets[i][1]);
}

/* A step costs these bytes on the wire, as all slices send and receive them. Each sends its part of
 * each layer's outputs round the ring, F - 1 parts of 1/F, and receives as much; two swap the whole
 * gradient of each layer's inputs but the first's; and the step's commit point is the metadata and
 * one number, there and back. */
static void expect_bytes(struct tiny *t, const char *clips, double more)
{
    char sliced[128];
    SLICES(t, 2, sliced, "stop.steps=5", "evaluate.every_steps=1000", clips);
    enum { SLICES = 2, BOTH_WAYS = 2 };
    double gathers = BOTH_WAYS * (SLICES - 1) * 4.0 * BATCH * (24 + 12 + 5);
    double sums = SLICES * BOTH_WAYS * 4.0 * BATCH * (24 + 12);
    double commit = SLICES * BOTH_WAYS * (double)(sizeof(struct exchange_meta) + sizeof(float));
    commit += SLICES * BOTH_WAYS * more;
    assert_int_equal(run_count(sliced, "exchange", NULL, NULL), 5);
    for (int n = 0; n < 5; n++)
        if (run_number(sliced, "exchange", n, "bytes") != gathers + sums + commit)
            fail_msg("exchange %d: %.0f bytes, not %.0f", n,
                     run_number(sliced, "exchange", n, "bytes"), gathers + sums + commit);
}

/* Where gradients are clipped they swap the square of the norm, too, in two numbers. */
static void test_slices_send_the_bytes_of_the_scheme(void **state)
{
    expect_bytes(*state, "solver.clip_gradients=-1", 0);
    expect_bytes(*state, "solver.clip_gradients=1", 2 * sizeof(float));
}

/* Layers by channel between a convolution and a pooling gather nothing: the first 6 maps on the
 * wire are the pooling's, of 5 x 5 pixels. The state is added up: 2 x 6 numbers and one, in places
 * of sixteen. */
static void test_channels_are_gathered_behind_the_pooling(void **state)
{
    struct tiny *t = *state;
    char sliced[128], net[192];
    tiny_write(t, "channels.prototxt", sliced_channels);
    SLICES(t, 2, sliced, "stop.steps=3", "evaluate.every_steps=1000",
           other_net(t, "channels.prototxt", net));
    enum { BOTH_WAYS = 2, SLICES = 2, MAPS = 6 * 5 * 5, STATES = 3 * 16 };
    double gathers = BOTH_WAYS * 4.0 * BATCH * (MAPS + 5);
    double sums = SLICES * BOTH_WAYS * 4.0 * (BATCH * MAPS + STATES);
    double commit = SLICES * BOTH_WAYS * (double)(sizeof(struct exchange_meta) + sizeof(float));
    if (run_number(sliced, "exchange", 1, "bytes") != gathers + sums + commit)
        fail_msg("%.0f bytes, not %.0f", run_number(sliced, "exchange", 1, "bytes"),
                 gathers + sums + commit);
}

/* Half of the products each: with a fast network a step takes half as long. */
static void test_slices_share_the_time_of_a_step(void **state)
{
    struct tiny *t = *state;
    struct sim_run whole = {0}, sliced = {0};
    static const char fast[] =
        "node { count: 2 } step_seconds: 0.02 link { mbit: 1000 latency_us: 10 }\n";
    SIM(t, fast, &whole, "stop.steps=20", "slices=1", "workers=1", "strategy.single={}",
        "test_data", "validation=0");
    SIM(t, fast, &sliced, "stop.steps=20", "slices=2", "workers=2", "strategy.allreduce={}",
        "test_data", "validation=0");
    double ratio = sliced.report.wall_s / whole.report.wall_s;
    print_message("    %.3g s whole, %.3g s in two slices\n", whole.report.wall_s,
                  sliced.report.wall_s);
    assert_true(ratio > 0.45 && ratio < 0.7);
}

/* A run with that many slices, resumed with as many others: as with the whole model. */
static void resume_as(struct tiny *t, const int counts[2], const char *net, const char *from,
                      const char *whole)
{
    struct sim_run r = {0};
    for (int part = 0; part < 2; part++) {
        char slices[32], workers[32], steps[32];
        snprintf(slices, sizeof slices, "slices=%d", counts[part]);
        snprintf(workers, sizeof workers, "workers=%d", counts[part]);
        snprintf(steps, sizeof steps, "stop.steps=%d", part == 0 ? 11 : 20);
        SIM(t, cluster, &r, slices, workers, steps, "strategy.allreduce={}", net, from);
    }
    double apart = run_difference(r.dir, whole);
    print_message("    %s, %d slices, then %d: %.2g\n", strrchr(net, '/') + 1, counts[0], counts[1],
                  apart);
    assert_true(apart <= SAME_MAX);
    assert_near(run_number(r.dir, "end", 1, "test_loss"), run_number(whole, "end", 0, "test_loss"));
}

/* Checkpoints are of the whole model: a run resumes with another number of slices, or with none;
 * with recurrent units, of which a slice has a part of each gate, with channels and their state,
 * and behind data-parallel layers. */
static void test_slices_resume_as_others(void **state)
{
    struct tiny *t = *state;
    char whole[128], net[192];
    static const struct {
        const char *net, *from;
        int counts[2];
    } runs[] = {
        {"net.prototxt", "slices_from=one", {2, 3}},
        {"net.prototxt", "slices_from=one", {4, 1}},
        {"net.prototxt", "slices_from=one", {1, 2}},
        {"sequence.prototxt", "slices_from=lstm", {2, 3}},
        {"sequence.prototxt", "slices_from=lstm", {4, 2}},
        {"sequence.prototxt", "slices_from=lstm", {3, 1}},
        {"sequence.prototxt", "slices_from=gru", {2, 4}},
        {"states.prototxt", "slices_from=data", {2, 3}},
        {"states.prototxt", "slices_from=data", {3, 1}},
        {"channels.prototxt", "slices_from=conv", {2, 3}},
        {"channels.prototxt", "slices_from=conv", {3, 1}},
        {"mixed.prototxt", "slices_from=one", {2, 3}},
        {"mixed.prototxt", "slices_from=one", {3, 1}},
    };
    tiny_write(t, "channels.prototxt", sliced_channels);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        other_net(t, runs[i].net, net);
        SLICES(t, 1, whole, "stop.steps=20", net, runs[i].from);
        resume_as(t, runs[i].counts, net, runs[i].from, whole);
    }
    /* Batch statistics of data-parallel layers are those of as many slices. */
    other_net(t, "channels.prototxt", net);
    SLICES(t, 2, whole, "stop.steps=20", net, "slices_from=ip");
    resume_as(t, (const int[]){2, 2}, net, "slices_from=ip", whole);
}

/* Of an Embed a slice has a few floats of each row: it requests many rows at once, as a link on
 * which each request takes 4 ms shows. */
static void test_slices_resume_many_rows(void **state)
{
    struct tiny *t = *state;
    struct sim_run whole = {0}, sliced = {0};
    static const char far[] = "node { count: 2 } step_seconds: 0.004 link { latency_us: 2000 }\n";
    static const char number[] = "input_dim: ";
    const char *rows = strstr(sliced_states, number) + strlen(number);
    char text[sizeof sliced_states + 8], net[192], stop[32];
    snprintf(text, sizeof text, "%.*s81%s", (int)(rows - sliced_states), sliced_states, rows);
    tiny_write(t, "rows.prototxt", text); /* 8116 of them */
    other_net(t, "rows.prototxt", net);
    for (int steps = 2; steps <= 4; steps += 2) {
        snprintf(stop, sizeof stop, "stop.steps=%d", steps);
        SIM(t, far, &whole, "slices=1", "workers=1", "strategy.single={}", stop, net);
        SIM(t, far, &sliced, "slices=2", "workers=2", "strategy.allreduce={}", stop, net);
    }
    double more = sliced.report.wall_s - whole.report.wall_s;
    print_message("    %.3g s more than the whole model\n", more);
    assert_true(run_difference(sliced.dir, whole.dir) <= SAME_MAX);
    assert_true(more < 8);
}

/* A file with all layers stays where it is, and each slice gets its part. Of one that lacks some
 * the driver has the whole model, and cuts it for the slices. */
static void test_slices_begin_with_weights(void **state)
{
    struct tiny *t = *state;
    char first[128], whole[128], sliced[128], net[192], weights[192];
    static const char *const nets[] = {"sequence.prototxt", "channels.prototxt", "net.prototxt",
                                       "states.prototxt"};
    tiny_write(t, "channels.prototxt", sliced_channels);
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        other_net(t, nets[i], net);
        SLICES(t, 1, first, "stop.steps=5", net);
        snprintf(weights, sizeof weights, "weights=%s/final.safetensors", first);
        SLICES(t, 1, whole, "stop.steps=6", net, weights);
        SLICES(t, 3, sliced, "stop.steps=6", net, weights, "evaluate.at_start=true");
        double apart = run_difference(sliced, whole);
        print_message("    %s: %.2g\n", nets[i], apart);
        assert_true(apart <= SAME_MAX);
    }
    tiny_write(t, "fewer.prototxt",
               SLICED_DATA SLICED_INNER("one", "data", "one", 24)
                   SLICED_INNER("last", "one", "ip", 5) SLICED_ENDS);
    SLICES(t, 1, first, "stop.steps=5", other_net(t, "fewer.prototxt", net));
    snprintf(weights, sizeof weights, "weights=%s/final.safetensors", first);
    SLICES(t, 1, whole, "stop.steps=6", weights);
    SLICES(t, 3, sliced, "stop.steps=6", weights);
    assert_true(run_difference(sliced, whole) <= SAME_MAX);
}

/* A slice is lost at any moment: the run ends soon, names the slice, and resumes to the end that it
 * would have had. */
static void test_a_lost_slice_ends_the_run(void **state)
{
    struct tiny *t = *state;
    char whole[128];
    SLICES(t, 1, whole, "stop.steps=60");
    for (int i = 0; i < 8; i++) {
        struct sim_run r = {.limit_s = 1000};
        char faults[256], phrase[64];
        snprintf(faults, sizeof faults,
                 "node { count: 3 } step_seconds: 0.004 link { mbit: 100 } "
                 "fault { at: %.4f kill: %d }\n",
                 0.1 + 0.0013 * i, i % 3);
        snprintf(phrase, sizeof phrase, "slice %d of 3 of the model is lost", i % 3);
        SIM_TRY(t, faults, &r, "slices=3", "workers=3", "strategy.allreduce={}", "stop.steps=60",
                "checkpoint.every_seconds=0.05");
        if (r.rc == PL_OK || !strstr(r.error, phrase))
            fail_msg("%d: %d, \"%s\"", i, r.rc, r.error);
        SIM(t, cluster, &r, "slices=3", "workers=3", "strategy.allreduce={}", "stop.steps=60");
        assert_true(run_difference(r.dir, whole) <= SAME_MAX);
    }
}

/* All loops have ended, and a slice is lost before the final model is written: nobody else has it.
 * The run ends by name, and is resumed from its checkpoint. */
static void test_a_slice_lost_at_the_end_ends_the_run(void **state)
{
    struct tiny *t = *state;
    static const char slow[] = "node { count: 3 } step_seconds: 0.004 link { mbit: 10 }\n";
    char whole[128];
    struct sim_run r = {.limit_s = 1000};
    int lost = 0;
    SLICES(t, 1, whole, "stop.steps=12");
    SIM(t, slow, &r, "slices=3", "workers=3", "strategy.allreduce={}", "stop.steps=12");
    double end = r.report.wall_s;
    for (int i = 0; i < 8; i++) {
        char faults[256];
        r = (struct sim_run){.limit_s = 1000};
        snprintf(faults, sizeof faults,
                 "node { count: 3 } step_seconds: 0.004 link { mbit: 10 } "
                 "fault { at: %.4f kill: %d }\n",
                 end - 0.004 * (i + 1), i % 3);
        SIM_TRY(t, faults, &r, "slices=3", "workers=3", "strategy.allreduce={}", "stop.steps=12",
                "checkpoint.every_seconds=0.02");
        if (r.rc != PL_OK && !strstr(r.error, "of 3 of the model is lost"))
            fail_msg("%d: %d, \"%s\"", i, r.rc, r.error);
        lost += r.rc != PL_OK;
        SIM(t, cluster, &r, "slices=3", "workers=3", "strategy.allreduce={}", "stop.steps=12");
        assert_true(run_difference(r.dir, whole) <= SAME_MAX);
    }
    assert_true(lost > 3);
}

/* A worker that is asked to leave takes the run to its end, with the model of a commit point. */
static void test_a_slice_that_leaves_ends_the_run_in_order(void **state)
{
    struct tiny *t = *state;
    char whole[128];
    struct sim_run r = {.limit_s = 1000};
    SLICES(t, 1, whole, "stop.steps=60");
    SIM(t, "node { count: 3 } step_seconds: 0.004 link { mbit: 100 } fault { at: 0.1 leave: 1 }\n",
        &r, "slices=3", "workers=3", "strategy.allreduce={}", "stop.steps=60");
    assert_string_equal(r.report.reason, "interrupted");
    assert_true(run_number(r.dir, "end", 0, "used") < 60 * BATCH);
    assert_true(run_is_finite(r.dir, "final.safetensors"));
    SIM(t, cluster, &r, "slices=3", "workers=3", "strategy.allreduce={}", "stop.steps=60");
    assert_true(run_difference(r.dir, whole) <= SAME_MAX);
}

/* A loss that is not finite ends all slices at the same step. */
static void test_slices_diverge_together(void **state)
{
    struct sim_run r = {.limit_s = 1000};
    char net[192];
    SIM_TRY(*state, cluster, &r, "slices=2", "workers=2", "strategy.allreduce={}",
            other_net(*state, "one.prototxt", net), "solver={base_lr:1e38 lr_policy:'fixed'}");
    assert_int_equal(r.rc, PL_ERR_DIVERGED);
    assert_non_null(strstr(r.error, "diverged"));
}

static void test_slices_refuse_before_the_start(void **state)
{
    static const struct {
        const char *slices, *workers, *option, *phrase;
    } cases[] = {
        {"slices=3", "workers=3", NULL, "layer \"p\": slices: weights of type \"Deconvolution\""},
        {"slices=6", "workers=6", "seed=1", "layer \"ip\": slices: 6 are more than its 5 outputs"},
        {"slices=2", "workers=2", "slices_from=three", "slices_from: the net has no layer"},
        {"slices=2", "workers=2", "slices_to=three", "slices_to: the net has no layer"},
        {"slices=2", "workers=2", "solver.type=LARS",
         "slices: solver.type needs the whole gradient"},
    };
    struct tiny *t = *state;
    char net[192];
    tiny_write(t, "deconv.prototxt", sliced_deconv);
    const char *deconv = other_net(t, "deconv.prototxt", net);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sim_run r = {.limit_s = 1000};
        SIM_TRY(t, "node { count: 6 } step_seconds: 0.004 link { mbit: 100 }\n", &r,
                cases[i].option ? cases[i].option : deconv, cases[i].slices, cases[i].workers,
                "strategy.allreduce={}");
        if (r.rc == PL_OK || !strstr(r.error, cases[i].phrase))
            fail_msg("%zu: %d, \"%s\"", i, r.rc, r.error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_train_as_the_whole_model),
        cmocka_unit_test(test_slices_clip_a_gradient_that_explodes),
        cmocka_unit_test(test_slices_of_convolutions_train_as_the_whole_model),
        cmocka_unit_test(test_slices_share_channels_out),
        cmocka_unit_test(test_slices_share_groups_out),
        cmocka_unit_test(test_slices_of_units_train_as_the_whole_model),
        cmocka_unit_test(test_slices_of_a_range_train_as_the_whole_model),
        cmocka_unit_test(test_data_parallel_layers_are_those_of_workers),
        cmocka_unit_test(test_slices_of_one_layer_have_its_bits),
        cmocka_unit_test(test_slices_are_evaluated_on_the_way),
        cmocka_unit_test(test_slices_send_the_bytes_of_the_scheme),
        cmocka_unit_test(test_channels_are_gathered_behind_the_pooling),
        cmocka_unit_test(test_slices_share_the_time_of_a_step),
        cmocka_unit_test(test_slices_resume_as_others),
        cmocka_unit_test(test_slices_resume_many_rows),
        cmocka_unit_test(test_slices_begin_with_weights),
        cmocka_unit_test(test_a_lost_slice_ends_the_run),
        cmocka_unit_test(test_a_slice_lost_at_the_end_ends_the_run),
        cmocka_unit_test(test_a_slice_that_leaves_ends_the_run_in_order),
        cmocka_unit_test(test_slices_diverge_together),
        cmocka_unit_test(test_slices_refuse_before_the_start),
    };
    return cmocka_run_group_tests(tests, sliced_setup, tiny_teardown);
}
