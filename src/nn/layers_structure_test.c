/* Layers that bring values to other places, and those that work along one axis. Data are numbered:
 * what is to come out is known by index, on both kernel sets and so in both layouts. */
#include "nn/differences.h"

#include <stdio.h>

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define LAYER(name, type, bottom, top, fields) \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " fields " }\n"
#define LOSS(bottom) LAYER("loss", "SoftmaxWithLoss", bottom, "loss", "bottom: 'label'")
#define INNER(name, bottom, outputs, fields)                                               \
    LAYER(name, "InnerProduct", bottom, name,                                              \
          "inner_product_param { num_output: " outputs " weight_filler { type: 'xavier' }" \
          " bias_filler { type: 'uniform' min: -0.5 max: 0.5 } " fields " }")
#define CONV(name, bottom, outputs)                      \
    LAYER(name, "Convolution", bottom, name,             \
          "convolution_param { num_output: " outputs     \
          " weight_filler { type: 'gaussian' std: 0.4 }" \
          " bias_filler { type: 'uniform' min: -0.5 max: 0.5 } kernel_size: 3 }")
#define END(bottom) INNER("ip", bottom, "5", "") LOSS("ip")

enum { N = 2, FLOATS_MAX = 1024 };

/* Forward of numbered data; top `name`, its shape and its number of floats. */
static size_t run_net(struct fixture *f, const char *text, struct shape input,
                      const struct kernels *kernels, const char *name, float *y,
                      struct shape *shape)
{
    fixture_open(f, text, PHASE_TRAIN, N, input, kernels);
    for (size_t i = 0; i < N * shape_count(&input); i++)
        f->data[i] = (float)i;
    fixture_forward(f);
    size_t n = net_blob(f->net, name, y, FLOATS_MAX, shape);
    if (n == 0 || n > FLOATS_MAX)
        fail_msg("%s: %zu floats of \"%s\"", text, n, name);
    return n;
}

static void index_of(const struct shape *shape, size_t i, size_t *index)
{
    for (size_t k = shape->n; k-- > 0; i /= shape->dim[k])
        index[k] = i % shape->dim[k];
}

static size_t number_of(const struct shape *shape, const size_t *index)
{
    size_t i = 0;
    for (size_t k = 0; k < shape->n; k++)
        i = i * shape->dim[k] + index[k];
    return i;
}

static const struct shape inputs[] = {
    {3, {2, 3, 4}}, {3, {5, 1, 2}}, {1, {6}}, {2, {3, 4}}, {4, {2, 3, 2, 2}}};

enum { INPUTS = sizeof inputs / sizeof inputs[0] };

static struct shape batched_shape(const struct shape *input)
{
    struct shape x = {input->n + 1, {N}};
    memcpy(x.dim + 1, input->dim, input->n * sizeof x.dim[0]);
    return x;
}

/* ---- concat and slice ---- */

/* Data, their negatives, and data again. */
static void test_concat(void **state)
{
    for (size_t i = 0; i < INPUTS; i++)
        for (size_t axis = 1; axis <= inputs[i].n; axis++)
            for (int way = 0; way < 3; way++) {
                static const char *const fields[] = {"axis: %d", "concat_dim: %d", "axis: %d"};
                struct shape x = batched_shape(&inputs[i]), shape;
                struct fixture f;
                float y[FLOATS_MAX];
                char field[64], text[1024];
                snprintf(field, sizeof field, fields[way],
                         way == 2 ? (int)axis - (int)x.n : (int)axis);
                snprintf(text, sizeof text,
                         DATA LAYER("m", "Power", "data", "m", "power_param { scale: -1 }")
                             LAYER("c", "Concat", "data", "c",
                                   "bottom: 'm' bottom: 'data' concat_param { %s }"),
                         field);
                size_t n = run_net(&f, text, inputs[i], *state, "c", y, &shape);
                struct shape expected = x;
                expected.dim[axis] *= 3;
                assert_true(shape_equal(&shape, &expected));
                for (size_t k = 0; k < n; k++) {
                    size_t index[SHAPE_DIMS_MAX];
                    index_of(&shape, k, index);
                    size_t part = index[axis] / x.dim[axis];
                    index[axis] %= x.dim[axis];
                    float value = (float)number_of(&x, index);
                    assert_true(y[k] == (part == 1 ? -value : value));
                }
                fixture_close(&f);
            }
}

/* Tops from place 0, 1 and 3 of six or four, or equal parts. */
static void check_slice(const char *fields, const size_t *from, size_t tops, struct shape input,
                        size_t axis, const struct kernels *kernels)
{
    struct shape x = batched_shape(&input);
    char text[1024];
    snprintf(text, sizeof text, DATA LAYER("s", "Slice", "data", "0", "%s slice_param { %s }"),
             tops == 3 ? "top: '1' top: '2'" : "top: '1'", fields);
    for (size_t t = 0; t < tops; t++) {
        struct fixture f;
        struct shape shape;
        float y[FLOATS_MAX];
        const char name[] = {(char)('0' + t), '\0'};
        size_t n = run_net(&f, text, input, kernels, name, y, &shape);
        struct shape expected = x;
        expected.dim[axis] = from[t + 1] - from[t];
        assert_true(shape_equal(&shape, &expected));
        for (size_t k = 0; k < n; k++) {
            size_t index[SHAPE_DIMS_MAX];
            index_of(&shape, k, index);
            index[axis] += from[t];
            assert_true(y[k] == (float)number_of(&x, index));
        }
        fixture_close(&f);
    }
}

static void test_slice(void **state)
{
    static const size_t points[] = {0, 1, 3, 4}, halves[] = {0, 2, 4};
    for (size_t axis = 1; axis <= 3; axis++) {
        struct shape input = {3, {2, 3, 5}};
        char fields[128];
        input.dim[axis - 1] = 4;
        snprintf(fields, sizeof fields, "axis: %d slice_point: 1 slice_point: 3", (int)axis);
        check_slice(fields, points, 3, input, axis, *state);
        snprintf(fields, sizeof fields, "slice_dim: %d", (int)axis);
        check_slice(fields, halves, 2, input, axis, *state);
        snprintf(fields, sizeof fields, "axis: %d slice_point: 2", (int)axis - 4);
        check_slice(fields, halves, 2, input, axis, *state);
    }
    check_slice("", halves, 2, (struct shape){1, {4}}, 1, *state);
}

/* ---- the same values in another shape ---- */

static const struct {
    const char *layer;
    struct shape input;
    const char *shape;
} shapes[] = {
    {LAYER("t", "Flatten", "data", "t", ""), {3, {2, 3, 4}}, "2x24"},
    {LAYER("t", "Flatten", "data", "t", ""), {1, {4}}, "2x4"},
    {LAYER("t", "Flatten", "data", "t", "flatten_param { axis: 2 }"), {3, {2, 3, 4}}, "2x2x12"},
    {LAYER("t", "Flatten", "data", "t", "flatten_param { end_axis: -2 }"), {3, {2, 3, 4}}, "2x6x4"},
    {LAYER("t", "Flatten", "data", "t", "flatten_param { axis: 3 end_axis: 3 }"),
     {3, {2, 3, 4}},
     "2x2x3x4"},
    {LAYER("t", "Flatten", "data", "t", "flatten_param { axis: -3 end_axis: 3 }"),
     {4, {2, 3, 4, 2}},
     "2x2x12x2"},
    {LAYER("t", "Flatten", "data", "t", "flatten_param { axis: 4 }"),
     {5, {2, 3, 2, 2, 2}},
     "2x2x3x2x4"},
    {LAYER("t", "Reshape", "data", "t", "reshape_param { shape { dim: 0 dim: -1 } }"),
     {3, {2, 3, 4}},
     "2x24"},
    {LAYER("t", "Reshape", "data", "t", "reshape_param { shape { dim: 2 dim: 4 dim: 0 dim: 2 } }"),
     {3, {2, 3, 4}},
     "2x4x3x2"},
    {LAYER("t", "Reshape", "data", "t", "reshape_param { shape { dim: -1 dim: 4 dim: 3 dim: 2 } }"),
     {3, {2, 3, 4}},
     "2x4x3x2"},
    {LAYER("t", "Reshape", "data", "t",
           "reshape_param { shape { dim: 6 dim: 2 } axis: 1 num_axes: 1 }"),
     {3, {12, 1, 2}},
     "2x6x2x1x2"},
    {LAYER("t", "Reshape", "data", "t",
           "reshape_param { shape { dim: 3 dim: -1 } axis: -3 num_axes: 2 }"),
     {3, {2, 6, 2}},
     "2x2x3x4"},
    {LAYER("t", "Reshape", "data", "t", "reshape_param { shape { dim: 1 } axis: -1 }"),
     {2, {3, 4}},
     "2x3x4x1"},
    {LAYER("t", "Reshape", "data", "t", "reshape_param { shape { dim: 1 } axis: 1 num_axes: 0 }"),
     {2, {3, 4}},
     "2x1x3x4"},
    {LAYER("t", "Reshape", "data", "t", "reshape_param { axis: 2 num_axes: 1 }"),
     {3, {3, 1, 4}},
     "2x3x4"},
    {LAYER("t", "Reshape", "data", "t",
           "reshape_param { shape { dim: 0 dim: 2 dim: 2 dim: 3 dim: 2 } }"),
     {3, {4, 3, 2}},
     "2x2x2x3x2"},
    {LAYER("t", "Split", "data", "t", "top: 'u'"), {3, {2, 3, 4}}, "2x2x3x4"},
};

static void test_shapes(void **state)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct fixture f;
        struct shape shape;
        float y[FLOATS_MAX];
        char net[1024], text[128];
        snprintf(net, sizeof net, DATA "%s", shapes[i].layer);
        size_t n = run_net(&f, net, shapes[i].input, *state, "t", y, &shape);
        if (strcmp(shape_text(&shape, text, sizeof text), shapes[i].shape) != 0)
            fail_msg("%s: %s, not %s", shapes[i].layer, text, shapes[i].shape);
        for (size_t k = 0; k < n; k++)
            assert_true(y[k] == (float)k);
        fixture_close(&f);
    }
}

/* Channels-last images must be put in order, once on each way; what is in order shares memory. */
static void test_reorders(void **state)
{
    (void)state;
    static const struct {
        const char *net;
        unsigned plain, nhwc;
    } cases[] = {
        {DATA LAYER("f", "Flatten", "data", "f", ""), 0, 2},
        {DATA LAYER("r", "Reshape", "data", "r",
                    "reshape_param { shape { dim: 0 dim: 3 dim: 4 dim: 2 } }"),
         0, 4},
        {DATA LAYER("r", "Reshape", "data", "r",
                    "reshape_param { shape { dim: 0 dim: 0 dim: 0 dim: 0 } }"),
         0, 0},
        {DATA LAYER("c", "Concat", "data", "c", "bottom: 'data' concat_param { axis: 2 }"), 0, 0},
        {DATA LAYER("c", "Scale", "data", "c", "scale_param { axis: 2 num_axes: 2 }"), 0, 0},
        {DATA LAYER("c", "Softmax", "data", "c", "softmax_param { axis: 3 }"), 0, 0},
        {DATA INNER("i", "data", "3", "axis: 2"), 0, 2},
        {DATA INNER("i", "data", "3", "axis: 3"), 0, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int k = 0; k < FIXTURE_KERNELS; k++) {
            struct fixture f;
            fixture_open(&f, cases[i].net, PHASE_TRAIN, N, (struct shape){3, {2, 3, 4}},
                         fixture_kernels[k]);
            bool nhwc = fixture_kernels[k]->image_layout == LAYOUT_NHWC;
            unsigned data = nhwc ? 1 : 0; /* the data layer's own */
            unsigned n = net_copies(f.net).reorders - data;
            if (n != (nhwc ? cases[i].nhwc : cases[i].plain))
                fail_msg("%s: %u reorders", cases[i].net, n);
            fixture_close(&f);
        }
}

static void test_shared_memory(void **state)
{
    struct fixture with, without;
    fixture_open_lean(&without, DATA INNER("a", "data", "8", "") END("a"), PHASE_TRAIN, N,
                      (struct shape){1, {4}}, *state);
    fixture_open_lean(&with,
                      DATA INNER("a", "data", "8", "")
                          LAYER("r", "Reshape", "a", "r",
                                "reshape_param { shape { dim: 0 dim: 2 dim: 2 dim: 2 dim: 1 } }")
                              LAYER("f", "Flatten", "r", "f", "") END("f"),
                      PHASE_TRAIN, N, (struct shape){1, {4}}, *state);
    assert_int_equal(net_memory(with.net).activations, net_memory(without.net).activations);
    assert_int_equal(net_memory(with.net).gradients, net_memory(without.net).gradients);
    assert_true(fixture_gradient(&with).loss == fixture_gradient(&without).loss);
    assert_memory_equal(with.dx.at, without.dx.at, with.dx.n * sizeof(float));
    fixture_close(&with);
    fixture_close(&without);
}

/* ---- along an axis ---- */

static void test_softmax(void **state)
{
    for (size_t i = 0; i < INPUTS; i++)
        for (size_t axis = 1; axis <= inputs[i].n; axis++) {
            struct shape x = batched_shape(&inputs[i]), shape;
            struct fixture f;
            float y[FLOATS_MAX];
            char text[512];
            /* 'e' is e^(x/10); the sum of it along the axis is what a softmax divides by. */
            snprintf(text, sizeof text,
                     DATA LAYER("p", "Power", "data", "p", "power_param { scale: 0.1 }") LAYER(
                         "s", "Softmax", "p", "s", "softmax_param { axis: %d engine: CAFFE }"),
                     (int)axis - (i % 2 ? (int)x.n : 0));
            size_t n = run_net(&f, text, inputs[i], *state, "s", y, &shape);
            assert_true(shape_equal(&shape, &x));
            for (size_t k = 0; k < n; k++) {
                size_t index[SHAPE_DIMS_MAX];
                double sum = 0.0;
                index_of(&x, k, index);
                for (index[axis] = 0; index[axis] < x.dim[axis]; index[axis]++)
                    sum += exp(0.1 * ((double)number_of(&x, index) - (double)k));
                fixture_near((double)y[k], 1.0 / sum, 1e-6);
            }
            fixture_close(&f);
        }
}

/* y (rows, O) by hand, for w (O, I) and for its transpose. */
static void test_inner(void **state)
{
    for (size_t i = 0; i < INPUTS; i++)
        for (size_t axis = 1; axis <= inputs[i].n; axis++)
            for (int transpose = 0; transpose < 2; transpose++) {
                enum { O = 3 };
                struct shape x = batched_shape(&inputs[i]), shape;
                struct fixture f;
                float y[FLOATS_MAX];
                char text[512], a[64], b[64];
                snprintf(text, sizeof text, DATA INNER("i", "data", "3", "axis: %d transpose: %s"),
                         (int)axis - (i % 2 ? (int)x.n : 0), transpose ? "true" : "false");
                size_t n = run_net(&f, text, inputs[i], *state, "i", y, &shape);
                size_t I = shape_count_from(&x, axis);
                const struct segment *w = &net_segments(f.net)->at[0];
                snprintf(b, sizeof b, transpose ? "%zux3" : "3x%zu", I);
                assert_string_equal(shape_text(&w->shape, a, sizeof a), b);
                assert_true(shape.n == axis + 1 && shape.dim[axis] == O);
                assert_memory_equal(shape.dim, x.dim, axis * sizeof x.dim[0]);
                for (size_t k = 0; k < n; k++) {
                    size_t m = k / O, o = k % O;
                    double sum = (double)f.x.at[net_segments(f.net)->at[1].offset + o], size = 1.0;
                    for (size_t j = 0; j < I; j++) {
                        size_t at = transpose ? j * O + o : o * I + j;
                        double term = (double)f.x.at[w->offset + at] * (double)(m * I + j);
                        sum += term;
                        size += fabs(term);
                    }
                    fixture_near((double)y[k], sum, 1e-6 * size);
                }
                fixture_close(&f);
            }
}

/* ---- gradients ---- */

static const struct {
    const char *what, *net;
} gradients[] = {
    {"concat along channels", DATA CONV("a", "data", "3") CONV("b", "data", "2") LAYER(
                                  "t", "Concat", "a", "t", "bottom: 'b' bottom: 'a'") END("t")},
    {"concat along rows",
     DATA CONV("a", "data", "3") CONV("b", "data", "3")
         LAYER("t", "Concat", "a", "t", "bottom: 'b' concat_param { axis: 2 }") END("t")},
    {"concat of what is learnt and what is not",
     DATA INNER("a", "data", "4", "") LAYER("d", "Flatten", "data", "d", "")
         LAYER("t", "Concat", "d", "t", "bottom: 'a'") END("t")},
    {"slice, one of whose tops is left",
     DATA CONV("a", "data", "6")
         LAYER("s", "Slice", "a", "0",
               "top: '1' top: '2' slice_param { slice_point: 1 slice_point: "
               "3 }") "layer { name: 'q' type: 'Silence' bottom: '1' "
                      "bottom: 'label' }" LAYER("t", "Concat", "2", "t", "bottom: '0'") END("t")},
    {"split", DATA CONV("a", "data", "3") LAYER("s", "Split", "a", "0", "top: '1' top: '2'")
                  LAYER("p", "Power", "1", "1", "power_param { power: 2 }")
                      LAYER("t", "Eltwise", "0", "t", "bottom: '1'") END("t")},
    {"split of labels",
     DATA LAYER("s", "Split", "label", "l", "top: 'm'") INNER("a", "data", "5", "")
         LAYER("loss", "SoftmaxWithLoss", "a", "loss", "bottom: 'm'")},
    {"flatten and reshape",
     DATA CONV("a", "data", "4") LAYER("f", "Flatten", "a", "f", "")
         LAYER("r", "Reshape", "f", "r", "reshape_param { shape { dim: 0 dim: 5 dim: 8 dim: -1 } }")
             CONV("b", "r", "3") LAYER("g", "Reshape", "b", "g",
                                       "reshape_param { shape { dim: 0 dim: 2 "
                                       "dim: 3 dim: -1 } }") END("g")},
    {"softmax along rows", DATA CONV("a", "data", "3") LAYER("h", "TanH", "a", "a", "") LAYER(
                               "t", "Softmax", "a", "a", "softmax_param { axis: 2 }") END("a")},
    {"softmax of pixels", DATA CONV("a", "data", "4") LAYER("t", "Softmax", "a", "t", "") END("t")},
    {"inner product of rows", DATA CONV("a", "data", "3") INNER("t", "a", "3", "axis: 2") END("t")},
    {"inner product of columns, transposed",
     DATA CONV("a", "data", "3") INNER("t", "a", "2", "axis: 3 transpose: true") CONV(
         "b", "data", "2") LAYER("c", "Flatten", "t", "c", "") LAYER("d", "Flatten", "b", "d", "")
         LAYER("e", "Concat", "c", "e", "bottom: 'd'") END("e")},
    {"inner product, transposed",
     DATA CONV("a", "data", "3") INNER("t", "a", "6", "transpose: true")
         INNER("u", "t", "5", "transpose: true bias_term: false") LOSS("u")},
};

static void test_gradients(void **state)
{
    for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++)
        differences_check(gradients[i].net, gradients[i].what, false, (struct shape){3, {2, 7, 10}},
                          *state);
}

/* A loss is a number without axes: it has no rows to reshape, but a mask. */
static void test_numbers(void **state)
{
    struct fixture f;
    fixture_open(&f,
                 DATA INNER("a", "data", "5", "") LOSS("a")
                     LAYER("d", "Dropout", "loss", "d", "dropout_param { dropout_ratio: 0 }")
                         LAYER("p", "Power", "d", "p", "power_param { scale: 2 shift: 1 }")
                             LAYER("e", "Eltwise", "p", "e", "bottom: 'loss'"),
                 PHASE_TRAIN, N, (struct shape){1, {4}}, *state);
    float loss, y;
    struct shape shape;
    fixture_gradient(&f);
    assert_int_equal(net_blob(f.net, "loss", &loss, 1, &shape), 1);
    assert_int_equal(net_blob(f.net, "e", &y, 1, &shape), 1);
    assert_int_equal(shape.n, 0);
    fixture_near((double)y, 3.0 * (double)loss + 1.0, 1e-5);
    fixture_close(&f);
}

/* ---- refusals ---- */

#define T(type, fields) DATA LAYER("t", type, "data", "t", fields)

static const struct fixture_refusal refusals[] = {
    {T("Concat", "concat_param { axis: 0 }"), ERR_UNSUPPORTED, "\"t\": concat_param.axis: 0"},
    {T("Concat", "concat_param { axis: 4 }"), ERR_INPUT, "concat_param.axis: 4"},
    {T("Concat", "concat_param { concat_dim: 0 }"), ERR_UNSUPPORTED, "concat_param.concat_dim: 0"},
    {T("Concat", "concat_param { concat_dim: 4294967295 }"), ERR_INPUT, "concat_dim: 4294967295"},
    {T("Concat", "concat_param { concat_dim: 1 axis: 1 }"), ERR_INPUT, "cannot both be given"},
    {T("Concat", "bottom: 'label'"), ERR_INPUT, "\"data\" is 5x3x4x2, bottom \"label\" 5"},
    {T("Concat", "param { }"), ERR_INPUT, "1 param entries"},
    {DATA LAYER("t", "Concat", "data", "data", ""), ERR_INPUT, "cannot work in place"},
    {DATA LAYER("f", "Flatten", "data", "f", "flatten_param { axis: 2 }")
         LAYER("t", "Concat", "f", "t", "bottom: 'data'"),
     ERR_INPUT, "they differ in more than axis 1"},
    {T("Slice", "top: 'u'"), ERR_INPUT, "3 places cannot be cut into 2"},
    {T("Slice", "top: 'u' slice_param { axis: 0 }"), ERR_UNSUPPORTED, "slice_param.axis: 0"},
    {T("Slice", "top: 'u' slice_param { axis: 2 slice_dim: 2 }"), ERR_INPUT, "cannot both"},
    {T("Slice", "top: 'u' slice_param { slice_dim: 7 }"), ERR_INPUT, "slice_param.slice_dim: 7"},
    {T("Slice", "slice_param { slice_point: 1 }"), ERR_INPUT, "1 slice_point for 1 tops, not 0"},
    {T("Slice", "top: 'u' slice_param { slice_point: 3 }"), ERR_INPUT, "from position 3 to 3 of 3"},
    {T("Slice", "top: 'u' slice_param { slice_point: 0 }"), ERR_INPUT, "from position 0 to 0 of 3"},
    {T("Slice", "top: 'u' slice_param { slice_point: 9 }"), ERR_INPUT, "from position 0 to 9 of 3"},
    {T("Slice", "top: 'u' top: 'v' slice_param { slice_point: 2 slice_point: 1 }"), ERR_INPUT,
     "from position 2 to 1 of 3"},
    {T("Flatten", "flatten_param { axis: 0 }"), ERR_UNSUPPORTED, "flatten_param.axis: 0"},
    {T("Flatten", "flatten_param { end_axis: 0 }"), ERR_UNSUPPORTED, "flatten_param.end_axis: 0"},
    {T("Flatten", "flatten_param { end_axis: 5 }"), ERR_INPUT, "flatten_param.end_axis: 5"},
    {T("Flatten", "flatten_param { axis: 2 end_axis: 1 }"), ERR_INPUT,
     "end_axis: 1 is before axis 2"},
    {DATA LAYER("t", "Flatten", "label", "t", ""), ERR_INPUT, "flatten_param.axis: 1"},
    {DATA LAYER("t", "Flatten", "data", "data", ""), ERR_INPUT, "cannot work in place"},
    {T("Reshape", ""), ERR_INPUT, "5x3x4x2 and cannot be scalar"},
    {T("Reshape", "reshape_param { shape { dim: -1 } }"), ERR_UNSUPPORTED,
     "would be 120; the first axis has the records"},
    {T("Reshape", "reshape_param { shape { dim: 0 dim: 7 } }"), ERR_INPUT, "cannot be 5x7"},
    {T("Reshape", "reshape_param { shape { dim: 0 dim: 7 dim: -1 } }"), ERR_INPUT, "cannot be"},
    {T("Reshape", "reshape_param { shape { dim: -1 dim: -1 } }"), ERR_INPUT, "-1 is given twice"},
    {T("Reshape", "reshape_param { shape { dim: -2 } }"), ERR_INPUT,
     "dimension -2 is out of range"},
    {T("Reshape", "reshape_param { shape { dim: 99999999999 } }"), ERR_INPUT, "99999999999"},
    {T("Reshape", "reshape_param { shape { dim: 2147483647 dim: 2147483647 dim: 2147483647 } }"),
     ERR_INPUT, "cannot be"},
    {T("Reshape", "reshape_param { shape { dim: 0 dim: 0 dim: 0 dim: 0 dim: 0 } }"), ERR_INPUT,
     "0 where the bottom has no axis 4"},
    {T("Reshape", "reshape_param { axis: 5 }"), ERR_INPUT, "reshape_param.axis: 5"},
    {T("Reshape", "reshape_param { axis: -6 }"), ERR_INPUT, "reshape_param.axis: -6"},
    {T("Reshape", "reshape_param { axis: 3 num_axes: 2 }"), ERR_INPUT, "reshape_param.num_axes: 2"},
    {T("Reshape", "reshape_param { num_axes: -2 }"), ERR_INPUT, "reshape_param.num_axes: -2"},
    {T("Reshape", "reshape_param { axis: 4 shape { dim: 1 dim: 1 dim: 1 dim: 1 dim: 1 } }"),
     ERR_INPUT, "9 dimensions, at most 8"},
    {T("Split", "bottom: 'label'"), ERR_INPUT, "takes 1 bottoms at most"},
    {T("Silence", ""), ERR_INPUT, "type \"Silence\" makes no tops"},
    {DATA "layer { name: 't' type: 'Silence' }", ERR_INPUT, "takes 1 bottoms at least"},
    {T("Softmax", "softmax_param { axis: 0 }"), ERR_UNSUPPORTED, "softmax_param.axis: 0"},
    {T("Softmax", "softmax_param { axis: 4 }"), ERR_INPUT, "softmax_param.axis: 4"},
    {T("InnerProduct", "inner_product_param { num_output: 2 axis: 0 }"), ERR_UNSUPPORTED,
     "inner_product_param.axis: 0"},
    {T("InnerProduct", "inner_product_param { num_output: 2 axis: 4 }"), ERR_INPUT, "axis: 4"},
    {T("InnerProduct", ""), ERR_INPUT, "inner_product_param.num_output must be positive"},
};

static void test_refusals(void **state)
{
    (void)state;
    fixture_refused(refusals, sizeof refusals / sizeof refusals[0], (struct shape){3, {3, 4, 2}});
}

int main(void)
{
    struct CMUnitTest tests[] = {
        {"concat_ref", test_concat, NULL, NULL, NULL},
        {"concat_dnnl", test_concat, NULL, NULL, NULL},
        {"slice_ref", test_slice, NULL, NULL, NULL},
        {"slice_dnnl", test_slice, NULL, NULL, NULL},
        {"shapes_ref", test_shapes, NULL, NULL, NULL},
        {"shapes_dnnl", test_shapes, NULL, NULL, NULL},
        {"shared_memory_ref", test_shared_memory, NULL, NULL, NULL},
        {"shared_memory_dnnl", test_shared_memory, NULL, NULL, NULL},
        {"softmax_ref", test_softmax, NULL, NULL, NULL},
        {"softmax_dnnl", test_softmax, NULL, NULL, NULL},
        {"inner_ref", test_inner, NULL, NULL, NULL},
        {"inner_dnnl", test_inner, NULL, NULL, NULL},
        {"gradients_ref", test_gradients, NULL, NULL, NULL},
        {"gradients_dnnl", test_gradients, NULL, NULL, NULL},
        {"numbers_ref", test_numbers, NULL, NULL, NULL},
        {"numbers_dnnl", test_numbers, NULL, NULL, NULL},
        {"reorders", test_reorders, NULL, NULL, NULL},
        {"refusals", test_refusals, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        const struct kernels *kernels = fixture_kernels[i % FIXTURE_KERNELS];
        memcpy(&tests[i].initial_state, &kernels, sizeof kernels); /* drops a const */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
