#include "model/zoo.h"

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

static const struct {
    const char *name;
    void (*make)(struct build *b);
} nets[] = {
    {"lenet", lenet},
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
