/* Nets of bf16 against the same of floats: near them whatever the numbers are, and the same bits
 * where every number that occurs is one of bf16. */
#include "bf16_needed.h"
#include "nn/fixture.h"
#include "nn/graph.h"
#include "nn/nets.h"
#include "nn/summary.h"

#include <stdio.h>
#include <stdlib.h>

static const struct shape image = {3, {3, 12, 10}};
enum { N = 6 };

static void open_of(struct fixture *f, const char *text, enum dtype dtype, const char *keep,
                    size_t batch, struct shape input)
{
    const struct net_options options = {
        .phase = PHASE_TRAIN,
        .batch = batch,
        .input = input,
        .kernels = &kernels_dnnl,
        .dtype = dtype,
        .keep = keep,
    };
    struct err err = {0};
    struct net *net = NULL;
    if (fixture_make(text, &options, &net, &err) != OK)
        fail_msg("%s", err.text);
    fixture_fill(f, net, batch, input);
}

static size_t count_casts(const struct net *net)
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_layers; i++)
        n += strcmp(net->layer[i]->type, "Cast") == 0;
    return n;
}

/* ---- near those of floats ---- */

/* Every value is rounded by up to 2^-8 of itself, and some change places around a ReLU's zero or in
 * a window. The tolerances: of the loss; of a gradient's length, and of the whole gradient's. To
 * round no more than the parameters and the records moves these nets' gradients by half as much. */
#define LOSS_PART     0.01
#define GRADIENT_PART 0.1
#define WHOLE_PART    0.02

static double vector_length(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* Each segment, as a vector; one that is next to nothing, such as a bias that a BatchNorm takes
 * away again, by what the whole is. */
static void expect_close(const char *what, const struct segments *table, const struct vec *want,
                         const struct vec *got)
{
    double whole = vector_length(want->at, want->n);
    for (size_t k = 0; k < table->count; k++) {
        const struct segment *s = &table->at[k];
        const float *a = want->at + s->offset, *b = got->at + s->offset;
        double square = 0, most = GRADIENT_PART * vector_length(a, s->len) + WHOLE_PART * whole;
        for (size_t i = 0; i < s->len; i++)
            square += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        if (!(sqrt(square) <= most))
            fail_msg("%s: %s is %g long, but %g from it", what, s->name, vector_length(a, s->len),
                     sqrt(square));
    }
}

/* The second gradient of each: nothing of the first drains. Of the poisoned one all that nobody
 * says to read is not finite, but for that it is the same. */
static void check_follows(const char *what, const char *text, size_t count)
{
    struct fixture wide, half, spoilt;
    open_of(&wide, text, DTYPE_F32, NULL, N, image);
    open_of(&half, text, DTYPE_BF16, NULL, N, image);
    open_of(&spoilt, text, DTYPE_BF16, NULL, N, image);
    spoilt.net->poisoned = true;
    struct fixture *each[] = {&wide, &half, &spoilt};
    for (int k = 0; k < 3; k++) {
        fixture_gradient(each[k]);
        each[k]->batch.count = count;
    }
    double a = fixture_gradient(&wide).loss, b = fixture_gradient(&half).loss;
    if (!(fabs(a - b) <= LOSS_PART * fabs(a)))
        fail_msg("%s: the loss is %g, with bf16 %g", what, a, b);
    expect_close(what, net_segments(wide.net), &wide.dx, &half.dx);
    expect_close(what, net_state_segments(wide.net), &wide.s, &half.s);
    assert_true(fixture_gradient(&spoilt).loss == b);
    assert_memory_equal(spoilt.dx.at, half.dx.at, half.dx.n * sizeof(float));
    assert_memory_equal(spoilt.s.at, half.s.at, half.s.n * sizeof(float));
    fixture_close(&wide), fixture_close(&half), fixture_close(&spoilt);
}

static void test_nets_of_all_types(void **state)
{
    (void)state;
    bf16_needed();
    for (size_t i = 0; i < NETS; i++)
        for (size_t count = N; count > 0; count -= N / 2) {
            char what[64];
            snprintf(what, sizeof what, "net %zu, %zu records", i, count);
            check_follows(what, nets[i], count);
        }
}

/* Any of BatchNorm, Scale, sum and ReLU, in this order: one pass over images of bf16, whichever it
 * is of. The cast is the InnerProduct's. */
static void test_chains(void **state)
{
    (void)state;
    bf16_needed();
    static const struct {
        const char *type, *rest;
    } member[] = {{"BatchNorm", ""},
                  {"Scale", "scale_param { bias_term: true }"},
                  {"Eltwise", "bottom: 'z'"},
                  {"ReLU", ""}};
    for (unsigned set = 1; set < 16; set++) {
        char text[4096], type[64] = "", at[8] = "c";
        size_t n = (size_t)snprintf(text, sizeof text, "%s",
                                    DATA CONV("z", "data", "z", "20") CONV("c", "data", "c", "20"));
        for (unsigned k = 0; k < 4; k++) {
            if (!(set >> k & 1))
                continue;
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  "layer { name: 'm%u' type: '%s' bottom: '%s' %s top: 'm%u' } ", k,
                                  member[k].type, at, member[k].rest, k);
            snprintf(at, sizeof at, "m%u", k);
            snprintf(type + strlen(type), sizeof type - strlen(type), "%s%s", type[0] ? "+" : "",
                     member[k].type);
        }
        snprintf(text + n, sizeof text - n,
                 "layer { name: 'end' type: 'ReLU' bottom: 'z' top: 'y' } "
                 "layer { name: 'join' type: 'Concat' bottom: '%s' bottom: 'y' top: 'j' } %s",
                 at, CONV("w", "j", "w", "8") END("w"));
        struct fixture f;
        open_of(&f, text, DTYPE_BF16, NULL, N, image);
        bool found = false;
        for (size_t i = 0; i < f.net->n_layers; i++)
            found = found || strcmp(f.net->layer[i]->type, type) == 0;
        if (!found)
            fail_msg("no layer is %s", type);
        assert_int_equal(count_casts(f.net), 1);
        fixture_close(&f);
        check_follows(type, text, N - 1);
    }
}

/* ---- the same bits ---- */

#define ONE(name, bottom, top, n)              \
    LAYER(name, "Convolution", bottom, top,    \
          "convolution_param { num_output: " n \
          " kernel_size: 1 bias_term: false weight_filler { type: 'constant' value: 1 } } ")
#define POOL(name, bottom, top, rest) \
    LAYER(name, "Pooling", bottom, top, "pooling_param { " rest "} ")

/* Layers without weights here are read there. Inputs are -1, 0 and 1, weights halves and ones: no
 * value needs more than 8 bits. */
static const struct {
    const char *net;
    size_t casts;
} exact[] = {
    /* branches, as Inception's */
    {DATA ONE("a", "data", "a", "4") RELU("r", "a", "a")
         LAYER("o", "Split", "a", "o", "top: 'p' top: 'q' ") ONE("b", "o", "b", "3")
             ONE("c", "p", "c", "2") POOL("x", "q", "x", "kernel_size: 3 pad: 1 ")
                 TWO("j", "Concat", "b", "c", "j", "bottom: 'x' loss_weight: 0.5 "),
     0},
    /* readers of either type: a's copy is shared, and what each says of a is added */
    {DATA ONE("a", "data", "a", "4") RELU("r", "a", "b") LAYER("p", "PReLU", "a", "p", "")
         LAYER("v", "AbsVal", "a", "v", "") TWO("m", "Eltwise", "a", "b", "m",
                                                "eltwise_param { operation: MAX } ")
             TWO("s", "Eltwise", "p", "v", "s",
                 "bottom: 'm' eltwise_param { coeff: 2 coeff: -1 coeff: 0.5 } loss_weight: 0.25 ")
                 ONE("w", "a", "w", "2")
                     TWO("t", "Eltwise", "b", "a", "t",
                         "loss_weight: 0.5 ") "layer { name: 'k' type: 'Silence' bottom: 'w' } ",
     2},
    {DATA ONE("a", "data", "a", "3") ONE("b", "data", "b", "3")
         TWO("m", "Eltwise", "a", "b", "m", "eltwise_param { operation: PROD } loss_weight: 0.5 "),
     2},
    /* there and back again; what floats make is read as bf16 */
    {DATA ONE("a", "data", "a", "2") LAYER("s", "Slice", "a", "s", "top: 't' ")
         LAYER("f", "Power", "s", "f", "power_param { scale: 2 shift: 0.5 } ")
             TWO("j", "Concat", "f", "t", "j", "bottom: 'a' ") ONE("w", "j", "w", "2")
                 POOL("x", "w", "x", "pool: AVE kernel_size: 2 stride: 2 ")
                     LAYER("dr", "Dropout", "x", "d", "loss_weight: 1 "),
     4},
    {DATA ONE("a", "data", "a", "2")
         LAYER("de", "Deconvolution", "a", "d",
               "convolution_param { num_output: 3 kernel_size: 2 stride: 2 bias_term: false "
               "weight_filler { type: 'constant' value: 1 } } ") RELU("r", "d", "d")
             POOL("x", "d", "x", "kernel_size: 2 stride: 2 ") ONE("w", "x", "w", "2")
                 LAYER("z", "ReLU", "w", "z", "loss_weight: 0.5 "),
     2},
    /* in place over a copy, of which a layer reads the original */
    {DATA ONE("a", "data", "a", "4") ONE("b", "a", "b", "2") LAYER("p", "PReLU", "a", "a", "")
         LAYER("q", "Power", "a", "a", "power_param { scale: 0.5 } ") RELU("r", "a", "a")
             ONE("w", "a", "w", "2") TWO("s", "Eltwise", "w", "b", "s", "loss_weight: 0.25 "),
     2},
    /* a copy that two read, one of which could write over it */
    {DATA ONE("a", "data", "a", "4") LAYER("p", "Power", "a", "p", "power_param { scale: 2 } ")
         LAYER("q", "Power", "a", "q", "power_param { scale: 0.5 } ")
             TWO("s", "Eltwise", "p", "q", "s",
                 "eltwise_param { coeff: 1 coeff: -1 } loss_weight: 0.25 "),
     1},
    /* weights on what is read further, and on what is not */
    {DATA ONE("a", "data", "a", "4") LAYER("z", "Scale", "a", "z", "loss_weight: 0.25 ") RELU(
         "r", "z", "b") ONE("w", "b", "w", "2") LAYER("e", "Scale", "w", "e", "loss_weight: 0.5 "),
     0},
    /* before all convolutions */
    {DATA POOL("x", "data", "x", "kernel_size: 2 stride: 2 ") LAYER("z", "Scale", "x", "z", "")
         RELU("r", "z", "z") ONE("w", "z", "w", "2")
             POOL("y", "w", "y", "pool: AVE kernel_size: 2 ")
                 LAYER("e", "Scale", "y", "e", "loss_weight: 0.5 "),
     0},
    /* a sum of one with itself; one that must not learn, and a branch that no gradient leaves */
    {DATA LAYER("a", "Convolution", "data", "a",
                "param { lr_mult: 0 } convolution_param { num_output: 2 kernel_size: 1 bias_term: "
                "false weight_filler { type: 'constant' value: 1 } } ") RELU("r", "a", "b")
         ONE("c", "b", "c", "2") TWO("s", "Eltwise", "c", "c", "s", "") ONE("c2", "s", "d", "3")
             ONE("e", "c", "e", "3")
                 TWO("t", "Eltwise", "d", "e", "t",
                     "propagate_down: true propagate_down: false loss_weight: 0.25 "),
     0},
    /* the maximum before its ReLU; in one that floats take */
    {DATA ONE("a", "data", "a", "4") RELU("r", "a", "a")
         POOL("x", "a", "x", "kernel_size: 2 stride: 2 ") ONE("w", "x", "w", "2")
             RELU("t", "w", "t") LAYER("f", "Flatten", "t", "f", "loss_weight: 0.5 "),
     1},
};
enum { EXACT = sizeof exact / sizeof *exact };

static void open_exact(struct fixture *f, const char *net, enum dtype dtype, size_t batch)
{
    open_of(f, net, dtype, NULL, batch, image);
    for (size_t i = 0; i < f->x.n; i++)
        f->x.at[i] = (rng_below(11, 20, i, 2) ? 0.5f : 1.0f) * (rng_below(11, 21, i, 2) ? 1 : -1);
    for (size_t i = 0; i < batch * shape_count(&image); i++)
        f->data[i] = (float)rng_below(11, 22, i, 3) - 1.0f;
}

/* Also of a net for more records, after a pass over all of them; what it has behind the count is
 * spoilt. */
static void test_exact(void **state)
{
    (void)state;
    bf16_needed();
    for (size_t i = 0; i < EXACT; i++) {
        struct fixture wide, half, more;
        open_exact(&wide, exact[i].net, DTYPE_F32, N);
        open_exact(&half, exact[i].net, DTYPE_BF16, N);
        open_exact(&more, exact[i].net, DTYPE_BF16, N + 3);
        if (count_casts(half.net) != exact[i].casts)
            fail_msg("net %zu: %zu casts", i, count_casts(half.net));
        fixture_gradient(&more);
        more.net->poisoned = true;
        more.batch.count = N;
        for (size_t k = N * shape_count(&image); k < (N + 3) * shape_count(&image); k++)
            more.data[k] = NAN;
        double a = fixture_gradient(&wide).loss, b = fixture_gradient(&half).loss;
        double c = fixture_gradient(&more).loss;
        if (a != b || a != c || vector_length(wide.dx.at, wide.dx.n) == 0)
            fail_msg("net %zu: losses %.9g, %.9g and %.9g", i, a, b, c);
        for (size_t k = 0; k < wide.dx.n; k++) /* either zero is one */
            if (wide.dx.at[k] != half.dx.at[k] || wide.dx.at[k] != more.dx.at[k])
                fail_msg("net %zu: dx[%zu] is %.9g, %.9g and %.9g", i, k, (double)wide.dx.at[k],
                         (double)half.dx.at[k], (double)more.dx.at[k]);
        fixture_close(&wide), fixture_close(&half), fixture_close(&more);
    }
}

/* ---- what else there is to a net ---- */

/* Outputs and named blobs, as floats in the canonical order: of a batch that is not full, too. The
 * named one has a copy, of the same name. */
static void test_blobs(void **state)
{
    (void)state;
    bf16_needed();
    static const char net[] =
        DATA ONE("a", "data", "a", "4") LAYER("t", "AbsVal", "a", "t", "") ONE("b", "a", "b", "5");
    enum { MOST = N * 5 * 120 };
    static float wide[MOST], half[MOST];
    static const char *const names[] = {"a", "b", "t"};
    struct fixture f[2];
    for (int k = 0; k < 2; k++) {
        open_of(&f[k], net, k ? DTYPE_BF16 : DTYPE_F32, "a", N, image);
        for (size_t i = 0; i < N * shape_count(&image); i++)
            f[k].data[i] = (float)rng_below(11, 22, i, 3) - 1.0f;
    }
    for (size_t count = N; count > N - 3; count--)
        for (size_t k = 0; k < 3; k++) {
            struct shape shape = {0};
            for (int i = 0; i < 2; i++) {
                f[i].batch.count = count;
                fixture_forward(&f[i]);
                assert_true(net_keeps(f[i].net, names[k]));
            }
            size_t n = net_blob(f[0].net, names[k], wide, MOST, NULL);
            assert_int_equal(net_blob(f[1].net, names[k], half, MOST, &shape), n);
            assert_int_equal(shape.dim[0], count);
            assert_memory_equal(wide, half, n * sizeof(float));
        }
    assert_false(net_keeps(f[1].net, "data"));
    fixture_close(&f[0]), fixture_close(&f[1]);
}

static size_t floats_of(const struct segments *table)
{
    size_t sum = 0;
    for (size_t k = 0; k < table->count; k++)
        sum += table->at[k].len;
    return sum;
}

/* The names of casts are reserved for none: layers may have them, with their parameters and
 * state. */
static void test_names(void **state)
{
    (void)state;
    bf16_needed();
    static const char net[] = DATA ONE("a", "data", "a", "4") LAYER("p", "PReLU", "a", "p", "")
        ONE("w", "p", "w", "2") LAYER("a as f32", "BatchNorm", "a", "b", "")
            INNER("p as bf16", "p", "c", "3") LAYER("f", "ReLU", "w", "f", "loss_weight: 0.5 ")
                LAYER("g", "ReLU", "b", "g", "loss_weight: 0.5 ")
                    LAYER("h", "ReLU", "c", "h", "loss_weight: 0.5 ");
    struct fixture f;
    open_of(&f, net, DTYPE_BF16, NULL, N, image);
    size_t casts = 0, parameters = 0, kept = 0;
    for (size_t i = 0; i < net_layer_count(f.net); i++) {
        const struct layer_summary layer = net_layer_at(f.net, i);
        bool is_cast = strcmp(layer.type, "Cast") == 0;
        assert_true(!is_cast || strcmp(layer.name, casts ? "p as bf16" : "a as f32") == 0);
        casts += is_cast;
        parameters += layer.parameters;
        kept += layer.state;
    }
    assert_int_equal(casts, 2);
    assert_int_equal(parameters, floats_of(net_segments(f.net)));
    assert_int_equal(kept, floats_of(net_state_segments(f.net)));
    const struct segment *w = net_layer_param(f.net, "p as bf16", 0);
    assert_non_null(w);
    assert_int_equal(w->len, 3 * 4 * 12 * 10);
    assert_true(isfinite(fixture_gradient(&f).loss));
    fixture_close(&f);
}

static struct net_options options_of(const struct kernels *kernels, struct shape input)
{
    return (struct net_options){
        .phase = PHASE_TRAIN, .batch = N, .input = input, .kernels = kernels, .dtype = DTYPE_BF16};
}

static void is_refused(const char *text, const struct net_options *options, int status,
                       const char *phrase)
{
    struct net *net = NULL;
    struct err err = {0};
    int rc = fixture_make(text, options, &net, &err);
    if (rc != status || net || !strstr(err.text, phrase))
        fail_msg("status %d, \"%s\": not %d, \"%s\"", rc, err.text, status, phrase);
}

/* Two layers of one name are refused as ever; where memory ends, what is said counts two bytes a
 * value: 6 · 4 · 1024² of them are 0.047 GiB. */
static void test_what_else_is_refused(void **state)
{
    (void)state;
    bf16_needed();
    static const char twice[] = DATA ONE("a", "data", "a", "4") LAYER("p", "PReLU", "a", "p", "")
        ONE("a as f32", "a", "b", "2") ONE("a as f32", "b", "c", "2");
    static const char wide[] =
        DATA CONV("c", "data", "c", "4") POOL("p", "c", "p", "kernel_size: 4 stride: 4 ")
            LAYER("r", "ReLU", "p", "r", "loss_weight: 1 ");
    struct net_options options = options_of(&kernels_dnnl, image);
    is_refused(twice, &options, ERR_INPUT, "layer \"a as f32\": another layer has the same name");
    options = options_of(&kernels_dnnl, (struct shape){3, {3, 1024, 1024}});
    options.memory_limit = (size_t)1 << 24;
    is_refused(wide, &options, ERR_NOMEM,
               "\"c\", with 0.00 GiB of parameters and 0.05 GiB of tops");
}

/* Images of one channel lie as they come; a net without images is one of floats. */
static void test_few_dimensions(void **state)
{
    (void)state;
    bf16_needed();
    static const char lone[] = DATA ONE("a", "data", "a", "4") RELU("r", "a", "a")
        ONE("w", "a", "w", "2") LAYER("z", "Scale", "w", "z", "loss_weight: 0.5 ");
    static const char matrix[] =
        DATA INNER("a", "data", "a", "8") RELU("r", "a", "a") LAYER("n", "BatchNorm", "a", "n", "")
            LAYER("s", "Scale", "n", "s", "") TWO("e", "Eltwise", "a", "s", "e", "") END("e");
    static const struct shape inputs[] = {{3, {1, 7, 9}}, {1, {20}}};
    for (int k = 0; k < 2; k++) {
        struct fixture f[2];
        for (int i = 0; i < 2; i++) {
            open_of(&f[i], k ? matrix : lone, i ? DTYPE_BF16 : DTYPE_F32, NULL, N, inputs[k]);
            for (size_t j = 0; j < N * shape_count(&inputs[k]); j++)
                f[i].data[j] = (float)rng_below(11, 22, j, 3) - 1.0f;
            f[i].batch.count = N - 1;
        }
        assert_int_equal(count_casts(f[1].net), 0);
        assert_true(fixture_gradient(&f[0]).loss == fixture_gradient(&f[1]).loss);
        assert_memory_equal(f[0].dx.at, f[1].dx.at, f[0].dx.n * sizeof(float));
        fixture_close(&f[0]), fixture_close(&f[1]);
    }
}

/* Odd numbers of values, of which the last has half a float: all lie within what is theirs; what
 * the records are put in order in is of floats. */
static void test_places(void **state)
{
    (void)state;
    bf16_needed();
    static const char net[] = DATA ONE("a", "data", "a", "3") RELU("r", "a", "b")
        ONE("w", "b", "w", "1") LAYER("z", "Scale", "w", "z", "loss_weight: 0.5 ");
    static const struct shape odd = {3, {3, 1, 11}}; /* 33 values: one more than fills lines */
    struct fixture f;
    open_of(&f, net, DTYPE_BF16, NULL, 1, odd);
    for (size_t i = 0; i < f.net->n_blobs; i++) {
        const struct blob *blob = f.net->blob[i];
        size_t bytes = blob->count * dtype_size(blob->dtype);
        assert_true(blob->values->floats * sizeof(float) >= bytes);
        assert_true(!blob->gradient || blob->gradient->floats * sizeof(float) >= bytes);
    }
    const struct layer *data = f.net->layer[0];
    assert_true(data->scratch[false]->floats >= data->top[0]->count);
    fixture_close(&f);
}

/* No more than half of it, but for what casts hold, and for what is as it was. */
static void test_memory(void **state)
{
    (void)state;
    bf16_needed();
    static const char net[] = DATA CONV("c", "data", "c", "32") NORM("n", "c", "n")
        RELU("r", "n", "r") CONV("w", "r", "w", "32") NORM("m", "w", "m")
            TWO("e", "Eltwise", "m", "r", "e", "") RELU("q", "e", "q") CONV("v", "q", "v", "32")
                POOL("p", "v", "p", "pool: AVE kernel_size: 4 stride: 4 ") END("p");
    static const struct shape large = {3, {3, 32, 32}};
    struct net_memory memory[2];
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        open_of(&f, net, i ? DTYPE_BF16 : DTYPE_F32, NULL, 32, large);
        memory[i] = net_memory(f.net);
        fixture_close(&f);
    }
    double values = (double)memory[1].activations / (double)memory[0].activations;
    double gradients = (double)memory[1].gradients / (double)memory[0].gradients;
    print_message("    %.3f of the values, %.3f of the gradients\n", values, gradients);
    assert_true(values < 0.55 && values > 0.4);
    assert_true(gradients < 0.55 && gradients > 0.4);
}

/* By name, and with the reason; tests are of floats whatever the training is. */
static void test_refused(void **state)
{
    (void)state;
    static const char text[] = DATA CONV("c", "data", "c", "4") END("c");
    struct net_options options = options_of(&kernels_ref, image);
    struct net *net = NULL;
    struct err err = {0};
    is_refused(text, &options, ERR_UNSUPPORTED, "precision: kernels \"ref\" have no bf16");
    options.phase = PHASE_TEST;
    assert_int_equal(fixture_make(text, &options, &net, &err), OK);
    for (size_t i = 0; i < net->n_blobs; i++)
        assert_int_equal(net->blob[i]->dtype, DTYPE_F32);
    net_free(net);
}

int main(void)
{
    kernels_set_threads(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nets_of_all_types),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_blobs),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_what_else_is_refused),
        cmocka_unit_test(test_few_dimensions),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
