/* Simonyan, Zisserman 2014, Table 1: configurations A and D. Convolutions of 3×3 in five stages, a
 * pooling of 2×2 after each, three fully connected layers. */
#include "model/zoo_nets.h"

enum { STAGES = 5 };

static const uint32_t outputs[STAGES] = {64, 128, 256, 512, 512};

/* The pooled image to the scores, as vgg16_train_val.prototxt has it. */
static void add_classifier(struct build *b, const char *pooled, uint32_t classes)
{
    const struct build_weights weights = zoo_weights("gaussian", 0.005f, 0.1f);
    build_inner_product(b, "fc6", pooled, 4096, &weights);
    build_relu(b, "relu6", "fc6");
    build_dropout(b, "drop6", "fc6", 0.5f);
    build_inner_product(b, "fc7", "fc6", 4096, &weights);
    build_relu(b, "relu7", "fc7");
    build_dropout(b, "drop7", "fc7", 0.5f);
    build_inner_product(b, "fc8", "fc7", classes, &weights);
    zoo_end(b, "fc8", true);
}

/* A: 8 convolutions, 132,863,336 parameters. Names and fillers of the convolutions are those of the
 * Caffe file that convnet-benchmarks measured with; its fully connected layers, which have neither
 * activations nor fillers there, are like vgg-16's. */
void zoo_vgg_a(struct build *b, const struct zoo_plan *plan)
{
    static const unsigned convolutions[STAGES] = {1, 1, 2, 2, 2};
    const struct build_weights weights = zoo_weights("xavier", 0, 0.2f);
    struct zoo_name bottom = zoo_name("data");
    unsigned i = 1;
    zoo_begin(b);
    for (unsigned stage = 0; stage < STAGES; stage++) {
        for (unsigned k = 0; k < convolutions[stage]; k++, i++) {
            struct zoo_name top = zoo_name("conv%u/3x3_s1", i);
            build_convolution(b, top.text, bottom.text, outputs[stage], SQUARE(3, 1, 1), &weights);
            build_relu(b, zoo_name("conv%u/relu", i).text, top.text);
            bottom = top;
        }
        struct zoo_name pool = zoo_name("pool%u/2x2_s2", stage + 1);
        build_pool_max(b, pool.text, bottom.text, 2, 2);
        bottom = pool;
    }
    add_classifier(b, bottom.text, plan->classes);
}

/* D: 13 convolutions, 138,357,544 parameters; Caffe's vgg16_train_val.prototxt. */
void zoo_vgg_16(struct build *b, const struct zoo_plan *plan)
{
    static const unsigned convolutions[STAGES] = {2, 2, 3, 3, 3};
    const struct build_weights weights = zoo_weights("gaussian", 0.01f, 0);
    struct zoo_name bottom = zoo_name("data");
    zoo_begin(b);
    for (unsigned stage = 0; stage < STAGES; stage++) {
        for (unsigned k = 1; k <= convolutions[stage]; k++) {
            struct zoo_name top = zoo_name("conv%u_%u", stage + 1, k);
            build_convolution(b, top.text, bottom.text, outputs[stage], SQUARE(3, 1, 1), &weights);
            build_relu(b, zoo_name("relu%u_%u", stage + 1, k).text, top.text);
            bottom = top;
        }
        struct zoo_name pool = zoo_name("pool%u", stage + 1);
        build_pool_max(b, pool.text, bottom.text, 2, 2);
        bottom = pool;
    }
    add_classifier(b, bottom.text, plan->classes);
}
