/* Slices of a net, run side by side, compute what the whole net computes. */
#include "nn/sliced_fixture.h"
#include "tensor/recurrence.h"

/* One layer, whose bottom has no gradient; three in a row; and two readers of one blob, whose
 * gradient has two parts. */
static const char one[] = DATA INNER("a", "data", "ip", 7) LOSS;
static const char row[] = DATA INNER("a", "data", "h", 13) UNIT("Sigmoid", "h")
    INNER("b", "h", "g", 9) UNIT("ReLU", "g") UNIT("Dropout", "g") INNER("c", "g", "ip", 5) LOSS;
static const char fork[] =
    DATA INNER("a", "data", "h", 12) UNIT("TanH", "h") INNER("b", "h", "b", 6)
        INNER("c", "h", "c",
              6) "layer { name: 'sum' type: 'Eltwise' bottom: 'b' bottom: 'c' top: 'ip' }\n" LOSS;

/* Three branches, of which one has two layers: 12, 6, 8, 6 and 6 outputs. */
static const char branches[] = DATA INNER("a", "data", "h", 12) UNIT("TanH", "h")
    INNER("b", "h", "b", 6) INNER("c", "h", "c", 8) UNIT("Sigmoid", "c") INNER("d", "c", "d", 6)
        INNER("e", "h", "e", 6) "layer { name: 'sum' type: 'Eltwise' bottom: 'b' bottom: 'd' "
                                "bottom: 'e' top: 'ip' }\n" LOSS;

/* Of weights that lie the other way, one of each row. */
static const char turned[] = DATA INNER("a", "data", "h", 7)
    UNIT("TanH",
         "h") "layer { name: 'b' type: 'InnerProduct' bottom: 'h' top: 'ip' inner_product_param {\n"
              " num_output: 5 transpose: true weight_filler { type: 'xavier' }\n"
              " bias_filler { type: 'uniform' min: -0.1 max: 0.1 } } }\n" LOSS;

/* Images, whose channels lie side by side or pixel by pixel. */
static const char images[] = DATA
    "layer { name: 'k' type: 'Convolution' bottom: 'data' top: 'k'\n"
    " convolution_param { num_output: 7 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }\n"
    "layer { name: 'p' type: 'Pooling' bottom: 'k' top: 'p'\n"
    " pooling_param { pool: AVE kernel_size: 2 stride: 1 } }\n" UNIT(
        "TanH",
        "p") "layer { name: 'l' type: 'Convolution' bottom: 'p' top: 'l'\n"
             " convolution_param { num_output: 6 kernel_size: 2 stride: 2 bias_term: false\n"
             "  weight_filler { type: 'msra' } } }\n" UNIT("ReLU", "l") INNER("c", "l", "ip", 5)
                 LOSS;

/* Layers by channel behind a convolution of 6 maps, and behind one of 3 groups: the slices gather
 * once behind all of them. The last Scale has parameters of pixels, and reads a whole blob. */
#define CHANNELS(blob)                                                                         \
    "layer { name: 'n" blob "' type: 'BatchNorm' bottom: '" blob "' top: '" blob "' }\n"       \
    "layer { name: 's" blob "' type: 'Scale' bottom: '" blob "' top: '" blob "'\n"             \
    " scale_param { bias_term: true bias_filler { type: 'uniform' min: -0.1 max: 0.1 }\n"      \
    "  filler { type: 'uniform' min: 0.5 max: 1.5 } } }\n"                                     \
    "layer { name: 'p" blob "' type: 'PReLU' bottom: '" blob "' top: '" blob "' }\n"           \
    "layer { name: 'b" blob "' type: 'Bias' bottom: '" blob "' top: '" blob "' bias_param {\n" \
    " filler { type: 'uniform' min: -0.1 max: 0.1 } } }\n" UNIT("ReLU", blob)
static const char channels[] = DATA
    "layer { name: 'k' type: 'Convolution' bottom: 'data' top: 'k'\n"
    " convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } "
    "}\n" CHANNELS("k") "layer { name: 'p' type: 'Pooling' bottom: 'k' top: 'p'\n"
                        " pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
                        "layer { name: 'l' type: 'Convolution' bottom: 'p' top: 'l' "
                        "convolution_param { group: 3\n"
                        " num_output: 6 kernel_size: 1 bias_term: false weight_filler { type: "
                        "'msra' } } }\n" CHANNELS(
                            "l") "layer { name: 'z' type: 'Scale' bottom: 'l' top: 'z' scale_param "
                                 "{ num_axes: 3 } }\n" INNER("c", "z", "ip", 5) LOSS;

/* Recurrent layers over four steps of ten values: of each kind, with marks, with a static input, in
 * a row. The marks and the input are learnt from the data, before the range and in it. */
static const char lstm[] =
    STEPS UNITS("u", "LSTM", "recurrent_param", "bottom: 'x'", 7) INNER("c", "u", "ip", 5) LOSS;
static const char scores[] = STEPS UNITS(
    "u", "LSTM", "recurrent_param", "bottom: 'x'",
    7) "layer { name: 's' type: 'InnerProduct' bottom: 'u' top: 's' inner_product_param { axis: 2\n"
       " num_output: 6 weight_filler { type: 'xavier' } } }\n" UNIT("TanH", "s")
           INNER("c", "s", "ip", 5) LOSS;
static const char sequence[] = STEPS INNER(
    "f", "data", "f",
    6) "layer { name: 'm' type: 'Slice' bottom: 'x' top: 'm0' top: 'm1' slice_param {\n"
       " axis: 2 slice_point: 1 } }\n"
       "layer { name: 'n' type: 'Power' bottom: 'm0' top: 'n' power_param { scale: 0.1 } }\n"
       "layer { name: 'q' type: 'Reshape' bottom: 'n' top: 'q' reshape_param {\n"
       " shape { dim: 0 dim: 4 } } }\n" UNITS("u", "LSTM", "recurrent_param",
                                              "bottom: 'x' bottom: 'q' bottom: 'f'", 7)
           UNITS("v", "GRU", "gru_param", "bottom: 'u' bottom: 'q'", 6)
               UNITS("w", "RNN", "recurrent_param", "bottom: 'v' bottom: 'q' bottom: 'f'", 9)
                   INNER("c", "w", "ip", 5) LOSS;
/* Numbers, whose rows repeat; a row sums to 1, of which a slice has a part. */
#define SHAPED(name, bottom, top, dims)                                             \
    "layer { name: '" name "' type: 'Reshape' bottom: '" bottom "' top: '" top "' " \
    "reshape_param { shape { dim: 0 " dims " } } }\n"
#define MARKS                                                                               \
    STEPS "layer { name: 'm' type: 'Slice' bottom: 'x' top: 'm0' top: 'm1' slice_param {\n" \
          " axis: 2 slice_point: 1 } }\n" SHAPED("m2", "m0", "m2", "dim: 4")
#define SCALED(name, scale, shift)                                    \
    "layer { name: '" name "' type: 'Power' bottom: 'm2' top: '" name \
    "' power_param { scale: " #scale " shift: " #shift " } }\n"
static const char embedded[] = MARKS SCALED(
    "n", 2.5,
    2.5) "layer { name: 'e' type: 'Embed' bottom: 'n' top: 'e' embed_param { num_output: 7\n"
         " input_dim: 5 weight_filler { type: 'positive_unitball' }\n"
         " bias_filler { type: 'uniform' min: -0.1 max: 0.1 } } }\n" UNITS(
             "u", "LSTM", "recurrent_param", "bottom: 'e'", 6) INNER("c", "u", "ip", 5) LOSS;

/* Units that begin with a state that is learnt, and hand theirs to others; and such whose reset
 * gate is first, alone and with all bottoms. */
#define LEARNT(name) INNER(name, "data", name, 7) SHAPED(name "0", name, name "0", "dim: 1 dim: 7")
#define EXPOSED(name, type, message, bottoms, tops, fields)                                     \
    "layer { name: '" name "' type: '" type "' bottom: 'x' bottom: 'q' " bottoms " top: '" name \
    "' " tops " " message " { num_output: 7 expose_hidden: true\n"                              \
    " " fields " weight_filler { type: 'xavier' }\n"                                            \
    " bias_filler { type: 'uniform' min: -0.1 max: 0.1 } } }\n"
#define ALL_STEPS(bottoms)                                                       \
    "layer { name: 'all' type: 'Concat' " bottoms " top: 'all' concat_param {\n" \
    " axis: 1 } }\n" INNER("c", "all", "ip", 5) LOSS
static const char handed_on[] = MARKS SCALED("q", 0.1, 0.5) LEARNT("f") LEARNT("g")
    EXPOSED("u", "LSTM", "recurrent_param", "bottom: 'f0' bottom: 'g0'", "top: 'h' top: 'k'", "")
        EXPOSED("v", "LSTM", "recurrent_param", "bottom: 'h' bottom: 'k'", "top: 'i' top: 'l'", "")
            ALL_STEPS("bottom: 'v' bottom: 'i' bottom: 'l'");
static const char exposed_units[] = MARKS SCALED("q", 0.1, 0.5) LEARNT("f") LEARNT("g")
    EXPOSED("u", "GRU", "gru_param", "bottom: 'g' bottom: 'f0'", "top: 'h'", "")
        EXPOSED("v", "RNN", "recurrent_param", "bottom: 'h'", "top: 'i'", "")
            ALL_STEPS("bottom: 'u' bottom: 'v' bottom: 'i'");
static const char reset_alone[] =
    STEPS "layer { name: 'u' type: 'GRU' bottom: 'x' top: 'u' gru_param { num_output: 7\n"
          " reset_first: true weight_filler { type: 'xavier' } } }\n" INNER("c", "u", "ip", 5) LOSS;
static const char reset_exposed[] = MARKS SCALED("q", 0.1, 0.5) LEARNT("f") LEARNT("g")
    EXPOSED("u", "GRU", "gru_param", "bottom: 'g' bottom: 'f0'", "top: 'h'", "reset_first: true")
        ALL_STEPS("bottom: 'u' bottom: 'h'");
static const char units_alone[] =
    STEPS "layer { name: 'u' type: 'RNN' bottom: 'x' top: 'u' recurrent_param { num_output: 7\n"
          " output_product: false reverse: true weight_filler { type: 'xavier' } } }\n" INNER(
              "c", "u", "ip", 5) LOSS;

/* Layers that are not in the range of those that slices share out: before it data-parallel ones of
 * every kind, and data that the range reads, too; behind it one of few outputs. */
static const char mixed[] = DATA
    "layer { name: 'k' type: 'Convolution' bottom: 'data' top: 'k'\n"
    " convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }\n"
    "layer { name: 's' type: 'Scale' bottom: 'k' top: 'k' scale_param { bias_term: true } }\n" UNIT(
        "ReLU", "k")
        UNIT("Dropout", "k") "layer { name: 'd' type: 'Deconvolution' bottom: 'k' top: 'd'\n"
                             " convolution_param { num_output: 3 kernel_size: 2 stride: 2\n"
                             "  weight_filler { type: 'msra' } } }\n" UNIT("TanH", "d")
                                 INNER("a", "d", "a", 9) INNER("b", "d", "b", 9)
                                     INNER("c", "data", "c",
                                           9) "layer { name: 'sum' type: 'Eltwise' bottom: 'a' "
                                              "bottom: 'b' bottom: 'c' top: 'e' "
                                              "}\n" UNIT("ReLU", "e") INNER("f", "e", "f", 6)
                                                  UNIT("Sigmoid", "f") INNER("ip", "f", "ip", 3)
                                                      LOSS;

/* Data-parallel convolutions side by side, whose values the backward pass computes again. */
static const char residual[] = DATA
    "layer { name: 'p' type: 'Convolution' bottom: 'data' top: 'p'\n"
    " convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }\n"
    "layer { name: 'k' type: 'Convolution' bottom: 'data' top: 'k'\n"
    " convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }\n"
    "layer { name: 's' type: 'Scale' bottom: 'k' top: 'k' scale_param { bias_term: true } }\n" UNIT(
        "ReLU", "k") "layer { name: 'l' type: 'Convolution' bottom: 'k' top: 'l'\n"
                     " convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { "
                     "type: 'msra' } } }\n"
                     "layer { name: 'sum' type: 'Eltwise' bottom: 'p' bottom: 'k' bottom: 'l' top: "
                     "'e' }\n" INNER("ip", "e", "ip", 5) LOSS;

/* A loss of a layer by channel, which needs all of them. */
static const char weighted[] = DATA INNER("a", "data", "ip", 7) LOSS
    "layer { name: 't' type: 'TanH' bottom: 'ip' top: 't' loss_weight: 0.5 }\n";

/* The data alone are before the range; and nothing is in it but the last layer. */
static const char rear[] =
    DATA INNER("a", "data", "h", 7) UNIT("TanH", "h") INNER("ip", "h", "ip", 5) LOSS;

/* The state is whole, and each slice has its channels of it. */
static void compare_states(const struct sliced *s)
{
    const struct segments *table = net_state_segments(s->whole.net);
    for (size_t f = 0; f < s->count; f++) {
        const struct net *net = s->part[f].net;
        const struct model_slice slice = {f, s->count};
        assert_true(segments_match(table, net_state_segments(net)));
        for (size_t i = 0; i < table->count; i++) {
            const struct segment *segment = &net_state_segments(net)->at[i];
            const struct range own = slice_of_block(&slice, segment, 0);
            assert_int_equal(segment->units > 0, segment->len > 1);
            for (size_t k = 0; k < own.len; k++)
                fixture_near((double)s->part[f].s.at[segment->offset + own.from + k],
                             (double)s->whole.s.at[segment->offset + own.from + k], 1e-5);
        }
    }
}

static void compare_slices(const struct sliced_net *net, unsigned gathers, unsigned sums, bool bits)
{
    for (int k = 0; k < FIXTURE_KERNELS; k++)
        for (size_t count = 2; count <= SLICES_MAX; count++) {
            struct sliced s;
            bool exact = fixture_kernels[k] == &kernels_ref;
            double share = 0;
            open_sliced(&s, net, count, fixture_kernels[k]);
            assert_true(find_difference(&s, false) == 0); /* initial values */
            struct net_result result = fixture_gradient(&s.whole);
            run_gradient(&s);
            assert_int_equal(s.gathers, gathers);
            assert_int_equal(s.sums, sums);
            for (size_t f = 0; f < count; f++) {
                const struct net_result *own = net_last_result(s.part[f].net);
                fixture_near(own->loss, result.loss, exact ? 0 : 1e-5);
                share += net_share(s.part[f].net);
            }
            if (!net->to)
                fixture_near(share, 1, 1e-12);
            else
                assert_true(share > 1); /* layers behind the range are whole on each */
            double apart = find_difference(&s, true);
            if (apart > (bits && exact ? 0 : 2e-6))
                fail_msg("%s, %zu slices: %g", fixture_kernels[k]->name, count, apart);
            close_sliced(&s);
        }
}

/* Where no gradient is added up the bits are the whole net's. */
static void test_slices_of_one_layer_are_the_net(void **state)
{
    (void)state;
    compare_slices(&(struct sliced_net){one, NULL, NULL}, 1, 0, true);
}

static void test_slices_of_layers_in_a_row_are_the_net(void **state)
{
    (void)state;
    compare_slices(&(struct sliced_net){row, NULL, NULL}, 3, 2, false);
    compare_slices(&(struct sliced_net){turned, NULL, NULL}, 2, 1, false);
}

static void test_slices_of_a_fork_are_the_net(void **state)
{
    (void)state;
    compare_slices(&(struct sliced_net){fork, NULL, NULL}, 3, 2, false);
    compare_slices(&(struct sliced_net){weighted, NULL, NULL}, 1, 0, true);
    compare_slices(&(struct sliced_net){branches, NULL, NULL}, 5, 4, false);
}

/* During the gather of b's outputs c computes, and during that of d's e, up to the next gather.
 * Back, during the sum behind a layer its parameters' gradient is computed, and that of the bottom
 * of the next layer with a sum, unless that needs the result: during e's that of d's bottom, during
 * c's that of b's. */
static void test_meetings_end_where_a_layer_reads_them(void **state)
{
    (void)state;
    const double a = 40 * 12, b = 12 * 6, c = 12 * 8, d = 8 * 6, e = 12 * 6;
    const double all = 2 * a + 3 * (b + c + d + e);
    struct sliced s;
    open_sliced(&s, &(struct sliced_net){branches, NULL, NULL}, 2, &kernels_ref);
    run_gradient(&s);
    assert_int_equal(s.begun[GATHERS], 2);
    fixture_near(s.during[GATHERS], (c + e) / all / 2, 1e-12);
    assert_int_equal(s.begun[SUMS], 4);
    fixture_near(s.during[SUMS], (e + d + d + c + b + b) / all / 2, 1e-12);
    close_sliced(&s);
}

static void test_slices_of_convolutions_are_the_net(void **state)
{
    (void)state;
    compare_slices(&(struct sliced_net){images, NULL, NULL}, 3, 2, false);
}

/* Of each segment each slice has its channels, but of that of pixels; and each computes its
 * channels of the state. */
static void test_slices_share_channels_out(void **state)
{
    (void)state;
    const struct sliced_net net = {channels, NULL, NULL};
    for (int k = 0; k < FIXTURE_KERNELS; k++)
        for (size_t count = 2; count <= 3; count++) {
            struct sliced s;
            open_sliced(&s, &net, count, fixture_kernels[k]);
            assert_true(find_difference(&s, false) == 0); /* initial values */
            fixture_gradient(&s.whole);
            run_gradient(&s);
            assert_int_equal(s.gathers, 3);
            assert_int_equal(s.sums, 2);
            assert_int_equal(s.begun[SUMS], 2);
            assert_true(find_difference(&s, true) <= 3e-6);
            compare_states(&s);
            const struct segments *whole = net_whole_segments(s.part[0].net);
            size_t left = 0;
            for (size_t i = 0; i < whole->count; i++)
                left += whole->at[i].units == 0 ? whole->at[i].len : 0;
            assert_int_equal(left, 6 * 3 * 2);
            close_sliced(&s);
        }
}

/* In a pass of T steps T gathers and T - 1 sums within the layer, and the sum of its inputs'
 * gradients; one gather and one sum more of units with products for their outputs. */
static void test_slices_share_recurrent_units_out(void **state)
{
    enum { T = 4 };
    (void)state;
    compare_slices(&(struct sliced_net){lstm, NULL, NULL}, T + 1, T - 1 + 1, false);
    compare_slices(&(struct sliced_net){units_alone, NULL, NULL}, T + 1, T - 1 + 1, false);
    compare_slices(&(struct sliced_net){scores, NULL, NULL}, T + 2, T - 1 + 2, false);
    compare_slices(&(struct sliced_net){sequence, NULL, NULL}, 1 + 3 * T + 1 + 1,
                   3 * (T - 1) + 1 + 2 + 2 + 1, false);
    compare_slices(&(struct sliced_net){sequence, "u", "w"}, 1 + 1 + 1 + 3 * T + 1,
                   3 * (T - 1) + 1 + 2 + 2, false);
}

/* Slices of units behind an Embed know which of its rows repeat, too. */
static void expect_kinds(const struct net *net)
{
    size_t found = 0;
    for (size_t i = 0; i < net->n_layers; i++)
        if (strcmp(net->layer[i]->type, "LSTM") == 0)
            found += ((const struct recurrence *)net->layer[i]->op)->rows.op != NULL;
    assert_int_equal(found, 1);
}

/* Of an Embed each slice has columns, all of which are gathered behind it. */
static void test_slices_share_columns_of_rows_out(void **state)
{
    enum { T = 4 };
    (void)state;
    compare_slices(&(struct sliced_net){embedded, NULL, NULL}, 1 + T + 1, T - 1 + 1 + 1, false);
    compare_slices(&(struct sliced_net){embedded, "e", "e"}, 1 + 1, 0, false);
    compare_slices(&(struct sliced_net){embedded, "u", "u"}, 1 + T, T - 1 + 1, false);
    struct sliced s;
    open_sliced(&s, &(struct sliced_net){embedded, NULL, NULL}, 2, &kernels_dnnl);
    expect_kinds(s.whole.net);
    expect_kinds(s.part[1].net);
    close_sliced(&s);
}

/* In place of T - 1 sums T, where the state before the first step has a gradient; a gather of that,
 * and of the cells behind the last step. A reset gate that is first has as many again. */
static void test_slices_hand_states_on(void **state)
{
    enum { T = 4 };
    (void)state;
    compare_slices(&(struct sliced_net){handed_on, NULL, NULL}, 2 + 2 * (T + 1) + 1 + 2 * 2,
                   2 * T + 1, false);
    compare_slices(&(struct sliced_net){handed_on, "u", "v"}, 4 + 2 * (T + 1) + 2 * 2, 2 * T,
                   false);
    compare_slices(&(struct sliced_net){exposed_units, NULL, NULL}, 2 + T + T + 1 + 1 + 2,
                   2 * T + 2 + 1, false);
    compare_slices(&(struct sliced_net){reset_alone, NULL, NULL}, 2 * T + 1, 2 * T - 1 + 1, false);
    compare_slices(&(struct sliced_net){reset_exposed, NULL, NULL}, 2 + 2 * T + 1 + 1,
                   2 * T + 1 + 1, false);
}

/* The parts of a row that the slices keep add up to the whole net's. */
static void expect_sum_of_parts(const struct sliced *s, size_t width)
{
    float kept[64], sum[64];
    assert_true(width <= sizeof kept / sizeof *kept);
    for (size_t n = 0; n < RECORDS; n++) {
        memset(sum, 0, sizeof sum);
        for (size_t f = 0; f < s->count; f++) {
            struct range own = net_own_records(s->part[f].net, RECORDS);
            memcpy(kept, s->part[f].batch.carried + n * width, width * sizeof *kept);
            net_keep_own_carried(s->part[f].net, kept, n >= own.from && n - own.from < own.len);
            for (size_t i = 0; i < width; i++) {
                assert_true(kept[i] == 0 || sum[i] == 0);
                sum[i] += kept[i];
            }
        }
        for (size_t i = 0; i < width; i++)
            fixture_near((double)sum[i], (double)s->whole.batch.carried[n * width + i], 1e-6);
    }
}

/* A batch that continues the one before: of the state each slice has its cells, and all outputs. */
static void test_slices_carry_a_state(void **state)
{
    (void)state;
    for (size_t count = 2; count <= 4; count++) {
        struct sliced s;
        const struct sliced_net net = {sequence, "u", "w"};
        open_sliced(&s, &net, count, &kernels_ref);
        size_t width = net_carried(s.whole.net), all = width * RECORDS;
        float *carried = calloc((count + 1) * all, sizeof *carried);
        assert_non_null(carried);
        assert_int_equal(width, 2 * 7 + 6 + 9);
        s.whole.batch.carried = carried;
        for (size_t f = 0; f < count; f++)
            s.part[f].batch.carried = carried + (f + 1) * all;
        for (int batch = 0; batch < 3; batch++) {
            fixture_gradient(&s.whole);
            run_gradient(&s);
            assert_true(find_difference(&s, true) <= 3e-6);
        }
        for (size_t f = 0; f < count; f++)
            for (size_t i = 0; i < 7; i++)
                fixture_near((double)s.part[f].batch.carried[i], (double)carried[i], 1e-6);
        expect_sum_of_parts(&s, width);
        free(carried);
        close_sliced(&s);
    }
}

/* A gather of the records before the range, those of the layers in it, and their sums. */
static void test_slices_of_a_range_are_the_net(void **state)
{
    (void)state;
    compare_slices(&(struct sliced_net){mixed, "a", "f"}, 1 + 4, 3, false);
    compare_slices(&(struct sliced_net){mixed, "f", "f"}, 1 + 1, 1, false);
    compare_slices(&(struct sliced_net){rear, "a", "a"}, 1, 0, false);
    compare_slices(&(struct sliced_net){rear, "ip", NULL}, 1 + 1, 1, false);
}

/* Of a batch that is not full some slices have no records for the layers before the range. */
static void run_records(struct sliced *s, size_t records)
{
    s->whole.batch.count = records;
    for (size_t f = 0; f < s->count; f++)
        s->part[f].batch.count = records;
    fixture_gradient(&s->whole);
    run_gradient(s);
    assert_true(find_difference(s, true) <= 2e-6);
    assert_int_equal(s->ended_with, net_parallel(s->part[0].net).floats);
}

/* Also behind a full batch, whose backward pass has left values of data-parallel layers in other
 * memory, and then some of these layers do not run. */
static void test_a_batch_may_have_fewer_records_than_slices(void **state)
{
    (void)state;
    const struct sliced_net nets[] = {{mixed, "a", "f"}, {residual, "sum", NULL}};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        for (size_t records = 1; records <= RECORDS; records++) {
            struct sliced s;
            open_sliced(&s, &nets[i], 4, &kernels_ref);
            run_records(&s, records);
            run_records(&s, RECORDS);
            run_records(&s, records);
            assert_true(i > 0 || s.ended_with >= 6 * 19 + 2 * 6 + 6 * 3 * 4 + 3);
            close_sliced(&s);
        }
}

/* A pass that is given up leaves nothing behind; of a batch that is not full. */
static void test_a_pass_may_be_given_up(void **state)
{
    (void)state;
    struct sliced s;
    const struct net_point *point;
    open_sliced(&s, &(struct sliced_net){row, NULL, NULL}, 2, &kernels_ref);
    s.whole.batch.count = s.part[0].batch.count = s.part[1].batch.count = RECORDS - 2;
    fixture_gradient(&s.whole);
    for (size_t f = 0; f < 2; f++) {
        struct fixture *p = &s.part[f];
        net_begin_forward(p->net, &p->x, &p->s, &p->batch);
        assert_int_equal(net_continue(p->net, &point), OK);
        assert_non_null(point);
    }
    run_gradient(&s);
    assert_true(find_difference(&s, true) <= 2e-6);
    close_sliced(&s);
}

/* A whole net, which others have slices of, knows the parts as a slice does. */
static void test_the_whole_net_knows_the_parts(void **state)
{
    (void)state;
    static const struct sliced_net nets[] = {
        {row, NULL, NULL},           {fork, NULL, NULL},     {images, NULL, NULL},
        {channels, NULL, NULL},      {mixed, "a", "f"},      {weighted, NULL, NULL},
        {lstm, NULL, NULL},          {sequence, NULL, NULL}, {sequence, "u", "w"},
        {turned, NULL, NULL},        {embedded, NULL, NULL}, {handed_on, NULL, NULL},
        {reset_exposed, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        struct net *part = NULL, *all = NULL;
        struct err err = {0};
        if (try_slice(&nets[i], 1, 2, &kernels_ref, &part, &err) != OK ||
            try_slice(&nets[i], SLICE_ALL, 2, &kernels_ref, &all, &err) != OK)
            fail_msg("%s", err.text);
        const struct segments *whole = net_whole_segments(part), *table = net_segments(all);
        assert_ptr_equal(net_whole_segments(all), table);
        assert_true(segments_match(whole, table));
        for (size_t k = 0; k < table->count; k++)
            if (table->at[k].units != whole->at[k].units ||
                slice_blocks(&table->at[k]) != slice_blocks(&whole->at[k]))
                fail_msg("net %zu: %s", i, table->at[k].name);
        net_free(part);
        net_free(all);
    }
}

/* ---- blobs ---- */

static void open_kept(struct fixture *f, const char *text, const char *keep,
                      struct model_slice slice)
{
    const struct net_options options = {
        .phase = PHASE_TEST,
        .batch = RECORDS,
        .input = image,
        .kernels = &kernels_ref,
        .keep = keep,
        .slice = slice,
    };
    struct net *net = NULL;
    struct err err = {0};
    if (fixture_make(text, &options, &net, &err) != OK)
        fail_msg("%s", err.text);
    fixture_fill(f, net, RECORDS, image);
    net->poisoned = true;
}

/* net_blob has a blob whole that slices gather; of another one each has a part, and it says so. */
static void test_a_gathered_blob_is_whole(void **state)
{
    (void)state;
    enum { FLOATS = RECORDS * 5 };
    struct sliced s = {.count = 3};
    float all[FLOATS], own[FLOATS];
    struct net_result result;
    open_kept(&s.whole, row, "ip", (struct model_slice){SLICE_ALL, 1});
    net_forward(s.whole.net, &s.whole.x, &s.whole.s, &s.whole.batch, &result);
    assert_int_equal(net_blob(s.whole.net, "ip", all, FLOATS, NULL), FLOATS);
    for (size_t f = 0; f < s.count; f++) {
        struct fixture *p = &s.part[f];
        open_kept(p, row, "ip", (struct model_slice){f, s.count});
        assert_true(net_keeps(p->net, "ip") && net_by_records(p->net, "ip"));
        assert_false(net_blob_is_part(p->net, "ip"));
        net_begin_forward(p->net, &p->x, &p->s, &p->batch);
    }
    run_together(&s);
    for (size_t f = 0; f < s.count; f++) {
        assert_int_equal(net_blob(s.part[f].net, "ip", own, FLOATS, NULL), FLOATS);
        assert_memory_equal(own, all, sizeof own);
    }
    close_sliced(&s);
    open_kept(&s.whole, channels, "k", (struct model_slice){1, 3});
    assert_true(net_blob_is_part(s.whole.net, "k"));
    fixture_close(&s.whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_of_one_layer_are_the_net),
        cmocka_unit_test(test_slices_of_layers_in_a_row_are_the_net),
        cmocka_unit_test(test_slices_of_a_fork_are_the_net),
        cmocka_unit_test(test_meetings_end_where_a_layer_reads_them),
        cmocka_unit_test(test_slices_of_convolutions_are_the_net),
        cmocka_unit_test(test_slices_share_channels_out),
        cmocka_unit_test(test_slices_share_recurrent_units_out),
        cmocka_unit_test(test_slices_share_columns_of_rows_out),
        cmocka_unit_test(test_slices_hand_states_on),
        cmocka_unit_test(test_slices_carry_a_state),
        cmocka_unit_test(test_slices_of_a_range_are_the_net),
        cmocka_unit_test(test_the_whole_net_knows_the_parts),
        cmocka_unit_test(test_a_batch_may_have_fewer_records_than_slices),
        cmocka_unit_test(test_a_pass_may_be_given_up),
        cmocka_unit_test(test_a_gathered_blob_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
