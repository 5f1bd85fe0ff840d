/* For tests: nets from prototxt, with vectors, data and labels to run them on. */
#ifndef PL_NN_FIXTURE_H
#define PL_NN_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rng.h"
#include "job/text.h"
#include "nn/net.h"

#include <math.h>
#include <string.h>

static const struct kernels *const fixture_kernels[] = {&kernels_ref, &kernels_dnnl};
enum { FIXTURE_KERNELS = 2 };

struct fixture {
    struct net *net;
    struct arena arena;
    struct vec x, dx, s;
    float *data;
    uint32_t *labels;
    uint64_t *records;
    struct net_batch batch;
};

static inline void fixture_near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance))
        fail_msg("%.9g and %.9g differ by more than %g", a, b, tolerance);
}

static inline Caffe__NetParameter *fixture_parse(const char *text)
{
    struct err err = {0};
    ProtobufCMessage *msg = NULL;
    int rc = text_parse(&caffe__net_parameter__descriptor, "net", text, strlen(text), &msg, &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    return (Caffe__NetParameter *)msg;
}

static inline int fixture_make(const char *text, const struct net_options *options,
                               struct net **out, struct err *err)
{
    Caffe__NetParameter *param = fixture_parse(text);
    int rc = net_create(param, options, out, err);
    caffe__net_parameter__free_unpacked(param, NULL);
    return rc;
}

/* Keeps all values for inspection. */
static inline int fixture_try(const char *text, enum phase phase, size_t batch, struct shape input,
                              const struct kernels *kernels, struct net **out, struct err *err)
{
    const struct net_options options = {
        .phase = phase,
        .batch = batch,
        .input = input,
        .kernels = kernels,
        .keep_all = true,
    };
    return fixture_make(text, &options, out, err);
}

/* An invalid net, and the text of its error. */
struct fixture_refusal {
    const char *net;
    int status;
    const char *expected;
};

static inline void fixture_refused(const struct fixture_refusal *list, size_t n, struct shape input)
{
    for (size_t i = 0; i < n; i++) {
        struct net *net = NULL;
        struct err err = {0};
        int rc = fixture_try(list[i].net, PHASE_TRAIN, 5, input, &kernels_dnnl, &net, &err);
        if (rc != list[i].status || !strstr(err.text, list[i].expected))
            fail_msg("status %d, \"%s\": not %d, \"%s\"", rc, err.text, list[i].status,
                     list[i].expected);
    }
}

/* Data in [-1, 1), labels below the net's classes; parameters by their fillers. */
static inline void fixture_fill(struct fixture *f, struct net *net, size_t N, struct shape input)
{
    size_t floats = shape_count(&input), classes = net_classes(net);
    classes = classes == SIZE_MAX ? 5 : classes; /* any number will do */
    *f = (struct fixture){.net = net};
    arena_init(&f->arena);
    assert_int_equal(vec_init(&f->x, &f->arena, net_segments(net)->total), OK);
    assert_int_equal(vec_init(&f->dx, &f->arena, net_segments(net)->total), OK);
    assert_int_equal(vec_init(&f->s, &f->arena, net_state_segments(net)->total), OK);
    f->data = arena_array(&f->arena, N * floats, float);
    f->labels = arena_array(&f->arena, N, uint32_t);
    f->records = arena_array(&f->arena, N, uint64_t);
    assert_true(f->data && f->labels && f->records);
    for (size_t i = 0; i < N * floats; i++)
        f->data[i] = 2.0f * rng_uniform(11, 7, i) - 1.0f;
    for (size_t n = 0; n < N; n++) {
        f->labels[n] = (uint32_t)(classes ? rng_below(11, 8, n, classes) : 0);
        f->records[n] = 1000 + n;
    }
    f->batch = (struct net_batch){
        .data = f->data, .labels = f->labels, .records = f->records, .count = N, .seed = 3};
    net_init(net, 1, &f->x, &f->s);
}

static inline void fixture_open(struct fixture *f, const char *text, enum phase phase, size_t N,
                                struct shape input, const struct kernels *kernels)
{
    struct err err = {0};
    struct net *net = NULL;
    if (fixture_try(text, phase, N, input, kernels, &net, &err) != OK)
        fail_msg("%s: %s", kernels->name, err.text);
    fixture_fill(f, net, N, input);
}

/* As nets are for callers that need no values but the outputs. */
static inline void fixture_open_lean(struct fixture *f, const char *text, enum phase phase,
                                     size_t N, struct shape input, const struct kernels *kernels)
{
    const struct net_options options = {
        .phase = phase,
        .batch = N,
        .input = input,
        .kernels = kernels,
    };
    struct err err = {0};
    struct net *net = NULL;
    if (fixture_make(text, &options, &net, &err) != OK)
        fail_msg("%s: %s", kernels->name, err.text);
    fixture_fill(f, net, N, input);
}

static inline void fixture_close(struct fixture *f)
{
    net_free(f->net);
    arena_release(&f->arena);
}

static inline struct net_result fixture_forward(struct fixture *f)
{
    struct net_result result;
    net_forward(f->net, &f->x, &f->s, &f->batch, &result);
    return result;
}

/* Forward, then the gradient into a cleared dx. */
static inline struct net_result fixture_gradient(struct fixture *f)
{
    struct net_result result = fixture_forward(f);
    vec_fill(&f->dx, vec_all(&f->dx), 0.0f);
    net_backward(f->net, &f->x, &f->dx, NULL);
    return result;
}

#endif
