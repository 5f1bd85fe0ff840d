/* Where a step's time goes, by a clock that jumps a known number of milliseconds at each reading.
 */
#include "train/bench_layers.h"

#include "nn/fixture.h"

static const char net_text[] =
    "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
    " convolution_param { num_output: 2 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'conv' top: 'ip'\n"
    " inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

static const struct shape image = {3, {3, 9, 8}};

enum { STEPS = 3, LAYERS = 4 };

/* Each reading is later than the one before by the next of a list; 0 at its end. */
struct clock_world {
    struct world world;
    const int *jump; /* ms */
    int64_t now;
};

static int64_t jumping_now(struct world *w)
{
    struct clock_world *c = (struct clock_world *)w;
    if (c->jump && *c->jump)
        c->now += (int64_t)*c->jump++ * 1000000;
    return c->now;
}

static const struct world_ops ops = {.now = jumping_now};

/* A step reads the clock when it begins; twice a layer and pass; before and after the update. */
static void take_step(struct bench_layers *b, struct clock_world *c, struct fixture *f,
                      const int *jump)
{
    c->jump = jump;
    bench_layers_begin(b);
    fixture_gradient(f);
    bench_layers_update(b);
    bench_layers_end(b);
    assert_int_equal(*c->jump, 0);
}

static void test_bench_layers_sums_medians(void **state)
{
    /* begin | wait, layer 0, gap, 1, gap, 2, gap, 3 | clear, 3, gap, 2, gap, 1 | gap, update */
    static const int jump[STEPS][20] = {
        {5, 7, 2, 1, 20, 1, 6, 1, 3, 4, 9, 1, 16, 1, 40, 2, 30, 0},
        {5, 8, 2, 1, 50, 1, 6, 1, 3, 4, 9, 1, 90, 1, 40, 2, 20, 0},
        {5, 9, 2, 1, 10, 1, 6, 1, 3, 4, 9, 1, 14, 1, 40, 2, 10, 0},
    };
    static const double forward[LAYERS] = {2, 20, 6, 3}, backward[LAYERS] = {0, 40, 16, 9};
    (void)state;
    struct clock_world clock = {.world = {.ops = &ops}};
    struct fixture f;
    struct bench_layers b;
    struct bench_layer *layer;
    double part[BENCH_PHASES];
    fixture_open(&f, net_text, PHASE_TRAIN, 5, image, &kernels_ref);
    assert_int_equal(bench_layers_init(&b, &clock.world, f.net, STEPS, &f.arena), OK);
    net_set_probe(f.net, &b.probe);
    for (int i = 0; i < STEPS; i++)
        take_step(&b, &clock, &f, jump[i]);
    assert_int_equal(bench_layers_sum(&b, f.net, &f.arena, &layer, part), OK);
    for (int i = 0; i < LAYERS; i++) {
        fixture_near(layer[i].forward_ms, forward[i], 1e-9);
        fixture_near(layer[i].backward_ms, backward[i], 1e-9);
    }
    assert_string_equal(layer[1].name, "conv");
    assert_string_equal(layer[2].type, "InnerProduct");
    fixture_near(part[BENCH_LOADING], 8, 1e-9);
    fixture_near(part[BENCH_CLEARING], 4, 1e-9);
    fixture_near(part[BENCH_UPDATE], 20, 1e-9);
    fixture_near(part[BENCH_OTHER], 7, 1e-9);
    /* Sums of the rows less their first number: 144, 238, 114. */
    fixture_near(part[BENCH_WHOLE_STEP], 144, 1e-9);
    /* 5 records, 2 outputs of 7×6 from 27, twice; × 2; in 20 + 40 ms. */
    fixture_near(layer[1].gflops, 5 * 2 * 42 * 27 * 2 * 2 / 60.0 * 1e-6, 1e-12);
    assert_true(layer[0].gflops == 0 && layer[3].gflops == 0);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench_layers_sums_medians),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
