/* Nets whose images lie in blocks of channels compute what they compute in NHWC; and which nets
 * come to lie so. */
#include "nn/fixture.h"
#include "nn/graph.h"
#include "nn/layer.h"
#include "tensor/tuner.h"

#include <stdlib.h>

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define CONV(name, bottom, fields)                                                        \
    "layer { name: '" name "' type: 'Convolution' bottom: '" bottom "' top: '" name "'\n" \
    " convolution_param { " fields " weight_filler { type: 'msra' }\n"                    \
    " bias_filler { type: 'gaussian' std: 0.1 } } }\n"
#define LAYER(name, type, bottom, top, fields) \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " fields " }\n"
#define NORM(name, bottom)                               \
    LAYER(name "n", "BatchNorm", bottom, bottom "n", "") \
    LAYER(name "s", "Scale", bottom "n", bottom "n",     \
          "scale_param { bias_term: true filler { type: 'uniform' min: 0.5 max: 2 } }")
#define RELU(top) LAYER(top "r", "ReLU", top, top, "")
#define POOL(name, bottom, fields) \
    LAYER(name, "Pooling", bottom, name, "pooling_param { " fields " }")
#define LOSS(bottom)                                                              \
    "layer { name: 'ip' type: 'InnerProduct' bottom: '" bottom "' top: 'ip'\n"    \
    " inner_product_param { num_output: 5 weight_filler { type: 'xavier' } } }\n" \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n"

#define STEM CONV("a", "data", "num_output: 32 kernel_size: 3 pad: 1") NORM("a", "a") RELU("an")

static const char *const nets[] = {
    /* A block of a residual net, and one with a stride and a projection. */
    DATA STEM CONV("b", "an", "num_output: 32 kernel_size: 3 pad: 1") NORM("b", "b") RELU("bn")
        CONV("c", "bn", "num_output: 32 kernel_size: 3 pad: 1") NORM("c", "c")
            LAYER("e", "Eltwise", "an", "e", "bottom: 'cn'") RELU("e")
                CONV("d", "e", "num_output: 48 kernel_size: 3 pad: 1 stride: 2") NORM("d", "d")
                    RELU("dn") CONV("f", "e", "num_output: 48 kernel_size: 1 stride: 2")
                        NORM("f", "f") LAYER("g", "Eltwise", "fn", "g", "bottom: 'dn'") RELU("g")
                            POOL("p", "g", "pool: AVE global_pooling: true") LOSS("p"),

    /* Poolings, dropout of an image, and a product over pixels; 16 channels between. */
    DATA CONV("a", "data", "num_output: 64 kernel_size: 5 pad: 2") RELU("a")
        POOL("p", "a", "pool: MAX kernel_size: 3 stride: 2")
            LAYER("o", "Dropout", "p", "o", "dropout_param { dropout_ratio: 0.4 }")
                CONV("b", "o", "num_output: 16 kernel_size: 3 pad: 1") RELU("b")
                    CONV("c", "b", "num_output: 48 kernel_size: 3")
                        POOL("q", "c", "pool: AVE kernel_size: 2") LOSS("q"),

    /* From one pixel to more, by padding. */
    DATA CONV("a", "data", "num_output: 32 kernel_h: 12 kernel_w: 10") RELU("a")
        POOL("p", "a", "pool: AVE kernel_size: 2 pad: 1")
            CONV("b", "p", "num_output: 32 kernel_size: 3 pad: 1") NORM("b", "b") LOSS("bn"),

    /* Layers that stand alone, and a value that goes three ways. */
    DATA CONV("a", "data", "num_output: 32 kernel_size: 3 pad: 1")
        LAYER("w", "Split", "a", "x", "top: 'y' top: 'z'") LAYER("s", "Scale", "x", "s",
                                                                 "scale_param { bias_term: true }")
            LAYER("r", "ReLU", "y", "r", "relu_param { negative_slope: 0.1 }")
                LAYER("n", "BatchNorm", "z", "n", "batch_norm_param { use_global_stats: true }")
                    LAYER("m", "Eltwise", "s", "m", "bottom: 'r' eltwise_param { operation: PROD }")
                        LAYER("e", "Eltwise", "m", "e",
                              "bottom: 'n' eltwise_param { coeff: 0.5 coeff: 2 }") LOSS("e"),
};
enum { NETS = sizeof nets / sizeof *nets, N = 6 };

static const struct shape image = {3, {3, 12, 10}};

static struct net_options options_of(struct tuner *tuner)
{
    return (struct net_options){.phase = PHASE_TRAIN,
                                .batch = N,
                                .input = image,
                                .kernels = &kernels_dnnl,
                                .tuner = tuner,
                                .keep = "ip"};
}

/* The clock of a machine that becomes faster with each look: what is timed later wins. */
static int64_t speeding_clock(void *user)
{
    int64_t *looks = user;
    ++*looks;
    return INT64_C(1000000000) - INT64_C(1000000000) / (1 + *looks / 50);
}

static int64_t even_clock(void *user)
{
    int64_t *looks = user;
    return 1000 * ++*looks;
}

static void open_net(struct fixture *f, const char *text, bool blocks)
{
    struct err err = {0};
    struct net *net = NULL;
    Caffe__NetParameter *param = fixture_parse(text);
    int64_t looks = 0;
    struct tuner *tuner =
        tuner_create(&(struct tuner_host){.now = even_clock, .keep = NULL, .user = &looks});
    const struct net_options options = options_of(tuner);
    if (net_build(param, &options, blocks, &net, &err) != OK)
        fail_msg("%s", err.text);
    tuner_free(tuner);
    caffe__net_parameter__free_unpacked(param, NULL);
    fixture_fill(f, net, N, image);
    net->poisoned = true;
    for (size_t i = 0; i < f->s.n; i++)
        f->s.at[i] = 1.0f + rng_uniform(5, 6, i);
}

static void near_all(const char *what, const float *a, const float *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)a[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= 1e-5 * largest))
            fail_msg("%s[%zu] is %.9g and %.9g, of %.3g", what, i, (double)a[i], (double)b[i],
                     largest);
}

static size_t blocks_in(const struct net *net)
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_blobs; i++)
        n += net->blob[i]->layout == LAYOUT_BLOCKS;
    return n;
}

static void test_the_same_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < NETS; i++)
        for (size_t count = N; count >= N - 1; count--) {
            struct fixture f[2];
            float scores[2][N * 5];
            print_message("  net %zu, %zu records\n", i, count);
            for (int k = 0; k < 2; k++) {
                open_net(&f[k], nets[i], k == 1);
                f[k].batch.count = count;
                fixture_gradient(&f[k]);
                net_blob(f[k].net, "ip", scores[k], N * 5, NULL);
            }
            assert_int_equal(blocks_in(f[0].net), 0);
            assert_true(blocks_in(f[1].net) > 1);
            near_all("scores", scores[0], scores[1], count * 5);
            near_all("state", f[0].s.at, f[1].s.at, f[0].s.n);
            const struct segments *table = net_segments(f[0].net);
            for (size_t k = 0; k < table->count; k++) {
                const struct segment *at = &table->at[k];
                near_all(at->name, f[0].dx.at + at->offset, f[1].dx.at + at->offset, at->len);
            }
            for (int k = 0; k < 2; k++)
                fixture_close(&f[k]);
        }
}

/* Before a BatchNorm that goes by the batch a bias has no gradient, and is given none; one whose
 * values something else reads too has one. */
static void test_biases_before_batch_norm(void **state)
{
    (void)state;
    static const struct {
        const char *net;
        bool idle;
    } cases[] = {
        {DATA STEM LOSS("an"), true},
        {DATA CONV("a", "data", "num_output: 32 kernel_size: 3")
             LAYER("n", "BatchNorm", "a", "a", "") LOSS("a"),
         true},
        {DATA STEM LAYER("e", "Eltwise", "an", "e", "bottom: 'a'") LOSS("e"), false},
        {DATA CONV("a", "data", "num_output: 32 kernel_size: 3") LAYER(
             "n", "BatchNorm", "a", "n", "batch_norm_param { use_global_stats: true }") LOSS("n"),
         false},
        {DATA CONV("a", "data", "num_output: 32 kernel_size: 3") LOSS("a"), false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        open_net(&f, cases[i].net, false);
        fixture_gradient(&f);
        const struct segment *b = net_layer_param(f.net, "a", 1);
        bool any = false;
        for (size_t k = 0; k < b->len; k++)
            any = any || f.dx.at[b->offset + k] != 0.0f;
        if (any == cases[i].idle)
            fail_msg("net %zu: %s", i, any ? "a gradient" : "none");
        fixture_close(&f);
    }
}

/* ---- blobs in blocks of channels ---- */

static struct net *make_net(const char *text, struct net_options options)
{
    struct err err = {0};
    struct net *net = NULL;
    if (fixture_make(text, &options, &net, &err) != OK)
        fail_msg("%s", err.text);
    return net;
}

static bool copies_images(const char *text, struct tuner *tuner)
{
    struct err err = {0};
    struct net *net = NULL;
    Caffe__NetParameter *param = fixture_parse(text);
    const struct net_options options = options_of(tuner);
    assert_int_equal(net_build(param, &options, false, &net, &err), OK);
    caffe__net_parameter__free_unpacked(param, NULL);
    bool copies = false;
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct op *op = strcmp(net->layer[i]->type, "Convolution") ? NULL : net->layer[i]->op;
        copies = copies || (op && op->forward.images + op->backward.images > 0);
    }
    net_free(net);
    return copies;
}

static void expect_equal(const char *what, const char *text, struct net_options options,
                         bool blocks)
{
    struct net *net = make_net(text, options);
    if (net->blocks != blocks)
        fail_msg("%s: %sin blocks", what, blocks ? "not " : "");
    net_free(net);
}

static void test_blocks_layout_of_each_blob(void **state)
{
    (void)state;
    static const char lrn[] = DATA STEM CONV("b", "an", "num_output: 32 kernel_size: 3 pad: 1")
        LAYER("l", "LRN", "b", "l", "") LOSS("l");
    int64_t looks = 0;
    setenv("PACELINE_WINOGRAD", "off", 1);
    struct tuner *tuner =
        tuner_create(&(struct tuner_host){.now = speeding_clock, .keep = NULL, .user = &looks});
    struct net_options options = options_of(tuner);
    bool copies =
        copies_images(nets[0], tuner); /* else oneDNN has nothing here that wants blocks */
    expect_equal("a net that every layer of can read", nets[0], options, copies);
    expect_equal("the same once more, timed already", nets[0], options, copies);
    expect_equal("one with a layer that cannot", lrn, options, false);
    options.phase = PHASE_TEST;
    expect_equal("for tests", nets[0], options, false);
    options = options_of(NULL);
    expect_equal("without a tuner", nets[0], options, false);
    options = options_of(tuner);
    options.keep_all = true;
    expect_equal("all of whose values are kept", nets[0], options, false);
    tuner_free(tuner);
    tuner = tuner_create(&(struct tuner_host){.now = even_clock, .keep = NULL, .user = &looks});
    expect_equal("where nothing that copies is faster", nets[0], options_of(tuner), false);
    tuner_free(tuner);
    unsetenv("PACELINE_WINOGRAD");
}

int main(void)
{
    kernels_set_threads(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_numbers),
        cmocka_unit_test(test_biases_before_batch_norm),
        cmocka_unit_test(test_blocks_layout_of_each_blob),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
