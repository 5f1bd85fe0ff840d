/* A .solverstate, and its history for an existing net. */
#include "support/fuzz.h"

#include "model/caffe_state.h"
#include "nn/net.h"

#include <stdlib.h>

#define NAME "in.solverstate"

static const struct net *planned_net(void)
{
    static struct net *net;
    const struct net_options options = {
        .phase = PHASE_TEST, .batch = 1, .input = {3, {1, 4, 4}}, .kernels = &kernels_ref};
    struct err err;
    if (!net)
        PL_ASSERT(net_create(fuzz_small_net(), &options, &net, &err) == OK);
    return net;
}

static void take_state(const struct caffe_state *state)
{
    const Caffe__NetParameter *net = fuzz_small_net();
    const struct segments *x = net_segments(planned_net()), *s = net_state_segments(planned_net());
    struct err err = {0};
    size_t vectors = 0;
    int rc = caffe_state_vectors(state, net, x, s, &vectors, &err);
    fuzz_judge(rc, &err, NAME);
    float *into = malloc(x->total * sizeof *into);
    PL_ASSERT(into);
    for (size_t k = 0; rc == OK && k < vectors; k++)
        caffe_state_take(state, net, x, s, k, into);
    free(into);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct caffe_state state;
    struct err err = {0};
    fuzz_files_clear();
    fuzz_file(NAME, bytes, n);
    int rc = caffe_state_read(NAME, &state, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc != OK)
        return 0;
    take_state(&state);
    caffe_state_release(&state);
    return 0;
}
