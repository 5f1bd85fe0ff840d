/* Inception-v3 (Szegedy, Vanhoucke, Ioffe, Shlens, Wojna 2015, "Rethinking the Inception
 * architecture for computer vision", Table 1 and Figures 5 to 8 and 10; the widths, which the paper
 * leaves out, are those of its authors' published model). Records are 3×299×299.
 *
 * Batch normalisation, which is BatchNorm and Scale, follows each convolution; convolutions have no
 * bias. Counting weights of convolutions and of the two classifiers, with their biases, and a
 * factor and an offset a channel of each normalisation: 23,834,568 parameters, and 27,161,264 with
 * the auxiliary classifier. Running means and variances are state and not counted. The labels are
 * not smoothed (§7). */
#include "model/zoo_nets.h"

#define AVERAGE CAFFE__POOLING_PARAMETER__POOL_METHOD__AVE

static const struct build_window w1 = {.kernel = 1, .stride = 1},
                                 w3 = {.kernel = 3, .stride = 1, .pad = 1},
                                 w5 = {.kernel = 5, .stride = 1, .pad = 2},
                                 halving = {.kernel = 3, .stride = 2};
static const struct build_window w1x7 = {.kernel = 1, .stride = 1, .kernel_w = 7, .pad_w = 3},
                                 w7x1 = {.kernel = 7, .stride = 1, .pad = 3, .kernel_w = 1},
                                 w1x3 = {.kernel = 1, .stride = 1, .kernel_w = 3, .pad_w = 1},
                                 w3x1 = {.kernel = 3, .stride = 1, .pad = 1, .kernel_w = 1};

/* Convolution, BatchNorm, Scale, ReLU: the blob "module/part". */
static struct zoo_name add_conv(struct build *b, const char *module, const char *part,
                                const char *bottom, uint32_t outputs,
                                const struct build_window *window)
{
    struct build_weights weights = build_weights_default;
    weights.filler = "msra";
    weights.bias = false;
    struct zoo_name top = zoo_name("%s/%s", module, part);
    build_convolution(b, top.text, bottom, outputs, window, &weights);
    build_batch_norm(b, zoo_name("%s/bn", top.text).text, top.text, top.text, 0.001f, 0);
    build_scale(b, zoo_name("%s/scale", top.text).text, top.text, top.text, true);
    build_relu(b, zoo_name("%s/relu", top.text).text, top.text);
    return top;
}

static struct zoo_name add_pool(struct build *b, const char *module, const char *bottom,
                                Caffe__PoolingParameter__PoolMethod method,
                                const struct build_window *window)
{
    struct zoo_name top = zoo_name("%s/pool", module);
    build_pool(b, top.text, bottom, method, window);
    return top;
}

#define CONCAT(b, top, ...)                                  \
    build_concat(b, top, (const char *const[]){__VA_ARGS__}, \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* Figure 5, on 35×35 pixels: 5×5 next to two of 3×3. */
static void module_a(struct build *b, const char *name, const char *bottom, uint32_t pooled)
{
    struct zoo_name one = add_conv(b, name, "1x1", bottom, 64, &w1);
    struct zoo_name five = add_conv(b, name, "5x5_reduce", bottom, 48, &w1);
    five = add_conv(b, name, "5x5", five.text, 64, &w5);
    struct zoo_name twice = add_conv(b, name, "double3x3_reduce", bottom, 64, &w1);
    twice = add_conv(b, name, "double3x3_1", twice.text, 96, &w3);
    twice = add_conv(b, name, "double3x3_2", twice.text, 96, &w3);
    struct zoo_name mean = add_pool(b, name, bottom, AVERAGE, &w3);
    mean = add_conv(b, name, "pool_proj", mean.text, pooled, &w1);
    CONCAT(b, name, one.text, five.text, twice.text, mean.text);
}

/* Figure 10: from 35×35 to 17×17. */
static void reduction_a(struct build *b, const char *name, const char *bottom)
{
    struct zoo_name three = add_conv(b, name, "3x3", bottom, 384, &halving);
    struct zoo_name twice = add_conv(b, name, "double3x3_reduce", bottom, 64, &w1);
    twice = add_conv(b, name, "double3x3_1", twice.text, 96, &w3);
    twice = add_conv(b, name, "double3x3_2", twice.text, 96, &halving);
    struct zoo_name most =
        add_pool(b, name, bottom, CAFFE__POOLING_PARAMETER__POOL_METHOD__MAX, &halving);
    CONCAT(b, name, three.text, twice.text, most.text);
}

/* Figure 6, on 17×17 pixels: 7×7 as 1×7 and 7×1. */
static void module_b(struct build *b, const char *name, const char *bottom, uint32_t inner)
{
    struct zoo_name one = add_conv(b, name, "1x1", bottom, 192, &w1);
    struct zoo_name seven = add_conv(b, name, "7x7_reduce", bottom, inner, &w1);
    seven = add_conv(b, name, "1x7", seven.text, inner, &w1x7);
    seven = add_conv(b, name, "7x1", seven.text, 192, &w7x1);
    struct zoo_name twice = add_conv(b, name, "double7x7_reduce", bottom, inner, &w1);
    twice = add_conv(b, name, "double7x1_1", twice.text, inner, &w7x1);
    twice = add_conv(b, name, "double1x7_1", twice.text, inner, &w1x7);
    twice = add_conv(b, name, "double7x1_2", twice.text, inner, &w7x1);
    twice = add_conv(b, name, "double1x7_2", twice.text, 192, &w1x7);
    struct zoo_name mean = add_pool(b, name, bottom, AVERAGE, &w3);
    mean = add_conv(b, name, "pool_proj", mean.text, 192, &w1);
    CONCAT(b, name, one.text, seven.text, twice.text, mean.text);
}

/* From 17×17 to 8×8. */
static void reduction_b(struct build *b, const char *name, const char *bottom)
{
    struct zoo_name three = add_conv(b, name, "3x3_reduce", bottom, 192, &w1);
    three = add_conv(b, name, "3x3", three.text, 320, &halving);
    struct zoo_name seven = add_conv(b, name, "7x7x3_reduce", bottom, 192, &w1);
    seven = add_conv(b, name, "7x7x3_1x7", seven.text, 192, &w1x7);
    seven = add_conv(b, name, "7x7x3_7x1", seven.text, 192, &w7x1);
    seven = add_conv(b, name, "7x7x3_3x3", seven.text, 192, &halving);
    struct zoo_name most =
        add_pool(b, name, bottom, CAFFE__POOLING_PARAMETER__POOL_METHOD__MAX, &halving);
    CONCAT(b, name, three.text, seven.text, most.text);
}

/* Figure 7, on 8×8 pixels: 1×3 and 3×1 side by side. */
static void module_c(struct build *b, const char *name, const char *bottom)
{
    struct zoo_name one = add_conv(b, name, "1x1", bottom, 320, &w1);
    struct zoo_name three = add_conv(b, name, "3x3_reduce", bottom, 384, &w1);
    struct zoo_name a = add_conv(b, name, "1x3", three.text, 384, &w1x3);
    struct zoo_name c = add_conv(b, name, "3x1", three.text, 384, &w3x1);
    struct zoo_name twice = add_conv(b, name, "double3x3_reduce", bottom, 448, &w1);
    twice = add_conv(b, name, "double3x3", twice.text, 384, &w3);
    struct zoo_name d = add_conv(b, name, "double1x3", twice.text, 384, &w1x3);
    struct zoo_name e = add_conv(b, name, "double3x1", twice.text, 384, &w3x1);
    struct zoo_name mean = add_pool(b, name, bottom, AVERAGE, &w3);
    mean = add_conv(b, name, "pool_proj", mean.text, 192, &w1);
    CONCAT(b, name, one.text, a.text, c.text, d.text, e.text, mean.text);
}

static void add_classifier(struct build *b, const char *name, const char *bottom, uint32_t classes,
                           float std)
{
    const struct build_weights weights = zoo_weights("gaussian", std, 0);
    build_inner_product(b, name, bottom, classes, &weights);
}

/* Figure 8: a classifier on the last 17×17 pixels. The weight of its loss is GoogLeNet's. */
static void add_auxiliary(struct build *b, const char *bottom, uint32_t classes)
{
    build_pool_average(b, "aux/pool", bottom, 5, 3);
    struct zoo_name at = add_conv(b, "aux", "1x1", "aux/pool", 128, &w1);
    at = add_conv(b, "aux", "5x5", at.text, 768, SQUARE(5, 1, 0));
    add_classifier(b, "aux/classifier", at.text, classes, 0.001f);
    build_softmax_loss(b, "aux/loss", "aux/classifier", "label");
    build_loss_weight(b, 0.3f);
}

/* From 299×299 to 35×35. */
static void add_stem(struct build *b)
{
    add_conv(b, "conv1", "3x3_s2", "data", 32, &halving);
    add_conv(b, "conv2", "3x3", "conv1/3x3_s2", 32, SQUARE(3, 1, 0));
    add_conv(b, "conv3", "3x3", "conv2/3x3", 64, &w3);
    build_pool_max(b, "pool1", "conv3/3x3", 3, 2);
    add_conv(b, "conv4", "1x1", "pool1", 80, &w1);
    add_conv(b, "conv5", "3x3", "conv4/1x1", 192, SQUARE(3, 1, 0));
    build_pool_max(b, "pool2", "conv5/3x3", 3, 2);
}

void zoo_inception_v3(struct build *b, const struct zoo_plan *plan)
{
    zoo_begin(b);
    add_stem(b);
    module_a(b, "mixed_a1", "pool2", 32);
    module_a(b, "mixed_a2", "mixed_a1", 64);
    module_a(b, "mixed_a3", "mixed_a2", 64);
    reduction_a(b, "reduced_a", "mixed_a3");
    module_b(b, "mixed_b1", "reduced_a", 128);
    module_b(b, "mixed_b2", "mixed_b1", 160);
    module_b(b, "mixed_b3", "mixed_b2", 160);
    module_b(b, "mixed_b4", "mixed_b3", 192);
    add_auxiliary(b, "mixed_b4", plan->classes);
    reduction_b(b, "reduced_b", "mixed_b4");
    module_c(b, "mixed_c1", "reduced_b");
    module_c(b, "mixed_c2", "mixed_c1");
    build_pool_average(b, "pool3", "mixed_c2", 8, 1);
    build_dropout(b, "drop", "pool3", 0.5f);
    add_classifier(b, "classifier", "pool3", plan->classes, 0.01f);
    zoo_end(b, "classifier", true);
}
