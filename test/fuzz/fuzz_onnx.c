/* A model in ONNX: the net and the weights that it becomes, and these loaded into an existing
 * net. */
#include "support/fuzz.h"

#include "model/onnx_import.h"
#include "model/weights.h"
#include "nn/net.h"

#include <stdlib.h>

#define NAME "in.onnx"

/* Bytes that a small file may ask for. */
static const size_t NUMBERS_MAX = 1 << 24, BUDGET = 1 << 26;

static void load_model(void)
{
    static struct weights_into into;
    struct err err = {0};
    if (!into.x) {
        const struct net_options options = {
            .phase = PHASE_TEST, .batch = 1, .input = {3, {1, 4, 4}}, .kernels = &kernels_ref};
        struct net *net;
        PL_ASSERT(net_create(fuzz_small_net(), &options, &net, &err) == OK);
        into.x = net_segments(net);
        into.s = net_state_segments(net);
        into.x_at = calloc(into.x->total, sizeof(float));
        into.s_at = calloc(into.s->total, sizeof(float));
        PL_ASSERT(into.x_at && into.s_at);
    }
    fuzz_budget(BUDGET);
    fuzz_judge(model_weights_load(NAME, WEIGHTS_SOME, &into, NULL, &err), &err, NAME);
    fuzz_budget(SIZE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    Caffe__NetParameter *net = NULL;
    struct err err = {0};
    int rc = onnx_import(NAME, bytes, n, NUMBERS_MAX, &net, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc != OK)
        return 0;
    for (size_t i = 0; i < net->n_layer; i++)
        while (net->layer[i]->n_blobs > 0)
            caffe__blob_proto__free_unpacked(net->layer[i]->blobs[--net->layer[i]->n_blobs], NULL);
    fuzz_text(&net->base);
    fuzz_net(net);
    caffe__net_parameter__free_unpacked(net, NULL);
    fuzz_files_clear();
    fuzz_file(NAME, bytes, n);
    load_model();
    return 0;
}
