/* Slices of a net, run side by side, compute what the whole net computes. Here the test is what
 * brings their blobs together. */
#include "nn/fixture.h"
#include "nn/graph.h"

#include <stdlib.h>

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define LOSS \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n"
#define INNER(name, bottom, top, outputs)                                                 \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" top "'\n" \
    " inner_product_param { num_output: " #outputs " weight_filler { type: 'xavier' }\n"  \
    " bias_filler { type: 'uniform' min: -0.1 max: 0.1 } } }\n"
#define UNIT(type, blob) \
    "layer { name: '" type blob "' type: '" type "' bottom: '" blob "' top: '" blob "' }\n"

/* One layer, whose bottom has no gradient; three in a row; and two readers of one blob, whose
 * gradient has two parts. */
static const char one[] = DATA INNER("a", "data", "ip", 7) LOSS;
static const char row[] = DATA INNER("a", "data", "h", 13) UNIT("Sigmoid", "h")
    INNER("b", "h", "g", 9) UNIT("ReLU", "g") UNIT("Dropout", "g") INNER("c", "g", "ip", 5) LOSS;
static const char fork[] =
    DATA INNER("a", "data", "h", 12) UNIT("TanH", "h") INNER("b", "h", "b", 6)
        INNER("c", "h", "c",
              6) "layer { name: 'sum' type: 'Eltwise' bottom: 'b' bottom: 'c' top: 'ip' }\n" LOSS;

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

/* A loss of a layer by channel, which needs all of them. */
static const char weighted[] = DATA INNER("a", "data", "ip", 7) LOSS
    "layer { name: 't' type: 'TanH' bottom: 'ip' top: 't' loss_weight: 0.5 }\n";

/* The data alone are before the range; and nothing is in it but the last layer. */
static const char rear[] =
    DATA INNER("a", "data", "h", 7) UNIT("TanH", "h") INNER("ip", "h", "ip", 5) LOSS;

static const struct shape image = {3, {2, 5, 4}};

enum { RECORDS = 6, SLICES_MAX = 5 };

/* A net, and the layers that are shared out; NULL: all. */
struct sliced_net {
    const char *text, *from, *to;
};

struct sliced {
    struct fixture whole, part[SLICES_MAX];
    size_t count;
    unsigned gathers, sums; /* points that the slices have met at */
    size_t ended_with;      /* floats of the sum at the end of the step */
};

static int try_slice(const struct sliced_net *net, size_t index, size_t count,
                     const struct kernels *kernels, struct net **out, struct err *err)
{
    const struct net_options options = {
        .phase = PHASE_TRAIN,
        .batch = RECORDS,
        .input = image,
        .kernels = kernels,
        .slice = {index, count},
        .slices_from = net->from,
        .slices_to = net->to,
    };
    return fixture_make(net->text, &options, out, err);
}

static void open_sliced(struct sliced *s, const struct sliced_net *text, size_t count,
                        const struct kernels *kernels)
{
    *s = (struct sliced){.count = count};
    fixture_open_lean(&s->whole, text->text, PHASE_TRAIN, RECORDS, image, kernels);
    for (size_t f = 0; f < count; f++) {
        struct net *net = NULL;
        struct err err = {0};
        if (try_slice(text, f, count, kernels, &net, &err) != OK)
            fail_msg("%s", err.text);
        fixture_fill(&s->part[f], net, RECORDS, image);
        net->poisoned = true; /* values that no slice has made are NaN */
    }
}

static void close_sliced(struct sliced *s)
{
    fixture_close(&s->whole);
    for (size_t f = 0; f < s->count; f++)
        fixture_close(&s->part[f]);
}

static void gather_columns(const struct net_point *const *point, size_t count)
{
    const size_t each = point[0]->each, width = point[0]->outputs * each;
    for (size_t from = 0; from < count; from++) {
        const struct model_slice slice = {from, count};
        const struct range own = slice_units(&slice, point[0]->outputs);
        for (size_t r = 0; r < point[0]->rows; r++)
            for (size_t to = 0; to < count; to++)
                if (to != from)
                    memcpy(point[to]->values + r * width + own.from * each,
                           point[from]->values + r * width + own.from * each,
                           own.len * each * sizeof(float));
    }
}

static void add_up(const struct net_point *const *point, size_t count)
{
    for (size_t i = 0; i < point[0]->rows * point[0]->outputs * point[0]->each; i++) {
        float sum = 0;
        for (size_t f = 0; f < count; f++)
            sum += point[f]->values[i];
        for (size_t f = 0; f < count; f++)
            point[f]->values[i] = sum;
    }
}

/* The pass that all have begun, to its end. */
static void run_together(struct sliced *s)
{
    const struct net_point *point[SLICES_MAX];
    double share = 0;
    for (;;) {
        for (size_t f = 0; f < s->count; f++) {
            assert_int_equal(net_continue(s->part[f].net, &point[f]), OK);
            assert_int_equal(!point[f], !point[0]);
            if (!point[0])
                continue;
            assert_int_equal(point[f]->meeting, point[0]->meeting);
            assert_int_equal(point[f]->number, point[0]->number);
            assert_true(point[f]->number < net_points(s->part[f].net));
            assert_int_equal(point[f]->rows, point[0]->rows);
            assert_int_equal(point[f]->outputs, point[0]->outputs);
            assert_int_equal(point[f]->each, point[0]->each);
        }
        if (!point[0])
            return;
        assert_true(point[0]->share >= share);
        share = point[0]->share;
        if (point[0]->meeting == NET_GATHER) {
            gather_columns(point, s->count);
            s->gathers++;
        } else {
            add_up(point, s->count);
            s->sums++;
        }
    }
}

/* At the end of a step; the share of the step's products has no part in it. */
static void end_step(struct sliced *s)
{
    struct net_point last[SLICES_MAX];
    const struct net_point *point[SLICES_MAX];
    bool sums = false;
    for (size_t f = 0; f < s->count; f++) {
        sums = net_ends_with_sum(s->part[f].net, &s->part[f].dx, &last[f]);
        point[f] = &last[f];
        assert_true(last[f].number < net_points(s->part[f].net));
    }
    s->ended_with = sums ? last[0].each : 0;
    if (sums)
        add_up(point, s->count);
}

static void run_gradient(struct sliced *s)
{
    for (size_t f = 0; f < s->count; f++) {
        struct fixture *p = &s->part[f];
        vec_fill(&p->dx, vec_all(&p->dx), 0.0f);
        net_begin_forward(p->net, &p->x, &p->s, &p->batch);
    }
    run_together(s);
    for (size_t f = 0; f < s->count; f++) {
        struct fixture *p = &s->part[f];
        net_begin_backward(p->net, &p->x, &p->dx, NULL);
    }
    run_together(s);
    end_step(s);
}

/* max |a − b| / max |b| of a vector of the slices and the whole net's. */
static double find_difference(const struct sliced *s, bool of_dx)
{
    const struct vec *whole = of_dx ? &s->whole.dx : &s->whole.x;
    double apart = 0, largest = 0;
    float *joined = calloc(whole->n, sizeof *joined);
    assert_non_null(joined);
    for (size_t f = 0; f < s->count; f++) {
        const struct fixture *p = &s->part[f];
        const struct model_slice slice = {f, s->count};
        assert_true(segments_match(net_whole_segments(p->net), net_segments(s->whole.net)));
        assert_int_equal(slice_total(&slice, net_whole_segments(p->net)), p->x.n);
        slice_put(&slice, net_whole_segments(p->net), of_dx ? p->dx.at : p->x.at, joined);
    }
    for (size_t i = 0; i < whole->n; i++) {
        apart = fmax(apart, fabs((double)joined[i] - (double)whole->at[i]));
        largest = fmax(largest, fabs((double)whole->at[i]));
        assert_true(isfinite(joined[i]));
    }
    free(joined);
    return apart / largest;
}

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
            const struct range own = slice_of_segment(&slice, segment);
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
}

static void test_slices_of_a_fork_are_the_net(void **state)
{
    (void)state;
    compare_slices(&(struct sliced_net){fork, NULL, NULL}, 3, 2, false);
    compare_slices(&(struct sliced_net){weighted, NULL, NULL}, 1, 0, true);
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
static void test_a_batch_may_have_fewer_records_than_slices(void **state)
{
    (void)state;
    for (size_t records = 1; records <= RECORDS; records++) {
        struct sliced s;
        open_sliced(&s, &(struct sliced_net){mixed, "a", "f"}, 4, &kernels_ref);
        s.whole.batch.count = records;
        for (size_t f = 0; f < s.count; f++)
            s.part[f].batch.count = records;
        fixture_gradient(&s.whole);
        run_gradient(&s);
        assert_true(find_difference(&s, true) <= 2e-6);
        assert_int_equal(s.ended_with, net_parallel(s.part[0].net).floats);
        assert_true(s.ended_with >= 6 * 19 + 2 * 6 + 6 * 3 * 4 + 3);
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

static void test_layers_that_slices_cannot_share_out(void **state)
{
    (void)state;
    static const struct fixture_refusal list[] = {
        {DATA INNER("a", "data", "ip", 3) LOSS, ERR_INPUT,
         "layer \"a\": slices: 4 are more than its 3 outputs"},
        {DATA "layer { name: 'k' type: 'Deconvolution' bottom: 'data' top: 'k' "
              "convolution_param { num_output: 8 kernel_size: 3 } }" INNER("a", "k", "ip", 8) LOSS,
         ERR_UNSUPPORTED, "layer \"k\": slices: weights of type \"Deconvolution\""},
        {DATA "layer { name: 'k' type: 'Convolution' bottom: 'data' top: 'k' "
              "convolution_param { num_output: 8 kernel_size: 3 group: 2 } }" INNER("a", "k", "ip",
                                                                                    8) LOSS,
         ERR_INPUT, "layer \"k\": slices: 4 are more than its 2 groups"},
        {DATA "layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'ip' "
              "inner_product_param { num_output: 8 transpose: true } }" LOSS,
         ERR_UNSUPPORTED, "layer \"a\": slices: inner_product_param.transpose"},
        {DATA "layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'ip' "
              "inner_product_param { num_output: 8 axis: 2 } }" LOSS,
         ERR_UNSUPPORTED, "layer \"a\": slices: inner_product_param.axis"},
        {DATA "layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'a' param { name: 'w' } "
              "inner_product_param { num_output: 40 bias_term: false } }"
              "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'ip' param { name: 'w' } "
              "inner_product_param { num_output: 40 bias_term: false } }" LOSS,
         ERR_UNSUPPORTED, "layer \"b\": slices: weights that layers share by name (\"w\")"},
    };
    const size_t index[] = {0, 3, SLICE_ALL}; /* the whole net, as the driver makes it, too */
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (size_t k = 0; k < sizeof index / sizeof *index; k++) {
            struct net *net = NULL;
            struct err err = {0};
            const struct sliced_net text = {list[i].net, NULL, NULL};
            int rc = try_slice(&text, index[k], 4, &kernels_ref, &net, &err);
            if (rc != list[i].status || !strstr(err.text, list[i].expected))
                fail_msg("status %d, \"%s\": not %d, \"%s\"", rc, err.text, list[i].status,
                         list[i].expected);
        }
}

static void test_ranges_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        struct sliced_net net;
        size_t count;
        enum status status;
        const char *phrase;
    } list[] = {
        {{row, "z", NULL}, 2, ERR_INPUT, "slices_from: the net has no layer \"z\""},
        {{row, "a", "y"}, 2, ERR_INPUT, "slices_to: the net has no layer \"y\""},
        {{row, "c", "a"}, 2, ERR_INPUT, "slices_to: layer \"a\" is before \"c\""},
        {{mixed, "f", NULL}, 7, ERR_INPUT, "slices: 7 are more than the 6 records of a batch"},
        {{mixed, "a", NULL}, 5, ERR_INPUT, "slices: 5 are more than its 3 outputs"},
        {{DATA INNER("a", "data", "ip", 7) LOSS INNER("b", "ip", "b", 7), "b", NULL},
         2,
         ERR_UNSUPPORTED,
         "layer \"loss\": slices: a loss or an Accuracy before"},
        {{DATA INNER("a", "data", "ip", 7) LOSS
          "layer { name: 't' type: 'InnerProduct' bottom: 'ip' top: 't' loss_weight: 1 "
          "inner_product_param { num_output: 4 } }\n",
          NULL, NULL},
         2,
         ERR_UNSUPPORTED,
         "layer \"t\": slices: loss_weight"},
        {{DATA "layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'a' param { name: 'w' } "
               "inner_product_param { num_output: 40 bias_term: false } }"
               "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'ip' param { name: 'w' } "
               "inner_product_param { num_output: 40 bias_term: false } }" LOSS,
          "b", "b"},
         2,
         ERR_UNSUPPORTED,
         "layer \"b\": slices: weights that layers share by name"},
    };
    const size_t index[] = {0, 1, SLICE_ALL};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (size_t k = 0; k < sizeof index / sizeof *index; k++) {
            struct net *net = NULL;
            struct err err = {0};
            int rc = try_slice(&list[i].net, index[k], list[i].count, &kernels_ref, &net, &err);
            if (rc != (int)list[i].status || !strstr(err.text, list[i].phrase))
                fail_msg("status %d, \"%s\": not \"%s\"", rc, err.text, list[i].phrase);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_of_one_layer_are_the_net),
        cmocka_unit_test(test_slices_of_layers_in_a_row_are_the_net),
        cmocka_unit_test(test_slices_of_a_fork_are_the_net),
        cmocka_unit_test(test_slices_of_convolutions_are_the_net),
        cmocka_unit_test(test_slices_share_channels_out),
        cmocka_unit_test(test_slices_of_a_range_are_the_net),
        cmocka_unit_test(test_a_batch_may_have_fewer_records_than_slices),
        cmocka_unit_test(test_a_pass_may_be_given_up),
        cmocka_unit_test(test_layers_that_slices_cannot_share_out),
        cmocka_unit_test(test_ranges_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
