/* Nets for testing with a BatchNorm and a Scale folded into the layer before them give the same
 * results as layer by layer. */
#include "nn/fixture.h"
#include "nn/graph.h"

#include <stdio.h>

static const struct shape image = {3, {6, 7, 5}};
enum { N = 5, C = 8, FLOATS_MAX = N * C * 8 * 8 };

#define DATA "layer { name: 'd' type: 'Data' top: 'data' top: 'label' } "
#define LAYER(name, type, bottom, top, rest) \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " rest "} "
#define CONV(name, bottom, top, rest)                                                         \
    LAYER(name, "Convolution", bottom, top,                                                   \
          "convolution_param { num_output: 8 kernel_size: 3 pad: 1 " rest " weight_filler { " \
          "type: 'gaussian' std: 0.3 } bias_filler { type: 'gaussian' std: 1 } } ")
#define INNER(name, bottom, top, rest)                                                     \
    LAYER(name, "InnerProduct", bottom, top,                                               \
          "inner_product_param { num_output: 8 " rest " weight_filler { type: 'gaussian' " \
          "std: 0.1 } bias_filler { type: 'gaussian' std: 1 } } ")
#define NORM(bottom, top) LAYER("n", "BatchNorm", bottom, top, "")
#define SCALE(bottom, top)                                                                  \
    LAYER("s", "Scale", bottom, top,                                                        \
          "scale_param { bias_term: true filler { type: 'gaussian' std: 1 } bias_filler { " \
          "type: 'gaussian' std: 1 } } ")

struct example {
    size_t folded; /* layers */
    const char *net;
};

static const struct example examples[] = {
    {2, DATA CONV("c", "data", "c", "") NORM("c", "c") SCALE("c", "c")},
    {2, DATA CONV("c", "data", "c", "bias_term: false") NORM("c", "n") SCALE("n", "s")},
    {2, DATA CONV("c", "data", "c", "bias_term: false group: 2") NORM("c", "n") SCALE("n", "s")},
    {1, DATA CONV("c", "data", "c", "stride: 2") NORM("c", "n")},
    {1, DATA CONV("c", "data", "c", "bias_term: false") SCALE("c", "s")},
    {2, DATA INNER("c", "data", "c", "") NORM("c", "n") SCALE("n", "s")},
    {2, DATA INNER("c", "data", "c", "bias_term: false") NORM("c", "n") SCALE("n", "s")},
    {2, DATA CONV("c", "data", "c", "") NORM("c", "n") SCALE("n", "s")
            LAYER("r", "ReLU", "s", "r", "") CONV("e", "r", "e", "")},
    /* A second Scale is no longer the convolution's, nor is a BatchNorm after a Scale. */
    {1, DATA CONV("c", "data", "c", "") SCALE("c", "s") LAYER("t", "Scale", "s", "t", "")},
    {1, DATA CONV("c", "data", "c", "") SCALE("c", "s") NORM("s", "n")},
    /* Others look at what lies between: a layer, the loss. */
    {0, DATA CONV("c", "data", "c", "") NORM("c", "n")
            LAYER("e", "Eltwise", "n", "e", "bottom: 'c' ")},
    {0, DATA LAYER("c", "Convolution", "data", "c",
                   "convolution_param { num_output: 8 kernel_size: 1 } loss_weight: 0.5 ")
            NORM("c", "n")},
    /* Factors that differ between positions of a channel, or are not known beforehand. */
    {0, DATA CONV("c", "data", "c", "") LAYER("s", "Scale", "c", "s", "scale_param { axis: 2 } ")},
    {0, DATA CONV("c", "data", "c", "")
            LAYER("n", "BatchNorm", "c", "n", "batch_norm_param { use_global_stats: false } ")},
    {0, DATA LAYER("r", "ReLU", "data", "r", "") LAYER("n", "BatchNorm", "r", "n", "")},
    {0, DATA INNER("c", "data", "c", "transpose: true") NORM("c", "n")},
    {0, DATA INNER("c", "data", "c", "axis: 2") NORM("c", "n")},
    {0, DATA LAYER("c", "Deconvolution", "data", "c",
                   "convolution_param { num_output: 8 kernel_size: 2 } ") NORM("c", "n")},
};
enum { EXAMPLES = sizeof examples / sizeof *examples };

/* The blob that comes out: what no layer reads. */
static const char *result_of(const struct net *net)
{
    for (size_t i = net->n_blobs; i-- > 0;)
        if (net->blob[i]->users == 0 && !net->blob[i]->is_labels)
            return net->blob[i]->name;
    return "";
}

static size_t layers_of(const struct net *net, const char *type)
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_layers; i++)
        n += strstr(net->layer[i]->type, type) != NULL;
    return n;
}

static void give_state(struct fixture *f, uint64_t seed)
{
    for (size_t k = 0; k < f->s.n; k++)
        f->s.at[k] = 0.5f + rng_uniform(seed, 6, k);
}

static void near_all(const struct fixture *a, const struct fixture *b, size_t example)
{
    static float y[2][FLOATS_MAX];
    const char *name = result_of(a->net);
    size_t n = net_blob(a->net, name, y[0], FLOATS_MAX, NULL);
    assert_true(n > 0 && n <= FLOATS_MAX);
    assert_int_equal(net_blob(b->net, name, y[1], FLOATS_MAX, NULL), n);
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)y[1][i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)y[0][i] - (double)y[1][i]) <= 1e-5 * largest))
            fail_msg("example %zu: %s[%zu] is %.9g, apart %.9g of %.3g", example, name, i,
                     (double)y[0][i], (double)y[1][i], largest);
}

/* Also for other parameters than those of the pass before, and fewer records. */
static void test_fold_keeps_the_outputs(void **state)
{
    const struct kernels *kernels = *state;
    for (size_t i = 0; i < EXAMPLES; i++) {
        struct fixture folded, apart;
        fixture_open(&apart, examples[i].net, PHASE_TEST, N, image, kernels);
        fixture_open_lean(&folded, examples[i].net, PHASE_TEST, N, image, kernels);
        size_t types = layers_of(apart.net, "BatchNorm") + layers_of(apart.net, "Scale");
        size_t left = layers_of(folded.net, "BatchNorm") + layers_of(folded.net, "Scale");
        if (types - left != examples[i].folded)
            fail_msg("example %zu: %zu layers are folded, not %zu", i, types - left,
                     examples[i].folded);
        assert_true(segments_match(net_segments(folded.net), net_segments(apart.net)));
        for (uint64_t seed = 1; seed <= 2; seed++) {
            net_init(apart.net, seed, &apart.x, &apart.s);
            vec_copy(&folded.x, &apart.x, vec_all(&apart.x));
            give_state(&apart, seed);
            give_state(&folded, seed);
            folded.net->poisoned = true;
            folded.batch.count = apart.batch.count = seed == 1 ? N : N - 2;
            struct net_result a = fixture_forward(&folded), b = fixture_forward(&apart);
            fixture_near(a.loss, b.loss, 1e-4 * fabs(b.loss));
            near_all(&folded, &apart, i);
        }
        fixture_close(&folded);
        fixture_close(&apart);
    }
}

/* A blob that is asked for is made as the net has it. */
static void test_what_is_asked_for(void **state)
{
    const struct kernels *kernels = *state;
    static float y[2][FLOATS_MAX];
    static const char *const requested[] = {"c", "n", "s"};
    for (size_t i = 0; i < 3; i++) {
        const struct net_options options = {.phase = PHASE_TEST,
                                            .batch = N,
                                            .input = image,
                                            .kernels = kernels,
                                            .keep = requested[i]};
        struct err err = {0};
        struct fixture f, apart;
        struct net *net = NULL;
        assert_int_equal(fixture_make(examples[1].net, &options, &net, &err), OK);
        fixture_fill(&f, net, N, image);
        fixture_open(&apart, examples[1].net, PHASE_TEST, N, image, kernels);
        give_state(&f, 1);
        give_state(&apart, 1);
        fixture_forward(&f);
        fixture_forward(&apart);
        size_t n = net_blob(f.net, requested[i], y[0], FLOATS_MAX, NULL);
        assert_int_equal(net_blob(apart.net, requested[i], y[1], FLOATS_MAX, NULL), n);
        for (size_t k = 0; k < n; k++)
            fixture_near((double)y[0][k], (double)y[1][k], 1e-4);
        fixture_close(&f);
        fixture_close(&apart);
    }
}

/* Training has its own statistics and its gradients: nothing is folded. */
static void test_not_in_training(void **state)
{
    const struct kernels *kernels = *state;
    struct fixture f;
    fixture_open_lean(&f, examples[0].net, PHASE_TRAIN, N, image, kernels);
    assert_int_equal(layers_of(f.net, "BatchNorm"), 1);
    fixture_close(&f);
}

#define BY_KERNELS(test)                                                  \
    {#test " ref", test, NULL, NULL, (void *)(uintptr_t)&kernels_ref},    \
    {                                                                     \
#test " dnnl", test, NULL, NULL, (void *)(uintptr_t)&kernels_dnnl \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BY_KERNELS(test_fold_keeps_the_outputs),
        BY_KERNELS(test_what_is_asked_for),
        BY_KERNELS(test_not_in_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
