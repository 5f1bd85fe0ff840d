/* A ReLU that waits for the pooling gives what it gives before it, and waits where it may. */
#include "nn/fixture.h"
#include "nn/graph.h"

#include <stdio.h>

#define LAYER(name, type, bottom, top, rest)                                                  \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " rest " " \
    "} "
#define CONV(name, bottom)                                                                        \
    LAYER(                                                                                        \
        name, "Convolution", bottom, name,                                                        \
        "convolution_param { num_output: 5 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' " \
        "} bias_filler { type: 'gaussian' } } ")
#define RELU(bottom, top, rest) LAYER("r", "ReLU", bottom, top, rest)
#define POOL(bottom, rest)      LAYER("p", "Pooling", bottom, "p", "pooling_param { " rest " } ")
#define DATA                    "layer { name: 'data' type: 'Input' top: 'data' top: 'label' } "
#define LOSS(bottom)                                                                 \
    LAYER("ip", "InnerProduct", bottom, "ip",                                        \
          "inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } ") \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' } "

static const struct shape image = {3, {2, 9, 7}};
enum { N = 5 };

static void open_net(struct fixture *f, const char *text, enum phase phase, const char *keep,
                     bool keep_all, const struct kernels *kernels)
{
    const struct net_options options = {.phase = phase,
                                        .batch = N,
                                        .input = image,
                                        .kernels = kernels,
                                        .keep = keep,
                                        .keep_all = keep_all};
    struct err err = {0};
    struct net *net = NULL;
    if (fixture_make(text, &options, &net, &err) != OK)
        fail_msg("%s: %s", kernels->name, err.text);
    fixture_fill(f, net, N, image);
    net->poisoned = !keep_all;
}

static const struct layer *layer_named(const struct net *net, const char *name)
{
    for (size_t i = 0; i < net->n_layers; i++)
        if (strcmp(net->layer[i]->name, name) == 0)
            return net->layer[i];
    return NULL;
}

/* ---- the same values ---- */

/* Where others read the same image, their gradients are added in another order. */
static void expect_near(const char *what, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-6f * (1.0f + fabsf(b[i]))))
            fail_msg("%s[%zu] is %.9g, not %.9g", what, i, (double)a[i], (double)b[i]);
}

/* Windows apart and over one another, with borders, and of one row; the first weights are all the
 * same, so that many values in a window are. */
static void test_as_before(void **state)
{
    static const char *const nets[] = {
        DATA CONV("c", "data") RELU("c", "c", "") POOL("c", "kernel_size: 2 stride: 2") LOSS("p"),
        DATA CONV("c", "data") RELU("c", "d", "") POOL("d", "kernel_size: 3 stride: 2 pad: 1")
            CONV("e", "p") LOSS("e"),
        DATA CONV("c", "data") RELU("c", "c", "") POOL("c", "kernel_h: 1 kernel_w: 3 stride: 1")
            LOSS("p"),
        DATA RELU("data", "d", "") POOL("d", "kernel_size: 3 stride: 3") LOSS("p"),
        /* what is in place may not take the ReLU's */
        DATA CONV("c", "data") RELU("c", "c", "") POOL("c", "kernel_size: 2 stride: 2")
            LAYER("g", "Sigmoid", "p", "p", "") LOSS("p"),
        /* what the ReLU reads is read by others, before and after */
        DATA CONV("c", "data") CONV("a", "c") RELU("c", "d", "") CONV("b", "c")
            POOL("d", "kernel_size: 3 stride: 1 pad: 1")
                LAYER("s", "Eltwise", "a", "s", "bottom: 'b' bottom: 'p' bottom: 'c' ") LOSS("s"),
    };
    const struct kernels *kernels = *state;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        for (int phase = 0; phase < 2; phase++)
            for (size_t count = 2; count <= N; count += 3) {
                struct fixture after, before;
                float scores[2][4 * N];
                open_net(&after, nets[i], phase ? PHASE_TEST : PHASE_TRAIN, "ip", false, kernels);
                open_net(&before, nets[i], phase ? PHASE_TEST : PHASE_TRAIN, NULL, true, kernels);
                struct fixture *both[] = {&after, &before};
                for (int k = 0; k < 2; k++) {
                    both[k]->batch.count = count;
                    for (size_t at = 0; at < 30; at++) /* ties */
                        both[k]->data[at] = at < 15 ? -0.5f : 0.5f;
                    phase ? fixture_forward(both[k]) : fixture_gradient(both[k]);
                    net_blob(both[k]->net, "ip", scores[k], 4 * N, NULL);
                }
                assert_true(layer_named(after.net, "p")->nth < layer_named(after.net, "r")->nth);
                assert_true(layer_named(before.net, "p")->nth > layer_named(before.net, "r")->nth);
                expect_near("scores", scores[0], scores[1], 4 * count);
                if (!phase)
                    expect_near("gradient", after.dx.at, before.dx.at, after.dx.n);
                fixture_close(&after);
                fixture_close(&before);
            }
}

/* ---- where ---- */

static void test_where(void **state)
{
#define MAX POOL("d", "kernel_size: 2 stride: 2")
    static const struct {
        bool waits;
        const char *keep, *net;
    } cases[] = {
        {true, NULL, CONV("c", "data") RELU("c", "d", "") MAX LOSS("p")},
        {true, "p", CONV("c", "data") RELU("c", "d", "") MAX LOSS("p")},
        {true, "c", CONV("c", "data") RELU("c", "d", "") MAX LOSS("p")},
        {false, "d", CONV("c", "data") RELU("c", "d", "") MAX LOSS("p")},
        {false, NULL, CONV("c", "data") RELU("c", "d", "loss_weight: 0.1") MAX LOSS("p")},
        {false, NULL,
         CONV("c", "data") RELU("c", "d", "relu_param { negative_slope: 0.1 }") MAX LOSS("p")},
        {false, NULL, CONV("c", "data") RELU("c", "d", "propagate_down: false") MAX LOSS("p")},
        {false, NULL,
         CONV("c", "data") RELU("c", "d", "") LAYER("p", "Pooling", "d", "p",
                                                    "propagate_down: false pooling_param { "
                                                    "kernel_size: 2 }") LOSS("p")},
        {false, NULL,
         CONV("c", "data") RELU("c", "d", "") POOL("d", "kernel_size: 2 pool: AVE") LOSS("p")},
        {false, NULL,
         CONV("c", "data") RELU("c", "d", "")
             LAYER("p", "LRN", "d", "p", "lrn_param { local_size: 3 }") LOSS("p")},
        {false, NULL,
         CONV("c", "data") RELU("c", "d", "")
             MAX LAYER("q", "Pooling", "d", "q", "pooling_param { kernel_size: 2 stride: 2 }")
                 LAYER("e", "Eltwise", "p", "e", "bottom: 'q'") LOSS("e")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[4096];
        struct fixture f;
        snprintf(text, sizeof text, "%s%s", DATA, cases[i].net);
        open_net(&f, text, PHASE_TRAIN, cases[i].keep, false, *state);
        const struct layer *relu = layer_named(f.net, "r"), *pool = layer_named(f.net, "p");
        if ((pool->nth < relu->nth) != cases[i].waits)
            fail_msg("case %zu: the ReLU is layer %zu, the pooling %zu", i, relu->nth, pool->nth);
        fixture_gradient(&f);
        if (cases[i].keep)
            assert_true(net_keeps(f.net, cases[i].keep));
        fixture_close(&f);
    }
}

/* In a chain a ReLU costs nothing where it is. */
static void test_chains_keep_theirs(void **state)
{
    struct fixture f;
    open_net(&f,
             DATA CONV("c", "data") LAYER("n", "BatchNorm", "c", "n", "") RELU("n", "d", "")
                 POOL("d", "kernel_size: 2 stride: 2") LOSS("p"),
             PHASE_TRAIN, NULL, false, *state);
    assert_null(layer_named(f.net, "r"));
    assert_string_equal(f.net->layer[f.net->n_layers - 3]->name, "p");
    fixture_close(&f);
}

/* The image before the pooling is dead when it has been pooled. */
static void test_frees_the_large_image(void **state)
{
    struct fixture f;
    open_net(&f,
             DATA CONV("c", "data") RELU("c", "c", "") POOL("c", "kernel_size: 2 stride: 2")
                 CONV("e", "p") LOSS("e"),
             PHASE_TRAIN, NULL, false, *state);
    const struct blob *c = layer_named(f.net, "c")->top[0];
    assert_int_equal(c->values->last, layer_named(f.net, "p")->nth);
    fixture_close(&f);
}

#define BOTH(test)                            \
    {#test "_ref", test, NULL, NULL, NULL},   \
    {                                         \
#test "_dnnl", test, NULL, NULL, NULL \
    }

int main(void)
{
    kernels_set_threads(1);
    struct CMUnitTest tests[] = {
        BOTH(test_as_before),
        BOTH(test_where),
        BOTH(test_chains_keep_theirs),
        BOTH(test_frees_the_large_image),
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        const struct kernels *kernels = fixture_kernels[i % FIXTURE_KERNELS];
        memcpy(&tests[i].initial_state, &kernels, sizeof kernels); /* drops a const */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
