/* Layers that treat each element by itself, or with those at its place in other blobs. */
#include "nn/differences.h"

#include <stdio.h>

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define LAYER(name, type, bottom, top, fields) \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " fields " }\n"
#define LOSS(bottom) LAYER("loss", "SoftmaxWithLoss", bottom, "loss", "bottom: 'label'")
#define INNER(name, bottom, outputs)                                                       \
    LAYER(name, "InnerProduct", bottom, name,                                              \
          "inner_product_param { num_output: " outputs " weight_filler { type: 'xavier' }" \
          " bias_filler { type: 'uniform' min: -0.5 max: 0.5 } }")
#define CONV(name, bottom, outputs, fields)              \
    LAYER(name, "Convolution", bottom, name,             \
          "convolution_param { num_output: " outputs     \
          " weight_filler { type: 'gaussian' std: 0.4 }" \
          " bias_filler { type: 'uniform' min: -0.5 max: 0.5 } " fields " }")
#define IMAGE(name) CONV(name, "data", "3", "kernel_size: 3")
#define END(bottom) INNER("ip", bottom, "5") LOSS("ip")

/* ---- known answers ---- */

enum { VALUES = 5 };

/* One record of VALUES values through a layer 't' from 'data' to 'y'. */
static const struct {
    const char *layer;
    double x[VALUES], y[VALUES];
} answers[] = {
    {LAYER("t", "Power", "data", "y", "power_param { power: 3 scale: 2 shift: 1 }"),
     {0, 1, -1, 0.5, -2},
     {1, 27, -1, 8, -27}},
    {LAYER("t", "Power", "data", "y", "power_param { power: 2 scale: -1 shift: 3 }"),
     {0, 1, -1, 3, 5},
     {9, 4, 16, 0, 4}},
    {LAYER("t", "Power", "data", "y", "power_param { scale: 0.5 shift: -1 }"),
     {0, 1, -1, 3, 5},
     {-1, -0.5, -1.5, 0.5, 1.5}},
    {LAYER("t", "Power", "data", "y", "power_param { power: 0 }"),
     {0, 1, -1, 3, 5},
     {1, 1, 1, 1, 1}},
    {LAYER("t", "Power", "data", "y", "power_param { power: -0.5 }"),
     {1, 4, 16, 0.25, 0.0625},
     {1, 0.5, 0.25, 2, 4}},
    {LAYER("t", "Exp", "data", "y", "exp_param { base: 2 scale: 3 shift: 1 }"),
     {0, 1, -1, 2, -0.333333333},
     {2, 16, 0.25, 128, 1}},
    {LAYER("t", "Exp", "data", "y", ""),
     {0, 1, -1, 2, 0.5},
     {1, 2.718281828, 0.367879441, 7.389056099, 1.648721271}},
    {LAYER("t", "Log", "data", "y", "log_param { base: 10 scale: 2 shift: 4 }"),
     {3, 48, -1.95, 498, -1.5},
     {1, 2, -1, 3, 0}},
    {LAYER("t", "Log", "data", "y", "log_param { }"),
     {1, 2, 0.5, 10, 2.718281828},
     {0, 0.693147181, -0.693147181, 2.302585093, 1}},
    {LAYER("t", "AbsVal", "data", "y", ""), {0, 1.5, -1.5, 3, -7}, {0, 1.5, 1.5, 3, 7}},
    {LAYER("t", "TanH", "data", "y", "tanh_param { engine: CAFFE }"),
     {0, 1, -1, 20, 0.5},
     {0, 0.761594156, -0.761594156, 1, 0.462117157}},
    {LAYER("t", "ELU", "data", "y", "elu_param { alpha: 2 }"),
     {0, 1.5, -1, -2, -20},
     {0, 1.5, -1.264241118, -1.729329434, -2}},
    {LAYER("t", "ELU", "data", "y", ""),
     {0, 1.5, -1, 3, -0.5},
     {0, 1.5, -0.632120559, 3, -0.393469340}},
    {LAYER("t", "PReLU", "data", "y", ""), {0, 1.5, -1, 3, -8}, {0, 1.5, -0.25, 3, -2}},
    {LAYER("t", "PReLU", "data", "y", "prelu_param { channel_shared: true filler { value: -2 } }"),
     {0, 1.5, -1, 3, -8},
     {0, 1.5, 2, 3, 16}},
    {LAYER("t", "ReLU", "data", "y", "relu_param { negative_slope: -0.5 engine: CUDNN }"),
     {0, 1.5, -1, 3, -8},
     {0, 1.5, 0.5, 3, 4}},
    {LAYER("t", "Sigmoid", "data", "y", "sigmoid_param { engine: CAFFE }"),
     {0, 1, -1, 20, -20},
     {0.5, 0.731058579, 0.268941421, 0.999999998, 2.06115362e-9}},
    {LAYER("t", "Eltwise", "data", "y",
           "bottom: 'data' bottom: 'data' "
           "eltwise_param { coeff: 1 coeff: -0.5 coeff: 2 }"),
     {0, 1, -1, 3, 4},
     {0, 2.5, -2.5, 7.5, 10}},
    {LAYER("t", "Eltwise", "data", "y", "bottom: 'data'"), {0, 1, -1, 3, 4}, {0, 2, -2, 6, 8}},
    {LAYER("t", "Eltwise", "data", "y",
           "bottom: 'data' bottom: 'data' eltwise_param { "
           "operation: PROD }"),
     {0, 1, -1, 3, 4},
     {0, 1, -1, 27, 64}},
    {LAYER("n", "Power", "data", "n", "power_param { scale: -1 }")
         LAYER("h", "Power", "data", "h", "power_param { shift: 0.5 }")
             LAYER("t", "Eltwise", "data", "y",
                   "bottom: 'n' bottom: 'h' eltwise_param { "
                   "operation: MAX }"),
     {0, 1, -1, 3, -4},
     {0.5, 1.5, 1, 3.5, 4}},
    {LAYER("t", "Bias", "data", "y", "bias_param { filler { value: 0.5 } }"),
     {0, 1, -1, 3, 4},
     {0.5, 1.5, -0.5, 3.5, 4.5}},
    {LAYER("t", "Scale", "data", "y",
           "scale_param { num_axes: 0 bias_term: true filler { value: 3 } "
           "bias_filler { value: -1 } }"),
     {0, 1, -1, 3, 4},
     {-1, 2, -4, 8, 11}},
    {LAYER("t", "Scale", "data", "y", "bottom: 'data' scale_param { axis: 0 }"),
     {0, 1, -1, 3, 4},
     {0, 1, 1, 9, 16}},
    {LAYER("t", "Bias", "data", "y", "bottom: 'data' bias_param { axis: 0 }"),
     {0, 1, -1, 3, 4},
     {0, 2, -2, 6, 8}},
};

static void test_answers(void **state)
{
    const struct kernels *kernels = *state;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
        for (int way = 0; way < 4; way++) { /* a matrix or an image, for training or not */
            struct shape input =
                way & 1 ? (struct shape){3, {VALUES, 1, 1}} : (struct shape){1, {VALUES}};
            char text[1024];
            struct fixture f;
            float y[2 * VALUES];
            snprintf(text, sizeof text, DATA "%s", answers[i].layer);
            fixture_open(&f, text, way & 2 ? PHASE_TEST : PHASE_TRAIN, 2, input, kernels);
            for (size_t k = 0; k < 2 * VALUES; k++)
                f.data[k] = (float)answers[i].x[k % VALUES];
            fixture_forward(&f);
            assert_int_equal(net_blob(f.net, "y", y, 2 * VALUES, NULL), 2 * VALUES);
            for (size_t k = 0; k < 2 * VALUES; k++)
                if (!(fabs((double)y[k] - answers[i].y[k % VALUES]) <=
                      1e-6 * (1.0 + fabs(answers[i].y[k % VALUES]))))
                    fail_msg("%s, %s: f(%g) = %.9g, not %.9g", kernels->name, answers[i].layer,
                             answers[i].x[k % VALUES], (double)y[k], answers[i].y[k % VALUES]);
            fixture_close(&f);
        }
}

/* ---- gradients ---- */

static const struct {
    enum { SMOOTH, KINKED } kind;
    const char *what, *net;
} gradients[] = {
    {SMOOTH, "power",
     DATA INNER("a", "data", "6")
         LAYER("t", "Power", "a", "t", "power_param { power: 3 scale: 0.5 shift: 0.25 }") END("t")},
    {SMOOTH, "square in place",
     DATA IMAGE("a")
         LAYER("t", "Power", "a", "a", "power_param { power: 2 scale: 0.5 shift: 0.25 }") END("a")},
    {SMOOTH, "affine in place",
     DATA IMAGE("a") LAYER("t", "Power", "a", "a", "power_param { scale: 0.5 shift: 0.25 }")
         END("a")},
    {SMOOTH, "exp in place",
     DATA IMAGE("a") LAYER("t", "Exp", "a", "a", "exp_param { base: 3 scale: -0.5 shift: 0.25 }")
         END("a")},
    {SMOOTH, "log in place",
     DATA IMAGE("a") LAYER("t", "Log", "a", "a", "log_param { base: 2 scale: 0.5 shift: 6 }")
         END("a")},
    {KINKED, "absolute value in place",
     DATA IMAGE("a") LAYER("t", "AbsVal", "a", "a", "") END("a")},
    {SMOOTH, "tanh in place", DATA IMAGE("a") LAYER("t", "TanH", "a", "a", "") END("a")},
    {KINKED, "elu in place",
     DATA IMAGE("a") LAYER("t", "ELU", "a", "a", "elu_param { alpha: 0.7 }") END("a")},
    {KINKED, "elu that goes up again",
     DATA IMAGE("a") LAYER("t", "ELU", "a", "a", "elu_param { alpha: -0.7 }") END("a")},
    {KINKED, "prelu", DATA INNER("a", "data", "8") LAYER("t", "PReLU", "a", "t", "") END("t")},
    {KINKED, "prelu in place on an image",
     DATA IMAGE("a") LAYER("t", "PReLU", "a", "a",
                           "prelu_param { filler { type: 'uniform' min: -0.5 max: 0.5 } }")
         END("a")},
    {KINKED, "prelu of one slope",
     DATA IMAGE("a") LAYER("t", "PReLU", "a", "a",
                           "prelu_param { channel_shared: true filler { value: -0.3 } }") END("a")},
    {KINKED, "relu that goes up again",
     DATA IMAGE("a") LAYER("t", "ReLU", "a", "a", "relu_param { negative_slope: -0.5 }") END("a")},
    {SMOOTH, "sum",
     DATA IMAGE("a") IMAGE("b") IMAGE("c")
         LAYER("t", "Eltwise", "a", "t",
               "bottom: 'b' bottom: 'c' bottom: 'a' "
               "eltwise_param { operation: SUM coeff: 1 coeff: -2 coeff: 0.5 coeff: 1 }") END("t")},
    {KINKED, "a residual",
     DATA CONV("a", "data", "2", "kernel_size: 3 pad: 1")
         CONV("b", "a", "2", "kernel_size: 3 pad: 1") LAYER("t", "Eltwise", "a", "t", "bottom: 'b'")
             LAYER("r", "ReLU", "t", "t", "") END("t")},
    {SMOOTH, "product",
     DATA IMAGE("a") IMAGE("b") IMAGE("c")
         LAYER("t", "Eltwise", "a", "t",
               "bottom: 'b' bottom: 'c' eltwise_param { operation: PROD }") END("t")},
    {SMOOTH, "product by quotients",
     DATA IMAGE("a") IMAGE("b") IMAGE("c")
         LAYER("t", "Eltwise", "a", "t",
               "bottom: 'b' bottom: 'c' "
               "eltwise_param { operation: PROD stable_prod_grad: false }") END("t")},
    {KINKED, "maximum",
     DATA IMAGE("a") IMAGE("b") IMAGE("c")
         LAYER("t", "Eltwise", "a", "t", "bottom: 'b' bottom: 'c' eltwise_param { operation: MAX }")
             END("t")},
    {SMOOTH, "bias", DATA INNER("a", "data", "6") LAYER("t", "Bias", "a", "t", "") END("t")},
    {SMOOTH, "bias in place on an image",
     DATA IMAGE("a") LAYER("t", "Bias", "a", "a", "") END("a")},
    {SMOOTH, "bias of rows",
     DATA IMAGE("a") LAYER("t", "Bias", "a", "a", "bias_param { axis: 2 num_axes: 1 }") END("a")},
    {SMOOTH, "bias of all",
     DATA IMAGE("a") LAYER("t", "Bias", "a", "a", "bias_param { num_axes: 0 }") END("a")},
    {SMOOTH, "scale of each place",
     DATA IMAGE("a") LAYER("t", "Scale", "a", "a", "scale_param { num_axes: -1 bias_term: true }")
         END("a")},
    {SMOOTH, "scale of columns",
     DATA IMAGE("a") LAYER("t", "Scale", "a", "t", "scale_param { axis: -1 bias_term: true }")
         END("t")},
    {SMOOTH, "scale of channels and rows",
     DATA IMAGE("a") LAYER("t", "Scale", "a", "t", "scale_param { num_axes: 2 }") END("t")},
    {SMOOTH, "scale of all",
     DATA INNER("a", "data", "6")
         LAYER("t", "Scale", "a", "a", "scale_param { num_axes: 0 bias_term: true }") END("a")},
    {SMOOTH, "a gate for each channel",
     DATA IMAGE("a") INNER("g", "data", "3")
         LAYER("t", "Scale", "a", "a", "bottom: 'g' scale_param { axis: 0 num_axes: 2 }") END("a")},
    {SMOOTH, "a gate for each place",
     DATA IMAGE("a") IMAGE("g") LAYER("t", "Scale", "a", "t", "bottom: 'g' scale_param { axis: 0 }")
         END("t")},
    {SMOOTH, "a bias for each place and each channel",
     DATA IMAGE("a") IMAGE("g") INNER("h", "data", "3")
         LAYER("t", "Bias", "a", "a", "bottom: 'g' bias_param { axis: 0 }")
             LAYER("u", "Bias", "a", "a", "bottom: 'h' bias_param { axis: 0 }") END("a")},
    {SMOOTH, "a scale that does not depend on what is learnt",
     DATA INNER("a", "data", "6") LAYER("n", "Power", "data", "n", "power_param { scale: 0.25 }")
         LAYER("m", "EuclideanLoss", "data", "m", "bottom: 'n'")
             LAYER("t", "Scale", "a", "t", "bottom: 'm' scale_param { bias_term: true }") END("t")},
    {SMOOTH, "a loss as a scale",
     DATA INNER("a", "data", "6") INNER("b", "data", "5")
         LAYER("m", "SoftmaxWithLoss", "b", "m", "bottom: 'label'")
             LAYER("t", "Scale", "a", "t", "bottom: 'm' scale_param { bias_term: true }") END("t")},
};

static void test_gradients(void **state)
{
    struct shape input = {3, {2, 7, 6}};
    for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++)
        differences_check(gradients[i].net, gradients[i].what, gradients[i].kind == KINKED, input,
                          *state);
}

/* Which of two equals gets the gradient: the second of the first two, then the earlier, as Caffe.
 */
static void test_maximum_of_equals(void **state)
{
    struct fixture f;
    fixture_open(&f,
                 DATA INNER("a", "data", "3") INNER("b", "data", "3") INNER("c", "data", "3")
                     LAYER("t", "Eltwise", "a", "t",
                           "bottom: 'b' bottom: 'c' eltwise_param { operation: MAX }") END("t"),
                 PHASE_TRAIN, 2, (struct shape){1, {4}}, *state);
    const struct segments *table = net_segments(f.net);
    for (size_t k = 2; k < 6; k++) /* b and c are copies of a */
        memcpy(f.x.at + table->at[k].offset, f.x.at + table->at[k % 2].offset,
               table->at[k].len * sizeof(float));
    fixture_gradient(&f);
    for (size_t k = 0; k < 6; k++) {
        double norm = 0.0;
        for (size_t i = 0; i < table->at[k].len; i++)
            norm += fabs((double)f.dx.at[table->at[k].offset + i]);
        assert_true((norm > 0.0) == (k / 2 == 1));
    }
    fixture_close(&f);
}

/* ---- scales over any axes ---- */

/* y = x·w + b, by index: w has the axes [axis, end) of x. */
static void expect_scaled(const struct fixture *f, struct shape x, size_t axis, size_t end,
                          const float *y, const char *what)
{
    const struct segments *table = net_segments(f->net);
    const float *w = f->x.at + table->at[0].offset, *b = f->x.at + table->at[1].offset;
    for (size_t i = 0; i < shape_count(&x); i++) {
        size_t index[SHAPE_DIMS_MAX], rest = i, at = 0;
        for (size_t k = x.n; k-- > 0; rest /= x.dim[k])
            index[k] = rest % x.dim[k];
        for (size_t k = axis; k < end; k++)
            at = at * x.dim[k] + index[k];
        double expected = (double)f->data[i] * (double)w[at] + (double)b[at];
        if (!(fabs((double)y[i] - expected) <= 1e-6))
            fail_msg("%s: y[%zu] = %g, not %g", what, i, (double)y[i], expected);
    }
}

static void test_scales_by_index(void **state)
{
    const struct kernels *kernels = *state;
    static const struct shape inputs[] = {
        {3, {3, 4, 5}}, {4, {2, 3, 2, 4}}, {1, {6}}, {3, {1, 4, 2}}};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        for (size_t axis = 1; axis <= inputs[i].n; axis++)
            for (size_t n = 0; axis + n <= inputs[i].n + 1; n++) {
                struct shape x = {inputs[i].n + 1, {2}};
                char text[1024];
                struct fixture f;
                float y[256];
                memcpy(x.dim + 1, inputs[i].dim, inputs[i].n * sizeof x.dim[0]);
                snprintf(text, sizeof text,
                         DATA LAYER("s", "Scale", "data", "y",
                                    "scale_param { axis: %d num_axes: %d bias_term: true "
                                    "filler { type: 'uniform' min: -1 } "
                                    "bias_filler { type: 'uniform' min: -1 } }"),
                         (int)axis - (n % 2 ? (int)x.n : 0), /* from the end, too */
                         axis + n == x.n && n > 1 ? -1 : (int)n);
                fixture_open(&f, text, PHASE_TEST, 2, inputs[i], kernels);
                fixture_forward(&f);
                assert_true(net_blob(f.net, "y", y, 256, NULL) == shape_count(&x));
                expect_scaled(&f, x, n ? axis : 0, n ? axis + n : 0, y, text);
                fixture_close(&f);
            }
}

/* ---- a batch that is not full ---- */

/* Values behind the records are zero, and NaN in the records must not spread. */
static void test_part_of_a_batch(void **state)
{
    static const char *const nets[] = {
        DATA LAYER("t", "Log", "data", "t", "") END("t"),
        DATA LAYER("t", "Power", "data", "t", "power_param { power: -0.5 }") END("t"),
        DATA INNER("a", "data", "6") LAYER("e", "Exp", "a", "a", "") LAYER("t", "Log", "a", "a", "")
            END("a"),
        DATA INNER("a", "data", "8") INNER("b", "data", "8")
            LAYER("t", "Eltwise", "a", "t",
                  "bottom: 'b' eltwise_param { operation: PROD stable_prod_grad: false }") END("t"),
        DATA IMAGE("a") LAYER("p", "PReLU", "a", "a", "") INNER("g", "data", "3")
            LAYER("t", "Scale", "a", "a", "bottom: 'g' scale_param { axis: 0 }") END("a"),
    };
    for (size_t i = 0; i < sizeof nets / sizeof nets[0]; i++) {
        struct fixture part, full;
        fixture_open(&part, nets[i], PHASE_TRAIN, 5, (struct shape){3, {2, 4, 3}}, *state);
        fixture_open(&full, nets[i], PHASE_TRAIN, 2, (struct shape){3, {2, 4, 3}}, *state);
        for (size_t k = 0; k < 48; k++)
            part.data[k] = full.data[k] = 0.5f + 0.25f * part.data[k];
        memcpy(part.labels, full.labels, 2 * sizeof part.labels[0]);
        if (i == 3) /* no bias: zeros behind the records remain zeros */
            for (size_t k = 1; k < 4; k += 2)
                for (size_t c = 0; c < 8; c++)
                    part.x.at[net_segments(part.net)->at[k].offset + c] =
                        full.x.at[net_segments(full.net)->at[k].offset + c] = 0.0f;
        part.batch.count = 2;
        double a = fixture_gradient(&part).loss, b = fixture_gradient(&full).loss;
        fixture_near(a, b, 1e-6);
        for (size_t k = 0; k < full.x.n; k++)
            fixture_near((double)part.dx.at[k], (double)full.dx.at[k], 1e-6);
        fixture_close(&part);
        fixture_close(&full);
    }
}

/* ---- in place ---- */

/* The same bits as with tops of their own. */
static void test_in_place(void **state)
{
    static const char *const layers[] = {
        "type: 'Power' power_param { power: 3 }",
        "type: 'Power' power_param { power: 2 shift: 1 }",
        "type: 'Power' power_param { scale: 2 }",
        "type: 'Exp'",
        "type: 'AbsVal'",
        "type: 'TanH'",
        "type: 'ELU'",
        "type: 'ELU' elu_param { alpha: -1 }",
        "type: 'PReLU'",
        "type: 'ReLU' relu_param { negative_slope: -1 }",
        "type: 'Bias'",
        "type: 'Scale' scale_param { axis: 2 }",
        "type: 'Softmax'",
        "type: 'Sigmoid'",
    };
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        struct fixture own, over;
        char text[2048];
        const char *net =
            DATA IMAGE("a") "layer { name: 't' bottom: 'a' top: '%s' %s }"
                            "layer { name: 'r' bottom: '%s' top: '%s' type: 'ReLU' }" LAYER(
                                "ip", "InnerProduct", "%s", "ip",
                                "inner_product_param { num_output: 5 "
                                "weight_filler { type: 'xavier' } }") LOSS("ip");
        snprintf(text, sizeof text, net, "a", layers[i], "a", "a", "a");
        fixture_open(&over, text, PHASE_TRAIN, 3, (struct shape){3, {2, 7, 6}}, *state);
        snprintf(text, sizeof text, net, "t", layers[i], "t", "r", "r");
        fixture_open(&own, text, PHASE_TRAIN, 3, (struct shape){3, {2, 7, 6}}, *state);
        assert_true(fixture_gradient(&over).loss == fixture_gradient(&own).loss);
        assert_memory_equal(over.dx.at, own.dx.at, own.dx.n * sizeof(float));
        assert_true(net_memory(over.net).activations <= net_memory(own.net).activations);
        fixture_close(&own);
        fixture_close(&over);
    }
}

/* ---- refusals ---- */

#define T(type, fields) DATA LAYER("t", type, "data", "t", fields)

static const struct fixture_refusal refusals[] = {
    {T("Power", "power_param { power: inf }"), ERR_INPUT, "\"t\": power_param.power: inf"},
    {T("Power", "power_param { scale: nan }"), ERR_INPUT, "power_param.scale: nan"},
    {T("Power", "power_param { shift: -inf }"), ERR_INPUT, "power_param.shift: -inf"},
    {T("Power", "exp_param { }"), ERR_UNSUPPORTED, "exp_param means nothing to type \"Power\""},
    {T("Power", "param { }"), ERR_INPUT, "\"t\": 1 param entries"},
    {T("Power", "bottom: 'label'"), ERR_INPUT, "type \"Power\" takes 1 bottoms, not 2"},
    {T("Exp", "exp_param { base: 0 }"), ERR_INPUT, "exp_param.base: 0"},
    {T("Exp", "exp_param { scale: inf }"), ERR_INPUT, "exp_param.scale: inf"},
    {T("Exp", "exp_param { shift: inf }"), ERR_INPUT, "exp_param.shift: inf"},
    {T("Log", "log_param { base: 1 }"), ERR_INPUT, "log_param.base: 1"},
    {T("Log", "log_param { base: -2 }"), ERR_INPUT, "log_param.base: -2"},
    {T("Log", "log_param { scale: inf }"), ERR_INPUT, "log_param.scale: inf"},
    {T("Log", "log_param { shift: inf }"), ERR_INPUT, "log_param.shift: inf"},
    {T("AbsVal", "relu_param { }"), ERR_UNSUPPORTED, "relu_param means nothing"},
    {T("ELU", "elu_param { alpha: nan }"), ERR_INPUT, "elu_param.alpha: nan"},
    {T("ReLU", "relu_param { negative_slope: inf }"), ERR_INPUT, "relu_param.negative_slope: inf"},
    {T("PReLU", "prelu_param { filler { type: 'x' } }"), ERR_UNSUPPORTED, "filler: filler \"x\""},
    {T("PReLU", "param { } param { }"), ERR_INPUT, "2 param entries"},
    {DATA LAYER("t", "PReLU", "label", "t", ""), ERR_INPUT, "\"label\" is 5; a PReLU takes"},
    {T("Eltwise", ""), ERR_INPUT, "type \"Eltwise\" takes 2 bottoms at least, not 1"},
    {T("Eltwise", "bottom: 'label'"), ERR_INPUT, "\"data\" is 5x3x4x4, but bottom \"label\" is 5"},
    {T("Eltwise", "bottom: 'data' eltwise_param { coeff: 1 }"), ERR_INPUT, "1 coeff for 2 bottoms"},
    {T("Eltwise", "bottom: 'data' eltwise_param { coeff: 1 coeff: inf }"), ERR_INPUT, "coeff: inf"},
    {T("Eltwise", "bottom: 'data' eltwise_param { operation: MAX coeff: 1 coeff: 1 }"), ERR_INPUT,
     "eltwise_param.coeff needs operation SUM"},
    {T("Eltwise", "bottom: 'data' eltwise_param { stable_prod_grad: true }"), ERR_INPUT,
     "stable_prod_grad needs operation PROD"},
    {DATA LAYER("t", "Eltwise", "data", "data", "bottom: 'data'"), ERR_INPUT,
     "cannot work in place"},
    {T("Bias", "bias_param { axis: 4 }"), ERR_INPUT, "\"t\": bias_param.axis: 4"},
    {T("Bias", "bias_param { axis: 0 }"), ERR_UNSUPPORTED, "bias_param.axis: 0"},
    {T("Bias", "bias_param { num_axes: 4 }"), ERR_INPUT, "bias_param.num_axes: 4"},
    {T("Bias", "bias_param { num_axes: -2 }"), ERR_INPUT, "bias_param.num_axes: -2"},
    {T("Bias", "bottom: 'label'"), ERR_INPUT,
     "\"label\" is 5, bottom \"data\" 5x3x4x4 from axis 1"},
    {T("Bias", "bottom: 'data' bias_param { axis: 0 filler { } }"), ERR_INPUT, "bias_param.filler"},
    {T("Bias", "bottom: 'data' param { } bias_param { axis: 0 }"), ERR_INPUT, "1 param entries"},
    {T("Scale", "scale_param { axis: -5 }"), ERR_INPUT, "scale_param.axis: -5"},
    {T("Scale", "scale_param { axis: -4 }"), ERR_UNSUPPORTED, "scale_param.axis: -4"},
    {T("Scale", "scale_param { axis: 3 num_axes: 2 }"), ERR_INPUT, "num_axes: 2 from axis 3"},
    {T("Scale", "bottom: 'data' scale_param { axis: 0 num_axes: 1 }"), ERR_INPUT,
     "scale_param.num_axes: 1, but bottom \"data\" has 4 axes"},
    {T("Scale", "bottom: 'data' scale_param { axis: 0 filler { } }"), ERR_INPUT,
     "scale_param.filler"},
    {T("Scale", "bottom: 'data' scale_param { axis: 0 bias_term: true }"), ERR_UNSUPPORTED,
     "scale_param.bias_term"},
    {DATA LAYER("t", "Scale", "data", "label", "bottom: 'label' scale_param { axis: 0 }"),
     ERR_INPUT, "top \"label\" is already made"},
    {DATA LAYER("i", "InnerProduct", "data", "i", "inner_product_param { num_output: 5 axis: 3 }")
         LAYER("j", "InnerProduct", "i", "j", "inner_product_param { num_output: 5 }")
             LAYER("t", "Scale", "j", "t", "bottom: 'j'"),
     ERR_INPUT, "bottom \"j\" is 5x5, bottom \"j\" 5x5 from axis 1"},
    {T("BatchNorm", "batch_norm_param { eps: -1 }"), ERR_INPUT, "batch_norm_param.eps: -1"},
};

static void test_refusals(void **state)
{
    (void)state;
    fixture_refused(refusals, sizeof refusals / sizeof refusals[0], (struct shape){3, {3, 4, 4}});
}

int main(void)
{
    struct CMUnitTest tests[] = {
        {"answers_ref", test_answers, NULL, NULL, NULL},
        {"answers_dnnl", test_answers, NULL, NULL, NULL},
        {"gradients_ref", test_gradients, NULL, NULL, NULL},
        {"gradients_dnnl", test_gradients, NULL, NULL, NULL},
        {"maximum_of_equals_ref", test_maximum_of_equals, NULL, NULL, NULL},
        {"maximum_of_equals_dnnl", test_maximum_of_equals, NULL, NULL, NULL},
        {"scales_by_index_ref", test_scales_by_index, NULL, NULL, NULL},
        {"scales_by_index_dnnl", test_scales_by_index, NULL, NULL, NULL},
        {"part_of_a_batch_ref", test_part_of_a_batch, NULL, NULL, NULL},
        {"part_of_a_batch_dnnl", test_part_of_a_batch, NULL, NULL, NULL},
        {"in_place_ref", test_in_place, NULL, NULL, NULL},
        {"in_place_dnnl", test_in_place, NULL, NULL, NULL},
        {"refusals", test_refusals, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        const struct kernels *kernels = fixture_kernels[i % FIXTURE_KERNELS];
        memcpy(&tests[i].initial_state, &kernels, sizeof kernels); /* drops a const */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
