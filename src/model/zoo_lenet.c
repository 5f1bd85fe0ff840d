/* Nets for digits: records of 1×28×28. */
#include "model/zoo_nets.h"

/* LeNet as Caffe's MNIST example has it (lenet_train_test.prototxt): 431,080 parameters. */
void zoo_lenet(struct build *b, const struct zoo_plan *plan)
{
    zoo_begin(b);
    build_conv(b, "conv1", "data", 20, 5, 1, 0);
    build_pool_max(b, "pool1", "conv1", 2, 2);
    build_conv(b, "conv2", "pool1", 50, 5, 1, 0);
    build_pool_max(b, "pool2", "conv2", 2, 2);
    build_inner(b, "ip1", "pool2", 500);
    build_relu(b, "relu1", "ip1");
    build_inner(b, "ip2", "ip1", plan->classes);
    zoo_end(b, "ip2", false);
}

/* SparkDML's fully connected net (§3: 784-480-160-10 on MNIST; sigmoids as in its Eq. 3), for
 * records of any size: 455,370 parameters at 784. Weights and biases learn at one rate, since the
 * paper trains it by conjugate gradients, which have no other. */
void zoo_fc_480_160(struct build *b, const struct zoo_plan *plan)
{
    struct build_weights weights = build_weights_default;
    weights.bias_rate = 1.0f;
    zoo_begin(b);
    build_inner_product(b, "ip1", "data", 480, &weights);
    build_sigmoid(b, "sigmoid1", "ip1");
    build_inner_product(b, "ip2", "ip1", 160, &weights);
    build_sigmoid(b, "sigmoid2", "ip2");
    build_inner_product(b, "ip3", "ip2", plan->classes, &weights);
    zoo_end(b, "ip3", false);
}

/* SparkDML's convolutional net (§3): 6 maps of 5×5, mean pooling of 2×2, 12 of 5×5, mean pooling,
 * 12 of 4×4, which leaves one pixel of 28×28, and a fully connected layer with softmax: 4,414
 * parameters. The paper's only activation is the sigmoid of its Eq. 3. It does not state its
 * position in the convolutional net: here it follows each convolution. */
void zoo_cnn_6_12_12(struct build *b, const struct zoo_plan *plan)
{
    zoo_begin(b);
    build_conv(b, "conv1", "data", 6, 5, 1, 0);
    build_sigmoid(b, "sigmoid1", "conv1");
    build_pool_average(b, "pool1", "conv1", 2, 2);
    build_conv(b, "conv2", "pool1", 12, 5, 1, 0);
    build_sigmoid(b, "sigmoid2", "conv2");
    build_pool_average(b, "pool2", "conv2", 2, 2);
    build_conv(b, "conv3", "pool2", 12, 4, 1, 0);
    build_sigmoid(b, "sigmoid3", "conv3");
    build_inner(b, "ip1", "conv3", plan->classes);
    zoo_end(b, "ip1", false);
}
