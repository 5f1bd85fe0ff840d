/* Losses and accuracies: small answers by hand, on every kernel set. Scores that are to be known
 * are parameters: an inner product of the one number 1 gives its weights. */
#include "nn/fixture.h"

#include <malloc.h>

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define SLICE(axis, point, a, b)                                                     \
    "layer { name: 'slice' type: 'Slice' bottom: 'data' top: '" a "' top: '" b "'\n" \
    " slice_param { axis: " axis " slice_point: " point " } }\n"
#define SCORES(bottom, outputs)                                                \
    "layer { name: 'ip' type: 'InnerProduct' bottom: '" bottom "' top: 'ip'\n" \
    " inner_product_param { num_output: " outputs " bias_term: false } }\n"
#define LOSS(type, scores, labels, fields)                                        \
    "layer { name: 'loss' type: '" type "' bottom: '" scores "' bottom: '" labels \
    "' top: 'loss' " fields " }\n"
#define ACCURACY(name, scores, labels, fields)                                        \
    "layer { name: '" name "' type: 'Accuracy' bottom: '" scores "' bottom: '" labels \
    "' top: '" name "' " fields " }\n"

static const double LN2 = 0.69314718055994531, LN3 = 1.0986122886681098;

static void open_net(struct fixture *f, const char *net, size_t N, struct shape input,
                     const float *data, const float *scores, size_t n_scores, int kernels)
{
    fixture_open(f, net, PHASE_TRAIN, N, input, fixture_kernels[kernels]);
    memcpy(f->data, data, N * shape_count(&input) * sizeof *data);
    memcpy(f->x.at, scores, n_scores * sizeof *scores);
}

static void expect_gradient(const struct fixture *f, const double *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fixture_near((double)f->dx.at[i], expected[i], 1e-6);
}

static double blob_one(const struct fixture *f, const char *name)
{
    float value = 0;
    assert_int_equal(net_blob(f->net, name, &value, 1, NULL), 1);
    return (double)value;
}

/* Two records of 2x1x2 scores and a label for each of the two pixels of each. All scores are (0,
 * ln 3), whose softmax is (1/4, 3/4); labels are 1, 0 and 1, 7: −log of 3/4, 1/4, 3/4 and what
 * cannot be unless 7 is ignored. Then there are three labels at four places of two records. */
static void test_softmax_by_place(void **state)
{
    (void)state;
    const double S = (2 * LN2 - LN3) + 2 * LN2 + (2 * LN2 - LN3);
    static const struct {
        const char *fields;
        double d;
    } cases[] = {
        {"loss_param { ignore_label: 7 }", 3},
        {"loss_param { ignore_label: 7 normalization: VALID }", 3},
        {"loss_param { ignore_label: 7 normalization: FULL }", 4},
        {"loss_param { ignore_label: 7 normalization: BATCH_SIZE }", 2},
        {"loss_param { ignore_label: 7 normalization: NONE }", 1},
        {"loss_param { ignore_label: 7 normalize: true }", 3},
        {"loss_param { ignore_label: 7 normalize: false }", 2},
        {"loss_param { ignore_label: 7 normalize: false normalization: FULL }", 4},
        {"loss_param { ignore_label: 7 } softmax_param { axis: -3 }", 3},
    };
    const float data[] = {1, 1, 1, 0, 1, 1, 1, 7}, scores[] = {0, (float)LN3};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        char net[2048];
        double d = cases[i / 2].d;
        snprintf(
            net, sizeof net,
            DATA SLICE(
                "1", "1", "one",
                "given") "layer { name: 'conv' type: 'Convolution' bottom: 'one' top: 'conv'"
                         " convolution_param { num_output: 2 kernel_size: 1 bias_term: false } }"
                         "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'conv' bottom: "
                         "'given'"
                         " top: 'loss' top: 'p' loss_weight: 0.5 loss_weight: 0 %s }",
            cases[i / 2].fields);
        struct fixture f;
        float p[8];
        open_net(&f, net, 2, (struct shape){3, {2, 1, 2}}, data, scores, 2, i % 2);
        assert_int_equal(net_classes(f.net), SIZE_MAX); /* its labels are not the data layer's */
        struct net_result result = fixture_gradient(&f);
        fixture_near(blob_one(&f, "loss"), S / d, 1e-6);
        fixture_near(result.loss, 0.5 * 2 * S / d, 1e-6);
        const double g[] = {0.5 / d * (3 * 0.25 - 1), 0.5 / d * (3 * 0.75 - 2)};
        expect_gradient(&f, g, 2);
        assert_int_equal(net_blob(f.net, "p", p, 8, NULL), 8);
        for (int k = 0; k < 8; k++)
            fixture_near((double)p[k], k / 2 % 2 ? 0.75 : 0.25, 1e-6);
        fixture_close(&f);
    }
}

/* Nothing counts: the loss is 0, not 0/0. */
static void test_all_ignored(void **state)
{
    (void)state;
    struct fixture f;
    const float data[] = {1, 1}, scores[] = {1, 2, 3};
    open_net(&f,
             DATA SCORES("data", "3")
                 LOSS("SoftmaxWithLoss", "ip", "label", "loss_param { ignore_label: 9 }")
                     ACCURACY("a", "ip", "label", "accuracy_param { ignore_label: 9 }"),
             2, (struct shape){1, {1}}, data, scores, 3, 0);
    assert_int_equal(net_classes(f.net), 10); /* 9 is a label that may be */
    f.labels[0] = f.labels[1] = 9;
    struct net_result result = fixture_gradient(&f);
    assert_true(result.loss == 0 && result.right == 0);
    expect_gradient(&f, (const double[]){0, 0, 0}, 3);
    fixture_close(&f);
}

/* A label that is no class, from wherever it may come: no number, and no crash. */
static void test_labels_that_are_none(void **state)
{
    (void)state;
    static const float bad[] = {2, -1, 1e30f, -1e30f, 2147483648.0f};
    static const char *const losses[] = {
        DATA SLICE("1", "1", "one", "given") SCORES("one", "2")
            LOSS("SoftmaxWithLoss", "ip", "given", ""),
        DATA SLICE("1", "1", "one", "given") SCORES("one", "2")
            LOSS("HingeLoss", "ip", "given", ""),
    };
    for (size_t i = 0; i < 2 * sizeof bad / sizeof bad[0]; i++) {
        struct fixture f;
        const float data[] = {1, bad[i / 2], 1, 1}, scores[] = {0, 1};
        open_net(&f, losses[i % 2], 2, (struct shape){1, {2}}, data, scores, 2, 0);
        assert_true(isnan(fixture_gradient(&f).loss));
        fixture_close(&f);
    }
    struct fixture f;
    const float data[] = {1, 7, 1, 1.9f}, scores[] = {0, 1};
    open_net(&f,
             DATA SLICE("1", "1", "one", "given") SCORES("one", "2")
                 ACCURACY("a", "ip", "given", ""),
             2, (struct shape){1, {2}}, data, scores, 2, 0);
    assert_true(fixture_forward(&f).right == 1.0); /* 1.9 is cut to 1; 7 is wrong */
    fixture_close(&f);
}

/* Predictions (1, 3) for (0, 1) and (2, 3): differences 1, 2, −1, 0, so 6 / (2 · 2). */
static void test_euclidean(void **state)
{
    (void)state;
    const float data[] = {1, 0, 1, 1, 2, 3}, scores[] = {1, 3};
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f;
        open_net(&f,
                 DATA SLICE("1", "1", "one", "t") SCORES("one", "2")
                     LOSS("EuclideanLoss", "ip", "t", "loss_weight: 2"),
                 2, (struct shape){1, {3}}, data, scores, 2, k);
        assert_int_equal(net_classes(f.net), SIZE_MAX);
        struct net_result result = fixture_gradient(&f);
        fixture_near(blob_one(&f, "loss"), 1.5, 1e-6);
        fixture_near(result.loss, 2 * 2 * 1.5, 1e-6);
        expect_gradient(&f, (const double[]){2 * 0.0, 2 * 1.0}, 2);
        fixture_close(&f);
    }
}

/* The data layer's label as a number, and a gradient for the second bottom: labels 2 and 3 less 1/2
 * is 3/2 and 5/2. */
static void test_euclidean_of_labels(void **state)
{
    (void)state;
    static const char *const nets[] = {
        DATA SCORES("data", "1") LOSS("EuclideanLoss", "ip", "label", ""),
        DATA SCORES("data", "1") LOSS("EuclideanLoss", "label", "ip", ""),
    };
    const float data[] = {1, 1}, scores[] = {0.5f};
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        open_net(&f, nets[i], 2, (struct shape){1, {1}}, data, scores, 1, 0);
        f.labels[0] = 2;
        f.labels[1] = 3;
        fixture_near(fixture_gradient(&f).loss, (1.5 * 1.5 + 2.5 * 2.5) / 2, 1e-6);
        expect_gradient(&f, (const double[]){-2.0}, 1);
        fixture_close(&f);
    }
}

/* Both sides depend on parameters: 2 and 5 times the same x = 1 and 3 are 3 and 9 apart. */
static void test_euclidean_both_ways(void **state)
{
    (void)state;
    const float data[] = {1, 3};
    struct fixture f;
    fixture_open(
        &f,
        DATA SCORES("data", "1") "layer { name: 'iq' type: 'InnerProduct' bottom: 'data'"
                                 " top: 'iq' inner_product_param { num_output: 1"
                                 " bias_term: false } }" LOSS("EuclideanLoss", "ip", "iq", ""),
        PHASE_TRAIN, 2, (struct shape){1, {1}}, &kernels_ref);
    const struct segments *table = net_segments(f.net);
    memcpy(f.data, data, sizeof data);
    f.x.at[0] = 2;
    f.x.at[table->at[1].offset] = 5;
    fixture_near(fixture_gradient(&f).loss, (9 + 81) / 2.0, 1e-5);
    fixture_near((double)f.dx.at[0], (-3 * 1 + -9 * 3) / 2.0, 1e-5);
    fixture_near((double)f.dx.at[table->at[1].offset], 15, 1e-5);
    fixture_close(&f);
}

/* Scores 0 and ln 3, so σ is 1/2 and 3/4; targets (1, 0) and (0, −1). Without the last, which may
 * be ignored, that is log 2 + log 4 + log 2, and with it log 4 + ln 3 more. */
static void test_sigmoid_cross_entropy(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        double d;
    } cases[] = {
        {"", 2},
        {"loss_param { normalization: FULL }", 4},
        {"loss_param { normalization: NONE }", 1},
        {"loss_param { ignore_label: -1 }", 2},
        {"loss_param { ignore_label: -1 normalization: VALID }", 3},
        {"loss_param { ignore_label: -1 normalize: true }", 3},
        {"loss_param { ignore_label: -1 normalize: false }", 2},
        {"loss_param { ignore_label: -1 normalization: FULL }", 4},
    };
    const float data[] = {1, 1, 0, 1, 0, -1}, scores[] = {0, (float)LN3};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        char net[1024];
        bool ignores = strstr(cases[i / 2].fields, "ignore");
        double d = cases[i / 2].d, S = LN2 + 2 * LN2 + LN2 + (ignores ? 0 : 2 * LN2 + LN3);
        snprintf(net, sizeof net,
                 DATA SLICE("1", "1", "one", "t") SCORES("one", "2")
                     LOSS("SigmoidCrossEntropyLoss", "ip", "t", "%s"),
                 cases[i / 2].fields);
        open_net(&f, net, 2, (struct shape){1, {3}}, data, scores, 2, i % 2);
        fixture_near(fixture_gradient(&f).loss, 2 * S / d, 1e-6);
        const double g[] = {(-0.5 + 0.5) / d, (0.75 + (ignores ? 0 : 1.75)) / d};
        expect_gradient(&f, g, 2);
        fixture_close(&f);
    }
}

/* Where a sigmoid in float is 1 the loss is still a number: x − x·t. */
static void test_sigmoid_far_out(void **state)
{
    (void)state;
    const float data[] = {1, 0, 1}, scores[] = {200, -300};
    struct fixture f;
    open_net(&f,
             DATA SLICE("1", "1", "one", "t") SCORES("one", "2")
                 LOSS("SigmoidCrossEntropyLoss", "ip", "t", ""),
             1, (struct shape){1, {3}}, data, scores, 2, 0);
    fixture_near(fixture_gradient(&f).loss, 200 + 300, 1e-6);
    expect_gradient(&f, (const double[]){1, -1}, 2);
    fixture_close(&f);
}

/* Scores 1/2, 2 and −3/2 of label 0: margins 1/2, 3 and none. */
static void test_hinge(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        double loss, g[3];
    } cases[] = {
        {"", 3.5, {-1, 1, 0}},
        {"hinge_loss_param { norm: L1 }", 3.5, {-1, 1, 0}},
        {"hinge_loss_param { norm: L2 }", 9.25, {-1, 6, 0}},
    };
    const float data[] = {1, 1}, scores[] = {0.5f, 2, -1.5f};
    for (size_t i = 0; i < 3; i++) {
        struct fixture f;
        char net[1024];
        snprintf(net, sizeof net, DATA SCORES("data", "3") LOSS("HingeLoss", "ip", "label", "%s"),
                 cases[i].fields);
        open_net(&f, net, 2, (struct shape){1, {1}}, data, scores, 3, 0);
        assert_int_equal(net_classes(f.net), 3);
        f.labels[0] = f.labels[1] = 0;
        fixture_near(fixture_gradient(&f).loss, 2 * cases[i].loss, 1e-6);
        expect_gradient(&f, cases[i].g, 3);
        fixture_close(&f);
    }
}

/* Images on both sides lie in the set's own layout, matrices never do: the loss is the same. */
static void test_layouts(void **state)
{
    (void)state;
#define CONV(outputs)                                                                       \
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' convolution_param" \
    " { num_output: " outputs " kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } } }\n"
#define SMALL(outputs)                                                     \
    "layer { name: 'flat' type: 'InnerProduct' bottom: 'data' top: 'flat'" \
    " inner_product_param { num_output: " outputs " weight_filler { type: 'xavier' } } }\n"
    static const char *const nets[] = {
        DATA CONV("2") LOSS("EuclideanLoss", "conv", "data", ""),
        DATA CONV("2") LOSS("EuclideanLoss", "data", "conv", ""),
        DATA CONV("2") LOSS("SigmoidCrossEntropyLoss", "conv", "data", ""),
        DATA CONV("2") SMALL("40") LOSS("EuclideanLoss", "conv", "flat", ""),
        DATA CONV("2") LOSS("HingeLoss", "conv", "label", ""),
        DATA CONV("3") SLICE("1", "1", "given", "rest")
            LOSS("SoftmaxWithLoss", "conv", "given", ""),
        DATA CONV("2") SLICE("2", "1", "given", "rest")
            LOSS("SoftmaxWithLoss", "conv", "given", "softmax_param { axis: 2 }"),
    };
    const struct shape image = {3, {2, 4, 5}};
    for (size_t i = 0; i < sizeof nets / sizeof nets[0]; i++) {
        struct fixture f[FIXTURE_KERNELS];
        double loss[FIXTURE_KERNELS];
        for (int k = 0; k < FIXTURE_KERNELS; k++) {
            fixture_open(&f[k], nets[i], PHASE_TRAIN, 3, image, fixture_kernels[k]);
            if (i >= 5)
                for (size_t n = 0; n < 3 * 40; n++)
                    f[k].data[n] = (float)(n * 7 % 3);
            loss[k] = fixture_gradient(&f[k]).loss;
        }
        assert_true(isfinite(loss[0]) && loss[0] > 0);
        fixture_near(loss[1], loss[0], 1e-5 * loss[0]);
        for (size_t n = 0; n < f[0].dx.n; n++)
            fixture_near((double)f[1].dx.at[n], (double)f[0].dx.at[n], 2e-5);
        assert_true(vec_dot(&f[0].dx, &f[0].dx, vec_all(&f[0].dx)) > 1e-4);
        for (int k = 0; k < FIXTURE_KERNELS; k++)
            fixture_close(&f[k]);
    }
}

/* A batch that is not full gives the results of a net that is made for its size. */
static void test_partial_batches(void **state)
{
    (void)state;
    static const char *const nets[] = {
        DATA CONV("2") LOSS("EuclideanLoss", "conv", "data", ""),
        DATA CONV("2") LOSS("SigmoidCrossEntropyLoss", "conv", "data", ""),
        DATA CONV("2") LOSS("HingeLoss", "conv", "label", ""),
        DATA CONV("3") SLICE("1", "1", "given", "rest")
            LOSS("SoftmaxWithLoss", "conv", "given", "loss_param { ignore_label: 1 }"),
        DATA SMALL("3")
            LOSS("SoftmaxWithLoss", "flat", "label", "loss_param { normalization: NONE }"),
    };
    const struct shape image = {3, {2, 4, 5}};
    for (size_t i = 0; i < sizeof nets / sizeof nets[0] * FIXTURE_KERNELS; i++) {
        struct fixture large, small;
        const struct kernels *kernels = fixture_kernels[i % FIXTURE_KERNELS];
        fixture_open(&large, nets[i / FIXTURE_KERNELS], PHASE_TRAIN, 5, image, kernels);
        fixture_open(&small, nets[i / FIXTURE_KERNELS], PHASE_TRAIN, 2, image, kernels);
        for (size_t n = 0; i / FIXTURE_KERNELS == 3 && n < 5 * 40; n++) {
            large.data[n] = (float)(n * 7 % 3);
            if (n < 2 * 40)
                small.data[n] = large.data[n];
        }
        small.batch.labels = large.labels;
        fixture_gradient(&large);
        large.batch.count = 2;
        double a = fixture_gradient(&large).loss, b = fixture_gradient(&small).loss;
        fixture_near(a, b, 1e-5 * fabs(b));
        for (size_t n = 0; n < large.dx.n; n++)
            fixture_near((double)large.dx.at[n], (double)small.dx.at[n], 2e-5);
        fixture_close(&large);
        fixture_close(&small);
    }
}

/* Six records, all with the scores (0, 2, 1): label 1 is first, 2 second, 0 third; 9 is ignored. */
static void test_accuracies(void **state)
{
    (void)state;
    static const char net[] = DATA SCORES("data", "3")
        ACCURACY("one", "ip", "label", "top: 'each' accuracy_param { ignore_label: 9 }")
            ACCURACY("two", "ip", "label", "accuracy_param { ignore_label: 9 top_k: 2 axis: -1 }")
                LOSS("SoftmaxWithLoss", "ip", "label", "loss_param { ignore_label: 9 }");
    static const uint32_t labels[] = {1, 1, 2, 9, 0, 1};
    const float data[] = {1, 1, 1, 1, 1, 1}, scores[] = {0, 2, 1};
    struct fixture f;
    float each[3];
    open_net(&f, net, 6, (struct shape){1, {1}}, data, scores, 3, 0);
    memcpy(f.labels, labels, sizeof labels);
    struct net_result result = fixture_forward(&f);
    fixture_near(blob_one(&f, "one"), 3.0 / 5, 1e-6);
    fixture_near(blob_one(&f, "two"), 4.0 / 5, 1e-6);
    fixture_near(result.right, 6 * 3.0 / 5, 1e-12);
    assert_int_equal(net_blob(f.net, "each", each, 3, NULL), 3);
    assert_true(each[0] == 0.0f && each[1] == 1.0f && each[2] == 0.0f);
    f.batch.count = 3; /* of the first three labels */
    assert_true(fixture_forward(&f).right == 2.0);
    assert_int_equal(net_blob(f.net, "each", each, 3, NULL), 3); /* classes, not records */
    assert_true(each[0] == 0.0f && each[1] == 1.0f && each[2] == 0.0f);
    fixture_close(&f);
}

/* An image of labels: of 2x2 pixels with the scores of one conv three are right. */
static void test_accuracy_by_place(void **state)
{
    (void)state;
    static const char net[] = DATA SLICE(
        "1", "1", "one",
        "given") "layer { name: 'conv' type: 'Convolution' bottom: 'one' top: 'conv'"
                 " convolution_param { num_output: 2 kernel_size: 1 bias_term: false } }" ACCURACY(
                     "a", "conv", "given", "");
    const float data[] = {1, -1, 1, -1, 0, 1, 0, 0}, scores[] = {2, 1};
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f;
        open_net(&f, net, 1, (struct shape){3, {2, 2, 2}}, data, scores, 2, k);
        assert_true(fixture_forward(&f).right == 0.75);
        fixture_close(&f);
    }
}

static void test_steps_do_not_allocate(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f,
                 DATA CONV("3") SLICE("1", "1", "given", "rest") LOSS(
                     "SoftmaxWithLoss", "conv", "given",
                     "loss_param { ignore_label: 1 }") "layer { name: 'e' type: 'EuclideanLoss' "
                                                       "bottom: 'rest' bottom: 'given' }"
                                                       "layer { name: 'h' type: 'HingeLoss' "
                                                       "bottom: 'conv' bottom: 'label' }",
                 PHASE_TRAIN, 4, (struct shape){3, {2, 4, 5}}, &kernels_dnnl);
    fixture_gradient(&f);
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 10; i++)
        fixture_gradient(&f);
    assert_int_equal(mallinfo2().uordblks, before);
    fixture_close(&f);
}

static const struct {
    const char *net;
    int status;
    const char *phrase[2];
} bad_nets[] = {
    {DATA SCORES("data", "3") LOSS("SoftmaxWithLoss", "ip", "ip", ""),
     ERR_INPUT,
     {"\"loss\": bottom \"ip\" is 5x3: no label for each of the 5 places"}},
    {DATA SCORES("data", "3") LOSS("SoftmaxWithLoss", "data", "label", ""),
     ERR_INPUT,
     {"no label for each of the 100 places", "\"data\", 5x3x4x5"}},
    {DATA SCORES("data", "3") LOSS("SoftmaxWithLoss", "ip", "label", "softmax_param { axis: 2 }"),
     ERR_INPUT,
     {"\"loss\": softmax_param.axis: 2"}},
    {DATA SCORES("data", "3") LOSS("SoftmaxWithLoss", "ip", "label", "softmax_param { axis: 0 }"),
     ERR_UNSUPPORTED,
     {"\"loss\": softmax_param.axis: 0"}},
    {DATA SCORES("data", "3") LOSS("SoftmaxWithLoss", "ip", "label", "top: 'p' top: 'q'"),
     ERR_INPUT,
     {"makes 2 tops at most, not 3"}},
    {DATA SCORES("data", "3")
         LOSS("SoftmaxWithLoss", "ip", "label", "top: 'p' loss_weight: 1 loss_weight: 1"),
     ERR_UNSUPPORTED,
     {"\"loss\": loss_weight: top 2 of type \"SoftmaxWithLoss\" has no gradient"}},
    {DATA SCORES("data", "3") LOSS("SoftmaxWithLoss", "ip", "label", "param { }"),
     ERR_INPUT,
     {"1 param entries"}},
    {DATA SCORES("data", "3") LOSS("EuclideanLoss", "ip", "label", ""),
     ERR_INPUT,
     {"\"ip\", 5x3, and \"label\", 5, are not records of one size"}},
    {DATA SCORES("data", "1")
         LOSS("EuclideanLoss", "ip", "label", "loss_param { normalize: true }"),
     ERR_UNSUPPORTED,
     {"loss_param means nothing to type \"EuclideanLoss\""}},
    {DATA SCORES("data", "3") LOSS("SigmoidCrossEntropyLoss", "ip", "label", ""),
     ERR_INPUT,
     {"\"ip\", 5x3, and \"label\", 5, are not records of one size"}},
    {DATA SCORES("data", "3") LOSS("SigmoidCrossEntropyLoss", "data", "ip", ""),
     ERR_INPUT,
     {"\"data\", 5x3x4x5, and \"ip\", 5x3, are not records of one size"}},
    {DATA SCORES("data", "3") LOSS("HingeLoss", "ip", "data", ""),
     ERR_INPUT,
     {"\"loss\": bottom \"data\" is 5x3x4x5: no label"}},
    {DATA SCORES("data", "3") LOSS("HingeLoss", "ip", "label", "loss_param { }"),
     ERR_UNSUPPORTED,
     {"loss_param means nothing to type \"HingeLoss\""}},
    {DATA SCORES("data", "3") ACCURACY("a", "ip", "label", "accuracy_param { top_k: 4 }"),
     ERR_INPUT,
     {"\"a\": accuracy_param.top_k: 4 is out of range, 1 to the 3 classes"}},
    {DATA SCORES("data", "3") ACCURACY("a", "ip", "label", "accuracy_param { top_k: 0 }"),
     ERR_INPUT,
     {"top_k: 0"}},
    {DATA SCORES("data", "3") ACCURACY("a", "ip", "label", "accuracy_param { axis: 0 }"),
     ERR_UNSUPPORTED,
     {"\"a\": accuracy_param.axis: 0"}},
    {DATA SCORES("data", "3") ACCURACY("a", "ip", "label", "loss_weight: 1"),
     ERR_UNSUPPORTED,
     {"\"a\": loss_weight: top 1 of type \"Accuracy\" has no gradient"}},
    {DATA SCORES("data", "1") SCORES("data", "1"), ERR_INPUT, {"another layer has the same name"}},
    {DATA SCORES("data", "3") "layer { name: 't' type: 'InnerProduct' bottom: 'data' top: 't'"
                              " inner_product_param { num_output: 3 } }" LOSS(
                                  "SigmoidCrossEntropyLoss", "ip", "t", ""),
     ERR_INPUT,
     {"\"loss\": type \"SigmoidCrossEntropyLoss\" has no gradient for bottom \"t\"",
      "propagate_down"}},
};

static void test_bad_nets(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_nets / sizeof bad_nets[0]; i++) {
        struct net *net = NULL;
        struct err err = {0};
        int rc = fixture_try(bad_nets[i].net, PHASE_TRAIN, 5, (struct shape){3, {3, 4, 5}},
                             &kernels_ref, &net, &err);
        if (rc != bad_nets[i].status)
            fail_msg("case %zu: status %d (%s) for %s", i, rc, err.text, bad_nets[i].net);
        for (size_t k = 0; k < 2 && bad_nets[i].phrase[k]; k++)
            if (!strstr(err.text, bad_nets[i].phrase[k]))
                fail_msg("\"%s\" does not say \"%s\"", err.text, bad_nets[i].phrase[k]);
        assert_null(net);
    }
}

int main(void)
{
    kernels_set_threads(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_by_place),
        cmocka_unit_test(test_all_ignored),
        cmocka_unit_test(test_labels_that_are_none),
        cmocka_unit_test(test_euclidean),
        cmocka_unit_test(test_euclidean_of_labels),
        cmocka_unit_test(test_euclidean_both_ways),
        cmocka_unit_test(test_sigmoid_cross_entropy),
        cmocka_unit_test(test_sigmoid_far_out),
        cmocka_unit_test(test_hinge),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_partial_batches),
        cmocka_unit_test(test_accuracies),
        cmocka_unit_test(test_accuracy_by_place),
        cmocka_unit_test(test_steps_do_not_allocate),
        cmocka_unit_test(test_bad_nets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
