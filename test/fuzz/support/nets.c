#include "fuzz.h"

#include "job/text.h"
#include "model/caffe_upgrade.h"
#include "model/load.h"
#include "nn/net.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, PLAN_BYTES = 1 << 20, STEP_BYTES = 1 << 20 };

static const double STEP_FLOPS = 1e6;

/* Values between -1 and 1. */
static void fill_values(float *x, size_t n)
{
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)state * 0x1p-31f;
    }
}

static void step_net(struct net *net, const struct shape *record, enum phase phase)
{
    static const uint32_t labels[BATCH];
    static const uint64_t records[BATCH] = {3, 4};
    struct arena arena;
    struct vec x, dx, s;
    arena_init(&arena);
    size_t values = BATCH * shape_count(record);
    float *data = arena_array(&arena, values, float);
    float *carried = arena_array(&arena, BATCH * net_carried(net), float);
    if (data && carried && vec_init(&x, &arena, net_segments(net)->total) == OK &&
        vec_init(&dx, &arena, net_segments(net)->total) == OK &&
        vec_init(&s, &arena, net_state_segments(net)->total) == OK) {
        struct net_result result;
        fill_values(data, values);
        net_init(net, 7, &x, &s);
        for (size_t count = 1; count <= BATCH; count++) {
            const struct net_batch batch = {
                .data = data,
                .labels = labels,
                .records = records,
                .count = count,
                .seed = 1,
                .carried = count > 1 ? carried : NULL,
            };
            net_forward(net, &x, &s, &batch, &result);
            PL_ASSERT(result.count == count);
            if (phase == PHASE_TRAIN)
                PL_ASSERT(net_backward(net, &x, &dx, NULL) == OK);
        }
    }
    arena_release(&arena);
}

static void plan_net(const Caffe__NetParameter *param, const struct shape *record, enum phase phase)
{
    const struct net_options options = {
        .phase = phase, .batch = BATCH, .input = *record, .kernels = &kernels_ref};
    struct err err = {0};
    struct net *net = NULL;
    fuzz_budget(PLAN_BYTES);
    int rc = net_create(param, &options, &net, &err);
    fuzz_judge(rc, &err, NULL);
    if (rc == OK && net_flops(net) <= STEP_FLOPS) {
        fuzz_budget(STEP_BYTES);
        step_net(net, record, phase);
    }
    net_free(net);
    fuzz_budget(SIZE_MAX);
}

void fuzz_net(const Caffe__NetParameter *net)
{
    struct shape record = model_record_shape(net);
    if (record.n == 0)
        record = (struct shape){3, {3, 6, 6}};
    plan_net(net, &record, PHASE_TRAIN);
    plan_net(net, &record, PHASE_TEST);
}

const Caffe__NetParameter *fuzz_small_net(void)
{
    static const char text[] =
        "layer { name: 'data' type: 'Input' top: 'data' top: 'label' "
        "  input_param { shape { dim: 1 dim: 1 dim: 4 dim: 4 } shape { dim: 1 } } }"
        "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' "
        "  convolution_param { num_output: 2 kernel_size: 3 } }"
        "layer { name: 'bn' type: 'BatchNorm' bottom: 'conv' top: 'bn' }"
        "layer { name: 'ip' type: 'InnerProduct' bottom: 'bn' top: 'ip' "
        "  inner_product_param { num_output: 3 } }"
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";
    static Caffe__NetParameter *net;
    struct err err;
    if (net)
        return net;
    ProtobufCMessage *msg;
    PL_ASSERT(text_parse(&caffe__net_parameter__descriptor, "small", text, strlen(text), &msg,
                         &err) == OK);
    net = (Caffe__NetParameter *)msg;
    return net;
}
