/* Slices of a net, run side by side, and the whole net. Here the test is what brings their blobs
 * together. */
#ifndef PL_NN_SLICED_FIXTURE_H
#define PL_NN_SLICED_FIXTURE_H

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
#define UNITS(name, type, message, bottoms, outputs)                                        \
    "layer { name: '" name "' type: '" type "' " bottoms " top: '" name "' " message " {\n" \
    " num_output: " #outputs " weight_filler { type: 'xavier' }\n"                          \
    " bias_filler { type: 'uniform' min: -0.1 max: 0.1 } } }\n"
#define STEPS                                                                          \
    DATA "layer { name: 'x' type: 'Reshape' bottom: 'data' top: 'x' reshape_param {\n" \
         " shape { dim: 0 dim: 4 dim: 10 } } }\n"

static const struct shape image = {3, {2, 5, 4}};

enum { RECORDS = 6, SLICES_MAX = 5 };
enum { GATHERS, SUMS, KINDS };

/* A net, and the layers that are shared out; NULL: all. */
struct sliced_net {
    const char *text, *from, *to;
};

struct sliced {
    struct fixture whole, part[SLICES_MAX];
    size_t count;
    unsigned gathers, sums; /* points that the slices have met at */
    /* Of each kind: meetings that had begun before, and the share of a step's products that the
     * first slice computes during them. */
    unsigned begun[KINDS];
    double during[KINDS];
    float *kept[SLICES_MAX]; /* values of the meeting that has begun */
    size_t ended_with;       /* floats of the sum at the end of the step */
};

static inline int try_slice(const struct sliced_net *net, size_t index, size_t count,
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

static inline void open_sliced(struct sliced *s, const struct sliced_net *text, size_t count,
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

static inline void close_sliced(struct sliced *s)
{
    fixture_close(&s->whole);
    for (size_t f = 0; f < s->count; f++)
        fixture_close(&s->part[f]);
}

static inline void gather_columns(const struct net_point *const *point, size_t count)
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

static inline void add_up(const struct net_point *const *point, size_t count)
{
    for (size_t i = 0; i < point[0]->rows * point[0]->outputs * point[0]->each; i++) {
        float sum = 0;
        for (size_t f = 0; f < count; f++)
            sum += point[f]->values[i];
        for (size_t f = 0; f < count; f++)
            point[f]->values[i] = sum;
    }
}

/* While the passes continue the values are the test's: there are none in the blob. */
static inline void begin_meeting(struct sliced *s, const struct net_point *const *point)
{
    size_t n = point[0]->rows * point[0]->outputs * point[0]->each;
    for (size_t f = 0; f < s->count; f++) {
        s->kept[f] = malloc(n * sizeof *s->kept[f]);
        assert_non_null(s->kept[f]);
        memcpy(s->kept[f], point[f]->values, n * sizeof *s->kept[f]);
        for (size_t i = 0; i < n; i++)
            point[f]->values[i] = NAN;
    }
    s->begun[point[0]->meeting == NET_SUM_BEGINS ? SUMS : GATHERS]++;
}

static inline void end_meeting(struct sliced *s, const struct net_point *const *point)
{
    size_t n = point[0]->rows * point[0]->outputs * point[0]->each;
    for (size_t f = 0; f < s->count; f++) {
        assert_non_null(s->kept[f]);
        for (size_t i = 0; i < n; i++)
            assert_true(isnan(point[f]->values[i]));
        memcpy(point[f]->values, s->kept[f], n * sizeof *s->kept[f]);
        free(s->kept[f]);
        s->kept[f] = NULL;
    }
}

static inline void meet_slices(struct sliced *s, const struct net_point *const *point)
{
    switch (point[0]->meeting) {
    case NET_GATHER_BEGINS:
    case NET_SUM_BEGINS: begin_meeting(s, point); return;
    case NET_GATHER_ENDS: end_meeting(s, point); /* fall through */
    case NET_GATHER:
        gather_columns(point, s->count);
        s->gathers++;
        return;
    case NET_SUM_ENDS: end_meeting(s, point); /* fall through */
    case NET_SUM:
        add_up(point, s->count);
        s->sums++;
        return;
    }
}

/* The pass that all have begun, to its end. */
static inline void run_together(struct sliced *s)
{
    const struct net_point *point[SLICES_MAX];
    double share = 0, begun = 0;
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
        const bool ends = point[0]->meeting == NET_GATHER_ENDS || point[0]->meeting == NET_SUM_ENDS;
        assert_true(ends == (s->kept[0] != NULL));
        if (ends)
            s->during[point[0]->meeting == NET_SUM_ENDS ? SUMS : GATHERS] += share - begun;
        begun = share;
        meet_slices(s, point);
    }
}

/* At the end of a step; the share of the step's products has no part in it. */
static inline void end_step(struct sliced *s)
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

static inline void run_gradient(struct sliced *s)
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
static inline double find_difference(const struct sliced *s, bool of_dx)
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

#endif
