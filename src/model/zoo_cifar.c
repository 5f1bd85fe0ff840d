/* Caffe's two nets for CIFAR-10, after cuda-convnet: three convolutions of 5×5, each halving the
 * image by a pooling of 3×3. Weights begin as narrow normal distributions, for records that are
 * pixels from 0 to 255 less their mean. */
#include "model/zoo_nets.h"

static struct build_weights gaussian_weights(float std)
{
    struct build_weights weights = build_weights_default;
    weights.filler = "gaussian";
    weights.std = std;
    return weights;
}

static void add_conv(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                     const struct build_weights *weights)
{
    const struct build_window window = {.kernel = 5, .stride = 1, .pad = 2};
    build_convolution(b, top, bottom, outputs, &window, weights);
}

/* cifar10_quick_train_test.prototxt: 145,578 parameters. */
void zoo_cifar10_quick(struct build *b, const struct zoo_plan *plan)
{
    const struct build_weights first = gaussian_weights(0.0001f), other = gaussian_weights(0.01f),
                               inner = gaussian_weights(0.1f);
    zoo_begin(b);
    add_conv(b, "conv1", "data", 32, &first);
    build_pool_max(b, "pool1", "conv1", 3, 2);
    build_relu(b, "relu1", "pool1");
    add_conv(b, "conv2", "pool1", 32, &other);
    build_relu(b, "relu2", "conv2");
    build_pool_average(b, "pool2", "conv2", 3, 2);
    add_conv(b, "conv3", "pool2", 64, &other);
    build_relu(b, "relu3", "conv3");
    build_pool_average(b, "pool3", "conv3", 3, 2);
    build_inner_product(b, "ip1", "pool3", 64, &inner);
    build_inner_product(b, "ip2", "ip1", plan->classes, &inner);
    zoo_end(b, "ip2", false);
}

/* cifar10_full_train_test.prototxt: 89,578 parameters. Its third convolution's biases learn at the
 * weights' rate, and its last layer's weights decay 250 times as fast. */
void zoo_cifar10_full(struct build *b, const struct zoo_plan *plan)
{
    static const struct build_lrn lrn = {3, 5e-05f, 0.75f, 1.0f, .within_channel = true};
    const struct build_weights first = gaussian_weights(0.0001f), second = gaussian_weights(0.01f);
    struct build_weights third = second, inner = second;
    third.bias_rate = 1.0f;
    inner.decay = 250.0f;
    inner.bias_decay = 0.0f;
    zoo_begin(b);
    add_conv(b, "conv1", "data", 32, &first);
    build_pool_max(b, "pool1", "conv1", 3, 2);
    build_relu(b, "relu1", "pool1");
    build_lrn(b, "norm1", "pool1", &lrn);
    add_conv(b, "conv2", "norm1", 32, &second);
    build_relu(b, "relu2", "conv2");
    build_pool_average(b, "pool2", "conv2", 3, 2);
    build_lrn(b, "norm2", "pool2", &lrn);
    add_conv(b, "conv3", "norm2", 64, &third);
    build_relu(b, "relu3", "conv3");
    build_pool_average(b, "pool3", "conv3", 3, 2);
    build_inner_product(b, "ip1", "pool3", plan->classes, &inner);
    zoo_end(b, "ip1", false);
}
