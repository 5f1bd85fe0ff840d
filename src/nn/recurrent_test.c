/* Recurrent layers: gradients against differences of the loss, the state that a batch carries, and
 * what is refused. test/golden/layers_sequence.py has their values. */
#include "nn/differences.h"

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define LOSS(bottom)                                                                        \
    "layer { name: 'ip' type: 'InnerProduct' bottom: '" bottom "' top: 'ip' "               \
    "inner_product_param { num_output: 5 weight_filler { type: 'gaussian' std: 0.8 } } }\n" \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n"
#define FILLERS                                                            \
    " weight_filler { type: 'uniform' min: -1.5 max: 1.5 } bias_filler { " \
    "type: 'uniform' min: -0.5 max: 0.5 }"
#define UNITS(name, type, bottoms, tops, message, fields)                     \
    "layer { name: '" name "' type: '" type "' " bottoms " " tops " " message \
    " { num_output: 4 " fields FILLERS " } }\n"
#define LSTM(name, bottoms, tops, fields) \
    UNITS(name, "LSTM", bottoms, tops, "recurrent_param", fields)
#define RNN(name, bottoms, tops, fields) \
    UNITS(name, "RNN", bottoms, tops, "recurrent_param", fields)
#define GRU(name, bottoms, tops, fields) UNITS(name, "GRU", bottoms, tops, "gru_param", fields)

/* x, N x 7 x 5, and marks of 0.7, of which the state before a step is multiplied. */
#define PARTS                                                                       \
    DATA "layer { name: 'parts' type: 'Slice' bottom: 'data' top: 'x' top: 'rest' " \
         "slice_param { axis: 2 slice_point: 5 } }\n"                               \
         "layer { name: 'mark' type: 'Power' bottom: 'rest' top: 'mark' "           \
         "power_param { scale: 0 shift: 0.7 } }\n"                                  \
         "layer { name: 'cont' type: 'Reshape' bottom: 'mark' top: 'cont' "         \
         "reshape_param { shape { dim: 0 dim: 7 } } }\n"

/* Vectors of a record, learnt: a static input, and a state. */
#define VECTOR(name)                                                                        \
    "layer { name: '" name ".all' type: 'InnerProduct' bottom: 'data' top: '" name ".all' " \
    "inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }\n"            \
    "layer { name: '" name "' type: 'Reshape' bottom: '" name ".all' top: '" name "' "      \
    "reshape_param { shape { dim: 0 dim: 1 dim: 4 } } }\n"

#define CONT "bottom: 'x' bottom: 'cont'"

static const struct {
    const char *what, *net;
} cases[] = {
    {"lstm", DATA LSTM("a", "bottom: 'data'", "top: 'a'", "") LOSS("a")},
    {"lstm with cont", PARTS LSTM("a", CONT, "top: 'a'", "") LOSS("a")},
    {"lstm, two layers", /* the first one's gradient alone would be lost in the loss's rounding */
     DATA LSTM("a", "bottom: 'data'", "top: 'a'", "")
         LSTM("b", "bottom: 'a'", "top: 'b'", "") "layer { name: 'all' type: 'Concat' bottom: 'a' "
                                                  "bottom: 'b' top: 'all' }\n" LOSS("all")},
    {"lstm with a static input",
     PARTS VECTOR("s") LSTM("a", CONT " bottom: 's'", "top: 'a'", "") LOSS("a")},
    {"lstm from a learnt state to its last",
     PARTS VECTOR("h") VECTOR("c")
         LSTM("a", CONT " bottom: 'h' bottom: 'c'", "top: 'a' top: 'hl' top: 'cl'",
              "expose_hidden: true") "layer { name: 'all' type: 'Concat' bottom: 'a' bottom: 'hl' "
                                     "bottom: 'cl' top: 'all' }\n" LOSS("all")},
    {"rnn", DATA RNN("a", "bottom: 'data'", "top: 'a'", "") LOSS("a")},
    {"rnn without the output's product",
     DATA RNN("a", "bottom: 'data'", "top: 'a'", "output_product: false") LOSS("a")},
    {"rnn with cont, without the output's product",
     PARTS RNN("a", CONT, "top: 'a'", "output_product: false") LOSS("a")},
    {"rnn with cont", PARTS RNN("a", CONT, "top: 'a'", "") LOSS("a")},
    {"rnn from a learnt state to its last",
     PARTS VECTOR("s") VECTOR("h")
         RNN("a", CONT " bottom: 's' bottom: 'h'", "top: 'a' top: 'hl'",
             "expose_hidden: true") "layer { name: 'all' type: 'Concat' bottom: 'a' bottom: 'hl' "
                                    "top: 'all' }\n" LOSS("all")},
    {"gru", DATA GRU("a", "bottom: 'data'", "top: 'a'", "") LOSS("a")},
    {"gru with cont", PARTS GRU("a", CONT, "top: 'a'", "") LOSS("a")},
    {"gru, its reset gate first",
     DATA GRU("a", "bottom: 'data'", "top: 'a'", "reset_first: true") LOSS("a")},
    {"gru with cont, its reset gate first",
     PARTS GRU("a", CONT, "top: 'a'", "reset_first: true") LOSS("a")},
    {"gru from a learnt state to its last, its reset gate first",
     PARTS VECTOR("s") VECTOR("h") GRU(
         "a", CONT " bottom: 's' bottom: 'h'", "top: 'a' top: 'hl'",
         "reset_first: true expose_hidden: true") "layer { name: 'all' type: 'Concat' bottom: 'a' "
                                                  "bottom: 'hl' top: 'all' }\n" LOSS("all")},
    {"gru from a learnt state to its last",
     PARTS VECTOR("s") VECTOR("h")
         GRU("a", CONT " bottom: 's' bottom: 'h'", "top: 'a' top: 'hl'",
             "expose_hidden: true") "layer { name: 'all' type: 'Concat' bottom: 'a' bottom: 'hl' "
                                    "top: 'all' }\n" LOSS("all")},
    {"lstm, reverse", DATA LSTM("a", "bottom: 'data'", "top: 'a'", "reverse: true") LOSS("a")},
    {"rnn, reverse",
     DATA RNN("a", "bottom: 'data'", "top: 'a'", "output_product: false reverse: true") LOSS("a")},
    {"gru, reverse", DATA GRU("a", "bottom: 'data'", "top: 'a'", "reverse: true") LOSS("a")},
    {"gru, reverse, its reset gate first",
     DATA GRU("a", "bottom: 'data'", "top: 'a'", "reverse: true reset_first: true") LOSS("a")},
    {"embed",
     DATA "layer { name: 'n' type: 'Power' bottom: 'data' top: 'n' power_param { scale: 2.5 shift: "
          "2.5 } }\n"
          "layer { name: 'm' type: 'Reshape' bottom: 'n' top: 'm' reshape_param { shape { dim: 0 "
          "dim: 42 } } }\n"
          "layer { name: 'e' type: 'Embed' bottom: 'm' top: 'e' embed_param { num_output: 3 "
          "input_dim: 5 weight_filler { type: 'gaussian' std: 0.5 } } }\n" LOSS("e")},
};

static void test_gradients(void **state)
{
    const struct kernels *kernels = *state;
    const struct shape input = {2, {7, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        differences_check(cases[i].net, cases[i].what, false, input, kernels);
}

/* ---- the state that a batch carries ---- */

enum { RECORDS = 3, STEPS = 6, WIDTH = 5, UNITS_OF_A = 4 };

#define STACK                                                                                \
    DATA LSTM("a", "bottom: 'data'", "top: 'a'", "") GRU("b", "bottom: 'a'", "top: 'b'", "") \
        RNN("c", "bottom: 'b'", "top: 'c'", "") LOSS("c")

static struct shape steps_of(size_t steps)
{
    return (struct shape){2, {steps, WIDTH}};
}

/* The steps [from, from + steps) of each of the whole's records. */
static void take_steps(struct fixture *part, const struct fixture *whole, size_t from, size_t steps)
{
    for (size_t n = 0; n < RECORDS; n++)
        memcpy(part->data + n * steps * WIDTH, whole->data + (n * STEPS + from) * WIDTH,
               steps * WIDTH * sizeof(float));
}

static void read_tops(struct fixture *f, const char *name, float *out, size_t n)
{
    struct shape shape;
    fixture_forward(f);
    assert_int_equal(net_blob(f->net, name, out, n, &shape), n);
}

/* Two windows, of which the second begins with what the first ends with, are one of their length.
 */
static void test_carried_over_a_border(void **state)
{
    const struct kernels *kernels = *state;
    enum { FIRST = 4, REST = STEPS - FIRST };
    struct fixture whole, first, rest;
    float all[RECORDS * STEPS * UNITS_OF_A], a[RECORDS * FIRST * UNITS_OF_A];
    float b[RECORDS * REST * UNITS_OF_A], carried[RECORDS * 4 * UNITS_OF_A] = {0};
    fixture_open(&whole, STACK, PHASE_TRAIN, RECORDS, steps_of(STEPS), kernels);
    fixture_open(&first, STACK, PHASE_TRAIN, RECORDS, steps_of(FIRST), kernels);
    fixture_open(&rest, STACK, PHASE_TRAIN, RECORDS, steps_of(REST), kernels);
    assert_int_equal(net_carried(whole.net), 4 * UNITS_OF_A); /* LSTM h, c; GRU h; RNN h */
    take_steps(&first, &whole, 0, FIRST);
    take_steps(&rest, &whole, FIRST, REST);
    first.batch.carried = rest.batch.carried = carried;
    read_tops(&whole, "c", all, sizeof all / sizeof *all);
    read_tops(&first, "c", a, sizeof a / sizeof *a);
    read_tops(&rest, "c", b, sizeof b / sizeof *b);
    for (size_t n = 0; n < RECORDS; n++)
        for (size_t i = 0; i < STEPS * UNITS_OF_A; i++) {
            size_t t = i / UNITS_OF_A, u = i % UNITS_OF_A;
            float got = t < FIRST ? a[(n * FIRST + t) * UNITS_OF_A + u]
                                  : b[(n * REST + t - FIRST) * UNITS_OF_A + u];
            fixture_near((double)got, (double)all[n * STEPS * UNITS_OF_A + i], 1e-6);
        }
    read_tops(&rest, "c", b, sizeof b / sizeof *b); /* continues once more */
    size_t same = 0;
    for (size_t i = 0; i < sizeof b / sizeof *b; i++)
        same += b[i] == all[(i / (REST * UNITS_OF_A)) * STEPS * UNITS_OF_A + FIRST * UNITS_OF_A +
                            i % (REST * UNITS_OF_A)];
    assert_true(same < sizeof b / sizeof *b);
    fixture_close(&whole);
    fixture_close(&first);
    fixture_close(&rest);
}

/* A layer that reads backwards has nothing to hand to the next window, and takes nothing. */
static void test_carried_by_no_reverse(void **state)
{
    struct fixture f;
    float none[1] = {3.0f}, with[RECORDS * STEPS * UNITS_OF_A], alone[RECORDS * STEPS * UNITS_OF_A];
    fixture_open(&f, DATA LSTM("a", "bottom: 'data'", "top: 'a'", "reverse: true") LOSS("a"),
                 PHASE_TRAIN, RECORDS, steps_of(STEPS), *state);
    assert_int_equal(net_carried(f.net), 0);
    read_tops(&f, "a", alone, sizeof alone / sizeof *alone);
    f.batch.carried = none;
    read_tops(&f, "a", with, sizeof with / sizeof *with);
    assert_memory_equal(with, alone, sizeof with);
    assert_true(none[0] == 3.0f);
    fixture_close(&f);
}

/* A batch of fewer records than the net is planned for reads and writes the state of these alone.
 */
static void test_carried_of_a_part(void **state)
{
    const struct kernels *kernels = *state;
    struct fixture f;
    float carried[RECORDS * 4 * UNITS_OF_A], some[RECORDS * STEPS * UNITS_OF_A];
    float all[RECORDS * STEPS * UNITS_OF_A];
    fixture_open(&f, STACK, PHASE_TRAIN, RECORDS, steps_of(STEPS), kernels);
    for (int part = 0; part < 2; part++) {
        for (size_t i = 0; i < sizeof carried / sizeof *carried; i++)
            carried[i] = 0.25f + (float)i / 64.0f;
        f.batch.carried = carried;
        f.batch.count = part ? RECORDS - 1 : RECORDS;
        read_tops(&f, "c", part ? some : all, f.batch.count * STEPS * UNITS_OF_A);
    }
    for (size_t i = 0; i < (RECORDS - 1) * STEPS * UNITS_OF_A; i++)
        assert_true(some[i] == all[i]);
    for (size_t i = (RECORDS - 1) * 4 * UNITS_OF_A; i < sizeof carried / sizeof *carried; i++)
        assert_true(carried[i] == 0.25f + (float)i / 64.0f);
    fixture_close(&f);
}

/* The gradient stops at the border: it is that of a state that is given. */
static void test_gradient_stops_at_the_border(void **state)
{
    const struct kernels *kernels = *state;
    struct fixture f;
    float carried[RECORDS * 4 * UNITS_OF_A], given[RECORDS * 4 * UNITS_OF_A];
    fixture_open(&f, STACK, PHASE_TRAIN, RECORDS, steps_of(STEPS), kernels);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        given[i] = rng_uniform(5, 6, i) - 0.5f;
    f.batch.carried = carried;
    memcpy(carried, given, sizeof carried);
    fixture_gradient(&f);
    for (size_t k = 0; k < f.x.n; k += 7) {
        double loss[2], expected = (double)f.dx.at[k];
        float x = f.x.at[k], h = 0x1p-7f;
        for (int side = 0; side < 2; side++) {
            f.x.at[k] = side ? x + h : x - h;
            memcpy(carried, given, sizeof carried);
            loss[side] = fixture_forward(&f).loss / RECORDS;
        }
        f.x.at[k] = x;
        fixture_near((loss[1] - loss[0]) / (2.0 * (double)h), expected, 2e-3);
    }
    fixture_close(&f);
}

/* ---- padding: steps whose label is ignored ---- */

#define PADDED(units)                                                                           \
    PARTS VECTOR("h")                                                                           \
        VECTOR("c") "layer { name: 'e' type: 'InnerProduct' bottom: 'x' "                       \
                    "top: 'e' inner_product_param { num_output: 3 axis: 2 "                     \
                    "weight_filler { type: 'gaussian' std: 0.8 } } }\n" units                   \
                    "layer { name: 'ip' type: 'InnerProduct' bottom: 'a' top: 'ip' "            \
                    "inner_product_param { num_output: 2 axis: 2 weight_filler { type: "        \
                    "'gaussian' std: 0.8 } } }\n"                                               \
                    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'rest' " \
                    "top: 'loss' softmax_param { axis: 2 } loss_param { ignore_label: -1 } }\n"
#define PADDED_CONT "bottom: 'e' bottom: 'cont'"

/* The labels are the last column of x. */
static void label_steps(struct fixture *f, const size_t *lengths)
{
    for (size_t i = 0; i < RECORDS * 7; i++)
        f->data[i * 6 + 5] = i % 7 < lengths[i / 7] ? (float)(i % 2) : -1.0f;
}

/* A record of padding alone leaves no trace in the gradients, of inputs and of first states either:
 * they pass to the weights of e, h.all and c.all. Of such records alone all gradients are 0. */
static void test_padding_alone(void **state)
{
    static const char *const nets[] = {
        PADDED(LSTM("a", PADDED_CONT " bottom: 'h' bottom: 'c'", "top: 'a' top: 'hl' top: 'cl'",
                    "expose_hidden: true")),
        PADDED(GRU("a", PADDED_CONT " bottom: 'c' bottom: 'h'", "top: 'a' top: 'hl'",
                   "expose_hidden: true")),
        PADDED(RNN("a", PADDED_CONT " bottom: 'c' bottom: 'h'", "top: 'a' top: 'hl'",
                   "expose_hidden: true output_product: false")),
    };
    static const size_t lengths[] = {7, 0, 1}, none[RECORDS] = {0};
    for (size_t k = 0; k < sizeof nets / sizeof *nets; k++) {
        struct fixture f;
        fixture_open(&f, nets[k], PHASE_TRAIN, RECORDS, (struct shape){2, {7, 6}}, *state);
        float *before = arena_array(&f.arena, f.dx.n, float);
        assert_non_null(before);
        label_steps(&f, lengths);
        double loss = fixture_gradient(&f).loss;
        memcpy(before, f.dx.at, f.dx.n * sizeof *before);
        for (size_t i = 7 * 6; i < 2 * 7 * 6; i++)
            f.data[i] = 1.5f - 2.0f * f.data[i];
        label_steps(&f, lengths);
        assert_true(fixture_gradient(&f).loss == loss && loss > 0);
        for (size_t s = 0; s < net_segments(f.net)->count; s++) {
            const struct segment *segment = &net_segments(f.net)->at[s];
            size_t zeros = 0;
            for (size_t i = segment->offset; i < segment->offset + segment->len; i++) {
                assert_true(f.dx.at[i] == before[i]);
                zeros += before[i] == 0.0f;
            }
            assert_true(zeros < segment->len);
        }
        label_steps(&f, none);
        assert_true(fixture_gradient(&f).loss == 0);
        for (size_t i = 0; i < f.dx.n; i++)
            assert_true(f.dx.at[i] == 0.0f);
        fixture_close(&f);
    }
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct fixture_refusal list[] = {
        {DATA "layer { name: 'a' type: 'LSTM' bottom: 'data' top: 'a' }" LOSS("a"), ERR_INPUT,
         "layer \"a\": recurrent_param.num_output must be positive"},
        {DATA "layer { name: 'a' type: 'GRU' bottom: 'data' top: 'a' recurrent_param { num_output: "
              "2 } }" LOSS("a"),
         ERR_UNSUPPORTED, "recurrent_param means nothing to type \"GRU\""},
        {DATA "layer { name: 'a' type: 'LSTM' bottom: 'data' bottom: 'label' top: 'a' "
              "recurrent_param { num_output: 2 } }" LOSS("a"),
         ERR_INPUT, "bottom \"label\", the marks of continuation, is 5, not 5x7"},
        {DATA "layer { name: 'a' type: 'LSTM' bottom: 'label' top: 'a' recurrent_param { "
              "num_output: 2 } }" LOSS("a"),
         ERR_INPUT, "bottom \"label\" is 5; sequences are NxTx..: records, then steps"},
        {DATA "layer { name: 'a' type: 'LSTM' bottom: 'data' top: 'a' recurrent_param { "
              "num_output: 2 debug_info: true } }" LOSS("a"),
         ERR_UNSUPPORTED, "recurrent_param.debug_info: true is not supported"},
        {DATA LSTM("a", "bottom: 'data'", "top: 'a'", "output_product: false") LOSS("a"), ERR_INPUT,
         "recurrent_param.output_product: an LSTM has no product for its output"},
        {PARTS LSTM("a", CONT, "top: 'a'", "reverse: true") LOSS("a"), ERR_UNSUPPORTED,
         "recurrent_param.reverse: true is supported for one bottom, the sequences"},
        {DATA LSTM("a", "bottom: 'data'", "top: 'a'", "expose_hidden: true") LOSS("a"), ERR_INPUT,
         "bottoms"},
        {PARTS LSTM("a", CONT " bottom: 'x' bottom: 'x'", "top: 'a' top: 'b' top: 'c'",
                    "expose_hidden: true") LOSS("a"),
         ERR_INPUT, "bottom \"x\", the state before the steps, is 5x7x5, not 5x1x4"},
        {PARTS "layer { name: 'm' type: 'Scale' bottom: 'cont' top: 'm' }\n" LSTM(
             "a", "bottom: 'x' bottom: 'm'", "top: 'a'", "") LOSS("a"),
         ERR_INPUT, "type \"LSTM\" has no gradient for bottom \"m\""},
        {DATA "layer { name: 'e' type: 'Embed' bottom: 'data' top: 'e' embed_param { num_output: 3 "
              "} }" LOSS("e"),
         ERR_INPUT, "embed_param.input_dim: 0 is out of range, 1 to 16777216"},
        {DATA "layer { name: 'e' type: 'Embed' bottom: 'data' top: 'e' embed_param { input_dim: 3 "
              "} }" LOSS("e"),
         ERR_INPUT, "embed_param.num_output must be positive"},
        {DATA "layer { name: 'e' type: 'Embed' bottom: 'data' top: 'e' embed_param { input_dim: 3 "
              "num_output: 2 } }" LOSS("e"),
         ERR_UNSUPPORTED, "bottom \"data\" is 5x7x6; numbers of N records, or of NxT steps"},
        {PARTS "layer { name: 'm' type: 'Scale' bottom: 'cont' top: 'm' }\n"
               "layer { name: 'e' type: 'Embed' bottom: 'm' top: 'e' embed_param { num_output: 3 "
               "input_dim: 5 } }\n" LOSS("e"),
         ERR_INPUT, "type \"Embed\" has no gradient for bottom \"m\""},
    };
    fixture_refused(list, sizeof list / sizeof list[0], (struct shape){2, {7, 6}});
    static const struct fixture_refusal image[] = {
        {DATA LSTM("a", "bottom: 'data'", "top: 'a'", "") LOSS("a"), ERR_UNSUPPORTED,
         "bottom \"data\", 5x2x7x6, is an image; Reshape makes vectors of it"},
    };
    fixture_refused(image, 1, (struct shape){3, {2, 7, 6}});
}

/* A number that has no row shows in the loss. */
static void test_embed_out_of_range(void **state)
{
    static const float wrong[] = {5.0f, -1.0f, 1e30f};
    struct fixture f;
    fixture_open(&f,
                 DATA "layer { name: 'e' type: 'Embed' bottom: 'data' top: 'e' embed_param { "
                      "num_output: 3 input_dim: 5 } }\n" LOSS("e"),
                 PHASE_TRAIN, 2, (struct shape){1, {4}}, *state);
    for (size_t i = 0; i < 8; i++)
        f.data[i] = (float)(i % 5);
    assert_true(isfinite(fixture_gradient(&f).loss));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        f.data[6] = wrong[i];
        assert_true(isnan(fixture_gradient(&f).loss));
    }
    fixture_close(&f);
}

int main(void)
{
    struct CMUnitTest tests[] = {
        {"gradients_ref", test_gradients, NULL, NULL, NULL},
        {"gradients_dnnl", test_gradients, NULL, NULL, NULL},
        {"carried_over_a_border_ref", test_carried_over_a_border, NULL, NULL, NULL},
        {"carried_over_a_border_dnnl", test_carried_over_a_border, NULL, NULL, NULL},
        {"carried_of_a_part_ref", test_carried_of_a_part, NULL, NULL, NULL},
        {"carried_of_a_part_dnnl", test_carried_of_a_part, NULL, NULL, NULL},
        {"carried_by_no_reverse_ref", test_carried_by_no_reverse, NULL, NULL, NULL},
        {"carried_by_no_reverse_dnnl", test_carried_by_no_reverse, NULL, NULL, NULL},
        {"gradient_stops_at_the_border_ref", test_gradient_stops_at_the_border, NULL, NULL, NULL},
        {"gradient_stops_at_the_border_dnnl", test_gradient_stops_at_the_border, NULL, NULL, NULL},
        {"padding_alone_ref", test_padding_alone, NULL, NULL, NULL},
        {"padding_alone_dnnl", test_padding_alone, NULL, NULL, NULL},
        {"embed_out_of_range_ref", test_embed_out_of_range, NULL, NULL, NULL},
        {"embed_out_of_range_dnnl", test_embed_out_of_range, NULL, NULL, NULL},
        {"refusals", test_refusals, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        const struct kernels *kernels = fixture_kernels[i % FIXTURE_KERNELS];
        memcpy(&tests[i].initial_state, &kernels, sizeof kernels); /* drops a const */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
