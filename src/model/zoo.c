#include "model/zoo.h"

#include "job/text.h"
#include "model/build.h"

#include <stdio.h>
#include <string.h>

/* LeNet as Caffe's MNIST example has it (lenet_train_test.prototxt): 431,080 parameters. */
static void lenet(struct build *b)
{
    build_input(b, "data", "label");
    build_conv(b, "conv1", "data", 20, 5, 1, 0);
    build_pool_max(b, "pool1", "conv1", 2, 2);
    build_conv(b, "conv2", "pool1", 50, 5, 1, 0);
    build_pool_max(b, "pool2", "conv2", 2, 2);
    build_inner(b, "ip1", "pool2", 500);
    build_relu(b, "relu1", "ip1");
    build_inner(b, "ip2", "ip1", 10);
    build_accuracy(b, "accuracy", "ip2", "label");
    build_softmax_loss(b, "loss", "ip2", "label");
}

/* A layer that build.h has no call for, as a prototxt has it. What we wrote ourselves can fail to
 * be read for want of memory alone. */
static void layer_of(struct build *b, const char *text)
{
    ProtobufCMessage *layer = NULL;
    struct err err = {0};
    if (text_parse(&caffe__layer_parameter__descriptor, "zoo", text, strlen(text), &layer, &err))
        b->failed = true;
    else
        build_layer(b, (Caffe__LayerParameter *)layer);
}

/* SparkDML's fully connected net (§3: 784-480-160-10 on MNIST; sigmoids as in its Eq. 3), for
 * records of any size: 455,370 parameters at 784. Weights and biases learn at one rate, since the
 * paper trains it by conjugate gradients, which have no other. */
static void fc_480_160(struct build *b)
{
    struct build_weights weights = build_weights_default;
    weights.bias_rate = 1.0f;
    build_input(b, "data", "label");
    build_inner_product(b, "ip1", "data", 480, &weights);
    layer_of(b, "name: 'sigmoid1' type: 'Sigmoid' bottom: 'ip1' top: 'ip1'");
    build_inner_product(b, "ip2", "ip1", 160, &weights);
    layer_of(b, "name: 'sigmoid2' type: 'Sigmoid' bottom: 'ip2' top: 'ip2'");
    build_inner_product(b, "ip3", "ip2", 10, &weights);
    build_accuracy(b, "accuracy", "ip3", "label");
    build_softmax_loss(b, "loss", "ip3", "label");
}

static const struct {
    const char *name;
    void (*make)(struct build *b);
} nets[] = {
    {"lenet", lenet},
    {"fc-480-160", fc_480_160},
};

enum { NETS = sizeof nets / sizeof nets[0] };

int zoo_net(const char *name, Caffe__NetParameter **out, struct err *err)
{
    char known[256];
    size_t used = 0;
    for (size_t i = 0; i < NETS; i++) {
        if (strcmp(name, nets[i].name) == 0) {
            struct build b;
            build_begin(&b, name);
            nets[i].make(&b);
            return build_end(&b, out, err);
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                 nets[i].name);
    }
    return err_set(err, ERR_INPUT, "the zoo has no net \"%.64s\"; it has: %s", name, known);
}
