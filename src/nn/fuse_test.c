/* Chains give the same results as their layers, and are made wherever allowed. */
#include "nn/differences.h"
#include "nn/graph.h"
#include "sweep_stride.h"

#include <malloc.h>
#include <stdio.h>

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define CONV(name, bottom, outputs)                                                       \
    "layer { name: '" name "' type: 'Convolution' bottom: '" bottom "' top: '" name "'\n" \
    " convolution_param { num_output: " outputs " kernel_size: 3 pad: 1\n"                \
    " weight_filler { type: 'xavier' } bias_filler { type: 'gaussian' } } }\n"
#define INNER(name, bottom, outputs)                                                       \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" name "'\n" \
    " inner_product_param { num_output: " outputs " weight_filler { type: 'xavier' } } }\n"
#define LAYER(name, type, bottom, top, fields) \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " fields " }\n"
#define NORM(bottom, top, fields) LAYER("n", "BatchNorm", bottom, top, fields)
#define SCALE(bottom, top, fields) \
    LAYER("s", "Scale", bottom, top, "scale_param { bias_term: true " fields " }")
#define RELU(bottom, top) LAYER("r", "ReLU", bottom, top, "")
#define SUM(bottom, other, top, fields) \
    LAYER("e", "Eltwise", bottom, top, "bottom: '" other "' eltwise_param { " fields " }")
#define LOSS(bottom)         \
    INNER("ip", bottom, "4") \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n"

static const struct shape image = {3, {2, 6, 5}};

static void open_net(struct fixture *f, const char *text, enum phase phase, size_t N,
                     struct shape input, const struct kernels *kernels, bool fused)
{
    struct err err = {0};
    struct net *net = NULL;
    Caffe__NetParameter *param = fixture_parse(text);
    struct net_options options = {
        .phase = phase,
        .batch = N,
        .input = input,
        .kernels = kernels,
        .keep = "ip",
        .keep_all = !fused,
    };
    if (net_create(param, &options, &net, &err) != OK)
        fail_msg("%s: %s", kernels->name, err.text);
    caffe__net_parameter__free_unpacked(param, NULL);
    fixture_fill(f, net, N, input);
    net->poisoned = fused;
}

/* Layers that do not run. */
static size_t count_saved(const struct net *net)
{
    return net->file.n_layers - net->n_layers;
}

/* ---- the same numbers ---- */

enum norm_kind { NO_NORM, BATCH, GLOBAL, NORMS };
enum scale_kind { NO_SCALE, FACTOR, AFFINE, SCALES };
enum sum_kind { NO_SUM, BRANCH, SHORTCUT, SUMS };

struct variant {
    enum norm_kind norm;
    enum scale_kind scale;
    enum sum_kind sum; /* with a blob of its own, or one that others read, too */
    bool relu, second; /* the chain is the sum's second bottom */
    bool in_place;     /* by name */
    bool matrix;       /* of records of one pixel, from an InnerProduct */
};

static size_t count_members(const struct variant *v)
{
    return (size_t)(v->norm != NO_NORM) + (v->scale != NO_SCALE) + (v->sum != NO_SUM) + v->relu;
}

static size_t put_layer(char *text, size_t room, size_t n, const char *format, const char *a,
                        const char *b, const char *c)
{
    n += (size_t)snprintf(text + n, room - n, format, a, b, c);
    assert_true(n < room);
    return n;
}

static void write_net(const struct variant *v, size_t C, char *text, size_t room)
{
    static const char *const norms[] = {"", "eps: 0.01", "use_global_stats: true eps: 0.01"};
    char product[256], number[32];
    const char *at = "a", *x = v->sum == SHORTCUT ? "z" : "data";
    snprintf(number, sizeof number, "%zu", C);
    snprintf(product, sizeof product,
             v->matrix ? INNER("%%s", "%%s", "%s") : CONV("%%s", "%%s", "%s"), number);
    /* The name comes twice, about the bottom. */
    char layer[512];
    size_t n = put_layer(text, room, 0, "%s%s%s", DATA, "", "");
    const char *names[2] = {v->sum != NO_SUM ? "z" : NULL, "a"};
    for (int i = 0; i < 2; i++)
        if (names[i]) {
            snprintf(layer, sizeof layer, product, names[i], i == 0 ? "data" : x, names[i]);
            n = put_layer(text, room, n, "%s%s%s", layer, "", "");
        }
    if (v->norm != NO_NORM) {
        const char *top = v->in_place ? at : "n";
        n = put_layer(text, room, n, NORM("%s", "%s", "batch_norm_param { %s }"), at, top,
                      norms[v->norm]);
        at = top;
    }
    if (v->scale != NO_SCALE) {
        const char *top = v->in_place ? at : "s";
        n = put_layer(text, room, n,
                      LAYER("s", "Scale", "%s", "%s",
                            "scale_param { %s filler { type: 'uniform' min: -1 max: 1 } }"),
                      at, top,
                      v->scale == AFFINE ? "bias_term: true bias_filler { type: 'gaussian' }" : "");
        at = top;
    }
    if (v->sum != NO_SUM) {
        n = put_layer(text, room, n, SUM("%s", "%s", "e", "%s"), v->second ? "z" : at,
                      v->second ? at : "z", "");
        at = "e";
    }
    if (v->relu) {
        const char *top = v->in_place ? at : "r";
        n = put_layer(text, room, n, RELU("%s", "%s") "%s", at, top, "");
        at = top;
    }
    put_layer(text, room, n, LOSS("%s") "%s%s", at, "", "");
}

static void near_all(const char *what, const struct variant *v, size_t C, const float *a,
                     const float *b, size_t n, double rounding)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)b[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= 1e-5 * largest + rounding))
            fail_msg("%s[%zu] is %.9g, apart %.9g of %.3g: norm %d, scale %d, sum %d, relu %d, %zu "
                     "channels",
                     what, i, (double)a[i], (double)b[i], largest, v->norm, v->scale, v->sum,
                     v->relu, C);
}

/* Two steps, so that there is a state to go by, the second over `count` of 5 records. */
static void compare_variant(const struct variant *v, size_t C, enum phase phase, size_t count,
                            const struct kernels *kernels)
{
    char text[4096];
    struct fixture f[2];
    float scores[2][5 * 4];
    struct shape input = v->matrix ? (struct shape){3, {7, 1, 1}} : image;
    write_net(v, C, text, sizeof text);
    for (int i = 0; i < 2; i++) {
        open_net(&f[i], text, phase, 5, input, kernels, i == 0);
        for (size_t k = 0; k < f[i].s.n; k++)
            f[i].s.at[k] = 1.0f + rng_uniform(5, 6, k);
        fixture_forward(&f[i]);
        f[i].batch.count = count;
        if (phase == PHASE_TRAIN)
            fixture_gradient(&f[i]);
        else
            fixture_forward(&f[i]);
        net_blob(f[i].net, "ip", scores[i], 5 * 4, NULL);
    }
    if (phase == PHASE_TRAIN)
        assert_int_equal(count_saved(f[0].net), count_members(v) - 1);
    else /* what follows a convolution may be folded into it (fold_test.c) */
        assert_true(count_saved(f[0].net) >= count_members(v) - 1);
    assert_int_equal(count_saved(f[1].net), 0);
    assert_true(segments_match(net_segments(f[0].net), net_segments(f[1].net)));
    near_all("scores", v, C, scores[0], scores[1], count * 4, 1e-6);
    near_all("state", v, C, f[0].s.at, f[1].s.at, f[0].s.n, 1e-7);
    const struct segments *table = net_segments(f[0].net);
    for (size_t k = 0; k < table->count && phase == PHASE_TRAIN; k++) {
        const struct segment *at = &table->at[k];
        /* Before batch statistics a bias has no gradient but rounding. */
        bool idle = v->norm == BATCH && strcmp(at->name, "a.1") == 0;
        if (!idle)
            near_all(at->name, v, C, f[0].dx.at + at->offset, f[1].dx.at + at->offset, at->len,
                     1e-7);
    }
    for (int i = 0; i < 2; i++)
        fixture_close(&f[i]);
}

static void compare_all(unsigned code, const struct variant *v, const struct kernels *kernels)
{
    enum { STRIDE = SWEEP_STRIDE(3, 3), CHANNELS = 5 };
    static const size_t channels[CHANNELS] = {1, 3, 16, 20, 64};
    for (size_t i = sweep_first(code, STRIDE, CHANNELS); i < CHANNELS; i += STRIDE) {
        compare_variant(v, channels[i], PHASE_TRAIN, 5, kernels);
        compare_variant(v, channels[i], PHASE_TRAIN, 3, kernels);
        compare_variant(v, channels[i], PHASE_TEST, 4, kernels);
    }
}

static void test_chain_equals_separate_layers(void **state)
{
    const struct kernels *kernels = *state;
    for (unsigned code = 0; code < NORMS * SCALES * SUMS * 16; code++) {
        const struct variant v = {
            .norm = code / 16 % NORMS,
            .scale = code / 16 / NORMS % SCALES,
            .sum = code / 16 / NORMS / SCALES,
            .relu = code & 1,
            .in_place = code & 2,
            .matrix = code & 4,
            .second = code & 8,
        };
        bool in_vain = v.second && v.sum == NO_SUM;
        if (count_members(&v) > 1 && !in_vain)
            compare_all(code, &v, kernels);
    }
}

/* ---- gradients ---- */

/* A bias before a mean has no gradient. */
#define PLAIN(name, bottom)                                                               \
    "layer { name: '" name "' type: 'Convolution' bottom: '" bottom "' top: '" name "'\n" \
    " convolution_param { num_output: 3 kernel_size: 3 pad: 1 bias_term: false\n"         \
    " weight_filler { type: 'xavier' } } }\n"

static void test_differences(void **state)
{
    static const struct {
        bool kinked;
        const char *net;
    } cases[] = {
        {false, DATA PLAIN("a", "data") NORM("a", "a", "") SCALE("a", "a", "") LOSS("a")},
        {false, DATA PLAIN("z", "data") PLAIN("a", "z") NORM("a", "a", "") SCALE("a", "a", "")
                    SUM("z", "a", "e", "") LOSS("e")},
        {true,
         DATA PLAIN("a", "data") NORM("a", "a", "") SCALE("a", "a", "") RELU("a", "a") LOSS("a")},
        {true, DATA PLAIN("z", "data") PLAIN("a", "z") NORM("a", "a", "") SCALE("a", "a", "")
                   SUM("z", "a", "e", "") RELU("e", "e") LOSS("e")},
        {true,
         DATA PLAIN("z", "data") PLAIN("a", "z") SUM("z", "a", "e", "") RELU("e", "e") LOSS("e")},
        /* tops whose gradients come in two parts */
        {false, DATA PLAIN("a", "data") NORM("a", "a", "") SCALE("a", "a", "") PLAIN("b", "a")
                    SUM("b", "a", "e", "") LOSS("e")},
        {true, DATA PLAIN("z", "data") PLAIN("a", "z") NORM("a", "a", "") SCALE("a", "a", "")
                   SUM("z", "a", "e", "") RELU("e", "e") PLAIN("b", "e")
                       LAYER("f", "Eltwise", "e", "f", "bottom: 'b'") LOSS("f")},
    };
    const struct kernels *kernels = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        open_net(&f, cases[i].net, PHASE_TRAIN, 3, image, kernels, true);
        assert_true(count_saved(f.net) > 0);
        fixture_gradient(&f);
        differences_elements(&f, cases[i].net, cases[i].kinked, kernels->name);
        if (!cases[i].kinked)
            differences_direction(&f, cases[i].net, kernels->name);
        fixture_close(&f);
    }
}

/* ---- where ---- */

static void test_where(void **state)
{
    static const struct {
        size_t saved;
        const char *net;
    } cases[] = {
        {2, CONV("a", "data", "6") NORM("a", "a", "") SCALE("a", "a", "") RELU("a", "a") LOSS("a")},
        {2, CONV("a", "data", "6") NORM("a", "b", "") SCALE("b", "c", "") RELU("c", "d") LOSS("d")},
        /* read twice */
        {1, CONV("a", "data", "6") NORM("a", "b", "") SCALE("b", "c", "") SUM("b", "c", "e", "")
                LOSS("e")},
        {1, CONV("a", "data", "6") NORM("a", "b", "") SCALE("b", "c", "") RELU("c", "d")
                SUM("c", "d", "e", "") LOSS("e")},
        /* weighted, over other axes, by another blob, with a slope */
        {0,
         CONV("a", "data", "6") NORM("a", "b", "loss_weight: 0.1") SCALE("b", "c", "") LOSS("c")},
        {0, CONV("a", "data", "6") NORM("a", "b", "") SCALE("b", "c", "axis: 2") LOSS("c")},
        {0, CONV("a", "data", "6") NORM("a", "b", "") SCALE("b", "c", "num_axes: 2") LOSS("c")},
        {0, CONV("a", "data", "6") NORM("a", "b", "")
                LAYER("s", "Scale", "b", "c", "bottom: 'data2' scale_param { axis: 0 }") LOSS("c")},
        {0, CONV("a", "data", "6") NORM("a", "b", "")
                LAYER("r", "ReLU", "b", "c", "relu_param { negative_slope: 0.1 }") LOSS("c")},
        /* sums of other kinds */
        {0, CONV("a", "data", "6") CONV("z", "data", "6") NORM("a", "b", "")
                SUM("b", "z", "e", "coeff: 1 coeff: -1") LOSS("e")},
        {0, CONV("a", "data", "6") CONV("z", "data", "6") NORM("a", "b", "")
                SUM("b", "z", "e", "operation: MAX") LOSS("e")},
        {1, CONV("a", "data", "6") CONV("z", "data", "6") NORM("a", "b", "")
                SUM("b", "z", "e", "coeff: 1 coeff: 1") LOSS("e")},
        {0, CONV("a", "data", "6") CONV("z", "data", "6") NORM("a", "b", "")
                LAYER("e", "Eltwise", "b", "e", "bottom: 'z' bottom: 'z'") LOSS("e")},
        {0, CONV("a", "data", "6") NORM("a", "b", "") SUM("b", "b", "e", "") LOSS("e")},
        /* a gradient that stops */
        {0, CONV("a", "data", "6") NORM("a", "b", "")
                LAYER("s", "Scale", "b", "c", "propagate_down: false") LOSS("c")},
        /* one sum, two chains: the later takes it */
        {4, CONV("a", "data", "6") NORM("a", "a", "") SCALE("a", "a", "") CONV("z", "data", "6")
                LAYER("n2", "BatchNorm", "z", "z", "") LAYER("s2", "Scale", "z", "z", "")
                    SUM("a", "z", "e", "") RELU("e", "e") LOSS("e")},
        /* another order */
        {0, CONV("a", "data", "6") RELU("a", "a") SCALE("a", "b", "") NORM("b", "c", "") LOSS("c")},
        /* a requested blob is made */
        {1, CONV("a", "data", "6") NORM("a", "ip2", "") SCALE("ip2", "c", "") LOSS("c")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[4096];
        struct fixture f;
        snprintf(text, sizeof text,
                 "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n%s", cases[i].net);
        if (strstr(text, "data2"))
            snprintf(text, sizeof text, "%s%s%s", DATA, CONV("data2", "data", "6"), cases[i].net);
        for (int phase = 0; phase < 2; phase++) {
            open_net(&f, text, phase ? PHASE_TEST : PHASE_TRAIN, 3, (struct shape){3, {2, 6, 6}},
                     *state, true);
            if (phase ? count_saved(f.net) < cases[i].saved : count_saved(f.net) != cases[i].saved)
                fail_msg("case %zu, phase %d: %zu layers saved, not %zu", i, phase,
                         count_saved(f.net), cases[i].saved);
            fixture_forward(&f);
            fixture_close(&f);
        }
    }
}

/* A blob that is named to be kept is made; so is each with keep_all; of others only the shape is
 * known. */
static void test_kept(void **state)
{
    static const char text[] =
        DATA CONV("a", "data", "6") NORM("a", "ip", "") SCALE("ip", "c", "") RELU("c", "c") INNER(
            "d", "c",
            "4") "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'd' bottom: 'label' }\n";
    struct fixture f;
    struct shape shape;
    open_net(&f, text, PHASE_TRAIN, 3, image, *state, true);
    assert_int_equal(count_saved(f.net), 1);
    assert_true(net_keeps(f.net, "ip"));
    fixture_close(&f);
    open_net(&f, text, PHASE_TRAIN, 3, image, *state, false);
    assert_int_equal(count_saved(f.net), 0);
    fixture_close(&f);
    open_net(&f, DATA CONV("a", "data", "6") NORM("a", "n", "") SCALE("n", "s", "") LOSS("s"),
             PHASE_TRAIN, 3, image, *state, true);
    assert_false(net_keeps(f.net, "n"));
    assert_int_equal(net_blob(f.net, "n", NULL, 0, &shape), 3 * 6 * 30);
    fixture_close(&f);
}

/* ---- bits ---- */

static void test_any_number_of_threads(void **state)
{
    const struct kernels *kernels = *state;
    enum { N = 24, C = 20 };
    const char *net = DATA NORM("data", "n", "") SCALE("n", "s", "") RELU("s", "s") LOSS("s");
    const struct shape large = {3, {C, 32, 32}};
    struct fixture f[2];
    for (int i = 0; i < 2; i++) {
        kernels_set_threads(1);
        open_net(&f[i], net, PHASE_TRAIN, N, large, kernels, true);
        kernels_set_threads(i == 0 ? 1 : 3);
        fixture_forward(&f[i]);
    }
    kernels_set_threads(1);
    assert_int_equal(count_saved(f[0].net), 2);
    assert_memory_equal(f[0].s.at, f[1].s.at, f[0].s.n * sizeof(float));
    for (int i = 0; i < 2; i++)
        fixture_close(&f[i]);
}

/* Far from 0, with the mean a hundred thousand deviations away: the variance stays right. */
static void test_far_from_zero(void **state)
{
    enum { N = 40, S = 64 };
    const struct shape input = {3, {3, 8, 8}};
    struct fixture f;
    open_net(&f, DATA NORM("data", "n", "") SCALE("n", "s", "") LOSS("s"), PHASE_TRAIN, N, input,
             *state, true);
    for (size_t i = 0; i < N * 3 * S; i++)
        f.data[i] = 1000.0f + 0.01f * f.data[i] * (float)(i / S % 3 + 1);
    fixture_forward(&f);
    for (size_t c = 0; c < 3; c++) {
        double sum = 0, squares = 0, m = N * S;
        for (size_t n = 0; n < N; n++)
            for (size_t s = 0; s < S; s++)
                sum += (double)f.data[(n * 3 + c) * S + s];
        for (size_t n = 0; n < N; n++)
            for (size_t s = 0; s < S; s++)
                squares += pow((double)f.data[(n * 3 + c) * S + s] - sum / m, 2);
        const struct segments *table = net_state_segments(f.net);
        fixture_near((double)f.s.at[table->at[0].offset + c], sum / m, 1e-4);
        fixture_near((double)f.s.at[table->at[1].offset + c] / (squares / (m - 1)), 1, 1e-6);
    }
    fixture_close(&f);
}

static void test_steps_do_not_allocate(void **state)
{
    struct fixture f;
    open_net(&f, DATA CONV("a", "data", "6") NORM("a", "a", "") SCALE("a", "a", "") LOSS("a"),
             PHASE_TRAIN, 6, image, *state, true);
    fixture_gradient(&f); /* OpenMP starts its threads on first use */
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 10; i++)
        fixture_gradient(&f);
    assert_int_equal(mallinfo2().uordblks, before);
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
        BOTH(test_chain_equals_separate_layers),
        BOTH(test_differences),
        BOTH(test_where),
        BOTH(test_kept),
        BOTH(test_any_number_of_threads),
        BOTH(test_far_from_zero),
        BOTH(test_steps_do_not_allocate),
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        const struct kernels *kernels = fixture_kernels[i % FIXTURE_KERNELS];
        memcpy(&tests[i].initial_state, &kernels, sizeof kernels); /* drops a const */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
