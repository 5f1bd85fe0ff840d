/* AlexNet (Krizhevsky, Sutskever, Hinton 2012) and a small one for CIFAR-10. */
#include "model/zoo_nets.h"

static const struct build_lrn lrn = {5, 0.0001f, 0.75f, 1.0f, .within_channel = false};

static void add_conv(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                     const struct build_window *window, float bias_value)
{
    const struct build_weights weights = zoo_weights("gaussian", 0.01f, bias_value);
    build_convolution(b, top, bottom, outputs, window, &weights);
}

static void add_inner(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                      float std, float bias_value)
{
    const struct build_weights weights = zoo_weights("gaussian", std, bias_value);
    build_inner_product(b, top, bottom, outputs, &weights);
}

/* Caffe's models/bvlc_alexnet/train_val.prototxt: 60,965,224 parameters. Three of its convolutions
 * have two groups, a remainder of the paper's two GPUs. */
void zoo_alexnet(struct build *b, const struct zoo_plan *plan)
{
    static const struct build_window conv2 = {.kernel = 5, .stride = 1, .pad = 2, .group = 2},
                                     conv45 = {.kernel = 3, .stride = 1, .pad = 1, .group = 2};
    zoo_begin(b);
    add_conv(b, "conv1", "data", 96, SQUARE(11, 4, 0), 0);
    build_relu(b, "relu1", "conv1");
    build_lrn(b, "norm1", "conv1", &lrn);
    build_pool_max(b, "pool1", "norm1", 3, 2);
    add_conv(b, "conv2", "pool1", 256, &conv2, 0.1f);
    build_relu(b, "relu2", "conv2");
    build_lrn(b, "norm2", "conv2", &lrn);
    build_pool_max(b, "pool2", "norm2", 3, 2);
    add_conv(b, "conv3", "pool2", 384, SQUARE(3, 1, 1), 0);
    build_relu(b, "relu3", "conv3");
    add_conv(b, "conv4", "conv3", 384, &conv45, 0.1f);
    build_relu(b, "relu4", "conv4");
    add_conv(b, "conv5", "conv4", 256, &conv45, 0.1f);
    build_relu(b, "relu5", "conv5");
    build_pool_max(b, "pool5", "conv5", 3, 2);
    add_inner(b, "fc6", "pool5", 4096, 0.005f, 0.1f);
    build_relu(b, "relu6", "fc6");
    build_dropout(b, "drop6", "fc6", 0.5f);
    add_inner(b, "fc7", "fc6", 4096, 0.005f, 0.1f);
    build_relu(b, "relu7", "fc7");
    build_dropout(b, "drop7", "fc7", 0.5f);
    add_inner(b, "fc8", "fc7", plan->classes, 0.01f, 0);
    zoo_end(b, "fc8", false);
}

/* DSSP's "downsized AlexNet" for CIFAR-10 (§V): 3 convolutions and 2 fully connected layers, no
 * sizes given. These are ours: 64 maps of 5×5, 64 of 5×5, 128 of 3×3, each followed by a pooling of
 * 3×3 that halves the image, then 1,024 and 10 neurons: 2,289,610 parameters, of which the fully
 * connected layers hold 92 %, as AlexNet's hold 96 %. So it is cheap to compute and expensive to
 * send, which is its purpose in the letter. Weights are initialised as in He et al. 2015, so that
 * it learns from records of any scale. */
void zoo_alexnet_small(struct build *b, const struct zoo_plan *plan)
{
    const struct build_weights weights = zoo_weights("msra", 0, 0);
    zoo_begin(b);
    build_convolution(b, "conv1", "data", 64, SQUARE(5, 1, 2), &weights);
    build_relu(b, "relu1", "conv1");
    build_lrn(b, "norm1", "conv1", &lrn);
    build_pool_max(b, "pool1", "norm1", 3, 2);
    build_convolution(b, "conv2", "pool1", 64, SQUARE(5, 1, 2), &weights);
    build_relu(b, "relu2", "conv2");
    build_lrn(b, "norm2", "conv2", &lrn);
    build_pool_max(b, "pool2", "norm2", 3, 2);
    build_convolution(b, "conv3", "pool2", 128, SQUARE(3, 1, 1), &weights);
    build_relu(b, "relu3", "conv3");
    build_pool_max(b, "pool3", "conv3", 3, 2);
    build_inner_product(b, "fc4", "pool3", 1024, &weights);
    build_relu(b, "relu4", "fc4");
    build_dropout(b, "drop4", "fc4", 0.5f);
    add_inner(b, "fc5", "fc4", plan->classes, 0.01f, 0);
    zoo_end(b, "fc5", false);
}
