/* A .caffemodel: its blobs, the net it describes, and its weights loaded into an existing net. */
#include "support/fuzz.h"

#include "model/caffe_model.h"
#include "model/weights.h"
#include "nn/net.h"

#include <stdlib.h>

#define NAME "in.caffemodel"

static void copy_blobs(const struct caffe_model *model)
{
    for (size_t i = 0; i < model->n; i++)
        for (size_t k = 0; k < model->layer[i].n; k++) {
            const struct caffe_blob *blob = &model->layer[i].blob[k];
            float *into = malloc(blob->count * sizeof *into);
            PL_ASSERT(into && blob->count == shape_count(&blob->shape));
            caffe_blob_copy(blob, into);
            (void)caffe_blob_finite(blob);
            free(into);
        }
    for (size_t i = 0; i < model->n; i++)
        if (model->layer[i].n > 0)
            PL_ASSERT(caffe_model_find(model, model->layer[i].name) == &model->layer[i]);
}

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
    fuzz_judge(model_weights_load(NAME, WEIGHTS_ALL, &into, NULL, &err), &err, NAME);
    fuzz_judge(model_weights_load(NAME, WEIGHTS_SOME, &into, NULL, &err), &err, NAME);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct caffe_model model;
    Caffe__NetParameter *net = NULL;
    struct err err = {0};
    int rc = caffe_model_parse(NAME, bytes, n, &model, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc != OK)
        return 0;
    copy_blobs(&model);
    rc = caffe_model_net(&model, &net, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc == OK) {
        fuzz_text(&net->base);
        fuzz_net(net);
        caffe__net_parameter__free_unpacked(net, NULL);
    }
    caffe_model_release(&model);
    fuzz_files_clear();
    fuzz_file(NAME, bytes, n);
    load_model();
    return 0;
}
