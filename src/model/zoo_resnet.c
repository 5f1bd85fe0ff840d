/* Deep residual nets (He, Zhang, Ren, Sun 2015): a block adds what its convolutions make of an
 * image to the image itself. Batch normalisation (BatchNorm, then Scale) follows each convolution,
 * ahead of the activation (§3.4). Where a block changes the size or the channels, a convolution of
 * 1×1 changes the image alike (§3.3, option B). */
#include "model/zoo_nets.h"

/* Of BatchNorm's moving averages. Caffe's 0.999 averages over thousands of steps: a net that trains
 * for a few epochs would be tested with the statistics of much earlier weights. */
static const float FRACTION = 0.9f;

static void add_sum(struct build *b, const char *top, const char *image, const char *branch)
{
    build_eltwise(b, top, CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__SUM,
                  (const char *const[]){image, branch}, 2, NULL);
}

/* ---- CIFAR-10 (§4.2): 6n + 2 layers ----
 *
 * Three stages of n blocks, of 16, 32 and 64 maps on 32×32, 16×16 and 8×8 pixels, as the Caffe
 * files res20_, res56_ and res110_cifar_train_test.prototxt have it. These have projections (the
 * paper's table takes option A here, which has none) and biases in all convolutions: 273,258
 * parameters for 20 layers, 468,138 for 32, 857,898 for 56 and 1,734,858 for 110. Layers are
 * numbered by type. */

struct cifar {
    struct build *b;
    unsigned convolution, relu, eltwise; /* how many there are until now */
};

/* Convolution, BatchNorm, Scale. Weights start with deviation √(2 / (outputs · window)), rounded as
 * in the files. */
static struct zoo_name cifar_conv(struct cifar *c, const char *bottom, uint32_t outputs,
                                  uint32_t kernel, uint32_t stride)
{
    static const float std[2][3] = {{0.118f, 0.083f, 0.059f}, {0, 0.25f, 0.176776695297f}};
    const struct build_weights weights = zoo_weights("gaussian", std[kernel == 1][outputs / 32], 0);
    unsigned i = ++c->convolution;
    struct zoo_name top = zoo_name("Convolution%u", i);
    build_convolution(c->b, top.text, bottom, outputs, SQUARE(kernel, stride, kernel / 2),
                      &weights);
    build_batch_norm(c->b, zoo_name("BatchNorm%u", i).text, top.text, top.text, 0, FRACTION);
    build_scale(c->b, zoo_name("Scale%u", i).text, top.text, top.text, true);
    return top;
}

static void cifar_relu(struct cifar *c, const char *blob)
{
    build_relu(c->b, zoo_name("ReLU%u", ++c->relu).text, blob);
}

static struct zoo_name cifar_block(struct cifar *c, struct zoo_name image, uint32_t outputs,
                                   bool halves)
{
    struct zoo_name bottom = image;
    if (halves)
        image = cifar_conv(c, bottom.text, outputs, 1, 2);
    struct zoo_name branch = cifar_conv(c, bottom.text, outputs, 3, halves ? 2 : 1);
    cifar_relu(c, branch.text);
    branch = cifar_conv(c, branch.text, outputs, 3, 1);
    struct zoo_name top = zoo_name("Eltwise%u", ++c->eltwise);
    add_sum(c->b, top.text, image.text, branch.text);
    cifar_relu(c, top.text);
    return top;
}

void zoo_resnet_cifar(struct build *b, const struct zoo_plan *plan)
{
    static const uint32_t outputs[] = {16, 32, 64};
    struct build_weights inner = zoo_weights("gaussian", 0.01f, 0);
    inner.bias_decay = 1.0f;
    struct cifar c = {.b = b};
    zoo_begin(b);
    struct zoo_name image = cifar_conv(&c, "data", 16, 3, 1);
    cifar_relu(&c, image.text);
    for (unsigned stage = 0; stage < 3; stage++)
        for (unsigned k = 0; k < (plan->depth - 2) / 6; k++)
            image = cifar_block(&c, image, outputs[stage], stage > 0 && k == 0);
    build_pool_global(b, "Pooling1", image.text, CAFFE__POOLING_PARAMETER__POOL_METHOD__AVE);
    build_inner_product(b, "InnerProduct1", "Pooling1", plan->classes, &inner);
    zoo_end(b, "InnerProduct1", false);
}

/* ---- ImageNet (§4.1, Table 1) ----
 *
 * The nets that end in -b are those of PyTorch's torchvision, so that its weights fit: a block's
 * stride is that of its 3×3 convolution (ResNet-B in He et al. 2018, "Bag of Tricks", Fig. 2a), the
 * first pooling has a padding of 1, and the last takes the whole image.
 *
 * Four stages on 56×56 to 7×7 pixels. Names are those of the authors' Caffe files. resnet-50 is
 * their net with the fillers of the published train_val: 25,557,096 parameters, among them 64
 * biases of the first convolution, which the others lack: 60,192,808 for 152 layers, 21,797,672
 * for 34. For these two, of which there is no file to train from, weights start as the paper says
 * (§3.4). */

struct imagenet {
    struct build *b;
    bool bottleneck; /* blocks of 1×1, 3×3, 1×1 with four times the maps; else of 3×3, 3×3 */
    bool b_variant;  /* torchvision's */
    struct build_weights weights;
};

/* Convolution, BatchNorm, Scale: res2a_branch1, bn2a_branch1, scale2a_branch1. `part` is "2a". */
static struct zoo_name add_branch(const struct imagenet *r, const char *part, const char *name,
                                  const char *bottom, uint32_t outputs, uint32_t kernel,
                                  uint32_t stride)
{
    struct zoo_name top = zoo_name("res%s_branch%s", part, name);
    build_convolution(r->b, top.text, bottom, outputs, SQUARE(kernel, stride, kernel / 2),
                      &r->weights);
    build_batch_norm(r->b, zoo_name("bn%s_branch%s", part, name).text, top.text, top.text, 0,
                     FRACTION);
    build_scale(r->b, zoo_name("scale%s_branch%s", part, name).text, top.text, top.text, true);
    return top;
}

static void add_relu(const struct imagenet *r, const char *blob)
{
    build_relu(r->b, zoo_name("%s_relu", blob).text, blob);
}

/* Writes the blob "res2a". The stride is the first convolution's, as in the authors' files,
 * or, in torchvision's, that of the 3×3 convolution. */
static struct zoo_name add_block(const struct imagenet *r, const char *part, struct zoo_name image,
                                 uint32_t maps, uint32_t stride, bool projects)
{
    uint32_t outputs = r->bottleneck ? 4 * maps : maps;
    struct zoo_name bottom = image;
    if (projects)
        image = add_branch(r, part, "1", bottom.text, outputs, 1, stride);
    bool late = r->bottleneck && r->b_variant;
    struct zoo_name at =
        add_branch(r, part, "2a", bottom.text, maps, r->bottleneck ? 1 : 3, late ? 1 : stride);
    add_relu(r, at.text);
    at = add_branch(r, part, "2b", at.text, maps, 3, late ? stride : 1);
    if (r->bottleneck) {
        add_relu(r, at.text);
        at = add_branch(r, part, "2c", at.text, outputs, 1, 1);
    }
    struct zoo_name top = zoo_name("res%s", part);
    add_sum(r->b, top.text, image.text, at.text);
    add_relu(r, top.text);
    return top;
}

/* "3a", "3b", "3c", .. or, in stages that are longer than the alphabet of the files, "3a", "3b1",
 * "3b2", .. */
static struct zoo_name part_name(unsigned stage, unsigned k, unsigned blocks)
{
    if (k > 0 && blocks > 6)
        return zoo_name("%ub%u", stage, k);
    return zoo_name("%u%c", stage, (char)('a' + k));
}

static void add_stem(const struct imagenet *r, const struct build_weights *weights)
{
    build_convolution(r->b, "conv1", "data", 64, SQUARE(7, 2, 3), weights);
    build_batch_norm(r->b, "bn_conv1", "conv1", "conv1", 0, FRACTION);
    build_scale(r->b, "scale_conv1", "conv1", "conv1", true);
    add_relu(r, "conv1");
    if (!r->b_variant) {
        build_pool_max(r->b, "pool1", "conv1", 3, 2);
        return;
    }
    build_pool(r->b, "pool1", "conv1", CAFFE__POOLING_PARAMETER__POOL_METHOD__MAX, SQUARE(3, 2, 1));
    if (!r->b->failed) {
        Caffe__PoolingParameter *pool = r->b->net->layer[r->b->net->n_layer - 1]->pooling_param;
        pool->has_round_mode = true;
        pool->round_mode = CAFFE__POOLING_PARAMETER__ROUND_MODE__FLOOR;
    }
}

static const unsigned *blocks_of(unsigned depth)
{
    static const unsigned of_18[] = {2, 2, 2, 2}, of_50[] = {3, 4, 6, 3}, of_101[] = {3, 4, 23, 3};
    static const unsigned of_152[] = {3, 8, 36, 3};
    return depth == 152 ? of_152 : depth == 101 ? of_101 : depth == 18 ? of_18 : of_50;
}

static void add_imagenet(struct build *b, const struct zoo_plan *plan, bool b_variant)
{
    const unsigned *blocks = blocks_of(plan->depth);
    struct imagenet r = {b, plan->depth >= 50, b_variant, build_weights_default};
    bool published = plan->depth == 50 && !b_variant;
    r.weights.filler = published ? "xavier" : "msra";
    r.weights.bias = false;
    struct build_weights first = r.weights, inner = r.weights;
    first.bias = published;
    first.bias_value = 0.2f;
    inner.filler = "xavier";
    inner.bias = true;
    first.bias_rate = inner.bias_rate = 1.0f;
    zoo_begin(b);
    add_stem(&r, &first);
    struct zoo_name image = zoo_name("pool1");
    for (unsigned stage = 0; stage < 4; stage++) {
        for (unsigned k = 0; k < blocks[stage]; k++) {
            struct zoo_name part = part_name(stage + 2, k, blocks[stage]);
            uint32_t stride = stage > 0 && k == 0 ? 2 : 1;
            image = add_block(&r, part.text, image, 64u << stage, stride,
                              k == 0 && (stage > 0 || r.bottleneck));
        }
    }
    struct zoo_name scores = zoo_name("fc%u", plan->classes);
    if (b_variant)
        build_pool_global(b, "pool5", image.text, CAFFE__POOLING_PARAMETER__POOL_METHOD__AVE);
    else
        build_pool_average(b, "pool5", image.text, 7, 1);
    build_inner_product(b, scores.text, "pool5", plan->classes, &inner);
    zoo_end(b, scores.text, true);
}

void zoo_resnet_imagenet(struct build *b, const struct zoo_plan *plan)
{
    add_imagenet(b, plan, false);
}

void zoo_resnet_b(struct build *b, const struct zoo_plan *plan)
{
    add_imagenet(b, plan, true);
}
