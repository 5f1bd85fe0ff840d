/* The fields of a NetParameter besides its layers: which of them take part, which parameters they
 * share, where gradients stop, the net's loss. */
#include "nn/fixture.h"

#include <stdio.h>

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define LOSS(name, bottom, fields)                                      \
    "layer { name: '" name "' type: 'SoftmaxWithLoss' bottom: '" bottom \
    "' bottom: 'label' top: '" name "' " fields " }\n"
#define INNER(name, bottom, outputs, fields)                                         \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" name \
    "'\n inner_product_param { num_output: " outputs                                 \
    " weight_filler { type: 'xavier' } bias_filler { type: 'uniform' } } " fields " }\n"
#define LAYER(name, type, bottom, top, fields) \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " fields " }\n"
/* `per` has a number for each class. */
#define CLASSES                                                                                  \
    DATA INNER("ip", "data", "3", "") "layer { name: 'a' type: 'Accuracy' bottom: 'ip' bottom: " \
                                      "'label' top: 'a' top: 'per' }\n"
#define SHARED "param { name: 'w' } param { name: 'b' }"

static const struct shape image = {3, {2, 4, 5}};

static const float *values_of(const struct fixture *f, const struct vec *v, const char *segment)
{
    const struct segment *s = segments_find(net_segments(f->net), segment);
    if (!s)
        fail_msg("no segment %s", segment);
    return v->at + s->offset;
}

static double norm_of(const struct fixture *f, const char *segment)
{
    const struct segment *s = segments_find(net_segments(f->net), segment);
    assert_non_null(s);
    return vec_dot(&f->dx, &f->dx, (struct range){s->offset, s->len});
}

/* ---- what does not go by records ---- */

static void test_classes_may_be_passed_on(void **state)
{
    (void)state;
    static const char net[] = CLASSES LAYER("s", "Split", "per", "s", "top: 'u'")
        LAYER("q", "Reshape", "s", "q", "reshape_param { shape { dim: 0 dim: 1 } }") LAYER(
            "f", "Flatten", "q", "f", "") "layer { name: 'none' type: 'Silence' bottom: 'u' }";
    struct fixture f;
    struct shape shape;
    float per[3], flat[3];
    fixture_open(&f, net, PHASE_TEST, 6, image, &kernels_ref);
    f.batch.count = 1; /* all three classes, however few the records */
    fixture_forward(&f);
    assert_int_equal(net_blob(f.net, "per", per, 3, NULL), 3);
    assert_int_equal(net_blob(f.net, "f", flat, 3, &shape), 3);
    assert_memory_equal(per, flat, sizeof per);
    assert_int_equal(shape.n, 2);
    assert_int_equal(shape.dim[0], 3);
    fixture_close(&f);
}

/* ---- which layers take part ---- */

static void test_rules(void **state)
{
    (void)state;
    static const struct {
        const char *net_state, *rules;
        bool in_train, in_test;
    } cases[] = {
        {"", "", true, true},
        {"", "include { phase: TEST }", false, true},
        {"", "exclude { phase: TEST }", true, false},
        {"", "include { phase: TEST } include { phase: TRAIN }", true, true},
        {"", "include { min_level: 1 }", false, false},
        {"level: 1", "include { min_level: 1 }", true, true},
        {"level: 2", "include { min_level: 1 max_level: 1 }", false, false},
        {"level: -1", "include { max_level: -1 phase: TRAIN }", true, false},
        {"level: -1", "include { max_level: -2 }", false, false},
        {"", "include { stage: 'a' }", false, false},
        {"stage: 'a'", "include { stage: 'a' }", true, true},
        {"stage: 'a'", "include { stage: 'a' stage: 'b' }", false, false},
        {"stage: 'b' stage: 'a'", "include { stage: 'a' stage: 'b' }", true, true},
        {"stage: 'a'", "include { not_stage: 'a' }", false, false},
        {"stage: 'a'", "include { not_stage: 'b' }", true, true},
        {"stage: 'a'", "include { stage: 'a' not_stage: 'b' phase: TEST }", false, true},
        {"stage: 'a' stage: 'b'", "include { stage: 'a' not_stage: 'b' }", false, false},
        {"stage: 'a'", "exclude { stage: 'a' }", false, false},
        {"stage: 'a'", "exclude { stage: 'b' } exclude { not_stage: 'c' phase: TRAIN }", false,
         true},
        {"", "exclude { not_stage: 'a' }", false, false},
        {"phase: TEST", "include { phase: TEST }", false, true}, /* the caller's phase, not this */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int phase = 0; phase < 2; phase++) {
            char text[1024];
            snprintf(text, sizeof text,
                     "state { %s } " DATA
                     "layer { name: 'r' type: 'ReLU' bottom: 'data' top: 'r' %s }",
                     cases[i].net_state, cases[i].rules);
            struct net *net = NULL;
            struct err err = {0};
            enum phase of = phase ? PHASE_TEST : PHASE_TRAIN;
            assert_int_equal(fixture_try(text, of, 2, image, &kernels_ref, &net, &err), OK);
            bool is_in = net_blob(net, "r", NULL, 0, NULL) > 0;
            if (is_in != (phase ? cases[i].in_test : cases[i].in_train))
                fail_msg("case %zu, phase %d: %s", i, phase, is_in ? "in" : "out");
            net_free(net);
        }
}

/* ---- where data comes in ---- */

static void test_inputs(void **state)
{
    (void)state;
    static const struct {
        const char *net, *shape;
        struct shape given;
    } cases[] = {
        {"input: 'data' input_dim: 10 input_dim: 2 input_dim: 4 input_dim: 5", "3x2x4x5", {0}},
        {"input: 'data' input_dim: 10 input_dim: 2 input_dim: 4 input_dim: 5 force_backward: true",
         "3x2x4x5", image},
        {"input: 'data' input: 'label' input_dim: 9 input_dim: 2 input_dim: 4 input_dim: 5"
         " input_dim: 9 input_dim: 1 input_dim: 1 input_dim: 1",
         "3x2x4x5",
         {0}},
        {"input: 'data' input_shape { dim: 10 dim: 2 dim: 4 dim: 5 } debug_info: false",
         "3x2x4x5",
         {0}},
        {"layer { name: 'd' type: 'Input' top: 'data' input_param { shape { dim: 1 dim: 40 } } }",
         "3x40", image},
        {"layer { name: 'd' type: 'MemoryData' top: 'data' top: 'label' memory_data_param"
         " { batch_size: 7 channels: 2 height: 4 width: 5 } transform_param { scale: 2 } }",
         "3x2x4x5",
         {0}},
        {"layer { name: 'd' type: 'ImageData' top: 'data' top: 'label' transform_param { mirror: "
         "true }"
         " image_data_param { source: 'list' new_height: 9 new_width: 9 batch_size: 4 } }",
         "3x2x4x5", image},
        {"layer { name: 'd' type: 'Data' top: 'data' top: 'label' data_param { backend: LMDB } }",
         "3x2x4x5", image},
        {"layer { name: 'd' type: 'HDF5Data' top: 'data' hdf5_data_param { source: 'x' } }",
         "3x2x4x5", image},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct net *net = NULL;
        struct err err = {0};
        struct shape shape;
        char text[64];
        if (fixture_try(cases[i].net, PHASE_TEST, 3, cases[i].given, &kernels_ref, &net, &err) !=
            OK)
            fail_msg("%s: %s", cases[i].net, err.text);
        assert_int_equal(net_blob(net, "data", NULL, 0, &shape), 3 * 40);
        assert_string_equal(shape_text(&shape, text, sizeof text), cases[i].shape);
        net_free(net);
    }
}

/* A net that only scores, as deploy files have it: no labels, no loss, in either phase; and its
 * Input's number of records is not ours. */
static void test_deploy_net(void **state)
{
    (void)state;
    static const char net[] =
        "input: 'data' input_dim: 10 input_dim: 2 input_dim: 4 input_dim: 5 " INNER(
            "ip", "data", "3", "") LAYER("p", "Softmax", "ip", "p", "");
    for (int phase = 0; phase < 2; phase++) {
        struct fixture f;
        float p[6];
        fixture_open(&f, net, phase ? PHASE_TEST : PHASE_TRAIN, 2, image, &kernels_ref);
        f.batch.labels = NULL;
        assert_true(fixture_forward(&f).loss == 0);
        assert_int_equal(net_classes(f.net), 0);
        assert_int_equal(net_blob(f.net, "p", p, 6, NULL), 6);
        fixture_near((double)p[0] + (double)p[1] + (double)p[2], 1, 1e-6);
        fixture_close(&f);
    }
}

/* ---- shared parameters ---- */

/* y = w·(w·x) with w = 3 and b = 1 in both, x = 2: inner 7, outer 22, target 2: loss 200. Gradients
 * of y: w 3·2 + 7 = 13, b 3 + 1 = 4; of the loss 20 times that. */
static void test_shared_by_hand(void **state)
{
    (void)state;
    static const char net[] = DATA INNER("first", "data", "1", SHARED)
        INNER("second", "first", "1",
              SHARED) "layer { name: 'l' type: 'EuclideanLoss' bottom: 'second' bottom: 'label' }";
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f;
        fixture_open(&f, net, PHASE_TRAIN, 1, (struct shape){1, {1}}, fixture_kernels[k]);
        const struct segments *table = net_segments(f.net);
        assert_int_equal(table->count, 2);
        assert_string_equal(table->at[0].name, "first.0");
        assert_ptr_equal(net_layer_param(f.net, "first", 0), &table->at[0]);
        assert_ptr_equal(net_layer_param(f.net, "second", 0), &table->at[0]);
        assert_ptr_equal(net_layer_param(f.net, "second", 1), &table->at[1]);
        assert_null(net_layer_param(f.net, "second", 2));
        assert_null(net_layer_param(f.net, "third", 0));
        f.data[0] = 2;
        f.labels[0] = 2;
        f.x.at[table->at[0].offset] = 3;
        f.x.at[table->at[1].offset] = 1;
        fixture_near(fixture_gradient(&f).loss, 200, 1e-4);
        fixture_near((double)*values_of(&f, &f.dx, "first.0"), 20 * 13, 1e-4);
        fixture_near((double)*values_of(&f, &f.dx, "first.1"), 20 * 4, 1e-4);
        fixture_close(&f);
    }
}

/* The gradient is the sum of what it is for two layers with equal parameters of their own. */
static void test_shared_adds_up(void **state)
{
    (void)state;
#define BODY(first, second)                                                                        \
    DATA INNER("a", "data", "6", "") INNER("b", "a", "6", first)                                   \
        LAYER("s", "Sigmoid", "b", "s", "") INNER("c", "s", "6", second) INNER("ip", "c", "3", "") \
            LOSS("loss", "ip", "")
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture one, two;
        fixture_open(&one, BODY(SHARED, SHARED), PHASE_TRAIN, 4, image, fixture_kernels[k]);
        fixture_open(&two, BODY("", ""), PHASE_TRAIN, 4, image, fixture_kernels[k]);
        static const char *const pairs[][3] = {{"a.0", "a.0", NULL},   {"a.1", "a.1", NULL},
                                               {"b.0", "b.0", "c.0"},  {"b.1", "b.1", "c.1"},
                                               {"ip.0", "ip.0", NULL}, {"ip.1", "ip.1", NULL}};
        assert_int_equal(net_segments(one.net)->count, 6);
        for (int i = 0; i < 6; i++)
            for (int j = 1; j < 3 && pairs[i][j]; j++) {
                size_t n = segments_find(net_segments(one.net), pairs[i][0])->len;
                memcpy((float *)(uintptr_t)values_of(&two, &two.x, pairs[i][j]),
                       values_of(&one, &one.x, pairs[i][0]), n * sizeof(float));
            }
        assert_true(fixture_gradient(&one).loss == fixture_gradient(&two).loss);
        for (int i = 0; i < 6; i++) {
            size_t n = segments_find(net_segments(one.net), pairs[i][0])->len;
            for (size_t e = 0; e < n; e++) {
                double sum = 0;
                for (int j = 1; j < 3 && pairs[i][j]; j++)
                    sum += (double)values_of(&two, &two.dx, pairs[i][j])[e];
                fixture_near((double)values_of(&one, &one.dx, pairs[i][0])[e], sum, 1e-6);
            }
        }
        fixture_close(&one);
        fixture_close(&two);
    }
}

/* The owner's filler fills, whatever the other layer asks for; multipliers that one of them has
 * set are both's; PERMISSIVE takes another shape of as many elements. */
static void test_shared_rules(void **state)
{
    (void)state;
    static const char net[] = DATA LAYER(
        "a", "InnerProduct", "data", "a",
        "param { name: 'w' } inner_product_param"
        " { num_output: 6 bias_term: false weight_filler { type: 'constant' value: 2 } }")
        LAYER("b", "InnerProduct", "data", "b",
              "param { name: 'w' lr_mult: 3 decay_mult: 0 }"
              " inner_product_param { num_output: 6 bias_term: false weight_filler"
              " { type: 'constant' value: 5 } }")
            LAYER("c", "Convolution", "data", "c",
                  "param { name: 'w' lr_mult: 3 share_mode: PERMISSIVE }"
                  " convolution_param { num_output: 6 kernel_h: 4 kernel_w: 5 bias_term: false }");
    struct fixture f;
    fixture_open(&f, net, PHASE_TRAIN, 2, image, &kernels_ref);
    const struct segments *table = net_segments(f.net);
    assert_int_equal(table->count, 1);
    assert_true(table->at[0].lr_mult == 3 && table->at[0].decay_mult == 0);
    float b[12], c[12];
    for (size_t i = 0; i < table->at[0].len; i++)
        assert_true(f.x.at[i] == 2.0f);
    fixture_forward(&f);
    assert_int_equal(net_blob(f.net, "b", b, 12, NULL), 12);
    assert_int_equal(net_blob(f.net, "c", c, 12, NULL), 12);
    for (int i = 0; i < 12; i++)
        fixture_near((double)c[i], (double)b[i], 1e-5);
    fixture_close(&f);
}

/* ---- what a backward pass tells while it continues ---- */

struct reports {
    size_t n, from[16];
    double share[16];
    const struct vec *dx;
    float *seen; /* dx as it was when it was said to be finished */
    size_t end;
};

static int record_share(void *user, size_t from, double share)
{
    struct reports *reported = user;
    assert_true(reported->n < 16 && from < reported->end);
    memcpy(reported->seen + from, reported->dx->at + from, (reported->end - from) * sizeof(float));
    reported->end = from;
    reported->from[reported->n] = from;
    reported->share[reported->n++] = share;
    return OK;
}

/* A finished part of dx never changes any more, and all of it is finished in the end. A gradient
 * that two layers share is finished when the first of the file has added its part: after a, of (a
 * b) c (b) ip. */
static void test_finished(void **state)
{
    (void)state;
    static const struct {
        const char *net;
        size_t n;
        const char *from[4];
    } cases[] = {
        {DATA INNER("a", "data", "6", "") INNER("b", "a", "6", "") INNER("ip", "b", "3", "")
             LOSS("loss", "ip", ""),
         3,
         {"ip.0", "b.0", "a.0"}},
        {DATA INNER("a", "data", "6", "") INNER("b", "a", "6", SHARED) INNER("c", "b", "6", "")
             INNER("d", "c", "6", SHARED) INNER("ip", "d", "3", "") LOSS("loss", "ip", ""),
         4,
         {"ip.0", "c.0", "b.0", "a.0"}},
        {DATA INNER("a", "data", "6", "") INNER("b", "a", "6", SHARED) INNER("c", "b", "6", SHARED)
             INNER("ip", "c", "3", "") LOSS("loss", "ip", ""),
         3,
         {"ip.0", "b.0", "a.0"}},
        /* nothing is learnt */
        {DATA INNER("a", "data", "6", "param { lr_mult: 0 } param { lr_mult: 0 }") INNER(
             "ip", "a", "3", "param { lr_mult: 0 } param { lr_mult: 0 }") LOSS("loss", "ip", ""),
         1,
         {"a.0"}},
        /* what is frozen, and what no loss depends on, is finished at once */
        {DATA INNER("a", "data", "6", "param { lr_mult: 0 } param { lr_mult: 0 }")
             INNER("b", "a", "6", "") INNER("ip", "b", "3", "") INNER("idle", "a", "9", "")
                 LOSS("loss", "ip", ""),
         3,
         {"idle.0", "ip.0", "a.0"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        fixture_open(&f, cases[i].net, PHASE_TRAIN, 3, image, &kernels_ref);
        const struct segments *table = net_segments(f.net);
        struct reports reported = {.dx = &f.dx, .end = table->total};
        reported.seen = arena_array(&f.arena, table->total, float);
        fixture_forward(&f);
        assert_int_equal(
            net_backward(f.net, &f.x, &f.dx, &(struct net_watch){record_share, &reported}), OK);
        assert_int_equal(reported.n, cases[i].n);
        for (size_t k = 0; k < reported.n; k++) {
            assert_int_equal(reported.from[k], segments_find(table, cases[i].from[k])->offset);
            assert_true(reported.share[k] > (k ? reported.share[k - 1] : 0.3));
        }
        fixture_near(reported.share[reported.n - 1], 1, 1e-9);
        assert_memory_equal(reported.seen, f.dx.at, table->total * sizeof(float));
        fixture_close(&f);
    }
}

/* ---- the net's own input ---- */

/* It is no layer of the file: its name takes none away. */
static void test_a_layer_may_be_named_input(void **state)
{
    (void)state;
    static const char net[] = "input: 'data' input_shape { dim: 1 dim: 2 dim: 4 dim: 5 }\n" INNER(
        "input", "data", "3", "");
    struct fixture f;
    fixture_open(&f, net, PHASE_TEST, 2, image, &kernels_ref);
    const struct segment *w = net_layer_param(f.net, "input", 0);
    assert_non_null(w);
    assert_string_equal(w->name, "input.0");
    fixture_close(&f);
}

/* ---- where gradients stop ---- */

/* lr_mult 0 is no gradient, neither of that layer nor, where nothing below is learnt, of what lies
 * below; others have theirs as before. */
static void test_frozen(void **state)
{
    (void)state;
#define TWO(a, b, c)                                                                 \
    DATA INNER("a", "data", "6", a) INNER("b", "a", "6", b) INNER("ip", "b", "3", c) \
        LOSS("loss", "ip", "")
#define FREEZE "param { lr_mult: 0 } param { lr_mult: 0 }"
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture all, low, mid;
        fixture_open(&all, TWO("", "", ""), PHASE_TRAIN, 4, image, fixture_kernels[k]);
        fixture_open(&low, TWO(FREEZE, FREEZE, ""), PHASE_TRAIN, 4, image, fixture_kernels[k]);
        fixture_open(&mid, TWO("", FREEZE, ""), PHASE_TRAIN, 4, image, fixture_kernels[k]);
        fixture_gradient(&all);
        fixture_gradient(&low);
        fixture_gradient(&mid);
        assert_true(norm_of(&low, "a.0") == 0 && norm_of(&low, "b.0") == 0 &&
                    norm_of(&low, "b.1") == 0);
        assert_true(norm_of(&mid, "b.0") == 0 && norm_of(&mid, "b.1") == 0);
        assert_true(norm_of(&all, "b.0") > 1e-4);
        assert_memory_equal(values_of(&mid, &mid.dx, "a.0"), values_of(&all, &all.dx, "a.0"),
                            6 * 40 * sizeof(float));
        assert_memory_equal(values_of(&low, &low.dx, "ip.0"), values_of(&all, &all.dx, "ip.0"),
                            3 * 6 * sizeof(float));
        assert_true(net_flops(low.net) < net_flops(mid.net));
        fixture_close(&all);
        fixture_close(&low);
        fixture_close(&mid);
    }
}

/* propagate_down: false leaves the other way on alone: a gets what it gets without b's. */
static void test_propagate_down(void **state)
{
    (void)state;
#define FORK(down, weight)                                                         \
    DATA INNER("a", "data", "6", "") INNER("b", "a", "3", "propagate_down: " down) \
        INNER("c", "a", "3", "") LOSS("lb", "b", "loss_weight: " weight) LOSS("lc", "c", "")
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f[3];
        static const char *const nets[] = {FORK("true", "1"), FORK("false", "1"),
                                           FORK("true", "0")};
        for (int i = 0; i < 3; i++) {
            fixture_open(&f[i], nets[i], PHASE_TRAIN, 4, image, fixture_kernels[k]);
            fixture_gradient(&f[i]);
        }
        size_t a = 6 * 40 * sizeof(float);
        assert_memory_equal(values_of(&f[1], &f[1].dx, "a.0"), values_of(&f[2], &f[2].dx, "a.0"),
                            a);
        assert_memory_not_equal(values_of(&f[1], &f[1].dx, "a.0"),
                                values_of(&f[0], &f[0].dx, "a.0"), a);
        assert_memory_equal(values_of(&f[1], &f[1].dx, "b.0"), values_of(&f[0], &f[0].dx, "b.0"),
                            3 * 6 * sizeof(float));
        assert_true(norm_of(&f[2], "b.0") == 0);
        for (int i = 0; i < 3; i++)
            fixture_close(&f[i]);
    }
    struct fixture f;
    fixture_open(&f,
                 DATA INNER("a", "data", "6", "") INNER("b", "a", "3", "propagate_down: false")
                     LOSS("loss", "b", ""),
                 PHASE_TRAIN, 4, image, &kernels_ref);
    fixture_gradient(&f);
    assert_true(norm_of(&f, "a.0") == 0 && norm_of(&f, "b.0") > 1e-4);
    fixture_close(&f);
}

/* Layers in place on what needs no gradient, one after the other: theirs are those of layers with
 * blobs of their own. */
static void test_in_place_chain(void **state)
{
    (void)state;
#define CHAIN(x, y, z)                                                                           \
    DATA LAYER("p", "Pooling", "data", "p", "pooling_param { kernel_size: 2 }")                  \
        LAYER("s", "Scale", "p", x, "scale_param { bias_term: true }")                           \
            LAYER("r", "ReLU", x, y, "") LAYER("d", "Dropout", y, z, "") INNER("ip", z, "3", "") \
                LOSS("loss", "ip", "")
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture in, out;
        fixture_open(&in, CHAIN("p", "p", "p"), PHASE_TRAIN, 4, image, fixture_kernels[k]);
        fixture_open(&out, CHAIN("x", "y", "z"), PHASE_TRAIN, 4, image, fixture_kernels[k]);
        assert_true(fixture_gradient(&in).loss == fixture_gradient(&out).loss);
        assert_memory_equal(in.dx.at, out.dx.at, in.dx.n * sizeof(float));
        assert_true(norm_of(&in, "s.0") > 1e-6);
        assert_true(net_memory(in.net).activations < net_memory(out.net).activations);
        fixture_close(&in);
        fixture_close(&out);
    }
}

/* ---- several losses ---- */

#define HEADS(w1, w2, w3)                                                                   \
    DATA INNER("a", "data", "8", "") INNER("h1", "a", "3", "") INNER("b", "a", "8", "")     \
        INNER("h2", "b", "3", "") INNER("c", "b", "8", "") INNER("h3", "c", "3", "")        \
            LOSS("loss1", "h1", "loss_weight: " w1) LOSS("loss2", "h2", "loss_weight: " w2) \
                LOSS("loss3", "h3", "loss_weight: " w3)

/* GoogLeNet's: 0.3, 0.3 and 1. Loss and gradient are the weighted sums of each alone. */
static void test_loss_weights(void **state)
{
    (void)state;
    static const char *const nets[] = {HEADS("0.3", "0.3", "1"), HEADS("1", "0", "0"),
                                       HEADS("0", "1", "0"), HEADS("0", "0", "1")};
    static const double weight[] = {0, 0.3, 0.3, 1};
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f[4];
        double loss[4];
        for (int i = 0; i < 4; i++) {
            fixture_open(&f[i], nets[i], PHASE_TRAIN, 5, image, fixture_kernels[k]);
            loss[i] = fixture_gradient(&f[i]).loss;
        }
        fixture_near(loss[0], 0.3 * loss[1] + 0.3 * loss[2] + loss[3], 1e-5);
        for (size_t n = 0; n < f[0].dx.n; n++) {
            double sum = 0;
            for (int i = 1; i < 4; i++)
                sum += weight[i] * (double)f[i].dx.at[n];
            fixture_near((double)f[0].dx.at[n], sum, 1e-6);
        }
        for (int i = 0; i < 4; i++)
            fixture_close(&f[i]);
    }
}

/* Any top may count: the sum of its values, of the records there are; its gradient is the weight.
 */
static void test_weight_on_any_top(void **state)
{
    (void)state;
    static const char net[] = DATA INNER("a", "data", "2", "loss_weight: 3");
    struct fixture f;
    const float data[] = {1, 2, 10, 20, 100, 200};
    fixture_open(&f, net, PHASE_TRAIN, 3, (struct shape){1, {2}}, &kernels_ref);
    memcpy(f.data, data, sizeof data);
    const float *w = values_of(&f, &f.x, "a.0"), *b = values_of(&f, &f.x, "a.1");
    const float *dw = values_of(&f, &f.dx, "a.0"), *db = values_of(&f, &f.dx, "a.1");
    f.batch.count = 2;
    double sum = 0;
    for (int o = 0; o < 2; o++)
        sum += (double)w[2 * o] * 11 + (double)w[2 * o + 1] * 22 + 2 * (double)b[o];
    fixture_near(fixture_gradient(&f).loss, 2 * 3 * sum, 1e-4);
    for (int o = 0; o < 2; o++) {
        fixture_near((double)dw[2 * o], 3 * 11, 1e-5);
        fixture_near((double)dw[2 * o + 1], 3 * 22, 1e-5);
        fixture_near((double)db[o], 3 * 2, 1e-6);
    }
    assert_int_equal(net_classes(f.net), SIZE_MAX);
    fixture_close(&f);
}

/* A loss that leaves its top out has one all the same. */
static void test_loss_without_top(void **state)
{
    (void)state;
    struct fixture a, b;
    fixture_open(&a, DATA INNER("ip", "data", "3", "") LOSS("loss", "ip", ""), PHASE_TRAIN, 4,
                 image, &kernels_ref);
    fixture_open(
        &b,
        DATA INNER("ip", "data", "3",
                   "") "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' }"
                       "layer { name: 'm' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label'"
                       " loss_weight: 0 }",
        PHASE_TRAIN, 4, image, &kernels_ref);
    assert_true(fixture_gradient(&a).loss == fixture_gradient(&b).loss);
    assert_memory_equal(a.dx.at, b.dx.at, a.dx.n * sizeof(float));
    fixture_close(&a);
    fixture_close(&b);
}

#define ACCURACY(name, scores, k) \
    LAYER(name, "Accuracy", scores, name, "bottom: 'label' accuracy_param { top_k: " k " }")

/* Of several accuracies the net reports the one that goes with the loss that weighs most. */
static void test_which_accuracy(void **state)
{
    (void)state;
    static const struct {
        const char *net, *judge;
    } cases[] = {
        {HEADS("0.3", "0.3", "1") ACCURACY("p", "h1", "1") ACCURACY("q", "h1", "2")
             ACCURACY("r", "h3", "2") ACCURACY("s", "h3", "1") ACCURACY("t", "h2", "1"),
         "s"},
        {HEADS("0.3", "2", "1") ACCURACY("p", "h1", "1") ACCURACY("r", "h3", "1")
             ACCURACY("t", "h2", "2"),
         "t"},
        {HEADS("1", "1", "1") ACCURACY("p", "h1", "1") ACCURACY("r", "h3", "1"), "r"},
        {HEADS("1", "0.3", "0.3") ACCURACY("p", "h2", "2") ACCURACY("r", "h3", "1")
             ACCURACY("s", "h2", "1"),
         "r"},
        {HEADS("1", "0.3", "-3") ACCURACY("p", "h1", "1") ACCURACY("r", "h3", "1"), "r"},
        {DATA INNER("ip", "data", "3", "") ACCURACY("p", "ip", "2") ACCURACY("r", "ip", "1"), "r"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        float share;
        bool telling = false;
        fixture_open(&f, cases[i].net, PHASE_TEST, 40, image, &kernels_ref);
        for (size_t n = 0; n < 40; n++)
            f.labels[n] = (uint32_t)(n % 3);
        struct net_result result = fixture_forward(&f);
        assert_true(result.has_right);
        assert_int_equal(net_blob(f.net, cases[i].judge, &share, 1, NULL), 1);
        if (fabs(result.right - 40 * (double)share) > 1e-4)
            fail_msg("case %zu: %g right, %s has %g", i, result.right, cases[i].judge,
                     40 * (double)share);
        for (const char *name = "pqrst"; *name; name++) { /* the others say something else */
            float other = share;
            net_blob(f.net, (const char[]){*name, '\0'}, &other, 1, NULL);
            telling = telling || other != share;
        }
        assert_true(telling);
        fixture_close(&f);
    }
}

/* ---- refusals ---- */

static const struct {
    const char *net;
    int status;
    const char *phrase[2];
} bad_nets[] = {
    {"layers { name: 'a' type: RELU }", ERR_UNSUPPORTED, {"net: `layers` is the older form (V1)"}},
    {"debug_info: true " DATA, ERR_UNSUPPORTED, {"net: debug_info: true"}},
    {"input_shape { dim: 1 } " DATA, ERR_INPUT, {"input_shape without input"}},
    {"input_dim: 1 " DATA, ERR_INPUT, {"without input"}},
    {"input: 'data' input_dim: 1 input_dim: 2 input_dim: 3",
     ERR_INPUT,
     {"3 input_dim for 1 input: four for each"}},
    {"input: 'data' input: 'label' input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4",
     ERR_INPUT,
     {"4 input_dim for 2 input"}},
    {"input: 'data' input_dim: 1 input_dim: 0 input_dim: 3 input_dim: 4",
     ERR_INPUT,
     {"layer \"input\"", "dimension 0"}},
    {"input: 'data' input_shape { dim: 1 dim: 2 } input_dim: 1 input_dim: 2 input_dim: 3 "
     "input_dim: 4",
     ERR_INPUT,
     {"cannot both be given"}},
    {"layer { name: 'd' type: 'Input' top: 'data' data_param { batch_size: 1 } }",
     ERR_UNSUPPORTED,
     {"\"d\": data_param means nothing to type \"Input\""}},
    {"layer { name: 'd' type: 'HDF5Data' top: 'data' transform_param { scale: 1 } }",
     ERR_UNSUPPORTED,
     {"transform_param means nothing to type \"HDF5Data\""}},
    {"layer { name: 'd' type: 'Data' top: 'data' image_data_param { } }",
     ERR_UNSUPPORTED,
     {"image_data_param means nothing to type \"Data\""}},
    {"layer { name: 'd' type: 'MemoryData' top: 'data' memory_data_param { channels: 3 } }",
     ERR_INPUT,
     {"channels, height and width"}},
    {"layer { name: 'd' type: 'DummyData' top: 'data' }",
     ERR_UNSUPPORTED,
     {"\"d\": type \"DummyData\" is not supported"}},
    {DATA LAYER("d", "Data", "data", "x", ""), ERR_INPUT, {"\"d\": type \"Data\" takes no bottom"}},
    {DATA "layer { name: 'e' type: 'Input' top: 'more' input_param { shape { dim: 1 dim: 2 dim: 4 "
          "dim: 5 } } }",
     ERR_UNSUPPORTED,
     {"\"e\": a second data layer next to \"data\""}},
    {DATA "layer { name: 'e' type: 'Input' top: 'more' input_param { shape { dim: 1 dim: 7 } } }",
     ERR_UNSUPPORTED,
     {"\"e\": a second data layer next to \"data\""}},
    {"layer { name: 'd' type: 'Input' top: 'data' top: 'label'"
     " input_param { shape { dim: 1 dim: 2 dim: 4 dim: 5 } } }",
     ERR_UNSUPPORTED,
     {"\"d\": label \"label\" of a record is 2x4x5"}},
    {CLASSES LAYER("t", "Power", "per", "t", "power_param { scale: 100 }"),
     ERR_UNSUPPORTED,
     {"\"t\": bottom \"per\" does not go by records", "type \"Power\""}},
    {CLASSES LAYER("q", "Reshape", "per", "q", "reshape_param { shape { dim: 0 dim: 1 } }")
         LAYER("t", "BatchNorm", "q", "t", ""),
     ERR_UNSUPPORTED,
     {"\"t\": bottom \"q\" does not go by records", "type \"BatchNorm\""}},
    {CLASSES LAYER("s", "Split", "per", "s", "") LAYER("t", "Sigmoid", "s", "t", ""),
     ERR_UNSUPPORTED,
     {"\"t\": bottom \"s\" does not go by records"}},
    {DATA LAYER("r", "ReLU", "data", "r", "include { } exclude { }"),
     ERR_INPUT,
     {"\"r\": include and exclude"}},
    {DATA LAYER("r", "ReLU", "data", "r", "propagate_down: true propagate_down: true"),
     ERR_INPUT,
     {"\"r\": 2 propagate_down for 1 bottoms"}},
    {DATA LAYER("r", "ReLU", "data", "r", "loss_weight: 1 loss_weight: 0"),
     ERR_INPUT,
     {"\"r\": 2 loss_weight for 1 tops"}},
    {DATA LAYER("r", "ReLU", "data", "r", "loss_weight: inf"), ERR_INPUT, {"loss_weight: inf"}},
    {DATA LAYER("r", "ReLU", "data", "r", "top: ''"), ERR_INPUT, {"\"r\": top 2 has no name"}},
    {DATA LAYER("r", "ReLU", "", "r", ""), ERR_INPUT, {"bottom \"\" is made by no layer"}},
    {DATA INNER("ip", "data", "3", "") "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'ip' "
                                       "bottom: 'label' }" LAYER("r", "ReLU", "", "r", ""),
     ERR_INPUT,
     {"\"r\": bottom \"\" is made by no layer"}},
    {DATA LAYER("e", "Eltwise", "data", "label", "bottom: 'label'"),
     ERR_INPUT,
     {"top \"label\" is already made by layer \"data\""}},
    {DATA INNER("a", "data", "6", SHARED) INNER("b", "a", "6", SHARED),
     ERR_INPUT,
     {"layer \"b\": param.name: \"w\" is 6x40 in layer \"a\", and cannot be 6x6 here", "STRICT"}},
    {DATA INNER("a", "data", "6", SHARED)
         INNER("b", "a", "6", "param { name: 'w' share_mode: PERMISSIVE } param { name: 'b' }"),
     ERR_INPUT,
     {"\"w\" is 6x40 in layer \"a\", and cannot be 6x6 here"}},
    {DATA INNER("a", "data", "6", "param { name: 'w' lr_mult: 2 }")
         INNER("b", "data", "6", "param { name: 'w' lr_mult: 1 }"),
     ERR_INPUT,
     {"layer \"b\": param.lr_mult: 1, but \"w\" of layer \"a\" has 2"}},
    {DATA INNER("a", "data", "6", "param { name: 'w' }")
         INNER("b", "data", "6", "param { name: 'w' decay_mult: 1 }")
             INNER("c", "data", "6", "param { name: 'w' decay_mult: 0 }"),
     ERR_INPUT,
     {"layer \"c\": param.decay_mult: 0, but \"w\" of layer \"a\" has 1"}},
};

static void test_bad_nets(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_nets / sizeof bad_nets[0]; i++) {
        struct net *net = NULL;
        struct err err = {0};
        int rc = fixture_try(bad_nets[i].net, PHASE_TRAIN, 5, image, &kernels_ref, &net, &err);
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
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_deploy_net),
        cmocka_unit_test(test_shared_by_hand),
        cmocka_unit_test(test_shared_adds_up),
        cmocka_unit_test(test_shared_rules),
        cmocka_unit_test(test_finished),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_classes_may_be_passed_on),
        cmocka_unit_test(test_a_layer_may_be_named_input),
        cmocka_unit_test(test_propagate_down),
        cmocka_unit_test(test_in_place_chain),
        cmocka_unit_test(test_loss_weights),
        cmocka_unit_test(test_weight_on_any_top),
        cmocka_unit_test(test_loss_without_top),
        cmocka_unit_test(test_which_accuracy),
        cmocka_unit_test(test_bad_nets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
